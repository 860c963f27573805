"""The hub source: a model is resolved to a commit and downloaded first, so that loading never needs the network."""

import fnmatch
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .errors import FetchError, SourceError
from .hub_client import bind_client, explain, hub_errors, within
from .progress import SILENT, Progress, bytes_text, phase
from .quiet import quiet_libraries
from .sources import HubSource, ModelFiles
from .store import require_space

_SETTINGS = ("*.json", "*.txt", "*.jinja", "*.model")  # beside the weights; nothing that could be executed
_COMMIT = re.compile(r"[0-9a-f]{40}")
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
_ANSWER_SECONDS = 8.0  # for the first questions to the hub, all together


def locate(source: HubSource, *, with_code: bool = False) -> ModelFiles | None:
    """The model if it lies complete in the hub's cache; opens no socket. with_code: its Python files belong to it."""
    quiet_libraries()
    from huggingface_hub import get_cached_repo_tree
    from huggingface_hub.errors import CachedRepoTreeNotFoundError

    commit = _cached_commit(source)
    if commit is None:
        return None
    folder = _snapshot(source, commit)
    try:
        sizes = {file.path: file.size for file in get_cached_repo_tree(source.repo, revision=commit)}
    except CachedRepoTreeNotFoundError:  # another program put it there
        return _files(source, commit, os.listdir(folder)) if folder.is_dir() and _looks_whole(folder) else None
    try:
        wanted = choose_files(source, sizes, with_code=with_code)
    except SourceError:
        return None
    is_whole = all(_size(folder / name) == sizes[name] for name in wanted)
    return _files(source, commit, wanted) if is_whole else None


def fetch(
    source: HubSource, *, offline: bool = False, progress: Progress = SILENT, with_code: bool = False
) -> ModelFiles:
    """The model's files, downloaded into the hub's cache. Raises FetchError or SourceError with the reason."""
    quiet_libraries()
    from huggingface_hub import constants

    if found := locate(source, with_code=with_code):
        return found
    if offline or constants.is_offline_mode():
        flag = "--offline" if offline else "the variable HF_HUB_OFFLINE"
        how = "complete in" if _is_begun(source) else "in"
        name = source.repo if source.revision is None else f"{source.repo} --revision {source.revision}"
        raise FetchError(
            f"The hub model {source.repo} is not {how} the cache folder {constants.HF_HUB_CACHE}, "
            f"and {flag} forbids fetching it: run minigen models pull {name} without it first."
        )
    bind_client()
    try:
        return _download(source, progress, with_code)
    except hub_errors() as error:
        raise explain(error, source) from error


def _download(source: HubSource, progress: Progress, with_code: bool) -> ModelFiles:
    from huggingface_hub import constants, hf_hub_download, snapshot_download

    commit, sizes = within(_ANSWER_SECONDS, lambda: _ask(source))
    wanted = choose_files(source, sizes, with_code=with_code)
    missing = [name for name in wanted if _size(_snapshot(source, commit) / name) != sizes[name]]
    damaged = {name for name in missing if (_snapshot(source, commit) / name).exists()}  # the library would keep them
    total = sum(sizes[name] for name in missing)
    cache = Path(constants.HF_HUB_CACHE)
    progress.note(f"Fetching {source.repo} from the hub: {bytes_text(total)} in {len(missing)} files to {cache}.")
    cache.mkdir(parents=True, exist_ok=True)
    require_space(cache, total)
    weights = [name for name in missing if name.endswith((".safetensors", ".gguf"))]
    settings = [name for name in missing if name not in weights]
    bar = _bar(progress)
    with phase(progress, f"downloading {source.repo}", total):
        # This also keeps the list of the commit's files, by which a later run knows that nothing is missing.
        snapshot_download(
            source.repo,
            revision=commit,
            allow_patterns=settings,
            ignore_patterns="*/*",
            force_download=not damaged.isdisjoint(settings),
        )
        progress.advance(sum(sizes[name] for name in settings))
        for name in weights:  # one by one in this thread, so that an interrupt ends it at once
            hf_hub_download(source.repo, name, revision=commit, force_download=name in damaged, tqdm_class=bar)
    return _files(source, commit, wanted)


