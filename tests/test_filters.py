"""Filters against sampling.md's vectors, against transformers' own processors, and our rule where they differ."""

import math
from typing import Any

import minigen.generation as f
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from minigen.generation.errors import ParameterError
from minigen.generation.leading import leading_ids
from torch import Tensor
from transformers.generation import logits_process as hf

L = torch.tensor([2, 1, 1, 0.5, 0, -1, -2, -4])


def logits(*probs: float) -> Tensor:
    return torch.tensor(probs).log()


def kept(row: Tensor) -> list[int]:
    return [i for i, value in enumerate(row.tolist()) if value > -math.inf]


def shares(row: Tensor) -> list[float]:
    return [round(share, 4) for share in row.softmax(-1).tolist()]


@pytest.mark.parametrize(
    ("row", "left"),
    [
        (f.apply_top_k(L, 2), [0, 1]),  # transformers keeps the tie; here the lowest id wins
        (f.apply_top_p(L, 0.46), [0]),
        (f.apply_top_p(L, 0.48), [0, 1]),
        (f.apply_top_p(L, 0.8), [0, 1, 2]),
        (f.apply_top_p(L, 0.9), [0, 1, 2, 3]),
        (f.apply_top_p(L, 0.95), [0, 1, 2, 3, 4]),
        (f.apply_min_p(L, 0.1), [0, 1, 2, 3, 4]),
        (f.apply_min_p(L, 0.2), [0, 1, 2, 3]),
        (f.apply_min_p(L, 0.5), [0]),
        (f.apply_typical_p(L, 0.2), [1, 2]),
        (f.apply_typical_p(L, 0.5), [0, 1, 2]),
        (f.apply_typical_p(L, 0.9), [0, 1, 2, 3]),
        (f.apply_typical_p(L, 0.95), [0, 1, 2, 3, 4]),
        (f.apply_no_repeat_ngram(L, [1, 3, 1, 6, 1], 2), [0, 1, 2, 4, 5, 7]),
        (f.apply_no_repeat_ngram(L, [1, 3, 4, 6, 1, 3], 3), [0, 1, 2, 3, 5, 6, 7]),
        (f.apply_no_repeat_ngram(L, [1, 3], 1), [0, 2, 4, 5, 6, 7]),
        (f.apply_no_repeat_ngram(L, [1], 2), [0, 1, 2, 3, 4, 5, 6, 7]),
        (f.apply_top_p(logits(0.1, 0.2, 0.3, 0.4), 0.4), [3]),
        (f.apply_top_p(logits(0.1, 0.2, 0.3, 0.4), 0.41), [2, 3]),
        (f.apply_top_p(logits(0.1, 0.2, 0.3, 0.4), 0.7), [2, 3]),
        (f.apply_top_p(logits(0.1, 0.2, 0.3, 0.4), 0.71), [1, 2, 3]),
        (f.apply_top_p(logits(0.1, 0.2, 0.3, 0.4), 0.8), [1, 2, 3]),
        (f.apply_top_k(torch.zeros(10), 3), [0, 1, 2]),
        (f.apply_top_p(f.apply_temperature(L, 0.5), 0.9), [0, 1, 2]),
        (f.apply_top_p(f.apply_temperature(L, 1.8), 0.9), [0, 1, 2, 3, 4, 5]),
        (f.apply_min_p(f.apply_temperature(L, 0.5), 0.1), [0, 1, 2]),
        (f.apply_min_p(f.apply_temperature(L, 1.8), 0.1), [0, 1, 2, 3, 4, 5, 6]),
    ],
)
def test_the_vectors_of_the_reference_engines(row: Tensor, left: list[int]) -> None:
    assert kept(row) == left


@pytest.mark.parametrize(
    ("row", "left"),
    [
        (f.apply_min_p(logits(0.4, 0.3, 0.2, 0.1), 0.26), [0.4444, 0.3333, 0.2222, 0]),
        (f.apply_min_p(logits(0.4, 0.3, 0.2, 0.1), 0.76), [1, 0, 0, 0]),
        (f.apply_top_p(logits(0.4, 0.3, 0.2, 0.1), 0.7), [0.5714, 0.4286, 0, 0]),
        (f.apply_top_p(logits(0.4, 0.3, 0.2, 0.1), 0.8), [0.4444, 0.3333, 0.2222, 0]),
        (f.apply_typical_p(logits(0.97, 0.01, 0.01, 0.01), 0.5), [1, 0, 0, 0]),
        (f.apply_typical_p(logits(0.4, 0.2, 0.2, 0.2), 0.5), [0, 0.3333, 0.3333, 0.3333]),
        (
            f.apply_presence_penalty(f.apply_frequency_penalty(torch.zeros(5), [0], 5), [0], 5),
            [0, *[0.25] * 4],
        ),
        (f.apply_temperature(logits(0.6, 0.3, 0.1), 0.5), [0.7826, 0.1957, 0.0217]),
    ],
)
def test_llama_cpp_s_own_numbers(row: Tensor, left: list[float]) -> None:
    assert shares(row) == left


