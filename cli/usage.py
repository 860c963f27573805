"""What is said of a command line that cannot be read: what is wrong with it, and where help is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import typer

_TEXTS: Final = {"PROMPT": "prompt", "TEXT": "text"}  # arguments that may be any text, by their name in help
_ELSEWHERE: Final = {  # what other tools call an option
    "--max-tokens": "--max-new-tokens",
    "--max-completion-tokens": "--max-new-tokens",
    "--n-predict": "--max-new-tokens",
    "--num-predict": "--max-new-tokens",
    "--repeat-penalty": "--repetition-penalty",
    "--num-return-sequences": "--num-samples",
}


def usage_sentence(error: typer.TyperException, arguments: Sequence[str], command: Any) -> str:
    """Say what is wrong with `arguments`, and where help is. command: the whole program."""
    message = error.format_message().replace("Value error, ", "").rstrip(". ")
    context = getattr(error, "ctx", None)
    found, path = (context.command, context.command_path) if context is not None else _called(command, arguments)
    noun = next((_TEXTS[each.metavar] for each in found.params if each.metavar in _TEXTS), None)
    option = getattr(error, "option_name", None) or ""
    if hasattr(error, "possibilities"):
        if noun is not None and _may_begin_a_text(option, arguments):
            return f'{message}. A {noun} that starts with a dash goes after --: {path} -- "{option.strip()} ...".'
        message = _with_the_likeliest(message, option, found)
    if "unexpected extra argument" in message and noun is not None:
        return f"{message}. A {noun} of several words goes in quotes, and options go before --."
    return f"{message}{'' if message.endswith('?') else '.'} See {path} --help."


def _called(command: Any, arguments: Sequence[str]) -> tuple[Any, str]:
    """Find the command that `arguments` name, with the words that call it."""
    path = "minigen"
    for name in arguments:
        if name not in getattr(command, "commands", {}):
            break
        _, command, _ = command.resolve_command(None, [name])  # without a context, which only an unknown name needs
        path = f"{path} {name}"
    return command, path


def _may_begin_a_text(option: str, arguments: Sequence[str]) -> bool:
    """Whether an option that is none looks like the beginning of a text: `-5` of "-5 + 3", or `- ` of "- hi"."""
    is_word = " " not in option and option.startswith("--") and option[2:3].isalpha()
    return not is_word and any(each.startswith(option) for each in arguments)


def _with_the_likeliest(message: str, option: str, command: Any) -> str:
    """Name the option that is called `option` elsewhere, where the command has it."""
    meant = _ELSEWHERE.get(option.replace("_", "-"))
    has_it = any(meant in each.opts and not getattr(each, "hidden", False) for each in command.params)
    return f"No such option: {option}. Did you mean {meant}?" if has_it else message
