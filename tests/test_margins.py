"""Margins, held against the sampler itself: run at each bound and just beyond it."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import exact
import numpy as np
import pytest
import torch
from hypothesis import example, given, settings, strategies as st
from minigen.generation import leading_places, ranking
from minigen.generation.arrangement import filter_stages
from minigen.generation.engine import Engine
from minigen.generation.margins import DOMAINS, narrowed
from minigen.generation.model import Model
from minigen.generation.params import SamplingParams
from minigen.generation.prompt import encode_raw
from minigen.generation.sampler import Sampler, uniform
from minigen.generation.trace import KNOBS, Draw, Inspection, Interval, Margin
from stubs import byte_tokenizer, tiny_model
from torch import Tensor

INF = math.inf
STEP = 1e-5  # how far inside and beyond a bound the sampler is run, as a share of the bound
BLUR = 2e-6  # the sampler's own rounding: a decision this close may go either way


def with_knob(params: SamplingParams, knob: str, value: float) -> SamplingParams:
    return replace(params, **{knob: value})


def picks(row: Tensor, params: SamplingParams, token_id: int) -> bool:
    """Whether the sampler itself draws a token."""
    return Sampler(params).draw(row).token_id == token_id


def allows(row: Tensor, params: SamplingParams, token_id: int) -> bool:
    """Whether the filters themselves leave a token; greedy leaves its choice alone."""
    if params.temperature == 0:
        return picks(row, params, token_id)
    for _, apply in filter_stages(params):
        row = apply(row)
    return float(row[token_id]) > -INF


def slack(row: Tensor, params: SamplingParams, u: float) -> float:
    """Give how far the nearest decision of a draw is from going the other way, beside what float32 rounds."""
    if params.temperature == 0:
        return INF
    row = row.double()
    left = row[row > -INF]
    magnified = max(1.0, float(left.abs().max()) / params.temperature / 10)  # the rounding of scores
    distances = [torch.tensor([1.0])]
    if params.top_n_sigma > 0:
        edge = left.max() - params.top_n_sigma * left.std(correction=0)
        distances.append((left - edge).abs())
        left = left[left >= edge]
    gaps = torch.from_numpy(np.sort((left.max() - left).numpy()))
    weights = (-gaps / params.temperature).exp()[: params.top_k or None]
    if params.top_p < 1:
        above = (weights.cumsum(0) - weights) / weights.sum()
        distances.append((above[1:] - params.top_p).abs())
        weights = weights[above < params.top_p]
    if params.min_p > 0:
        distances.append((weights[weights < 1] - params.min_p).abs())
        weights = weights[weights >= params.min_p]
    distances.append((weights.cumsum(0)[:-1] / weights.sum() - u).abs())
    return min(float(each.min()) for each in distances if len(each)) / magnified


@dataclass(frozen=True)
class Probe:
    """A setting to run with, and whether it lies in the interval."""

    value: float
    is_inside: bool


def probes(knob: str, interval: Interval, step: float = STEP) -> Iterator[Probe]:
    """Give settings at the bounds of an interval, a little inside and a little beyond."""
    domain = DOMAINS[knob]
    if knob == "top_k":
        yield Probe(int(interval.low), True)
        yield Probe(int(interval.high), True)
        yield from (Probe(int(end), False) for end in (interval.low - 1, interval.high + 1) if end >= 1)
        return
    for end, sign in ((interval.low, 1), (interval.high, -1)):
        inside, beyond = end + sign * step * (end or 1), end - sign * step * (end or 1)
        if inside in interval:
            yield Probe(inside, True)
        if beyond in domain:
            yield Probe(beyond, False)
    for end, is_closed in ((interval.low, interval.is_low_closed), (interval.high, interval.is_high_closed)):
        if end in domain and end in (0, domain.high):  # an end that no rounding blurs
            yield Probe(end, is_closed)


def inspected(row: Tensor, params: SamplingParams) -> Draw:
    return Sampler(params, inspection=Inspection(has_stages=True)).draw(row)


def margin_of(draw: Draw, knob: str) -> Margin:
    margin = draw.margins[knob]
    assert margin is not None
    return margin


def check(row: Tensor, params: SamplingParams) -> int:
    """Hold every margin of a draw against the sampler; give how many runs there were."""
    draw = inspected(row, params)
    token_id, u, count = draw.token_id, uniform(params.seed or 0, 0), 0
    for knob in KNOBS:
        margin, setting = margin_of(draw, knob), getattr(params, knob)
        setting = min(setting or len(row), len(row)) if knob == "top_k" else setting
        assert setting in margin.allowed
        assert setting in margin.picked
        assert margin.picked & margin.allowed == margin.picked
        runs = [(margin.picked, picks)]
        if params.temperature > 0 or knob == "temperature":  # else the filters are skipped, and none drops it
            runs.append((margin.allowed, allows))
        for interval, holds in runs:
            for probe in probes(knob, interval):
                changed = with_knob(params, knob, probe.value)
                if (probe.value <= len(row) or knob != "top_k") and slack(row, changed, u) > BLUR:
                    assert holds(row, changed, token_id) == probe.is_inside, (knob, interval, probe)
                    count += 1
    return count


scores = st.one_of(
    st.integers(-40_960, 40_960).map(lambda n: n / 4096),
    st.integers(-4, 4).map(float),  # ties
    st.integers(0, 8).map(lambda n: -n * math.log(2)),  # probabilities that are powers of two
    st.just(0.5),
    st.just(-INF),
)
peaked = st.lists(scores, max_size=30).map(lambda row: [14.0, *row])
flat = st.lists(st.integers(-64, 64).map(lambda n: n / 8192), min_size=2, max_size=60)
rows = st.one_of(st.lists(scores, min_size=1, max_size=40), peaked, flat).filter(lambda row: max(row) > -INF)
temperatures = st.one_of(st.sampled_from([0.0, 1.0, 0.8, 0.05, 100.0]), st.floats(0.2, 6))
top_ks = st.one_of(st.just(0), st.integers(1, 45))
top_ps = st.one_of(st.just(1.0), st.floats(0.02, 0.999), st.sampled_from([0.5, 0.75, 0.95]))
min_ps = st.one_of(st.just(0.0), st.floats(0.001, 0.9), st.sampled_from([0.25, 1.0]))
sigmas = st.one_of(st.just(0.0), st.just(0.0), st.floats(0.3, 3))


@st.composite
def all_settings(draw: Any) -> SamplingParams:
    return SamplingParams(
        temperature=draw(temperatures),
        top_k=draw(top_ks),
        top_p=draw(top_ps),
        min_p=draw(min_ps),
        top_n_sigma=draw(sigmas),
        seed=draw(st.integers(0, 2**48)),
    )


@pytest.mark.parametrize("head", [512, 3])
def test_the_sampler_agrees_at_and_beyond_each_bound(head: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all tokens ranked at first, and with almost none."""
    monkeypatch.setattr(ranking, "HEAD", head)
    monkeypatch.setattr(leading_places, "HEAD", head)
    counts: list[int] = []

    @settings(max_examples=100, deadline=None)
    @given(rows, all_settings())
    @example([0.0, 0.0], SamplingParams(temperature=1.0, seed=0))
    @example([0.0], SamplingParams(temperature=0.5, seed=0))
    def agrees(row: list[float], params: SamplingParams) -> None:
        counts.append(check(torch.tensor(row), params))

    agrees()
    assert sum(counts) > 10 * len(counts)  # few decisions are too close to call


