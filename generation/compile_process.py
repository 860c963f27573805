"""`python -m minigen.generation.compile_process MODEL WEIGHTS OUT RESULT`: compiles the decode step of a model.

A process of its own: the compiler changes much in the one that it runs in, and takes a lot of memory. What it tells
goes into the file RESULT, as JSON: what a package must know, or `error` or `errno`.
"""

import json
import os
import signal
import sys
import threading
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .block_trial import tried_cache
from .errors import MinigenError, RunError
from .facts import rotary_type_of
from .light_tokenizer import LightTokenizer, is_same
from .model import Model
from .package import runner_of
from .package_key import BLOCK_SIZE, FLAGS, most_threads
from .packages import OWN, STEP
from .pools import pool_shapes
from .quiet import quiet_libraries
from .safetensors_file import read_weight_facts, weight_files
from .transformers_gate import load_weights, quiet, read_config, read_tokenizer

_MOST_BLOCKS = 2**20
_DTYPES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}
_FAILURES = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def main() -> None:
    """Do what the process was started for."""
    weights = sys.argv[2]
    model, out, result = map(Path, (sys.argv[1], *sys.argv[3:]))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    quiet_libraries()
    try:
        _require_compiler()
        told = _compiled(model, weights, out)
    except OSError as error:
        told = {"errno": error.errno or 0}
    except MinigenError as error:
        told = {"error": str(error)}
    result.write_text(json.dumps(told), encoding="utf-8")


def _end_with_parent() -> None:
    """Wait until the process that wants the step is gone, and end this one with the compilers that it runs."""
    while os.read(0, 1):  # not by sys.stdin, whose lock would be held when this process ends
        pass
    os.killpg(os.getpid(), signal.SIGKILL)


def _require_compiler() -> None:
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except (InvalidCxxCompiler, OSError, RuntimeError) as error:
        raise RunError("compiling needs a C++ compiler, and none was found; install g++ or clang") from error


@torch.no_grad()
def _compiled(model: Path, weights: str, out: Path) -> dict[str, Any]:
    """Write the code and its own weights into a folder.

    Give, by file, what each constant is called there, the heads and dim of every pool, how to start light, and what the
    weights cost.
    """
    from .step import step_of, turning

    config = read_config(model, trust_remote_code=False)
    network, notes = load_weights(model, config, device="cpu", dtype=_dtype(model), trust_remote_code=False)
    if rotary_type_of(network.config) == "dynamic":
        raise RunError("its rotary positions depend on the length of the text")
    light = _light(model, network, notes)
    try:
        shapes = _shapes(network)
        perplexity = _narrowed(network, model, weights)
        step = step_of(network)
        with quiet(), turning(network):
            program = _exported(step, shapes)
            packed = out / "step.pt2"
            torch.set_num_threads(most_threads())  # with just as many the compiler leaves their number to the run
            torch._inductor.aoti_compile_and_package(program, package_path=str(packed), inductor_configs=dict(FLAGS))
            _unpack(packed, out / STEP)
    except _FAILURES as error:
        inner = getattr(error, "inner_exception", None)  # of the compiler's own kind of error
        if isinstance(inner, OSError):
            raise inner from error
        raise RunError(_reason(inner or error)) from error
    state = _state(step)
    known: dict[str, Any] = {**program.constants, **state}
    needed = runner_of(out / STEP).get_constant_names_to_original_fqns().values()
    wanted = dict.fromkeys(needed if weights == "exact" else [*state, *needed])
    constants = _placed({name: known[name].detach() for name in wanted}, model, out)
    return {"constants": constants, "pools": shapes, "light": light, "perplexity": perplexity}


