"""The engine with a scripted model: what is fed, what is said, and every way of ending."""

import math
from itertools import count
from typing import Any

import pytest
import torch
from minigen.generation.engine import Engine
from minigen.generation.errors import NumberError, OutOfMemory, ParameterError, PromptError, RunError
from minigen.generation.model import Model
from minigen.generation.params import SamplingParams
from minigen.generation.prompt import Prompt
from minigen.generation.sampler import Sampler
from minigen.generation.trace import Inspection, Output
from stubs import ScriptedModel, byte_tokenizer, tiny_model

END = 257
GREEDY = SamplingParams(temperature=0, max_new_tokens=50)


def ids(text: str) -> list[int]:
    return list(text.encode())


def engine_for(script: Any, *, pieces: tuple[str, ...] = (), **config: Any) -> Engine:
    config.setdefault("eos_token_id", END)
    return Engine(Model.wrap(ScriptedModel(script, **config), byte_tokenizer(pieces)))


def outputs_of(engine: Engine) -> list[Output]:
    outputs = []
    while engine.has_unfinished_requests():
        outputs += engine.step()
    return outputs


def text_of(outputs: list[Output]) -> str:
    return "".join(output.text for output in outputs)


def run(script: Any, params: SamplingParams = GREEDY, prompt: Any = "ab", **given: Any) -> list[Output]:
    engine = engine_for(script, **given)
    engine.add_request(prompt, params)
    return outputs_of(engine)


def test_each_token_is_fed_back_once() -> None:
    engine = engine_for([104, 105, END])
    engine.add_request([1, 2, 3], GREEDY)
    outputs_of(engine)
    assert engine.model.network.seen == [[1, 2, 3], [104], [105]]


def test_a_long_prompt_is_prefilled_in_chunks() -> None:
    engine = engine_for([0, 0, 104, END])
    engine.add_request([7] * 1500, GREEDY)
    assert text_of(outputs_of(engine)) == "h"
    assert [len(seen) for seen in engine.model.network.seen] == [512, 512, 476, 1]


def test_each_step_gives_one_output_with_its_text() -> None:
    outputs = run([*ids("hi"), END])
    assert [(o.text, o.token_id, o.finish_reason, o.stop) for o in outputs] == [
        ("h", 104, None, None),
        ("i", 105, None, None),
        ("", END, "stop", END),
    ]
    assert all(o.draw is not None and o.error is None for o in outputs)


def test_a_run_ends_at_max_new_tokens() -> None:
    outputs = run(ids("abcdef"), SamplingParams(temperature=0, max_new_tokens=3))
    assert (text_of(outputs), outputs[-1].finish_reason, len(outputs)) == ("abc", "length", 3)


def test_any_of_several_end_tokens_ends_the_text() -> None:
    """TOK-1"""
    outputs = run([*ids("hi"), 106, 88], eos_token_id=[1, 106])
    assert (text_of(outputs), outputs[-1].finish_reason, outputs[-1].stop) == ("hi", "stop", 106)


def test_a_request_s_own_end_tokens_count_too() -> None:
    outputs = run([*ids("hix")], SamplingParams(temperature=0, end_token_ids=[105]))
    assert (text_of(outputs), outputs[-1].stop) == ("h", 105)


def test_ignore_eos_switches_all_end_tokens_off() -> None:
    params = SamplingParams(temperature=0, max_new_tokens=3, ignore_eos=True, end_token_ids=[105])
    outputs = run([END, 105, 104], params)
    assert (text_of(outputs), outputs[-1].finish_reason) == ("ih", "length")


@pytest.mark.parametrize(
    ("prompt", "new", "text", "reason"), [(5, 3, "abc", "length"), (5, 4, "abc", "context"), (7, 9, "a", "context")]
)
def test_a_run_ends_at_the_window(prompt: int, new: int, text: str, reason: str) -> None:
    """CTX-5"""
    params = SamplingParams(temperature=0, max_new_tokens=new)
    outputs = run(ids("abcdefgh"), params, prompt=[9] * prompt, max_position_embeddings=8)
    assert (text_of(outputs), outputs[-1].finish_reason) == (text, reason)


@pytest.mark.parametrize("length", [8, 9, 500])
def test_a_prompt_without_room_is_refused_before_any_pass(length: int) -> None:
    """CTX-1"""
    engine = engine_for([], max_position_embeddings=8)
    with pytest.raises(PromptError, match=rf"{length}\D.*8|8.*\D{length}"):
        engine.add_request([9] * length, GREEDY)
    assert engine.model.network.seen == []
    assert not engine.has_unfinished_requests()


