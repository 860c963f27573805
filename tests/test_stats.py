"""Statistics on a clock that the test turns."""

import pytest
from minigen.generation.stats import RunStats, peak_memory_bytes


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_load_and_prefill_are_not_charged_to_the_reply() -> None:
    """STA-2"""
    clock = Clock()
    clock.now = 10.0  # the load
    stats = RunStats(load_seconds=10.0, clock=clock)
    stats.begin(prompt_tokens=400)
    clock.now += 2.0
    stats.token()
    for _ in range(19):
        clock.now += 0.1
        stats.token()
    assert stats.first_token_seconds == pytest.approx(2)
    assert stats.prefill_tokens_per_second == pytest.approx(200)
    assert stats.decode_tokens_per_second == pytest.approx(10)
    assert stats.total_seconds == pytest.approx(3.9)


def test_the_rate_counts_what_was_produced() -> None:
    """STA-1"""
    clock = Clock()
    stats = RunStats(clock=clock)
    stats.begin(prompt_tokens=5)
    stats.token()
    for _ in range(77):
        clock.now += 59.05 / 77
        stats.token()
    assert stats.decode_tokens_per_second == pytest.approx(77 / 59.05)


def test_rates_are_none_where_there_is_nothing_to_divide() -> None:
    stats = RunStats(clock=Clock())
    stats.begin(prompt_tokens=5)
    assert (stats.first_token_seconds, stats.prefill_tokens_per_second) == (None, None)
    stats.token()
    assert stats.decode_tokens_per_second is None


def test_peak_memory_is_in_bytes() -> None:
    assert (peak_memory_bytes() or 0) > 10_000_000