def exactly(row: list[float], params: SamplingParams, token_id: int) -> tuple[bool, bool]:
    """Tell by plain float64 whether a token is allowed, and whether it is picked."""
    after = exact.filtered(row, params if params.temperature else replace(params, temperature=1.0))
    left = exact.keep(row, exact.ranked(row)[:1]) if params.temperature == 0 else after[-1][1]
    return left[token_id] > -INF, exact.drawn(left, uniform(params.seed or 0, 0)) == token_id


@settings(max_examples=60, deadline=None)
@given(rows, all_settings())
def test_each_bound_is_exact(row: list[float], params: SamplingParams) -> None:
    """By plain float64, a billionth inside and beyond."""
    plain, u = torch.tensor(row).tolist(), uniform(params.seed or 0, 0)
    if slack(torch.tensor(row), params, u) < BLUR:
        return  # the bound may have been moved to take the setting in
    draw = inspected(torch.tensor(row), params)
    for knob in KNOBS if params.temperature > 0 else ("temperature",):
        margin = margin_of(draw, knob)
        for place, interval in enumerate((margin.allowed, margin.picked)):
            for probe in probes(knob, interval, step=1e-9):
                changed = with_knob(params, knob, probe.value)
                if slack(torch.tensor(row), changed, u) > 1e-13 and (probe.value <= len(row) or knob != "top_k"):
                    assert exactly(plain, changed, draw.token_id)[place] == probe.is_inside, (knob, interval, probe)


