"""SamplingParams: neutral defaults, and every wrong value refused by name."""

import copy
import dataclasses
import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from minigen.generation.errors import ParameterError
from minigen.generation.params import SamplingParams
from minigen.generation.ranges import MAX_SEED, RANGES

NAN, INF = math.nan, math.inf
WRONG: list[tuple[str, list[Any]]] = [
    ("temperature", [-1, 100.1, NAN, INF, -INF, "0.5", True, [1], b"1", bytearray(b"1"), np.bool_(True), 10**400]),
    ("top_k", [-1, 1.5, "3", False, NAN, torch.tensor(True), torch.tensor([1, 2])]),
    ("top_p", [0, -0.1, 1.1, NAN, INF]),
    ("min_p", [-0.1, 1.1, NAN]),
    ("typical_p", [0, 1.1, NAN]),
    ("repetition_penalty", [0, -1, 100.5, NAN, INF]),
    ("frequency_penalty", [-2.1, 2.1, NAN]),
    ("presence_penalty", [-2.1, 2.1, NAN]),
    ("no_repeat_ngram_size", [-1, 2.0]),
    ("max_new_tokens", [0, -1, 1.5, 1e9]),
    ("seed", [-1, MAX_SEED + 1, 18446744073709551616, 1.5, "abc"]),
    ("logit_bias", [{1: NAN}, {1: INF}, {-1: 1.0}, {"1": 1.0}, {1: True}, [1], "x", {1: 10**400}, {True: 1.0}]),
    ("stop", [[""], "", ["x"] * 65, [1], 5]),
    ("ignore_eos", [1, "true"]),
    ("end_token_ids", [[-1], [True], "5", 5, b"ab", [1.0], torch.ones(3, 3)]),
    ("allowed_token_ids", [[-1], [True], "5", 5, ["1"], {1: 2}]),
    ("bad_words", [["a", ""], ["x"] * 65, [1], 5, b"x"]),
    ("dry_sequence_breakers", [[""], ["x"] * 65, [None], {"a": 1}]),
    ("min_new_tokens", [-1, 1.5, True, INF]),
    ("top_n_sigma", [-0.1, 100.5, NAN, "1"]),
    ("dynatemp_range", [-0.1, NAN, INF]),
    ("dynatemp_exponent", [0, -1, 101, NAN]),
    ("epsilon_cutoff", [-0.1, 1.1, NAN]),
    ("eta_cutoff", [-0.1, 1.1, NAN]),
    ("xtc_probability", [-0.1, 1.1, NAN, True]),
    ("xtc_threshold", [-0.1, 1.1, NAN]),
    ("mirostat_tau", [-1, 101, NAN, INF]),
    ("mirostat_eta", [0, -0.1, 1.1, NAN]),
    ("dry_multiplier", [-1, 101, NAN]),
    ("dry_base", [0.5, 101, NAN]),
    ("dry_allowed_length", [0, -1, 1.5]),
    ("dry_range", [-1, 0.5]),
]


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG for value in values])
def test_a_wrong_value_is_refused_by_name(name: str, value: Any) -> None:
    """SMP-3, SMP-4, RNG-4, STP-5, R20"""
    if name == "stop" and value == "":
        value = [""]
    with pytest.raises(ParameterError, match=f"^{name} must be ") as caught:
        SamplingParams(**{name: value})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [name for name in RANGES if name != "num_samples"])
def test_the_ends_of_a_range_are_allowed(name: str) -> None:
    limits = RANGES[name]
    values = [limits.low] if not limits.is_low_open else []
    values += [limits.high] if limits.high is not None else []
    for value in values:
        assert getattr(SamplingParams(**{name: limits.kind(value)}), name) == value


def test_none_means_the_neutral_value() -> None:
    names = [name for name, _ in WRONG]
    assert SamplingParams(**dict.fromkeys(names)) == SamplingParams()


def test_zero_is_a_value_and_not_a_missing_one() -> None:
    """SMP-6"""
    assert SamplingParams(temperature=0).temperature == 0


@pytest.mark.parametrize("name", ["stop", "bad_words", "dry_sequence_breakers"])
def test_one_text_may_be_given_alone(name: str) -> None:
    assert getattr(SamplingParams(**{name: "END"}), name) == ("END",)


def test_breakers_may_be_none_at_all() -> None:
    assert SamplingParams().dry_sequence_breakers == ("\n", ":", '"', "*")
    assert SamplingParams(dry_sequence_breakers=[]).dry_sequence_breakers == ()


def test_a_message_says_what_would_be_right() -> None:
    with pytest.raises(ParameterError, match=r"^top_p must be above 0 and at most 1, not 2\.$"):
        SamplingParams(top_p=2)


def test_numbers_of_other_libraries_become_python_s_own() -> None:
    params = SamplingParams(
        temperature=np.float32(0.5),
        top_k=np.int64(3),
        logit_bias={np.int64(1): np.float32(2)},
        end_token_ids=[np.int64(7), torch.tensor(8)],  # type: ignore[list-item]  # a caller's slip
        seed=torch.tensor(4),
    )
    plain = SamplingParams(temperature=0.5, top_k=3, logit_bias={1: 2.0}, end_token_ids=[7, 8], seed=4)
    assert params == plain
    assert repr(params) == repr(plain)


def test_settings_can_be_copied_kept_and_hashed() -> None:
    params = SamplingParams(top_p=0.9, logit_bias={1: 2, 3: -INF}, stop=["a"], seed=4)
    for same in (copy.deepcopy(params), pickle.loads(pickle.dumps(params)), dataclasses.replace(params)):
        assert same == params
        assert hash(same) == hash(params)
    assert SamplingParams(**dataclasses.asdict(params)) == params
    assert len({params, SamplingParams(), SamplingParams()}) == 2


def test_a_long_wrong_value_is_cut_in_the_message() -> None:
    with pytest.raises(ParameterError) as caught:
        SamplingParams(stop=[1] * 5000)  # type: ignore[list-item]  # what is tested
    assert len(str(caught.value)) < 400
