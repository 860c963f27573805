"""What a request may be made of, and how one that fails says so."""

from typing import Any

import numpy as np
import pytest
import torch
from minigen.generation.engine import Engine
from minigen.generation.errors import ParameterError
from minigen.generation.model import Model
from minigen.generation.params import SamplingParams
from minigen.generation.prompt import Prompt
from minigen.generation.trace import Output
from stubs import ScriptedModel, byte_tokenizer

END = 257
GREEDY = SamplingParams(temperature=0)


def engine_for(script: list[Any], tokenizer: Any = None) -> Engine:
    return Engine(Model.wrap(ScriptedModel(script, eos_token_id=END), tokenizer or byte_tokenizer()))


def outputs_of(engine: Engine) -> list[Output]:
    outputs = []
    while engine.has_unfinished_requests():
        outputs += engine.step()
    return outputs


@pytest.mark.parametrize(
    "prompt", [np.array([5, 6]), torch.tensor([5, 6]), (5, np.int64(6)), range(5, 7), iter([5, 6]), Prompt((5, 6), ())]
)
def test_ids_may_come_from_any_library(prompt: Any) -> None:
    engine = engine_for([104, END])
    engine.add_request(prompt, GREEDY)
    assert [output.text for output in outputs_of(engine)] == ["h", ""]
    assert engine.model.network.seen[0] == [5, 6]


@pytest.mark.parametrize(
    "prompt",
    [[5.0], [True], ["a"], [None], [[5, 6]], torch.tensor([[5, 6]]), b"ab", 5, None, {5: 1}, Prompt((-1,), ())],
)
def test_a_prompt_of_anything_else_is_refused(prompt: Any) -> None:
    engine = engine_for([])
    with pytest.raises(ParameterError, match=r"^prompt must be "):
        engine.add_request(prompt, GREEDY)
    assert not engine.has_unfinished_requests()


@pytest.mark.parametrize("error", [AssertionError(), RuntimeError("one.\ntwo"), KeyError("k")])
def test_a_failure_is_told_in_one_sentence(error: Exception) -> None:
    engine = engine_for([error])
    engine.add_request("p", GREEDY)
    message = str(outputs_of(engine)[-1].error)
    assert message.startswith(f"The model failed at token 1: {type(error).__name__}")
    assert message.endswith(".")
    assert "\n" not in message
    assert ".." not in message


class FailingTokenizer:
    """One character per id; it cannot write the letter b."""

    def encode(self, text: str, **_: Any) -> list[int]:
        return [ord(char) for char in text]

    def decode(self, ids: list[int], **_: Any) -> str:
        if 98 in ids:
            raise RuntimeError("no such id")
        return "".join(map(chr, ids))

    def __len__(self) -> int:
        return 300


def test_a_tokenizer_that_fails_fails_its_own_request_alone() -> None:
    """BAT-4: at the end it was asked for the held text once more, and failed the whole run."""
    engine = engine_for([97, 98, 99, END], FailingTokenizer())
    first, second = engine.add_request("p", GREEDY), engine.add_request("q", GREEDY)
    outputs = outputs_of(engine)
    ends = {output.request_id: output.finish_reason for output in outputs if output.finish_reason}
    assert ends == {first: "error", second: "stop"}
    assert "".join(output.text for output in outputs) == "ac"
