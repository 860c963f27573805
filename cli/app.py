"""The command line: its commands, and the one place where errors become exit codes."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

import typer
import typer.core
import typer.main

from ..generation.errors import MinigenError, UsageError
from . import options as o
from .interrupts import Interruption, Interrupts
from .notes import say, without_secrets
from .run import run
from .shared_line import line_end
from .streams import flushed, hold_closed_descriptors, silence_output
from .terminal import dress_help
from .usage import usage_sentence

_HELP = {"help_option_names": ["-h", "--help"]}
_LATER: Final = {  # commands whose modules are imported when they are used
    "batch": "Generate for every line of a file, many at a time.",
    "sweep": "Compare settings: every combination of them in one batch, and what comes of each.",
    "score": "Tell how likely a text is, token by token.",
    "diff": "Tell what a change of the prompt changes about a text.",
    "tokens": "Show how a text is cut into tokens.",
    "replay": "Draw a traced run again under other settings, without the model.",
    "report": "Write a traced run as a web page.",
    "presets": "List, show, check and write presets.",
    "models": "List, fetch, compile, show and remove model files.",
    "doctor": "Show versions, devices and folders, for a bug report.",
}
_ABOUT = """See and steer how a language model writes.

Examples:

  minigen run "Write a haiku about rain."

  cat notes.txt | minigen run "Summarise this." --inspect
"""
_FAILED, _MISUSED = 1, 2


class _Commands(typer.core.TyperGroup):
    """A group that knows the names of all commands, and imports some of them when they are called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, about in _LATER.items():
            self.add_command(typer.core.TyperCommand(name, help=about))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Give the called command, imported."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, _imported(name) if name in _LATER else command, rest


def _imported(name: str) -> Any:
    """Give the command of the module that has its name: a group of commands, `app`, or a function of the same name."""
    module = import_module(f".{name}", __package__)
    if hasattr(module, "app"):
        return typer.main.get_group(module.app)
    alone = typer.Typer(context_settings=_HELP, add_completion=False)
    alone.command(name, cls=getattr(module, "Command", None))(getattr(module, name))
    return typer.main.get_command(alone)


app = typer.Typer(
    name="minigen",
    cls=_Commands,
    help=_ABOUT,
    context_settings=_HELP,
    pretty_exceptions_enable=False,
    pretty_exceptions_show_locals=False,
    rich_markup_mode="rich",
)
app.command("run")(run)


@app.callback(invoke_without_command=True)
def _start(context: typer.Context, version: o.Version = False, debug: o.Debug = False) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        return
    try:
        os.getcwd()
    except FileNotFoundError:
        raise UsageError("The current folder is gone: change to another one first.") from None  # libraries die of it


def main(arguments: Sequence[str] | None = None) -> int:
    """Run minigen and give its exit code: 0, 1 the run failed, 2 wrong usage, 130, 143 or 129 a signal."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    is_debug = "--debug" in (given[: given.index("--")] if "--" in given else given)
    code = _FAILED
    hold_closed_descriptors()
    with Interrupts() as interrupts:
        try:
            code = _called(given, interrupts)
        except Interruption:
            code = _interrupted(interrupts)
        except BrokenPipeError:
            code = 0
            silence_output()
        except typer.TyperException as error:
            _trace(is_debug)
            code = error.exit_code if error.format_message() else 0  # a group alone has shown its help
            if code:
                say(usage_sentence(error, given, typer.main.get_command(app)))
        except Exception as error:  # noqa: BLE001 -- whatever it is, it becomes a sentence and an exit code
            _trace(is_debug)
            if interrupts.exit_code is not None:  # a library has made a failure of its own of the signal
                code = _interrupted(interrupts)
            elif isinstance(error, MinigenError):
                say(str(error))
                code = _MISUSED if isinstance(error, UsageError) else _FAILED
            else:
                say(_unexpected_sentence(error, is_debug))
        return flushed(code, _FAILED)


def _called(arguments: list[str], interrupts: Interrupts) -> int:
    if sys.stdout is None and arguments[:1] != ["run"]:  # which may have --output
        raise UsageError("Standard output is closed.")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a narrow encoding stops no command
    if not arguments or {"-h", "--help"} & set(arguments) or len(arguments) == 1:
        dress_help(arguments)
    try:
        result = typer.main.get_command(app).main(arguments, prog_name="minigen", standalone_mode=False, obj=interrupts)
    except SystemExit as ending:  # Typer's way to end at a closed pipe, and after shell completion
        if isinstance(ending.__context__, BrokenPipeError):
            raise BrokenPipeError from None
        result = ending.code
    return result if isinstance(result, int) else 0


def _interrupted(interrupts: Interrupts) -> int:
    say("interrupted." if interrupts.exit_code == 130 else "terminated.")
    return interrupts.exit_code or _FAILED


def _unexpected_sentence(error: Exception, is_debug: bool) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = f" ({error.filename})" if error.filename else ""
        return f"The system says: {error.strerror}{where}."
    hint = "." if is_debug else "; run it with --debug for the traceback."
    return f"This is a fault in minigen: {type(error).__name__}: {error}{hint}"


def _trace(is_debug: bool) -> None:
    if is_debug:
        import traceback

        with contextlib.suppress(OSError):
            sys.stderr.write(line_end(sys.stderr) + without_secrets(traceback.format_exc()))
