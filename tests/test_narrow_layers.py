"""Layers over narrow weights: what eight bits keep, and that a layer computes with the weights it was given."""

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from minigen.generation.errors import RunError
from minigen.generation.narrow_layers import (
    MOST,
    Int8Linear,
    NarrowEmbedding,
    NarrowLinear,
    TwelveBitLinear,
    quantised,
    realized,
)
from minigen.generation.narrowing import make_narrow
from minigen.generation.twelve_bits import LANES, taken_apart
from minigen.generation.weight_cost import perplexity, reference_ids
from stubs import byte_tokenizer, tiny_model
from torch import Tensor, nn


def widened(codes: Tensor, scales: Tensor, units: Tensor) -> Tensor:
    return (codes.double() * scales.double()[:, None]).flatten(1) * units.double()[:, None]


def widened_weight(layer: Int8Linear) -> Tensor:
    return widened(layer.codes, layer.scales, layer.units)


@settings(deadline=None)
@given(st.integers(1, 5), st.integers(1, 6), st.integers(0, 2**31), st.sampled_from([1e-30, 1e-3, 1.0, 1e4]))
def test_a_number_in_eight_bits_is_half_a_step_away_at_most(out: int, groups: int, seed: int, size: float) -> None:
    """A step is the scale: the 127th part of the largest of its numbers, rounded to units of the row."""
    weight = torch.randn(out, groups * LANES, generator=torch.Generator().manual_seed(seed)) * size
    codes, scales, units = quantised(weight)
    assert (codes.shape, codes.dtype) == ((out, groups, LANES), torch.int8)
    assert (scales.shape, scales.dtype) == ((out, LANES), torch.uint8)
    assert (units.shape, units.dtype) == ((out,), torch.float32)
    assert int(codes.abs().max()) <= MOST
    steps = scales.double() * units.double()[:, None]
    largest = weight.double().unflatten(1, (-1, LANES)).abs().amax(1)
    half = units.double()[:, None] / 2
    assert bool((((steps - largest / MOST).abs() <= half * (1 + 1e-3)) | (scales == 1)).all())
    torch.testing.assert_close(units.double(), largest.amax(1) / MOST / 255, rtol=1e-6, atol=0)
    away = (widened(codes, scales, units) - weight.double()).abs().unflatten(1, (-1, LANES)).amax(1)
    assert bool((away <= steps * (0.5 + 1e-4) + MOST * half).all()), "half a step, or what the scale falls short"


def test_nothing_is_still_nothing_in_eight_bits() -> None:
    assert bool((widened(*quantised(torch.zeros(2, LANES))) == 0).all())


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("rows", [1, 5])
def test_a_layer_computes_with_its_weights(rows: int, has_bias: bool) -> None:
    linear = nn.Linear(64, 9, bias=has_bias).bfloat16()
    states = torch.randn(2, rows, 64)
    bias = 0 if linear.bias is None else linear.bias.double()
    narrow = NarrowLinear(linear.weight, linear.bias)(states)
    assert narrow.dtype == torch.float32
    torch.testing.assert_close(
        narrow.double(), states.double() @ linear.weight.double().t() + bias, rtol=1e-5, atol=1e-5
    )
    small = Int8Linear(linear.weight, linear.bias)
    expected = states.double() @ widened_weight(small).t() + bias
    torch.testing.assert_close(small(states).double(), expected, rtol=0.02, atol=0.02)


def test_a_step_sums_what_a_product_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sums are in float32, so they are nearer than the product in bfloat16 is."""
    monkeypatch.setattr(torch.compiler, "is_exporting", lambda: True)
    linear, states = nn.Linear(96, 10), torch.randn(1, 3, 96)
    small = Int8Linear(linear.weight, linear.bias)
    half = linear.weight.detach().bfloat16()
    parts = taken_apart(half)
    assert parts is not None
    for layer, weight in (
        (NarrowLinear(linear.weight, linear.bias), linear.weight.double()),
        (TwelveBitLinear(parts, linear.bias), half.double()),
        (small, widened_weight(small)),
    ):
        expected = states.double() @ weight.t() + linear.bias.double()
        for some in (states, states[:, :1]):
            torch.testing.assert_close(layer(some).double(), expected[:, : some.shape[1]], rtol=1e-5, atol=1e-5)
    assert torch.equal(realized(states), states)


def test_rows_that_do_not_part_evenly_keep_their_exact_weights() -> None:
    network = nn.Sequential(nn.Linear(24, 32), nn.Linear(32, 8), nn.Embedding(4, 8))
    make_narrow(network, weights="int8")
    assert [type(child) for child in network] == [NarrowLinear, Int8Linear, NarrowEmbedding]


def test_saved_layers_can_become_those_in_eight_bits() -> None:
    network = tiny_model("gpt2", vocab_size=300)
    make_narrow(network, weights="saved")
    make_narrow(network, weights="int8")
    kinds = {type(module) for module in network.modules()}
    assert Int8Linear in kinds
    assert not kinds & {nn.Linear, nn.Embedding}


@pytest.mark.parametrize("passages", [[], [[1]]])
def test_the_perplexity_of_nothing_is_a_sentence(passages: list[list[int]]) -> None:
    with pytest.raises(RunError, match="cannot be measured"):
        perplexity(tiny_model(vocab_size=300), passages)


def test_a_perplexity_that_is_no_number_is_a_sentence() -> None:
    network = tiny_model(vocab_size=300).requires_grad_(False)
    network.get_output_embeddings().weight.fill_(math.nan)
    with pytest.raises(RunError, match="cannot be measured"):
        perplexity(network, [[1, 2, 3]])


def test_the_perplexity_is_that_of_the_network() -> None:
    network, passages = tiny_model(vocab_size=300).requires_grad_(False), reference_ids(byte_tokenizer(), 100, 300)
    assert {len(ids) for ids in passages} == {100}
    assert len(passages) == 16
    losses = [float(network(input_ids=torch.tensor([ids]), labels=torch.tensor([ids])).loss) for ids in passages]
    assert perplexity(network, passages) == pytest.approx(float(torch.tensor(losses).mean().exp()), rel=1e-5)
