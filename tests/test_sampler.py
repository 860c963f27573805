"""The sampler: its draws, its random numbers, and what it says about them."""

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from minigen.generation.errors import NumberError, ParameterError
from minigen.generation.params import SamplingParams, next_seed
from minigen.generation.ranges import MAX_SEED
from minigen.generation.sampler import XTC, Sampler, pick, uniform
from minigen.generation.trace import Draw, Inspection
from minigen.generation.words import Words


def logits(*probs: float) -> torch.Tensor:
    return torch.tensor(probs).log()


def chi_square(counts: list[int], probs: list[float]) -> float:
    total = sum(counts)
    return sum((seen - total * p) ** 2 / (total * p) for seen, p in zip(counts, probs, strict=True))


@pytest.mark.parametrize(
    ("params", "probs"),
    [
        (SamplingParams(seed=1), [0.4, 0.3, 0.2, 0.1]),
        (SamplingParams(seed=2, temperature=0.5), [16 / 30, 9 / 30, 4 / 30, 1 / 30]),
        (SamplingParams(seed=3, top_k=2), [4 / 7, 3 / 7]),
        (SamplingParams(seed=4, top_p=0.8), [4 / 9, 3 / 9, 2 / 9]),
        (SamplingParams(seed=5, min_p=0.3), [4 / 9, 3 / 9, 2 / 9]),
    ],
)
def test_draws_follow_the_final_probabilities(params: SamplingParams, probs: list[float]) -> None:
    sampler = Sampler(params)
    row = logits(0.4, 0.3, 0.2, 0.1)
    drawn = [sampler.draw(row).token_id for _ in range(4000)]
    counts = [drawn.count(token_id) for token_id in range(4)]
    assert counts[len(probs) :] == [0] * (4 - len(probs))
    assert chi_square(counts[: len(probs)], probs) < 16.27  # 0.1 % point of χ² with 3 degrees of freedom


def test_rows_of_a_batch_are_sequences_of_their_own() -> None:
    ids = Sampler(SamplingParams(seed=10)).sample(logits(0.4, 0.3, 0.2, 0.1).expand(3000, 4))
    counts = torch.bincount(ids, minlength=4).tolist()
    assert chi_square(counts, [0.4, 0.3, 0.2, 0.1]) < 16.27
    alone = [Sampler(SamplingParams(seed=10 + i)).sample(logits(0.4, 0.3, 0.2, 0.1)).item() for i in range(20)]
    assert ids[:20].tolist() == alone


def test_sample_gives_an_id_for_a_row() -> None:
    assert Sampler(SamplingParams(temperature=0)).sample(torch.tensor([1.0, 3.0])).shape == ()


def test_uniform_numbers_are_a_function_of_seed_and_step() -> None:
    numbers = [uniform(seed, step) for seed in range(40) for step in range(100)]
    assert len(set(numbers)) == 4000
    assert all(0 <= number < 1 for number in numbers)
    assert abs(sum(numbers) / 4000 - 0.5) < 0.02
    counts = [sum(i / 10 <= number < (i + 1) / 10 for number in numbers) for i in range(10)]
    assert chi_square(counts, [0.1] * 10) < 27.88  # 0.1 % point, 9 degrees of freedom
    assert uniform(7, 3) == 0.1846062188940475  # fixed: saved runs are drawn again with it


def test_the_global_generator_is_neither_read_nor_moved() -> None:
    """RNG-1"""
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first = Sampler(SamplingParams(seed=3)).draw(torch.zeros(100)).token_id
    assert torch.equal(state, torch.get_rng_state())
    torch.manual_seed(6)
    assert Sampler(SamplingParams(seed=3)).draw(torch.zeros(100)).token_id == first


def test_a_missing_seed_is_chosen_and_repeats_the_run() -> None:
    sampler = Sampler(SamplingParams())
    drawn = [sampler.draw(torch.zeros(1000)).token_id for _ in range(5)]
    again = Sampler(SamplingParams(seed=sampler.seed))
    assert [again.draw(torch.zeros(1000)).token_id for _ in range(5)] == drawn


def test_seeds_of_later_samples_wrap() -> None:
    assert next_seed(MAX_SEED) == 0
    assert next_seed(5, 3) == 8


@pytest.mark.parametrize(
    "params", [SamplingParams(temperature=0), SamplingParams(top_k=1), SamplingParams(temperature=1e-20)]
)
def test_greedy_and_its_likes_agree_on_the_lowest_id_of_a_tie(params: SamplingParams) -> None:
    """SMP-1"""
    draw = Sampler(params).draw(torch.tensor([0.0, 2.0, 2.0, 1.0]))
    if params.temperature == 1e-20:
        assert draw.token_id in (1, 2)  # both remain at any temperature above 0
    else:
        assert draw.token_id == 1
        assert draw.final_prob == 1