def test_a_large_vocabulary_has_the_same_bounds() -> None:
    generator = torch.Generator().manual_seed(5)
    for given_ in ({}, {"top_p": 0.95}, {"min_p": 0.001, "top_p": 0.99}, {"top_k": 700}, {"temperature": 0.0}):
        for peak in (0.0, 7.0):
            row = torch.randn(1500, generator=generator) * 2
            row[77] = row.max() + peak
            assert check(row, SamplingParams(**{"temperature": 0.9, "seed": 4} | given_)) > 10


@pytest.mark.real_model
def test_the_default_model_has_the_same_bounds(default_model: Model) -> None:
    ids = encode_raw(default_model.tokenizer, "The capital of France is Paris, and the capital of Spain").ids
    with torch.inference_mode():
        rows_ = default_model.network(input_ids=torch.tensor([ids])).logits[0].float()
    for place, top_k in ((-1, 0), (-4, 50)):
        params = SamplingParams(temperature=0.8, top_p=0.95, top_k=top_k, seed=3)
        assert check(rows_[place], params) > 5


def shares(*probs: float) -> Tensor:
    return torch.tensor(probs).log()


def test_the_bounds_of_a_small_row() -> None:
    """Probabilities .5, .3, .2 and a number that picks the second."""
    seed = next(seed for seed in range(99) if 0.7 < uniform(seed, 0) < 0.78)
    u = uniform(seed, 0)
    draw = inspected(shares(0.5, 0.3, 0.2), SamplingParams(seed=seed))
    assert draw.token_id == 1
    top_k, top_p, min_p = (margin_of(draw, knob) for knob in ("top_k", "top_p", "min_p"))
    assert (top_k.allowed.low, top_k.allowed.high, top_k.picked.low, top_k.picked.high) == (2, 3, 2, 3)
    assert (top_p.allowed.low, top_p.allowed.is_low_closed) == (pytest.approx(0.5), False)
    assert (top_p.picked.low, top_p.picked.high) == (pytest.approx(0.5), 1)
    assert (min_p.allowed.high, min_p.allowed.is_high_closed) == (pytest.approx(0.6), True)
    assert (min_p.picked.low, min_p.picked.high) == (0, pytest.approx(0.6))
    temperature = margin_of(draw, "temperature")
    assert temperature.allowed == Interval(low=0, high=100, is_low_closed=False)
    for bound, place in ((temperature.picked.low, 1), (temperature.picked.high, 2)):
        weights = [share ** (1 / bound) for share in (0.5, 0.3, 0.2)]
        assert sum(weights[:place]) / sum(weights) == pytest.approx(u)


def test_a_bound_of_top_p_is_open_below_and_closed_above() -> None:
    row = shares(0.4, 0.3, 0.2, 0.1)
    seed = next(seed for seed in range(999) if 0.41 < uniform(seed, 0) < 0.44)  # above .4 of all, below .4 of .9
    first, second = (inspected(row, SamplingParams(top_p=top_p, seed=seed)) for top_p in (0.6, 1.0))
    assert (first.token_id, second.token_id) == (0, 1)
    near = pytest.approx(0.9)
    assert margin_of(first, "top_p").picked == Interval(low=0, high=near, is_low_closed=False)
    assert margin_of(second, "top_p").picked == Interval(low=near, high=1, is_low_closed=False)


def test_a_greedy_step_holds_for_any_filter_and_up_to_some_temperature() -> None:
    row = shares(0.5, 0.3, 0.2)
    for seed in range(8):
        draw = inspected(row, SamplingParams(temperature=0, top_p=0.9, seed=seed))
        for knob, high in (("top_k", 3), ("top_p", 1), ("min_p", 1)):
            assert margin_of(draw, knob).picked == margin_of(draw, knob).allowed
            assert margin_of(draw, knob).picked.high == high
        margin = margin_of(draw, "temperature")
        assert margin.allowed == DOMAINS["temperature"]
        assert (margin.picked.low, margin.picked.is_low_closed) == (0, True)
        assert check(row, SamplingParams(temperature=0, top_p=0.9, seed=seed)) > 0


