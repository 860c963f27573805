"""What README and docs claim is what the code does."""

import io
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer.main
from minigen import presets
from minigen.cli.app import app, main
from minigen.cli.document_schema import CANDIDATE, DOCUMENT, TOKEN
from minigen.generation.arrangement import filter_stages, score_stages
from minigen.generation.model import Model
from minigen.generation.params import SamplingParams
from minigen.generation.ranges import RANGES

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
LOOP = (ROOT / "docs" / "loop.md").read_text("utf-8")
ALL_ON = SamplingParams(
    temperature=0.5,
    top_k=1,
    top_p=0.5,
    min_p=0.5,
    typical_p=0.5,
    repetition_penalty=2,
    frequency_penalty=1,
    presence_penalty=1,
    no_repeat_ngram_size=2,
    logit_bias={1: 1.0},
    allowed_token_ids=[1],
    bad_words=["x"],
    min_new_tokens=1,
    dry_multiplier=1,
    top_n_sigma=1,
    epsilon_cutoff=0.5,
    eta_cutoff=0.5,
    xtc_probability=0.5,
    mirostat_tau=1,
)


def stages(params: SamplingParams) -> list[str]:
    return [name for name, _ in score_stages(params, [1], [1]) + filter_stages(params)]


PAIRS = zip(stages(ALL_ON), stages(replace(ALL_ON, dynatemp_range=0.5)), strict=True)
CHAIN = [name for pair in PAIRS for name in dict.fromkeys(pair)]  # dynatemp_range after the stage that it replaces


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    lines = [line[2:] for block in blocks("console") for line in block.splitlines() if line.startswith("$ ")]
    return [line[line.index("minigen ") :] for line in lines]


@pytest.mark.parametrize("line", commands())
def test_every_command_of_the_readme_is_one(line: str) -> None:
    words = shlex.split(line)[1:]
    command: Any = typer.main.get_command(app)
    context = command.make_context("minigen", [])
    while getattr(command, "commands", None):
        _, command, words = command.resolve_command(context, words)
        context = typer.Context(command, parent=context)
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    flags = {word for word in words if re.match(r"--?[a-zA-Z]", word)}
    assert flags <= known


def test_the_readme_lists_the_filters_in_their_order() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `--", README, re.MULTILINE)
    assert rows == CHAIN
    others = README[README.index("Then there are") :].split(".")[0]
    named = set(rows) | set(re.findall(r"`(\w+)`", others))
    assert named == set(SamplingParams.__dataclass_fields__)


def test_neutral_values_in_the_readme_are_the_defaults() -> None:
    for name, neutral in re.findall(r"^\| `(\w+)` \| `--[^|]+\| (\S+) \|", README, re.MULTILINE):
        if name in RANGES:
            assert float(neutral) == getattr(SamplingParams(), name)


def test_the_loop_page_lists_the_chain_in_its_order() -> None:
    table = LOOP[LOOP.index("| order | stage") : LOOP.index("A stage at its neutral value")]
    assert re.findall(r"`(\w+)`", table) == CHAIN


def test_the_loop_page_names_rooms_that_exist() -> None:
    for name in re.findall(r"`(\w+\.py)`", LOOP):
        assert (ROOT / "generation" / name).exists(), name
    for name in re.findall(r"`((?:generation|tests)/\w+\.py)`", LOOP):
        assert (ROOT / name).exists(), name


def test_the_preset_list_in_the_readme_is_true(
    capsys: pytest.CaptureFixture[str], monkeypatch: Any, tmp_path: Any
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    main(["presets", "list"])
    assert capsys.readouterr().out in README


def test_the_preset_in_the_readme_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(blocks("yaml")[0])
    preset = presets.load(path)
    assert preset.sampling["max_new_tokens"] == 60
    assert preset.prompt.system == "Answer in one sentence."


def test_the_python_example_names_what_there_is() -> None:
    code = blocks("python")[0]
    compile(code, "README.md", "exec")
    for line in code.splitlines():
        if line.startswith("from "):
            exec(line, {})


def test_the_json_page_lists_every_key() -> None:
    page = (ROOT / "docs" / "json.md").read_text("utf-8")
    sections = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    for title, schema in (("A document", DOCUMENT), ("A token", TOKEN)):
        rows = re.findall(r"^\| (`[^|]+) \|", sections[title], re.MULTILINE)
        assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(schema["properties"])
    for name in (*CANDIDATE["properties"], *DOCUMENT["properties"]["timing"]["properties"]):
        assert f"`{name}`" in page


def test_make_knows_the_targets_that_are_named() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    contributing = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    for target in set(re.findall(r"`?make ([a-z]+)", README + contributing)) - {"finds"}:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_every_room_of_the_map_exists() -> None:
    contributing = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    for folder in re.findall(r"^\| `(\w+)/` \|", contributing, re.MULTILINE):
        assert (ROOT / folder).is_dir()


def runs_of_the_inspection_page() -> list[tuple[str, str]]:
    """Each block of docs/inspection.md with the command it comes from: its own, or that of the block before."""
    page = (ROOT / "docs" / "inspection.md").read_text("utf-8")
    found, line = [], ""
    for block in re.findall(r"^```console\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        if block.startswith("$ minigen "):
            line, block = block.removeprefix("$ minigen ").split("\n", 1)
        found.append((line, block))
    return found


@pytest.mark.real_model
def test_the_tables_of_the_inspection_page_are_what_the_commands_print(
    default_model: Model, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
    printed: dict[str, str] = {}
    for line, block in runs_of_the_inspection_page():
        if line not in printed:
            assert main([*shlex.split(line), "--device", "cpu"]) == 0
            written = capsys.readouterr()
            printed[line] = "\n".join(each.rstrip() for each in (written.out + written.err).splitlines()) + "\n"
        assert block in printed[line]
        if not line.startswith("run"):  # whose stages are shown one by one
            assert block == printed[line]


@pytest.mark.real_model
def test_the_picture_of_the_readme_is_what_the_command_draws(default_model: Model, tmp_path: Path) -> None:
    lines = [line for line in commands() if "paris.trace" in line]
    run = next(line for line in lines if " run " in line).replace("paris.trace", str(tmp_path / "paris.trace"))
    draw = next(line for line in lines if "--svg" in line).replace("paris.trace", str(tmp_path / "paris.trace"))
    draw = draw.replace("paris.svg", str(tmp_path / "paris.svg"))
    assert main([*shlex.split(run)[1:], "--no-stdin", "--device", "cpu"]) == 0
    assert main(shlex.split(draw)[1:]) == 0
    assert (tmp_path / "paris.svg").read_text("utf-8") == (ROOT / "docs" / "inspection.svg").read_text("utf-8")


@pytest.mark.real_model
def test_the_tables_of_the_readme_are_what_the_command_prints(
    default_model: Model, capsys: pytest.CaptureFixture[str]
) -> None:
    line = next(line for line in commands() if "--inspect --top" in line)
    assert main([*shlex.split(line)[1:], "--no-stdin", "--device", "cpu"]) == 0
    printed = capsys.readouterr()
    block = next(b for b in blocks("console") if "--inspect --top" in b)
    _, settings, text, tables = block.split("\n", 3)
    assert printed.out == text
    assert [line.rstrip() for line in printed.err.splitlines()] == [settings, *tables.splitlines()]
