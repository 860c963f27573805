"""The younger filters, against the engines they are from: top-n-sigma, dynatemp, epsilon, eta, XTC and mirostat."""

import math
from typing import Any

import minigen.generation as f
import pytest
import torch
from hypothesis import given, settings, strategies as st
from minigen.generation.cutoffs import next_limit
from minigen.generation.errors import ParameterError
from torch import Tensor
from transformers.generation import logits_process as hf

L = torch.tensor([2, 1, 1, 0.5, 0, -1, -2, -4])
INF = math.inf


def logits(*probs: float) -> Tensor:
    return torch.tensor(probs).log()


def kept(row: Tensor) -> list[int]:
    return [i for i, value in enumerate(row.tolist()) if value > -INF]


def plain_softmax(row: list[float]) -> list[float]:
    """Give the softmax in Python's own numbers."""
    highest = max(row)
    weights = [math.exp(value - highest) if value > -INF else 0.0 for value in row]
    return [weight / math.fsum(weights) for weight in weights]


def plain_entropy(probs: list[float]) -> float:
    return -math.fsum(p * math.log(p) for p in probs if p > 0)


@pytest.mark.parametrize(
    ("row", "left"),
    [
        (f.apply_epsilon_cutoff(L, 0.01), [0, 1, 2, 3, 4, 5]),
        (f.apply_epsilon_cutoff(L, 0.05), [0, 1, 2, 3, 4]),
        (f.apply_epsilon_cutoff(L, 0.1), [0, 1, 2, 3]),
        (f.apply_eta_cutoff(L, 0.001), [0, 1, 2, 3, 4, 5, 6, 7]),
        (f.apply_eta_cutoff(L, 0.01), [0, 1, 2, 3, 4, 5]),
        (f.apply_eta_cutoff(L, 0.1), [0, 1, 2, 3]),
        (f.apply_top_n_sigma(L, 1.0), [0, 1, 2, 3]),  # the deviation is 1.79: what is above 0.21 stays
    ],
)
def test_the_vectors_of_the_reference_engines(row: Tensor, left: list[int]) -> None:
    assert kept(row) == left


@pytest.mark.parametrize(
    ("row", "left"),
    [
        (f.apply_top_n_sigma(logits(0.1, 0.2, 0.3, 0.4), 1.0), [0, 0, 0.428571, 0.571429]),
        (f.apply_top_n_sigma(logits(0.1, 0.2, 0.3, 0.4), 0.0), [0.1, 0.2, 0.3, 0.4]),
        (f.apply_top_n_sigma(logits(0.1, 0.2, 0.3, 0.4), 3.0), [0.1, 0.2, 0.3, 0.4]),
        (f.apply_xtc(logits(0.4, 0.3, 0.2, 0.1), 0.09), [0, 0, 0, 1]),
        (f.apply_xtc(logits(0.4, 0.3, 0.2, 0.1), 0.19), [0, 0, 2 / 3, 1 / 3]),
        (f.apply_xtc(logits(0.4, 0.3, 0.2, 0.1), 0.29), [0, 0.5, 1 / 3, 1 / 6]),
        (f.apply_xtc(logits(0.4, 0.3, 0.2, 0.1), 0.39), [0.4, 0.3, 0.2, 0.1]),
        (f.apply_dynatemp(logits(0.1, 0.2, 0.3, 0.4), 1.0, 0.0, 1.0), [0.1, 0.2, 0.3, 0.4]),
        (f.apply_dynatemp(logits(0.1, 0.2, 0.3, 0.4), 0.0, 0.0, 1.0), [0, 0, 0, 1]),
    ],
)
def test_llama_cpp_s_own_numbers(row: Tensor, left: list[float]) -> None:
    assert row.softmax(-1).tolist() == pytest.approx(left, abs=1e-5)


@pytest.mark.parametrize("scale", [0.5, 3.0, 12.0])
@pytest.mark.parametrize("cutoff", [1e-5, 3e-4, 0.01, 0.2, 0.9])
def test_epsilon_and_eta_equal_transformers_own(cutoff: float, scale: float) -> None:
    rows = torch.randn(6, 3000, generator=torch.Generator().manual_seed(7)) * scale
    rows[1, ::3] = -INF
    rows[2, :2] = rows[2].max() + 1  # two likeliest tokens
    ids = torch.zeros(6, 1, dtype=torch.long)
    torch.testing.assert_close(f.apply_epsilon_cutoff(rows, cutoff), hf.EpsilonLogitsWarper(cutoff)(ids, rows.clone()))
    torch.testing.assert_close(f.apply_eta_cutoff(rows, cutoff), hf.EtaLogitsWarper(cutoff)(ids, rows.clone()))


