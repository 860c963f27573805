"""`minigen doctor`: versions, devices, folders and environment, as one block for a bug report."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import typer

from .escaping import shown_in_cell
from .json_line import is_unicode, line_of
from .notes import without_secrets

_PACKAGES = (
    "torch",
    "transformers",
    "tokenizers",
    "huggingface_hub",
    "safetensors",
    "gguf",
    "accelerate",
    "rich",
    "typer",
)
_FAMILIES = re.compile(r"(MINIGEN|HF|HUGGING_?FACE\w*|TRANSFORMERS|TORCH|PYTORCH|CUDA|OMP|MKL|TQDM)_\w+")
_NAMED = frozenset(
    (
        "NO_COLOR",
        "FORCE_COLOR",
        "CLICOLOR",
        "CLICOLOR_FORCE",
        "TERM",
        "COLUMNS",
        "LANG",
        "LC_ALL",
        "XDG_CACHE_HOME",
        "XDG_CONFIG_HOME",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "DO_NOT_TRACK",
        "PYTHONIOENCODING",
        "PYTHONUTF8",
    )
)
_SECRET = re.compile(r"TOKEN|KEY|SECRET|PASS|AUTH|CREDENTIAL", re.IGNORECASE)
_CREDENTIALS = re.compile(r"(?<=://)[^/\s]*@")  # user and password in an address


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Show versions, devices, folders and environment: the block for a bug report. Secrets are never shown.

    Example: minigen doctor
    """
    report = {
        "versions": _versions(),
        "platform": _platform(),
        "devices": _devices(),
        "folders": _folders(),
        "environment": environment(os.environ),
    }
    if as_json:
        typer.echo(line_of(report, is_ascii=not is_unicode(sys.stdout)))
        return
    for title, facts in report.items():
        typer.echo(title)
        width = max(map(len, facts), default=0)
        for name, value in facts.items() or {"none": ""}.items():
            typer.echo(f"  {name:{width}}  {shown_in_cell(str(value))}".rstrip())


def _versions() -> dict[str, str]:
    found = {"minigen": _version("minigen-cli"), "python": platform.python_version()}
    return found | {name: _version(name) for name in _PACKAGES}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _platform() -> dict[str, Any]:
    return {"system": platform.platform(), "machine": platform.machine(), "processors": os.cpu_count() or "unknown"}


def _devices() -> dict[str, str]:
    """Give the devices with their names, what `auto` chooses, and the threads in use."""
    try:
        import torch

        from ..generation.device import available_devices, choose_device, choose_dtype
    except ImportError as error:  # a broken installation is what this command is for
        return {"torch": f"cannot be imported: {error}"}
    names = dict.fromkeys(available_devices(), "")
    for device in names:
        if device.startswith("cuda"):
            facts = torch.cuda.get_device_properties(device)
            names[device] = f"{facts.name}, {facts.total_memory / 1e9:.1f} GB"
        elif device == "cpu":
            names[device] = f"{torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}"
    chosen = choose_device("auto")
    return names | {"auto": f"{chosen}, {choose_dtype('auto', chosen)}"}


def _folders() -> dict[str, str]:
    from huggingface_hub import constants

    from ..generation.errors import MinigenError
    from ..generation.sources import cache_folder
    from ..presets.finding import user_folder

    try:
        cache = str(cache_folder())
    except MinigenError as error:
        cache = str(error)
    return {"presets": str(user_folder() or "none"), "cache": cache, "hub cache": str(constants.HF_HUB_CACHE)}


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Give the variables that change what minigen does; a secret's value is replaced by `(set)`."""
    shown = {}
    for name in sorted(variables):
        if name.upper() in _NAMED or _FAMILIES.fullmatch(name):
            value = _CREDENTIALS.sub("***@", without_secrets(variables[name]))
            shown[name] = "(set)" if _SECRET.search(name) and value else value
    return shown
