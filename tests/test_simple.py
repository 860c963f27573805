"""The plain loop: one screen, and the rules of the rest."""

import pytest
from minigen.generation.errors import ParameterError, PromptError
from minigen.generation.params import SamplingParams
from minigen.generation.simple import greedy_generate, simple_generate
from stubs import ScriptedModel, byte_tokenizer

END = 257


def test_only_the_new_text_comes_back() -> None:
    """SPC-5"""
    model = ScriptedModel([79, 75, END], eos_token_id=END)
    assert greedy_generate(model, byte_tokenizer(), "King , Q <|end|> 中") == "OK"


def test_every_pass_runs_over_all_ids() -> None:
    model = ScriptedModel([79, 75, END], eos_token_id=END)
    greedy_generate(model, byte_tokenizer(), "ab")
    assert model.seen == [[97, 98], [97, 98, 79], [97, 98, 79, 75]]


def test_it_ends_at_the_limit_and_at_the_window() -> None:
    assert greedy_generate(ScriptedModel([97] * 9), byte_tokenizer(), "ab", max_new_tokens=3) == "aaa"
    model = ScriptedModel([97] * 9, max_position_embeddings=6)
    assert greedy_generate(model, byte_tokenizer(), "ab", max_new_tokens=9) == "aaaa"


def test_stop_strings_and_extra_end_ids_count() -> None:
    assert greedy_generate(ScriptedModel([97, 98, 99]), byte_tokenizer(), "x", stop=["c", "bc"]) == "ab"
    assert greedy_generate(ScriptedModel([97, 98, 99]), byte_tokenizer(), "x", stop=["bc", "c"]) == "a"
    assert greedy_generate(ScriptedModel([97, 98, 99]), byte_tokenizer(), "x", end_token_ids=[98]) == "a"


def test_a_seed_repeats_the_text() -> None:
    def text(seed: int) -> str:
        model = ScriptedModel([[0.0] * 128] * 20)
        return simple_generate(model, byte_tokenizer(), "x", max_new_tokens=20, temperature=0.8, seed=seed)

    assert text(3) == text(3)
    assert text(3) != text(4)


def test_params_and_single_settings_together_are_an_error() -> None:
    with pytest.raises(ParameterError, match="sampling_params"):
        simple_generate(ScriptedModel([]), byte_tokenizer(), "x", sampling_params=SamplingParams(), top_k=3)


def test_greedy_takes_params_too() -> None:
    params = SamplingParams(max_new_tokens=2, temperature=3)
    assert greedy_generate(ScriptedModel([97, 98, 99]), byte_tokenizer(), "x", sampling_params=params) == "ab"
    with pytest.raises(ParameterError, match="sampling_params"):
        greedy_generate(ScriptedModel([]), byte_tokenizer(), "x", sampling_params=params, seed=1)


def test_wrong_input_is_refused_before_any_pass() -> None:
    with pytest.raises(ParameterError, match="top_p"):
        simple_generate(ScriptedModel([]), byte_tokenizer(), "x", top_p=2)
    with pytest.raises(TypeError):
        simple_generate(ScriptedModel([]), byte_tokenizer(), "x", top_q=2)
    with pytest.raises(PromptError, match="empty"):
        simple_generate(ScriptedModel([]), byte_tokenizer(), "")
    with pytest.raises(PromptError, match="8"):
        simple_generate(ScriptedModel([], max_position_embeddings=8), byte_tokenizer(), "123456789")


def test_greedy_means_temperature_0() -> None:
    with pytest.raises(ParameterError, match="temperature must be left out: greedy_generate means 0"):
        greedy_generate(ScriptedModel([97]), byte_tokenizer(), "p", temperature=0.5)
    with pytest.raises(ParameterError, match="order must be one that is greedy at temperature 0"):
        greedy_generate(ScriptedModel([97]), byte_tokenizer(), "p", order="llama.cpp", dynatemp_range=0.5)


def test_half_a_character_is_no_stop_string() -> None:
    """TOK-5: a text ends with U+FFFD as long as the last of its characters lacks bytes."""
    script = [*"é".encode(), *"�".encode(), 98]
    text = simple_generate(ScriptedModel(script), byte_tokenizer(), "p", max_new_tokens=6, stop=["�"])
    assert text == "é"
