"""The chain in the order of other engines: against transformers itself, and against the others written once more."""

import math
import random
from functools import partial
from typing import Any

import pytest
import torch
from engines import INF, Row, llama_cpp, mlx, vllm
from minigen.generation.arrangement import filter_stages, score_stages
from minigen.generation.orders import ORDERS, RULES, Order, is_greedy
from minigen.generation.params import SamplingParams
from minigen.generation.sampler import XTC, Sampler, uniform
from minigen.generation.trace import Draw, Inspection
from minigen.generation.words import Words
from stubs import tiny_model
from transformers import GenerationConfig

L = [2, 1, 1, 0.5, 0, -1, -2, -4]
HALVES = [0.0, math.log(0.5), math.log(0.5)]  # of probabilities .5, .25, .25
WORDS = Words(end_token_ids=(5, 6), bad_word_ids=((3,), (7, 8), (1, 2, 9)), newline_ids=(4,))
ENGINES: dict[str, Any] = {"vllm": vllm, "llama.cpp": llama_cpp, "mlx": mlx}


def drawn(row: list[float], prompt: list[int], output: list[int], words: Words = WORDS, **settings: Any) -> Draw:
    """Draw the next token after `output`, with every token listed."""
    sampler = Sampler(
        SamplingParams(**settings),
        prompt_ids=prompt,
        words=words,
        inspection=Inspection(num_candidates=len(row)),
    )
    sampler.output_ids = list(output)
    return sampler.draw(torch.tensor(row))


def kept(row: list[float], **settings: Any) -> list[int]:
    """Give the tokens that are left of a row with nothing before it."""
    params, left = SamplingParams(**settings), torch.tensor(row)
    for _, apply in score_stages(params, [], []) + filter_stages(params):
        left = apply(left)
    return [i for i, score in enumerate(left.tolist()) if score > -INF]


def left_of(draw: Draw) -> dict[int, float]:
    """Give the tokens that are left and their final probabilities, where the draw lists every token."""
    return {one.token_id: one.final_prob for one in draw.candidates if one.dropped_by is None}


def a_row(dice: random.Random, size: int) -> list[float]:
    """Give scores as of a model, half of the time with many ties, rarely with tokens that are ruled out."""
    row = [dice.gauss(0, 2) for _ in range(size)]
    if dice.random() < 0.5:
        row = [round(score * 2) / 2 for score in row]
    if dice.random() < 0.1:
        row[dice.randrange(size)] = -INF
    return torch.tensor(row).tolist()


def some_settings(dice: random.Random, order: str) -> dict[str, Any]:
    """Give a few settings of those that an engine has, with values that matter."""
    choices: dict[str, list[Any]] = {
        "temperature": [0.3, 0.7, 1.6],
        "dynatemp_range": [0.2, 0.9],
        "top_n_sigma": [0.7, 1.5],
        "top_k": [1, 3, 7, 30],
        "top_p": [0.2, 0.55, 0.83, 0.95],
        "min_p": [0.04, 0.13, 0.6, 1.0],
        "typical_p": [0.15, 0.52, 0.87],
        "epsilon_cutoff": [0.011, 0.07],
        "eta_cutoff": [0.013, 0.12],
        "xtc_probability": [0.5, 1.0],
        "mirostat_tau": [0.6, 1.5],
        "repetition_penalty": [0.8, 1.25, 2.0],
        "frequency_penalty": [-0.25, 0.5],
        "presence_penalty": [0.25, 1.5],
        "no_repeat_ngram_size": [1, 2],
        "dry_multiplier": [0.5, 1.25],
        "logit_bias": [{2: 2.0, 11: -1.5}, {0: -INF, 4: 120.0}],
        "allowed_token_ids": [[0, 2, 3, 5, 9, 10]],
        "bad_words": [["bad"]],
        "min_new_tokens": [3, 9],
    }
    names = [
        name for name in (*RULES[order].scores, *RULES[order].filters) if name != "mirostat_tau" or dice.random() < 0.2
    ]
    return {name: dice.choice(choices[name]) for name in names if dice.random() < 0.45}


