"""The sampler: its draws, its random numbers, and what it says about them."""

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from minigen.generation.errors import NumberError, ParameterError
from minigen.generation.params import MAX_SEED, SamplingParams, next_seed
from minigen.generation.sampler import Sampler, pick, uniform


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
    draw = Sampler(SamplingParams(seed=1, top_k=2), num_candidates=4).draw(logits(0.5, 0.25, 0.125, 0.125))
    assert [round(math.exp(c.logprob), 3) for c in draw.candidates] == [0.5, 0.25, 0.125, 0.125]
    assert [round(c.final_prob, 3) for c in draw.candidates] == [0.667, 0.333, 0, 0]
    assert [c.dropped_by for c in draw.candidates] == [None, None, "top_k", "top_k"]
    greedy = Sampler(SamplingParams(temperature=0), num_candidates=3).draw(logits(0.5, 0.25, 0.25))
    assert [c.final_prob for c in greedy.candidates] == [1, 0, 0]
    assert greedy.u is None
    one = Sampler(SamplingParams(seed=1, top_p=0.5), num_candidates=3).draw(logits(0.6, 0.3, 0.1))
    assert [round(math.exp(c.logprob), 3) for c in one.candidates] == [0.6, 0.3, 0.1]


def test_the_chosen_token_is_always_among_the_candidates() -> None:
    row = torch.arange(50, dtype=torch.float32) / 100
    for seed in range(10):
        draw = Sampler(SamplingParams(seed=seed), num_candidates=2).draw(row)
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
        Sampler(num_candidates=count)
