"""The models on this machine: those in minigen's own cache and those in the hub's, and removing them."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from .errors import SourceError
from .packages import discard_orphans
from .quiet import quiet_libraries
from .store import discard, models_folder, size_on_disk
from .wheel import STAMP


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """A model that lies on this machine."""

    name: str  # a hub id, or the name of a converted model
    path: Path
    num_bytes: int  # on the disk
    kind: Literal["wheel", "hub"]


def installed() -> list[Installed]:
    """The models in minigen's cache, then those in the hub's, each by name."""
    return _converted() + _from_hub()


def remove(name: str) -> int:
    """Delete every cached model of that name, with its compiled steps, and give the bytes freed.

    Raises SourceError for an unknown name.
    """
    models = [model for model in installed() if model.name == name]
    if not models:
        known = ", ".join(model.name for model in installed()) or "none"
        raise SourceError(f"There is no cached model {name!r}; the cached ones are: {known}.")
    freed = sum(_remove_converted(model) if model.kind == "wheel" else _remove_from_hub(model) for model in models)
    return freed + discard_orphans()


def _converted() -> list[Installed]:
    found = []
    for folder in sorted(models_folder().glob("[!.]*/")):
        try:
            name = json.loads((folder / STAMP).read_text(encoding="utf-8"))["name"]
        except (OSError, ValueError, LookupError, TypeError):
            name = folder.name  # its stamp was damaged by hand: the folder can still be removed
        found.append(Installed(name=str(name), path=folder, num_bytes=size_on_disk(folder), kind="wheel"))
    return found


def _from_hub() -> list[Installed]:
    found = [
        Installed(name=repo.repo_id, path=Path(repo.repo_path), num_bytes=repo.size_on_disk, kind="hub")
        for repo in _hub_models()
    ]
    return sorted(found, key=lambda model: model.name)


def _hub_models() -> list[Any]:
    """The model repositories in the hub's cache, as the library describes them."""
    quiet_libraries()
    from huggingface_hub import CacheNotFound, constants, scan_cache_dir

    try:
        return [repo for repo in scan_cache_dir(constants.HF_HUB_CACHE).repos if repo.repo_type == "model"]
    except CacheNotFound:
        return []


def _remove_converted(model: Installed) -> int:
    """Delete a folder of minigen's cache, or the link to one."""
    if model.path.is_symlink():
        model.path.unlink()
        return 0
    discard(model.path)
    return model.num_bytes


def _remove_from_hub(model: Installed) -> int:
    """Delete all revisions of a hub model through the library, which knows what other models share."""
    from huggingface_hub import constants, scan_cache_dir

    revisions = [revision for repo in _hub_models() if repo.repo_id == model.name for revision in repo.revisions]
    plan = scan_cache_dir(constants.HF_HUB_CACHE).delete_revisions(*(revision.commit_hash for revision in revisions))
    plan.execute()
    return int(plan.expected_freed_size)
