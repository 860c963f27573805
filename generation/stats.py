"""Counts and times of one sample. The clock is passed in, in seconds, so that a test can turn it."""

import sys
import time
from collections.abc import Callable


class RunStats:
    """Counts tokens and keeps the times that matter: when the prefill began, the first token, and the last."""

    def __init__(self, *, load_seconds: float = 0.0, clock: Callable[[], float] = time.perf_counter) -> None:
        self.load_seconds = load_seconds
        self.prompt_tokens = self.completion_tokens = 0
        self._clock = clock
        self._began = self._first = self._last = clock()

    def begin(self, prompt_tokens: int) -> None:
        """Note that the prefill of `prompt_tokens` begins."""
        self.prompt_tokens = prompt_tokens
        self._began = self._first = self._last = self._clock()

    def token(self) -> None:
        """Note one new token."""
        self._last = self._clock()
        self.completion_tokens += 1
        if self.completion_tokens == 1:
            self._first = self._last

    @property
    def first_token_seconds(self) -> float | None:
        """Seconds from the begin of the prefill to the first token."""
        return self._first - self._began if self.completion_tokens else None

    @property
    def prefill_tokens_per_second(self) -> float | None:
        """Prompt tokens over the time to the first token."""
        seconds = self.first_token_seconds
        return self.prompt_tokens / seconds if seconds else None

    @property
    def decode_tokens_per_second(self) -> float | None:
        """(n−1) tokens over the time from the first to the last; None below two."""
        seconds = self._last - self._first
        return (self.completion_tokens - 1) / seconds if self.completion_tokens > 1 and seconds > 0 else None

    @property
    def total_seconds(self) -> float:
        """Seconds from the begin of the prefill to the last token, load not counted."""
        return self._last - self._began


def peak_memory_bytes(device: str = "cpu") -> int | None:
    """Give the most memory used so far, in bytes: of the GPUs where the model is on them, else of this process.

    None where the system does not tell.
    """
    if device.startswith("cuda") or device == "balanced":
        import torch

        return int(sum(torch.cuda.max_memory_allocated(i) for i in range(torch.cuda.device_count())))
    try:
        import resource
    except ImportError:  # Windows
        return None
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * 1024
