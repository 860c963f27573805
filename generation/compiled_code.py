"""The code of a decode step: traced from a network for so many rows, and compiled ahead of time."""

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from .package import runner_of
from .package_key import BLOCK_SIZE, FLAGS, most_threads
from .packages import CODE
from .pools import pool_shapes
from .transformers_gate import quiet

_MOST_BLOCKS = 2**20
ON_STACK: Final = 2**18  # numbers, most of which take 4 bytes
ROOM: Final = "MAX_STACK_ALLOCATION_SIZE"  # the compiler's name for how many it keeps there
FAILURES: Final = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class Code:
    """What the code of a step reads beside what it is given."""

    shared: Sequence[str]  # names of tensors that the module holds
    own: Mapping[str, Tensor]  # constants that were made when it was traced


def write_code(network: Any, shapes: Sequence[tuple[int, int]], rows: int, out: Path) -> Code:
    """Compile the step of a network with narrow layers for so many rows, into a folder. Raises FAILURES."""
    from .step import step_of, turning

    step, packed = step_of(network), out / f"step-{rows}.pt2"
    with quiet(), turning(network), _room_on_stack():
        program = _exported(step, shapes, rows)
        torch.set_num_threads(most_threads())  # with just as many the compiler leaves their number to the run
        torch._inductor.aoti_compile_and_package(program, package_path=str(packed), inductor_configs=dict(FLAGS))
        _unpack(packed, out / CODE[rows])
    names = runner_of(out / CODE[rows]).get_constant_names_to_original_fqns().values()
    held = state_of(step)
    own = {name: program.constants[name].detach() for name in names if name not in held}
    return Code(shared=[name for name in names if name in held], own=own)


def state_of(module: Any) -> dict[str, Tensor]:
    """Give all that a module holds, by name."""
    return {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }


def _exported(step: Any, shapes: Sequence[tuple[int, int]], rows: int) -> Any:
    """Trace a step for so many rows; how many blocks each reads and how many there are stays open."""
    read = torch.export.Dim("read", min=2, max=_MOST_BLOCKS)
    held = torch.export.Dim("held", min=3, max=_MOST_BLOCKS)
    pools = [torch.zeros(6, *shape) for shape in pool_shapes(shapes, BLOCK_SIZE)]
    half = len(pools) // 2
    ids = torch.full((2, rows), 5)
    tables = torch.ones(rows, 3, dtype=torch.long)  # an odd few: the compiler then deals heads, too, out to the threads
    given = (ids[0].clone(), ids[1].clone(), tables, pools[:half], pools[half:])
    is_open = [{0: held}] * half
    return torch.export.export(step, given, dynamic_shapes=(None, None, {1: read}, is_open, is_open), strict=False)


@contextmanager
def _room_on_stack() -> Iterator[None]:
    """Let code that works out up to ON_STACK numbers keep them on the stack: asking for memory costs a tenth of a step.

    By a private name: without it the step is slower and as right.
    """
    try:
        import torch._inductor.codegen.cpp_wrapper_cpu_array_ref as wrapper

        known = getattr(wrapper, ROOM)
    except (ImportError, AttributeError):
        yield
        return
    setattr(wrapper, ROOM, ON_STACK)
    try:
        yield
    finally:
        setattr(wrapper, ROOM, known)


def _unpack(packed: Path, target: Path) -> None:
    """Take the code out of a package of PyTorch's, which else is unpacked anew for every run."""
    with zipfile.ZipFile(packed) as archive:
        [name] = [each for each in archive.namelist() if each.endswith(".so")]
        target.write_bytes(archive.read(name))
    packed.unlink()


def what_failed(error: Exception) -> dict[str, Any]:
    """Say why there is no code: `errno` of the disk's, or `error` in words."""
    inner = getattr(error, "inner_exception", None)  # of the compiler's own kind of error
    return {"errno": inner.errno or 0} if isinstance(inner, OSError) else {"error": _reason(inner or error)}


def _reason(error: BaseException) -> str:
    """Give the line of a compiler that names an error, or the first of what is told."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return next((line for line in lines if "error:" in line or "fatal:" in line), lines[0])