def test_greedy_skips_the_filters_but_obeys_bias_and_penalties() -> None:
    params = SamplingParams(temperature=0, top_k=1, typical_p=0.01, repetition_penalty=2.0, logit_bias={0: -math.inf})
    sampler = Sampler(params, prompt_ids=[1])
    assert sampler.draw(torch.tensor([9.0, 3.0, 2.0])).token_id == 2
    assert sampler.draw(torch.tensor([9.0, 3.0, 2.0])).token_id == 1


def test_penalties_count_what_they_should() -> None:
    row = torch.tensor([1.0, 1.0, 1.0])
    frequency = Sampler(SamplingParams(temperature=0, frequency_penalty=1.0), prompt_ids=[0, 0])
    assert [frequency.draw(row).token_id for _ in range(4)] == [0, 1, 2, 0]  # the prompt does not count
    repetition = Sampler(SamplingParams(temperature=0, repetition_penalty=2.0), prompt_ids=[0])
    assert [repetition.draw(row).token_id for _ in range(3)] == [1, 2, 0]  # the prompt counts


@pytest.mark.parametrize("row", [[math.nan, 1, 2], [math.inf, 1, 2], [-math.inf] * 3])
def test_logits_that_are_no_numbers_are_an_error_that_names_the_token(row: list[float]) -> None:
    """SMP-19"""
    sampler = Sampler(SamplingParams(seed=1))
    sampler.draw(torch.tensor([-math.inf, 0, 1]))  # −inf alone is legal
    sampler.draw(torch.tensor([-math.inf, 0, 1]))
    with pytest.raises(NumberError, match="at token 3; try --dtype bfloat16"):
        sampler.draw(torch.tensor(row))


def test_bans_of_every_token_are_an_error() -> None:
    with pytest.raises(NumberError, match="logit_bias ban every token at token 1"):
        Sampler(SamplingParams(logit_bias={0: -math.inf, 1: -math.inf})).draw(torch.zeros(2))


def test_half_precision_rows_are_drawn_in_float32() -> None:
    """SMP-17"""
    row = torch.full((151_936,), -30.0, dtype=torch.float16)
    row[0] = 20.0
    sampler = Sampler(SamplingParams(seed=4, top_k=40))
    assert {sampler.draw(row).token_id for _ in range(100)} == {0}


def test_raw_and_final_probabilities_are_told_apart() -> None:
    """STA-5, STA-6"""
    draw = Sampler(SamplingParams(seed=1, top_k=2), inspection=Inspection(num_candidates=4)).draw(
        logits(0.5, 0.25, 0.125, 0.125)
    )
    assert [round(math.exp(c.logprob), 3) for c in draw.candidates] == [0.5, 0.25, 0.125, 0.125]
    assert [round(c.final_prob, 3) for c in draw.candidates] == [0.667, 0.333, 0, 0]
    assert [c.dropped_by for c in draw.candidates] == [None, None, "top_k", "top_k"]
    greedy = Sampler(SamplingParams(temperature=0), inspection=Inspection(num_candidates=3)).draw(
        logits(0.5, 0.25, 0.25)
    )
    assert [c.final_prob for c in greedy.candidates] == [1, 0, 0]
    assert [c.dropped_by for c in greedy.candidates] == [None, "greedy", "greedy"]
    assert greedy.u is None
    one = Sampler(SamplingParams(seed=1, top_p=0.5), inspection=Inspection(num_candidates=3)).draw(
        logits(0.6, 0.3, 0.1)
    )
    assert [round(math.exp(c.logprob), 3) for c in one.candidates] == [0.6, 0.3, 0.1]


def test_the_chosen_token_is_always_among_the_candidates() -> None:
    row = torch.arange(50, dtype=torch.float32) / 100
    for seed in range(10):
        draw = Sampler(SamplingParams(seed=seed), inspection=Inspection(num_candidates=2)).draw(row)
        assert draw.token_id in [c.token_id for c in draw.candidates]
        assert [c.token_id for c in draw.candidates][:2] == [49, 48]
        assert draw.rank == 50 - draw.token_id


def test_entropy_is_in_bits_and_logprobs_are_natural() -> None:
    draw = Sampler(SamplingParams(seed=1)).draw(torch.zeros(8))
    assert draw.entropy == pytest.approx(3)
    assert draw.logprob == pytest.approx(-math.log(8))
    assert Sampler(SamplingParams()).draw(torch.tensor([0.0, -math.inf])).entropy == 0