@pytest.mark.parametrize("prompt", ["", [], Prompt((), ())])
def test_an_empty_prompt_is_refused(prompt: Any) -> None:
    """INP-1"""
    with pytest.raises(PromptError, match="empty"):
        engine_for([]).add_request(prompt, GREEDY)


def test_stop_strings_end_the_text_and_are_named() -> None:
    """STP-1, STP-2"""
    engine_pieces = ("ok ", "EN", "hel", "lo", " world")
    outputs = run([258, 259, 68, 46, 120], SamplingParams(temperature=0, stop=["END."]), pieces=engine_pieces)
    assert (text_of(outputs), outputs[-1].finish_reason, outputs[-1].stop) == ("ok ", "stop", "END.")
    assert [o.text for o in outputs] == ["ok ", "", "", ""]
    outputs = run([260, 261, 262], SamplingParams(temperature=0, stop=["lo wo"]), pieces=engine_pieces)
    assert (text_of(outputs), outputs[-1].stop) == ("hel", "lo wo")


@pytest.mark.parametrize("limit", [3, 50])
def test_held_text_is_released_for_every_way_of_ending(limit: int) -> None:
    """STP-3, UTF-6"""
    params = SamplingParams(temperature=0, stop=["XYZ"], max_new_tokens=limit)
    assert text_of(run([258, 89, END], params, pieces=("abX",))) == "abXY"
    assert text_of(run([104, 0xF0, 0x9F, END], SamplingParams(temperature=0, max_new_tokens=limit))) == "h�"


def test_a_stop_string_and_the_limit_at_once_is_a_stop() -> None:
    outputs = run(ids("ab"), SamplingParams(temperature=0, stop=["b"], max_new_tokens=2))
    assert (text_of(outputs), outputs[-1].finish_reason, outputs[-1].stop) == ("a", "stop", "b")


def test_the_prompt_never_counts_for_a_stop_string() -> None:
    """STP-5"""
    outputs = run([*ids("Bc"), END], SamplingParams(temperature=0, stop=["AB"]), prompt="xA")
    assert text_of(outputs) == "Bc"


def test_an_aborted_request_gives_one_last_output_with_the_held_text() -> None:
    engine = engine_for(ids("abX"))
    engine.add_request("p", SamplingParams(temperature=0, stop=["bXY"]), request_id="r")
    for _ in range(3):
        engine.step()
    engine.abort_request("r")
    outputs = outputs_of(engine)
    assert [(o.text, o.token_id, o.finish_reason) for o in outputs] == [("bX", None, "interrupted")]
    engine.abort_request("r")
    assert not engine.has_unfinished_requests()


def test_a_waiting_request_can_be_aborted() -> None:
    engine = engine_for([*ids("a"), END])
    first, second = engine.add_request("p", GREEDY), engine.add_request("q", GREEDY)
    engine.abort_request(second)
    outputs = outputs_of(engine)
    assert {o.request_id: o.finish_reason for o in outputs} == {first: "stop", second: "interrupted"}


def test_one_failing_request_fails_alone() -> None:
    """BAT-4"""
    script: list[Any] = [*ids("a"), END, *ids("b"), [math.nan] * 300, *ids("c"), END]
    engine = engine_for(script)
    names = [engine.add_request("p", GREEDY) for _ in range(3)]
    outputs = outputs_of(engine)
    assert [text_of([o for o in outputs if o.request_id == name]) for name in names] == ["a", "b", "c"]
    failed = [o for o in outputs if o.error is not None]
    assert [(o.request_id, o.finish_reason) for o in failed] == [(names[1], "error")]
    assert isinstance(failed[0].error, NumberError)
    assert "token 2" in str(failed[0].error)


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (ValueError("boom"), RunError, "at token 3: ValueError: boom"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), OutOfMemory, "token 3"),
        (MemoryError(), OutOfMemory, "token 3"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), OutOfMemory, "token 3"),
    ],
)
def test_a_failure_in_mid_run_keeps_the_text_and_says_one_sentence(
    error: Exception, kind: type[Exception], message: str
) -> None:
    """TTY-5, DEV-4"""
    outputs = run([*ids("ab"), error])
    assert (text_of(outputs), outputs[-1].finish_reason) == ("ab", "error")
    assert isinstance(outputs[-1].error, kind)
    assert message in str(outputs[-1].error)
    assert "\n" not in str(outputs[-1].error)


def test_ids_past_the_tokenizer_decode_to_nothing() -> None:
    """VOC-1"""
    assert text_of(run([97, 290, 98, END])) == "ab"


