"""Steps as graphs: the logits and texts of the block runner, whatever the schedule, with nothing that waits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from minigen.cli.app import main
from minigen.generation import graphs, placement
from minigen.generation.block_cache import BlockCache
from minigen.generation.block_runner import BlockRunner
from minigen.generation.block_tables import BlockTables
from minigen.generation.blocks import NULL
from minigen.generation.device_draws import SETTINGS, draws
from minigen.generation.engine import Engine
from minigen.generation.errors import NumberError
from minigen.generation.graph_runner import GraphRunner
from minigen.generation.graphs import Capture, Graph, Graphs, bucket
from minigen.generation.model import Model
from minigen.generation.params import SamplingParams
from minigen.generation.sequence import Work
from minigen.generation.trace import UNMEASURED, Inspection, Output
from recording import RecordedCapture, Recorder, RefusedError, device_of, watched
from stubs import ScriptedModel, byte_tokenizer, tiny_model
from test_batching import (
    FAMILIES,
    SHAPE,
    VOCAB,
    check_as_alone,
    check_blocks,
    engine_of,
    model_of,
    outputs_alone,
    params as any_params,
    played,
    prompts as any_prompts,
)
from tiny_folders import tiny_folder
from torch import Tensor

GREEDY = SamplingParams(temperature=0, max_new_tokens=20, ignore_eos=True)


def graph_engine(
    model: Model, capture: Capture, *, blocks: int | None = None, block_size: int = 4, **given: Any
) -> Engine:
    """Give an engine whose placement finds a device that captures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placement, "capture_on", lambda device: capture)
        return engine_of(model, blocks=blocks, block_size=block_size, **given)


def runner_of(engine: Engine) -> GraphRunner:
    assert isinstance(engine.runner, GraphRunner)
    return engine.runner


def texts_of(engine: Engine, jobs: Sequence[tuple[list[int], SamplingParams]]) -> list[list[Output]]:
    """Run requests to their end; give the outputs of each."""
    names = [engine.add_request(prompt, params) for prompt, params in jobs]
    outputs: dict[str, list[Output]] = {name: [] for name in names}
    while engine.has_unfinished_requests():
        for output in engine.step():
            outputs[output.request_id].append(output)
        check_blocks(engine)
    return list(outputs.values())


def check_every_step(engine: Engine) -> list[int]:
    """Hold the logits of each step against those of the block runner; give a list that will say how many rows each had.

    A second pass writes the same keys and values into the same places.
    """
    runner, rows = runner_of(engine), list[int]()
    forward, plain = runner.forward, runner._runner.forward

    def checking(works: Sequence[Work]) -> Tensor:
        found = forward(works).clone()
        torch.testing.assert_close(found, plain(works), rtol=1e-4, atol=1e-4)
        rows.append(len(found))
        return found

    runner.forward = checking  # type: ignore[method-assign]
    return rows