def test_ranks_start_at_one_with_ties_by_id() -> None:
    draws = [Sampler(SamplingParams(logit_bias={i: 100.0})).draw(torch.tensor([1.0, 2, 2])) for i in range(3)]
    assert [draw.rank for draw in draws] == [3, 1, 2]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from([-2.0, 0.0, 1.0, 3.0]), min_size=1, max_size=30),
    st.floats(0, 1, exclude_max=True),
)
def test_pick_inverts_the_cumulative_distribution(values: list[float], u: float) -> None:
    row = torch.tensor(values)
    probs = row.softmax(-1)
    total, expected = 0.0, -1
    for token_id in sorted(range(len(values)), key=lambda i: (-values[i], i)):
        total, expected = total + float(probs[token_id].double()), token_id
        if u < total:
            break
    assert pick(row, probs, u) == expected


def test_pick_is_the_same_whether_the_head_settles_it_or_not() -> None:
    row = torch.randn(9000, generator=torch.Generator().manual_seed(0)) * 0.1
    probs = row.softmax(-1)
    order = row.sort(descending=True, stable=True).indices
    cumulative = probs[order].double().cumsum(0)
    for u in (0.0, 0.01, 0.2, 0.7, 0.999999999):
        place = min(int(torch.searchsorted(cumulative, u, right=True)), 8999)
        assert pick(row, probs, u) == int(order[place])


def test_runs_with_one_seed_are_coupled_when_a_setting_changes() -> None:
    row = logits(0.5, 0.25, 0.125, 0.125)
    plain, cut = Sampler(SamplingParams(seed=9)), Sampler(SamplingParams(seed=9, top_k=3))
    pairs = [(plain.draw(row), cut.draw(row)) for _ in range(50)]
    assert all(a.u == b.u for a, b in pairs)
    assert sum(a.token_id == b.token_id for a, b in pairs) > 30  # two independent runs would agree on about 18


@pytest.mark.parametrize("shape", [(2, 4), (2, 1, 4), (0,), ()])
def test_a_draw_takes_one_row_only(shape: tuple[int, ...]) -> None:
    with pytest.raises(ParameterError, match=r"^logits must be of one row"):
        Sampler(SamplingParams(seed=0)).draw(torch.zeros(shape))


def test_a_batch_of_no_rows_gives_no_ids() -> None:
    assert torch.equal(Sampler().sample(torch.zeros(0, 4)), torch.tensor([], dtype=torch.long))


def test_a_bias_beyond_float32_forces_its_token() -> None:
    """It gave +inf, and so a distribution of NaN and any other token."""
    draw = Sampler(SamplingParams(logit_bias={1: 1e300}, seed=3)).draw(torch.zeros(4))
    assert (draw.token_id, draw.final_prob) == (1, 1.0)


@pytest.mark.parametrize("count", [-1, 1.5, "3"])
def test_a_number_of_candidates_is_checked(count: int) -> None:
    with pytest.raises(ParameterError, match=r"^num_candidates"):
        Sampler(inspection=Inspection(num_candidates=count))


def rows_of(count: int, *, vocab: int = 60, scale: float = 2.0, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, vocab, generator=torch.Generator().manual_seed(seed)) * scale


def draws_of(params: SamplingParams, rows: torch.Tensor) -> list[Draw]:
    sampler = Sampler(params, words=Words())
    return [sampler.draw(row) for row in rows]


def test_xtc_s_coin_is_a_stream_of_its_own() -> None:
    """XTC moves no other number of the run, so runs with and without it stay coupled; it is repeatable itself."""
    rows = rows_of(200)
    plain = draws_of(SamplingParams(seed=5), rows)
    excluding = draws_of(SamplingParams(seed=5, xtc_probability=0.5, xtc_threshold=0.05), rows)
    assert [draw.u for draw in plain] == [draw.u for draw in excluding]
    assert excluding == draws_of(SamplingParams(seed=5, xtc_probability=0.5, xtc_threshold=0.05), rows)
    coins = [uniform(5, step, XTC) for step in range(200)]
    assert not set(coins) & {draw.u for draw in plain}
    for step, (row, one, other) in enumerate(zip(rows, plain, excluding, strict=True)):
        probs = row.double().softmax(-1)
        is_acting = coins[step] < 0.5 and int((probs >= 0.05).sum()) > 1
        assert (one.final_prob == other.final_prob and one.token_id == other.token_id) or is_acting
        if is_acting:
            likely = [i for i in probs.argsort(descending=True).tolist() if probs[i] >= 0.05]
            assert other.token_id not in likely[:-1]
    assert uniform(7, 3, XTC) == 0.3237790156522127  # fixed: saved runs are drawn again with it