def test_top_p_takes_the_next_token_only_below_p() -> None:
    """SMP-10"""
    row = logits(0.5, 0.25, 0.125, 0.125)  # exact in binary
    assert kept(f.apply_top_p(row, 0.75)) == [0, 1]
    assert kept(f.apply_top_p(row, 0.76)) == [0, 1, 2]
    assert kept(f.apply_top_p(logits(0.25, 0.25, 0.25, 0.25), 0.5)) == [0, 1]


def test_temperature_comes_before_top_p() -> None:
    """SMP-14"""
    row = logits(0.6, 0.3, 0.1)
    assert kept(f.apply_top_p(f.apply_temperature(row, 0.5), 0.75)) == [0]
    assert kept(f.apply_top_p(row, 0.75)) == [0, 1]


def test_filters_renormalise_between_each_other() -> None:
    """SMP-11"""
    assert kept(f.apply_top_p(f.apply_top_k(logits(0.5, 0.3, 0.15, 0.05), 1), 0.4)) == [0]
    assert kept(f.apply_top_p(f.apply_top_k(logits(0.5, 0.25, 0.125, 0.125), 2), 0.6)) == [0]


def test_top_k_beyond_the_vocabulary_keeps_all() -> None:
    """SMP-12"""
    assert kept(f.apply_top_k(torch.tensor([1.0, 2.0, 3.0]), 50)) == [0, 1, 2]


def test_a_repetition_penalty_lowers_negative_logits_too() -> None:
    """SMP-15"""
    row = f.apply_repetition_penalty(torch.tensor([-1, 2, -0.5, 0]), [0, 1, 1, 3], 1.5)
    assert row.tolist() == pytest.approx([-1.5, 4 / 3, -0.5, 0])
    vector = f.apply_repetition_penalty(L, [1, 3, 1, 6], 1.3).tolist()
    assert vector == pytest.approx([2, 1 / 1.3, 1, 0.5 / 1.3, 0, -1, -2.6, -4])


@pytest.mark.parametrize("temperature", [0, 1e-300, 1e-30, 1e-5])
def test_tiny_temperatures_are_greedy_and_do_not_overflow(temperature: float) -> None:
    """SMP-1"""
    row = f.apply_temperature(torch.tensor([2e4, 1e4, 0.0, -math.inf]), temperature)
    assert shares(row) == [1, 0, 0, 0]


@settings(max_examples=300, deadline=None)
@given(st.floats(0.001, 0.9999), st.sampled_from([-1, 0, 1]), st.booleans())
def test_a_logit_at_the_edge_of_what_can_be_divided_does_not_overflow(
    temperature: float, away: int, is_row: bool
) -> None:
    """By a temperature that is rounded to float32, as it divides."""
    edge = np.float32(np.finfo(np.float32).max * float(np.float32(temperature)))
    edge = np.nextafter(edge, np.float32(math.inf if away > 0 else 0)) if away else edge
    row = torch.tensor([float(edge), 0.0])
    found = f.apply_temperature(row if is_row else row[None], temperature).flatten()
    assert found.max() < math.inf
    assert found.softmax(-1).tolist() == [1, 0]


def test_a_row_at_the_edge_leaves_the_others_as_they_are() -> None:
    rows = torch.tensor([[1.0, 2.0, 3.0], [3e38, 1.0, 0.0]])
    assert f.apply_temperature(rows, 0.5)[0].tolist() == [2, 4, 6]


def test_a_zero_temperature_takes_the_lowest_id_of_a_tie() -> None:
    assert kept(f.apply_temperature(torch.tensor([1.0, 3.0, 3.0]), 0)) == [1]


NEUTRAL: list[tuple[Any, tuple[Any, ...]]] = [
    (f.apply_logit_bias, (None,)),
    (f.apply_logit_bias, ({},)),
    (f.apply_repetition_penalty, ([1], 1.0)),
    (f.apply_repetition_penalty, ([1], None)),
    (f.apply_frequency_penalty, ([1], 0.0)),
    (f.apply_presence_penalty, ([1], None)),
    (f.apply_no_repeat_ngram, ([1, 2], 0)),
    (f.apply_temperature, (1.0,)),
    (f.apply_temperature, (None,)),
    (f.apply_top_k, (0,)),
    (f.apply_top_k, (None,)),
    (f.apply_top_p, (1.0,)),
    (f.apply_top_p, (None,)),
    (f.apply_min_p, (0.0,)),
    (f.apply_min_p, (None,)),
    (f.apply_typical_p, (1.0,)),
    (f.apply_typical_p, (None,)),
]