@settings(max_examples=30, deadline=None)
@given(
    st.data(), st.sampled_from(FAMILIES), st.lists(st.tuples(any_prompts, any_params, st.integers(0, 6)), max_size=7)
)
def test_any_schedule_gives_the_logits_of_the_block_runner_and_the_texts_of_single_runs(
    data: st.DataObject, kind: str, jobs: Any
) -> None:
    """Arrivals, lengths, block sizes; memory too small for all, so that sequences are set back; windows of 8 keys."""
    model, capture = model_of(kind), RecordedCapture()
    block_size = data.draw(st.sampled_from([1, 2, 4, 16]))
    most = max([len(prompt) + params.max_new_tokens for prompt, params, _ in jobs], default=1)
    max_running = data.draw(st.integers(1, 5))
    engine = graph_engine(
        model,
        capture,
        blocks=-(-most // block_size) + data.draw(st.integers(0, 12)),
        block_size=block_size,
        max_running=max_running,
        step_tokens=max_running + data.draw(st.integers(0, 40)),
    )
    check_every_step(engine)
    outputs = played(engine, jobs)
    assert runner_of(engine).failure is None
    for index, (prompt, params, _) in enumerate(jobs):
        check_as_alone(outputs[str(index)], outputs_alone(model, prompt, params))


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_replay_gives_what_the_step_gives_to_the_last_bit(kind: str) -> None:
    model, capture = model_of(kind), RecordedCapture()
    engine = graph_engine(model, capture, max_running=4)
    runner = runner_of(engine)
    forward = runner.forward
    apart: list[bool] = []

    def checking(works: Sequence[Work]) -> Tensor:
        found = forward(works).clone()
        if all(work.count == 1 for work in works):
            [again] = [each.tensor for key, each in runner._inputs.items() if key == runner_key(works)]
            with torch.inference_mode():
                apart.append(not torch.equal(runner.step(again)[: len(works)], found))
        return found

    def runner_key(works: Sequence[Work]) -> tuple[int, int]:
        return bucket(len(works)), bucket(max(work.sequence.num_cached // 4 + 1 for work in works), 4)

    runner.forward = checking  # type: ignore[method-assign]
    texts_of(engine, [([9, 8, 7], GREEDY), ([5] * 14, GREEDY), (list(range(20, 40)), GREEDY)])
    assert len(apart) > 15
    assert not any(apart)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("Gemma2", {"sliding_window": 8}),  # scores that are capped, every second layer within a window
        ("GPTNeoX", {}),
        ("Mixtral", {}),  # experts
        ("OPT", {}),  # learned positions
        ("Qwen3", {}),
    ],
)
def test_other_architectures_can_be_captured_too(name: str, changes: dict[str, int]) -> None:
    import transformers as tf

    torch.manual_seed(0)
    config = getattr(tf, f"{name}Config")(**SHAPE | changes)
    model = Model.wrap(getattr(tf, f"{name}ForCausalLM")(config).eval(), byte_tokenizer())
    engine = graph_engine(model, RecordedCapture(), max_running=3, step_tokens=16)
    check_every_step(engine)
    jobs = [([9, 8, 7, 6, 5], GREEDY), ([5, 6, 7], GREEDY), ([200] * 30, GREEDY)]
    for found, (prompt, params) in zip(texts_of(engine, jobs), jobs, strict=True):
        check_as_alone(found, outputs_alone(model, prompt, params))
    assert engine.graph_failure is None


def test_a_sequence_that_is_set_back_and_read_again_goes_on_with_the_same_text() -> None:
    """BAT-6"""
    engine = graph_engine(model_of(), RecordedCapture(), blocks=8, max_running=3)
    rows = check_every_step(engine)
    long = SamplingParams(temperature=1.0, seed=3, max_new_tokens=20, ignore_eos=True)
    jobs = [([5, 6, 7], long), ([8] * 4, long), ([9] * 2, long)]
    for found, (prompt, params) in zip(texts_of(engine, jobs), jobs, strict=True):
        check_as_alone(found, outputs_alone(model_of(), prompt, params))
    assert {1, 2, 3} <= set(rows)
    assert rows[-1] < 3


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_step_moves_nothing_between_host_and_device(kind: str) -> None:
    """On tensors without numbers, which no host could read: whatever the host makes would show beside them."""
    network = tiny_model(kind, vocab_size=VOCAB).to("meta")
    runner = GraphRunner(BlockRunner(network, BlockCache(network.config, 20, 4)), RecordedCapture())
    given = torch.zeros(2, 2 + 4, dtype=torch.int64, device="meta")
    with torch.inference_mode():
        runner.step(given)  # which allocates the cache
        with Recorder() as recorder:
            logits = runner.step(given)
    assert logits.shape == (2, VOCAB)
    assert {device_of(call) for call in recorder.calls} == {"meta"}


@pytest.mark.parametrize("are_greedy", [True, False])
def test_draws_move_nothing_between_host_and_device(are_greedy: bool) -> None:
    logits = torch.zeros(3, VOCAB, dtype=torch.bfloat16, device="meta")
    numbers = torch.zeros(3, SETTINGS, dtype=torch.float64, device="meta")
    with torch.inference_mode(), Recorder() as recorder:
        drawn = draws(logits, numbers, are_greedy=are_greedy, are_measured=True)
    assert drawn.shape == (3, 6)
    assert {device_of(call) for call in recorder.calls} == {"meta"}


REFUSED: dict[str, Callable[[Tensor], Any]] = {
    "a number": lambda x: x.sum().item(),
    "a list": lambda x: x.tolist(),
    "a branch": lambda x: x if x.sum() > 0 else -x,
    "what is true": lambda x: x[x > 0],
    "where it is true": lambda x: x.nonzero(),
    "what a mask selects": lambda x: torch.masked_select(x, x > 0),
    "what differs": lambda x: torch.unique(x),
    "numbers of the host": lambda x: x + torch.tensor([1.0, 2.0]),
    "numbers of the host on the device": lambda x: x + torch.tensor([1.0, 2.0], device=x.device),
    "a copy to the host": lambda x: x.cpu(),
    "a single copy to the device": lambda x: torch.scalar_tensor(2.0).to(x.device),
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_double_refuses_what_a_cuda_graph_cannot_hold(name: str) -> None:
    with torch.inference_mode(), pytest.raises(RefusedError), Recorder():
        REFUSED[name](torch.ones(2, device="meta"))


def test_a_step_is_one_copy_one_replay_and_one_transfer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two sequences that sample; the draws are a graph of their own, with one copy more that nobody waits for."""
    capture = RecordedCapture()
    engine = graph_engine(model_of(), capture, max_running=2)
    params = SamplingParams(temperature=0.8, top_p=0.9, seed=1, max_new_tokens=12, ignore_eos=True)
    for prompt in ([5, 6, 7], [8, 9]):
        engine.add_request(prompt, params)
    for _ in range(3):
        engine.step()
    brought: list[tuple[int, ...]] = []
    cpu = Tensor.cpu
    monkeypatch.setattr(Tensor, "cpu", lambda self: brought.append(tuple(self.shape)) or cpu(self))  # type: ignore[func-returns-value]
    before = capture.num_replays
    capture.is_silent = True
    with watched() as calls:
        outputs = engine.step()
    assert len(outputs) == 2
    assert capture.num_replays - before == 2
    assert len(capture.recorders) == 2
    assert brought == [(2, 6)]
    assert calls.count("copy_") == 3, "the step's input, the settings of the draws, and the logits on the device"
    assert not {"_local_scalar_dense", "item", "nonzero"} & set(calls)


def test_few_graphs_serve_all_numbers_of_rows_and_all_lengths() -> None:
    capture = RecordedCapture()
    engine = graph_engine(model_of(), capture, max_running=5)
    rows = check_every_step(engine)
    going = replace(GREEDY, max_new_tokens=40)
    texts_of(engine, [([5] * length, going) for length in (1, 3, 5, 7, 9)])
    assert max(rows) == 5
    assert set(runner_of(engine)._inputs) <= {(n, b) for n in (1, 2, 4, 8) for b in (4, 8, 16)}
    assert len(capture.recorders) <= 12 + 4
    assert capture.num_replays > 60


def test_rows_that_stand_for_nothing_leave_the_null_block_as_it_is() -> None:
    engine = graph_engine(model_of(), RecordedCapture(), max_running=3)
    texts_of(engine, [([5, 6], GREEDY), ([7], GREEDY), ([8] * 9, GREEDY)])
    for layer in runner_of(engine)._runner.cache.layers:
        for pool in layer.pools():
            assert not pool[NULL].any()


def test_a_row_of_nan_fails_alone() -> None:
    """BAT-4"""
    network = tiny_model(vocab_size=VOCAB)
    with torch.no_grad():
        network.get_input_embeddings().weight[99] = torch.nan
    model = Model.wrap(network, byte_tokenizer())
    engine = graph_engine(model, RecordedCapture(), blocks=20, max_running=3)
    one, two, three = texts_of(engine, [([5, 6, 7], GREEDY), ([5, 99], GREEDY), ([8] * 5, GREEDY)])
    [failed] = two
    assert isinstance(failed.error, NumberError)
    assert str(failed.error) == "The model gave non-finite logits at token 1; try --dtype bfloat16 or --dtype float32."
    check_as_alone(one, outputs_alone(model, [5, 6, 7], GREEDY))
    check_as_alone(three, outputs_alone(model, [8] * 5, GREEDY))


class FailingCapture(RecordedCapture):
    """Captures a few times."""

    def __init__(self, good: int) -> None:
        super().__init__()
        self.good, self.num_asked = good, 0

    def __call__(self, work: Callable[[], Tensor]) -> Graph:
        self.num_asked += 1
        if self.num_asked > self.good:
            raise RuntimeError("operation not permitted when stream is capturing\nmore of it")
        return super().__call__(work)


@pytest.mark.parametrize("good", [0, 1, 2])
def test_where_no_graph_can_be_captured_steps_go_on_without(good: int) -> None:
    capture = FailingCapture(good)
    engine = graph_engine(model_of(), capture, max_running=2)
    going = replace(GREEDY, max_new_tokens=30)
    for found, prompt in zip(texts_of(engine, [([5, 6, 7], going), ([8], going)]), [[5, 6, 7], [8]], strict=True):
        check_as_alone(found, outputs_alone(model_of(), prompt, going))
    assert engine.graph_failure == "RuntimeError: operation not permitted when stream is capturing"
    assert capture.num_asked <= good + 2, "once for the steps, once for the draws, and never again"


def test_a_replay_that_fails_ends_graphs_and_not_the_text() -> None:
    engine = graph_engine(model_of(), RecordedCapture(), max_running=1)
    engine.add_request([5, 6, 7], GREEDY)
    found = [output for _ in range(4) for output in engine.step()]
    graphs_of = runner_of(engine)._graphs

    def failing() -> None:
        raise RuntimeError("CUDA error: unspecified launch failure")

    graphs_of._graphs = {key: replace(graph, replay=failing) for key, graph in graphs_of._graphs.items()}
    while engine.has_unfinished_requests():
        found += engine.step()
    check_as_alone(found, outputs_alone(model_of(), [5, 6, 7], GREEDY))
    assert engine.graph_failure == "RuntimeError: CUDA error: unspecified launch failure"


def test_a_device_that_captures_has_blocks_for_a_single_text_too() -> None:
    capture = RecordedCapture()
    engine = graph_engine(model_of(), capture, max_running=1)
    assert isinstance(engine.scheduler.memory, BlockTables)
    [found] = texts_of(engine, [([5, 6, 7], GREEDY)])
    check_as_alone(found, outputs_alone(model_of(), [5, 6, 7], GREEDY))
    assert capture.num_replays >= 2 * 19
    assert engine.one_at_a_time is None


def test_compile_never_leaves_graphs_aside() -> None:
    capture = RecordedCapture()
    engine = graph_engine(replace(model_of(), has_graphs=False), capture, max_running=2)
    assert isinstance(engine.runner, BlockRunner)
    texts_of(engine, [([5, 6, 7], GREEDY)])
    assert capture.recorders == []


def test_on_a_cpu_nothing_changes() -> None:
    assert graphs.capture_on("cpu") is None
    assert isinstance(Engine(model_of(), max_running=2).runner, BlockRunner)
    assert Engine(model_of(), max_running=2).graph_failure is None


def test_a_model_of_another_kind_draws_on_the_device_all_the_same() -> None:
    capture = RecordedCapture()
    model = Model.wrap(ScriptedModel([104, 105, 257], eos_token_id=257), byte_tokenizer(), name="odd")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placement, "capture_on", lambda device: capture)
        engine = Engine(model, max_running=1)
    engine.add_request([1], SamplingParams(temperature=0))
    text = ""
    while engine.has_unfinished_requests():
        text += "".join(output.text for output in engine.step())
    assert text == "hi"
    assert capture.num_replays == 3
    assert engine.one_at_a_time is None, "nobody asked for more"


def test_samples_of_one_prompt_are_drawn_from_the_row_that_they_share() -> None:
    engine = graph_engine(model_of(), RecordedCapture(), max_running=8)
    jobs = [([9] * 30, SamplingParams(seed=seed, max_new_tokens=5, ignore_eos=True)) for seed in range(6)]
    for found, (prompt, params) in zip(texts_of(engine, jobs), jobs, strict=True):
        check_as_alone(found, outputs_alone(model_of(), prompt, params))


def settings_of(seed: int = 0, **given: Any) -> SamplingParams:
    return SamplingParams(seed=seed, max_new_tokens=8, ignore_eos=True, **given)


MIXED = [  # those that a device draws for, and those that it cannot
    (settings_of(3, temperature=0.8, top_k=20), Inspection()),
    (settings_of(3, temperature=0.8, top_k=20), UNMEASURED),
    (settings_of(3, temperature=0.8, top_k=20), Inspection(num_candidates=3)),
    (settings_of(4, top_p=0.9, repetition_penalty=1.2), Inspection()),
    (settings_of(temperature=0), Inspection()),
    (settings_of(temperature=0), Inspection(num_leading=5, has_stages=True)),
    (settings_of(5, order="vllm", top_p=0.9), Inspection()),
    (settings_of(6, mirostat_tau=3), Inspection()),
]


def test_rows_that_must_be_seen_come_beside_the_draws_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every draw tells what a draw on the host tells."""
    engine = graph_engine(model_of(), RecordedCapture(), max_running=8)
    plain = Engine(model_of(), max_running=8, block_size=4)
    found: list[dict[str, list[Output]]] = [{}, {}]
    for each in (engine, plain):
        for place, (params, inspection) in enumerate(MIXED):
            each.add_request([5, 6, 7 + place], params, inspection=inspection)
    brought = 0
    cpu = Tensor.cpu

    def counting(self: Tensor) -> Tensor:
        nonlocal brought
        brought += 1
        return cpu(self)

    monkeypatch.setattr(Tensor, "cpu", counting)
    for each, outputs in zip((engine, plain), found, strict=True):
        brought, steps = 0, 0
        while each.has_unfinished_requests():
            steps += 1
            for output in each.step():
                outputs.setdefault(output.request_id, []).append(output)
        assert brought == steps, "one transfer a step"
    assert found[0].keys() == found[1].keys()
    for name, outputs in found[0].items():
        for output, expected in zip(outputs, found[1][name], strict=True):
            check_same_draw(output, expected)


def check_same_draw(output: Output, expected: Output) -> None:
    one, other = output.draw, expected.draw
    assert one is not None
    assert other is not None
    assert (one.token_id, one.rank, one.u) == (other.token_id, other.rank, other.u)
    for name in ("logit", "logprob", "entropy", "final_prob"):
        assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-3, abs=1e-4, nan_ok=True), name
    assert len(one.candidates) == len(other.candidates)
    assert len(one.stages) == len(other.stages)


class Stream:
    """What is asked of a CUDA stream."""

    def __init__(self, log: list[str], name: str) -> None:
        self.log, self.name = log, name

    def wait_stream(self, other: Stream) -> None:
        self.log.append(f"{self.name} waits for {other.name}")


def test_cuda_graphs_are_captured_on_one_stream_after_a_warm_up_and_share_one_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log: list[str] = []

    class CudaGraph:
        def replay(self) -> None:
            log.append("replay")

    def logged(text: str) -> AbstractContextManager[None]:
        log.append(text)
        return nullcontext()

    def streams() -> Stream:
        log.append("a stream is made")
        return Stream(log, "side")

    doubles: dict[str, Any] = {
        "device": lambda device: logged(f"on {device}"),
        "Stream": streams,
        "graph_pool_handle": lambda: "pool",
        "current_stream": lambda: Stream(log, "main"),
        "stream": lambda stream: logged(f"with {stream.name}"),
        "CUDAGraph": CudaGraph,
        "graph": lambda graph, pool, stream, capture_error_mode: logged(f"capture on {stream.name} in {pool}"),
    }
    for name, double in doubles.items():
        monkeypatch.setattr(torch.cuda, name, double)
    capture = graphs.capture_on("cuda:1")
    assert capture is not None
    group = Graphs(capture)

    def work() -> Tensor:
        log.append("work")
        return torch.ones(1)

    once = ["side waits for main", "with side", "work", "main waits for side", "capture on side in pool", "work"]
    assert group.result("a", work) is not None
    assert log == ["on cuda:1", "a stream is made", *once, "replay"]
    log.clear()
    group.result("b", work)
    group.result("a", work)
    assert log == ["on cuda:1", *once, "replay", "replay"]


def test_buckets_are_powers_of_two() -> None:
    assert [bucket(count) for count in (1, 2, 3, 4, 5, 33)] == [1, 2, 4, 4, 8, 64]
    assert [bucket(count, 4) for count in (1, 4, 5)] == [4, 4, 8]


def test_verbose_says_why_steps_ran_without_graphs(
    home: Any, no_stdin: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_folder(home / "model")
    monkeypatch.setattr(placement, "capture_on", lambda device: FailingCapture(0))
    argv = [
        "run",
        "abc",
        "--raw",
        "-m",
        str(folder),
        "--device",
        "cpu",
        "--max-new-tokens",
        "6",
        "--seed",
        "1",
        "--ignore-eos",
    ]
    texts = []
    for more in (["-v"], [], ["--compile", "never", "-v"]):
        assert main([*argv, *more]) == 0
        out, err = capsys.readouterr()
        texts.append(out)
        note = "steps ran without CUDA graphs: RuntimeError: operation not permitted when stream is capturing.\n"
        assert (note in err) is (more == ["-v"])
    assert len(set(texts)) == 1
