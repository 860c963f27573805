"""Draws on the device: the tokens and the numbers of the sampler, row by row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
import torch
from hypothesis import given, settings, strategies as st
from minigen.generation.device_draws import ENTROPY, ID, LOGIT, LOGPROB, PROB, RANK, draws
from minigen.generation.errors import NumberError
from minigen.generation.graphs import Graph
from minigen.generation.params import SamplingParams
from minigen.generation.sampler import Sampler, uniform
from minigen.generation.shortlist import short_left
from minigen.generation.survivors import Left
from minigen.generation.trace import Draw, Inspection
from minigen.generation.transfers import DrawTransfer
from recording import RecordedCapture
from test_shortlist import params as any_params, row_of, shapes

CLOSE = 1e-5  # of a running sum; a token whose edge is as close may be drawn or not
MEASURED = (LOGIT, LOGPROB, RANK, ENTROPY)


def drawn(rows: torch.Tensor, given_params: Sequence[SamplingParams], numbers: Sequence[float]) -> list[list[float]]:
    """Give the columns of draws by row."""
    listed = [[p.temperature, p.top_k, p.top_p, p.min_p, u] for p, u in zip(given_params, numbers, strict=True)]
    is_greedy = all(p.temperature == 0 for p in given_params)
    given_settings = torch.tensor(listed, dtype=torch.float64)
    found: list[list[float]] = draws(rows, given_settings, are_greedy=is_greedy, are_measured=True).tolist()
    return found


def is_near(token_id: int, row: torch.Tensor, params: SamplingParams, u: float) -> bool:
    """Whether a token comes out where a setting or the number is moved by hardly anything."""
    for p, m in product((-CLOSE, 0, CLOSE), (-1e-6, 0, 1e-6)):
        top_p = params.top_p if params.top_p == 1 else min(max(params.top_p + p, 1e-9), 1)
        moved = replace(params, top_p=top_p, min_p=min(params.min_p * (1 + m), 1))
        _, left = [("raw", Left(row.numpy())), *short_left(row, moved)][-1]
        *_, (ids, probs) = left.leading()  # all of them
        if token_id in ids:
            place = ids.tolist().index(token_id)
            high = probs.astype(float).cumsum()[place]
            if high - probs[place] - CLOSE <= u <= high + CLOSE:
                return True
    return False


def check_against_sampler(rows: torch.Tensor, given_params: Sequence[SamplingParams]) -> int:
    """Hold each row's draw against the sampler's; give how many differ, all of them at an edge."""
    samplers = [Sampler(params) for params in given_params]
    told = drawn(rows, given_params, [uniform(sampler.seed, 0) for sampler in samplers])
    num_apart = 0
    for row, sampler, columns in zip(rows, samplers, told, strict=True):
        draw = sampler.draw(row)
        if columns[ID] != draw.token_id:
            assert draw.u is not None, "a greedy choice has no edge"
            assert is_near(int(columns[ID]), row, sampler.params, draw.u)
            num_apart += 1
            continue
        assert columns[PROB] == pytest.approx(draw.final_prob, rel=1e-4, abs=CLOSE)  # top_p may keep one token more
        assert columns[LOGIT] == draw.logit
        assert columns[RANK] == draw.rank
        assert columns[LOGPROB] == pytest.approx(draw.logprob, rel=1e-9, abs=1e-9)
        assert columns[ENTROPY] == pytest.approx(draw.entropy, rel=1e-9, abs=1e-9)
    return num_apart


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(any_params, shapes, st.integers(0, 1000)), min_size=1, max_size=5),
    st.sampled_from([1, 2, 3, 63, 64, 65, 700, 5000]),
)
def test_rows_of_every_kind_are_drawn_as_the_sampler_draws_them(
    jobs: list[tuple[SamplingParams, str, int]], vocab: int
) -> None:
    rows = torch.stack([row_of(shape, seed, vocab) for _, shape, seed in jobs])
    rows[rows.amax(-1) == -math.inf, 0] = 1.0
    check_against_sampler(rows, [given_params for given_params, _, _ in jobs])


@pytest.mark.parametrize("shape", ["normal", "ties", "peaked"])
def test_of_many_draws_hardly_any_differs(shape: str) -> None:
    kinds = [
        {"temperature": 0.8, "top_p": 0.95},
        {"temperature": 1.3, "top_k": 50},
        {"top_k": 40, "top_p": 0.9, "min_p": 0.02},
        {"min_p": 0.05},
        {},
    ]
    num_apart = 0
    for seed in range(0, 1000, 50):
        rows = torch.stack([row_of(shape, seed + i, 2000) for i in range(50)])
        given_params = [SamplingParams(seed=seed + i, **kinds[i % len(kinds)]) for i in range(50)]  # type: ignore[arg-type]
        num_apart += check_against_sampler(rows, given_params)
    assert num_apart <= 3


@pytest.mark.parametrize("shape", ["normal", "flat", "ties"])
def test_huge_vocabularies(shape: str) -> None:
    rows = torch.stack([row_of(shape, seed, 262_144) for seed in range(4)])
    given_params = [
        SamplingParams(temperature=0.7, top_p=0.9, seed=1),
        SamplingParams(top_k=1000, seed=2),
        SamplingParams(temperature=0),
        SamplingParams(seed=3),
    ]
    check_against_sampler(rows, given_params)


EVEN = [1.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("row", "params", "u", "expected"),
    [
        (EVEN, {}, 0.0, (0, 0.25)),
        (EVEN, {}, 0.25, (1, 0.25)),  # the edge belongs to the next
        (EVEN, {}, 1 - 2**-53, (3, 0.25)),
        (EVEN, {"top_k": 2}, 0.6, (1, 0.5)),  # the lowest ids of those that tie
        (EVEN, {"top_p": 0.5}, 0.99, (1, 0.5)),
        (EVEN, {"top_p": 0.51}, 0.99, (2, 1 / 3)),  # the crossing token stays
        (EVEN, {"min_p": 1.0}, 0.99, (3, 0.25)),
        ([0.0, -0.0, -1.0], {"top_k": 2}, 0.7, (1, 0.5)),  # the two zeros tie
        ([1.0, 3.0, 2.0], {"temperature": 0.0}, 0.9, (1, 1.0)),
        ([3.0, 1.0, 3.0], {"temperature": 0.0}, 0.9, (0, 1.0)),  # the lowest id
        ([-math.inf, 0.0, -math.inf], {}, 0.999, (1, 1.0)),
        ([-math.inf, 0.0, 0.0], {"top_k": 3}, 0.999, (2, 0.5)),
        ([3e38, 2.9e38, 0.0], {"temperature": 0.5}, 0.999, (0, 1.0)),  # a quotient that float32 cannot hold
        ([2.0, 1.0], {"temperature": 1e-9}, 0.999, (0, 1.0)),
    ],
)
def test_known_draws(row: list[float], params: dict[str, float], u: float, expected: tuple[int, float]) -> None:
    given_params = SamplingParams(**params)  # type: ignore[arg-type]
    rows = torch.tensor([row, row])  # beside a row that is sampled, greedy ones go another way than among themselves
    for others in ([given_params], [given_params, SamplingParams()]):
        columns = drawn(rows[: len(others)], others, [u, 0.5][: len(others)])[0]
        assert (columns[ID], columns[PROB]) == (expected[0], pytest.approx(expected[1]))


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("row", [[0.0, math.nan, 1.0], [0.0, math.inf, 1.0], [-math.inf] * 3])
def test_a_row_that_is_none_is_told_as_the_sampler_tells_it(row: list[float], temperature: float) -> None:
    params = SamplingParams(temperature=temperature, seed=3)
    samplers, good = [Sampler(params), Sampler(params)], torch.tensor([1.0, 2.0, 0.0])
    taken = DrawTransfer(RecordedCapture()).taken(
        torch.stack([torch.tensor(row), good]), [(s, i) for i, s in enumerate(samplers)]
    )
    with pytest.raises(NumberError) as expected:
        Sampler(params).draw(torch.tensor(row))
    assert isinstance(taken[0], Draw)
    with pytest.raises(NumberError) as found:
        samplers[0].accept(taken[0])
    assert str(found.value) == str(expected.value)
    assert samplers[0].output_ids == []
    assert isinstance(taken[1], Draw)
    assert samplers[1].accept(taken[1]).token_id == Sampler(params).draw(good).token_id


def test_a_sampler_goes_on_the_same_whoever_drew_before() -> None:
    params = SamplingParams(temperature=0.9, top_p=0.95, seed=11)
    alternating, alone, transfer = Sampler(params), Sampler(params), DrawTransfer(RecordedCapture())
    for step in range(12):
        row = row_of("normal", step, 500)
        if step % 3:
            [taken] = transfer.taken(row[None], [(alternating, 0)])
            assert isinstance(taken, Draw)
            draw = alternating.accept(taken)
        else:
            draw = alternating.draw(row)
        expected = alone.draw(row)
        assert (draw.token_id, draw.u) == (expected.token_id, expected.u)
    assert alternating.output_ids == alone.output_ids


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (SamplingParams(), True),
        (SamplingParams(temperature=0), True),
        (SamplingParams(temperature=0.5, top_k=3, top_p=0.5, min_p=0.1), True),
        (SamplingParams(typical_p=0.9), False),
        (SamplingParams(mirostat_tau=3), False),
        (SamplingParams(temperature=0, repetition_penalty=1.1), False),
        (SamplingParams(logit_bias={3: 1.0}), False),
        (SamplingParams(order="hf", top_k=3), False),
    ],
)
def test_who_leaves_draws(params: SamplingParams, expected: bool) -> None:
    assert Sampler(params).leaves_draws is expected
    assert not Sampler(params, inspection=Inspection(num_candidates=1)).leaves_draws


def test_graphs_give_what_draws_without_them_give() -> None:
    capture = RecordedCapture()
    with_graphs, without = DrawTransfer(capture), DrawTransfer()
    for step in range(10):
        count = 1 + step % 5
        rows = torch.stack([row_of("normal", 7 * step + i, 300) for i in range(count)]).to(torch.bfloat16)
        wanted = [(Sampler(SamplingParams(temperature=0.7, top_k=30 + i, seed=step)), i) for i in range(count)]
        assert with_graphs.taken(rows, wanted) == without.taken(rows, wanted)
    assert len(capture.recorders) == 4, "for 1, 2, 4 and 8 rows"


def test_draws_go_on_where_no_graph_can_be_captured() -> None:
    def refusing(work: object) -> Graph:
        raise RuntimeError("out of memory")

    transfer, rows = DrawTransfer(refusing), row_of("normal", 1, 300)[None]
    wanted = [(Sampler(SamplingParams(seed=1)), 0)]
    assert transfer.taken(rows, wanted) == DrawTransfer().taken(rows, wanted)
    assert transfer.failure == "RuntimeError: out of memory"
