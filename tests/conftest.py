"""Fixtures that several files share."""

from dataclasses import replace

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
