"""The gate to transformers: a folder becomes a network and a tokenizer, and a failure there becomes one sentence."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from .device import memory_translated
from .errors import SourceError
from .quiet import quiet_libraries
from .safetensors_file import read_weight_facts

_MAX_UNEXPECTED = 0.05  # share of the network's tensors; above it the file holds another model
_TOKENIZER_FILES = ("tokenizer*", "vocab*", "*.model", "*.tiktoken", "merges.txt", "tekken.json", "*.vocab")
ITEM_SIZE = {"float32": 4, "float16": 2, "bfloat16": 2}  # bytes


class LibraryErrors:
    """A block whose library exceptions become a SourceError: `<where> cannot be used: <doing> failed (<reason>).`"""

    _KINDS = (
        OSError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        ImportError,
        RuntimeError,
        AssertionError,
    )

    def __init__(self, doing: str, where: Path) -> None:
        self._doing, self._where = doing, where

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        from safetensors import SafetensorError

        # tokenizers raises Exception itself, so that type alone is compared by identity.
        if kind is not None and (kind is Exception or issubclass(kind, (*self._KINDS, SafetensorError))):
            raise SourceError(f"{self._where} cannot be used: {self._doing} failed ({_reason(error)}).") from error


def _reason(error: BaseException | None) -> str:
    lines = str(error).strip().splitlines()
    text = lines[0].split(". ")[0].strip().rstrip(".:")[:300] if lines else ""
    is_bare = not text or isinstance(error, LookupError | AttributeError | AssertionError)
    return f"{type(error).__name__}: {text}".rstrip(": ") if is_bare else text


@contextmanager
def quiet() -> Iterator[None]:
    """Hold back the libraries' bars, logs and warnings while the block runs."""
    quiet_libraries()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def read_config(folder: Path, *, trust_remote_code: bool, gguf: Path | None = None) -> Any:
    """Read the configuration of a folder, or of a GGUF file in it, set to an attention that needs no download.

    gguf: the file's path as people know it; in `folder` it has the same name.
    Raises SourceError where it cannot be read or is not that of a causal language model.
    """
    from transformers import AutoConfig

    packed = {} if gguf is None else {"gguf_file": gguf.name}
    with LibraryErrors("reading its configuration", gguf or folder), quiet():
        config = AutoConfig.from_pretrained(
            folder, trust_remote_code=trust_remote_code, local_files_only=True, **packed
        )
    check_causal(config, trust_remote_code=trust_remote_code)
    _choose_attention(config)
    return config


def check_causal(config: Any, *, trust_remote_code: bool = False) -> None:
    """Raise SourceError unless a configuration is that of a causal language model."""
    known = network_classes()
    if trust_remote_code and "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {}):
        return
    is_known = type(config) in known and not getattr(config, "is_encoder_decoder", False)
    # Encoders such as BERT stand in that list as well: as decoders, which their configuration must then say.
    if is_known and getattr(config, "is_decoder", None) is False:
        names = config.architectures or [known[type(config)].__name__]
        is_known = any(name.endswith("ForCausalLM") for name in names)
    if not is_known:
        raise SourceError(f"Model type {config.model_type} is not a causal language model.")


def network_classes() -> Mapping[type, Any]:
    """Give the library's table of causal language models: configuration class to network class."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    table: Mapping[type, Any] = MODEL_FOR_CAUSAL_LM_MAPPING
    return table


def _choose_attention(config: Any) -> None:
    """Set sdpa, or eager where the model's class has no sdpa; only a loaded configuration takes this for sure."""
    known = network_classes()
    if type(config) in known:  # the class of a trusted folder's own code chooses for itself
        can_sdpa = getattr(known[type(config)], "_supports_sdpa", False)
        config._attn_implementation = "sdpa" if can_sdpa else "eager"


def load_weights(
    folder: Path, config: Any, *, device: str, dtype: str, trust_remote_code: bool
) -> tuple[Any, tuple[str, ...]]:
    """Load a folder's safetensors into a network on its device; give it with the notes that it deserves.

    Raises SourceError for missing, misshapen or foreign weights, OutOfMemory where the device is too small.
    """
    import torch
    from transformers import AutoModelForCausalLM

    loader: Any = AutoModelForCausalLM  # its annotation leaves out the report
    needed = read_weight_facts(folder).num_weights * ITEM_SIZE[dtype]
    spread = {"device_map": "balanced"} if device == "balanced" else {}
    with (
        LibraryErrors("loading its weights", folder),
        memory_translated("loading the model", device, needed),
        quiet(),
    ):
        network, report = loader.from_pretrained(
            folder,
            config=config,
            dtype=getattr(torch, dtype),
            use_safetensors=True,
            trust_remote_code=trust_remote_code,
            local_files_only=True,
            output_loading_info=True,
            **spread,
        )
        notes = check_report(report, folder, num_tensors=len(network.state_dict()))
        return place(network, device), notes


def place(network: Any, device: str) -> Any:
    """Give a network on its device, ready to generate: no gradients, no dropout."""
    if device not in ("cpu", "balanced"):  # balanced: the loader has spread it already
        network = network.to(device)
    return network.eval().requires_grad_(False)


def check_report(report: Mapping[str, Any], where: Path, *, num_tensors: int) -> tuple[str, ...]:
    """Give the notes that a loading report deserves.

    Raises SourceError where weights are missing, of another shape, or too many are unknown.
    """
    missing, unexpected = sorted(report["missing_keys"]), sorted(report["unexpected_keys"])
    misshapen = sorted(str(entry[0] if isinstance(entry, tuple) else entry) for entry in report["mismatched_keys"])
    if missing:
        raise SourceError(f"{where} lacks {listed(missing)}; they would be random numbers.")
    if misshapen:
        raise SourceError(f"{where} holds {listed(misshapen)} of another shape than its configuration says.")
    if failed := [str(message) for message in report.get("error_msgs") or ()]:
        raise SourceError(f"{where} cannot be used: loading its weights failed ({failed[0].splitlines()[0]}).")
    if len(unexpected) > _MAX_UNEXPECTED * num_tensors:
        raise SourceError(f"{where} holds {listed(unexpected)} that its configuration does not know.")
    return (f"{where} holds {listed(unexpected)} that the model does not use.",) if unexpected else ()


def listed(names: list[str]) -> str:
    """Give a count of weights with the first names: `5 weights (a, b, c, ...)`."""
    more = ", ..." if len(names) > 3 else ""
    return f"{len(names)} weight{'' if len(names) == 1 else 's'} ({', '.join(names[:3])}{more})"


def require_tokenizer(folder: Path) -> None:
    """Raise SourceError for a folder without any file that a tokenizer is read from."""
    if not any(any(folder.glob(pattern)) for pattern in _TOKENIZER_FILES):
        raise SourceError(f"{folder} has no tokenizer: tokenizer.json or the like must lie beside the weights.")


def read_tokenizer(folder: Path, *, trust_remote_code: bool, gguf: Path | None = None) -> Any:
    """Read the tokenizer of a folder, or of a GGUF file that lies in it."""
    from transformers import AutoTokenizer

    packed = {} if gguf is None else {"gguf_file": gguf.name}
    with LibraryErrors("reading its tokenizer", gguf or folder), quiet():
        return AutoTokenizer.from_pretrained(
            folder, trust_remote_code=trust_remote_code, local_files_only=True, **packed
        )