@pytest.mark.parametrize(
    ("order", "settings", "left"),
    [
        ("minigen", {"top_k": 2}, [0, 1]),
        ("hf", {"top_k": 2}, [0, 1, 2]),
        ("vllm", {"top_k": 2}, [0, 1, 2]),
        ("llama.cpp", {"top_k": 2}, [0, 1]),
        ("mlx", {"top_k": 2}, [0, 1]),
        ("minigen", {"top_p": 0.48}, [0, 1]),
        ("hf", {"top_p": 0.48}, [0, 2]),  # what torch chose
        ("vllm", {"top_p": 0.48}, [0, 2]),
        ("mlx", {"top_p": 0.48}, [0, 2]),
        ("llama.cpp", {"top_p": 0.48}, [0, 1]),
        ("hf", {"typical_p": 0.2}, [1, 2]),
        ("hf", {"typical_p": 0.1}, [1, 2]),  # the tie of the crossing token
        ("minigen", {"typical_p": 0.1}, [1]),
        ("llama.cpp", {"typical_p": 0.1}, [1]),
        ("hf", {"epsilon_cutoff": 0.05}, [0, 1, 2, 3, 4]),
        ("hf", {"eta_cutoff": 0.01}, [0, 1, 2, 3, 4, 5]),
    ],
)
def test_ties_and_edges_are_the_engines_own(order: str, settings: dict[str, Any], left: list[int]) -> None:
    """The vectors of L = [2, 1, 1, 0.5, 0, −1, −2, −4]."""
    assert kept(L, order=order, **settings) == left


@pytest.mark.parametrize("order", ORDERS)
def test_order_matters_on_l(order: str) -> None:
    """top-p 0.9 and min-p 0.1 with the temperature first, and with it last."""
    is_last = order in ("llama.cpp", "mlx")
    for temperature, by_mass, by_ratio in (
        (0.5, [0, 1, 2], [0, 1, 2]),
        (1.8, [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5, 6]),
    ):
        assert kept(L, order=order, temperature=temperature, top_p=0.9) == ([0, 1, 2, 3] if is_last else by_mass)
        assert kept(L, order=order, temperature=temperature, min_p=0.1) == ([0, 1, 2, 3, 4] if is_last else by_ratio)


@pytest.mark.parametrize(
    ("settings", "probs"),
    [
        ({"min_p": 0.26}, [0.444444, 0.333333, 0.222222, 0]),
        ({"min_p": 0.76}, [1, 0, 0, 0]),
        ({"top_p": 0.7}, [0.571429, 0.428571, 0, 0]),
        ({"top_p": 0.8}, [0.444444, 0.333333, 0.222222, 0]),
        ({"top_n_sigma": 1}, [0.571429, 0.428571, 0, 0]),
        ({"top_n_sigma": 3}, [0.4, 0.3, 0.2, 0.1]),
        ({"xtc_probability": 1, "xtc_threshold": 0.09}, [0, 0, 0, 1]),
        ({"xtc_probability": 1, "xtc_threshold": 0.19}, [0, 0, 0.666667, 0.333333]),
        ({"xtc_probability": 1, "xtc_threshold": 0.39}, [0.4, 0.3, 0.2, 0.1]),
        ({"temperature": 0}, [1, 0, 0, 0]),
        ({"temperature": 0, "xtc_probability": 1, "xtc_threshold": 0.29}, [0, 1, 0, 0]),  # its top is already gone
    ],
)
def test_llama_cpp_s_own_numbers(settings: dict[str, Any], probs: list[float]) -> None:
    draw = drawn([math.log(p) for p in (0.4, 0.3, 0.2, 0.1)], [], [], order="llama.cpp", **settings)
    found = {one.token_id: one.final_prob for one in draw.candidates}
    assert [found[i] for i in range(4)] == pytest.approx(probs, abs=1e-5)


@pytest.mark.parametrize(("row", "left"), [((0.97, 0.01, 0.01, 0.01), [0]), ((0.4, 0.2, 0.2, 0.2), [1, 2, 3])])
def test_llama_cpp_s_own_numbers_of_typical(row: tuple[float, ...], left: list[int]) -> None:
    assert kept([math.log(p) for p in row], order="llama.cpp", typical_p=0.5) == left


def test_reaching_the_mass_is_enough_but_for_llama_cpp_s_typical() -> None:
    """Four equal tokens, whose sums are exact: at a mass of one half."""
    four = [0.0] * 4
    left = {order: kept(four, order=order, typical_p=0.5) for order in ("minigen", "hf", "llama.cpp")}
    assert left == {"minigen": [0, 1], "hf": [0, 1, 2, 3], "llama.cpp": [0, 1, 2]}
    assert {order: len(kept(four, order=order, top_p=0.5)) for order in ORDERS} == dict.fromkeys(ORDERS, 2)