def _narrowed(network: Any, model: Path, weights: str) -> dict[str, float] | None:
    """Make the layers of a network narrow; give its perplexity before and after where that changes the weights."""
    from .narrow_layers import LANES, Int8Linear, filled_network, make_narrow
    from .weight_cost import perplexity, reference_ids

    make_narrow(network.eval(), weights="exact")
    if weights == "exact":
        return None
    tokenizer = read_tokenizer(model, trust_remote_code=False)
    wrapped = Model.wrap(network, tokenizer)
    passages = reference_ids(tokenizer, wrapped.window, wrapped.vocab_size)
    exact = perplexity(network, passages)
    make_narrow(network, weights=weights)
    if not any(type(module) is Int8Linear for module in network.modules()):
        raise RunError(f"no row of its weights parts into {LANES}, as {weights} needs")
    again = filled_network(read_config(model, trust_remote_code=False), weights, _state(network))
    if perplexity(again, passages[:1]) != perplexity(network, passages[:1]):
        raise RunError("its network cannot be put together again around other weights")
    return {"exact": exact, "package": perplexity(network, passages)}


def _state(module: Any) -> dict[str, Tensor]:
    """Give all that a module holds, by name."""
    return {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }


def _unpack(packed: Path, target: Path) -> None:
    """Take the code out of a package of PyTorch's, which else is unpacked anew for every run."""
    with zipfile.ZipFile(packed) as archive:
        [name] = [each for each in archive.namelist() if each.endswith(".so")]
        target.write_bytes(archive.read(name))
    packed.unlink()


def _reason(error: BaseException) -> str:
    """Say what failed: the line of a compiler that names an error, or the first of what is told."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return next((line for line in lines if "error:" in line or "fatal:" in line), lines[0])


def _dtype(model: Path) -> str:
    """Give the type that a folder's weights are in, so that the step computes with the numbers as they were saved."""
    found = {_DTYPES.get(name, "float32") for name in read_weight_facts(model).dtypes}
    return found.pop() if len(found) == 1 else "float32"


def _light(model: Path, network: Any, notes: Sequence[str]) -> Mapping[str, Any] | None:
    """Give what a start without transformers must know; None where its tokenizer would not be the same."""
    full = read_tokenizer(model, trust_remote_code=False)
    try:
        if not is_same(LightTokenizer(model), full):
            return None
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    wrapped = Model.wrap(network, full)
    return {
        "vocab_size": wrapped.vocab_size,
        "window": wrapped.window,
        "end_token_ids": list(wrapped.end_token_ids),
        "notes": list(notes),
    }


def _shapes(network: Any) -> list[tuple[int, int]]:
    """Give heads and dim of the keys of every layer, then of the values, as the trial that the engine makes shows them.

    The network is one that is not yet rewritten.
    """
    layers = tried_cache(network).layers
    shapes = [(layer.keys.shape[1], layer.keys.shape[2]) for layer in layers]
    shapes += [(layer.values.shape[1], layer.values.shape[3]) for layer in layers]
    if any(heads != shapes[0][0] for heads, _ in shapes):
        raise RunError("its layers have different numbers of key heads")
    return shapes


def _exported(step: Any, shapes: Sequence[tuple[int, int]]) -> Any:
    """Trace a step for one row; how many blocks it reads and how many there are stays open."""
    read = torch.export.Dim("read", min=2, max=_MOST_BLOCKS)
    held = torch.export.Dim("held", min=3, max=_MOST_BLOCKS)
    pools = [torch.zeros(6, *shape) for shape in pool_shapes(shapes, BLOCK_SIZE)]
    half = len(pools) // 2
    given = (torch.tensor([5]), torch.tensor([3]), torch.ones(1, 4, dtype=torch.long), pools[:half], pools[half:])
    is_open = [{0: held}] * half
    return torch.export.export(step, given, dynamic_shapes=(None, None, {1: read}, is_open, is_open), strict=False)


def _placed(constants: Mapping[str, Tensor], model: Path, out: Path) -> dict[str, dict[str, str]]:
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
    save_file({name: tensor.contiguous().clone() for name, tensor in left.items()}, out / OWN)
    if left:
        found[OWN] = {name: name for name in left}
    return found


def _names(inner: str) -> list[str]:
    """Give what a constant of the graph may be called in the model's files."""
    name = inner.removeprefix("network.")
    return [name, "model.embed_tokens.weight" if name == "lm_head.weight" else name]


def _is_same(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and other.is_contiguous() and torch.equal(one, other)


if __name__ == "__main__":
    main()
