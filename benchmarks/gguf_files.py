"""Writes the default model's folder as GGUF files for llama.cpp: the same weights, in F16 or in Q8_0."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType, LlamaFileType, TokenType
from numpy.typing import NDArray
from safetensors import safe_open
from transformers import AutoConfig

TYPES = {
    "F16": (GGMLQuantizationType.F16, LlamaFileType.MOSTLY_F16),
    "Q8_0": (GGMLQuantizationType.Q8_0, LlamaFileType.MOSTLY_Q8_0),  # groups of 32 share a scale
}
Floats = NDArray[np.float32]


def write_gguf(folder: Path, target: Path, kind: str) -> None:
    """Write the Llama model with a byte-level tokenizer in `folder` to the file `target`; kind: a key of TYPES."""
    config = AutoConfig.from_pretrained(folder)
    if config.model_type != "llama" or not config.tie_word_embeddings:
        raise ValueError(f"Only a Llama model with a tied head can be written as GGUF, not {config.model_type!r}.")
    stored, file_type = TYPES[kind]
    writer = gguf.GGUFWriter(target, "llama")
    writer.add_file_type(file_type)
    _add_settings(writer, config)
    _add_tokenizer(writer, folder, config)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, values in _tensors(folder, config):
        # llama.cpp keeps the norms, the only vectors, in float32.
        packed = values if values.ndim == 1 else gguf.quants.quantize(values, stored)
        own_name = names.get_name(name, try_suffixes=(".weight",))
        assert own_name is not None
        writer.add_tensor(own_name, packed, raw_dtype=GGMLQuantizationType.F32 if values.ndim == 1 else stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_settings(writer: gguf.GGUFWriter, config: Any) -> None:
    rope = config.rope_parameters
    if rope["rope_type"] != "default":
        raise ValueError(f"Only plain rotary positions can be written as GGUF, not {rope['rope_type']!r}.")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)


def _add_tokenizer(writer: gguf.GGUFWriter, folder: Path, config: Any) -> None:
    told = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    special = {token["id"] for token in told["added_tokens"]}
    vocabulary = sorted(told["model"]["vocab"].items(), key=lambda item: item[1])
    writer.add_tokenizer_model("gpt2")  # byte-level pairs
    writer.add_tokenizer_pre("gpt-2")  # how text is split before: as tokenizer.json does it
    writer.add_token_list([token for token, _ in vocabulary])
    writer.add_token_types([TokenType.CONTROL if number in special else TokenType.NORMAL for _, number in vocabulary])
    writer.add_token_merges([pair if isinstance(pair, str) else " ".join(pair) for pair in told["model"]["merges"]])
    writer.add_bos_token_id(config.bos_token_id)
    writer.add_eos_token_id(config.eos_token_id)
    writer.add_add_bos_token(False)


def _tensors(folder: Path, config: Any) -> Iterator[tuple[str, Floats]]:
    """Give the weights by the names they have in the folder, with the rows as llama.cpp wants them."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    with safe_open(folder / "model.safetensors", "pt") as file:
        for name in file.keys():  # noqa: SIM118 (the file is no mapping)
            values = file.get_tensor(name).to(torch.float32).numpy()
            kind = name.split(".")[-2]
            yield name, _paired(values, heads[kind]) if kind in heads else values


def _paired(rows: Floats, num_heads: int) -> Floats:
    """Put the two rows that turn by one angle side by side: (heads, 2, half, …) becomes (heads, half, 2, …).

    Llama in transformers turns row i of a head with row i + half of it, llama.cpp row 2i with row 2i + 1.
    """
    split = rows.reshape(num_heads, 2, -1, rows.shape[-1])
    return np.ascontiguousarray(split.swapaxes(1, 2)).reshape(rows.shape)