def test_a_finished_row_gets_nothing_more() -> None:
    """TOK-5"""
    engine = engine_for([97, END, *ids("bcd"), END])
    first, second = engine.add_request("p", GREEDY), engine.add_request("q", GREEDY)
    outputs = outputs_of(engine)
    assert [o.token_id for o in outputs if o.request_id == first] == [97, END]
    assert text_of([o for o in outputs if o.request_id == second]) == "bcd"


@pytest.mark.parametrize(
    ("prompt", "params"),
    [
        ([1, 300], GREEDY),
        ([-1], GREEDY),
        ("p", SamplingParams(logit_bias={300: 1.0})),
        ("p", SamplingParams(end_token_ids=[300])),
        ("p", SamplingParams(allowed_token_ids=[5, 300])),
    ],
)
def test_ids_outside_the_vocabulary_are_refused(prompt: Any, params: SamplingParams) -> None:
    with pytest.raises(ParameterError, match="token ids from 0 to 299"):
        engine_for([]).add_request(prompt, params)


@pytest.mark.parametrize("ignore_eos", [False, True])
def test_no_end_token_comes_before_the_smallest_number(ignore_eos: bool) -> None:
    """Neither the model's nor one that was added, nor one that would not have ended the text."""
    row = [0.0] * 300
    row[END], row[98], row[97] = 9.0, 8.0, 7.0
    params = SamplingParams(
        temperature=0, min_new_tokens=3, end_token_ids=[98], max_new_tokens=5, ignore_eos=ignore_eos
    )
    ids = [output.token_id for output in run([row] * 5, params)]
    assert ids == [97, 97, 97, *([END, END] if ignore_eos else [END])]


def test_a_bad_word_is_never_written() -> None:
    pieces = ("cat", " cat", "dog")
    row = [0.0] * 300
    row[258], row[259], row[260] = 9.0, 8.0, 7.0
    outputs = run([row] * 3, SamplingParams(temperature=0, bad_words="cat", max_new_tokens=3), pieces=pieces)
    assert text_of(outputs) == "dogdogdog"
    with pytest.raises(ParameterError, match="bad_words must be texts that the tokenizer has tokens for"):
        engine_for([]).add_request("p", SamplingParams(bad_words="\ud800"))


def test_bans_that_leave_nothing_end_their_sequence_with_an_error() -> None:
    engine = engine_for([[0.0] * 300, *ids("ok"), END])
    engine.add_request("p", SamplingParams(allowed_token_ids=[97], bad_words="a"))
    engine.add_request("p", GREEDY, "good")
    outputs = outputs_of(engine)
    assert str(outputs[0].error) == "allowed_token_ids and bad_words ban every token at token 1."
    assert text_of([output for output in outputs if output.request_id == "good"]) == "ok"


def test_dry_breaks_at_the_texts_that_it_is_told() -> None:
    row = [0.0] * 300
    row[99] = 1.0
    dry = {"temperature": 0, "max_new_tokens": 1, "dry_multiplier": 2.0}
    assert text_of(run([row], SamplingParams(**dry), prompt="abcab")) != "c"
    assert text_of(run([row], SamplingParams(**dry, dry_sequence_breakers=["b"]), prompt="abcab")) == "c"
    assert text_of(run([row], SamplingParams(**dry), prompt="abc:ab")) != "c"
    assert text_of(run([row], SamplingParams(**dry), prompt="abca:b")) == "c"


def test_request_ids_are_unique() -> None:
    engine = engine_for([])
    assert engine.add_request("p", GREEDY, "0") == "0"
    assert engine.add_request("p", GREEDY) != "0"
    with pytest.raises(ParameterError, match="request_id"):
        engine.add_request("p", GREEDY, "0")


def test_a_chosen_seed_can_be_asked_for_and_repeats_the_run() -> None:
    rows = [torch.zeros(300).tolist()] * 6
    engine = engine_for(rows)
    name = engine.add_request("p", SamplingParams(max_new_tokens=6, ignore_eos=True))
    seed = engine.seed_of(name)
    first = [o.token_id for o in outputs_of(engine)]
    again = run(rows, SamplingParams(max_new_tokens=6, ignore_eos=True, seed=seed), prompt="p")
    assert [o.token_id for o in again] == first


def test_a_seeded_request_does_not_depend_on_its_company() -> None:
    """RNG-1"""
    rows = [torch.zeros(300).tolist()] * 20
    params = SamplingParams(max_new_tokens=4, ignore_eos=True, seed=42)
    other = SamplingParams(max_new_tokens=4, ignore_eos=True, seed=7)
    found = []
    for order in ([params], [params, other], [other, params]):
        engine = engine_for(rows)
        names = [engine.add_request("p", given) for given in order]
        outputs = outputs_of(engine)
        found.append([o.token_id for o in outputs if o.request_id == names[order.index(params)]])
    assert found[0] == found[1] == found[2]


