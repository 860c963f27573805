"""Connecting to Ray: a cluster at an address, one that is found, or one that is started on this machine."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import ray

from ..generation.errors import RunError

_ADVICE: Final = "Run minigen on a machine of the cluster; where it wants a token, set RAY_AUTH_MODE=token."
_PATIENCE: Final = 5.0  # seconds for a connection
_LONGEST: Final = 12.0  # seconds until a cluster has answered
_LONGEST_START: Final = 120.0  # seconds until one was started here


def connect(address: str, folder: str, give_up: Callable[[str], None]) -> None:
    """Connect to the cluster that an address means; start one on this machine for "local", and where "" finds none.

    folder: for the files of one that is started. give_up: called in another thread, with a sentence, when it takes too
    long: Ray itself waits for minutes, and cannot be stopped. Raises RunError for a cluster that cannot be reached.
    """
    wanted = os.environ.get("RAY_ADDRESS", "") if address in ("", "auto") else address
    if wanted == "local" or (not wanted and not address and not _listens(_address_found())):
        _start(folder, give_up)
        return
    name = f"The Ray cluster{f' at {wanted}' if wanted else ''}"
    if wanted not in ("", "auto"):
        _check_listens(name, wanted)
    with _bounded(_LONGEST, give_up, f"{name} did not answer within {_LONGEST:.0f} seconds. {_ADVICE}"):
        try:
            ray.init(address=wanted or "auto", log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, RuntimeError, ValueError) as error:
            if not wanted and isinstance(error, ConnectionError):
                raise RunError(
                    "No Ray cluster was found here: give its address, or start one with --ray local."
                ) from error
            reason = " ".join(str(error).split()).rstrip(".")
            raise RunError(f"{name} cannot be reached: {reason}. {_ADVICE}") from error


def _address_found() -> str:
    """Give the address that `ray start` has left on this machine. Ray's own search would find a batch's Ray, too."""
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    with contextlib.suppress(OSError):
        return Path(folder, "ray", "ray_current_cluster").read_text().strip()
    return ""


def _start(folder: str, give_up: Callable[[str], None]) -> None:
    """Start a cluster of this machine alone."""
    with _bounded(_LONGEST_START, give_up, f"Ray did not start within {_LONGEST_START:.0f} seconds."):
        ray.init(
            address="local", include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR, _temp_dir=folder
        )


def _listens(address: str) -> bool:
    with contextlib.suppress(RunError):
        _check_listens("", address)
        return True
    return False


def _check_listens(name: str, address: str) -> None:
    """Raise RunError where nothing listens at host:port, which Ray would find out only after minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _PATIENCE).close()
    except (OSError, OverflowError, ValueError) as error:
        reason = "no answer" if isinstance(error, TimeoutError) else getattr(error, "strerror", None) or str(error)
        raise RunError(f"{name} cannot be reached: {reason}.") from error


@contextmanager
def _bounded(seconds: float, give_up: Callable[[str], None], text: str) -> Iterator[None]:
    timer = threading.Timer(seconds, give_up, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
