"""Drawing a recorded run again: a decided token is always what the sampler would have drawn on the whole rows."""

import math
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from minigen.generation.arrangement import score_stages
from minigen.generation.errors import NumberError, ParameterError
from minigen.generation.leading import leading_ids
from minigen.generation.orders import ORDERS, RULES
from minigen.generation.params import SamplingParams
from minigen.generation.partial_row import known_row
from minigen.generation.replay import RecordedStep, Recording, Redraw, effective, replay
from minigen.generation.sampler import Sampler, uniform
from minigen.generation.trace import TEMPERATURES, Leading
from minigen.generation.unlisted import Tail
from minigen.generation.words import Words
from torch import Tensor

INF = math.inf
WORDS = Words(end_token_ids=(3, 4), bad_word_ids=((5,), (1, 2), (7,)), breakers={9: ((),), 10: ((11,),)})


def leading_of(row: Tensor, width: int, chosen: int, *, is_added: bool = False, has_sums: bool = True) -> Leading:
    """Keep the highest logits of a row, in float64; a chosen token outside takes the last place, or is added."""
    ids = leading_ids(row, width).tolist()
    if chosen not in ids:
        ids = [*ids, chosen] if is_added else [*ids[:-1], chosen]
    others = row.double().index_fill(0, torch.tensor(ids), -INF)
    num_others = int((others > -INF).sum())
    temperatures = TEMPERATURES if has_sums and num_others else ()
    return Leading(
        token_ids=ids,
        logits=row[ids].tolist(),
        num_others=num_others,
        others_logsumexp=float(others.logsumexp(-1)) if num_others else -INF,
        others_logsumexps=[float((others / t).logsumexp(-1)) for t in temperatures],
        deviation=float(row[row > -INF].double().std(correction=0)),
    )


def recording_of(rows: Sequence[Tensor], params: SamplingParams, *, width: int = 64, **facts: Any) -> Recording:
    """Draw rows with the sampler and record it."""
    words, prompt_ids = facts.pop("words", WORDS), facts.pop("prompt_ids", ())
    sampler = Sampler(params, prompt_ids=prompt_ids, words=words)
    draws = [sampler.draw(row) for row in rows]
    steps = [
        RecordedStep(token_id=draw.token_id, rank=draw.rank, leading=leading_of(row, width, draw.token_id, **facts))
        for draw, row in zip(draws, rows, strict=True)
    ]
    return Recording(
        params=params, seed=sampler.seed, prompt_ids=prompt_ids, steps=steps, vocab_size=len(rows[0]), words=words
    )


def redrawn(recording: Recording, **changes: Any) -> list[Redraw]:
    return list(replay(recording, SamplingParams(**{"seed": recording.seed} | changes)))


def sampled(recording: Recording, rows: Sequence[Tensor], params: SamplingParams) -> list[int | None]:
    """Draw whole rows under other settings, each given the recorded text; None where the settings ban every token.

    Mirostat's limit is the replay's own up to the first step that differs; from there on a replay decides nothing.
    """
    sampler = Sampler(params, prompt_ids=recording.prompt_ids, words=recording.words)
    found: list[int | None] = []
    for row, step in zip(rows, recording.steps, strict=True):
        try:
            found.append(sampler.draw(row).token_id)
        except NumberError:
            return [*found, *[None] * (len(rows) - len(found))]
        sampler.output_ids[-1] = step.token_id
    return found


P = torch.tensor([0.1, 0.2, 0.3, 0.4]).log()  # by rank: tokens 3, 2, 1, 0


def seed_for(low: float, high: float) -> int:
    """Find a seed whose first uniform number lies between two."""
    return next(seed for seed in range(10_000) if low < uniform(seed, 0) < high)


def test_the_recorded_settings_give_the_recorded_text() -> None:
    rows = [torch.randn(500, generator=torch.Generator().manual_seed(i)) for i in range(8)]
    recording = recording_of(rows, SamplingParams(seed=3, typical_p=0.5, repetition_penalty=1.2), width=4)
    again = list(replay(recording, recording.params))
    assert [redraw.token_id for redraw in again] == [step.token_id for step in recording.steps]
    assert not any(redraw.differs for redraw in again)


