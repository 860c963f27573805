"""The default model: greedy text equals `model.generate`, and sampled text the plain loop's."""

from typing import Any

import pytest
import torch
from minigen.generation.engine import Engine
from minigen.generation.model import Model
from minigen.generation.params import SamplingParams
from minigen.generation.prompt import Prompt, encode_chat, encode_raw
from minigen.generation.simple import simple_generate

pytestmark = pytest.mark.real_model
CLOSE = 1e-4
PROMPTS = [
    "The capital of France is",
    "def fibonacci(n):\n",
    "Once upon a time, in a village by the sea,",
    "Explain KV cache in LLM inference.",
    "List three prime numbers: ",
    "Der schnelle braune Fuchs",
    "今日は天気が",
    "Q: What is 2 + 2?\nA:",
    "The meaning of life 🙂 is",
    "import numpy as np\n\nx = ",
]


def run(model: Model, prompt: Prompt, params: SamplingParams) -> tuple[list[int], str]:
    engine = Engine(model)
    engine.add_request(prompt, params)
    ids, text = [], ""
    while engine.has_unfinished_requests():
        for output in engine.step():
            assert output.error is None
            ids.append(output.token_id)
            text += output.text
    return ids, text


def generated(model: Model, ids: tuple[int, ...], count: int) -> list[int]:
    from transformers import GenerationConfig

    row = torch.tensor([ids])
    config = GenerationConfig(
        do_sample=False, max_new_tokens=count, eos_token_id=list(model.end_token_ids), pad_token_id=0
    )
    found: Any = model.network.generate(row, attention_mask=torch.ones_like(row), generation_config=config)
    return found[0, len(ids) :].tolist()


@pytest.mark.parametrize(("text", "mode"), list(zip(PROMPTS, ["raw", "chat"] * 5, strict=True)))
def test_greedy_ids_equal_generate_s(default_model: Model, text: str, mode: str) -> None:
    tokenizer = default_model.tokenizer
    prompt = (
        encode_raw(tokenizer, text) if mode == "raw" else encode_chat(tokenizer, [{"role": "user", "content": text}])
    )
    ours, _ = run(default_model, prompt, SamplingParams(temperature=0, max_new_tokens=64))
    theirs = generated(default_model, prompt.ids, 64)
    if ours != theirs:  # allowed only where the two best logits are as good as equal
        place = next(i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b)
        logits = default_model.network(torch.tensor([[*prompt.ids, *theirs[:place]]])).logits[0, -1]
        best = logits.topk(2).values
        assert best[0] - best[1] < CLOSE, f"token {place} differs by {best[0] - best[1]:.2g}"
        pytest.skip(f"counted: token {place} differs where the two best logits lie within {CLOSE}")


@pytest.mark.parametrize("seed", [1, 2])
def test_sampled_text_equals_the_plain_loop_s(default_model: Model, seed: int) -> None:
    params = SamplingParams(temperature=0.8, top_k=50, top_p=0.95, repetition_penalty=1.1, seed=seed, max_new_tokens=24)
    prompt = "A key-value cache is"
    _, text = run(default_model, encode_raw(default_model.tokenizer, prompt), params)
    plain = simple_generate(default_model.network, default_model.tokenizer, prompt, sampling_params=params)
    assert text == plain


def test_a_chat_prompt_has_the_template_s_turns_and_no_second_start(default_model: Model) -> None:
    """CHT-1"""
    ids = encode_chat(default_model.tokenizer, [{"role": "user", "content": "hi"}]).ids
    text = default_model.tokenizer.decode(list(ids))
    assert text.startswith("<|im_start|>system\n")
    assert text.endswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")
    assert text.count("<|im_start|>") == 3
