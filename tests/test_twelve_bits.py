"""Weights as 12 bits: every one of them comes back as it was, and what cannot be told so is left as it is."""

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from minigen.generation import narrow_layers, twelve_bits
from minigen.generation.narrow_layers import FEW, NarrowLinear, TwelveBitLinear
from minigen.generation.narrowing import make_narrow
from minigen.generation.twelve_bits import FEWEST, LANES, put_together, small_numbers, taken_apart
from torch import Tensor, nn

GROUP = 2 * LANES


def random(out: int, groups: int, seed: int, deviation: float = 1.0) -> Tensor:
    return torch.randn(out, groups * GROUP, generator=torch.Generator().manual_seed(seed)).mul(deviation).bfloat16()


def same(one: Tensor, other: Tensor) -> bool:
    """Whether two weights are the same, but for the sign of a 0."""
    return one.dtype == other.dtype and torch.equal(one, other)


@settings(deadline=None)
@given(
    st.integers(1, 5),
    st.integers(1, 80),
    st.integers(0, 2**31),
    st.sampled_from([1e-37, 1e-30, 1e-3, 1.0, 1e4, 1e20]),
    st.floats(0, 1),
)
def test_weights_come_back_as_they_were(out: int, groups: int, seed: int, size: float, zeros: float) -> None:
    weight = random(out, groups, seed, size)
    weight[torch.rand(weight.shape, generator=torch.Generator().manual_seed(seed)) < zeros] = 0
    parts = taken_apart(weight)
    if parts is None:  # a few weights allow none aside
        return
    assert parts.codes.shape == (out, groups, 3, LANES)
    assert same(put_together(parts), weight)
    numbers = torch.stack(small_numbers(parts.codes), 2).flatten(1)
    assert bool((numbers.abs()[numbers != 0] >= torch.finfo(torch.float32).tiny).all()), "none is subnormal"


def test_all_of_fifteen_powers_and_all_digits_of_either_sign_are_told() -> None:
    fractions = 1 + torch.arange(128) / 128
    rows = torch.stack([fractions * 2.0**power for power in range(15)]).flatten()
    weight = torch.stack([rows, -rows, torch.zeros(len(rows))]).bfloat16()
    parts = taken_apart(weight)
    assert parts is not None
    assert len(parts.aside) == 0
    assert same(put_together(parts), weight)


@pytest.mark.parametrize("odd", [2.0**-30, -(2.0**20), 2.0**60, 1e-40])
def test_what_is_far_from_the_others_of_its_row_is_kept_aside(odd: float) -> None:
    weight = random(4, 128, 0)
    weight = torch.where(weight.abs() < 2**-8, 1.0, weight)
    weight[2, 77] = odd
    parts = taken_apart(weight)
    assert parts is not None
    assert (parts.rows.tolist(), parts.columns.tolist(), parts.aside.tolist()) == ([2], [77], [float(weight[2, 77])])
    assert same(put_together(parts), weight)


def test_the_powers_are_chosen_such_that_few_are_kept_aside() -> None:
    weight = torch.ones(1, 4096).bfloat16()
    weight[0, :3] = torch.tensor([2.0**30, -(2.0**25), 2.0**18])
    parts = taken_apart(weight)
    assert parts is not None
    assert parts.columns.tolist() == [0, 1, 2]


def test_weights_are_taken_apart_some_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = random(50, 64, 3)
    weight[[3, 31], [5, 6]] = 2.0**40
    whole = taken_apart(weight)
    monkeypatch.setattr(twelve_bits, "_AT_ONCE", 7 * weight.shape[1])
    parts = taken_apart(weight)
    assert whole is not None
    assert parts is not None
    assert all(torch.equal(one, other) for one, other in zip(whole, parts, strict=True))
    assert {3, 31} <= set(whole.rows.tolist())


def test_the_layout_of_a_weight_does_not_matter() -> None:
    weight = random(64, 2, 4)
    for turned in (weight.t().contiguous().t(), torch.cat([weight, weight], 1)[:, : weight.shape[1]]):
        assert not turned.is_contiguous()
        parts = taken_apart(turned)
        assert parts is not None
        assert same(put_together(parts), weight)


@pytest.mark.parametrize("wrong", ["float32", "float16", "width", "range", "infinite", "nan", "huge"])
def test_what_cannot_be_told_so_is_left_as_it_is(wrong: str) -> None:
    weight = random(4, 512, 0)
    if wrong.startswith("float"):
        weight = weight.to(getattr(torch, wrong))
        weight[0, 0] = 1 + 2**-9  # no bfloat16
    elif wrong == "width":
        weight = weight[:, :40]
    elif wrong == "range":
        weight = (2.0 ** torch.arange(-32, 32)).bfloat16().repeat(4, 1)
    elif wrong == "huge":
        weight[1] = 2.0**80
    else:
        weight[1, 1] = {"infinite": math.inf, "nan": math.nan}[wrong]
    assert taken_apart(weight) is None
    network = nn.Sequential(nn.Linear(weight.shape[1], 4, bias=False).requires_grad_(False))
    network[0].weight = nn.Parameter(weight, requires_grad=False)
    make_narrow(network, weights="exact")
    assert type(network[0]) is NarrowLinear
    torch.testing.assert_close(
        network[0].weight, weight, rtol=0, atol=0, equal_nan=True, check_dtype=wrong != "float32"
    )


def test_weights_that_came_in_a_wider_type_are_told_as_they_were_saved() -> None:
    weight = random(4, 4, 5)
    for saved, kind in ((weight, TwelveBitLinear), (weight.to(torch.float16) + 2.0**-9, NarrowLinear)):
        network = nn.Sequential(nn.Linear(weight.shape[1], 4, bias=False).requires_grad_(False))
        network[0].weight = nn.Parameter(saved.float(), requires_grad=False)
        make_narrow(network, weights="exact")
        assert type(network[0]) is kind
        assert same(network[0].weight, saved)


def test_few_are_kept_aside() -> None:
    weight = torch.ones(1, FEWEST // GROUP * GROUP + GROUP).bfloat16()
    weight[0, 0] = 2.0**-30
    assert taken_apart(weight) is not None
    weight[0, 1] = 2.0**-30
    assert taken_apart(weight) is None


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("size", [1e-12, 1.0, 1e12])
def test_a_layer_sums_the_very_weights(rows: int, size: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """States of any likely size times numbers so small are not nothing, and none is too large a number."""
    weight = random(8, 256, 1)
    weight = torch.where(weight.abs() < 2**-8, 1.0, weight)
    kept = [(3, 5, 2.0**18), (3, 700, -(2.0**18)), (7, 8191, 2.0**19)]
    for row, column, odd in kept:
        weight[row, column] = odd
    parts = taken_apart(weight)
    assert parts is not None
    assert list(zip(parts.rows.tolist(), parts.columns.tolist(), parts.aside.tolist(), strict=True)) == kept
    layer, bias = TwelveBitLinear(parts, torch.arange(8.0).mul(size)), torch.arange(8.0, dtype=torch.float64) * size
    assert same(layer.weight, weight)
    states = torch.randn(1, rows, weight.shape[1]) * size
    expected = states.double() @ weight.double().t() + bias
    for is_traced, few in ((False, FEW), (True, FEW), (True, 2 * rows)):
        monkeypatch.setattr(torch.compiler, "is_exporting", lambda is_traced=is_traced: is_traced)
        monkeypatch.setattr(narrow_layers, "FEW", few)
        torch.testing.assert_close(layer(states).double(), expected, rtol=1e-4, atol=1e-3 * size)