@pytest.mark.parametrize(("apply", "given_"), NEUTRAL)
def test_neutral_values_change_nothing_bit_for_bit(apply: Any, given_: tuple[Any, ...]) -> None:
    """SMP-8"""
    assert apply(L, *given_) is L


FILTERS: list[tuple[Any, Any]] = [
    (lambda z: f.apply_temperature(z, 0.7), lambda ids, z: hf.TemperatureLogitsWarper(0.7)(ids, z)),
    (lambda z: f.apply_temperature(z, 3.0), lambda ids, z: hf.TemperatureLogitsWarper(3.0)(ids, z)),
    *[
        (lambda z, k=k: f.apply_top_k(z, k), lambda ids, z, k=k: hf.TopKLogitsWarper(k)(ids, z))
        for k in (1, 5, 50, 700, 5000)
    ],
    *[
        (lambda z, p=p: f.apply_top_p(z, p), lambda ids, z, p=p: hf.TopPLogitsWarper(p)(ids, z))
        for p in (0.1, 0.5, 0.9, 0.999)
    ],
    *[
        (lambda z, m=m: f.apply_min_p(z, m), lambda ids, z, m=m: hf.MinPLogitsWarper(m)(ids, z))
        for m in (0.02, 0.3, 1.0)
    ],
    *[
        (lambda z, m=m: f.apply_typical_p(z, m), lambda ids, z, m=m: hf.TypicalLogitsWarper(m)(ids, z))
        for m in (0.1, 0.5, 0.95)
    ],
    (
        lambda z: f.apply_repetition_penalty(z, [3, 5, 3, 900], 1.7),
        lambda ids, z: hf.RepetitionPenaltyLogitsProcessor(1.7)(ids, z),
    ),
    (
        lambda z: f.apply_no_repeat_ngram(z, [3, 5, 3, 900], 1),
        lambda ids, z: hf.NoRepeatNGramLogitsProcessor(1)(ids, z),
    ),
    (
        lambda z: f.apply_logit_bias(z, {3: 2.5, 7: -math.inf}),
        lambda ids, z: hf.SequenceBiasLogitsProcessor({(3,): 2.5, (7,): -math.inf})(ids, z),
    ),
]