@pytest.mark.parametrize(
    "idle", [{"max_new_tokens": 5}, {"stop": ("x",)}, {"ignore_eos": True}, {"dry_base": 3.0}, {"mirostat_eta": 0.5}]
)
def test_a_setting_that_changes_no_draw_changes_nothing(idle: dict[str, Any]) -> None:
    rows = [torch.zeros(500)] * 3  # every token is as likely: nothing but the record tells
    recording = recording_of(rows, SamplingParams(seed=3), width=4)
    assert [redraw.token_id for redraw in redrawn(recording, **idle)] == [step.token_id for step in recording.steps]
    assert effective(SamplingParams(seed=9, **idle)) == SamplingParams()


def test_what_the_kept_logits_settle_is_decided() -> None:
    """Tokens 3 and 2 are kept, with 0.4 and 0.3; what is left has 0.3, and none of it more than 0.3."""
    recording = recording_of([P], SamplingParams(seed=seed_for(0.58, 0.65)), width=2)
    assert recording.steps[0].token_id == 2
    (at_k,) = redrawn(recording, top_k=2)  # 0.4 of 0.7 is 0.571
    (at_p,) = redrawn(recording, top_p=0.5)
    (greedy,) = redrawn(recording, temperature=0)
    assert (at_k.token_id, at_p.token_id, greedy.token_id) == (2, 2, 3)
    assert (at_k.differs, at_p.differs, greedy.differs) == (False, False, True)
    assert at_k.reason == ""


def test_a_draw_among_what_is_not_kept_is_not_decided() -> None:
    recording = recording_of([P], SamplingParams(seed=seed_for(0.75, 0.95), top_k=2), width=2)
    (redraw,) = redrawn(recording)
    assert (redraw.token_id, redraw.is_decided, redraw.differs) == (None, False, False)
    assert redraw.reason == "the draw falls among the tokens that the trace does not keep"


def test_the_mass_at_other_temperatures_settles_more() -> None:
    """At a temperature of 2 the likeliest token weighs 0.632, all together between 1.955 and 2.115: in truth 2.107."""
    row = torch.tensor([0.05, 0.1, 0.15, 0.3, 0.4]).log()
    params = SamplingParams(seed=seed_for(0.305, 0.315), top_k=2)
    (blind,) = redrawn(recording_of([row], params, width=3, has_sums=False), temperature=2)
    (informed,) = redrawn(recording_of([row], params, width=3), temperature=2)
    assert (blind.token_id, informed.token_id) == (None, 3)
    assert blind.reason == "it depends on how likely each of the tokens is that the trace does not keep"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"logit_bias": {0: 9.0}}, "a token that the trace does not keep is the likeliest"),
        ({"allowed_token_ids": (0, 1)}, "a token that the trace does not keep is the likeliest"),
        ({"logit_bias": dict.fromkeys(range(4), -INF)}, "the settings rule out every token"),
        ({"typical_p": 0.5}, "typical_p goes by tokens that the trace does not keep"),
        (
            {"top_n_sigma": 1.0, "logit_bias": {3: 0.1}},
            "top_n_sigma goes by the spread of all scores, and other settings have changed some",
        ),
    ],
)
def test_what_is_not_decided_says_why(changes: dict[str, Any], reason: str) -> None:
    recording = recording_of([P], SamplingParams(seed=1, top_k=1), width=2)
    (redraw,) = redrawn(recording, **changes)
    assert (redraw.token_id, redraw.reason) == (None, reason)


def test_a_ban_on_what_is_not_kept_may_take_any_of_its_mass() -> None:
    """Token 1 holds 0 to 0.3 of the mass: 0.4 of 0.7 to 1 is token 3's, so 0.39 is decided and 0.5 is not."""
    for u, is_decided in ((0.39, True), (0.5, False)):
        recording = recording_of([P], SamplingParams(seed=seed_for(u - 0.005, u), top_k=2), width=2)
        (redraw,) = redrawn(recording, logit_bias={1: -INF})
        assert redraw.is_decided is is_decided


def test_other_random_numbers_are_followed() -> None:
    rows = [P] * 20
    recording = recording_of(rows, SamplingParams(seed=1), width=4)
    again = list(replay(recording, SamplingParams(), seed=2))
    assert [redraw.token_id for redraw in again] == sampled(recording, rows, SamplingParams(seed=2))
    assert any(redraw.differs for redraw in again)


