"""The default model in llama.cpp, with the same weights as minigen: how fast it reads and writes."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch  # before llama.cpp, which then computes with torch's OpenMP: two of them would wait for each other

from .alike import Peer
from .decode import NEW
from .gguf_files import TYPES, write_gguf

CONTEXT = 2048  # tokens


class LlamaCpp:
    """A GGUF file in llama.cpp by its C interface, set as llama.cpp sets itself; greedy, and no token ends a text."""

    def __init__(self, path: Path, num_threads: int, *, is_exact: bool) -> None:
        import llama_cpp

        self._library: Any = llama_cpp
        self.is_exact = is_exact
        logging.getLogger("llama-cpp-python").setLevel(logging.ERROR)
        llama_cpp.llama_backend_init()
        settings = llama_cpp.llama_context_default_params()
        settings.n_ctx = CONTEXT
        settings.n_threads = settings.n_threads_batch = num_threads
        on_cpu = llama_cpp.llama_model_default_params()
        on_cpu.n_gpu_layers = 0
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), on_cpu)
        self._context = self._model and llama_cpp.llama_init_from_model(self._model, settings)
        if not self._context:
            raise RuntimeError(f"llama.cpp cannot load {path}.")
        self._greedy = llama_cpp.llama_sampler_init_greedy()

    def close(self) -> None:
        """Give the memory back."""
        self._library.llama_sampler_free(self._greedy)
        self._library.llama_free(self._context)
        self._library.llama_model_free(self._model)

    @property
    def num_threads(self) -> int:
        """How many threads read a token, which are as many as read a prompt."""
        return int(self._library.llama_n_threads(self._context))

    def encode(self, text: str) -> list[int]:
        """Give the ids of a text, special tokens parsed."""
        data = text.encode()
        ids = (self._library.llama_token * (len(data) + 1))()
        vocabulary = self._library.llama_model_get_vocab(self._model)
        count = self._library.llama_tokenize(vocabulary, data, len(data), ids, len(ids), True, True)
        return list(ids[:count])

    def read(self, ids: Sequence[int]) -> int:
        """Forget everything, read a prompt, and give the next id."""
        self._library.llama_memory_clear(self._library.llama_get_memory(self._context), False)
        return self._next(ids)

    def step(self, token_id: int) -> int:
        """Read one id more and give the next one."""
        return self._next([token_id])

    def _next(self, ids: Sequence[int]) -> int:
        tokens = (self._library.llama_token * len(ids))(*ids)
        batch = self._library.llama_batch_get_one(tokens, len(ids))  # logits of the last one alone
        if code := self._library.llama_decode(self._context, batch):
            raise RuntimeError(f"llama.cpp could not read {len(ids)} ids: llama_decode gave {code}.")
        return int(self._library.llama_sampler_sample(self._greedy, self._context, -1))


@contextmanager
def llama_peers(folder: Path) -> Iterator[tuple[dict[str, LlamaCpp], str]]:
    """Give llama.cpp with the model of a folder in each type, and a line on it; none where it cannot be used."""
    try:
        import llama_cpp
    except (ImportError, OSError, RuntimeError) as error:  # not installed, or its own library cannot be loaded
        yield {}, f"llama.cpp is left out: {error}. To have it: pip install -c constraints.txt -e '.[bench]'"
        return
    system = llama_cpp.llama_print_system_info().decode().removeprefix("CPU : ")
    built = [part.removesuffix(" = 1") for part in system.split(" | ") if part.endswith(" = 1")]
    with TemporaryDirectory(prefix="minigen-bench-") as temporary, ExitStack() as stack:
        peers = {}
        for kind in TYPES:
            path = Path(temporary) / f"{kind}.gguf"
            write_gguf(folder, path, kind)
            peers[f"llama.cpp, {kind}"] = stack.enter_context(
                closing(LlamaCpp(path, torch.get_num_threads(), is_exact=kind == "F16"))
            )
        yield peers, f"llama.cpp of llama-cpp-python {llama_cpp.__version__}; built with {', '.join(built)}."


def columns_of(peers: Mapping[str, LlamaCpp]) -> dict[str, list[str]]:
    """Give a column of ratios for each peer."""
    return {f"× {name}".replace(".cpp", ""): [name] for name in peers}


def decode_rate(peer: Peer, ids: Sequence[int]) -> float:
    """Give the tokens per second, prefill not counted."""
    token_id = peer.read(ids)
    began = time.perf_counter()
    for _ in range(1, NEW):
        token_id = peer.step(token_id)
    return (NEW - 1) / (time.perf_counter() - began)


def prefill_rate(peer: Peer, ids: Sequence[int]) -> float:
    """Give the ids of a prompt read per second, up to the first new token."""
    began = time.perf_counter()
    peer.read(ids)
    return len(ids) / (time.perf_counter() - began)
