"""transformers itself as the oracle: greedy text, caches and windows, on tiny random models of several families."""

from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from minigen.generation.cache import SlotLayer
from minigen.generation.engine import Engine
from minigen.generation.model import Model
from minigen.generation.params import SamplingParams
from minigen.generation.ranges import MAX_SEED
from minigen.generation.runner import Runner
from minigen.generation.simple import greedy_generate, simple_generate
from minigen.generation.trace import Inspection
from stubs import byte_tokenizer, tiny_model

KINDS = ["llama", "gpt2", "qwen2", "mistral", "gemma"]
CLOSE = 1e-4  # two best logits nearer than this may change places with the order of a sum


def greedy_ids(model: Any, prompt: list[int], count: int, end_ids: list[int] | None = None) -> list[int]:
    engine = Engine(Model.wrap(model, byte_tokenizer()))
    params = SamplingParams(
        temperature=0, max_new_tokens=count, ignore_eos=end_ids is None, end_token_ids=end_ids or ()
    )
    engine.add_request(prompt, params)
    ids = []
    while engine.has_unfinished_requests():
        ids += [output.token_id for output in engine.step() if output.token_id is not None]
    return ids


def generated_ids(model: Any, prompt: list[int], count: int, end_ids: list[int] | None = None) -> list[int]:
    model.generation_config.eos_token_id = end_ids
    model.generation_config.bos_token_id = None
    row = torch.tensor([prompt])
    mask = torch.ones_like(row)
    found = model.generate(row, attention_mask=mask, do_sample=False, max_new_tokens=count, pad_token_id=0)
    return found[0, len(prompt) :].tolist()


def first_difference(model: Any, prompt: list[int], ours: list[int], theirs: list[int]) -> float | None:
    """Give the gap between the two best logits where the texts part, or None where they do not."""
    if ours == theirs:
        return None
    place = next(i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b)
    logits = model(torch.tensor([prompt + theirs[:place]])).logits[0, -1]
    best = logits.topk(2).values
    return float(best[0] - best[1])


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_ids_equal_generate_s(kind: str) -> None:
    """R1, CTX-6: a window of eight keys among them."""
    model = tiny_model(kind, vocab_size=300)
    generator = torch.Generator().manual_seed(1)
    for length in (1, 2, 5, 9, 20, 40):
        prompt = torch.randint(3, 300, (length,), generator=generator).tolist()
        ours, theirs = greedy_ids(model, prompt, 64), generated_ids(model, prompt, 64)
        gap = first_difference(model, prompt, ours, theirs)
        assert gap is None or gap < CLOSE, (kind, length, gap)


@pytest.mark.parametrize("kind", KINDS)
def test_end_ids_end_where_generate_ends(kind: str) -> None:
    model = tiny_model(kind, vocab_size=300, eos_token_id=None)
    prompt = [5, 6, 7]
    free = generated_ids(model, prompt, 30)
    end_ids = [free[10], free[20]]
    assert greedy_ids(model, prompt, 30, end_ids) == generated_ids(model, prompt, 30, end_ids)


