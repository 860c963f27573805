"""Loading a GGUF file: its packed weights are unpacked into a dense network, and every tensor must be used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from .device import memory_translated
from .errors import SourceError, UsageError
from .quiet import silence_gguf_bar
from .transformers_gate import (
    ITEM_SIZE,
    LibraryErrors,
    check_report,
    network_classes,
    place,
    quiet,
    read_config,
    read_tokenizer,
)

_ROPE_FACTORS = "rope_freqs.weight"  # divides the rotary frequencies; not a weight of the network
_DERIVED = (
    ".attn.rot_embd",
    ".attn_rot_embd",
    ".attn.masked_bias",
    ".attn.bias",
)  # derived from the settings


def load_gguf(path: Path, *, device: str, dtype: str, num_weights: int) -> tuple[Any, Any]:
    """Load a GGUF file; give the network, with dense weights, and the tokenizer.

    num_weights: how many single weights the file holds.
    Raises SourceError for an architecture or tensors that are not understood, OutOfMemory where memory is too small.
    """
    needed = num_weights * ITEM_SIZE[dtype]
    with _alone(path) as folder:
        config = read_config(folder, trust_remote_code=False, gguf=path)
        tokenizer = read_tokenizer(folder, trust_remote_code=False, gguf=path)
        with (
            LibraryErrors("unpacking its weights", path),
            memory_translated("unpacking the model", device, needed),
            quiet(),
        ):
            network = _unpack(folder, path, config, dtype, num_weights)
            return place(network, device), tokenizer


@contextmanager
def _alone(path: Path) -> Iterator[Path]:
    """Give a folder with the GGUF file alone, so that no settings of a neighbouring model are read."""
    with TemporaryDirectory(prefix="minigen-") as folder:
        link = Path(folder) / path.name
        try:
            link.symlink_to(path.resolve())
        except OSError:  # where links need rights, the file is read where it lies
            yield path.parent
            return
        yield Path(folder)


def _unpack(folder: Path, path: Path, config: Any, dtype: str, num_weights: int) -> Any:
    """Build the network and fill it: every tensor of the file must be used, every one of the network filled."""
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig
    from transformers.integrations.gguf.reader import read_gguf_metadata
    from transformers.integrations.gguf.utils import is_gguf_arch_supported

    metadata, names = read_gguf_metadata(str(path))
    architecture = str(metadata["general.architecture"])
    options: dict[str, Any] = {"config": config, "dtype": getattr(torch, dtype), "output_loading_info": True}
    if is_gguf_arch_supported(architecture):  # the library's newer reader, which reports what it cannot place
        if find_spec("accelerate") is None:
            raise UsageError(f'{architecture} GGUF files need accelerate: pip install "minigen-cli[balanced]".')
        options |= {"gguf_file": path.name, "quantization_config": GgufConfig(dequantize=True)}
        loader: Any = AutoModelForCausalLM  # its annotation leaves out the report
        network, report = loader.from_pretrained(folder, trust_remote_code=False, **options)
    else:
        tensors = _read_tensors(path, config, options["dtype"])
        extras = _read_extras(path, names)
        _check_all_used(path, tensors, num_weights - sum(values.size for values in extras.values()))
        network, report = network_classes()[type(config)].from_pretrained(None, state_dict=tensors, **options)
        _apply_rope_factors(network, path, extras.get(_ROPE_FACTORS))
    check_report(report, path, num_tensors=len(network.state_dict()))
    return network


def _read_tensors(path: Path, config: Any, dtype: Any) -> dict[str, Any]:
    """Unpack the tensors, named as the network names them."""
    import torch
    from transformers import modeling_gguf_pytorch_utils

    silence_gguf_bar()
    reader: Any = modeling_gguf_pytorch_utils  # not annotated
    with torch.device("meta"):
        unfilled = network_classes()[type(config)](config)
    read = reader.load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=unfilled, torch_dtype=dtype)
    tensors: dict[str, Any] = read["tensors"]
    return tensors


def _read_extras(path: Path, names: Sequence[str]) -> dict[str, Any]:
    """Read the tensors that are not weights of the network, if the file has any: numpy arrays by name."""
    extras = {name for name in names if name == _ROPE_FACTORS or name.endswith(_DERIVED)}
    if not extras:
        return {}
    from gguf import GGUFReader

    return {tensor.name: tensor.data for tensor in GGUFReader(path).tensors if tensor.name in extras}


def _check_all_used(path: Path, tensors: Mapping[str, Any], num_weights: int) -> None:
    """Raise SourceError unless as many weights were read as the file holds.

    The reader skips what it does not know without a word. Single weights are counted, not tensors, because some
    architectures join several tensors into one.
    """
    num_used = sum(tensor.numel() for tensor in tensors.values())
    if num_used < num_weights:
        raise SourceError(
            f"{path} cannot be used: {num_weights - num_used} of its {num_weights} weights lie in tensors that are not "
            "understood for its architecture."
        )


def _apply_rope_factors(network: Any, path: Path, factors: Any | None) -> None:
    """Divide the rotary frequencies by the factors that Llama 3.1 files hold; the library leaves them out."""
    if factors is None:
        return
    import torch

    divisors = torch.tensor(factors, dtype=torch.float32)
    rotaries = [module for module in network.modules() if hasattr(module, "inv_freq")]
    if not rotaries or any(module.inv_freq.shape != divisors.shape for module in rotaries):
        raise SourceError(f"{path} cannot be used: its {_ROPE_FACTORS} do not fit the model's rotary embedding.")
    for module in rotaries:
        module.inv_freq.div_(divisors)
