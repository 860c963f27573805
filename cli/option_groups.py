"""Groups of options that several commands take: every sampling setting, and what names, places and loads a model."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import Annotated, Any, TypeVar

import typer

from ..generation.about import SETTINGS
from ..generation.errors import ParameterError
from ..generation.orders import Order
from ..generation.params import TEXTS, TOKEN_IDS
from ..generation.ranges import RANGES
from ..presets.spelling import flag_of
from . import options as o
from .option_kinds import CLEARED, IDS_WANTED, SAMPLING_PANEL, bias, choice, setting, switch, texts, token_ids

Command = TypeVar("Command", bound=Callable[..., Any])

_SHORT = {"temperature": "-t"}
MODEL: Mapping[str, Any] = {
    "preset": o.PresetName,
    "model": o.ModelSource,
    "revision": o.Revision,
    "device": o.Device,
    "dtype": o.Dtype,
    "threads": o.Threads,
}
WRITING_MODEL: Mapping[str, Any] = {**MODEL, "compile": o.Compile, "weights": o.Weights}  # for commands that generate
WORLD: Mapping[str, Any] = {"offline": o.Offline, "trust_remote_code": o.TrustRemoteCode}


def _sampling_option(name: str) -> Any:
    if name in RANGES:
        return Annotated[RANGES[name].kind | None, setting(name, _SHORT.get(name, ""))]
    if name in TEXTS:
        return Annotated[list[str] | None, texts(name)]
    if name in TOKEN_IDS:
        return Annotated[list[Any] | None, token_ids(name)]
    if name == "order":
        return Annotated[Order | None, choice(name)]
    if name == "ignore_eos":
        return Annotated[bool, switch("--ignore-eos", "Go on after an end token.", SAMPLING_PANEL)]
    return Annotated[
        list[Any] | None,
        typer.Option(
            "--logit-bias", metavar="ID=B", parser=bias, rich_help_panel=SAMPLING_PANEL, show_default=False,
            help="Add B to the logit of token ID; -inf bans it. Repeatable.",
        ),
    ]  # fmt: skip


SAMPLING: Mapping[str, Any] = {name: _sampling_option(name) for name in SETTINGS}


def takes(group: Mapping[str, Any], *, after: str) -> Callable[[Command], Command]:
    """Give a command the options of a group, in its help after the parameter `after`.

    The command takes what it does not name as keyword arguments; `context.params` has them all.
    """

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)
        own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        added = [
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=kind, default=_default(kind))
            for name, kind in group.items()
        ]
        place = [each.name for each in own].index(after) + 1
        parameters = [*own[:place], *added, *own[place:]]
        changed: Any = command
        changed.__signature__ = signature.replace(parameters=parameters)
        changed.__annotations__ = {each.name: each.annotation for each in parameters}
        return command

    return decorate


def hidden(names: Iterable[str]) -> dict[str, Any]:
    """Give sampling options that help leaves out, because the command refuses them with a sentence of its own."""
    found: dict[str, Any] = {}
    for name in names:
        option = copy(SAMPLING[name].__metadata__[0])
        option.hidden = True
        found[name] = Annotated[SAMPLING[name].__origin__, option]
    return found


def _default(kind: Any) -> Any:
    return False if kind.__origin__ is bool else None


def sampling_settings(params: Mapping[str, Any]) -> dict[str, Any]:
    """Give the sampling settings among a command's parameters; None means not given."""
    given: dict[str, Any] = {name: params.get(name) or None for name in SAMPLING}
    given |= {name: params.get(name) for name in RANGES if name in SAMPLING}  # 0 is a value
    given["logit_bias"] = dict(params["logit_bias"]) if params["logit_bias"] else None
    for name in CLEARED:
        given[name] = [] if params[name] == [""] else given[name]
    for name in TOKEN_IDS:
        given[name] = _joined(name, params[name]) if params[name] else None
    return given


def _joined(name: str, parts: Sequence[Sequence[int]]) -> list[int]:
    """Join the ids of an option that was given several times; an empty value stands alone."""
    if len(parts) > 1 and not all(parts):
        raise ParameterError(flag_of(name), "", IDS_WANTED)
    return [token_id for part in parts for token_id in part]
