"""Loading: what a folder or a GGUF file becomes, what is refused, and what is found out about a model."""

import gc
import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf
import numpy
import pytest
import torch
import transformers
from minigen.generation import device as devices, gguf_model
from minigen.generation.errors import DeviceError, OutOfMemory, ParameterError, SourceError, UsageError
from minigen.generation.facts import vocab_size_of
from minigen.generation.model import Model, end_token_ids, load_model, window_of
from minigen.generation.params import SamplingParams
from minigen.generation.sampling_defaults import sampling_defaults
from minigen.generation.sources import ModelSettings, PathSource
from minigen.generation.transformers_gate import check_causal, load_weights, read_config
from safetensors.torch import load_file, save_file
from stubs import CHAT_TEMPLATE, ScriptedModel, byte_tokenizer, tiny_model

IDS = torch.tensor([[1, 5, 9, 3]])


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def saved(folder: Path, network: Any | None = None, **changes: Any) -> Path:
    """Save a tiny model with the byte tokenizer."""
    network = network or tiny_model(vocab_size=300, **changes)
    network.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


def edit_json(path: Path, **changes: Any) -> None:
    old = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(old | changes))


def edit_weights(folder: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def settings(folder: Path, **changes: Any) -> ModelSettings:
    return ModelSettings(sources=(PathSource(folder),), **changes)


def test_a_folder_becomes_a_model(tmp_path: Path) -> None:
    folder = saved(tmp_path / "tiny", window=64)
    model = load_model(str(folder))
    assert (model.name, model.path, model.revision) == ("tiny", folder, None)
    assert (model.window, model.vocab_size, model.end_token_ids) == (64, 300, (2, 257))
    assert (model.device, model.dtype, model.warnings) == ("cpu", "float32", ())
    assert not model.network.training
    assert not any(parameter.requires_grad for parameter in model.network.parameters())
    assert not model.has_chat_template


def test_a_path_object_names_a_folder(tmp_path: Path) -> None:
    assert load_model(saved(tmp_path)).path == tmp_path


def test_the_loaded_network_gives_the_saved_logits(tmp_path: Path) -> None:
    original = tiny_model(vocab_size=300)
    model = load_model(saved(tmp_path, original))
    torch.testing.assert_close(model.network(IDS).logits, original(IDS).logits, rtol=1e-5, atol=1e-5)
    loaded = model.network.state_dict()
    assert all(torch.equal(loaded[name], weight) for name, weight in original.state_dict().items())


def test_a_tied_head_needs_no_weights_of_its_own(tmp_path: Path) -> None:
    """MOD-11"""
    original = tiny_model(vocab_size=300, tie_word_embeddings=True)
    folder = saved(tmp_path, original)
    assert "lm_head.weight" not in load_file(folder / "model.safetensors")
    torch.testing.assert_close(load_model(folder).network(IDS).logits, original(IDS).logits, rtol=1e-5, atol=1e-5)


def test_a_folder_without_a_tokenizer_is_an_error(tmp_path: Path) -> None:
    folder = saved(tmp_path / "m")
    for file in folder.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(SourceError, match=r"m has no tokenizer: tokenizer\.json or the like must lie beside"):
        load_model(folder)


def test_a_missing_untied_head_is_an_error(tmp_path: Path) -> None:
    """MOD-11"""
    folder = saved(tmp_path, tie_word_embeddings=False)
    edit_weights(folder, lambda tensors: tensors.pop("lm_head.weight"))
    with pytest.raises(SourceError) as caught:
        load_model(folder)
    assert str(caught.value) == f"{folder} lacks 1 weight (lm_head.weight); they would be random numbers."


def test_many_missing_weights_name_the_first_ones_and_their_number(tmp_path: Path) -> None:
    """MOD-11"""
    folder = saved(tmp_path)

    def drop_second_layer(tensors: dict[str, Any]) -> None:
        for name in [name for name in tensors if ".layers.1." in name]:
            del tensors[name]

    edit_weights(folder, drop_second_layer)
    with pytest.raises(
        SourceError, match=r"lacks 9 weights \(model\.layers\.1\.input_layernorm\.weight, .*, \.\.\.\);"
    ):
        load_model(folder)


def test_weights_of_another_shape_are_an_error(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    edit_json(folder / "config.json", intermediate_size=64)
    with pytest.raises(SourceError, match=r"cannot be used: loading its weights failed|of another shape"):
        load_model(folder)


def test_one_unknown_weight_is_a_warning(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    edit_weights(folder, lambda tensors: tensors.update(extra=torch.zeros(2)))
    assert load_model(folder).warnings == (f"{folder} holds 1 weight (extra) that the model does not use.",)


def test_many_unknown_weights_are_an_error(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    edit_weights(folder, lambda tensors: tensors.update({f"extra{n}": torch.zeros(2) for n in range(5)}))
    with pytest.raises(SourceError) as caught:
        load_model(folder)
    assert str(caught.value) == (
        f"{folder} holds 5 weights (extra0, extra1, extra2, ...) that its configuration does not know."
    )


@pytest.mark.parametrize("kind", ["t5", "bert", "llava"])
def test_other_model_types_are_named_in_one_line(tmp_path: Path, kind: str) -> None:
    """MOD-10"""
    folder = saved(tmp_path)
    (folder / "config.json").write_text(json.dumps({"model_type": kind}))
    with pytest.raises(SourceError) as caught:
        load_model(folder)
    assert str(caught.value) == f"{folder / 'config.json'}: model type {kind} is not a causal language model."


def test_a_type_that_the_library_does_not_know_as_causal_is_refused() -> None:
    """MOD-10"""
    with pytest.raises(SourceError, match=r"^Model type vit is not a causal language model\.$"):
        check_causal(transformers.ViTConfig())


def test_a_causal_model_whose_configuration_denies_being_a_decoder_is_taken() -> None:
    check_causal(transformers.GPTNeoXConfig())


def test_a_bert_that_is_a_decoder_is_taken() -> None:
    check_causal(transformers.BertConfig(is_decoder=True))


@pytest.mark.parametrize("spelling", ["attn_implementation", "_attn_implementation"])
def test_a_folder_cannot_choose_its_attention(tmp_path: Path, spelling: str) -> None:
    folder = saved(tmp_path)
    edit_json(folder / "config.json", **{spelling: "eager"})
    assert load_model(folder).network.config._attn_implementation == "sdpa"


def test_attention_without_sdpa_is_eager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformers.LlamaForCausalLM, "_supports_sdpa", False)
    assert read_config(saved(tmp_path), trust_remote_code=False)._attn_implementation == "eager"


def test_a_broken_tokenizer_is_one_sentence(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    (folder / "tokenizer.json").write_text('{"model": 3}')
    with pytest.raises(SourceError, match=r"cannot be used: reading its tokenizer failed \(.+\)\.$"):
        load_model(folder)


def test_a_dtype_is_used_as_named(tmp_path: Path) -> None:
    """DEV-2"""
    model = load_model(settings(saved(tmp_path), dtype="bfloat16", device="cpu"))
    assert (model.dtype, model.network.dtype) == ("bfloat16", torch.bfloat16)


def test_a_model_saved_in_bfloat16_runs_in_float32_on_a_cpu(tmp_path: Path) -> None:
    """DEV-2"""
    model = load_model(settings(saved(tmp_path, tiny_model(vocab_size=300).bfloat16()), device="cpu"))
    assert (model.dtype, model.network.dtype) == ("float32", torch.float32)


def test_float16_on_a_cpu_loads_with_a_warning(tmp_path: Path) -> None:
    """DEV-1"""
    model = load_model(settings(saved(tmp_path), dtype="float16", device="cpu"))
    assert model.network.dtype == torch.float16
    assert model.warnings == ("float16 is slow and less exact on a CPU; float32 or bfloat16 is better there.",)


def test_a_missing_device_fails_before_anything_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DeviceError, match=r"^cuda:3 is not available here"):
        load_model(settings(tmp_path / "nowhere", device="cuda:3"))


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory"), MemoryError(), RuntimeError("DefaultCPUAllocator: not enough")],
)
def test_out_of_memory_at_load_says_what_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """DEV-4"""

    def fail(*args: Any, **options: Any) -> None:
        raise error

    folder = saved(tmp_path)
    monkeypatch.setattr(devices, "free_memory", lambda device: 20_000)
    monkeypatch.setattr(transformers.LlamaForCausalLM, "from_pretrained", fail)
    with pytest.raises(OutOfMemory) as caught:
        load_model(settings(folder, device="cpu"))
    assert str(caught.value) == (
        "cpu ran out of memory while loading the model (139 kB needed, 20 kB free); "
        "a smaller dtype, a smaller model, fewer tokens or a GPU would help."
    )


def test_balanced_asks_the_loader_to_spread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def record(*args: Any, **options: Any) -> Any:
        given.update(options)
        return tiny_model(), {"missing_keys": [], "unexpected_keys": [], "mismatched_keys": []}

    folder = saved(tmp_path)
    monkeypatch.setattr(transformers.LlamaForCausalLM, "from_pretrained", record)
    config = read_config(folder, trust_remote_code=False)
    load_weights(folder, config, device="balanced", dtype="float16", trust_remote_code=False)
    assert (given["device_map"], given["dtype"]) == ("balanced", torch.float16)
    assert (given["use_safetensors"], given["trust_remote_code"], given["local_files_only"]) == (True, False, True)


def test_loading_is_silent(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """MOD-13"""
    folder = saved(tmp_path)
    edit_json(folder / "config.json", torch_dtype="float32")
    edit_weights(folder, lambda tensors: tensors.update(extra=torch.zeros(2)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_model(folder)
    assert capfd.readouterr() == ("", "")


def test_the_collector_runs_again_after_loading(tmp_path: Path) -> None:
    load_model(saved(tmp_path))
    assert gc.isenabled()


OWN_CODE = """
from transformers import LlamaForCausalLM

class Mine(LlamaForCausalLM):
    is_mine = True
"""


def test_own_code_runs_on_the_users_word_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC-6"""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    folder = saved(tmp_path / "own")
    (folder / "mine.py").write_text(OWN_CODE)
    edit_json(folder / "config.json", auto_map={"AutoModelForCausalLM": "mine.Mine"})
    with pytest.raises(SourceError, match="--trust-remote-code"):
        load_model(folder)
    assert load_model(settings(folder, trust_remote_code=True)).network.is_mine


def test_a_number_of_threads_below_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"^threads must be a whole number, 1 or more, not 0\.$"):
        load_model(tmp_path / "nowhere", threads=0)


def test_threads_are_set(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    try:
        load_model(saved(tmp_path), threads=1)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("config", "window"),
    [
        (SimpleNamespace(text_config=SimpleNamespace(max_position_embeddings=4096)), 4096),
        (SimpleNamespace(n_positions=1024), 1024),
        (SimpleNamespace(n_ctx=2048), 2048),
        (SimpleNamespace(max_seq_len=512), 512),
        (SimpleNamespace(), None),
        (SimpleNamespace(max_position_embeddings=None, n_positions=0), None),
        (None, None),
    ],
)
def test_the_window_is_found_wherever_it_stands(config: Any, window: int | None) -> None:
    """CTX-4"""
    assert window_of(config) == window


def test_the_window_of_a_real_nested_configuration_is_that_of_its_text_part() -> None:
    """CTX-4"""
    text = transformers.LlamaConfig(max_position_embeddings=77)
    assert window_of(transformers.LlavaConfig(text_config=text)) == 77


def test_the_vocabulary_is_as_wide_as_the_head() -> None:
    """VOC-1"""
    network = tiny_model(vocab_size=320)
    model = Model.wrap(network, byte_tokenizer())
    assert len(model.tokenizer) == 258
    assert model.vocab_size == vocab_size_of(network) == 320


def test_a_double_is_wrapped_with_what_it_has() -> None:
    model = Model.wrap(ScriptedModel([1]), byte_tokenizer(chat_template=CHAT_TEMPLATE), name="double")
    assert (model.name, model.window, model.vocab_size, model.end_token_ids) == ("double", None, 300, (257,))
    assert (model.device, model.dtype, model.has_chat_template) == ("cpu", "float32", True)


def test_a_double_without_any_attribute_is_wrapped() -> None:
    model = Model.wrap(SimpleNamespace(), [0] * 7)
    assert (model.window, model.vocab_size, model.end_token_ids) == (None, 7, ())
    assert (model.device, model.dtype) == ("cpu", "float32")


def test_end_tokens_are_joined_in_order_each_once() -> None:
    """TOK-1"""
    network = SimpleNamespace(
        generation_config=SimpleNamespace(eos_token_id=[7, 5]),
        config=SimpleNamespace(vocab_size=50, eos_token_id=5, text_config=SimpleNamespace(eos_token_id=[9, 7])),
    )
    assert end_token_ids(network, SimpleNamespace(eos_token_id=3)) == (7, 5, 9, 3)
    assert end_token_ids(network, SimpleNamespace(eos_token_id=3), [3, 11]) == (7, 5, 9, 3, 11)


def test_impossible_end_tokens_are_left_out() -> None:
    network = SimpleNamespace(config=SimpleNamespace(vocab_size=10, eos_token_id=[-1, 10, None, True, "2", 9]))
    assert end_token_ids(network, SimpleNamespace()) == (9,)


def test_an_end_token_list_is_read_from_generation_config(tmp_path: Path) -> None:
    """TOK-1"""
    folder = saved(tmp_path)
    edit_json(folder / "generation_config.json", eos_token_id=[1, 106])
    assert load_model(folder).end_token_ids == (1, 106, 2, 257)


def test_a_turn_end_counts_where_it_is_one_special_token_of_a_chat_model() -> None:
    network = SimpleNamespace(config=SimpleNamespace(vocab_size=400))
    chat = byte_tokenizer(chat_template=CHAT_TEMPLATE)
    chat.add_special_tokens({"additional_special_tokens": ["<|eot_id|>"]})
    base = byte_tokenizer()
    base.add_special_tokens({"additional_special_tokens": ["<|eot_id|>"]})
    plain = byte_tokenizer(["<|eot_id|>"], chat_template=CHAT_TEMPLATE)
    assert [end_token_ids(network, each) for each in (chat, base, plain)] == [(257, 258), (257,), (257,)]


def test_sampling_defaults_come_from_generation_config(tmp_path: Path) -> None:
    edit_json(tmp_path / "generation_config.json", temperature=0.6, top_k=20, top_p=None, do_sample=True, num_beams=4)
    assert sampling_defaults(tmp_path) == ({"temperature": 0.6, "top_k": 20}, ())


def test_cut_offs_and_the_smallest_length_come_from_generation_config_too(tmp_path: Path) -> None:
    edit_json(tmp_path / "generation_config.json", epsilon_cutoff=3e-4, eta_cutoff=0.0, min_new_tokens=4)
    assert sampling_defaults(tmp_path) == ({"epsilon_cutoff": 3e-4, "eta_cutoff": 0.0, "min_new_tokens": 4}, ())
    assert SamplingParams().eta_cutoff == 0.0, "transformers' neutral value is ours"


def test_a_sampling_default_out_of_range_is_left_out_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "generation_config.json"
    edit_json(path, top_p=0, min_p=0.1)
    assert sampling_defaults(tmp_path) == (
        {"min_p": 0.1},
        (f"{path}: top_p must be above 0 and at most 1, not 0. It is left out.",),
    )


def test_no_generation_config_gives_no_defaults(tmp_path: Path) -> None:
    assert sampling_defaults(tmp_path) == ({}, ())


def test_an_unreadable_generation_config_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text("{")
    assert sampling_defaults(tmp_path) == (
        {},
        (f"{tmp_path / 'generation_config.json'} cannot be read; its settings are left out.",),
    )


class Notes:
    """A progress that keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def start(self, label: str, total: int | None) -> None: ...

    def advance(self, amount: int) -> None: ...

    def finish(self) -> None: ...


def permuted(weight: numpy.ndarray[Any, Any], heads: int) -> numpy.ndarray[Any, Any]:
    """Order the rows of a query or key matrix as GGUF files of this architecture have them."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def write_gguf(path: Path, network: Any, *, extra: dict[str, Any] | None = None, skip: str = "") -> Path:
    """Write a tiny llama as an unpacked GGUF file with a byte-level tokenizer."""
    config, tensors = network.config, network.state_dict()
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_vocab_size(config.vocab_size)
    tokenizer = byte_tokenizer()
    tokens = [
        *tokenizer.convert_ids_to_tokens(list(range(258))),
        "ab",
        *(f"<extra{n}>" for n in range(config.vocab_size - 259)),
    ]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * 256 + [3, 3] + [4] * (config.vocab_size - 258))
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(256)
    writer.add_eos_token_id(257)
    writer.add_eot_token_id(259)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, tensor in tensors.items():
        stem, _, ending = name.rpartition(".")
        values = tensor.float().numpy()
        if ".q_proj" in name or ".k_proj" in name:
            heads = config.num_attention_heads if ".q_proj" in name else config.num_key_value_heads
            values = permuted(values, heads)
        if name != skip:
            writer.add_tensor(f"{names.get_name(stem)}.{ending}", numpy.ascontiguousarray(values))
    for name, values in (extra or {}).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_gguf_file_gives_the_logits_of_its_twin(tmp_path: Path) -> None:
    """MOD-7"""
    original, notes = tiny_model(vocab_size=300), Notes()
    path = write_gguf(tmp_path / "tiny.gguf", original)
    model = load_model(path, progress=notes)
    assert torch.allclose(model.network(IDS).logits, original(IDS).logits, atol=1e-5)
    assert (model.name, model.window, model.vocab_size, model.dtype) == ("tiny", 128, 300, "float32")
    assert model.end_token_ids == (257, 259)
    assert model.tokenizer.decode(model.tokenizer.encode("hé")) == "hé"
    assert notes.notes == [
        f"Unpacking tiny.gguf: {path.stat().st_size / 1000:.0f} kB on disk, 139 kB in memory as float32."
    ]


def test_a_gguf_file_needs_no_accelerate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.modeling_utils.is_accelerate_available", lambda: False)
    path = write_gguf(tmp_path / "tiny.gguf", tiny_model(vocab_size=300))
    assert load_model(path).vocab_size == 300


def test_a_newer_gguf_architecture_asks_for_accelerate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.integrations.gguf.utils.is_gguf_arch_supported", lambda name: True)
    monkeypatch.setattr(gguf_model, "find_spec", lambda name: None)
    path = write_gguf(tmp_path / "tiny.gguf", tiny_model(vocab_size=300))
    with pytest.raises(
        UsageError, match=r'^llama GGUF files need accelerate: pip install "minigen-cli\[balanced\]"\.$'
    ):
        load_model(path)


def test_a_gguf_tensor_that_is_not_understood_is_an_error(tmp_path: Path) -> None:
    extra = {"blk.0.mystery.weight": numpy.zeros((3, 4), dtype=numpy.float32)}
    path = write_gguf(tmp_path / "tiny.gguf", tiny_model(vocab_size=300), extra=extra)
    with pytest.raises(SourceError, match=r"12 of its \d+ weights lie in tensors that are not understood"):
        load_model(path)


def test_a_gguf_file_that_lacks_a_tensor_is_an_error(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", tiny_model(vocab_size=300), skip="model.layers.0.mlp.up_proj.weight")
    with pytest.raises(SourceError, match=r"lacks 1 weight \(model\.layers\.0\.mlp\.up_proj\.weight\)"):
        load_model(path)


def test_rope_factors_of_a_gguf_file_divide_the_frequencies(tmp_path: Path) -> None:
    original = tiny_model(vocab_size=300)
    factors = numpy.array([1, 2, 4, 8], dtype=numpy.float32)
    path = write_gguf(tmp_path / "tiny.gguf", original, extra={"rope_freqs.weight": factors})
    model = load_model(path)
    original.model.rotary_emb.inv_freq.div_(torch.tensor(factors))
    assert torch.allclose(model.network(IDS).logits, original(IDS).logits, atol=1e-5)


def test_an_unknown_gguf_architecture_is_one_sentence(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "odd.gguf", "oddity")
    writer.add_block_count(1)
    writer.add_tensor("token_embd.weight", numpy.zeros((4, 4), dtype=numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(SourceError, match="architecture 'oddity' cannot be read"):
        load_model(tmp_path / "odd.gguf")


def test_settings_beside_a_gguf_file_are_not_read(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", tiny_model(vocab_size=300))
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    (tmp_path / "generation_config.json").write_text('{"temperature": 5}')
    model = load_model(path)
    assert (model.vocab_size, model.sampling_defaults) == (300, {})


def test_the_model_module_loads_no_library_before_it_is_used() -> None:
    import subprocess

    code = "import sys, minigen.generation.model; print({'torch', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_model_whose_norms_stay_in_float32_runs_in_half_precision(tmp_path: Path, dtype: str) -> None:
    config = transformers.AutoConfig.for_model(
        "gpt_oss", vocab_size=300, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, num_local_experts=2, num_experts_per_tok=1, pad_token_id=0,
    )  # fmt: skip
    original = transformers.AutoModelForCausalLM.from_config(config).eval()
    model = load_model(ModelSettings(sources=(PathSource(saved(tmp_path, original)),), dtype=dtype))
    assert model.network(IDS).logits.isfinite().all()