def test_each_step_is_given_the_recorded_text() -> None:
    """A penalty counts what was recorded, not what would have been chosen."""
    rows = [torch.tensor([0.0, 1.0, 1.1]), torch.tensor([0.0, 1.0, 1.1])]
    recording = recording_of(rows, SamplingParams(temperature=0, logit_bias={2: -INF}), width=3)
    assert [step.token_id for step in recording.steps] == [1, 1]
    assert [redraw.token_id for redraw in redrawn(recording, temperature=0, presence_penalty=2)] == [2, 2]


def test_mirostat_is_decided_up_to_the_first_difference() -> None:
    rows = [torch.randn(300, generator=torch.Generator().manual_seed(i)) * 4 for i in range(30)]
    recording = recording_of(rows, SamplingParams(seed=5), width=64)
    changed = SamplingParams(seed=5, mirostat_tau=3, mirostat_eta=0.3)
    again = list(replay(recording, changed))
    first = next(i for i, redraw in enumerate(again) if redraw.differs)
    assert first > 0
    assert [redraw.token_id for redraw in again[: first + 1]] == sampled(recording, rows, changed)[: first + 1]
    assert {redraw.reason for redraw in again[first + 1 :]} == {
        f"mirostat_tau goes by the text before, which goes another way at token {first + 1}"
    }


def test_two_scores_that_rounding_makes_equal_go_by_id() -> None:
    """1.7 and the next number below it are the same number at a temperature of 3."""
    high = torch.tensor(1.7)
    row = torch.stack([high.nextafter(torch.tensor(0.0)), high, torch.tensor(0.0)])
    recording = recording_of([row], SamplingParams(seed=1), width=3)
    temperature = next(t for t in (2.0, 3.0, 5.0, 7.0) if (row / t)[0] == (row / t)[1])
    (redraw,) = redrawn(recording, temperature=temperature, top_k=1)
    assert redraw.token_id == 0


def test_ids_outside_the_vocabulary_are_refused() -> None:
    recording = recording_of([P], SamplingParams(seed=1), width=2)
    with pytest.raises(ParameterError, match="logit_bias must be for token ids from 0 to 3, not 4"):
        redrawn(recording, logit_bias={4: 1.0})


def test_a_wide_enough_record_decides_everything() -> None:
    rows = [torch.randn(60, generator=torch.Generator().manual_seed(i)) for i in range(20)]
    recording = recording_of(rows, SamplingParams(seed=5), width=60, prompt_ids=(7, 8, 7))
    changes: dict[str, Any] = {
        "temperature": 1.4, "dynatemp_range": 0.4, "top_n_sigma": 2.0, "typical_p": 0.9, "eta_cutoff": 0.01,
        "xtc_probability": 0.5, "repetition_penalty": 1.2, "dry_multiplier": 1.0, "seed": 5,
    }  # fmt: skip
    again = redrawn(recording, **changes)
    assert [redraw.token_id for redraw in again] == sampled(recording, rows, SamplingParams(**changes))


def random_rows(rng: random.Random, vocab: int, count: int) -> list[Tensor]:
    """Make rows: flat, peaked, with ties, with tokens ruled out, far from 0, with scores that differ in one bit."""
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    kind = rng.choice(["plain", "zipf", "flat", "ties", "ruled out", "peaked", "far", "one bit"])
    rows = []
    for _ in range(count):
        row = torch.randn(vocab, generator=generator) * rng.choice([1, 2, 3])
        share = torch.rand(vocab, generator=generator)
        if kind == "zipf":
            row = -torch.log(torch.randperm(vocab, generator=generator).float() + 1) * rng.choice([1.0, 2.0]) + row / 10
        elif kind == "flat":
            row = row / 20
        elif kind == "ties":
            row = (row * 2).round() / 2
        elif kind == "ruled out":
            row = row.masked_fill(share < rng.choice([0.3, 0.95]), -INF).index_fill(0, torch.tensor(0), 1.0)
        elif kind == "peaked":
            row[rng.randrange(vocab)] += 12
        elif kind == "far":
            row = row + rng.choice([-100, 50, 300])
        elif kind == "one bit":
            near = [torch.tensor(rng.choice([3.3, 1.7, 20.1]))]
            near += [near[0] * (1 - 2.0**-23 * n) for n in range(6)]
            row = torch.where(share < 0.3, torch.stack(near)[torch.arange(vocab) % 7], row)
        rows.append(row)
    return rows