@pytest.mark.parametrize("order", ENGINES)
def test_a_chain_is_the_engine_s_written_once_more(order: Order) -> None:
    """Six hundred steps each: survivors and probabilities, but where a decision is too close for float32."""
    dice, num_close = random.Random(order), 0
    for number in range(600):
        size = dice.choice([12, 40])
        row = a_row(dice, size)
        prompt = [dice.randrange(size) for _ in range(dice.choice([1, 5, 60]))]
        output = [dice.randrange(size) for _ in range(dice.choice([0, 1, 4, 25]))]
        settings = some_settings(dice, order)
        words = WORDS if "bad_words" in settings else Words(end_token_ids=(5, 6), newline_ids=(4,))
        params = SamplingParams(order=order, seed=number, dry_sequence_breakers=(), **settings)
        coin = uniform(number, len(output), XTC)
        left: Row = ENGINES[order](row, prompt, output, params, words=words, coin=coin, limit=2 * params.mirostat_tau)
        if left.is_close:
            num_close += 1
            continue
        draw = drawn(row, prompt, output, words, order=order, seed=number, dry_sequence_breakers=(), **settings)
        assert left_of(draw) == pytest.approx(left.probs(), abs=1e-5), (number, settings)
    assert num_close < 10


@pytest.mark.parametrize("is_stable", [True, False])
def test_a_chain_of_transformers_is_transformers_own(is_stable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processors that generate() would build, in the order in which it builds them, on rows with many ties.

    PyTorch's sort may cut anywhere inside a tie: as it comes, the same probabilities are left, if of other tokens; made
    stable, it leaves the same tokens.
    """
    if is_stable:
        monkeypatch.setattr(torch, "sort", partial(torch.sort, stable=True))
    model, dice = tiny_model(vocab_size=300), random.Random(5)
    for number in range(150):
        settings = some_settings(dice, "hf")
        row, prompt = a_row(dice, 300), [dice.randrange(12) for _ in range(dice.choice([1, 9]))]
        output = [dice.randrange(12) for _ in range(dice.choice([0, 1, 4]))]
        theirs = of_transformers(model, row, prompt, output, settings)
        draw = drawn(row, prompt, output, order="hf", seed=number, **settings)
        if is_stable:
            assert left_of(draw) == pytest.approx(theirs, abs=1e-5), (number, settings)
        else:
            assert sorted(left_of(draw).values()) == pytest.approx(sorted(theirs.values()), abs=1e-5), (
                number,
                settings,
            )


def of_transformers(
    model: Any, row: list[float], prompt: list[int], output: list[int], settings: dict[str, Any]
) -> dict[int, float]:
    given = {"top_k": 0, **settings}  # its own default is 50
    if bias := given.pop("logit_bias", None):
        given["sequence_bias"] = {(i,): value for i, value in bias.items()}
    if given.pop("bad_words", None):
        given["bad_words_ids"] = [list(word) for word in WORDS.bad_word_ids]
    config: Any = GenerationConfig(do_sample=True, eos_token_id=list(WORDS.end_token_ids), pad_token_id=0, **given)
    model._prepare_special_tokens(config, kwargs_has_attention_mask=True, device="cpu")
    processors = model._get_logits_processor(config, input_ids_seq_length=len(prompt), device="cpu", model_kwargs={})
    left = processors(torch.tensor([[*prompt, *output]]), torch.tensor([row]))[0]
    return {i: float(left.softmax(-1)[i]) for i in (left > -INF).nonzero().flatten().tolist()}


@pytest.mark.parametrize(
    ("order", "settings", "expected"),
    [
        ("minigen", {}, True),
        ("minigen", {"xtc_probability": 0.5, "dynatemp_range": 1.0}, True),  # no filter runs
        ("llama.cpp", {}, True),
        ("llama.cpp", {"xtc_probability": 0.5}, False),
        ("llama.cpp", {"dynatemp_range": 0.5}, False),
        ("llama.cpp", {"xtc_probability": 0.5, "mirostat_tau": 3.0}, True),  # XTC does not run beside mirostat
    ],
)
def test_temperature_0_settles_the_choice_unless_chance_comes_before_it(
    order: Order, settings: dict[str, Any], expected: bool
) -> None:
    params = [
        SamplingParams(temperature=0, order=order, seed=seed, xtc_threshold=0.1, **settings)
        if settings.get("xtc_probability")
        else SamplingParams(temperature=0, order=order, seed=seed, **settings)
        for seed in range(30)
    ]
    row = torch.tensor([2.0, 1.9, 1.8, -1.0])
    assert is_greedy(params[0]) is expected
    assert (len({Sampler(each).draw(row).token_id for each in params}) == 1) is expected
