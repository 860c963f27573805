"""The process that talks to Ray for a batch: started, talked to, and ended with everything that it has started."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from multiprocessing import Pipe
from types import TracebackType
from typing import Final

from ..generation.errors import RunError
from .batch_parcels import Failure, Message, Order

_PATIENCE: Final = 10.0  # seconds for leaving a cluster, or ending one
_QUIET: Final = {"RAY_USAGE_STATS_ENABLED": "0", "PYTHONWARNINGS": "ignore"}


class ClusterProcess:
    """Runs batch_driver.py in a context, in a session of its own, so that a Ctrl-C is for the batch alone.

    does_tell: what Ray says reaches standard error; else nothing does.
    """

    def __init__(self, *, does_tell: bool) -> None:
        self._does_tell = does_tell
        self.folder = ""  # for the files of a Ray that is started for this batch

    def __enter__(self) -> ClusterProcess:
        self.folder = tempfile.mkdtemp(prefix="minigen-ray-", dir="/tmp")  # sockets need a short path
        self._channel, other = Pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", f"{__package__}.batch_driver", str(other.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=None if self._does_tell else subprocess.DEVNULL,
            pass_fds=[other.fileno()],
            start_new_session=True,
            env={**os.environ, **_QUIET},
        )
        other.close()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self._process.kill()
            self._process.wait()
            self._channel.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def send(self, message: Order) -> None:
        """Send what is next. Raises what has ended the process, if it has ended."""
        try:
            self._channel.send(message)
        except OSError:
            while self.receive() is not None:
                pass

    def receive(self, patience: float | None = None) -> Message | None:
        """Give what the process says next; None where nothing came within `patience` seconds.

        Raises the error that has ended the work.
        """
        try:
            if not self._channel.poll(patience):
                return None
            message: Message = self._channel.recv()
        except (EOFError, OSError):
            raise RunError("The Ray cluster was lost: its head, or the process that talks to it, has ended.") from None
        if isinstance(message, Failure):
            raise message.error()
        return message
