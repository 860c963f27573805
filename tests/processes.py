"""The command as a process of its own."""

from __future__ import annotations

import subprocess
import sys

COMMAND = [sys.executable, "-m", "minigen.cli"]


def with_closed_output(*arguments: str, seconds: float = 60) -> tuple[bytes, int]:
    """Run a command whose reader has gone before it writes; give what it said and its exit code."""
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    return said, process.wait(seconds)
