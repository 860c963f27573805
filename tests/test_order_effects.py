"""What an order asks for and says: settings that an engine lacks, penalty windows, temperature 0, and the effect."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from jsonschema import Draft202012Validator
from minigen import presets
from minigen.cli.app import main
from minigen.cli.document_schema import JSON_SCHEMA
from minigen.cli.stage_tables import order_lines
from minigen.cli.step_tables import fitted_step_lines
from minigen.cli.token_names import TokenNames
from minigen.generation import chain
from minigen.generation.arrangement import filter_stages, score_stages
from minigen.generation.errors import ParameterError
from minigen.generation.leading import leading_ids
from minigen.generation.orders import ORDERS, RULES, Order
from minigen.generation.params import SamplingParams
from minigen.generation.replay import RecordedStep, Recording, replay
from minigen.generation.sampler import Sampler, uniform
from minigen.generation.trace import KNOBS, Draw, Inspection, Leading, OrderEffect
from minigen.generation.words import NO_WORDS, Words, words_for
from stubs import byte_tokenizer, scripted_folder

L = torch.tensor([2, 1, 1, 0.5, 0, -1, -2, -4])
ALL_ON: dict[str, Any] = {
    "temperature": 0.5, "top_n_sigma": 1.0, "top_k": 1, "top_p": 0.5, "min_p": 0.5, "typical_p": 0.5,
    "epsilon_cutoff": 0.5, "eta_cutoff": 0.5, "xtc_probability": 0.5, "mirostat_tau": 1.0, "repetition_penalty": 2.0,
    "frequency_penalty": 1.0, "presence_penalty": 1.0, "no_repeat_ngram_size": 2, "dry_multiplier": 1.0,
    "logit_bias": {1: 1.0}, "allowed_token_ids": [1], "bad_words": ["x"], "min_new_tokens": 2,
}  # fmt: skip
MIROSTAT = {"mirostat_tau"}


def scores(order: Any, prompt: list[int], output: list[int], words: Words = NO_WORDS, **settings: Any) -> list[float]:
    """Give eight zeros as the stages that change scores leave them."""
    row = torch.ones(8)
    for _, apply in score_stages(SamplingParams(order=order, **settings), prompt, output, words):
        row = apply(row)
    return row.tolist()


def draw(row: torch.Tensor = L, output: list[int] | None = None, **settings: Any) -> Draw:
    sampler = Sampler(SamplingParams(seed=1, **settings), inspection=Inspection(num_candidates=8, has_stages=True))
    sampler.output_ids = list(output or [])
    return sampler.draw(row)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("without", [(), MIROSTAT])
def test_the_stages_run_in_the_order_that_is_written_down(order: Order, without: set[str]) -> None:
    rules = RULES[order]
    has = {name: value for name, value in ALL_ON.items() if name in (*rules.scores, *rules.filters)}
    params = SamplingParams(order=order, **{name: value for name, value in has.items() if name not in without})
    found = [name for name, _ in score_stages(params, [1], [1]) + filter_stages(params)]
    if order == "llama.cpp" and not without:
        assert found == ["logit_bias", "temperature", "mirostat_tau"]
    else:
        assert found == [name for name in (*rules.scores, *rules.filters) if name in has and name not in without]


def test_minigen_s_order_has_every_stage_once() -> None:
    params, own = SamplingParams(), RULES["minigen"]
    assert sorted(own.scores) == sorted(chain.of_scores(params, [1], [1]))
    assert sorted(own.filters) == sorted(chain.of_distribution(params))


def test_the_loop_page_lists_what_each_engine_has() -> None:
    page = (Path(__file__).parent.parent / "docs" / "loop.md").read_text("utf-8")
    table = page[page.index("### In another engine's order") : page.index("- Ties:")]
    rows = {cells[0]: cells[1:] for line in table.splitlines() if (cells := re.findall(r"`([\w.]+)`", line))[1:]}
    for order in ORDERS[1:]:
        assert rows[order] == [*RULES[order].scores, *RULES[order].filters]


@pytest.mark.parametrize("order", ORDERS)
def test_a_setting_that_an_engine_lacks_is_named(order: Order) -> None:
    for name in {*ALL_ON} - {*RULES[order].scores, *RULES[order].filters}:
        with pytest.raises(ParameterError, match=rf"^{name} must be .* with order {order}, which has no such setting"):
            SamplingParams(order=order, **{name: ALL_ON[name]})


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"order": "vlm"}, "order must be one of minigen, hf, vllm, llama.cpp, mlx, not 'vlm'."),
        ({"order": "hf", "temperature": 0}, "temperature must be above 0 with order hf, not 0.0."),
        ({"order": "hf", "eta_cutoff": 1}, "eta_cutoff must be below 1 with order hf, not 1.0."),
        ({"order": "vllm", "temperature": 2.5}, "temperature must be at most 2 with order vllm, not 2.5."),
        ({"order": "mlx", "xtc_threshold": 0.6}, "xtc_threshold must be at most 0.5 with order mlx, not 0.6."),
    ],
)
def test_what_an_engine_refuses_is_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ParameterError) as caught:
        SamplingParams(**settings)
    assert str(caught.value) == sentence


def test_penalties_count_the_engine_s_window() -> None:
    """Token 0 long ago, token 1 late in the prompt, token 2 at its end, token 3 twice in the output."""
    prompt, output = [0, *[7] * 50, 1, 2], [3, 3]
    counted = {
        "minigen": [1, 1, 1, -1, 1, 1, 1, 1],
        "vllm": [1, 1, 1, -1, 1, 1, 1, 1],
        "llama.cpp": [0, 0, 0, -1, 1, 1, 1, -49],
        "mlx": [1, 1, 0, -1, 1, 1, 1, 1],
    }
    assert {order: scores(order, prompt, output, frequency_penalty=1) for order in counted} == counted
    once = [0.0] * 8
    once[4:7] = [1.0] * 3
    assert scores("llama.cpp", prompt, output, presence_penalty=1) == once
    assert scores("mlx", prompt, output, presence_penalty=1) == [1, 1, 0, 0, 1, 1, 1, 1]
    assert scores("mlx", prompt, output, repetition_penalty=2) == [1, 1, 0.5, 0.5, 1, 1, 1, 1]
    assert scores("llama.cpp", [5, *prompt], [3] * 64, repetition_penalty=2) == [1, 1, 1, 0.5, 1, 1, 1, 1]
    assert scores("mlx", prompt, [4, *[3] * 20], repetition_penalty=2) == [1, 1, 1, 0.5, 1, 1, 1, 1]
    assert scores("hf", prompt, output, repetition_penalty=2) == [0.5, 0.5, 0.5, 0.5, 1, 1, 1, 0.5]


def test_vllm_holds_a_bias_within_a_hundred_and_a_temperature_above_a_hundredth() -> None:
    assert scores("vllm", [], [], logit_bias={0: -math.inf, 1: 500, 2: 3})[:3] == [-99, 101, 4]
    row = torch.tensor([0.01, 0.0])
    probs = [one.final_prob for one in draw(row, order="vllm", temperature=1e-6).candidates]
    assert probs == pytest.approx([1 / (1 + math.exp(-1)), 1 / (1 + math.e)], abs=1e-6)


def test_transformers_finds_bad_words_in_the_prompt_and_never_bans_an_end_token_as_one() -> None:
    words = Words(bad_word_ids=((1, 2), (6,), (5,)), end_token_ids=(5,))
    left = {order: scores(order, [1], [], words, bad_words=["x"]) for order in ("hf", "vllm")}
    banned = {order: [i for i, score in enumerate(row) if score == -math.inf] for order, row in left.items()}
    assert banned == {"hf": [2, 6], "vllm": [5, 6]}


def test_mlx_spares_line_breaks_and_end_tokens_from_xtc() -> None:
    params = SamplingParams(order="mlx", xtc_probability=1, dry_sequence_breakers=())
    assert words_for(params, byte_tokenizer(), [257]).newline_ids == (10,)
    row, left = torch.tensor([0.4, 0.3, 0.2, 0.1]).log(), []
    for words in (NO_WORDS, Words(newline_ids=(1,)), Words(end_token_ids=(0,))):
        ((_, xtc),) = filter_stages(replace(params, xtc_threshold=0.15), words=words)
        left.append((xtc(row) > -math.inf).tolist())
    assert left == [[False, False, True, True], [False, True, True, True], [True, False, True, True]]


@pytest.mark.parametrize("order", ["minigen", "vllm", "llama.cpp", "mlx"])
def test_temperature_0_keeps_the_penalties_and_of_the_filters_only_llama_cpp_s(order: str) -> None:
    settings: dict[str, Any] = {"presence_penalty": 1.5, "logit_bias": {1: 0.5}}  # 0 falls to 0.5, 1 rises to 1.5
    found = draw(L, [0, 0], order=order, temperature=0, **settings)
    assert (found.token_id, found.final_prob, found.u) == (1, 1.0, None)
    if "xtc_probability" in RULES[order].filters:
        found = draw(L, [0, 0], order=order, temperature=0, xtc_probability=1, **settings)
        assert found.token_id == (3 if order == "llama.cpp" else 1)  # 1, 2, 0 and 3 are likely, and the last stays


def test_llama_cpp_draws_where_a_moving_temperature_starts_from_0() -> None:
    found = draw(order="llama.cpp", temperature=0, dynatemp_range=1.5)
    assert found.u == uniform(1, 0)
    assert sum(one.final_prob > 0 for one in found.candidates) > 1


@pytest.mark.parametrize("order", ORDERS)
def test_the_random_number_is_the_same_in_every_order(order: str) -> None:
    assert draw(order=order, top_k=3).u == uniform(1, 0)


def test_an_effect_holds_both_orders_against_each_other() -> None:
    """L with temperature 1.8 and top-p 0.9: six tokens are left where it comes first, four where it comes last."""
    settings: dict[str, Any] = {"temperature": 1.8, "top_p": 0.9}
    assert draw(**settings).order_effect is None
    wanted = OrderEffect(order="llama.cpp", tokens_left=4, own_tokens_left=6, tokens_changed=2)
    assert draw(order="llama.cpp", **settings).order_effect == wanted
    tied = OrderEffect(order="hf", tokens_left=2, own_tokens_left=2, tokens_changed=2)  # 0 2 and 0 1
    assert draw(order="hf", top_p=0.48).order_effect == tied
    cold = OrderEffect(order="mlx", tokens_left=1, own_tokens_left=1, tokens_changed=0)
    assert draw(order="mlx", temperature=0).order_effect == cold
    banned = draw(order="vllm", logit_bias=dict.fromkeys(range(8), -math.inf)).order_effect
    assert banned == OrderEffect(order="vllm", tokens_left=8, own_tokens_left=0, tokens_changed=8)


def test_the_waterfall_is_in_the_order_that_ran_and_margins_are_not_computed() -> None:
    found = draw(order="llama.cpp", temperature=1.8, top_p=0.9, min_p=0.05)
    assert [stage.name for stage in found.stages] == ["raw", "top_p", "min_p", "temperature"]
    assert found.margins == dict.fromkeys(KNOBS)
    assert [one.dropped_by for one in found.candidates][4:] == ["top_p"] * 4


def test_a_replay_follows_another_order() -> None:
    ids = leading_ids(L, 8)
    leading = Leading(
        token_ids=ids.tolist(), logits=L[ids].tolist(), num_others=0, others_logsumexp=-math.inf, deviation=1.9
    )
    params = SamplingParams(order="mlx", top_p=0.9)
    steps = [RecordedStep(token_id=0, rank=1, leading=leading)]
    recording = Recording(params=params, seed=1, prompt_ids=[1], steps=steps, vocab_size=8)
    assert [step.token_id for step in replay(recording, params)] == [0]
    changed = SamplingParams(order="mlx", top_p=0.5, seed=1)
    (step,) = replay(recording, changed)
    assert (step.is_decided, step.token_id) == (True, Sampler(changed, prompt_ids=[1]).draw(L).token_id)
    (own,) = replay(recording, SamplingParams(top_k=1))
    assert own.token_id == 0


# The command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("model")
    return str(scripted_folder(path, [*b"hello", 257], prompt_length=2, tokenizer=byte_tokenizer()))


pytestmark = pytest.mark.usefixtures("no_stdin")


def run(folder: str, *arguments: str) -> int:
    return main(["run", "ab", "--raw", "-m", folder, "--seed", "1", *arguments])


def test_a_flag_that_an_order_lacks_is_refused_before_a_model_loads(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "x", "-m", "no/such-model", "--order", "vllm", "--typical-p", "0.9"]) == 2
    told = "minigen: typical_p must be 1 with order vllm, which has no such setting, not 0.9.\n"
    assert capsys.readouterr().err == told


def test_a_preset_that_does_not_hold_together_says_so_with_its_line(home: Path) -> None:
    (home / "mine.yaml").write_text("extends: smollm2\nsampling:\n  order: mlx\n  eta_cutoff: 0.1\n")
    assert presets.problems("./mine.yaml") == [
        "./mine.yaml:4: sampling.eta_cutoff must be 0 with order mlx, which has no such setting, not 0.1."
    ]


def test_tables_tell_a_step_s_effect(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    hot = ["-t", "100", "--top-p", "0.5", "--max-new-tokens", "1", "--inspect", "--top", "2"]
    assert run(folder, "--order", "mlx", *hot) == 0
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "order mlx · top_p 0.5 · temperature 100.0 · seed 1"
    assert told[-1].startswith("order mlx keeps 1 token, minigen's ")
    assert told[-1].endswith(" differ")


@pytest.mark.parametrize("width", [80, 40, 20, 9])
def test_the_line_of_an_effect_holds_at_any_width(width: int) -> None:
    found = draw(order="llama.cpp", temperature=1.8, top_p=0.9)
    lines = [str(line) for line in order_lines(found, width=width)]
    assert max(map(len, lines)) <= width
    if width >= 20:
        told = "order llama.cpp keeps 4 tokens, minigen's 6; 2 differ"
        assert " ".join(line.strip() for line in lines) == told
    assert order_lines(draw(order="llama.cpp"), width=width) == []


def test_a_low_screen_shows_the_chosen_token_before_the_effect() -> None:
    names = TokenNames(byte_tokenizer())
    found = draw(order="llama.cpp", temperature=1.8, top_p=0.9)
    shown = [len(fitted_step_lines(1, found, names, None, width=80, rows=rows)) for rows in (3, 4, 5)]
    assert shown == [3, 4, 5]
    assert str(fitted_step_lines(1, found, names, None, width=80, rows=4)[-1]).startswith("order llama.cpp")


def test_a_run_without_tables_counts_the_steps(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    hot = ["-t", "100", "--top-p", "0.5", "--max-new-tokens", "3"]
    note = "minigen: with minigen's order {} of 3 steps would have had other candidates.\n"
    assert run(folder, "--order", "mlx", *hot) == 0
    assert capsys.readouterr() == ("hel", note.format(3))
    assert run(folder, "--order", "vllm", "-t", "1", "--top-p", "0.5", "--max-new-tokens", "3") == 0
    assert capsys.readouterr() == ("hel", note.format(0))
    assert run(folder, "--order", "mlx", *hot, "-q") == 0
    assert capsys.readouterr() == ("hel", "")


def test_the_json_tells_order_and_effect(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "--order", "llama.cpp", "--top-k", "3", "--max-new-tokens", "1", "--inspect", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["settings"]["order"] == {"value": "llama.cpp", "origin": "flag --order"}
    Draft202012Validator(JSON_SCHEMA).validate(document)
    (token,) = document["tokens"]
    assert token["order_effect"]["order"] == "llama.cpp"
    assert run(folder, "--max-new-tokens", "1", "--inspect", "--json") == 0
    assert "order_effect" not in json.loads(capsys.readouterr().out)["tokens"][0]