def test_top_n_sigma_is_part_of_what_a_greedy_step_would_meet() -> None:
    row, params = torch.tensor([5.0, 0.0, 0.0, 0.0]), SamplingParams(temperature=0, top_n_sigma=1.0, seed=1)
    assert margin_of(inspected(row, params), "temperature").picked == DOMAINS["temperature"]
    assert margin_of(inspected(row, replace(params, top_n_sigma=0)), "temperature").picked.high < 100


@pytest.mark.parametrize(
    "setting",
    [{"typical_p": 0.9}, {"epsilon_cutoff": 0.1}, {"eta_cutoff": 0.1}, {"xtc_probability": 0.5}, {"mirostat_tau": 3.0}],
    ids=str,
)
def test_what_keeps_no_leading_ranks_is_not_computed(setting: dict[str, Any]) -> None:
    row = shares(0.5, 0.3, 0.2)
    assert inspected(row, SamplingParams(seed=1, **setting)).margins == dict.fromkeys(KNOBS)
    greedy = inspected(row, SamplingParams(seed=1, temperature=0, **setting)).margins
    assert [knob for knob in KNOBS if greedy[knob] is None] == ["temperature"]


def test_a_dynamic_temperature_leaves_the_other_knobs() -> None:
    row = torch.randn(40, generator=torch.Generator().manual_seed(3)) * 2
    params = SamplingParams(seed=6, temperature=0.9, dynatemp_range=0.5, top_k=12, top_p=0.9, min_p=0.02)
    draw = inspected(row, params)
    assert draw.margins["temperature"] is None
    for knob in KNOBS[1:]:
        for interval, holds in ((margin_of(draw, knob).picked, picks), (margin_of(draw, knob).allowed, allows)):
            for probe in probes(knob, interval):
                if probe.value <= len(row):
                    assert holds(row, with_knob(params, knob, probe.value), draw.token_id) == probe.is_inside


def test_an_uninspected_draw_has_none() -> None:
    draw = Sampler(SamplingParams(seed=1)).draw(shares(0.5, 0.5))
    assert (draw.margins, draw.stages, draw.leading) == ({}, (), None)


ENGINE = Model.wrap(tiny_model(vocab_size=258), byte_tokenizer())


def generated(params: SamplingParams) -> list[Draw]:
    engine = Engine(ENGINE)
    engine.add_request("ab", params, inspection=Inspection(has_stages=True))
    draws = []
    while engine.has_unfinished_requests():
        draws += [output.draw for output in engine.step() if output.draw is not None]
    return draws


def whole_text(draws: Iterable[Draw]) -> Mapping[str, Interval | None]:
    """The ranges under which all of these draws come out as they did."""
    return reduce(narrowed, (draw.margins for draw in draws), DOMAINS)


@pytest.mark.parametrize(
    "given_",
    [
        {"temperature": 0.8},
        {"temperature": 0.3, "top_p": 0.9, "repetition_penalty": 1.2},
        {"temperature": 0.5, "top_k": 6, "min_p": 0.1},
        {"temperature": 0.0, "top_p": 0.7},
    ],
    ids=str,
)
def test_a_whole_text_stays_within_its_ranges_and_changes_beyond(given_: dict[str, Any]) -> None:
    params = SamplingParams(max_new_tokens=12, seed=11, ignore_eos=True, **given_)
    draws = generated(params)
    ids, ranges, count = [draw.token_id for draw in draws], whole_text(draws), 0
    for knob in KNOBS:
        interval = ranges[knob]
        assert interval is not None
        for probe in probes(knob, interval, step=1e-3):  # a score over a low temperature has a coarse last bit
            if knob != "top_k" or 1 <= probe.value <= 258:
                changed = with_knob(params, knob, probe.value)
                assert ([draw.token_id for draw in generated(changed)] == ids) == probe.is_inside, (knob, probe)
                count += 1
    assert count > 5


def test_a_text_holds_where_its_draws_do_and_with_a_gap_in_it_nowhere_known() -> None:
    some = inspected(shares(0.5, 0.3, 0.2), SamplingParams(seed=1))
    none = inspected(shares(0.5, 0.3, 0.2), SamplingParams(seed=1, typical_p=0.9))
    assert whole_text([some]) == {knob: margin_of(some, knob).picked for knob in KNOBS}
    assert whole_text([some, none, some]) == dict.fromkeys(KNOBS)
