"""Threads that ran a compiled step: the interpreter does not end before they have.

A step keeps memory for what it gives in each thread, which is freed when that thread ends, a moment after it can be
joined. To free it takes the interpreter; one that is ending ends the process instead.
"""

import atexit
import sys
import threading
import time
from pathlib import Path

PATIENCE = 0.5  # seconds for all of them

_ids: set[int] = set()  # of the system's threads


def note_thread() -> None:
    """Have this thread waited for, unless it is the main one."""
    if threading.current_thread() is not threading.main_thread():
        _ids.add(threading.get_native_id())


@atexit.register
def wait_for_ends() -> None:
    """Wait until those that have done their work are gone; of others than Python's nobody knows, so they may all be."""
    if sys.platform != "linux":  # where nothing is kept
        return
    end = time.monotonic() + PATIENCE
    foreign = getattr(threading, "_DummyThread", ())  # stands for one that Python did not start, to the end
    going = {thread.native_id for thread in threading.enumerate() if not isinstance(thread, foreign)}
    while any(Path(f"/proc/self/task/{each}").exists() for each in _ids - going) and time.monotonic() < end:
        time.sleep(0.001)
