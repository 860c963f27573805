"""Traces made up for the report's tests, from random logits and plain arithmetic in double precision."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minigen.cli.trace_file import Trace, TracedSample, TraceHeader, packed
from minigen.generation.trace import Leading

VOCAB = 40
SETTINGS: dict[str, Any] = {
    "temperature": (0.8, "flag --temperature"),
    "top_k": (20, "preset smollm2 (smollm2.yaml:20)"),
    "top_p": (0.95, "generation_config"),
    "min_p": (0.0, "built-in"),
    "logit_bias": ({"7": -1.5}, "flag --logit-bias"),
    "stop": (["\n\n", "<b>"], "flag --stop"),
    "ignore_eos": (False, "built-in"),
    "seed": (7, "chosen for this run"),
}
BITS = 1 / math.log(2)


def shares(logits: Mapping[int, float]) -> dict[int, float]:
    """The softmax of logits, by id."""
    most = max(logits.values())
    weights = {token_id: math.exp(logit - most) for token_id, logit in logits.items()}
    total = math.fsum(weights.values())
    return {token_id: weight / total for token_id, weight in weights.items()}


def ranked(probs: Mapping[int, float]) -> list[int]:
    """Ids by falling probability, ties by id."""
    return sorted(probs, key=lambda token_id: (-probs[token_id], token_id))


def entropy(probs: Mapping[int, float]) -> float:
    """In bits."""
    return math.fsum(-p * math.log2(p) for p in probs.values() if p > 0)


@dataclass
class Step:
    """A step's logits and what a chain of temperature, top_k and top_p makes of them."""

    token_id: int
    logits: dict[int, float]
    u: float
    names: Mapping[int, str]
    rows: list[tuple[str, dict[int, float]]] = field(init=False)  # probabilities after each stage

    def __post_init__(self) -> None:
        raw = shares(self.logits)
        warm = shares({token_id: logit / 0.8 for token_id, logit in self.logits.items()})
        kept = {token_id: warm[token_id] for token_id in ranked(warm)[:20]}
        kept = {token_id: p / math.fsum(kept.values()) for token_id, p in kept.items()}
        nucleus, mass = [], 0.0
        for token_id in ranked(kept):
            if mass >= 0.95:
                break
            nucleus.append(token_id)
            mass += kept[token_id]
        final = {token_id: kept[token_id] / mass for token_id in nucleus}
        self.rows = [("raw", raw), ("temperature", warm), ("top_k", kept), ("top_p", final)]

    def dropped_by(self, token_id: int) -> str | None:
        """The first stage that dropped a token."""
        return next((name for name, probs in self.rows if token_id not in probs), None)

    def record(self, index: int, text: str, *, is_special: bool) -> dict[str, Any]:
        """The step as a trace has it, with the ten likeliest candidates."""
        raw, final = self.rows[0][1], self.rows[-1][1]
        ids = ranked(raw)[:10]
        ids += [] if self.token_id in ids else [self.token_id]
        return {
            "index": index,
            "id": self.token_id,
            "text": text,
            "token": self.names[self.token_id],
            "logit": self.logits[self.token_id],
            "logprob": math.log(raw[self.token_id]),
            "rank": ranked(raw).index(self.token_id) + 1,
            "entropy": entropy(raw),
            "final_prob": final[self.token_id],
            "u": self.u,
            "candidates": [
                {
                    "id": one,
                    "text": self.names[one],
                    "logit": self.logits[one],
                    "logprob": math.log(raw[one]),
                    "final_prob": final.get(one, 0.0),
                    "dropped_by": self.dropped_by(one),
                }
                for one in ids
            ],
            "stages": self._stages(),
            "margins": self._margins(),
            "special": is_special,
        }

    def _stages(self) -> list[dict[str, Any]]:
        stages, before = [], self.rows[0][1]
        for name, probs in self.rows:
            removed = math.fsum(p for token_id, p in before.items() if token_id not in probs)
            rank = ranked(probs).index(self.token_id) + 1
            numbers = {"entropy": entropy(probs), "prob": probs[self.token_id], "rank": rank}
            stages.append({"name": name, "tokens_left": len(probs), "mass_removed": removed, **numbers})
            before = probs
        return stages

    def _margins(self) -> dict[str, Any]:
        rank = ranked(self.rows[0][1]).index(self.token_id) + 1
        return {
            "temperature": {"allowed": interval(0, 100), "picked": interval(0.25 + self.u / 2, 1.5, "]")},
            "top_k": {"allowed": interval(rank, len(self.names)), "picked": interval(rank, len(self.names))},
            "top_p": {"allowed": interval(self.u, 1, "]"), "picked": interval(self.u, 0.96, "")},
            "min_p": None,
        }