def test_candidates_come_only_when_asked_for() -> None:
    """STA-9"""
    engine = engine_for([97, END])
    engine.add_request("p", GREEDY, inspection=Inspection(num_candidates=5))
    outputs = outputs_of(engine)
    assert [len(o.draw.candidates) for o in outputs if o.draw] == [5, 5]
    assert run([97, END])[0].draw.candidates == ()  # type: ignore[union-attr]


def test_requests_leave_no_slot_behind() -> None:
    """BAT-7"""
    engine = engine_for([97, END] * 50)
    sequences = []
    for number in range(50):
        engine.add_request("p", GREEDY, str(number))
        found = engine.scheduler.find(str(number))
        assert found is not None
        sequences.append(found)
    engine.step()
    assert [sequence.slot is not None for sequence in sequences] == [True, *[False] * 49]
    outputs_of(engine)
    assert all(sequence.slot is None for sequence in sequences)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_prompts_of_unequal_length_give_what_each_gives_alone(order: tuple[int, int]) -> None:
    """BAT-2, RNG-3, SMP-16, VOC-3, VOC-5: no padding, so nothing to count or mask."""
    model = tiny_model(vocab_size=258, eos_token_id=None)
    prompts = [[5, END, 6], [9, 8, 7, 6, 5, 4, 3, 2, 1]]
    params = SamplingParams(repetition_penalty=1.5, seed=3, max_new_tokens=8, ignore_eos=True)

    def texts(chosen: list[list[int]]) -> list[list[int | None]]:
        engine = Engine(Model.wrap(model, byte_tokenizer()))
        names = [engine.add_request(prompt, params) for prompt in chosen]
        outputs = outputs_of(engine)
        return [[o.token_id for o in outputs if o.request_id == name] for name in names]

    together = texts([prompts[i] for i in order])
    assert together == [texts([prompts[i]])[0] for i in order]


def test_a_drawn_id_lies_in_the_vocabulary() -> None:
    """DEV-6"""
    outputs = run([[0.0] * 300] * 40, SamplingParams(seed=1, temperature=100, max_new_tokens=40, ignore_eos=True))
    assert all(o.token_id is not None and 0 <= o.token_id < 300 for o in outputs)


def test_samples_that_differ_by_their_seed_share_the_search_of_the_vocabulary() -> None:
    engine = engine_for([97, END])
    first = engine.words_of(SamplingParams(dry_multiplier=1, bad_words="x", seed=1))
    assert engine.words_of(SamplingParams(dry_multiplier=1, bad_words="x", seed=2)) is first
    assert engine.words_of(SamplingParams(dry_multiplier=1, bad_words="y", seed=2)).bad_word_ids != first.bad_word_ids


@pytest.mark.parametrize("max_running", [1, 4])
def test_a_step_that_is_interrupted_can_be_made_again(max_running: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook's stop button raises KeyboardInterrupt in the middle of a draw, or of a pass."""
    model = Model.wrap(tiny_model(vocab_size=300), byte_tokenizer())
    jobs = [([5, 6, 7], SamplingParams(seed=i, max_new_tokens=6, ignore_eos=True)) for i in range(max_running)]
    expected = []
    for prompt, params in jobs:
        engine = Engine(model, max_running=1)
        engine.add_request(prompt, params)
        expected.append([output.token_id for output in outputs_of(engine)])
    engine = Engine(model, max_running=max_running, block_size=2)
    for i, (prompt, params) in enumerate(jobs):
        engine.add_request(prompt, params, str(i))
    calls = count()

    def interrupted(*given: Any, **named: Any) -> None:
        if next(calls) in (1, 3, 6):
            raise KeyboardInterrupt

    draw, layer = Sampler.draw, model.network.model.layers[1].self_attn
    layer.register_forward_pre_hook(interrupted)
    monkeypatch.setattr(Sampler, "draw", lambda sampler, row: (interrupted(), draw(sampler, row))[1])
    found: dict[str, list[int | None]] = {str(i): [] for i in range(max_running)}
    num_interrupts = 0
    while engine.has_unfinished_requests():
        try:
            for output in engine.step():
                found[output.request_id].append(output.token_id)
        except KeyboardInterrupt:
            num_interrupts += 1
    assert num_interrupts == 3
    assert list(found.values()) == expected
