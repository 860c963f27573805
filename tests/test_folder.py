"""Model folders and GGUF files that must be refused before anything is loaded, and those that must not."""

from __future__ import annotations

import json
import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy
import pytest
from minigen.generation.errors import SourceError
from minigen.generation.folder import inspect_folder, inspect_gguf
from minigen.generation.gguf_file import READABLE

CONFIG: dict[str, Any] = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4}
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 269060552\n"


def safetensors(header: Any = None, data: bytes = bytes(16)) -> bytes:
    """A file of one float32 tensor, or of the header given."""
    if header is None:
        header = {"w": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}, "__metadata__": {"format": "pt"}}
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    path.mkdir()
    write(path, "config.json", CONFIG)
    (path / "model.safetensors").write_bytes(safetensors())
    return path


def write(folder: Path, name: str, content: Any) -> None:
    (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))


def refusal(folder: Path, *, trust_remote_code: bool = False) -> str:
    """The one sentence by which the folder is refused."""
    with pytest.raises(SourceError) as raised:
        inspect_folder(folder, trust_remote_code=trust_remote_code)
    message = str(raised.value)
    assert message.endswith(".")
    assert "\n" not in message
    return message


def test_a_sound_folder_passes_without_torch(folder: Path) -> None:
    inspect_folder(folder, trust_remote_code=False)
    code = (
        "import sys; from pathlib import Path; from minigen.generation.folder import inspect_folder; "
        f"inspect_folder(Path({str(folder)!r}), trust_remote_code=False); "
        "print([name for name in ('torch', 'transformers', 'huggingface_hub') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_missing_folder_or_config_is_named(folder: Path) -> None:
    assert "There is no such folder" in refusal(folder / "no")
    (folder / "config.json").unlink()
    assert refusal(folder) == f"{folder} has no config.json, so it is not a model folder."


@pytest.mark.parametrize("content", ["", "{", "{'a': 1}", "[" * 100_000, "\ufeff{}"])
def test_a_config_that_is_not_json_is_named(folder: Path, content: str) -> None:
    write(folder, "config.json", content)
    assert refusal(folder).startswith(f"{folder / 'config.json'} is not valid JSON")


def test_a_config_that_is_no_object_is_named(folder: Path) -> None:
    write(folder, "config.json", "[]")
    assert refusal(folder) == f"{folder / 'config.json'} must hold a JSON object, not a list."


class Payload:
    """Leaves a mark when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.marker,)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth", "model.ckpt"])
def test_pickle_weights_are_refused_and_not_run(folder: Path, tmp_path: Path, name: str) -> None:
    """SEC-5"""
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(pickle.dumps(Payload(tmp_path / "marker")))
    message = refusal(folder)
    assert message.startswith(f"{folder / name} is a pickle file")
    assert "convert the model to safetensors" in message
    assert not (tmp_path / "marker").exists()


def test_pickle_weights_beside_safetensors_are_left_alone(folder: Path) -> None:
    (folder / "pytorch_model.bin").write_bytes(b"never read")
    inspect_folder(folder, trust_remote_code=False)


def test_no_weights_at_all_is_told(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    assert "there are no weights to load" in refusal(folder)


@pytest.mark.parametrize("name", ["w.bin", "../outside.safetensors", "/etc/w.safetensors", "a/b.safetensors", 7, ""])
@pytest.mark.parametrize("keeps_single", [True, False])
def test_an_index_names_safetensors_of_its_folder_only(folder: Path, name: Any, keeps_single: bool) -> None:
    """SEC-5"""
    if not keeps_single:
        (folder / "model.safetensors").unlink()
    write(folder, "model.safetensors.index.json", {"weight_map": {"w": name}})
    message = refusal(folder)
    assert message.endswith(f"must name only .safetensors files in its own folder, not {name!r}.")


def test_a_missing_shard_is_named(folder: Path) -> None:
    write(folder, "model.safetensors.index.json", {"weight_map": {"w": "model-00001-of-00002.safetensors"}})
    assert refusal(folder).startswith(f"{folder / 'model-00001-of-00002.safetensors'} is missing")


@pytest.mark.parametrize("content", [{}, {"weight_map": {}}, {"weight_map": ["w"]}])
def test_an_index_without_a_map_is_named(folder: Path, content: Any) -> None:
    write(folder, "model.safetensors.index.json", content)
    assert "model.safetensors.index.json has no weight_map" in refusal(folder)


def test_every_shard_is_looked_at(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "a.safetensors")
    (folder / "b.safetensors").write_bytes(b"")
    write(folder, "model.safetensors.index.json", {"weight_map": {"w": "a.safetensors", "v": "b.safetensors"}})
    assert refusal(folder).startswith(f"{folder / 'b.safetensors'} is damaged or cut short (0 B)")


def test_a_link_out_of_the_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "model.safetensors").rename(tmp_path / "outside.safetensors")
    (folder / "model.safetensors").symlink_to(tmp_path / "outside.safetensors")
    assert refusal(folder).startswith(f"{folder / 'model.safetensors'} is a link that leads out of the model folder")
    (tmp_path / "outside.safetensors").unlink()
    assert "a file that is missing" in refusal(folder)


def test_a_link_into_the_blobs_of_the_hub_cache_is_allowed(folder: Path, tmp_path: Path) -> None:
    repo = tmp_path / "hub" / "models--org--name"
    (repo / "snapshots").mkdir(parents=True)
    (repo / "blobs").mkdir()
    snapshot = folder.rename(repo / "snapshots" / ("c" * 40))
    (snapshot / "model.safetensors").rename(repo / "blobs" / "abc")
    (snapshot / "model.safetensors").symlink_to("../../blobs/abc")
    inspect_folder(snapshot, trust_remote_code=False)


def test_a_pointer_instead_of_weights_is_told(folder: Path) -> None:
    """MOD-5"""
    (folder / "model.safetensors").write_bytes(POINTER)
    message = refusal(folder)
    assert message.startswith(f"{folder / 'model.safetensors'} is a git-lfs pointer of {len(POINTER)} bytes")
    assert "git lfs pull" in message


TENSOR = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}
DAMAGES: dict[str, bytes] = {
    "nothing": b"",
    "seven bytes": bytes(7),
    "an empty header": safetensors(b""),
    "a header that is an empty object": safetensors({}),
    "half a file": safetensors()[: len(safetensors()) - 8],
    "half a header": safetensors()[:40],
    "bytes left over": safetensors() + b"x",
    "a header of 2^60 bytes": struct.pack("<Q", 2**60) + bytes(100),
    "a header that is not JSON": safetensors(b"\xff\xfe{}"),
    "a header that is a list": safetensors([1]),
    "a header too deep": safetensors(b"[" * 100_000),
    "a tensor that is a number": safetensors({"w": 1}),
    "a tensor without offsets": safetensors({"w": {"dtype": "F32", "shape": [2, 2]}}),
    "negative offsets": safetensors({"w": {**TENSOR, "data_offsets": [-16, 0]}}),
    "offsets backwards": safetensors({"w": {**TENSOR, "data_offsets": [16, 0]}}),
    "offsets past the end": safetensors({"w": {**TENSOR, "shape": [8], "data_offsets": [0, 32]}}),
    "a gap": safetensors({"w": {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]}}),
    "an overlap": safetensors({"w": TENSOR, "v": {"dtype": "F32", "shape": [3], "data_offsets": [4, 16]}}),
    "a shape that does not fit": safetensors({"w": {**TENSOR, "shape": [2, 3]}}),
    "a shape with a word": safetensors({"w": {**TENSOR, "shape": ["2", 2]}}),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_weights_are_named_with_their_size(folder: Path, damage: str) -> None:
    """MOD-5, R6"""
    (folder / "model.safetensors").write_bytes(DAMAGES[damage])
    assert refusal(folder).startswith(f"{folder / 'model.safetensors'} is damaged or cut short (")


def test_every_cut_of_a_file_is_noticed(folder: Path) -> None:
    whole = safetensors()
    for length in range(len(whole)):
        (folder / "model.safetensors").write_bytes(whole[:length])
        assert "damaged or cut short" in refusal(folder)


@pytest.mark.parametrize("nest", [lambda e: e, lambda e: {"text_config": e}, lambda e: {"a": [{"b": e}]}])
@pytest.mark.parametrize(
    "entry",
    [
        {"attn_implementation": "kernels-community/flash-attn2"},
        {"_attn_implementation": "kernels-community/flash-attn2"},
        {"_attn_implementation_internal": "kernels-community/flash-attn2"},
        {"experts_implementation": "org/kernel"},
        {"_experts_implementation": "org/kernel:function"},
        {"attn_implementation": {"": "sdpa", "text_config": "org/kernel"}},
    ],
)
def test_a_downloadable_kernel_is_refused(folder: Path, entry: dict[str, Any], nest: Callable[[Any], Any]) -> None:
    """R7"""
    write(folder, "config.json", CONFIG | nest(entry))
    message = refusal(folder, trust_remote_code=True)
    assert message.startswith(f"{folder / 'config.json'} asks for code to be downloaded")


def test_a_built_in_attention_is_allowed(folder: Path) -> None:
    write(folder, "config.json", CONFIG | {"_attn_implementation": "sdpa", "attn_implementation": None})
    inspect_folder(folder, trust_remote_code=False)


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "generation_config.json"])
@pytest.mark.parametrize("key", ["auto_map", "custom_generate"])
def test_own_code_needs_the_flag(folder: Path, name: str, key: str) -> None:
    """SEC-6"""
    write(folder, name, CONFIG | {key: {"AutoModelForCausalLM": "evil.Model"}})
    assert refusal(folder) == (
        f"{folder / name} asks for the model's own code to run: allow it with --trust-remote-code."
    )
    inspect_folder(folder, trust_remote_code=True)


def test_an_own_way_to_generate_needs_the_flag(folder: Path) -> None:
    (folder / "custom_generate").mkdir()
    assert "--trust-remote-code" in refusal(folder)


def test_an_adapter_is_refused(folder: Path) -> None:
    write(folder, "adapter_config.json", {})
    assert "adapter_config.json makes this an adapter" in refusal(folder)


def test_a_weight_file_of_the_config_s_choice_is_refused(folder: Path) -> None:
    write(folder, "config.json", CONFIG | {"transformers_weights": "other.bin"})
    assert "transformers_weights" in refusal(folder)


@pytest.mark.parametrize(
    ("kind", "architectures"),
    [
        ("t5", ["T5ForConditionalGeneration"]),
        ("bert", ["BertForMaskedLM"]),
        ("llava", ["LlavaForConditionalGeneration"]),
        ("t5", None),
        ("bert", []),
        ("llava", None),
    ],
)
def test_a_model_of_another_kind_is_told_in_one_sentence(folder: Path, kind: str, architectures: Any) -> None:
    """MOD-10"""
    write(folder, "config.json", {"model_type": kind, "architectures": architectures})
    assert refusal(folder) == f"{folder / 'config.json'}: model type {kind} is not a causal language model."


def test_a_body_without_a_head_is_told(folder: Path) -> None:
    write(folder, "config.json", CONFIG | {"architectures": ["LlamaModel"]})
    assert refusal(folder).endswith("model type llama as LlamaModel is not a causal language model.")


@pytest.mark.parametrize(
    ("kind", "architecture"),
    [("gpt2", "GPT2LMHeadModel"), ("bert", "BertLMHeadModel"), ("gemma3", "Gemma3ForConditionalGeneration")],
)
def test_a_causal_model_by_another_name_passes(folder: Path, kind: str, architecture: str) -> None:
    write(folder, "config.json", {"model_type": kind, "architectures": [architecture]})
    inspect_folder(folder, trust_remote_code=False)


def test_a_config_without_a_model_type_is_told(folder: Path) -> None:
    """MOD-10"""
    write(folder, "config.json", {"hidden_size": 4})
    assert refusal(folder).endswith("config.json names no model_type, so it is not a language model's.")


def tiny_gguf(path: Path, architecture: str = "llama") -> bytes:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(64)
    writer.add_eos_token_id(2)
    writer.add_eot_token_id(5)
    writer.add_uint32("tokenizer.ggml.eom_token_id", 2)
    writer.add_token_list(["a", "b"])
    writer.add_tensor("token_embd.weight", numpy.zeros((4, 32), numpy.float32))
    writer.add_tensor("output.weight", numpy.zeros((2, 34), numpy.uint8), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


def test_the_facts_of_a_gguf_file_are_read(tmp_path: Path) -> None:
    tiny_gguf(tmp_path / "tiny.gguf")
    facts = inspect_gguf(tmp_path / "tiny.gguf")
    assert facts.architecture == "llama"
    assert facts.num_weights == 4 * 32 + 2 * 32
    assert facts.tensor_names == ("token_embd.weight", "output.weight")
    assert facts.end_token_ids == (2, 5)


def gguf_refusal(path: Path) -> str:
    with pytest.raises(SourceError) as raised:
        inspect_gguf(path)
    return str(raised.value)


def test_every_cut_of_a_gguf_file_is_noticed(tmp_path: Path) -> None:
    """R6"""
    path = tmp_path / "tiny.gguf"
    whole = tiny_gguf(path)
    end = len(whole) - 28  # of the last tensor: the file is padded after it
    for length in range(0, end, 3):
        path.write_bytes(whole[:length])
        assert "is damaged or no GGUF file" in gguf_refusal(path)


@pytest.mark.parametrize("place", range(24))
@pytest.mark.parametrize("value", [0x00, 0x7F, 0xFF])
def test_a_damaged_start_is_refused_or_harmless(tmp_path: Path, place: int, value: int) -> None:
    """R6: magic, version, number of tensors, number of settings"""
    path = tmp_path / "tiny.gguf"
    whole = bytearray(tiny_gguf(path))
    if whole[place] == value:
        return
    whole[place] = value
    path.write_bytes(whole)
    assert "is damaged or no GGUF file" in gguf_refusal(path)


def test_damage_anywhere_gives_facts_or_our_error(tmp_path: Path) -> None:
    """R6"""
    path = tmp_path / "tiny.gguf"
    whole = tiny_gguf(path)
    for place in range(len(whole) - 700):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            facts = inspect_gguf(path)
        except SourceError:
            continue
        assert facts.num_weights <= 8 * len(whole)


def test_an_empty_file_and_a_pointer_are_told(tmp_path: Path) -> None:
    """MOD-5"""
    path = tmp_path / "tiny.gguf"
    path.write_bytes(b"")
    assert gguf_refusal(path) == f"{path} is damaged or no GGUF file (0 B): it is empty; fetch it again."
    path.write_bytes(POINTER)
    assert "git-lfs pointer" in gguf_refusal(path)
    assert "cannot be read: No such file" in gguf_refusal(tmp_path / "none.gguf")


@pytest.mark.parametrize("architecture", ["t5", "clip", "rwkv6"])
def test_a_gguf_architecture_that_cannot_be_read_is_told(tmp_path: Path, architecture: str) -> None:
    tiny_gguf(tmp_path / "tiny.gguf", architecture)
    assert gguf_refusal(tmp_path / "tiny.gguf").endswith(f"architecture {architecture!r} cannot be read.")


def test_the_readable_architectures_are_those_of_the_library() -> None:
    from transformers.integrations.ggml import GGUF_CONFIG_MAPPING
    from transformers.integrations.gguf.gguf_conversion_mapping import GGUF_ARCHS

    no_causal_models = {"general", "tokenizer", "t5", "umt5"}
    assert {*GGUF_CONFIG_MAPPING, *GGUF_ARCHS} - no_causal_models == READABLE


def test_a_pipe_in_the_folder_is_refused_and_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "generation_config.json")
    assert refusal(folder).endswith("generation_config.json is not a regular file: fetch the model again.")