@pytest.mark.parametrize("scale", [0.5, 3.0, 12.0])
@pytest.mark.parametrize("index", range(len(FILTERS)))
def test_each_filter_equals_transformers_own(index: int, scale: float) -> None:
    ours, theirs = FILTERS[index]
    rows = torch.randn(6, 3000, generator=torch.Generator().manual_seed(index)) * scale
    ids = torch.tensor([[3, 5, 3, 900]]).expand(6, -1)
    expected = theirs(ids, rows.clone())
    torch.testing.assert_close(ours(rows), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("vocab", [5000, 9000])
def test_a_flat_row_falls_back_to_all_of_the_vocabulary(vocab: int) -> None:
    row = torch.arange(vocab) * -1e-6
    assert abs(len(kept(f.apply_top_p(row, 0.9))) - 0.9 * vocab) < 30
    assert kept(f.apply_top_p(torch.zeros(8192), 0.75)) == list(range(6144))  # exact in binary; ties by id


rows_with_ties = st.lists(st.sampled_from([-3.0, -1.0, 0.0, 1.0, 1.5, 2.0]), min_size=1, max_size=40)


@settings(max_examples=150, deadline=None)
@given(rows_with_ties, st.integers(1, 45))
def test_top_k_keeps_exactly_k_ties_by_lowest_id(values: list[float], k: int) -> None:
    ranked = sorted(range(len(values)), key=lambda i: (-values[i], i))
    assert kept(f.apply_top_k(torch.tensor(values), k)) == sorted(ranked[:k])


@settings(max_examples=150, deadline=None)
@given(rows_with_ties, st.floats(0.001, 1.0, exclude_max=True))
def test_top_p_keeps_the_smallest_leading_set(values: list[float], p: float) -> None:
    row = torch.tensor(values)
    probs = row.softmax(-1).double().tolist()
    ranked = sorted(range(len(values)), key=lambda i: (-values[i], i))
    above, expected = 0.0, []
    for token in ranked:
        if above >= p and expected:
            break
        expected.append(token)
        above += probs[token]
    result = kept(f.apply_top_p(row, p))
    near = any(abs(math.fsum(probs[i] for i in ranked[:n]) - p) < 1e-9 for n in range(len(ranked)))
    assert near or result == sorted(expected)


@settings(max_examples=100, deadline=None)
@given(rows_with_ties, st.floats(0.001, 1), st.floats(0, 1), st.floats(0.001, 1), st.integers(0, 5))
def test_no_chain_leaves_an_empty_set(values: list[float], p: float, min_p: float, typical: float, k: int) -> None:
    row = f.apply_top_p(f.apply_top_k(torch.tensor(values), k), p)
    assert kept(f.apply_typical_p(f.apply_min_p(row, min_p), typical))


@settings(max_examples=60, deadline=None)
@given(st.lists(rows_with_ties.filter(lambda row: len(row) >= 8).map(lambda row: row[:8]), min_size=2, max_size=4))
def test_a_batch_gives_what_each_row_gives_alone(rows: list[list[float]]) -> None:
    batch = torch.tensor(rows)
    for apply in (
        lambda z: f.apply_top_k(z, 3),
        lambda z: f.apply_top_p(z, 0.7),
        lambda z: f.apply_min_p(z, 0.3),
        lambda z: f.apply_typical_p(z, 0.6),
        lambda z: f.apply_logit_bias(z, {1: 2.0, 2: -math.inf}),
        lambda z: f.apply_repetition_penalty(z, [1, 2], 1.4),
        lambda z: f.apply_frequency_penalty(z, [1, 1, 2], 0.4),
        lambda z: f.apply_no_repeat_ngram(z, [1, 2, 1], 2),
    ):
        together = apply(batch)
        assert together.shape == batch.shape
        for row, alone in zip(together, batch, strict=True):
            torch.testing.assert_close(row, apply(alone))


def test_frequency_counts_each_time_and_presence_once() -> None:
    row = torch.zeros(4)
    assert f.apply_frequency_penalty(row, [1, 1, 2], 0.5).tolist() == [0, -1, -0.5, 0]
    assert f.apply_presence_penalty(row, [1, 1, 2], 0.5).tolist() == [0, -0.5, -0.5, 0]


def test_leading_ids_are_in_order_with_ties_by_id() -> None:
    assert leading_ids(torch.tensor([1.0, 3, 3, -math.inf, 2, 3]), 2).tolist() == [1, 2]
    assert leading_ids(torch.tensor([1.0, -math.inf, 3]), 9).tolist() == [2, 0]


@pytest.mark.parametrize(
    ("apply", "value"),
    [
        (f.apply_temperature, -1.0),
        (f.apply_temperature, math.nan),
        (f.apply_top_k, -1),
        (f.apply_min_p, 2.0),
        (f.apply_typical_p, 0.0),
        (lambda z, value: f.apply_repetition_penalty(z, [0], value), -1.0),
        (lambda z, value: f.apply_logit_bias(z, {value: 1.0}), 3),
    ],
)
def test_a_value_that_would_turn_or_empty_a_row_is_refused(apply: Any, value: float) -> None:
    """SMP-3, SMP-8"""
    with pytest.raises(ParameterError):
        apply(torch.tensor([1.0, 2.0, 3.0]), value)


@pytest.mark.parametrize(
    "change",
    [
        lambda z: f.apply_logit_bias(z, {1: 1e300}),
        lambda z: f.apply_logit_bias(f.apply_logit_bias(z, {1: 3e38}), {1: 3e38}),
        lambda z: f.apply_repetition_penalty(z + 1, [1], 1e-320),
        lambda z: f.apply_temperature(z * 1e38, 0.011),
        lambda z: f.apply_temperature((z * 2e4).half(), 0.02),
    ],
)
def test_a_huge_score_stays_the_highest_and_a_number(change: Any) -> None:
    probs = change(torch.tensor([0.0, 1.0, 0.0, -math.inf])).softmax(-1)
    assert probs.tolist() == [0.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "cut", [lambda z: f.apply_top_p(z, 0.9), lambda z: f.apply_min_p(z, 0.1), lambda z: f.apply_typical_p(z, 0.9)]
)
def test_half_logits_keep_what_the_same_numbers_keep_in_float32(cut: Any, dtype: torch.dtype) -> None:
    row = (torch.randn(20_000, generator=torch.Generator().manual_seed(4)) * 2).to(dtype)
    result = cut(row)
    assert result.dtype == dtype
    assert kept(result.float()) == kept(cut(row.float()))


def test_a_row_of_minus_infinity_stays_one() -> None:
    row = torch.full((2, 3), -math.inf)
    row[1, 1] = 2.0
    assert torch.equal(f.apply_temperature(row, 0.001)[0], row[0])


def test_ids_may_be_a_tensor_and_count_as_often_as_they_stand() -> None:
    row, ids = torch.tensor([3.0, 3.0, 3.0]), [0, 0, 1]
    for apply in (f.apply_repetition_penalty, f.apply_frequency_penalty, f.apply_presence_penalty):
        assert torch.equal(apply(row, torch.tensor(ids), 1.5), apply(row, ids, 1.5))
    assert f.apply_presence_penalty(row, torch.tensor(ids), 1.0).tolist() == [2.0, 2.0, 3.0]