def random_params(rng: random.Random, vocab: int) -> dict[str, Any]:
    """Give any settings."""
    u, often = rng.uniform, rng.choice([0.1, 0.25, 0.5])
    makers: dict[str, tuple[float, Any]] = {
        "temperature": (0.8, lambda: rng.choice([0, 0.005, 0.05, 0.3, 0.7, 0.9, 1.0, 1.3, 2.0, 10.0, u(0.1, 2)])),
        "dynatemp_range": (often, lambda: u(0, 1)),
        "dynatemp_exponent": (often, lambda: u(0.3, 2)),
        "top_n_sigma": (often, lambda: u(0.3, 4)),
        "top_k": (often, lambda: rng.choice([1, 2, 5, 8, 16, 40, 100, 1000, 3000])),
        "top_p": (often, lambda: rng.choice([0.5, 0.9, 0.99, u(0.01, 1)])),
        "min_p": (often, lambda: rng.choice([1.0, 1e-4, u(0, 0.5)])),
        "typical_p": (often / 2, lambda: u(0.05, 1)),
        "epsilon_cutoff": (often, lambda: rng.choice([1e-3, 3e-4, u(0, 0.2)])),
        "eta_cutoff": (often, lambda: rng.choice([1e-3, 3e-4, u(0, 0.2)])),
        "xtc_probability": (often, lambda: rng.choice([0.5, 1.0])),
        "xtc_threshold": (often, lambda: rng.choice([0.1, 0.02, 0.3, 0.005])),
        "mirostat_tau": (often / 2, lambda: u(0.5, 8)),
        "mirostat_eta": (often, lambda: u(0.05, 1)),
        "repetition_penalty": (often, lambda: rng.choice([0.5, 0.8, 1.1, 1.3, 5.0])),
        "frequency_penalty": (often, lambda: u(-2, 2)),
        "presence_penalty": (often, lambda: u(-2, 2)),
        "no_repeat_ngram_size": (often, lambda: rng.choice([1, 2, 3])),
        "dry_multiplier": (often / 2, lambda: u(0, 3)),
        "dry_allowed_length": (often, lambda: rng.choice([1, 2])),
        "dry_range": (often, lambda: rng.choice([0, 3, 10])),
        "logit_bias": (
            often,
            lambda: {rng.randrange(vocab): rng.choice([-INF, u(-20, 20)]) for _ in range(rng.choice([1, 3, 50]))},
        ),
        "allowed_token_ids": (often / 3, lambda: [rng.randrange(vocab) for _ in range(rng.choice([1, 5, vocab // 2]))]),
        "bad_words": (often / 2, lambda: ["x"]),
        "min_new_tokens": (often / 2, lambda: rng.randrange(8)),
    }
    chosen = {name: make() for name, (chance, make) in makers.items() if rng.random() < chance}
    return ordered(chosen, rng.choice([*["minigen"] * 4, *ORDERS]))


def ordered(chosen: dict[str, Any], order: str) -> dict[str, Any]:
    """Leave out what an engine does not have or refuses."""
    own, rules = RULES["minigen"], RULES[order]
    missing = {*own.scores, *own.filters} - {*rules.scores, *rules.filters}
    has = {name: value for name, value in chosen.items() if name not in missing}
    has = {name: value for name, value in has.items() if rules.limits.get(name, [bool])[0](value) or not value}
    if order == "hf" and has.get("temperature") == 0:
        del has["temperature"]
    return has | {"order": order}


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32))
def test_decided_is_never_wrong(number: int) -> None:
    """Any rows, any settings, a record much smaller than the vocabulary."""
    rng = random.Random(number)
    vocab, width = rng.choice([30, 200, 700, 2000]), rng.choice([1, 2, 5, 16, 64])
    rows, seed = random_rows(rng, vocab, 8), rng.randrange(1000)
    facts: dict[str, Any] = {"is_added": rng.random() < 0.5, "has_sums": rng.random() < 0.7}
    prompt_ids = [rng.randrange(vocab) for _ in range(rng.choice([0, 3, 30]))]
    try:
        old = SamplingParams(**random_params(rng, vocab), seed=seed)
        recording = recording_of(rows, old, width=width, prompt_ids=prompt_ids, **facts)
    except NumberError:  # the settings ban every token
        return
    new = SamplingParams(**random_params(rng, vocab), seed=rng.choice([seed, seed + 1]))
    for redraw, token_id in zip(replay(recording, new, new.seed), sampled(recording, rows, new), strict=True):
        if token_id is None:
            break
        assert redraw.token_id in (None, token_id), (redraw, new)


def test_common_settings_are_nearly_always_decided() -> None:
    """The mass falls as a power of the rank, as in language models; 64 of 2,000 logits are kept."""
    rng, counts = random.Random(7), Counter[bool]()
    generator = torch.Generator().manual_seed(7)
    for _ in range(60):
        ranks = [torch.randperm(2000, generator=generator).float() + 1 for _ in range(8)]
        rows = [-2.2 * rank.log() + 0.7 * torch.randn(2000, generator=generator) for rank in ranks]
        seed = rng.randrange(1000)
        recording = recording_of(rows, SamplingParams(temperature=0.8, top_p=0.95, seed=seed), width=64)
        changes: dict[str, Any] = {"temperature": rng.uniform(0.3, 1.5), "seed": seed}
        changes |= rng.choice([{"top_k": rng.randrange(1, 65)}, {"top_p": rng.uniform(0.3, 0.99)}, {"min_p": 0.05}, {}])
        new = SamplingParams(**changes)
        again = list(replay(recording, new))
        counts.update(redraw.is_decided for redraw in again)
        wanted = sampled(recording, rows, new)
        assert all(one.token_id in (None, other) for one, other in zip(again, wanted, strict=True))
    assert counts[True] > 0.95 * counts.total()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-30, 0, width=32), min_size=1, max_size=200), st.floats(0.01, 30))
