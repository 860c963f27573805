"""Loading a model: settings become a network, its tokenizer, and what the engine must know about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .collection import paused_collection
from .device import choose_device, choose_dtype, dtype_warnings
from .facts import end_token_ids, vocab_size_of, window_of
from .fetching import fetch
from .folder import inspect_folder, inspect_gguf
from .gguf_model import load_gguf
from .lazy_network import LazyNetwork
from .progress import SILENT, Progress, bytes_text
from .quiet import quiet_libraries
from .ranges import Range
from .sampling_defaults import sampling_defaults
from .sources import ModelFiles, ModelSettings, PathSource, parse_source
from .transformers_gate import (
    ITEM_SIZE,
    LibraryErrors,
    load_weights,
    quiet,
    read_config,
    read_tokenizer,
    require_tokenizer,
)

if TYPE_CHECKING:
    from .package import Package

__all__ = ["Model", "end_token_ids", "load_model", "window_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A network with its tokenizer, ready to generate, and what was found out about them."""

    network: Any  # a causal language model in eval mode, without gradients
    tokenizer: Any
    name: str
    path: Path | None = None
    revision: str | None = None
    window: int | None = None  # tokens; None: unknown
    vocab_size: int = 0  # width of the logits
    end_token_ids: tuple[int, ...] = ()
    device: str = "cpu"
    dtype: str = "float32"
    sampling_defaults: Mapping[str, Any] = field(default_factory=dict)  # from generation_config.json
    warnings: tuple[str, ...] = ()
    package: Package | None = None  # its decode step, compiled
    has_graphs: bool = True  # whether a CUDA GPU may replay its decode step as a graph

    @property
    def has_chat_template(self) -> bool:
        """Whether the tokenizer knows how to write a conversation."""
        return bool(getattr(self.tokenizer, "chat_template", None))

    @classmethod
    def wrap(cls, network: Any, tokenizer: Any, *, name: str = "model") -> Model:
        """Give a Model around a network that is already in memory."""
        return cls(
            network=network,
            tokenizer=tokenizer,
            name=name,
            window=window_of(getattr(network, "config", None)),
            vocab_size=vocab_size_of(network) or len(tokenizer),
            end_token_ids=end_token_ids(network, tokenizer),
            device=str(getattr(network, "device", "cpu")),
            dtype=str(getattr(network, "dtype", "float32")).removeprefix("torch."),
        )


def load_model(
    model: ModelSettings | str | Path,
    *,
    offline: bool = False,
    progress: Progress = SILENT,
    threads: int | None = None,
) -> Model:
    """Fetch what is not yet on disk, check it, and load it onto its device.

    model: settings, a hub id, a folder or a .gguf file. Device and number type are settled before anything is fetched.
    Raises SourceError, DeviceError, FetchError, OutOfMemory, and RunError where a required compiled step is missing.
    """
    settings = _settings_of(model)
    quiet_libraries()
    with paused_collection():
        import torch

        device = choose_device(settings.device)
        dtype = choose_dtype(settings.dtype, device)
        if threads is not None:
            torch.set_num_threads(int(Range(int, 1).check("threads", threads)))
        files = fetch(settings.sources, offline=offline, progress=progress, with_code=settings.trust_remote_code)
        from .package import package_for

        package, stale = package_for(files, settings.compile, weights=settings.weights, device=device, dtype=dtype)
        if package is not None and (package.facts.light is not None or package.facts.weights != "exact"):
            loaded = _load_compiled(files, package)
        elif files.gguf is None:
            loaded = _load_folder(files, device, dtype, settings.trust_remote_code)
        else:
            loaded = _load_gguf(files, device, dtype, progress)
    defaults, doubts = sampling_defaults(files.path) if files.gguf is None else ({}, ())
    return replace(
        loaded,
        path=files.path,
        revision=files.revision,
        device=device,
        dtype=dtype,
        sampling_defaults=defaults,
        package=package,
        has_graphs=settings.compile != "never",
        warnings=(*dtype_warnings(dtype, device), *stale, *doubts, *loaded.warnings),
    )


def _settings_of(model: ModelSettings | str | Path) -> ModelSettings:
    if isinstance(model, ModelSettings):
        return model
    source = PathSource(model) if isinstance(model, Path) else parse_source(model)
    return ModelSettings(sources=(source,))


def _load_compiled(files: ModelFiles, package: Package) -> Model:
    """Load what a compiled step needs, without transformers if that will do: then the network comes when it must."""
    inspect_folder(files.path, trust_remote_code=False)
    network, known = LazyNetwork(partial(_network_beside, files, package)), package.facts.light
    if known is None:
        return Model.wrap(network, read_tokenizer(files.path, trust_remote_code=False), name=files.name)
    from .light_tokenizer import LightTokenizer

    return Model(
        network=network,
        tokenizer=LightTokenizer(files.path),
        name=files.name,
        window=known.window,
        vocab_size=known.vocab_size,
        end_token_ids=tuple(known.end_token_ids),
        warnings=tuple(known.notes),
    )


def _network_beside(files: ModelFiles, package: Package) -> Any:
    """Give the network that does what a compiled step does not: over the weights of the step, if it has its own."""
    if package.facts.weights == "exact":
        return _packed_network(files, "cpu", "float32", trust_remote_code=False)[0]
    from .lean_layers import make_lean
    from .narrowing import filled_network

    config = read_config(files.path, trust_remote_code=False)
    with LibraryErrors("building its network", files.path), quiet():
        network = filled_network(config, package.facts.weights, package.weights)
        make_lean(network)
    return network


def _load_folder(files: ModelFiles, device: str, dtype: str, trust_remote_code: bool) -> Model:
    inspect_folder(files.path, trust_remote_code=trust_remote_code)
    require_tokenizer(files.path)
    network, notes = _packed_network(files, device, dtype, trust_remote_code=trust_remote_code)
    tokenizer = read_tokenizer(files.path, trust_remote_code=trust_remote_code)
    return replace(Model.wrap(network, tokenizer, name=files.name), warnings=notes)


def _packed_network(
    files: ModelFiles, device: str, dtype: str, *, trust_remote_code: bool
) -> tuple[Any, tuple[str, ...]]:
    config = read_config(files.path, trust_remote_code=trust_remote_code)
    network, notes = load_weights(files.path, config, device=device, dtype=dtype, trust_remote_code=trust_remote_code)
    return _packed(network, device), notes


def _packed(network: Any, device: str) -> Any:
    """Pack the weights of a network on a CPU, and let it go over memory less often."""
    if device == "cpu":
        from .lean_layers import make_lean
        from .linear import pack_linears

        pack_linears(network)
        if str(network.dtype) == "torch.float32":
            make_lean(network)
    return network


def _load_gguf(files: ModelFiles, device: str, dtype: str, progress: Progress) -> Model:
    path = files.path / str(files.gguf)
    facts = inspect_gguf(path)
    dense = facts.num_weights * ITEM_SIZE[dtype]
    packed = bytes_text(path.stat().st_size)
    progress.note(f"Unpacking {path.name}: {packed} on disk, {bytes_text(dense)} in memory as {dtype}.")
    network, tokenizer = load_gguf(path, device=device, dtype=dtype, num_weights=facts.num_weights)
    return replace(
        Model.wrap(_packed(network, device), tokenizer, name=files.name),
        end_token_ids=end_token_ids(network, tokenizer, facts.end_token_ids),
    )
