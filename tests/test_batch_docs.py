"""What docs/batch.md claims is what `minigen batch` does."""

import io
import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main
from jsonschema import Draft202012Validator
from minigen.cli.app import app, main
from minigen.cli.batch_input import LineReader
from minigen.cli.batch_requests import KEYS, fields_of, request_of
from minigen.cli.batch_running import AHEAD
from minigen.cli.batch_schema import BATCH_SCHEMA, RECORD, RUN, TRUNCATED, USAGE
from minigen.generation.model import Model
from minigen.generation.params import SamplingParams

PAGE = (Path(__file__).parent.parent / "docs" / "batch.md").read_text("utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
INPUT = [line.strip() for line in SECTIONS["The input"].splitlines() if line.startswith("    {")]
RECORDS = [line.strip() for line in SECTIONS["The output"].splitlines() if line.startswith("    {")]


def commands() -> list[str]:
    parts = [
        part for line in PAGE.splitlines() if line.startswith("    ") for part in re.split(r"\$ | \| | \|\|", line)
    ]
    return [part.strip().removesuffix("|| exit 1") for part in parts if part.strip().startswith("minigen ")]


@pytest.mark.parametrize("line", commands())
def test_every_command_of_the_page_is_one(line: str) -> None:
    command: Any = typer.main.get_command(app)
    context = command.make_context("minigen", [])
    _, command, words = command.resolve_command(context, shlex.split(line)[1:])
    command.make_context("batch", words, parent=context)


def test_the_page_has_commands_and_lines() -> None:
    assert len(commands()) >= 8
    assert (len(INPUT), len(RECORDS)) == (3, 1)


@pytest.mark.parametrize("line", INPUT)
def test_every_line_of_the_page_is_a_request(line: str) -> None:
    (read,) = LineReader(io.BytesIO(line.encode()), "the page")
    SamplingParams(**request_of(fields_of(read, "json")).settings)


def rows(section: str) -> set[str]:
    return {
        name for row in re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }


def test_the_page_lists_every_key() -> None:
    assert rows(SECTIONS["The input"]) == set(KEYS)
    assert rows(SECTIONS["The output"]) == set(RECORD["properties"])
    for schema in (USAGE, TRUNCATED, RUN):
        for name in schema["properties"]:
            assert f"`{name}`" in SECTIONS["The output"]
    assert f"{AHEAD} × `--max-running`" in PAGE


def test_the_schema_is_one_and_the_record_of_the_page_fits_it() -> None:
    Draft202012Validator.check_schema(BATCH_SCHEMA)
    for line in RECORDS:
        Draft202012Validator(BATCH_SCHEMA).validate(json.loads(line))


@pytest.mark.real_model
def test_the_record_of_the_page_is_what_the_command_writes(
    default_model: Model, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    Path("questions.jsonl").write_text(INPUT[0] + "\n")
    line = next(line for line in commands() if "--temperature 0 " in line)
    assert main([*shlex.split(line)[1:], "--device", "cpu", "--dtype", "float32"]) == 0
    assert capsys.readouterr().out.splitlines() == RECORDS
