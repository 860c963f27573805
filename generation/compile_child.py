"""The compiling process seen from the one that starts it: it runs beside that one, and ends with it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Compilation:
    """A process that compiles the decode step of a model for so many rows.

    said: the lines that it wrote to its stderr, where that is a pipe.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", result: Path) -> None:
        self._process, self._result = process, result
        self.said: list[str] = []

    def told(self) -> dict[str, Any]:
        """Wait for its end; give what it tells: what a package must know, or why there is no code.

        That is `error`, a reason; `errno`, of the disk; or `ended`, the code of a process that told nothing.
        """
        self.wait()
        try:
            told: dict[str, Any] = json.loads(self._result.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {"ended": self._process.returncode}
        return told

    def wait(self) -> None:
        """Wait until it is gone, and whatever else writes to the same pipe."""
        if self._process.stderr is not None:
            self.said += self._process.stderr.read().decode(errors="replace").strip().splitlines()
        self._process.wait()


def has_failed(told: dict[str, Any]) -> bool:
    """Whether what a process tells is why there is no code."""
    return not told.keys().isdisjoint(("error", "errno", "ended"))


@contextmanager
def compilation(
    model: Path, weights: str, rows: int, out: Path, scratch: Path, stderr: Any = None
) -> Iterator[Compilation]:
    """Start to compile, into the folder `out`; whatever is not done when the block ends is ended then.

    scratch: a folder for what is not kept; stderr: as Popen takes it.
    """
    result = scratch / f"result-{rows}.json"
    command = [sys.executable, "-P", "-m", f"{__package__}.compile_process"]
    with subprocess.Popen(
        [*command, str(model), weights, str(rows), str(out), str(result)],
        stdin=subprocess.PIPE,  # when this process is gone, so are that one and the compilers that it runs
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(scratch), "PYTHONWARNINGS": "ignore"},
        start_new_session=True,
    ) as process:
        assert process.stdin is not None
        found = Compilation(process, result)
        try:
            yield found
        finally:
            process.stdin.close()
            found.wait()
