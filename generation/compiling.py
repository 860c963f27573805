"""Compiles a model's decode step ahead of time, and puts it into the user's cache as a package."""

import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .block_trial import tried_cache
from .errors import MinigenError, RunError
from .package_key import BLOCK_SIZE, FLAGS, key_of
from .packages import FACTS, OWN, STEP, PackageFacts, digest_of, folder_for, found_package, read_facts
from .progress import SILENT, Progress, phase
from .quiet import quiet_libraries
from .safetensors_file import weight_files
from .sources import ModelFiles
from .store import place
from .transformers_gate import load_weights, quiet, read_config

_MOST_BLOCKS = 2**20
_FAILURES = (AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def compile_package(files: ModelFiles, *, weights: str = "exact", progress: Progress = SILENT) -> PackageFacts:
    """Compile the decode step of a model in a folder, unless its package is there already; give the package's facts.

    Takes a minute or two. Raises RunError, with the reason, for a model that cannot be compiled, and where no C++
    compiler is found.
    """
    quiet_libraries()
    if files.gguf is not None:
        raise RunError(f"{files.name} is a GGUF file; only models with safetensors weights can be compiled.")
    _require_compiler()
    final = folder_for(files, weights)

    def is_done(folder: Path) -> bool:
        try:
            return found_package(files, weights) is not None
        except RunError:
            return False

    place(final, lambda aside: _make(files, weights, aside, progress), is_done, progress)
    return read_facts(final)


def _require_compiler() -> None:
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except (InvalidCxxCompiler, OSError, RuntimeError) as error:
        raise RunError("Compiling needs a C++ compiler, and none was found: install g++ or clang.") from error


def _make(files: ModelFiles, weights: str, aside: Path, progress: Progress) -> None:
    """Compile into `aside/model`, which the store puts into its place."""
    began = time.monotonic()
    folder = aside / "model"
    folder.mkdir(mode=0o700)
    with phase(progress, f"compiling the decode step of {files.name}, once"), _scratch(aside / "scratch"):
        constants, pools = _compiled(files, folder)
    facts = {
        "model": files.name,
        "model_folder": str(files.path.resolve()),
        "weights": weights,
        "key": dict(key_of(files, weights)),
        "build_seconds": round(time.monotonic() - began, 1),
        "digests": {name: digest_of(folder / name) for name in (STEP, OWN)},
        "pools": pools,
        "constants": constants,
    }
    (folder / FACTS).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


@contextmanager
def _scratch(folder: Path) -> Iterator[None]:
    """Have the compiler work in a folder that goes away with the build."""
    before = {name: os.environ.get(name) for name in ("TORCHINDUCTOR_CACHE_DIR", "TMPDIR")}
    folder.mkdir(mode=0o700)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        shutil.rmtree(folder, ignore_errors=True)


@torch.no_grad()
def _compiled(files: ModelFiles, folder: Path) -> tuple[Mapping[str, Mapping[str, str]], list[tuple[int, int]]]:
    """Write the code and its own weights into a folder.

    Give, by file, what each constant is called there, and the heads and dim of every pool.
    """
    from .step import step_of

    config = read_config(files.path, trust_remote_code=False)
    network, _ = load_weights(files.path, config, device="cpu", dtype=_dtype(files.path), trust_remote_code=False)
    try:
        pools = _pools(network)
        step = step_of(network)
        with quiet():
            program = _exported(step, pools)
            torch._inductor.aoti_compile_and_package(
                program, package_path=str(folder / STEP), inductor_configs=dict(FLAGS)
            )
    except (MinigenError, *_FAILURES) as error:
        inner = getattr(error, "inner_exception", None)  # of the compiler's own kind of error
        if isinstance(inner, OSError):
            raise inner from error  # a full disk is the store's to say
        reason = str(error) if isinstance(error, MinigenError) else f"{type(error).__name__}: {error}"
        raise RunError(f"{files.name} cannot be compiled: {reason.strip().splitlines()[0].rstrip('.')}.") from error
    state: dict[str, Any] = dict(step.named_parameters(remove_duplicate=False))
    state |= dict(step.named_buffers(remove_duplicate=False)) | dict(program.constants)
    names = torch._C._aoti.AOTIModelPackageLoader(str(folder / STEP), "model", False, 1, -1).get_constant_fqns()
    constants = _placed({name: state[name].detach() for name in names}, files.path, folder)
    return constants, [(pool.shape[1], pool.shape[3]) for pool in pools]


def _dtype(folder: Path) -> str:
    """Give the type that a folder's weights are in, so that the step computes with the numbers as they were saved."""
    from .safetensors_file import read_weight_facts

    names = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}
    found = {names.get(name, "float32") for name in read_weight_facts(folder).dtypes}
    return found.pop() if len(found) == 1 else "float32"


def _pools(network: Any) -> list[Tensor]:
    """Give small pools for a network that is not yet rewritten; the trial that the engine makes shows their shapes."""
    cache = tried_cache(network)
    pools = [*(layer.keys for layer in cache.layers), *(layer.values for layer in cache.layers)]
    if any(pool.shape[1] != pools[0].shape[1] for pool in pools):
        raise RunError("its layers have different numbers of key heads")
    return [torch.zeros(6, pool.shape[1], BLOCK_SIZE, pool.shape[3]) for pool in pools]


def _exported(step: Any, pools: list[Tensor]) -> Any:
    """Trace a step for one row; how many blocks it reads and how many there are stays open."""
    read = torch.export.Dim("read", min=2, max=_MOST_BLOCKS)
    held = torch.export.Dim("held", min=3, max=_MOST_BLOCKS)
    half = len(pools) // 2
    given = (torch.tensor([5]), torch.tensor([3]), torch.ones(1, 4, dtype=torch.long), pools[:half], pools[half:])
    is_open = [{0: held}] * half
    return torch.export.export(step, given, dynamic_shapes=(None, None, {1: read}, is_open, is_open), strict=False)


def _placed(constants: Mapping[str, Tensor], model: Path, folder: Path) -> dict[str, dict[str, str]]:
    """Find each constant among the model's weights; save those that are not there."""
    from safetensors import safe_open
    from safetensors.torch import save_file

    found: dict[str, dict[str, str]] = {}
    left = dict(constants)
    for path in weight_files(model):
        with safe_open(path, "pt") as file:
            saved = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
        for inner, tensor in constants.items():
            outer = next((name for name in _names(inner) if name in saved), None)
            if inner in left and outer is not None and _is_same(saved[outer], tensor):
                found.setdefault(path.name, {})[inner] = outer
                del left[inner]
    save_file({name: tensor.contiguous().clone() for name, tensor in left.items()}, folder / OWN)
    if left:
        found[OWN] = {name: name for name in left}
    return found


def _names(inner: str) -> list[str]:
    """Give what a constant of the graph may be called in the model's files."""
    name = inner.removeprefix("network.")
    return [name, "model.embed_tokens.weight" if name == "lm_head.weight" else name]


def _is_same(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and other.is_contiguous() and torch.equal(one, other)
