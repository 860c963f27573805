"""Looks at a model folder before it is loaded: what could run code, leave the folder or is damaged is refused."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .errors import SourceError
from .gguf_file import GgufFacts, inspect_gguf
from .progress import bytes_text
from .safetensors_file import inspect_safetensors

__all__ = ["GgufFacts", "inspect_folder", "inspect_gguf"]

_INDEX = "model.safetensors.index.json"
_SHARD_NAME = re.compile(r"[A-Za-z0-9._-]+\.safetensors")
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")
_MODEL_FILES = ("*.json", "*.safetensors", "*.gguf", "*.txt", "*.model", "*.jinja")
_MAX_JSON = 256 << 20  # bytes; the largest tokenizers have some 40 MB

_CAUSAL = ("ForCausalLM", "LMHeadModel", "ModelWithLMHead")
_ALSO_CAUSAL = {  # their text part is one
    "BertGenerationDecoder",
    "Gemma3ForConditionalGeneration",
    "Gemma3nForConditionalGeneration",
    "Gemma4ForConditionalGeneration",
    "Gemma4UnifiedForConditionalGeneration",
}
_OTHER_TYPES = {  # asked only where config.json names no architecture
    *("albert", "bart", "bert", "blip-2", "camembert", "clip", "deberta", "deberta-v2", "distilbert", "electra"),
    *("encoder-decoder", "llava", "llava_next", "longformer", "longt5", "marian", "mbart", "modernbert"),
    *("mpnet", "mt5", "pegasus", "roberta", "siglip", "switch_transformers", "t5", "umt5", "vit", "wav2vec2"),
    *("whisper", "xlm-roberta"),
}


def inspect_folder(path: Path, *, trust_remote_code: bool) -> None:
    """Raise SourceError unless the folder holds a causal language model that can be loaded without running its code.

    trust_remote_code: the user's word that the folder's own code may run; it lifts that check alone.
    """
    if not path.is_dir():
        raise SourceError(f"There is no such folder: {str(path)!r}.")
    config_file = path / "config.json"
    if not config_file.is_file():
        raise SourceError(f"{path} has no config.json, so it is not a model folder.")
    for pattern in _MODEL_FILES:
        for file in path.glob(pattern):
            _require_inside(file, path)
            if not file.is_file() and not file.is_dir():  # a pipe would be waited for
                raise SourceError(f"{file} is not a regular file: fetch the model again.")
    config = _read_json(config_file)
    if (path / "adapter_config.json").exists():
        raise SourceError(f"{path / 'adapter_config.json'} makes this an adapter: merge it into its base model first.")
    _check_kernels(config, config_file)
    if not trust_remote_code:
        _check_code(path)
    _check_type(config, config_file)
    _check_weights(path, config)


def _require_inside(file: Path, folder: Path) -> None:
    """A link may lead to the blobs of the hub cache that the folder is part of, and nowhere else outside."""
    try:
        target = file.resolve(strict=True)
    except (OSError, RuntimeError):
        raise SourceError(f"{file} is a link to a file that is missing: fetch the model again.") from None
    home = folder.resolve()
    roots = [home]
    if home.parent.name == "snapshots":  # cache/models--org--name/snapshots/commit; cache/blobs is shared by all models
        roots += [home.parent.parent / "blobs", home.parent.parent.parent / "blobs"]
    if not any(target.is_relative_to(root) for root in roots):
        raise SourceError(f"{file} is a link that leads out of the model folder: copy the file itself there.")


def _read_json(file: Path) -> dict[str, Any]:
    size = file.stat().st_size
    if size > _MAX_JSON:
        raise SourceError(f"{file} is too large for a settings file ({bytes_text(size)}).")
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise SourceError(f"{file} is not valid JSON ({size} bytes): fetch the model again.") from None
    except OSError as error:
        raise SourceError(f"{file} cannot be read: {error.strerror}.") from None
    if not isinstance(content, dict):
        raise SourceError(f"{file} must hold a JSON object, not a {type(content).__name__}.")
    return content


def _check_kernels(config: dict[str, Any], file: Path) -> None:
    """Refuse a config that has compiled code downloaded: an implementation named `org/repo` instead of `sdpa`."""
    for key, value in _entries(config):
        if key.endswith(("_implementation", "_implementation_internal")):
            for choice in _strings(value):
                if "/" in choice:
                    raise SourceError(f"{file} asks for code to be downloaded ({key}: {choice!r}): remove that entry.")


def _entries(value: Any) -> Iterator[tuple[str, Any]]:
    """All key and value pairs at any depth."""
    pending = [value]
    while pending:
        inner = pending.pop()
        if isinstance(inner, dict):
            yield from inner.items()
            pending.extend(inner.values())
        elif isinstance(inner, list):
            pending.extend(inner)


def _strings(value: Any) -> Iterator[str]:
    """The text itself, or all texts inside a mapping or list."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        yield from (item for item in value if isinstance(item, str))
    yield from (item for _, item in _entries(value) if isinstance(item, str))


def _check_code(path: Path) -> None:
    for name in ("config.json", "tokenizer_config.json", "generation_config.json"):
        file = path / name
        if file.is_file() and any(key in ("auto_map", "custom_generate") for key, _ in _entries(_read_json(file))):
            raise SourceError(f"{file} asks for the model's own code to run: allow it with --trust-remote-code.")
    if (path / "custom_generate").exists():
        raise SourceError(
            f"{path / 'custom_generate'} holds the model's own code to run: allow it with --trust-remote-code."
        )


def _check_type(config: dict[str, Any], file: Path) -> None:
    kind, architectures = config.get("model_type"), config.get("architectures")
    if not isinstance(kind, str) or not kind:
        raise SourceError(f"{file} names no model_type, so it is not a language model's.")
    names = list(_strings(architectures))
    is_causal = any(name.endswith(_CAUSAL) or name in _ALSO_CAUSAL for name in names)
    if not is_causal and (names or kind in _OTHER_TYPES):
        as_what = f" as {names[0]}" if names and kind not in _OTHER_TYPES else ""
        raise SourceError(f"{file}: model type {kind}{as_what} is not a causal language model.")


def _check_weights(path: Path, config: dict[str, Any]) -> None:
    if "transformers_weights" in config:
        raise SourceError(f"{path / 'config.json'} names another weight file (transformers_weights): remove that.")
    shards = {path / "model.safetensors"} if (path / "model.safetensors").is_file() else set()
    if (path / _INDEX).is_file():
        shards |= _indexed(path)
    if not shards:
        raise SourceError(_why_no_weights(path))
    for shard in sorted(shards):
        inspect_safetensors(shard)


def _indexed(path: Path) -> set[Path]:
    """The shards that the index names."""
    index = path / _INDEX
    weight_map = _read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise SourceError(f"{index} has no weight_map: fetch the model again.")
    for name in weight_map.values():
        if not isinstance(name, str) or not _SHARD_NAME.fullmatch(name):
            raise SourceError(f"{index} must name only .safetensors files in its own folder, not {name!r}.")
        if not (path / name).is_file():
            raise SourceError(f"{path / name} is missing, which {index.name} names: fetch the model again.")
    return {path / name for name in weight_map.values()}


def _why_no_weights(path: Path) -> str:
    for file in sorted(path.iterdir()):
        if file.name.endswith(_PICKLES):
            return (
                f"{file} is a pickle file, which can run code when loaded: convert the model to safetensors "
                "(save_pretrained of transformers writes it) where you trust it."
            )
    return f"{path} has no model.safetensors and no {_INDEX}: there are no weights to load."