def interval(low: float, high: float, closed: str = "[]") -> dict[str, Any]:
    """The JSON of an interval."""
    return {"low": low, "high": high, "low_closed": "[" in closed, "high_closed": "]" in closed}


def traced(
    tokens: Sequence[str],
    *,
    texts: Sequence[str] | None = None,
    special: Sequence[str] = (),
    prompt: str = "Say something.",
    model: str = "Tiny-1K",
    num_samples: int = 1,
    seed: int = 0,
) -> Trace:
    """A trace whose samples wrote these tokens.

    texts: what each made safe to show, where that is not its own text.
    """
    names = dict(enumerate([*dict.fromkeys(tokens), *(f" filler{i}" for i in range(VOCAB))]))
    ids = {name: token_id for token_id, name in names.items()}
    released = ["" if token in special else token for token in tokens] if texts is None else texts
    samples = []
    for index in range(num_samples):
        chance = random.Random(seed + index)
        sample = TracedSample(index=index, seed=7 + index)
        for place, (token, text) in enumerate(zip(tokens, released, strict=True)):
            step = _step(ids[token], names, chance)
            sample.tokens.append(step.record(place, text, is_special=token in special))
            leading = ranked(step.logits)
            sample.leading.append(
                Leading(
                    token_ids=leading,
                    logits=[step.logits[one] for one in leading],
                    num_others=0,
                    others_logsumexp=-math.inf,
                    deviation=1.0,
                )
            )
        sample.document = _document(index, "".join(released), len(tokens), prompt, model)
        samples.append(sample)
    header = TraceHeader(
        version=1,
        minigen="0.1.0",
        width=max(VOCAB, len(names)),
        vocab_size=len(names),
        model=model,
        preset="smollm2",
        prompt=prompt,
        settings=settings(),
        prompt_ids=[1, 2, 3],
        end_token_ids=[0],
        bad_word_ids=[],
        dry_breaker_ids={},
    )
    return Trace(name="made up", header=header, samples=samples, texts=names, is_complete=True)


def settings() -> dict[str, Any]:
    """The settings of every trace made here, as in a document."""
    return {name: {"value": value, "origin": origin} for name, (value, origin) in SETTINGS.items()}


def _step(token_id: int, names: Mapping[int, str], chance: random.Random) -> Step:
    """A step that could have chosen this token: its logit is one of the five highest, as far as top_p keeps that."""
    others = chance.sample(sorted(names), min(VOCAB, len(names)))
    logits = {one: chance.gauss(0, 3) for one in {token_id, *others}}
    for place in range(chance.randrange(5), -1, -1):
        holder = ranked(logits)[place]
        logits[token_id], logits[holder] = logits[holder], logits[token_id]
        step = Step(token_id, logits, 0.0, names)
        if step.dropped_by(token_id) is None:
            break
    final = step.rows[-1][1]
    before = math.fsum(final[one] for one in ranked(final)[: ranked(final).index(token_id)])
    step.u = before + final[token_id] * chance.random()
    return step


def _document(index: int, text: str, num_tokens: int, prompt: str, model: str) -> dict[str, Any]:
    return {
        "schema": 1,
        "sample": index,
        "model": model,
        "preset": "smollm2",
        "prompt": prompt,
        "text": text,
        "finish_reason": "length",
        "stop": None,
        "seed": 7 + index,
        "settings": settings(),
        "usage": {"prompt_tokens": 3, "completion_tokens": num_tokens, "total_tokens": 3 + num_tokens},
        "timing": {
            "load_seconds": 1.0,
            "first_token_seconds": 0.25,
            "prefill_tokens_per_second": 12.0,
            "decode_tokens_per_second": 34.56,
            "total_seconds": 2.5,
        },
        "memory": {"peak_bytes": None},
        "margins": {
            "temperature": interval(0.7, 0.9, "["),
            "top_k": interval(5, 2**24),
            "top_p": interval(0.5, 0.96, "]"),
            "min_p": None,
        },
    }


def write_trace(trace: Trace, path: Path, *, is_cut: bool = False) -> Path:
    """Write a trace as a file; a cut one lacks its last document."""
    header = trace.header
    lines: list[dict[str, Any]] = [
        {"event": "trace", **{name: getattr(header, name) for name in TraceHeader.__dataclass_fields__}}
    ]
    for sample in trace.samples:
        lines.append({"event": "sample", "sample": sample.index, "seed": sample.seed})
        for token, leading in zip(sample.tokens, sample.leading, strict=True):
            lines.append({"event": "token", "sample": sample.index, **token, "leading": packed(leading)})
        lines.append({"event": "done", **(sample.document or {})})
    text = "".join(json.dumps(line) + "\n" for line in (lines[:-1] if is_cut else lines))
    path.write_text(text, "utf-8")
    return path
