"""DRY: llama.cpp's own numbers, the definition written out, breakers, and cost."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import minigen.generation as f
import pytest
import torch
from hypothesis import given, settings, strategies as st
from minigen.generation.errors import ParameterError

Breakers = Mapping[int, Sequence[Sequence[int]]]


@pytest.mark.parametrize(
    ("vocab", "context", "multiplier", "allowed", "breakers", "expected"),
    [
        (4, [0, 1], 1.0, 2, {}, [0.25] * 4),
        (4, [0, 1, 2, 0, 1], 1.0, 2, {}, [0.296923, 0.296923, 0.109232, 0.296923]),
        (5, [0, 1, 3, 4, 0, 1], 1.0, 2, {3: [()]}, [0.2] * 5),
        (5, [0, 1, 2, 0, 1], 2.0, 2, {}, [0.241818, 0.241818, 0.032727, 0.241818, 0.241818]),
        (5, [0, 1, 2, 3, 4, 0, 1], 1.0, 4, {}, [0.2] * 5),
    ],
)
def test_llama_cpp_s_own_numbers(
    vocab: int, context: list[int], multiplier: float, allowed: int, breakers: Breakers, expected: list[float]
) -> None:
    row = f.apply_dry(torch.zeros(vocab), context, multiplier, base=1.1, allowed_length=allowed, breakers=breakers)
    assert row.softmax(-1).tolist() == pytest.approx(expected, abs=1e-5)


def written_out(ids: list[int], allowed: int, breakers: Breakers) -> dict[int, int]:
    """Give each penalised token's K, straight from the definition."""
    reach = len(ids)
    for start in range(len(ids) - 1, -1, -1):
        tails = [tail for tail in breakers.get(ids[start], ()) if ids[start + 1 : start + 1 + len(tail)] == list(tail)]
        if tails:
            reach = len(ids) - 1 - start - max(map(len, tails))
            break
    if len(ids) <= allowed or reach < allowed:
        return {}
    found: dict[int, int] = {}
    for end in range(len(ids) - 1):  # a run that ends here, before the next token
        run = 0
        while run <= end and ids[end - run] == ids[len(ids) - 1 - run]:
            run += 1
        if run >= allowed:
            follower = ids[end + 1]
            found[follower] = max(found.get(follower, 0), min(run, reach))
    return {token: run for token, run in found.items() if () not in map(tuple, breakers.get(token, ()))}


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(0, 3), max_size=40),
    st.integers(1, 4),
    st.dictionaries(
        st.integers(0, 3), st.lists(st.lists(st.integers(0, 3), max_size=2), min_size=1, max_size=2), max_size=2
    ),
)
def test_the_penalty_is_its_definition(ids: list[int], allowed: int, breakers: dict[int, list[list[int]]]) -> None:
    row = f.apply_dry(torch.zeros(4), ids, 0.5, base=1.5, allowed_length=allowed, breakers=breakers)
    expected = [0.0] * 4
    for token, run in written_out(ids, allowed, breakers).items():
        expected[token] = -0.5 * 1.5 ** (run - allowed)
    assert row.tolist() == pytest.approx(expected)


def test_the_longest_run_counts_once() -> None:
    ids = [5, 1, 2, 9, 1, 2, 9, 5, 1, 2]  # 9 follows "1 2" twice, once after 5
    row = f.apply_dry(torch.zeros(10), ids, 1.0, base=2.0)
    assert row.tolist() == [0.0] * 9 + [-2.0]  # K = 3, one more than is allowed


def test_a_breaker_of_several_tokens_breaks_only_as_a_whole() -> None:
    ids = [1, 2, 7, 8, 3, 1, 2]
    plain = f.apply_dry(torch.zeros(9), ids, 1.0).tolist()
    assert plain[7] == -1.0
    assert f.apply_dry(torch.zeros(9), ids, 1.0, breakers={1: [(2, 7)]}).tolist() == plain, "not at the end"
    assert f.apply_dry(torch.zeros(9), ids, 1.0, breakers={3: [(1,)]}).tolist() == [0.0] * 9, "one token after it"


def test_a_whole_breaker_is_never_penalised() -> None:
    ids = [1, 2, 7, 1, 2]
    assert f.apply_dry(torch.zeros(9), ids, 1.0, breakers={7: [()]}).tolist() == [0.0] * 9
    assert f.apply_dry(torch.zeros(9), ids, 1.0, breakers={7: [(3,)]}).tolist()[7] == -1.0


def test_a_long_repetition_lowers_and_never_bans() -> None:
    """A power is capped where float32 ends, so the score stays a number and another stage can still weigh it."""
    row = f.apply_dry(torch.zeros(3), [1] * 3000, 100.0, base=1.75)
    assert row[1] == torch.finfo(torch.float32).min
    assert f.apply_dry(torch.zeros(3), [1] * 3000, 1.0, base=1.0).tolist() == [0.0, -1.0, 0.0]
    alone = f.apply_dry(torch.tensor([-math.inf, 0.0]), [1] * 3000, 100.0)
    assert f.apply_temperature(alone, 0.5).softmax(-1).tolist() == [0.0, 1.0]
    assert f.apply_dry(torch.tensor([0.0, -math.inf]), [1] * 9, 1.0)[1] == -math.inf


def test_every_row_is_lowered_alike_and_ids_may_be_a_tensor() -> None:
    ids, rows = [1, 2, 3, 1, 2], torch.randn(2, 2, 5, generator=torch.Generator().manual_seed(1))
    lowered = f.apply_dry(rows, torch.tensor(ids), 1.0)
    assert (lowered - rows).flatten(0, 1).tolist() == [[0.0, 0.0, 0.0, pytest.approx(-1.0), 0.0]] * 4


@pytest.mark.parametrize("multiplier", [0.0, None])
def test_neutral_values_change_nothing_bit_for_bit(multiplier: float | None) -> None:
    row = torch.zeros(4)
    assert f.apply_dry(row, [1, 2, 1, 2], multiplier) is row


@pytest.mark.parametrize("wrong", [{"multiplier": -1.0}, {"multiplier": 1.0, "base": 0.5}])
def test_a_value_out_of_range_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ParameterError):
        f.apply_dry(torch.zeros(4), [1, 2, 1, 2], **wrong)


@pytest.mark.parametrize("ids", [[7] * 4000, [*range(50)] * 80, [i * i % 97 for i in range(4000)]])
def test_the_work_grows_with_the_context_and_not_with_its_square(ids: list[int]) -> None:
    """Ids that count how often they are compared: a few times each, however much is repeated."""
    compared = Counter[str]()

    class Counted(int):
        __hash__ = int.__hash__

        def __eq__(self, other: object) -> bool:
            compared["times"] += 1
            return int(self) == other

    f.apply_dry(torch.zeros(100), [Counted(i) for i in ids], 1.0)
    assert compared["times"] < 10 * len(ids)
