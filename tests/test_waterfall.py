"""What each stage left of a step: recomputed in float64, whatever the stages and the rows."""

import math
from array import array
from typing import Any

import exact
import pytest
import torch
from hypothesis import given, settings, strategies as st
from minigen.generation.arrangement import filter_stages, score_stages
from minigen.generation.params import SamplingParams
from minigen.generation.sampler import Sampler
from minigen.generation.trace import Draw, Inspection, Stage
from minigen.generation.waterfall import read, waterfall
from minigen.generation.words import Words

INF = math.inf
WORDS = Words(end_token_ids=(2,), bad_word_ids=((3,),))
HALVES = [math.log(share) for share in (0.5, 0.25, 0.125, 0.125)]


def sampler_for(params: SamplingParams, **inspection: Any) -> Sampler:
    return Sampler(params, prompt_ids=[1, 2, 1], words=WORDS, inspection=Inspection(**inspection))


def staged(row: list[float], output_ids: tuple[int, ...] = (), **given_: Any) -> Draw:
    sampler = sampler_for(SamplingParams(**{"seed": 3} | given_), has_stages=True, num_candidates=len(row))
    sampler.output_ids = list(output_ids)
    return sampler.draw(torch.tensor(row))


def check(stage: Stage, before: list[float] | None, row: list[float], token_id: int, *, near: float = 1e-6) -> None:
    """Hold a stage against the rows before and after it, `near` apart at most."""
    probs, probs_before = exact.shares(row), exact.shares(row if before is None else before)
    dropped = [i for i, score in enumerate(row) if score == -INF and before is not None and before[i] > -INF]
    removed = math.fsum(probs_before[i] for i in dropped)
    assert stage.tokens_left == len(exact.ranked(row))
    assert stage.mass_removed == pytest.approx(removed, abs=near)
    assert stage.entropy == pytest.approx(exact.entropy(row), abs=near)
    assert stage.prob == pytest.approx(probs[token_id], abs=near)
    assert stage.rank == 1 + exact.ranked(row).index(token_id)
    if not dropped:
        assert stage.mass_removed == 0


ACTIVE: dict[str, Any] = {
    "logit_bias": {0: 40.0, 4: -INF, 5: -2.0},
    "allowed_token_ids": (0, 1, 2, 3, 5, 6, 7, 9),
    "bad_words": ("x",),
    "min_new_tokens": 5,
    "repetition_penalty": 1.3,
    "frequency_penalty": 0.7,
    "presence_penalty": -0.5,
    "no_repeat_ngram_size": 2,
    "dry_multiplier": 0.8,
    "top_n_sigma": 1.5,
    "temperature": 0.6,
    "dynatemp_range": 0.4,
    "top_k": 6,
    "top_p": 0.8,
    "min_p": 0.1,
    "typical_p": 0.7,
    "epsilon_cutoff": 0.05,
    "eta_cutoff": 0.05,
    "xtc_probability": 1.0,
    "mirostat_tau": 1.0,
}
scores = st.one_of(
    st.integers(-49_152, 49_152).map(lambda n: n / 4096),
    st.integers(-6, 6).map(lambda n: n / 2),  # ties
    st.integers(0, 12).map(lambda n: -n * math.log(2)),
    st.just(-INF),
)
rows = st.lists(scores, min_size=10, max_size=60).filter(lambda row: max(row[5:10]) > -INF and max(row) > -INF)