@pytest.mark.parametrize(
    "cut",
    [
        lambda z: f.apply_epsilon_cutoff(z, 1.0),
        lambda z: f.apply_eta_cutoff(z, 1.0),
        lambda z: f.apply_top_n_sigma(z, 1e-9),
        lambda z: f.apply_mirostat(z, 0.0),
        lambda z: f.apply_mirostat(z, -5.0),
    ],
)
def test_the_likeliest_token_always_stays(cut: Any) -> None:
    row = torch.tensor([0.0, 3.0, 1.0, -INF])
    assert kept(cut(row)) == [1]
    assert kept(cut(torch.tensor([-INF, 1.0]))) == [1]


def test_top_n_sigma_counts_only_what_is_left_and_no_later_temperature() -> None:
    row = torch.randn(500, generator=torch.Generator().manual_seed(3)) * 4
    masked = torch.cat([row, torch.full((300,), -INF)])
    for n in (0.3, 1.0, 2.5):
        values = row.tolist()
        mean = math.fsum(values) / len(values)
        deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
        expected = [i for i, value in enumerate(values) if value >= max(values) - n * deviation]
        assert kept(f.apply_top_n_sigma(row, n)) == expected
        assert kept(f.apply_top_n_sigma(masked, n)) == expected
        assert kept(f.apply_top_n_sigma(row / 0.3, n)) == expected


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([-INF, -3.0, 0.0, 0.5, 1.0, 4.0]), min_size=2, max_size=30).filter(
        lambda r: max(r) > -INF
    ),
    st.floats(0, 3),
    st.floats(0.01, 3),
    st.floats(0.2, 3),
)
def test_dynamic_temperature_follows_the_entropy(
    values: list[float], temperature: float, spread: float, exponent: float
) -> None:
    """Against the formula in Python's own numbers."""
    probs = plain_softmax(values)
    left = [value for value in values if value > -INF]
    if len(left) == 1:
        expected = probs
    else:
        low, high = max(0.0, temperature - spread), temperature + spread
        divisor = low + (high - low) * (plain_entropy(probs) / math.log(len(left))) ** exponent
        expected = plain_softmax([value / divisor for value in values])
    row = f.apply_dynatemp(torch.tensor(values), temperature, spread, exponent)
    assert row.softmax(-1).tolist() == pytest.approx(expected, abs=2e-4)


def test_dynamic_temperature_at_its_ends() -> None:
    """A sure model gets the lowest temperature, an unsure one the highest, and 0 takes the likeliest token."""
    flat = torch.full((6,), 3.0)
    assert f.apply_dynatemp(flat, 1.0, 0.5).tolist() == pytest.approx([2.0] * 6)
    sure = torch.tensor([1000.0, 0.0, 0.0])
    assert f.apply_dynatemp(sure, 1.0, 0.5).tolist() == [2000.0, 0.0, 0.0]
    assert kept(f.apply_dynatemp(sure, 0.5, 0.5)) == [0]
    alone = torch.tensor([-INF, 2.0])
    assert f.apply_dynatemp(alone, 0.5, 0.5).tolist() == [-INF, 2.0]


def test_xtc_leaves_the_last_by_rank_of_a_tie() -> None:
    assert kept(f.apply_xtc(torch.zeros(4), 0.2)) == [3]
    assert kept(f.apply_xtc(logits(0.3, 0.3, 0.3, 0.1), 0.2)) == [2, 3]
    assert kept(f.apply_xtc(logits(0.05, 0.45, 0.5), 0.4)) == [0, 1]


def test_xtc_needs_two_likely_tokens_and_counts_no_dropped_one() -> None:
    alone = logits(0.8, 0.1, 0.1)
    assert torch.equal(f.apply_xtc(alone, 0.3), alone)
    assert f.apply_xtc(alone, 0.51) is alone
    assert kept(f.apply_xtc(torch.tensor([1.0, 0.0, -INF]), 0.0)) == [1]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([-2.0, 0.0, 0.5, 1.0]), min_size=1, max_size=12), st.floats(0, 0.6))
def test_xtc_drops_all_likely_tokens_but_the_last(values: list[float], threshold: float) -> None:
    row = torch.tensor(values)
    probs = row.softmax(-1).tolist()
    ranked = sorted(range(len(values)), key=lambda i: (-values[i], i))
    likely = [i for i in ranked if probs[i] >= torch.tensor(threshold).item()]
    dropped = set(likely[:-1]) if threshold <= 0.5 else set()
    assert kept(f.apply_xtc(row, threshold)) == [i for i in range(len(values)) if i not in dropped]