def test_the_mass_at_any_temperature_lies_within_its_bounds(scores: list[float], power: float) -> None:
    values = torch.tensor(scores, dtype=torch.float64)
    powers = (0.0, *(1 / t for t in TEMPERATURES), 1.0)
    sums = tuple(float((each * values).logsumexp(-1)) for each in sorted(powers))
    for kept in ([0, *range(1, len(powers))], [0, sorted(powers).index(1.0)]):
        places = tuple(sorted(powers)[i] for i in kept)
        known = tuple(sums[i] for i in kept)
        low, high = Tail(places, known, known, max(scores)).bounds_at(power)
        true = float((power * values).logsumexp(-1))
        assert low - 1e-9 * (1 + abs(true)) <= true <= high + 1e-9 * (1 + abs(true))


def test_what_stages_do_to_tokens_that_are_not_kept_is_bounded() -> None:
    """Recomputed from the whole row, in float64."""
    generator = torch.Generator().manual_seed(11)
    for _ in range(30):
        row = torch.randn(200, generator=generator) * 3
        leading = leading_of(row, 20, int(row.argmax()))
        params = SamplingParams(repetition_penalty=1.4, frequency_penalty=-0.5, logit_bias={5: 1.5, 6: -INF, 7: -2.0})
        stages = score_stages(params, list(range(0, 200, 3)), list(range(0, 200, 7)))
        known = known_row(leading, stages, 200, is_last_apart=False)
        for _, apply in stages:
            row = apply(row)
        head = set(known.ids.tolist())
        others = torch.tensor([float(row[i]) for i in range(200) if i not in head], dtype=torch.float64)
        assert known.ids.tolist() == leading_ids(row, len(head)).tolist()
        assert known.scores.tolist() == row[known.ids].tolist()
        assert float(others.max()) <= known.tail.peak
        assert known.tail.least_count <= int((others > -INF).sum()) <= known.tail.count
        for power in (0.5, 1.0, 1.7):
            low, high = known.tail.bounds_at(power)
            assert low - 1e-9 <= float((power * others).logsumexp(-1)) <= high + 1e-9