@pytest.mark.parametrize(("probability", "slack"), [(0.0, 0), (0.3, 30), (1.0, 0)])
def test_xtc_acts_as_often_as_it_is_told(probability: float, slack: int) -> None:
    row = logits(0.4, 0.3, 0.2, 0.1)
    draws = draws_of(SamplingParams(seed=2, xtc_probability=probability, xtc_threshold=0.05), row.expand(400, 4))
    assert sum(draw.final_prob == 1 for draw in draws) == pytest.approx(400 * probability, abs=slack)


def mirostat_written_out(rows: torch.Tensor, tau: float, eta: float, seed: int) -> tuple[list[int], list[float]]:
    """Give ids and limits in Python's own numbers: Basu et al., the second form, drawn by falling probability."""
    limit, ids, limits = 2 * tau, [], []
    for step, row in enumerate(rows.double().tolist()):
        weights = [math.exp(value - max(row)) for value in row]
        ranked = sorted(((weight / math.fsum(weights), -i) for i, weight in enumerate(weights)), reverse=True)
        left = [(p, -i) for p, i in ranked if -math.log2(p) <= limit] or [(ranked[0][0], -ranked[0][1])]
        total, reached, chosen = math.fsum(p for p, _ in left), 0.0, left[-1]
        for p, i in left:
            reached += p / total
            if uniform(seed, step) < reached:
                chosen = (p, i)
                break
        ids.append(chosen[1])
        probs = {i: p / total for p, i in left}
        limit -= eta * (-math.log2(probs[chosen[1]]) - tau)
        limits.append(limit)
    return ids, limits


@pytest.mark.parametrize(("tau", "eta"), [(1.0, 0.1), (3.0, 0.1), (3.0, 1.0), (6.0, 0.3)])
def test_mirostat_is_its_definition(tau: float, eta: float) -> None:
    rows = rows_of(150, scale=3.0)
    sampler = Sampler(SamplingParams(mirostat_tau=tau, mirostat_eta=eta, seed=9))
    ids, limits = mirostat_written_out(rows, tau, eta, seed=9)
    for row, token_id, limit in zip(rows, ids, limits, strict=True):
        assert sampler.draw(row).token_id == token_id
        assert sampler.surprisal_limit == pytest.approx(limit, abs=1e-4)


def test_mirostat_comes_to_the_surprisal_aimed_at() -> None:
    draws = draws_of(SamplingParams(mirostat_tau=2.5, mirostat_eta=0.2, seed=1), rows_of(600, vocab=500))
    assert sum(-math.log2(draw.final_prob) for draw in draws[50:]) / 550 == pytest.approx(2.5, abs=0.05)


def test_mirostat_works_on_what_the_other_filters_left() -> None:
    rows = rows_of(100, scale=3.0)
    kept = rows.masked_fill(rows < rows.topk(4).values[:, -1:], -math.inf)
    params = SamplingParams(mirostat_tau=1.0, seed=9)
    cut = draws_of(SamplingParams(mirostat_tau=1.0, top_k=4, seed=9), rows)
    assert [draw.token_id for draw in cut] == [draw.token_id for draw in draws_of(params, kept)]


def test_greedy_runs_without_the_young_filters_too() -> None:
    rows = rows_of(30)
    params = SamplingParams(
        temperature=0, xtc_probability=1, xtc_threshold=0.01, mirostat_tau=0.1, dynatemp_range=5, top_n_sigma=0.1
    )
    assert [draw.token_id for draw in draws_of(params, rows)] == rows.argmax(-1).tolist()


def test_greedy_obeys_dry() -> None:
    params = SamplingParams(temperature=0, dry_multiplier=10.0, dry_allowed_length=1, dry_sequence_breakers=[])
    sampler = Sampler(params, prompt_ids=[1, 2, 1])
    assert sampler.draw(torch.tensor([0.0, 0.0, 1.0])).token_id == 0


def test_dry_looks_back_as_far_as_it_is_told() -> None:
    row = torch.zeros(9)
    for range_, expected in ((0, 8), (6, 8), (5, 8), (4, 0)):
        params = SamplingParams(
            temperature=0, dry_multiplier=1, dry_range=range_, dry_sequence_breakers=[], logit_bias={8: 0.5}
        )
        sampler = Sampler(params, prompt_ids=[3, 1, 2, 8, 1, 2])
        assert sampler.draw(row).token_id == (0 if expected == 8 else 8)


def test_later_rows_know_the_same_words() -> None:
    words = Words(bad_word_ids=[(0,), (1,)])
    sampler = Sampler(SamplingParams(bad_words="x", seed=1), words=words)
    assert set(sampler.sample(torch.zeros(20, 4)).tolist()) <= {2, 3}
