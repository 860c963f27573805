"""The short way to draw a token, held against the stages one by one."""

import math
from dataclasses import replace

import torch
from hypothesis import given, settings, strategies as st
from minigen.generation.model import Model
from minigen.generation.params import SamplingParams
from minigen.generation.sampler import Sampler
from minigen.generation.trace import UNINSPECTED, UNMEASURED, Draw, Inspection

LISTED = Inspection(num_candidates=7)
STAGED = replace(LISTED, has_stages=True)  # which tells of the rows between, so that the stages run one by one

shapes = st.sampled_from(["normal", "flat", "ties", "peaked", "huge", "tiny", "least", "close", "banned"])
params = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 1e-6, 0.005, 0.3, 0.8, 1.0, 1.7, 50.0]),
    top_k=st.sampled_from([0, 1, 3, 40, 1000]),
    top_p=st.sampled_from([1.0, 0.999, 0.95, 0.5, 1e-6]),
    min_p=st.sampled_from([0.0, 1e-6, 0.05, 0.5, 1.0]),
    seed=st.integers(0, 2**63 - 1),
)


def row_of(shape: str, seed: int, vocab: int) -> torch.Tensor:
    """Give a row of logits of a kind that is hard in its own way."""
    row = torch.randn(vocab, generator=torch.Generator().manual_seed(seed)) * 3
    if shape == "flat":
        return row * 1e-3
    if shape == "ties":
        return row.round() + 0.0
    if shape == "peaked":
        return row.index_fill(0, torch.tensor(seed % vocab), 60.0)
    if shape == "huge":
        return row * 1e37
    if shape == "tiny":
        return row * 1e-38
    if shape == "least":  # subnormal, so that many quotients are one
        return row * 1e-44
    if shape == "close":  # a digit or two apart, so that quotients of some are one
        return (row.sign() * 8.0).nextafter(row * 1e9).nextafter(row.roll(1) * 1e9)
    if shape == "banned":
        return row.masked_fill(torch.arange(vocab) % 3 != seed % 3 % vocab, -math.inf)
    return row


def listed(draw: Draw) -> Draw:
    """Leave out what only stages tell."""
    return replace(draw, stages=(), margins={})


@settings(max_examples=300, deadline=None)
@given(params, shapes, st.integers(0, 1000), st.sampled_from([1, 2, 3, 63, 64, 65, 700, 5000]))
def test_the_short_way_gives_what_the_stages_give_one_by_one(
    given_params: SamplingParams, shape: str, seed: int, vocab: int
) -> None:
    row = row_of(shape, seed, vocab)
    if row.max() == -math.inf:
        row = row.index_fill(0, torch.tensor(0), 1.0)
    bare, short, chain = (Sampler(given_params, inspection=each) for each in (UNINSPECTED, LISTED, STAGED))
    for _ in range(3):
        expected = listed(chain.draw(row))
        assert short.draw(row) == expected
        assert bare.draw(row) == replace(expected, candidates=())
    assert bare.output_ids == short.output_ids == chain.output_ids


def test_without_measures_the_same_token_is_drawn() -> None:
    row = row_of("normal", 3, 700)
    for given_params in (SamplingParams(seed=1), SamplingParams(temperature=0), SamplingParams(top_p=0.9, seed=4)):
        usual, bare = Sampler(given_params).draw(row), Sampler(given_params, inspection=UNMEASURED).draw(row)
        assert math.isnan(bare.logprob)
        assert math.isnan(bare.entropy)
        assert bare.rank == 0
        known = {"logprob": usual.logprob, "rank": usual.rank, "entropy": usual.entropy}
        assert replace(bare, **known) == usual
    assert Inspection(num_candidates=1, is_measured=False).is_measured, "candidates are held against measures"


def test_rows_of_the_real_model_come_out_the_same_both_ways(default_model: Model) -> None:
    ids = torch.tensor([default_model.tokenizer("The cache keeps what a model has seen, so that")["input_ids"]])
    with torch.inference_mode():
        rows = default_model.network(ids).logits[0]
    for given_params in (
        SamplingParams(temperature=0.8, top_p=0.95, seed=1),
        SamplingParams(temperature=1.5, top_p=0.99, min_p=0.01, seed=2),
        SamplingParams(temperature=0.7, top_k=50, seed=3),
        SamplingParams(temperature=0),
    ):
        for row in rows:
            expected = listed(Sampler(given_params, inspection=STAGED).draw(row))
            assert Sampler(given_params, inspection=LISTED).draw(row) == expected
            assert Sampler(given_params).draw(row) == replace(expected, candidates=())