def test_mirostat_cuts_by_surprisal() -> None:
    row = logits(0.5, 0.25, 0.125, 0.125)
    assert kept(f.apply_mirostat(row, 2.5)) == [0, 1]
    assert kept(f.apply_mirostat(row, 3.5)) == [0, 1, 2, 3]
    assert kept(f.apply_mirostat(torch.zeros(4), 1.0)) == [0], "one token stays, the first of a tie"
    assert f.apply_mirostat(row, None) is row


def test_mirostat_s_limit_moves_against_the_error() -> None:
    assert next_limit(10.0, 0.125, tau=5.0, eta=0.1) == pytest.approx(10.2)
    assert next_limit(10.0, 2**-8, tau=5.0, eta=0.5) == pytest.approx(8.5)
    assert next_limit(10.0, 0.0, tau=5.0, eta=0.5) == 10.0, "a dropped token says nothing"


NEUTRAL: list[tuple[Any, tuple[Any, ...]]] = [
    (f.apply_top_n_sigma, (0.0,)),
    (f.apply_top_n_sigma, (None,)),
    (f.apply_dynatemp, (1.0, 0.0)),
    (f.apply_dynatemp, (1.0, None)),
    (f.apply_epsilon_cutoff, (0.0,)),
    (f.apply_epsilon_cutoff, (None,)),
    (f.apply_eta_cutoff, (0.0,)),
    (f.apply_eta_cutoff, (None,)),
    (f.apply_xtc, (None,)),
    (f.apply_mirostat, (None,)),
]


@pytest.mark.parametrize(("apply", "given_"), NEUTRAL)
def test_neutral_values_change_nothing_bit_for_bit(apply: Any, given_: tuple[Any, ...]) -> None:
    """SMP-8"""
    assert apply(L, *given_) is L


CUTS: list[Any] = [
    lambda z: f.apply_top_n_sigma(z, 1.0),
    lambda z: f.apply_dynatemp(z, 0.8, 0.5, 1.3),
    lambda z: f.apply_dynatemp(z, 0.5, 0.5),
    lambda z: f.apply_epsilon_cutoff(z, 0.1),
    lambda z: f.apply_eta_cutoff(z, 0.1),
    lambda z: f.apply_xtc(z, 0.1),
    lambda z: f.apply_mirostat(z, 2.0),
]


@pytest.mark.parametrize("cut", CUTS)
def test_a_batch_gives_what_each_row_gives_alone(cut: Any) -> None:
    rows = torch.stack([L, L.flip(0), torch.zeros(8), L * 9, torch.where(L > 0.9, L, -INF)])
    together = cut(rows[:, None])
    assert together.shape == (5, 1, 8)
    for row, alone in zip(together[:, 0], rows, strict=True):
        torch.testing.assert_close(row, cut(alone))


@pytest.mark.parametrize("cut", CUTS)
def test_a_row_of_minus_infinity_stays_one(cut: Any) -> None:
    row = torch.full((3,), -INF)
    assert torch.equal(cut(row), row)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("cut", [cut for i, cut in enumerate(CUTS) if i not in (1, 2)])
def test_half_logits_keep_what_the_same_numbers_keep_in_float32(cut: Any, dtype: torch.dtype) -> None:
    row = (torch.randn(20_000, generator=torch.Generator().manual_seed(4)) * 2).to(dtype)
    assert cut(row).dtype == dtype
    assert kept(cut(row).float()) == kept(cut(row.float()))


def test_dynamic_temperature_keeps_the_type_of_its_row() -> None:
    assert f.apply_dynatemp(L.half(), 0.8, 0.5).dtype == torch.float16


@pytest.mark.parametrize(
    ("apply", "value"),
    [
        (f.apply_top_n_sigma, -1.0),
        (f.apply_epsilon_cutoff, 1.5),
        (f.apply_eta_cutoff, math.nan),
        (f.apply_xtc, -0.1),
        (lambda z, value: f.apply_dynatemp(z, 1.0, value), -0.5),
        (lambda z, value: f.apply_dynatemp(z, 1.0, 0.5, value), 0.0),
    ],
)
def test_a_value_out_of_range_is_refused(apply: Any, value: float) -> None:
    with pytest.raises(ParameterError):
        apply(L, value)
