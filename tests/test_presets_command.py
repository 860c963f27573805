"""`minigen presets` and its commands."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]  # it brings no types
import pytest
import yaml
from minigen import presets
from minigen.cli.presets import app
from minigen.generation.errors import PresetError
from minigen.presets.settings import OTHERS
from typer.testing import CliRunner

pytestmark = pytest.mark.usefixtures("home")


def run(*arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr; minigen's own errors are raised."""
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_list_names_every_preset(folder: Path) -> None:
    (folder / "mine.yaml").write_text("description: '[bold]x[/x] \\x1b[31m'")
    (folder / "greedy.yaml").write_text('description: "a\\nb"')
    assert run("list") == (
        0,
        "creative   built-in                High temperature with a min_p floor, for stories and ideas\n"
        "greedy     user, shadows built-in  a\\nb\n"
        "mine       user                    [bold]x[/x] \\x1b[31m\n"
        "precise    built-in                Low temperature and a narrow choice, for facts and instructions\n"
        "smollm2    built-in                SmolLM2 135M Instruct, small enough for any machine\n"
        "tinyllama  built-in                TinyLlama 1.1B Chat in half precision on an NVIDIA GPU\n",
        "",
    )


def test_list_as_json(folder: Path) -> None:
    (folder / "mine.yaml").write_text("description: x")
    code, out, _ = run("list", "--json")
    items = {item["name"]: item for item in json.loads(out)}
    assert code == 0
    assert items["mine"] == {
        "name": "mine",
        "description": "x",
        "kind": "user",
        "path": str(folder / "mine.yaml"),
    }
    assert items["greedy"]["kind"] == "built-in"


def test_show_gives_each_setting_with_its_origin() -> None:
    Path("mine.yaml").write_text(
        "description: d\nextends: greedy\nmodel: {source: a/b, device: 'cuda:1', weights: int8}\n"
        "prompt: {system: \"x\\ny\"}\nsampling: {stop: '\\n', logit_bias: {5: -.inf}}\n"
    )
    code, out, err = run("show", "./mine.yaml")
    lines = [line.split(maxsplit=2) for line in out.splitlines()[2:]]
    shown = {line[0]: line[1:] for line in lines}
    assert code == 0
    assert out.splitlines()[:2] == ["mine: d", "mine.yaml"]
    assert shown["temperature"] == ["0.0", "preset greedy (greedy.yaml:8)"]
    assert shown["top_p"] == ["0.95", "preset smollm2 (smollm2.yaml:21)"]
    assert shown["min_p"] == ["0.0", "built-in"]
    assert shown["device"] == ["cuda:1", "preset mine (./mine.yaml:3)"]
    assert shown["weights"] == ["int8", "preset mine (./mine.yaml:3)"]
    assert shown["system"] == ['"x\\ny"', "preset mine (./mine.yaml:4)"]
    assert "logit_bias             {5: -.inf}" in out
    assert err == (
        "warning: ./mine.yaml:5: sampling.stop holds a backslash and an n, which is not a line break; "
        'in double quotes, "\\n" is one.\n'
    )


def test_show_as_json_is_strict_json() -> None:
    Path("mine.yaml").write_text("model: {source: a/b}\nsampling: {logit_bias: {5: -.inf}, stop: x}")
    _, out, _ = run("show", "--json", "./mine.yaml")
    document = json.loads(out, parse_constant=pytest.fail)
    assert document["sources"] == [{"repo": "a/b"}]
    assert document["settings"]["logit_bias"] == {
        "value": {"5": None},
        "origin": "preset mine (./mine.yaml:2)",
    }
    assert document["settings"]["stop"]["value"] == ["x"]
    assert document["settings"]["template"] == {"value": None, "origin": "built-in"}


def test_show_raw_is_the_file_byte_for_byte() -> None:
    text = "# [bold]é[/x]\nsampling: {}"
    Path("mine.yaml").write_text(text, encoding="utf-8")
    assert run("show", "--raw", "./mine.yaml") == (0, text, "")
    assert run("show", "--raw", "--json", "./mine.yaml")[0] == 2


def test_path_gives_the_path_alone(folder: Path) -> None:
    (folder / "mine.yaml").write_text("{}")
    assert run("path", "mine") == (0, f"{folder}/mine.yaml\n", "")
    assert run("path", "smollm2") == (0, f"{presets.load('smollm2').path}\n", "")
    with pytest.raises(PresetError, match=r"^There is no preset file \./none\.yaml\.$"):
        run("path", "./none.yaml")


