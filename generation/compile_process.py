"""`python -m minigen.generation.compile_process MODEL WEIGHTS ROWS OUT RESULT`: compiles the decode steps of a model.

A process of its own: the compiler changes much in the one that it runs in, and takes a lot of memory. For one row it
starts itself again, for several rows, since the compiler works on one thread, and makes the package of what both give.
What it tells goes into the file RESULT, as JSON; compile_child.py reads it.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .block_trial import tried_cache
from .compile_child import compilation, has_failed
from .compiled_code import FAILURES, Code, state_of, what_failed, write_code
from .errors import MinigenError, RunError
from .facts import rotary_type_of
from .light_tokenizer import LightTokenizer, is_same
from .model import Model
from .package import INNER
from .package_key import MOST_ROWS
from .packages import own_name
from .placed_weights import placed
from .quiet import quiet_libraries
from .transformers_gate import load_weights, read_config, read_tokenizer

_TRACED = "traced.safetensors"  # constants of the step for several rows, on their way between the processes


def main() -> None:
    """Do what the process was started for."""
    weights, rows = sys.argv[2], int(sys.argv[3])
    model, out, result = map(Path, (sys.argv[1], *sys.argv[4:]))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    quiet_libraries()
    try:
        _require_compiler()
        told = (_packaged if rows == 1 else _widened)(model, weights, out, result.parent)
    except OSError as error:
        told = {"errno": error.errno or 0}
    except MinigenError as error:
        told = {"error": str(error)}
    except FAILURES as error:
        told = what_failed(error)
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
def _packaged(model: Path, weights: str, out: Path, scratch: Path) -> dict[str, Any]:
    """Write the code for one row and for several, and the weights that both need, into a folder.

    Give, by file, what each constant is called there, the heads and dim of every pool, how to start light, and what the
    weights cost.
    """
    network, notes = _loaded(model)
    shapes = _shapes(network)
    with compilation(model, weights, MOST_ROWS, out, scratch) as beside:
        light = _light(model, network, notes)
        perplexity = _narrowed(network, model, weights)
        code = write_code(network, shapes, 1, out)
        wide = beside.told()
    if has_failed(wide):
        return wide
    constants = placed(_constants(network, weights, code, _read(wide, scratch)), model, out)
    return {"constants": constants, "pools": shapes, "light": light, "perplexity": perplexity}


@torch.no_grad()
def _widened(model: Path, weights: str, out: Path, scratch: Path) -> dict[str, Any]:
    """Write the code for several rows into a folder, and its own constants aside; give what the code reads."""
    from safetensors.torch import save_file

    from .narrowing import make_narrow

    network, _ = _loaded(model)
    shapes = _shapes(network)
    make_narrow(network.eval(), weights=weights)
    code = write_code(network, shapes, MOST_ROWS, out)
    save_file({name: tensor.contiguous().clone() for name, tensor in code.own.items()}, scratch / _TRACED)
    return {"shared": list(code.shared)}


def _read(wide: Mapping[str, Any], scratch: Path) -> Code:
    """Give what the other process tells of its code."""
    from safetensors.torch import load_file

    return Code(shared=wide["shared"], own=load_file(scratch / _TRACED))


def _constants(network: Any, weights: str, code: Code, wide: Code) -> dict[str, Tensor]:
    """Give the tensors that a package needs: those that its steps read, and with other weights all of the network."""
    state = {f"{INNER}{name}": tensor for name, tensor in state_of(network).items()}
    names = [*code.shared, *wide.shared] if weights == "exact" else state
    found = {name: state[name].detach() for name in dict.fromkeys(names)}
    for rows, each in ((1, code), (MOST_ROWS, wide)):
        found |= {own_name(rows, name): tensor for name, tensor in each.own.items()}
    return found


def _loaded(model: Path) -> tuple[Any, Sequence[str]]:
    """Load a network with notes on its weights: in float32, for what it holds beside them was not saved in another."""
    config = read_config(model, trust_remote_code=False)
    network, notes = load_weights(model, config, device="cpu", dtype="float32", trust_remote_code=False)
    if rotary_type_of(network.config) == "dynamic":
        raise RunError("its rotary positions depend on the length of the text")
    return network, notes


def _narrowed(network: Any, model: Path, weights: str) -> dict[str, float] | None:
    """Make the layers of a network narrow; give its perplexity before and after where that changes the weights."""
    from .narrow_layers import Int8Linear
    from .narrowing import filled_network, make_narrow
    from .twelve_bits import LANES
    from .weight_cost import perplexity, reference_ids

    network.eval()
    if weights == "exact":
        make_narrow(network, weights=weights)
        return None
    make_narrow(network, weights="saved")
    tokenizer = read_tokenizer(model, trust_remote_code=False)
    wrapped = Model.wrap(network, tokenizer)
    passages = reference_ids(tokenizer, wrapped.window, wrapped.vocab_size)
    exact = perplexity(network, passages)
    make_narrow(network, weights=weights)
    if not any(type(module) is Int8Linear for module in network.modules()):
        raise RunError(f"no row of its weights parts into {LANES}, as {weights} needs")
    again = filled_network(read_config(model, trust_remote_code=False), weights, state_of(network))
    if perplexity(again, passages[:1]) != perplexity(network, passages[:1]):
        raise RunError("its network cannot be put together again around other weights")
    return {"exact": exact, "package": perplexity(network, passages)}


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


if __name__ == "__main__":
    main()