@settings(max_examples=100, deadline=None)
@given(rows, st.lists(st.sampled_from(list(ACTIVE)), unique=True, max_size=6), st.integers(0, 2**40))
def test_every_stage_agrees_with_a_computation_in_float64(row: list[float], names: list[str], seed: int) -> None:
    params = SamplingParams(seed=seed, **{name: ACTIVE[name] for name in names})
    output_ids = [5, 1]
    stages = score_stages(params, [1, 2, 1], output_ids, WORDS)
    after = [("raw", torch.tensor(row))]
    for name, apply in stages:
        after.append((name, apply(after[-1][1])))
    if after[-1][1].max() == -INF:
        return  # the bans leave nothing
    sampler = sampler_for(params, has_stages=True)
    sampler.output_ids = list(output_ids)
    draw = sampler.draw(torch.tensor(row))
    for name, apply in filter_stages(params, limit=2 * params.mirostat_tau):
        after.append((name, apply(after[-1][1])))
    assert [stage.name for stage in draw.stages] == [name for name, _ in after]
    plain: list[list[float]] = [tensor.tolist() for _, tensor in after]
    for stage, before, now in zip(draw.stages, [None, *plain], plain, strict=False):
        check(stage, before, now, draw.token_id)
    assert draw.stages[-1].prob == pytest.approx(draw.final_prob, abs=1e-6)


@settings(max_examples=50, deadline=None)
@given(rows, st.sampled_from([0.7, 1.0, 2.5]), st.integers(0, 8), st.sampled_from([0.5, 0.93, 1.0]),
       st.sampled_from([0.0, 0.04]), st.integers(0, 2**40))  # fmt: skip
def test_filters_agree_with_float64_from_the_raw_logits_on(
    row: list[float], temperature: float, top_k: int, top_p: float, min_p: float, seed: int
) -> None:
    row = torch.tensor(row).tolist()
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed)
    draw = sampler_for(params, has_stages=True).draw(torch.tensor(row))
    wanted = exact.filtered(row, params)
    assert [stage.name for stage in draw.stages] == [name for name, _ in wanted]
    plain = [one for _, one in wanted]
    if [stage.tokens_left for stage in draw.stages] != [len(exact.ranked(one)) for one in plain]:
        return  # a mass lies within rounding of top_p
    for stage, before, now in zip(draw.stages, [None, *plain], plain, strict=False):
        check(stage, before, now, draw.token_id, near=2e-6)  # logits of 12 over 0.7 are good to 1e-6 in float32


def test_a_large_vocabulary_is_read_as_exactly_as_a_small_one() -> None:
    row = (torch.randn(20_000, generator=torch.Generator().manual_seed(1)) * 3).tolist()
    for given_ in ({"top_p": 0.9}, {"min_p": 1e-7, "temperature": 0.7}, {"top_k": 50, "top_p": 0.8}):
        draw = staged(row, **given_)
        plain = [one for _, one in exact.filtered(row, SamplingParams(**given_))]
        for stage, before, now in zip(draw.stages, [None, *plain], plain, strict=False):
            check(stage, before, now, draw.token_id, near=1e-6)


def test_a_greedy_step_ends_with_a_stage_of_its_own() -> None:
    draw = staged(HALVES, temperature=0, top_k=2, logit_bias={1: 2.0})
    assert [stage.name for stage in draw.stages] == ["raw", "logit_bias", "greedy"]
    _, biased, greedy = draw.stages
    assert biased.prob == pytest.approx(0.25 * math.e**2 / (0.75 + 0.25 * math.e**2))
    assert greedy == Stage(
        name="greedy", tokens_left=1, mass_removed=pytest.approx(1 - biased.prob), entropy=0, prob=1, rank=1
    )
    assert [one.dropped_by for one in draw.candidates] == [None if i == 1 else "greedy" for i in range(4)]


def test_a_stage_that_finds_nothing_to_do_is_still_a_row() -> None:
    draw = staged(HALVES, top_k=50, min_p=1e-6, frequency_penalty=1.0)
    assert [stage.name for stage in draw.stages] == ["raw", "frequency_penalty", "top_k", "min_p"]
    assert {(stage.tokens_left, stage.mass_removed, stage.prob) for stage in draw.stages} == {
        (4, 0.0, draw.stages[0].prob)
    }