def test_check_tells_every_fault_of_every_file() -> None:
    Path("good.yaml").write_text("sampling: {stop: '\\n'}")
    Path("bad.yaml").write_text("sampling:\n  top_k: -1\n  top_q: 1\n")
    code, out, err = run("check", "./good.yaml", "bad.yaml", "smolm2", "greedy")
    assert code == 2
    assert out == (
        "./good.yaml: ok\n"
        "bad.yaml:2: sampling.top_k must be a whole number, 0 or more, not -1.\n"
        "bad.yaml:3: sampling.top_q is not known; did you mean top_k?\n"
        "There is no preset named smolm2; did you mean smollm2? "
        "The presets are: creative, greedy, precise, smollm2, tinyllama.\n"
        "greedy: ok\n"
    )
    assert err.startswith("warning: ./good.yaml:1: sampling.stop holds a backslash and an n")


def test_check_of_good_files_ends_with_zero() -> None:
    assert run("check", "smollm2") == (0, "smollm2: ok\n", "")


def test_new_writes_a_draft_that_changes_nothing(home: Path) -> None:
    """U15"""
    path = home / "config" / "minigen" / "presets" / "mine.yaml"
    assert run("new", "mine", "--from", "precise") == (0, f"{path}\n", "")
    preset = presets.load("mine")
    assert preset.sampling == presets.load("precise").sampling
    assert preset.description == "mine, based on precise"
    for folder in (path.parent, path.parent.parent):
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700


def test_every_line_of_a_draft_can_be_uncommented() -> None:
    _, out, _ = run("new", "mine")
    path = Path(out.strip())
    lines = path.read_text(encoding="utf-8").splitlines()
    keys = (
        "source:",
        "device:",
        "dtype:",
        "compile:",
        "weights:",
        "mode:",
        "system:",
        "template:",
        *(f"{key}:" for key in presets.resolve(None, {}).choices()),
    )
    text = "\n".join(line.replace("# ", "", 1) if line.strip("# ").startswith(keys) else line for line in lines)
    path.write_text(text, encoding="utf-8")
    preset = presets.load("mine")
    assert preset.prompt.template == "Summarise:\n\n{input}"
    assert set(preset.sampling) == set(presets.resolve(None, {}).choices()) - {"seed", *OTHERS}


def test_new_leaves_an_existing_file_alone(folder: Path) -> None:
    (folder / "mine.yaml").write_text("{}")
    with pytest.raises(PresetError, match=r"mine\.yaml exists already; choose another name, or edit that file\.$"):
        run("new", "mine")
    assert (folder / "mine.yaml").read_text() == "{}"


@pytest.mark.parametrize("name", ["../x", "a/b", "x.yaml", "..", ""])
def test_new_takes_names_only(name: str, home: Path) -> None:
    """SEC-7"""
    with pytest.raises(PresetError, match=r"^A preset's name"):
        run("new", name)
    assert not (home / "config").exists()


def test_new_says_that_it_shadows_a_builtin_and_how_to_undo_it() -> None:
    _, out, err = run("new", "smollm2")
    path = Path(out.strip())
    assert err == f"This preset takes the place of the built-in smollm2, which comes back once {path} is deleted.\n"
    assert presets.load("smollm2").sampling["temperature"] == 0.8
    assert presets.load("smollm2").description == "The built-in smollm2 with changes"
    path.unlink()
    assert presets.load("smollm2").description == "SmolLM2 135M Instruct, small enough for any machine"


def test_new_from_a_file_extends_that_file(home: Path) -> None:
    Path("base.yaml").write_text("sampling: {top_k: 3}")
    run("new", "mine", "--from", "./base.yaml")
    assert yaml.safe_load(Path(presets.load("mine").path).read_text())["extends"] == f"{home}/base.yaml"
    assert presets.load("mine").sampling == {"top_k": 3}


def test_schema_prints_a_json_schema() -> None:
    _, out, _ = run("schema")
    jsonschema.Draft202012Validator.check_schema(json.loads(out))


@pytest.mark.parametrize("command", ["list", "show", "path", "check", "new", "export", "schema"])
def test_help_has_an_example(command: str) -> None:
    code, out, _ = run(command, "-h")
    assert code == 0
    assert f"Example: minigen presets {command}" in out


def test_listing_loads_no_heavy_library() -> None:
    code = (
        "import sys; from minigen.cli.presets import app; app(['list'], standalone_mode=False); "
        "print([m for m in ('torch', 'transformers') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "[]"
