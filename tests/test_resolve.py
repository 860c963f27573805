"""Which value holds, and where it comes from."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from minigen import presets
from minigen.generation.errors import ParameterError
from minigen.generation.params import SamplingParams


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty config folder, and the test's own current folder."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


def preset_of(text: str) -> presets.Preset:
    Path("mine.yaml").write_text(text)
    return presets.load("./mine.yaml")


def test_flag_beats_preset_beats_generation_config_beats_built_in() -> None:
    """CFG-9"""
    preset = preset_of("model: {device: cpu}\nsampling:\n  top_k: 40\n  top_p: 0.9\n")
    settings = presets.resolve(
        preset, {"temperature": 0.9, "top_p": None}, {"temperature": 0.6, "top_k": 20, "min_p": 0.1}
    )
    choices = settings.choices()
    assert choices["temperature"] == (0.9, "flag --temperature")
    assert choices["top_k"] == (40, "preset mine (./mine.yaml:3)")
    assert choices["top_p"] == (0.9, "preset mine (./mine.yaml:4)")
    assert choices["min_p"] == (0.1, "generation_config")
    assert choices["typical_p"] == (1.0, "built-in")
    assert choices["device"] == ("cpu", "preset mine (./mine.yaml:1)")
    assert choices["dtype"] == ("auto", "built-in")
    assert choices["mode"] == ("auto", "built-in")


def test_every_setting_has_an_origin() -> None:
    settings = presets.resolve(None, {})
    names = [spec.name for spec in fields(SamplingParams)]
    assert settings.params == SamplingParams()
    assert dict(settings.origins) == dict.fromkeys([*names, "device", "dtype", "weights", "mode"], "built-in")
    assert list(settings.choices()) == [*names, "device", "dtype", "weights", "mode"]


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("sampling: {temperature: 0}", {}),
        ("sampling: {temperature: 0.9}", {"temperature": 0}),
    ],
)
def test_zero_is_a_value(text: str, flags: dict[str, Any]) -> None:
    """SMP-6"""
    assert presets.resolve(preset_of(text), flags, {"temperature": 0.7}).params.temperature == 0


def test_false_and_empty_flags_beat_the_preset() -> None:
    """SMP-6"""
    preset = preset_of("sampling: {ignore_eos: true, stop: [a], seed: 7}")
    params = presets.resolve(preset, {"ignore_eos": False, "stop": (), "seed": 0}, {}).params
    assert (params.ignore_eos, params.stop, params.seed) == (False, (), 0)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"top_p": 2.0}, "--top-p must be above 0 and at most 1, not 2.0."),
        ({"temperature": -1.0}, "--temperature must be between 0 and 100, not -1.0."),  # SMP-3
        ({"temperature": float("nan")}, "--temperature must be a number between 0 and 100, not nan."),  # SMP-4
        ({"repetition_penalty": float("inf")}, "--repetition-penalty must be above 0 and at most 100, not inf."),
        ({"seed": 2**64}, f"--seed must be a whole number between 0 and 2^63-1, not {2**64}."),  # RNG-4
        ({"num_samples": 0}, "--num-samples must be a whole number between 1 and 1024, not 0."),
        ({"stop": ["a", ""]}, "--stop must be at most 64 strings, none of them empty, not ['a', '']."),
        ({"device": "cdua"}, "--device must be one of auto, cuda, cuda:N, mps, cpu, balanced, not 'cdua'."),
        ({"dtype": "fp16"}, "--dtype must be one of auto, float32, float16, bfloat16, not 'fp16'."),
        ({"mode": "x"}, "--mode must be one of auto, chat, raw, not 'x'."),
    ],
)
def test_a_wrong_flag_is_named_before_anything_is_loaded(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        presets.check_flags(flags)
    assert str(caught.value) == message
    with pytest.raises(ParameterError) as caught:
        presets.resolve(None, flags, {})
    assert str(caught.value) == message


def test_right_and_absent_flags_pass() -> None:
    flags = {"top_p": 1, "seed": None, "num_samples": 3, "device": "cuda:1", "mode": "raw", "model": "a/b"}
    presets.check_flags(flags)


def test_an_unknown_flag_is_the_callers_mistake() -> None:
    with pytest.raises(TypeError, match="temprature is not a setting"):
        presets.check_flags({"temprature": 1})


def test_a_wrong_model_default_is_named_unless_it_is_replaced() -> None:
    with pytest.raises(ParameterError) as caught:
        presets.resolve(None, {}, {"top_p": 7})
    assert str(caught.value) == "top_p in the model's generation_config must be above 0 and at most 1, not 7."
    assert presets.resolve(None, {"top_p": 0.5}, {"top_p": 7}).params.top_p == 0.5


def test_a_model_given_by_flag_leaves_the_presets_device_behind() -> None:
    preset = preset_of("model: {device: cpu, dtype: float32, weights: int8}\nprompt: {mode: raw}")
    where = presets.choose_model_settings(preset, {"model": "a/b", "dtype": "float16"})
    assert where["device"] == ("auto", "built-in")
    assert where["dtype"] == ("float16", "flag --dtype")
    assert where["weights"] == ("exact", "built-in")
    assert where["mode"] == ("raw", "preset mine (./mine.yaml:2)")


def test_the_mode_flag_is_named_as_it_is_typed() -> None:
    assert presets.choose_model_settings(None, {"mode": "chat"})["mode"] == ("chat", "flag --chat")


def test_a_preset_made_in_code_is_its_own_origin() -> None:
    preset = replace(presets.load("smollm2"), sampling={"top_k": 3}, places={})
    assert presets.resolve(preset, {}).choices()["top_k"] == (3, "preset smollm2")
