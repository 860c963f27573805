"""What the tables of a step say, read from the screen, against a computation from the logits in double precision."""

import math
from collections.abc import Sequence

import pytest
import torch
from minigen.cli.margin_words import MarginWords
from minigen.cli.step_tables import step_lines
from minigen.cli.tables import probability
from minigen.generation.params import SamplingParams
from minigen.generation.sampler import Sampler
from minigen.generation.trace import Draw, Inspection
from test_stage_tables import written

VOCAB = 300
SETTINGS = {"temperature": 1.4, "top_k": 40, "top_p": 0.9, "min_p": 0.02}


class Ids:
    def label(self, token_id: int) -> str:
        return f"t{token_id}"


def distribution(logits: Sequence[float]) -> list[float]:
    """The softmax; −inf is not a token."""
    most = max(logits)
    weights = [math.exp(logit - most) for logit in logits]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def ranked(probs: Sequence[float]) -> list[int]:
    return sorted(range(len(probs)), key=lambda i: (-probs[i], i))


def kept_by(name: str, probs: list[float]) -> set[int]:
    """The tokens that a filter leaves, by its definition."""
    order = [i for i in ranked(probs) if probs[i] > 0]
    if name == "top_k":
        return set(order[: SETTINGS["top_k"]])  # type: ignore[misc]  # a whole number
    if name == "min_p":
        return {i for i in order if probs[i] >= SETTINGS["min_p"] * probs[order[0]]}
    before = [math.fsum(probs[j] for j in order[:place]) for place in range(len(order))]
    return {i for i, mass in zip(order, before, strict=True) if mass < SETTINGS["top_p"]}


def expected_stages(logits: list[float], token_id: int) -> list[list[str]]:
    """The rows of the stage table, from the definitions of the filters."""
    probs, rows = distribution(logits), []
    stages = ["raw", *SETTINGS]
    for name in stages:
        removed = 0.0
        if name == "temperature":
            logits = [logit / SETTINGS["temperature"] for logit in logits]
        elif name != "raw":
            kept = kept_by(name, probs)
            removed = math.fsum(prob for i, prob in enumerate(probs) if i not in kept)
            logits = [logit if i in kept else -math.inf for i, logit in enumerate(logits)]
        probs = distribution(logits)
        entropy = -math.fsum(p * math.log2(p) for p in probs if p)
        cells = [str(sum(p > 0 for p in probs)), probability(removed), f"{entropy:.2f}", probability(probs[token_id])]
        rows.append([name, *cells, str(1 + ranked(probs).index(token_id))])
    return rows


def filtered(logits: list[float]) -> tuple[dict[str, set[int]], list[float]]:
    """What each filter leaves, and the distribution after the last."""
    probs = distribution([logit / SETTINGS["temperature"] for logit in logits])
    survivors = {}
    for name in [name for name in SETTINGS if name != "temperature"]:
        survivors[name] = kept_by(name, probs)
        total = math.fsum(prob for i, prob in enumerate(probs) if i in survivors[name])
        probs = [prob / total if i in survivors[name] else 0.0 for i, prob in enumerate(probs)]
    return survivors, probs


def inspected(seed: int) -> tuple[list[float], Draw]:
    row = torch.randn(VOCAB, generator=torch.Generator().manual_seed(seed)) * 2.5
    sampler = Sampler(SamplingParams(seed=seed, **SETTINGS), inspection=Inspection(num_candidates=10, has_stages=True))  # type: ignore[arg-type]  # numbers all
    return row.double().tolist(), sampler.draw(row)


def close(shown: str, expected: str) -> bool:
    """Whether two numbers of a table differ by their last digit at most, as single precision may have it."""
    if "<" in shown + expected or not shown.replace(".", "").isdigit():
        return shown == expected
    return (
        abs(float(shown) - float(expected))
        <= (0 if "." not in expected else 10.0 ** -len(expected.split(".")[1])) * 1.01
    )


@pytest.mark.parametrize("seed", range(8))
def test_each_number_of_the_stages_agrees_with_the_logits(seed: int) -> None:
    logits, draw = inspected(seed)
    lines = written(step_lines(1, draw, Ids(), MarginWords(VOCAB, SETTINGS), width=80))
    start = next(i for i, line in enumerate(lines) if line.startswith("stage")) + 1
    expected = expected_stages(logits, draw.token_id)
    shown = [line.split() for line in lines[start : start + len(expected)]]
    assert [len(row) for row in shown] == [len(row) for row in expected]
    for row, wanted in zip(shown, expected, strict=True):
        assert all(close(cell, want) for cell, want in zip(row, wanted, strict=True)), (row, wanted)


@pytest.mark.parametrize("seed", range(8))
def test_each_number_of_the_candidates_agrees_with_the_logits(seed: int) -> None:
    """STA-5, STA-6"""
    logits, draw = inspected(seed)
    raw, (survivors, final) = distribution(logits), filtered(logits)
    lines = written(step_lines(1, draw, Ids(), None, width=80))
    for line in lines[2:]:
        rank, label, token_id, logit, raw_p, final_p, *dropped = line.removeprefix(">").split()
        i = int(token_id)
        assert label == f"t{i}"
        assert int(rank) == 1 + ranked(raw).index(i)
        assert close(logit.lstrip("-"), f"{abs(logits[i]):.3f}")
        assert close(raw_p, probability(raw[i]))
        assert close(final_p, probability(final[i]))
        assert dropped == ([] if final[i] else [next(name for name, kept in survivors.items() if i not in kept)])
    assert math.fsum(raw[i] for i in ranked(raw)[:10]) <= 1


@pytest.mark.parametrize("seed", range(8))
def test_what_the_margins_say_is_true_of_the_sampler(seed: int) -> None:
    """A setting turned to a bound that is said, alone, still picks the token; so does one in the middle."""
    _, draw = inspected(seed)
    row = torch.randn(VOCAB, generator=torch.Generator().manual_seed(seed)) * 2.5
    words = MarginWords(VOCAB, SETTINGS)
    for name, margin in draw.margins.items():
        assert margin is not None
        text = words.say(name, margin.picked)
        for number in (float(word.rstrip(",")) for word in text.split() if word[0].isdigit()):
            if number not in margin.picked:  # an open end
                continue
            changed = SETTINGS | {name: int(number) if name == "top_k" else number}
            again = Sampler(SamplingParams(seed=seed, **changed)).draw(row)  # type: ignore[arg-type]  # numbers all
            assert again.token_id == draw.token_id, (name, text, number)