@pytest.mark.parametrize("kind", KINDS)
def test_a_token_at_a_time_equals_one_pass(kind: str) -> None:
    """CTX-6, BAT-1"""
    model = tiny_model(kind, vocab_size=300)
    runner = Runner(model)
    ids = torch.randint(3, 300, (40,), generator=torch.Generator().manual_seed(2)).tolist()
    whole = model(torch.tensor([ids])).logits[0]
    slot = runner.new_slot(40)
    steps = [runner.rows(ids[:13], 0, slot, 1)]
    steps += [runner.rows([token_id], 13 + i, slot, 1) for i, token_id in enumerate(ids[13:])]
    torch.testing.assert_close(torch.cat(steps), whole[12:], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunk", [1, 3, 7, 64])
def test_chunks_of_the_prefill_change_nothing(kind: str, chunk: int) -> None:
    model = tiny_model(kind, vocab_size=300)
    runner = Runner(model)
    ids = torch.randint(3, 300, (40,), generator=torch.Generator().manual_seed(3)).tolist()
    slot = runner.new_slot(None)
    assert runner.takes_parts(slot)
    for first in range(0, 40, chunk):
        logits = runner.rows(ids[first : first + chunk], first, slot, 1)
    torch.testing.assert_close(logits[0], model(torch.tensor([ids])).logits[0, -1], rtol=1e-4, atol=1e-4)


def test_a_model_with_another_kind_of_cache_runs_too() -> None:
    """Linear-attention layers keep the library's own cache."""
    import transformers as tf

    torch.manual_seed(0)
    shape = {"vocab_size": 300, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3}
    kinds = ["conv", "full_attention", "conv"]
    config = tf.Lfm2Config(**shape, num_attention_heads=4, num_key_value_heads=2, layer_types=kinds)
    model = tf.Lfm2ForCausalLM(config).eval()
    assert greedy_ids(model, [5, 6, 7, 8], 20) == generated_ids(model, [5, 6, 7, 8], 20)


def odd_model(kind: str) -> Any:
    """A model whose past is not a row of keys and values: a state space, a hybrid, another kind of cache, or none."""
    import transformers as tf

    torch.manual_seed(0)
    shape: dict[str, Any] = {"vocab_size": 300, "hidden_size": 32, "num_hidden_layers": 2, "initializer_range": 0.5}
    heads = {"intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2}
    if kind == "mamba":
        return tf.MambaForCausalLM(tf.MambaConfig(**shape, state_size=8)).eval()
    if kind == "jamba":
        layers = {"attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 2, "mamba_d_state": 8}
        config = tf.JambaConfig(**shape, **heads, **layers, mamba_dt_rank=4, use_mamba_kernels=False)
        return tf.JambaForCausalLM(config).eval()
    if kind == "minimax":
        kinds = {"layer_types": ["linear_attention", "full_attention"], "num_local_experts": 2, "head_dim": 8}
        return tf.MiniMaxForCausalLM(tf.MiniMaxConfig(**shape, **heads, **kinds, block_size=8)).eval()
    if kind == "rwkv":
        shape.pop("initializer_range")
        return tf.RwkvForCausalLM(tf.RwkvConfig(**shape, attention_hidden_size=32)).eval()
    gpt: dict[str, Any] = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}
    return tf.OpenAIGPTLMHeadModel(tf.OpenAIGPTConfig(vocab_size=300, initializer_range=0.5, **gpt)).eval()


@pytest.mark.parametrize("kind", ["mamba", "jamba", "minimax", "rwkv", "openai-gpt"])
def test_a_model_with_another_kind_of_past_gives_the_logits_of_one_pass(kind: str) -> None:
    """A prompt of several chunks and then single tokens: a state may not take chunks, and a model may have no cache."""
    model = odd_model(kind)
    runner = Runner(model)
    ids = torch.randint(3, 300, (24,), generator=torch.Generator().manual_seed(2)).tolist()
    with torch.no_grad():
        whole = model(torch.tensor([ids])).logits[0]
    slot = runner.new_slot(24)
    if runner.takes_parts(slot):
        runner.rows(ids[:5], 0, slot, 1)
        steps = [runner.rows(ids[5:13], 5, slot, 1)[0]]
    else:
        steps = [runner.rows(ids[:13], 0, slot, 1)[0]]
    steps += [runner.rows([token_id], 13 + i, slot, 1)[0] for i, token_id in enumerate(ids[13:])]
    torch.testing.assert_close(torch.stack(steps), whole[12:], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("length", [5, 30, 32, 33, 60])
def test_a_text_that_outgrows_its_rotary_frequencies_is_read_anew(length: int) -> None:
    """LongRoPE: beyond 32 tokens all positions turn otherwise, so a prompt takes no parts and keys do not last."""
    import transformers as tf

    torch.manual_seed(0)
    shape: dict[str, Any] = {"vocab_size": 300, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 1.0}
    factors = {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4, "original_max_position_embeddings": 32}
    config = tf.Phi3Config(
        **shape, num_attention_heads=4, initializer_range=0.5, max_position_embeddings=128, pad_token_id=0,
        original_max_position_embeddings=32, rope_parameters=rope | factors,
    )  # fmt: skip
    network = tf.Phi3ForCausalLM(config).eval()
    model, tokenizer = Model.wrap(network, byte_tokenizer()), byte_tokenizer()
    prompt = torch.randint(97, 123, (length,), generator=torch.Generator().manual_seed(length)).tolist()
    params = SamplingParams(temperature=0, max_new_tokens=12, ignore_eos=True)
    expected = simple_generate(network, tokenizer, tokenizer.decode(prompt), sampling_params=params)
    for engine in (Engine(model, max_running=1, step_tokens=7), Engine(model, max_running=4)):
        assert engine.max_running == 1
        engine.add_request(prompt, params)
        outputs = []
        while engine.has_unfinished_requests():
            outputs += engine.step()
        assert "".join(output.text for output in outputs) == expected
    assert str(engine.one_at_a_time).endswith("its rotary positions depend on the length of the text.")


def test_a_network_of_input_ids_alone_runs_over_all_of_them() -> None:
    class Plain(torch.nn.Module):
        def forward(self, input_ids: torch.Tensor) -> SimpleNamespace:
            row = torch.zeros(1, 1, 300)
            row[0, 0, 60 + int(input_ids.sum()) % 60] = 9.0  # every id so far counts
            return SimpleNamespace(logits=row)

    model, tokenizer = Plain(), byte_tokenizer()
    ids = greedy_ids(model, list(b"abc"), 8)
    assert tokenizer.decode(ids) == greedy_generate(model, tokenizer, "abc", max_new_tokens=8)


def test_prefill_never_makes_prompt_times_vocabulary_logits() -> None:
    """CTX-8"""
    model = tiny_model(vocab_size=300)
    shapes = []
    model.lm_head.register_forward_hook(lambda _module, _given, out: shapes.append(tuple(out.shape)))
    runner = Runner(model)
    slot = runner.new_slot(None)
    runner.rows([5] * 60, 0, slot, 1)
    runner.rows([6], 60, slot, 1)
    assert shapes == [(1, 1, 300), (1, 1, 300)]


def test_nothing_in_the_loop_keeps_a_graph_or_a_row() -> None:
    """CTX-10"""
    model = tiny_model(vocab_size=300)
    engine = Engine(Model.wrap(model, byte_tokenizer()), max_running=1)
    engine.add_request(
        [5, 6], SamplingParams(max_new_tokens=20, ignore_eos=True), "r", inspection=Inspection(num_candidates=3)
    )
    outputs = engine.step() + engine.step()
    sequence = engine.scheduler.find("r")
    assert sequence is not None
    assert not any(layer.keys.requires_grad for layer in sequence.slot.layers)
    assert all(isinstance(c.logit, float) for o in outputs if o.draw for c in o.draw.candidates)


def test_a_slot_grows_without_losing_what_it_holds() -> None:
    layer = SlotLayer(limit=1000)
    rows = torch.randn(1, 2, 900, 4)
    layer.update(rows[:, :, :3], rows[:, :, :3])
    for i in range(3, 900):
        keys, values = layer.update(rows[:, :, i : i + 1], -rows[:, :, i : i + 1])
    assert torch.equal(keys, rows)
    assert layer.get_seq_length() == 900
    assert layer.keys is not None
    assert layer.keys.shape[2] <= 1000
    assert torch.equal(values[:, :, 3:], -rows[:, :, 3:])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "chosen",
    [
        {"temperature": 0.8, "seed": 5},
        {"temperature": 1.3, "top_k": 20, "top_p": 0.9, "seed": 6},
        {"min_p": 0.05, "typical_p": 0.9, "repetition_penalty": 1.2, "frequency_penalty": 0.5, "seed": 7},
        {"no_repeat_ngram_size": 2, "presence_penalty": 0.3, "logit_bias": {70: 3.0}, "stop": ["e", "Z"], "seed": 8},
        {"temperature": 0},
        {"top_n_sigma": 1.5, "dynatemp_range": 0.5, "dynatemp_exponent": 1.5, "epsilon_cutoff": 0.001, "seed": 9},
        {"eta_cutoff": 0.01, "xtc_probability": 0.5, "xtc_threshold": 0.05, "seed": 10},
        {"mirostat_tau": 3.0, "mirostat_eta": 0.3, "bad_words": ["e", "th"], "min_new_tokens": 30, "seed": 11},
        {"dry_multiplier": 2.0, "dry_allowed_length": 1, "dry_range": 20, "dry_sequence_breakers": ["u"], "seed": 12},
        {"temperature": 0, "dry_multiplier": 3.0, "allowed_token_ids": [97, 98, 99, 2], "min_new_tokens": 5},
    ],
)
def test_engine_text_equals_the_plain_loop_s(kind: str, chosen: dict[str, Any]) -> None:
    model, tokenizer = tiny_model(kind, vocab_size=258), byte_tokenizer()
    params = SamplingParams(max_new_tokens=40, **chosen)
    assert engine_text(model, params) == simple_generate(model, tokenizer, "Once upon", sampling_params=params)


def engine_text(model: Any, params: SamplingParams) -> str:
    engine = Engine(Model.wrap(model, byte_tokenizer()))
    engine.add_request("Once upon", params)
    text = ""
    while engine.has_unfinished_requests():
        text += "".join(output.text for output in engine.step())
    return text


CHOICES: dict[str, st.SearchStrategy[Any]] = {
    "temperature": st.sampled_from([0, 0.4, 1.0, 2.0]),
    "dynatemp_range": st.sampled_from([0.0, 0.5, 3.0]),
    "dynatemp_exponent": st.floats(0.5, 2),
    "top_n_sigma": st.sampled_from([0.0, 0.5, 2.0]),
    "top_k": st.integers(0, 60),
    "top_p": st.floats(0.3, 1),
    "min_p": st.sampled_from([0.0, 0.05]),
    "typical_p": st.sampled_from([1.0, 0.9]),
    "epsilon_cutoff": st.sampled_from([0.0, 0.003, 0.1]),
    "eta_cutoff": st.sampled_from([0.0, 0.003, 0.1]),
    "xtc_probability": st.sampled_from([0.0, 0.5, 1.0]),
    "xtc_threshold": st.floats(0, 0.3),
    "mirostat_tau": st.sampled_from([0.0, 1.0, 4.0]),
    "mirostat_eta": st.floats(0.1, 1),
    "repetition_penalty": st.sampled_from([1.0, 1.3]),
    "frequency_penalty": st.sampled_from([0.0, 0.7]),
    "presence_penalty": st.sampled_from([0.0, 0.7]),
    "no_repeat_ngram_size": st.sampled_from([0, 3]),
    "dry_multiplier": st.sampled_from([0.0, 1.0]),
    "dry_base": st.floats(1, 2),
    "dry_allowed_length": st.integers(1, 3),
    "dry_range": st.sampled_from([0, 10]),
    "dry_sequence_breakers": st.sampled_from([[], ["a"], ["\n", "on"]]),
    "logit_bias": st.sampled_from([{}, {97: 2.0, 98: -2.0}]),
    "allowed_token_ids": st.sampled_from([[], list(range(97, 123)), [*range(32, 127), 2]]),
    "bad_words": st.sampled_from([[], ["a"], ["ab", "z"]]),
    "min_new_tokens": st.sampled_from([0, 8]),
    "stop": st.sampled_from([[], ["q"]]),
    "ignore_eos": st.booleans(),
    "end_token_ids": st.sampled_from([[], [101, 105]]),
    "seed": st.integers(0, MAX_SEED),
}


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(KINDS), st.fixed_dictionaries({}, optional=CHOICES))
def test_engine_and_plain_loop_agree_whatever_is_set(kind: str, chosen: dict[str, Any]) -> None:
    """And the same seed gives the same text twice; bans and the smallest length hold."""
    model, tokenizer = model_of(kind), byte_tokenizer()
    params = SamplingParams(**{"seed": 1, **chosen, "max_new_tokens": 12})
    text = engine_text(model, params)
    assert text == simple_generate(model, tokenizer, "Once upon", sampling_params=params)
    assert text == engine_text(model, params)
    for word in params.bad_words:
        assert word not in text
    if params.allowed_token_ids:
        assert set(text.encode()) <= set(params.allowed_token_ids)


@cache
def model_of(kind: str) -> Any:
    return tiny_model(kind, vocab_size=258)


def test_the_choices_are_all_settings() -> None:
    assert {*CHOICES, "max_new_tokens", "order"} == set(SamplingParams.__dataclass_fields__)


def test_greedy_generate_is_temperature_zero() -> None:
    model, tokenizer = tiny_model(vocab_size=258), byte_tokenizer()
    expected = simple_generate(model, tokenizer, "abc", temperature=0, max_new_tokens=12)
    assert greedy_generate(model, tokenizer, "abc", max_new_tokens=12) == expected
