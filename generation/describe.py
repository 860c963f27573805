"""What a model's files say about it, read without loading the weights or the model libraries."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from .errors import SourceError
from .facts import end_token_ids, window_of
from .folder import inspect_folder, inspect_gguf
from .safetensors_file import read_weight_facts
from .sources import ModelFiles

_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F64": "float64"}
_TEMPLATES = ("chat_template.jinja", "chat_template.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndToken:
    """A token that ends a text."""

    id: int
    text: str | None  # None: its tokenizer's files do not tell


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A model on this disk, as far as its files tell."""

    name: str
    path: Path
    revision: str | None
    architecture: str
    num_weights: int
    dtype: str
    num_bytes: int  # of the weights on disk
    window: int | None
    vocab_size: int | None
    end_tokens: tuple[EndToken, ...]
    has_chat_template: bool
    needs_own_code: bool


def describe(files: ModelFiles) -> Description:
    """Describe a model from its files. Raises SourceError for a folder or a file that could not be loaded either."""
    return _describe_folder(files) if files.gguf is None else _describe_gguf(files, files.path / files.gguf)


def _describe_folder(files: ModelFiles) -> Description:
    folder = files.path
    inspect_folder(folder, trust_remote_code=True)  # nothing runs here, so code of its own may be described
    config, weights = _read(folder / "config.json"), read_weight_facts(folder)
    text_config = _namespace(config)
    try:
        tokenizer = _FolderTokenizer(folder)
    except (ValueError, LookupError, TypeError, AttributeError):
        raise SourceError(f"The tokenizer files in {folder} are damaged: fetch the model again.") from None
    network = SimpleNamespace(
        config=text_config, generation_config=SimpleNamespace(**_read(folder / "generation_config.json"))
    )
    dtype = max(weights.dtypes, key=lambda name: weights.dtypes[name])
    return Description(
        name=files.name,
        path=folder,
        revision=files.revision,
        architecture=(config.get("architectures") or [config["model_type"]])[0],
        num_weights=weights.num_weights,
        dtype=_DTYPES.get(dtype, dtype),
        num_bytes=weights.num_bytes,
        window=window_of(text_config),
        vocab_size=_vocab_size(text_config),
        end_tokens=tuple(EndToken(id=i, text=tokenizer.texts.get(i)) for i in end_token_ids(network, tokenizer)),
        has_chat_template=bool(tokenizer.chat_template),
        needs_own_code="auto_map" in config,
    )


def _vocab_size(config: Any) -> int | None:
    sizes = [getattr(part, "vocab_size", None) for part in (getattr(config, "text_config", None), config)]
    return next((size for size in sizes if isinstance(size, int)), None)


def _namespace(config: dict[str, Any]) -> SimpleNamespace:
    nested = config.get("text_config")
    changes = {"text_config": SimpleNamespace(**nested)} if isinstance(nested, dict) else {}
    return SimpleNamespace(**config | changes)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (ValueError, RecursionError):
        raise SourceError(f"{path} is not valid JSON: fetch the model again.") from None
    return content if isinstance(content, dict) else {}


class _FolderTokenizer:
    """What end tokens are found by, read from a folder's tokenizer files."""

    def __init__(self, folder: Path) -> None:
        settings, core = _read(folder / "tokenizer_config.json"), _read(folder / "tokenizer.json")
        added = {int(token_id): token for token_id, token in (settings.get("added_tokens_decoder") or {}).items()}
        added |= {token["id"]: token for token in core.get("added_tokens") or []}
        self.texts = {token_id: str(token["content"]) for token_id, token in added.items()}
        self.added_tokens_decoder = {i: _Added(self.texts[i], bool(added[i].get("special"))) for i in added}
        end = settings.get("eos_token")
        end = end.get("content") if isinstance(end, dict) else end
        self.eos_token_id = next((token_id for token_id, text in self.texts.items() if text == end), None)
        self.chat_template = settings.get("chat_template") or any((folder / name).exists() for name in _TEMPLATES)


@dataclass(frozen=True, slots=True)
class _Added:
    content: str
    special: bool

    def __str__(self) -> str:
        return self.content


def _describe_gguf(files: ModelFiles, path: Path) -> Description:
    from gguf import GGUFReader

    facts = inspect_gguf(path)
    fields = GGUFReader(path).fields
    tokens = fields.get("tokenizer.ggml.tokens")
    texts = {i: tokens.contents(i) if tokens and i < len(tokens.data) else None for i in facts.end_token_ids}
    window, vocab_size = (fields.get(f"{facts.architecture}.{key}") for key in ("context_length", "vocab_size"))
    return Description(
        name=files.name,
        path=path,
        revision=None,
        architecture=facts.architecture,
        num_weights=facts.num_weights,
        dtype="packed (GGUF)",
        num_bytes=path.stat().st_size,
        window=int(window.contents()) if window else None,
        vocab_size=int(vocab_size.contents()) if vocab_size else len(tokens.data) if tokens else None,
        end_tokens=tuple(EndToken(id=token_id, text=text) for token_id, text in texts.items()),
        has_chat_template="tokenizer.chat_template" in fields,
        needs_own_code=False,
    )