def _ask(source: HubSource) -> tuple[str, dict[str, int]]:
    """The commit that the revision names now, and the sizes of the files at its top."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.hf_api import RepoFile

    api = HfApi()
    try:
        commit = api.resolve_revision(source.repo, revision=source.revision).resolved
        tree = api.list_repo_tree(source.repo, revision=commit)
        return commit, {entry.path: entry.size for entry in tree if isinstance(entry, RepoFile)}
    except HfHubHTTPError:
        raise
    except (AssertionError, AttributeError, KeyError, TypeError, ValueError) as error:  # not a hub's answer
        raise FetchError(
            f"The hub model {source.repo} could not be fetched: what answered is not a hub; "
            "check HF_ENDPOINT, the proxy, and whether this network wants a log-in first."
        ) from error


def choose_files(source: HubSource, names: Iterable[str], *, with_code: bool = False) -> list[str]:
    """The files to have: settings, tokenizer and one form of the weights. Raises SourceError without weights."""
    patterns = (*_SETTINGS, "*.py") if with_code else _SETTINGS
    top = sorted(name for name in names if "/" not in name)
    settings = [name for name in top if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]
    # A repository may carry its weights twice: `consolidated` files are the same in another layout.
    shards = [name for name in top if name.endswith(".safetensors") and not name.startswith("consolidated")]
    if "model.safetensors" in shards:
        shards = ["model.safetensors"]
    packed = [name for name in top if name.endswith(".gguf")]
    if shards or len(packed) == 1:
        return settings + (shards or packed)
    if packed:
        raise SourceError(
            f"The hub model {source.repo} has {len(packed)} GGUF files, {packed[0]} the first of them: "
            "download the one you want and give its path."
        )
    if any(name.endswith((".bin", ".pt", ".pth", ".ckpt")) for name in top):
        raise SourceError(
            f"The hub model {source.repo} has pickle weights only, which can run code when loaded: "
            "look for a version with safetensors."
        )
    raise SourceError(f"The hub model {source.repo} has no safetensors and no GGUF weights.")


def _files(source: HubSource, commit: str, names: Iterable[str]) -> ModelFiles:
    names = list(names)
    has_shards = any(name.endswith(".safetensors") for name in names)
    gguf = None if has_shards else next((name for name in names if name.endswith(".gguf")), None)
    return ModelFiles(path=_snapshot(source, commit), gguf=gguf, source=source, name=source.repo, revision=commit)


def _cached_commit(source: HubSource) -> str | None:
    from huggingface_hub import resolve_revision
    from huggingface_hub.errors import RevisionResolutionError

    if source.revision is not None and _COMMIT.fullmatch(source.revision):
        return source.revision
    try:
        commit = resolve_revision(source.repo, revision=source.revision, local_files_only=True).resolved
    except (RevisionResolutionError, OSError):
        return None
    return commit if _COMMIT.fullmatch(commit) else None


def _is_begun(source: HubSource) -> bool:
    """Whether some of the model is in the hub's cache."""
    commit = _cached_commit(source)
    return commit is not None and _snapshot(source, commit).is_dir()


def _snapshot(source: HubSource, commit: str) -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE) / f"models--{source.repo.replace('/', '--')}" / "snapshots" / commit


def _looks_whole(folder: Path) -> bool:
    """Whether a snapshot without a list of its files has all that loading needs."""
    import json

    names = set(os.listdir(folder))
    if "config.json" not in names or not names & set(_TOKENIZERS):
        return sum(name.endswith(".gguf") for name in names) == 1
    try:
        index = json.loads((folder / "model.safetensors.index.json").read_text(encoding="utf-8"))
        shards = set(index["weight_map"].values())
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        shards = {"model.safetensors"}
    return shards <= {name for name in names if (folder / name).exists()}


def _size(file: Path) -> int | None:
    try:
        return file.stat().st_size
    except OSError:
        return None


def _bar(progress: Progress) -> Any:
    """A stand-in for the hub's progress bar that reports to `progress`."""

    class Bar:
        def __init__(self, **settings: object) -> None:
            pass

        def __enter__(self) -> "Bar":
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def update(self, amount: float | None = 1) -> None:
            progress.advance(int(amount or 0))

        def close(self) -> None:
            pass

    return Bar
