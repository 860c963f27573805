"""What the commands tell of compiled steps and their weights; nothing is compiled here."""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from minigen import presets
from minigen.cli.app import main
from minigen.cli.batch_records import run_facts
from minigen.cli.opening import settled
from minigen.cli.reporting import settings_text
from minigen.cli.samples import Run
from minigen.generation.model import Model
from minigen.generation.package_key import key_of
from minigen.generation.packages import FACTS, FILES, OWN, digest_of, folder_for, stamp_of
from minigen.generation.progress import bytes_text
from minigen.generation.sources import ModelFiles, PathSource
from stubs import byte_tokenizer, tiny_model

COST = {"exact": 19.4239, "package": 19.4708}
COST_TEXT = "perplexity 19.42 to 19.47 (+0.24 %)"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelFiles:
    """A tiny model, and a cache that is empty."""
    from huggingface_hub import constants

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINIGEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    folder = tmp_path / "tiny"
    tiny_model(vocab_size=300, window=64).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return ModelFiles(path=folder, gguf=None, source=PathSource(folder), name="tiny")


def put_package(files: ModelFiles, weights: str, *, perplexity: Mapping[str, float] | None = None) -> Path:
    """Leave what compiling leaves, but for the code."""
    folder = folder_for(files, weights)
    folder.mkdir(mode=0o700, parents=True)
    for name in FILES:
        (folder / name).touch()
    facts = {
        "model": files.name,
        "model_folder": str(files.path.resolve()),
        "weights": weights,
        "key": dict(key_of(files, weights)),
        "build_seconds": 84.2,
        "digests": {name: digest_of(folder / name) for name in FILES},
        "stamp": stamp_of(folder / OWN),
        "constants": {},
        "light": None,
        "pools": [],
        "perplexity": perplexity,
    }
    (folder / FACTS).write_text(json.dumps(facts))
    return folder


def shown(files: ModelFiles, capsys: pytest.CaptureFixture[str]) -> tuple[list[str], list[dict[str, Any]]]:
    """What `models show` tells of the compiled steps, as lines and as JSON."""
    assert main(["models", "show", str(files.path)]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("compiled")]
    assert main(["models", "show", str(files.path), "--json"]) == 0
    return lines, json.loads(capsys.readouterr().out)["compiled"]


def test_show_tells_of_the_steps_of_both_weights(files: ModelFiles, capsys: pytest.CaptureFixture[str]) -> None:
    put_package(files, "exact")
    put_package(files, "int8", perplexity=COST)
    lines, steps = shown(files, capsys)
    assert lines == [
        "compiled       exact weights, in 84 s",
        f"compiled       int8 weights, in 84 s, {COST_TEXT}",
    ]
    exact = {"weights": "exact", "build_seconds": 84.2, "perplexity": None, "reason_not_used": None}
    cost = {"exact": 19.4239, "int8": 19.4708, "rise": pytest.approx(0.0024, abs=5e-5)}
    assert steps == [exact, exact | {"weights": "int8", "perplexity": cost}]


def test_show_tells_of_the_int8_step_alone(files: ModelFiles, capsys: pytest.CaptureFixture[str]) -> None:
    put_package(files, "int8", perplexity=COST)
    lines, steps = shown(files, capsys)
    assert [step["weights"] for step in steps] == ["int8"]
    assert len(lines) == 1


def test_a_step_that_is_not_used_says_why(files: ModelFiles, capsys: pytest.CaptureFixture[str]) -> None:
    for weights in ("exact", "int8"):
        facts = put_package(files, weights) / FACTS
        facts.write_text("{}" if weights == "exact" else facts.read_text().replace(torch.__version__, "1.0"))
    damaged = f"The compiled step in {folder_for(files, 'exact')} is damaged"
    changed = "The compiled step of tiny was made for another torch"
    lines, steps = shown(files, capsys)
    assert lines == [
        f"compiled       exact weights, not used: {damaged}",
        f"compiled       int8 weights, not used: {changed}",
    ]
    assert steps == [
        {"weights": "exact", "build_seconds": None, "perplexity": None, "reason_not_used": damaged},
        {"weights": "int8", "build_seconds": 84.2, "perplexity": None, "reason_not_used": changed},
    ]


@pytest.mark.parametrize(
    ("weights", "perplexity", "cost"), [("exact", None, ""), ("int8", COST, f", {COST_TEXT}")], ids=["exact", "int8"]
)
def test_compiling_names_the_weights_and_what_they_cost(
    files: ModelFiles,
    weights: str,
    perplexity: Mapping[str, float] | None,
    cost: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = put_package(files, weights, perplexity=perplexity)  # so nothing is left to do
    assert main(["models", "compile", str(files.path), "--weights", weights]) == 0
    size = sum(file.stat().st_size for file in folder.iterdir())
    about = f"{weights} weights, 84 s, {bytes_text(size)} in {folder}"
    assert capsys.readouterr() == ("", f"minigen: tiny is compiled ({about}){cost}.\n")


def test_other_weights_are_refused(files: ModelFiles, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "compile", str(files.path), "--weights", "int4"]) == 2
    assert "'int4' is not one of 'exact', 'int8'" in capsys.readouterr().err


