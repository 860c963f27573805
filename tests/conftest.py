"""Fixtures that several files share."""

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from minigen.generation import packages
from minigen.generation.errors import FetchError
from minigen.generation.model import Model, load_model
from minigen.presets import load


@pytest.fixture(scope="session")
def default_model() -> Model:
    """The default model in float32 on the CPU; the tests that need it are skipped where it cannot be had."""
    try:
        return load_model(replace(load("smollm2").model, device="cpu", dtype="float32"))
    except FetchError as error:
        pytest.skip(f"the default model cannot be had here: {error}")


@pytest.fixture(scope="session", autouse=True)
def _own_packages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No compiled step of the user's plays a part, but where a test sets a cache folder."""
    usual, own = packages.packages_folder, tmp_path_factory.mktemp("packages")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packages, "packages_folder", lambda: usual() if os.environ.get("MINIGEN_CACHE") else own)
        yield


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty config folder, and the test's own current folder."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def folder(home: Path) -> Path:
    """The folder of the user's presets."""
    path = home / "config" / "minigen" / "presets"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def no_stdin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A standard input that holds nothing."""
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        yield


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test's own current folder."""
    monkeypatch.chdir(tmp_path)