def test_mass_is_counted_before_the_stage_that_removes_it() -> None:
    """STA-5"""
    draw = staged(HALVES, top_k=2, top_p=0.6, seed=1)
    raw, top_k, top_p = draw.stages
    assert (raw.tokens_left, top_k.tokens_left, top_p.tokens_left) == (4, 2, 1)
    assert (raw.mass_removed, top_k.mass_removed) == (0, pytest.approx(0.25))
    assert top_p.mass_removed == pytest.approx(1 / 3)  # of what top_k left, made to add up to 1
    assert (raw.entropy, top_k.entropy, top_p.entropy) == pytest.approx((1.75, 0.9182958, 0))


@pytest.mark.parametrize("bias", [1e30, 3e38])
def test_a_large_bias_takes_all_the_probability(bias: float) -> None:
    stage = staged(HALVES, logit_bias={3: bias, 0: -INF}).stages[1]
    assert (stage.tokens_left, stage.prob, stage.rank, stage.entropy) == (3, 1, 1, 0)
    assert stage.mass_removed == pytest.approx(0.5)


def test_ranks_are_of_each_stage_and_ties_go_by_id() -> None:
    rows_ = [("raw", torch.tensor([1.0, 3.0, 3.0, 2.0])), ("logit_bias", torch.tensor([-INF, 3.0, 3.0, 5.0]))]
    assert [stage.rank for stage in waterfall(2, rows_, read(rows_[0][1].numpy()))] == [2, 3]


LEADING = [2.0, -INF, 5.0, 5.0, -1.0, 0.5, -INF, 4.0]


def leading_of(row: list[float], count: int, **given_: Any) -> Draw:
    return sampler_for(SamplingParams(**{"seed": 0} | given_), num_leading=count).draw(torch.tensor(row))


def test_the_leading_logits_and_all_others_are_kept() -> None:
    leading = leading_of(LEADING, 3, temperature=0).leading
    assert leading is not None
    assert (list(leading.token_ids), list(leading.logits)) == ([2, 3, 7], [5, 5, 4])
    assert isinstance(leading.token_ids, array)
    assert isinstance(leading.logits, array)
    assert leading.num_others == 3
    assert leading.others_logsumexp == pytest.approx(math.log(math.exp(2) + math.exp(-1) + math.exp(0.5)), abs=1e-12)
    finite = [score for score in LEADING if score > -INF]
    mean = sum(finite) / 6
    assert leading.deviation == pytest.approx(math.sqrt(sum((z - mean) ** 2 for z in finite) / 6), abs=1e-12)


def test_the_chosen_token_is_always_among_the_leading_ones() -> None:
    leading = leading_of(LEADING, 3, logit_bias={4: 60.0}).leading
    assert leading is not None
    assert (list(leading.token_ids), list(leading.logits)) == ([2, 3, 4], [5, 5, -1])
    assert leading.others_logsumexp == pytest.approx(math.log(math.exp(4) + math.exp(2) + math.exp(0.5)), abs=1e-12)


def test_where_all_is_kept_there_are_no_others() -> None:
    leading = leading_of(LEADING, 50, top_k=2).leading
    assert leading is not None
    assert list(leading.token_ids) == [2, 3, 7, 0, 5, 4]
    assert (leading.num_others, leading.others_logsumexp) == (0, -INF)


def test_the_rest_is_exact_though_it_is_almost_nothing() -> None:
    row = (torch.randn(49_152, generator=torch.Generator().manual_seed(2)) * 3).tolist()
    row[17] = 900.0
    leading = leading_of(row, 1024).leading
    assert leading is not None
    listed = set(leading.token_ids)
    rest = torch.tensor([score for i, score in enumerate(row) if i not in listed], dtype=torch.float64)
    assert leading.num_others == len(rest) == 49_152 - 1024
    assert leading.others_logsumexp == pytest.approx(float(rest.logsumexp(-1)), abs=1e-10)
    assert leading.deviation == pytest.approx(float(torch.tensor(row, dtype=torch.float64).std(correction=0)))