def put_preset(home: Path, files: ModelFiles) -> None:
    """Leave a preset "mine" for the model."""
    own = home / "config" / "minigen" / "presets"
    own.mkdir(parents=True)
    (own / "mine.yaml").write_text(f"model: {{source: {files.path}}}")


def listed(capsys: pytest.CaptureFixture[str], name: str) -> dict[str, Any]:
    assert main(["models", "list", "--json"]) == 0
    [entry] = [each for each in json.loads(capsys.readouterr().out) if name in (each["name"], *each["presets"])]
    return dict(entry)


def test_list_names_the_weights_of_the_steps_that_can_be_used(
    files: ModelFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put_preset(tmp_path, files)
    assert listed(capsys, "mine")["compiled"] == []
    assert main(["models", "list"]) == 0
    assert "COMPILED" not in capsys.readouterr().out
    for weights in ("int8", "exact"):
        put_package(files, weights)
    assert listed(capsys, "mine")["compiled"] == ["exact", "int8"]
    assert listed(capsys, "tinyllama")["compiled"] == []
    assert main(["models", "list"]) == 0
    rows = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert cells[0] == ["NAME", "SOURCE", "SIZE", "COMPILED", "WHERE"]
    assert cells[2][3:] == ["exact, int8", str(files.path)]
    facts = folder_for(files, "exact") / FACTS
    facts.write_text(facts.read_text().replace(torch.__version__, "1.0"))
    assert listed(capsys, "mine")["compiled"] == ["int8"]


def test_list_finds_the_steps_of_a_revision_in_the_hub_s_cache(
    files: ModelFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    place = tmp_path / "hub" / "models--org--name" / "snapshots" / commit
    place.parent.mkdir(parents=True)
    files.path.rename(place)
    put_package(replace(files, path=place), "int8")
    assert listed(capsys, "org/name")["compiled"] == ["int8"]


def test_the_steps_of_a_folder_inside_are_not_those_of_a_model(
    files: ModelFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put_preset(tmp_path, files)
    inner = files.path / "checkpoint-500"
    shutil.copytree(files.path, inner)
    put_package(replace(files, path=inner), "exact")
    assert listed(capsys, "mine")["compiled"] == []


@pytest.mark.parametrize("index", ["{", "{}", '{"weight_map": 1}'])
def test_a_damaged_model_stops_no_list(
    files: ModelFiles, index: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put_preset(tmp_path, files)
    put_package(files, "int8")
    assert listed(capsys, "mine")["compiled"] == ["int8"]
    os.remove(files.path / "model.safetensors")
    (files.path / "model.safetensors.index.json").write_text(index)
    assert listed(capsys, "mine")["compiled"] == []


# --- what a run tells


def model_with(weights: str | None) -> Model:
    """A model with a package that says which weights it has; None: without one."""
    package: Any = None if weights is None else SimpleNamespace(facts=SimpleNamespace(weights=weights))
    return replace(Model.wrap(tiny_model(), byte_tokenizer()), package=package)


@pytest.mark.parametrize(
    ("asked", "has", "choice"),
    [
        (None, None, ("exact", "built-in")),
        ("exact", "exact", ("exact", "flag --weights")),
        ("int8", "int8", ("int8", "flag --weights")),
        ("int8", None, ("exact", "no compiled step with int8 weights is in use")),
    ],
)
def test_the_settings_of_a_run_name_the_weights_in_use(
    asked: str | None, has: str | None, choice: tuple[str, str]
) -> None:
    resolved = presets.resolve(None, {"weights": asked})
    assert settled(resolved, model_with(has), "raw").choices()["weights"] == choice


@pytest.mark.parametrize(("is_compiled", "words"), [(True, "compiled"), (False, "not compiled")])
def test_the_settings_tell_whether_a_step_is_compiled(is_compiled: bool, words: str) -> None:
    choices = presets.resolve(None, {}).choices()
    run = Run(model="m", preset="p", prompt="", settings=choices, device="cpu", is_compiled=is_compiled)
    rows = [line.split(maxsplit=1) for line in settings_text(run, 7).splitlines()]
    assert rows[:3] == [["model", "m"], ["preset", "p"], ["step", words]]


@pytest.mark.parametrize(("weights", "told"), [("int8", {"weights": "int8"}), ("exact", {})])
def test_a_batch_goes_on_with_the_same_weights_only(weights: str, told: Mapping[str, str]) -> None:
    model = model_with(weights)
    settings = settled(presets.resolve(None, {"weights": weights}), model, "raw")
    job: Any = SimpleNamespace(template=None, truncate=None)
    run = run_facts(job, model, settings, seed=1, form="json")
    assert {name: value for name, value in run.items() if name == "weights"} == told
