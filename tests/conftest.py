"""Fixtures that several files share."""

from dataclasses import replace
from pathlib import Path

import pytest
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
