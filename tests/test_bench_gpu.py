"""The benchmark of a GPU, as far as a CPU can run it: all but the device."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from minigen.generation import placement
from minigen.generation.model import Model
from recording import RecordedCapture
from stubs import byte_tokenizer, tiny_model

from benchmarks import __main__ as benchmarks, gpu


@pytest.fixture(scope="module")
def model() -> Model:
    return Model.wrap(tiny_model(vocab_size=1400, window=2048), byte_tokenizer())


@pytest.fixture
def capture(monkeypatch: pytest.MonkeyPatch) -> RecordedCapture:
    found = RecordedCapture()
    monkeypatch.setattr(placement, "capture_on", lambda device: found)
    return found


def test_without_a_gpu_one_line_says_so(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    gpu.main()
    assert capsys.readouterr().out == "gpu: this machine has no CUDA GPU; nothing is measured.\n"


@pytest.mark.parametrize("is_there", [True, False])
def test_it_belongs_to_the_usual_ones_where_there_is_a_gpu(monkeypatch: pytest.MonkeyPatch, is_there: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: is_there)
    assert ("gpu" in benchmarks.usual()) is is_there
    assert "decode" in benchmarks.usual()


def test_all_tables_come_out(model: Model, capture: RecordedCapture, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = [([5, 6, 7, 8], 3), ([9] * 12, 5), ([10, 11], 4)]
    gpu.run(model, model.network, model, jobs, rounds=2, num_bytes=1 << 12, new=6)
    shown = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines() if line.startswith("│")]
    variants = ["model.generate", "Engine, without graphs", "Engine", "Engine, T 0.8, top-p 0.95"]
    assert [row[0] for row in rows[1:]] == [*variants, *variants, "model.generate, padded", *variants[1:3]]
    assert "One text after 128 tokens, float32 (medians of 2 alternating runs)" in shown
    assert "One text after 1000 tokens, float32" in shown
    assert "3 requests, 12 new tokens, float32" in shown
    for row in rows[1:]:
        assert all(float(cell.split()[0]) >= 0 for cell in row[1:])
    assert [row[2] for row in rows if row[0].startswith("model.generate")] == ["1.00"] * 3
    assert shown.endswith("float32: 4 of 4 greedy texts of 64 tokens are the same with graphs.\n" * 2)
    assert capture.num_replays > 100


def test_the_bound_is_what_the_weights_allow() -> None:
    network = torch.nn.Linear(10, 20, dtype=torch.bfloat16)
    assert gpu.weight_bytes(network) == 2 * (200 + 20)
    assert gpu.copy_rate("cpu", 1 << 16, times=3) > 0


def test_prompts_of_each_run_are_new_to_the_engine(model: Model, capture: RecordedCapture) -> None:
    seen: list[Any] = []

    class Engine:
        """Takes requests and does nothing."""

        def add_request(self, ids: list[int], params: Any) -> None:
            seen.append(ids)

        def has_unfinished_requests(self) -> bool:
            return False

    engine: Any = Engine()
    turns = iter(range(2))
    for _ in range(2):
        gpu.together_rate(engine, [([1, 2, 3], 4)], turns)
    assert seen == [[300, 2, 3], [301, 2, 3]]


def test_texts_that_part_are_counted(model: Model, capture: RecordedCapture, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = iter([[[1, 2], [3, 4]], [[1, 2], [3, 5]]])
    monkeypatch.setattr(gpu, "greedy_texts", lambda engine, prompts, new: next(texts))
    assert gpu.sameness(model, [[1], [2]], 2) == "float32: 1 of 2 greedy texts of 2 tokens are the same with graphs."
