"""What must be the same before two programs are compared: the ids read, the number of tokens written, the threads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from minigen.generation import Engine, Model, SamplingParams, encode_raw

NUM_NEW = 48  # tokens of the run that is looked at
NUM_EQUAL = 20  # of them that equal weights must make equal


class UnlikeError(Exception):
    """Two programs would not do the same work."""


class Peer(Protocol):
    """A program that minigen is compared to: it reads ids and gives the likeliest next one."""

    is_exact: bool  # whether it has minigen's weights

    @property
    def num_threads(self) -> int:
        """How many threads it computes with."""

    def encode(self, text: str) -> list[int]:
        """Give the ids of a text."""

    def read(self, ids: Sequence[int]) -> int:
        """Forget everything, read a prompt, and give the next id."""

    def step(self, token_id: int) -> int:
        """Read one id more and give the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a program did in a greedy run."""

    prompt_ids: Sequence[int]
    token_ids: Sequence[int]
    num_threads: int


def engine_work(model: Model, ids: Sequence[int], num_new: int) -> Work:
    """Give what the engine does."""
    engine = Engine(model)
    engine.add_request(ids, SamplingParams(temperature=0, max_new_tokens=num_new, ignore_eos=True))
    written = []
    while engine.has_unfinished_requests():
        written += [output.token_id for output in engine.step() if output.token_id is not None]
    return Work(prompt_ids=ids, token_ids=written, num_threads=torch.get_num_threads())


def peer_work(peer: Peer, text: str, num_ids: int, num_new: int) -> Work:
    """Give what a peer does with the first ids that it finds in a text."""
    ids = peer.encode(text)[:num_ids]
    written = [peer.read(ids)]
    while len(written) < num_new:
        written.append(peer.step(written[-1]))
    return Work(prompt_ids=ids, token_ids=written, num_threads=peer.num_threads)


def require_all_alike(model: Model, peers: Mapping[str, Peer], text: str, num_ids: int) -> None:
    """Raise UnlikeError unless each peer does the same work as minigen with the first ids of a text.

    A peer with exact weights must also write the same tokens first.
    """
    ours = engine_work(model, encode_raw(model.tokenizer, text).ids[:num_ids], NUM_NEW)
    for name, peer in peers.items():
        theirs = peer_work(peer, text, num_ids, NUM_NEW)
        require_alike(name, ours, theirs, NUM_EQUAL if peer.is_exact else 0)


def require_alike(name: str, ours: Work, theirs: Work, num_equal: int = 0) -> None:
    """Raise UnlikeError unless both did the same work, and wrote the same `num_equal` tokens first."""
    if theirs.num_threads != ours.num_threads:
        raise UnlikeError(f"{name} computes with {theirs.num_threads} threads, minigen with {ours.num_threads}.")
    if list(theirs.prompt_ids) != list(ours.prompt_ids):
        raise UnlikeError(f"{name} reads other ids than minigen from the same text.")
    if len(theirs.token_ids) != len(ours.token_ids):
        raise UnlikeError(f"{name} writes {len(theirs.token_ids)} tokens, minigen {len(ours.token_ids)}.")
    if list(theirs.token_ids[:num_equal]) != list(ours.token_ids[:num_equal]):
        raise UnlikeError(
            f"{name} writes {list(theirs.token_ids[:num_equal])}, minigen {list(ours.token_ids[:num_equal])}: "
            "the weights are not the same."
        )
