"""The benchmarks compare equal work alone, and go on without llama.cpp."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_folders import tiny_folder
from transformers import AutoModelForCausalLM

from benchmarks.alike import UnlikeError, Work, peer_work, require_alike
from benchmarks.gguf_files import write_gguf
from benchmarks.llama import llama_peers
from benchmarks.measure import compare

OURS = Work(prompt_ids=[97, 98], token_ids=[99, 100, 101], num_threads=2)


class CountingPeer:
    """Its ids are the characters, and each next id is one higher."""

    num_threads = 2
    is_exact = True

    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    def read(self, ids: Sequence[int]) -> int:
        return ids[-1] + 1

    def step(self, token_id: int) -> int:
        return token_id + 1


def test_a_peer_that_does_the_same_work_is_compared() -> None:
    theirs = peer_work(CountingPeer(), "abc", num_ids=2, num_new=3)
    assert theirs == OURS
    require_alike("a peer", OURS, theirs, num_equal=3)


@pytest.mark.parametrize(
    ("theirs", "reason"),
    [
        (replace(OURS, prompt_ids=[97, 99]), "a peer reads other ids than minigen from the same text."),
        (replace(OURS, prompt_ids=[97]), "a peer reads other ids than minigen from the same text."),
        (replace(OURS, token_ids=[99, 100]), "a peer writes 2 tokens, minigen 3."),
        (replace(OURS, num_threads=1), "a peer computes with 1 threads, minigen with 2."),
        (
            replace(OURS, token_ids=[99, 7, 101]),
            "a peer writes [99, 7], minigen [99, 100]: the weights are not the same.",
        ),
    ],
)
def test_unequal_work_is_refused(theirs: Work, reason: str) -> None:
    with pytest.raises(UnlikeError) as caught:
        require_alike("a peer", OURS, theirs, num_equal=2)
    assert str(caught.value) == reason


def test_other_tokens_are_no_reason_where_weights_are_rounded() -> None:
    require_alike("a peer", OURS, replace(OURS, token_ids=[99, 7, 8]))


def test_without_llama_cpp_the_table_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", None)  # as if it were not installed
    with llama_peers(tmp_path) as (peers, note):
        assert peers == {}
        bases = {"× a": ["a"], "× llama.cpp, F16": ["llama.cpp, F16"]}
        compare("Decode", {"a": lambda: 10.0, "b": lambda: 25.0}, bases, rounds=1, note=note)
    shown = capsys.readouterr().out
    assert "llama.cpp is left out: import of llama_cpp halted" in shown
    assert "× llama.cpp" not in shown
    assert [line.split("│")[1:4] for line in shown.splitlines() if line.startswith("│")] == [
        [" a ", " 10.0 (10.0–10.0) ", " 1.00 "],
        [" b ", " 25.0 (25.0–25.0) ", " 2.50 "],
    ]


def test_a_written_gguf_file_holds_the_weights_of_the_folder(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "model", tie_word_embeddings=True)
    write_gguf(folder, tmp_path / "model.gguf", "F16")
    loader: Any = AutoModelForCausalLM
    stored = loader.from_pretrained(folder, dtype=torch.float32).state_dict()
    found = loader.from_pretrained(tmp_path, gguf_file="model.gguf", dtype=torch.float32).state_dict()
    assert found.keys() == stored.keys()
    for name, values in stored.items():
        torch.testing.assert_close(found[name], values, rtol=1e-3, atol=1e-6)  # float16 has eleven bits
