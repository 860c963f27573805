"""Other engines' chains once more, in plain Python and its own float64: what `order` is held against.

Written from the engines' sources, without this project's filters: vLLM's PyTorch path, llama.cpp's `sampling.cpp` and
`llama-sampler.cpp`, and mlx-lm's `sample_utils.py`. Each takes logits and gives what is left of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from minigen.generation.params import SamplingParams
from minigen.generation.words import Words

CLOSE = 1e-5  # where two numbers lie so close, float32 may order them the other way
INF = math.inf


@dataclass
class Row:
    """The tokens that are left, in the order that the engine keeps them in, with their scores."""

    ids: list[int]
    scores: dict[int, float]
    is_close: bool = False  # a decision was too close to call in float32

    def keep(self, ids: Iterable[int]) -> None:
        wanted = set(ids)
        self.ids = [i for i in self.ids if i in wanted]

    def is_below(self, one: float, other: float) -> bool:
        self.is_close |= abs(one - other) < CLOSE
        return one < other

    def probs(self) -> dict[int, float]:
        highest = max(self.scores[i] for i in self.ids)
        weights = {i: math.exp(self.scores[i] - highest) for i in self.ids}
        whole = math.fsum(weights.values())
        return {i: weight / whole for i, weight in weights.items()}

    def entropy(self) -> float:
        return -math.fsum(p * math.log(p) for p in self.probs().values() if p > 0)

    def falling(self) -> None:
        self.ids.sort(key=lambda i: -self.scores[i])  # stable

    def cut(self, least: float) -> None:
        highest = max(self.scores[i] for i in self.ids)
        self.keep([i for i in self.ids if self.scores[i] == highest or not self.is_below(self.scores[i], least)])


def row_of(logits: Sequence[float]) -> Row:
    return Row(ids=[i for i, z in enumerate(logits) if z > -INF], scores=dict(enumerate(logits)))


def penalise(row: Row, counts: Counter[int], repetition: float, frequency: float, presence: float) -> None:
    for i, count in counts.items():
        z = row.scores[i]
        z = z * repetition if z < 0 else z / repetition
        row.scores[i] = z - count * frequency - presence


def argmax(row: Row) -> dict[int, float]:
    return {max(row.ids, key=lambda i: (row.scores[i], -i)): 1.0}


def drop_low_mass(row: Row, p: float) -> None:
    """The last of a stable ascending sort, without those whose running sum is at most 1 − p."""
    probs, running, kept = row.probs(), 0.0, []
    rising = sorted(sorted(row.ids), key=lambda i: row.scores[i])
    for i in rising:
        running += probs[i]
        if not row.is_below(running, 1 - p):
            kept.append(i)
    row.keep(kept or rising[-1:])


def vllm(
    logits: Sequence[float], prompt: list[int], output: list[int], s: SamplingParams, words: Words, **_: Any
) -> Row:
    row = row_of(logits)
    if s.allowed_token_ids:
        row.keep(s.allowed_token_ids)
    banned = {w[-1] for w in words.bad_word_ids if output[len(output) - len(w) + 1 :] == list(w[:-1])}
    banned |= set(words.end_token_ids) if len(output) < s.min_new_tokens else set()
    row.keep(set(row.ids) - banned)
    for i, bias in s.logit_bias.items():
        row.scores[i] += min(100, max(-100, bias))
    penalise(row, Counter(dict.fromkeys([*prompt, *output], 0)), s.repetition_penalty, 0, 0)
    penalise(row, Counter(output), 1, s.frequency_penalty, s.presence_penalty)
    if s.temperature == 0:
        row.keep(argmax(row))
        return row
    temperature = max(s.temperature, 0.01)
    row.scores = {i: z / temperature for i, z in row.scores.items()}
    if s.min_p:
        row.cut(max(row.scores[i] for i in row.ids) + math.log(s.min_p))
    if s.top_k:
        ranked = sorted((row.scores[i] for i in row.ids), reverse=True)
        row.keep([i for i in row.ids if row.scores[i] >= ranked[min(s.top_k, len(ranked)) - 1]])
    if s.top_p < 1:
        drop_low_mass(row, s.top_p)
    return row


def llama_cpp(
    logits: Sequence[float],
    prompt: list[int],
    output: list[int],
    s: SamplingParams,
    *,
    coin: float,
    limit: float,
    **_: Any,
) -> Row:
    row = row_of(logits)
    for i, bias in s.logit_bias.items():
        row.scores[i] += bias
    row.keep([i for i in row.ids if row.scores[i] > -INF])
    if s.mirostat_tau:
        _temperature(row, s.temperature, 0, 1)
        row.falling()
        probs = row.probs()
        row.keep([i for i in row.ids if not row.is_below(limit, -math.log2(probs[i]))] or row.ids[:1])
        return row
    window = [*prompt, *output][-64:]
    penalise(row, Counter(window), s.repetition_penalty, s.frequency_penalty, s.presence_penalty)
    _dry(row, [*prompt, *output], s)
    if s.top_n_sigma:
        left = [row.scores[i] for i in row.ids]
        mean = math.fsum(left) / len(left)
        sigma = math.sqrt(math.fsum((z - mean) ** 2 for z in left) / len(left))
        row.cut(max(left) - s.top_n_sigma * sigma)
    row.falling()
    if s.top_k:
        row.ids = row.ids[: s.top_k]
    _typical(row, s.typical_p)
    row.falling()
    if s.top_p < 1:
        probs, running, kept = row.probs(), 0.0, []
        for i in row.ids:
            kept.append(i)
            running += probs[i]
            if not row.is_below(running, s.top_p):
                break
        row.keep(kept)
    if s.min_p:
        row.cut(row.scores[row.ids[0]] + math.log(s.min_p))
    if coin < s.xtc_probability and s.xtc_threshold <= 0.5:
        probs = row.probs()
        likely = [i for i in row.ids if not row.is_below(probs[i], s.xtc_threshold)]
        row.ids = row.ids[max(len(likely) - 1, 0) :]
    _temperature(row, s.temperature, s.dynatemp_range, s.dynatemp_exponent)
    return row


def _typical(row: Row, mass: float) -> None:
    if mass >= 1:
        return
    probs, entropy = row.probs(), row.entropy()
    shifted = {i: abs(-math.log(probs[i]) - entropy) for i in row.ids}
    ranked = sorted(row.ids, key=lambda i: shifted[i])
    for one, other in pairwise(ranked):
        row.is_close |= row.scores[one] != row.scores[other] and shifted[other] - shifted[one] < CLOSE
    running, kept = 0.0, []
    for i in ranked:
        kept.append(i)
        running += probs[i]
        if row.is_below(mass, running):
            break
    row.keep(kept)


def _temperature(row: Row, temperature: float, spread: float, exponent: float) -> None:
    if spread > 0:
        if len(row.ids) < 2:
            return
        low, high = max(0.0, temperature - spread), temperature + spread
        temperature = low + (high - low) * (row.entropy() / math.log(len(row.ids))) ** exponent
        row.is_below(temperature, 0)
    if temperature <= 0:
        row.keep(argmax(row))
    else:
        row.scores = {i: z / temperature for i, z in row.scores.items()}


def _dry(row: Row, seen: list[int], s: SamplingParams) -> None:
    """No breakers: for each earlier place, the longest run that ends there and also ends the text."""
    longest: dict[int, int] = {}
    for place in range(len(seen) - 1):
        length = 0
        while length <= place and seen[place - length] == seen[-1 - length]:
            length += 1
        if length >= s.dry_allowed_length:
            longest[seen[place + 1]] = max(length, longest.get(seen[place + 1], 0))
    for i, length in longest.items():
        row.scores[i] -= s.dry_multiplier * s.dry_base ** (length - s.dry_allowed_length)


def mlx(
    logits: Sequence[float],
    prompt: list[int],
    output: list[int],
    s: SamplingParams,
    words: Words,
    *,
    coin: float,
    **_: Any,
) -> Row:
    row = row_of(logits)
    for i, bias in s.logit_bias.items():
        row.scores[i] += bias
    row.keep([i for i in row.ids if row.scores[i] > -INF])
    window = [*prompt[-1:], *output][-20:]
    penalise(row, Counter(window), s.repetition_penalty, s.frequency_penalty, s.presence_penalty)
    if s.temperature == 0:
        row.keep(argmax(row))
        return row
    if s.top_p < 1:
        drop_low_mass(row, s.top_p)
    if s.min_p:
        row.cut(max(row.scores[i] for i in row.ids) + math.log(s.min_p))
    if coin < s.xtc_probability:
        probs = row.probs()
        likely = [probs[i] for i in row.ids if row.is_below(s.xtc_threshold, probs[i])]
        spared = {*words.newline_ids, *words.end_token_ids}
        row.keep([i for i in row.ids if not likely or probs[i] <= min(likely) + 1e-12 or i in spared])
    if s.top_k:
        row.keep(sorted(row.ids, key=lambda i: (-row.scores[i], i))[: s.top_k])
    row.scores = {i: z / s.temperature for i, z in row.scores.items()}
    return row
