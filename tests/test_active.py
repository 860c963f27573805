"""The line that names what shapes a run's tables."""

import math

import pytest
from minigen.cli.active import COMPANIONS, active_text
from minigen.generation.params import SamplingParams


@pytest.mark.parametrize(
    ("params", "line"),
    [
        (SamplingParams(), "no filters · seed 3"),
        (SamplingParams(temperature=0.8, top_p=0.95), "temperature 0.8 · top_p 0.95 · seed 3"),
        (SamplingParams(temperature=0, top_k=5), "no filters · greedy"),
        (SamplingParams(xtc_probability=0.5), "xtc_probability 0.5 (threshold 0.1) · seed 3"),
        (SamplingParams(mirostat_tau=5, mirostat_eta=0.2), "mirostat_tau 5.0 (eta 0.2) · seed 3"),
        (
            SamplingParams(temperature=0.8, dynatemp_range=0.5),
            "dynatemp_range 0.5 (temperature 0.8, exponent 1.0) · seed 3",
        ),
        (
            SamplingParams(dry_multiplier=0.8, temperature=0, dry_sequence_breakers=["\n", "*"]),
            r"dry_multiplier 0.8 (base 1.75, allowed_length 2, range all, sequence_breakers '\n' '*') · greedy",
        ),
        (
            SamplingParams(dry_multiplier=0.8, dry_range=64, dry_sequence_breakers=[]),
            "dry_multiplier 0.8 (base 1.75, allowed_length 2, range 64, sequence_breakers none) · seed 3",
        ),
        (
            SamplingParams(logit_bias={5: -math.inf, 7: 2}, bad_words=["a", "\x1b[2J"], min_new_tokens=4),
            r"logit_bias 5=-inf 7=2 · bad_words 'a' '\x1b[2J' · min_new_tokens 4 · seed 3",
        ),
        (SamplingParams(allowed_token_ids=range(10)), "allowed_token_ids 0 1 2 3 4 5 6 7 … (10) · seed 3"),
    ],
)
def test_the_line_names_each_stage_with_what_it_works_by(params: SamplingParams, line: str) -> None:
    assert active_text(params, 3) == line


def test_companions_are_settings() -> None:
    for name, others in COMPANIONS.items():
        assert {name, *others} <= set(SamplingParams.__dataclass_fields__)
