"""Has a model's decode steps compiled ahead of time, and puts them into the user's cache as a package."""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from .compile_child import compilation, has_failed
from .errors import RunError
from .package_key import key_of
from .packages import (
    FACTS,
    FILES,
    OWN,
    OpenFolderError,
    PackageFacts,
    check_private,
    check_whole,
    digest_of,
    folder_for,
    found_package,
    read_facts,
    stamp_of,
)
from .progress import SILENT, Progress, phase
from .sources import ModelFiles
from .store import place


def compile_package(files: ModelFiles, *, weights: str = "exact", progress: Progress = SILENT) -> PackageFacts:
    """Compile the decode step of a model in a folder, unless its package is there already; give the package's facts.

    Takes some minutes, in processes of its own. Raises RunError, with the reason, for a model that cannot be
    compiled, and where there is no C++ compiler; FetchError and its kind where the disk refuses.
    """
    if files.gguf is not None:
        raise RunError(f"{files.name} is a GGUF file; only models with safetensors weights can be compiled.")
    final = folder_for(files, weights)
    try:
        check_private(final)
    except OpenFolderError as error:
        raise RunError(f"{error}: chmod go-w takes that away.") from None

    def is_done(folder: Path) -> bool:
        try:
            facts = found_package(files, weights)
            if facts is not None:
                check_whole(facts)
        except RunError:
            return False
        return facts is not None

    place(final, lambda aside: _make(files, weights, aside, progress), is_done, progress)
    return read_facts(final)


def _make(files: ModelFiles, weights: str, aside: Path, progress: Progress) -> None:
    """Compile into `aside/model`, which the store puts into its place."""
    began, key = time.monotonic(), dict(key_of(files, weights))  # of what it is made of, whatever changes meanwhile
    folder, scratch = aside / "model", aside / "scratch"
    folder.mkdir(mode=0o700)
    scratch.mkdir(mode=0o700)
    try:
        with phase(progress, f"compiling the decode step of {files.name}, once"):
            made = _compiled(files, weights, folder, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    facts = {
        "model": files.name,
        "model_folder": str(files.path.resolve()),
        "weights": weights,
        "key": key,
        "build_seconds": round(time.monotonic() - began, 1),
        "digests": {name: digest_of(folder / name) for name in FILES},
        "stamp": stamp_of(folder / OWN),
        **made,
    }
    (folder / FACTS).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def _compiled(files: ModelFiles, weights: str, folder: Path, scratch: Path) -> dict[str, Any]:
    """Run the compiling process, whose files go into a folder; give what it tells of them."""
    with compilation(files.path, weights, 1, folder, scratch, subprocess.PIPE) as process:
        made = process.told()
    if "errno" in made:
        raise OSError(made["errno"], os.strerror(made["errno"]))  # a full disk is the store's to say
    if has_failed(made):
        last = process.said[-1] if process.said else f"it ended with code {made.get('ended')}"
        raise RunError(f"{files.name} cannot be compiled: {str(made.get('error', last)).rstrip('.')}.")
    return made
