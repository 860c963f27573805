"""Compiled steps: the same text as the plain loop, used where they belong, and left where they do not."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from minigen.cli.app import main
from minigen.generation import packages
from minigen.generation.block_runner import BlockRunner
from minigen.generation.compile_child import compilation
from minigen.generation.compiled_code import ON_STACK, ROOM, _room_on_stack
from minigen.generation.compiled_runner import FEW, MOST_STEPPED, CompiledRunner
from minigen.generation.compiling import compile_package
from minigen.generation.engine import Engine
from minigen.generation.errors import RunError, SourceError
from minigen.generation.fetching import locate
from minigen.generation.light_tokenizer import LightTokenizer
from minigen.generation.model import Model, load_model
from minigen.generation.narrow_layers import Int8Linear
from minigen.generation.package import package_for
from minigen.generation.package_key import BLOCK_SIZE, MOST_ROWS
from minigen.generation.packages import FACTS, STEP, WIDE, check_whole, found_package
from minigen.generation.params import SamplingParams
from minigen.generation.pools import bytes_per_block
from minigen.generation.prompt import encode_chat
from minigen.generation.sequence import Work
from minigen.generation.sources import HubSource, ModelFiles, ModelSettings, PathSource, Source, WheelSource
from minigen.generation.trace import Output
from processes import COMMAND
from safetensors import safe_open
from stubs import byte_tokenizer, tiny_model
from test_batching import check_as_alone, outputs_alone, params as any_params, played

HAS_COMPILER = any(shutil.which(name) for name in ("g++", "clang++", "c++"))
pytestmark = pytest.mark.skipif(not HAS_COMPILER, reason="there is no C++ compiler here")
PROMPTS = ([5], [9] * 63, [9] * 64, list(range(10, 80)))


def saved(folder: Path, network: Any) -> ModelFiles:
    """Save a network with a tokenizer of bytes; give its files."""
    network.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    files = locate(PathSource(folder))
    assert files is not None
    return files


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache folder for this module alone."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("MINIGEN_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="module")
def compiled(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> ModelFiles:
    """The files of a tiny model in bfloat16 whose step is compiled."""
    files = saved(tmp_path_factory.mktemp("llama"), tiny_model(vocab_size=300, window=2048).bfloat16())
    compile_package(files)
    return files


@pytest.fixture(scope="module")
def models(compiled: ModelFiles) -> tuple[Model, Model]:
    """The model with its compiled steps, and without."""
    return loaded(compiled, "require"), loaded(compiled, "never")


def loaded(files: ModelFiles, choice: str = "auto", **settings: Any) -> Model:
    return load_model(ModelSettings(sources=(files.source,), compile=choice, device="cpu", **settings))


def texts(model: Model, *, max_running: int = 1, **settings: Any) -> list[list[int | None]]:
    """Generate for all prompts; give the ids of each."""
    return texts_of(Engine(model, max_running=max_running), **settings)


def texts_of(engine: Engine, **settings: Any) -> list[list[int | None]]:
    """Do the same in an engine."""
    for i, prompt in enumerate(PROMPTS):
        params = SamplingParams(**{"max_new_tokens": 40, "ignore_eos": True, "seed": i, "temperature": 0} | settings)
        engine.add_request(prompt, params, str(i))
    outputs: list[Output] = []
    while engine.has_unfinished_requests():
        outputs += engine.step()
    assert [output.error for output in outputs if output.error] == []
    return [[output.token_id for output in outputs if output.request_id == str(i)] for i in range(len(PROMPTS))]


def runner_of(engine: Engine) -> CompiledRunner:
    assert isinstance(engine.runner, CompiledRunner)
    return engine.runner


@contextmanager
def held_to_the_network(engine: Engine) -> Iterator[list[int]]:
    """Hold the logits of every pass to the network's; give a list that will say how many rows each compiled step had.

    A second pass writes the same keys and values into the same places. What fails is kept for the end: an engine makes
    a pass that fails anew, sequence by sequence.
    """
    runner, rows, failures = runner_of(engine), list[int](), list[Exception]()
    package, forward, step = runner._package, runner.forward, runner._package.step

    def counting(ids: torch.Tensor, *given: Any) -> torch.Tensor:
        rows.append(len(ids))
        return step(ids, *given)

    def checking(works: Sequence[Work]) -> torch.Tensor:
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(package, "step", counting)
                found = forward(works).clone()
            torch.testing.assert_close(found, runner._runner.forward(works), rtol=1e-4, atol=1e-4)
        except Exception as error:
            failures.append(error)
            raise
        return found

    runner.forward = checking  # type: ignore[method-assign]
    yield rows
    assert failures == []


@pytest.mark.parametrize("kind", ["gpt2", "qwen2", "mistral", "gemma"])
def test_a_compiled_step_writes_what_the_network_writes(cache: Path, tmp_path: Path, kind: str) -> None:
    network = tiny_model(kind, vocab_size=300)
    files = saved(tmp_path, network if kind == "mistral" else network.bfloat16())
    assert compile_package(files).weights == "exact"
    fast, slow = loaded(files, "require"), loaded(files, "never")
    assert isinstance(Engine(fast, max_running=1).runner, CompiledRunner)
    assert texts(fast) == texts(slow)
    assert texts(fast, temperature=0.9, top_p=0.9) == texts(slow, temperature=0.9, top_p=0.9)
    together = Engine(fast, max_running=4)
    with held_to_the_network(together) as rows:
        assert texts_of(together) == texts(slow)
    assert rows.count(MOST_ROWS) > 30


def test_weights_keep_their_type_and_sums_are_in_float32(compiled: ModelFiles) -> None:
    fast, slow = loaded(compiled, "require"), loaded(compiled, "never")
    facts = found_package(compiled, "exact")
    assert facts is not None
    assert "network.model.embed_tokens.weight" in facts.constants["model.safetensors"], "it is read where it is"
    with safe_open(facts.folder / packages.OWN, "pt") as file:
        shapes = [file.get_tensor(name).shape for name in facts.constants[packages.OWN] if name.endswith("codes")]
    assert len(shapes) > 6, "most of the linear layers whose rows part into 32"
    assert {shape[1:] for shape in shapes} == {(1, 3, 16)}
    assert texts(fast) == texts(slow)
    assert texts(fast, max_running=4) == texts(slow)


def test_the_logits_of_a_compiled_step_are_the_network_s(compiled: ModelFiles) -> None:
    model = loaded(compiled)
    engine = Engine(model, max_running=1)
    rows: list[torch.Tensor] = []
    forward = engine.runner.forward
    engine.runner.forward = lambda works: rows.append(forward(works)) or rows[-1]  # type: ignore[method-assign,func-returns-value]
    engine.add_request([9] * 60, SamplingParams(temperature=0, max_new_tokens=20, ignore_eos=True))
    ids = [9] * 60
    while engine.has_unfinished_requests():
        ids += [output.token_id for output in engine.step() if output.token_id is not None]
    with torch.inference_mode():
        expected = model.network(torch.tensor([ids[:-1]])).logits[0, 59:]
    torch.testing.assert_close(torch.cat(rows), expected, rtol=1e-4, atol=1e-4)


@settings(max_examples=25, deadline=None)
@given(
    st.data(),
    st.lists(
        st.tuples(st.lists(st.integers(3, 299), min_size=1, max_size=150), any_params, st.integers(0, 6)), max_size=9
    ),
)
def test_any_schedule_gives_the_logits_of_the_network_and_the_texts_of_single_runs(
    models: tuple[Model, Model], data: st.DataObject, jobs: Any
) -> None:
    """Arrivals, lengths, prompts beside texts; memory too small for all, so that sequences are set back."""
    fast, slow = models
    assert fast.package is not None
    most = max([len(prompt) + params.max_new_tokens for prompt, params, _ in jobs], default=1)
    blocks = max(2, -(-most // BLOCK_SIZE)) + data.draw(st.integers(0, 12))
    max_running = data.draw(st.integers(1, 9))
    engine = Engine(
        fast,
        kv_memory=blocks * bytes_per_block(fast.package.facts.pools, BLOCK_SIZE, item_size=4),
        max_running=max_running,
        step_tokens=max_running + data.draw(st.integers(0, 200)),
    )
    with held_to_the_network(engine):
        outputs = played(engine, jobs)
    for index, (prompt, params, _) in enumerate(jobs):
        check_as_alone(outputs[str(index)], outputs_alone(slow, prompt, params))


@pytest.mark.parametrize(
    ("count", "rows"),
    [(1, [1]), (2, [4]), (4, [4]), (5, [4, 1]), (7, [4, 4]), (12, [4] * 3), (13, [])],
)
def test_sequences_are_read_four_at_a_time(compiled: ModelFiles, count: int, rows: list[int]) -> None:
    engine = Engine(loaded(compiled), max_running=max(count, 2))
    for i in range(count):
        engine.add_request([9] * (50 + i), SamplingParams(temperature=0, max_new_tokens=9, ignore_eos=True), str(i))
    with held_to_the_network(engine) as found:
        while len([each for each in engine.scheduler.running if each.token_ids]) < count:
            engine.step()
        found.clear()
        assert len(engine.step()) == count
    assert found == rows


def test_steps_of_more_sequences_are_the_network_s_where_it_is_there(compiled: ModelFiles) -> None:
    model, count = loaded(compiled), MOST_STEPPED["exact"] + 1

    def engine_of(model: Model) -> Engine:
        engine = Engine(model, max_running=count)
        for _ in range(count):  # of one prompt, which is read once
            engine.add_request([9] * 50, SamplingParams(temperature=0, max_new_tokens=4, ignore_eos=True))
        return engine

    engine = engine_of(model)
    while engine.has_unfinished_requests():
        engine.step()
    assert not getattr(model.network, "is_loaded", True)
    engine = engine_of(model)
    with held_to_the_network(engine) as rows:  # which is loaded for it
        while engine.has_unfinished_requests():
            engine.step()
    assert rows == [1] * 50, "the prompt alone"


def in_float32(layer: Int8Linear, states: torch.Tensor) -> torch.Tensor:
    """Compute as a step does; the layer itself does so in bfloat16, which these random weights blow up."""
    wide = (layer.codes.float() * layer.scales.float()[:, None]).flatten(1) * layer.units[:, None]
    return torch.nn.functional.linear(states, wide, layer.bias)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_eight_bits_compute_the_same_in_a_step_and_in_the_network(
    cache: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network is put together over the tensors of the package."""
    files = saved(tmp_path, tiny_model(kind, vocab_size=300))
    facts = compile_package(files, weights="int8")
    assert facts.weights == "int8"
    assert facts.perplexity is not None
    assert abs(facts.perplexity.rise) < 0.02
    model, ids = loaded(files, "require", weights="int8"), [*range(40, 60)]
    engine = Engine(model, max_running=1)
    rows: list[torch.Tensor] = []
    forward = engine.runner.forward
    engine.runner.forward = lambda works: rows.append(forward(works)) or rows[-1]  # type: ignore[method-assign,func-returns-value]
    engine.add_request(ids, SamplingParams(temperature=0, max_new_tokens=8, ignore_eos=True))
    while engine.has_unfinished_requests():
        ids += [output.token_id for output in engine.step() if output.token_id is not None]
    assert not getattr(model.network, "is_loaded", True)
    monkeypatch.setattr(Int8Linear, "forward", in_float32)
    with torch.inference_mode():
        found = model.network(input_ids=torch.tensor([ids[:-1]])).logits[0, 19:]
        exact = loaded(files, "never").network(input_ids=torch.tensor([ids[:-1]])).logits[0, 19:]
    torch.testing.assert_close(torch.cat(rows), found, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(found, exact, rtol=1e-3, atol=1e-3)
    together = Engine(model, max_running=4)
    with held_to_the_network(together) as widths:
        texts_of(together)
    assert widths.count(MOST_ROWS) > 30
    assert model.package is not None
    held = {name: tensor.data_ptr() for name, tensor in model.package.weights.items()}
    codes = {name: tensor for name, tensor in model.network.named_buffers() if name.endswith("codes")}
    assert len(codes) > 4
    assert all(tensor.data_ptr() == held[name] for name, tensor in codes.items()), "there is one copy of them"


def test_more_threads_than_processors_run_as_they_did(compiled: ModelFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    early, most = loaded(compiled), os.cpu_count() or 1
    expected = texts(early)
    monkeypatch.setattr(torch, "get_num_threads", lambda: most + 1)
    model = loaded(compiled)
    assert model.package is None
    reason = f"The compiled step of {compiled.name} runs on {most} threads at most, not on {most + 1}; "
    advice = f"--threads {most}, or OMP_NUM_THREADS"
    assert model.warnings == (f"{reason}the plain loop runs, with exact weights ({advice}).",)
    with pytest.raises(RunError, match=f"^{reason}{advice}.$"):
        loaded(compiled, "require")
    assert not early.network.is_loaded
    assert texts(early) == expected, "a step that was loaded before is left alone"
    assert early.network.is_loaded


@pytest.mark.parametrize("start", ["Thread(target=work).start()", "_start_new_thread(work, ())"])
def test_a_process_ends_in_good_order_right_after_a_thread_that_ran_a_step(
    compiled: ModelFiles, cache: Path, start: str
) -> None:
    """What the code keeps for a thread is freed as that ends, which takes the interpreter."""
    script = f"""
import threading
from pathlib import Path
from minigen.generation import Engine, SamplingParams
from minigen.generation.model import load_model
from minigen.generation.sources import ModelSettings, PathSource

def write():
    engine = Engine(model, max_running=4)
    engine.add_request([5], SamplingParams(max_new_tokens=5, temperature=0, ignore_eos=True))
    while engine.has_unfinished_requests():
        engine.step()

model = load_model(ModelSettings(sources=(PathSource(Path({str(compiled.path)!r})),), compile="require", device="cpu"))
is_done = threading.Event()

def work():
    write()
    is_done.set()

threading.{start}
is_done.wait()
"""
    for _ in range(4):
        ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert (ended.returncode, ended.stderr) == (0, "")


def test_room_on_the_stack_is_given_back_and_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._inductor.codegen.cpp_wrapper_cpu_array_ref as wrapper

    before = getattr(wrapper, ROOM)
    with suppress(ZeroDivisionError), _room_on_stack():
        assert getattr(wrapper, ROOM) == ON_STACK
        raise ZeroDivisionError
    assert getattr(wrapper, ROOM) == before
    monkeypatch.delattr(wrapper, ROOM)
    with _room_on_stack():
        assert not hasattr(wrapper, ROOM)
    monkeypatch.setitem(sys.modules, wrapper.__name__, None)
    with _room_on_stack():
        pass


@pytest.mark.parametrize(("limit", "of_threads"), [(1 << 20, 0), (8 << 20, 512 << 10)])
def test_where_stacks_are_small_the_plain_loop_runs(
    compiled: ModelFiles, monkeypatch: pytest.MonkeyPatch, limit: int, of_threads: int
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (limit, limit))
    monkeypatch.setattr("threading.stack_size", lambda: of_threads)
    model = loaded(compiled)
    assert model.package is None
    reason = f"The compiled step of {compiled.name} needs 2 MB of stack, and there is less"
    advice = "ulimit -s, or threading.stack_size, gives more"
    assert model.warnings == (f"{reason}; the plain loop runs, with exact weights ({advice}).",)
    with pytest.raises(RunError, match=f"^{reason}; {advice}.$"):
        loaded(compiled, "require")


@pytest.mark.parametrize("limit", [-1, 8 << 20])
def test_usual_stacks_hold_a_step(compiled: ModelFiles, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (limit, limit))
    assert loaded(compiled, "require").package is not None


def test_eight_bits_that_are_not_there_are_told_and_the_exact_weights_taken(compiled: ModelFiles) -> None:
    model = loaded(compiled, weights="int8")
    assert model.package is None
    assert model.warnings == (
        f"{compiled.name} has no compiled step in int8; the plain loop runs, with exact weights "
        f"(minigen models compile {compiled.path} --weights int8 makes one).",
    )
    with pytest.raises(RunError, match=f"in int8; minigen models compile {compiled.path} --weights int8"):
        loaded(compiled, "require", weights="int8")


@pytest.mark.parametrize("settings", [{"dtype": "bfloat16"}])
def test_another_type_runs_as_it_did(compiled: ModelFiles, settings: dict[str, str]) -> None:
    assert loaded(compiled, **settings).package is None
    with pytest.raises(RunError, match="it takes safetensors, on a CPU, in float32"):
        loaded(compiled, "require", **settings)


def test_another_size_of_blocks_runs_as_it_did(compiled: ModelFiles) -> None:
    assert isinstance(Engine(loaded(compiled), max_running=2, block_size=16).runner, BlockRunner)


def test_a_run_starts_without_transformers_and_loads_the_network_when_it_must(
    compiled: ModelFiles, tmp_path: Path
) -> None:
    """The text is the same either way: a short prompt is read by the step, a long one by the network."""
    program = (
        "import sys; from minigen.cli.app import main; code = main(sys.argv[1:]); "
        "print(code, 'transformers' in sys.modules or 'torch._inductor' in sys.modules, file=sys.stderr)"
    )
    flags = ["--raw", "--no-stdin", "--device", "cpu", "-m", str(compiled.path), "--max-new-tokens", "9", "-q"]
    for prompt, needs_network in (
        ("ab", False),
        ("ab" * 40, False),
        ("a" + "b" * (FEW - 1), False),
        ("ab" * 200, True),
    ):
        texts = []
        for choice in ("require", "never"):
            arguments = ["run", prompt, *flags, "--seed", "3", "--compile", choice]
            done = subprocess.run(
                [sys.executable, "-c", program, *arguments],
                capture_output=True,
                check=True,
                env={**os.environ, "TMPDIR": str(tmp_path)},
            )
            texts.append(done.stdout)
            has_network = needs_network or choice == "never"
            assert done.stderr.decode() == f"0 {has_network}\n"
        assert texts[0] == texts[1]
    assert list(tmp_path.iterdir()) == [], "code is loaded where it lies"


def test_a_chat_starts_without_transformers(compiled: ModelFiles, tmp_path: Path, cache: Path) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
    network = tiny_model(vocab_size=300, window=2048)
    network.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    files = locate(PathSource(tmp_path))
    assert files is not None
    compile_package(files)
    light, full = loaded(files, "require"), loaded(files, "never")
    assert isinstance(light.tokenizer, LightTokenizer)
    facts = [(each.window, each.vocab_size, each.end_token_ids, each.has_chat_template) for each in (light, full)]
    assert facts[0] == facts[1]
    chat = [{"role": "user", "content": "Hi"}]
    prompts = [encode_chat(each.tokenizer, chat) for each in (light, full)]
    assert prompts[0] == prompts[1]
    assert not light.network.is_loaded


def test_a_model_that_was_never_compiled_says_nothing(cache: Path, tmp_path: Path) -> None:
    files = saved(tmp_path, tiny_model(vocab_size=300))
    model = loaded(files)
    assert (model.package, model.warnings) == (None, ())
    with pytest.raises(RunError, match=rf"has no compiled step; minigen models compile {files.path} makes one\.$"):
        loaded(files, "require")


@pytest.fixture
def copied(compiled: ModelFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[ModelFiles, Path]:
    """The compiled model with a package that may be damaged: its files, and the package's folder."""
    facts = found_package(compiled, "exact")
    assert facts is not None
    monkeypatch.setenv("MINIGEN_CACHE", str(tmp_path))
    folder = tmp_path / "packages" / facts.folder.name
    shutil.copytree(facts.folder, folder)
    for each in (tmp_path / "packages", folder):
        each.chmod(0o700)
    assert loaded(compiled, "require").package is not None
    return compiled, folder


def replaced(path: Path, content: bytes) -> None:
    """Put another file in the place of one that may be mapped: what is loaded from it must not change."""
    path.unlink()
    path.write_bytes(content)


def changed_key(folder: Path, name: str) -> None:
    facts = json.loads((folder / FACTS).read_text())
    facts["key"][name] = "other"
    (folder / FACTS).write_text(json.dumps(facts))


@pytest.mark.parametrize(
    "name", ["format", "minigen", "torch", "transformers", "processor", "compiler flags", "configuration",
             "tokenizer", "weight files", "weights", "block size", "number of rows", "number of processors"],
)  # fmt: skip
def test_a_package_of_anything_else_is_left_alone(copied: tuple[ModelFiles, Path], name: str) -> None:
    files, folder = copied
    changed_key(folder, name)
    model = loaded(files)
    assert model.package is None
    expected = f"The compiled step of {files.name} was made for another {name}; "
    advice = f"minigen models compile {files.path} makes one"
    assert model.warnings == (f"{expected}the plain loop runs, with exact weights ({advice}).",)
    with pytest.raises(RunError, match=f"^{expected}{advice}.$"):
        loaded(files, "require")
    assert loaded(files, "never").warnings == ()


def test_a_changed_weight_file_is_noticed(copied: tuple[ModelFiles, Path]) -> None:
    files, _ = copied
    weights = files.path / "model.safetensors"
    before = weights.stat()
    os.utime(weights, (before.st_atime, before.st_mtime + 5))
    assert "made for another weight files" in loaded(files).warnings[0]
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert loaded(files).warnings == ()


@pytest.mark.parametrize("index", ["{", "{}", '{"weight_map": 1}'])
def test_a_damaged_model_is_a_sentence_of_its_own(copied: tuple[ModelFiles, Path], tmp_path: Path, index: str) -> None:
    files, folder = copied
    place = tmp_path / "damaged"
    shutil.copytree(files.path, place)
    damaged = replace(files, path=place, source=PathSource(place))
    shutil.copytree(folder, packages.folder_for(damaged, "exact"))
    (place / "model.safetensors").unlink()
    (place / "model.safetensors.index.json").write_text(index)
    with pytest.raises(SourceError, match=r"model\.safetensors\.index\.json"):
        loaded(damaged)


def test_a_package_from_before_there_were_others_says_what_it_was_made_for(copied: tuple[ModelFiles, Path]) -> None:
    files, folder = copied
    facts = json.loads((folder / FACTS).read_text())
    del facts["perplexity"]
    facts["key"]["minigen"] = "other"
    (folder / FACTS).write_text(json.dumps(facts))
    assert loaded(files).warnings[0].startswith(f"The compiled step of {files.name} was made for another minigen; ")


@pytest.mark.parametrize(
    "told",
    [
        {"perplexity": "high"},
        {"perplexity": ["1"]},
        {"perplexity": {"exact": 2.0}},
        {"perplexity": {"exact": "1", "package": 1}},
        {"perplexity": {"exact": 0, "package": 1}},
        {"perplexity": {"exact": 10**400, "package": 1}},
        {"perplexity": {"exact": math.nan, "package": 1}},
        {"build_seconds": "1"},
        {"build_seconds": math.inf},
        {"pools": [[-1, 2]]},
        {"pools": 3},
        {"light": {}},
        {"light": {"vocab_size": "x", "window": None, "end_token_ids": [], "notes": []}},
        {"light": {"vocab_size": 3, "window": 1.5, "end_token_ids": [], "notes": []}},
        {"light": {"vocab_size": 3, "window": 9, "end_token_ids": 3, "notes": []}},
        {"digests": {}},
        {"digests": {"../x\0": "a"}},
        {"constants": {"weights.safetensors": 3}},
    ],
)
def test_a_fact_that_cannot_be_is_damage(copied: tuple[ModelFiles, Path], told: dict[str, Any]) -> None:
    files, folder = copied
    facts = json.loads((folder / FACTS).read_text())
    (folder / FACTS).write_text(json.dumps(facts | told))
    assert loaded(files).warnings[0].startswith(f"The compiled step in {folder} is damaged; ")


def test_facts_that_nest_without_end_are_damage(copied: tuple[ModelFiles, Path]) -> None:
    files, folder = copied
    (folder / FACTS).write_text("[" * 100_000)
    assert loaded(files).warnings[0].startswith(f"The compiled step in {folder} is damaged; ")


def test_a_model_that_cannot_be_measured_or_made_narrow_is_a_sentence(cache: Path, tmp_path: Path) -> None:
    for name, reason, changes in (
        ("window", "its perplexity cannot be measured", {"window": 1}),
        ("odd", "no row of its weights parts into 16, as int8 needs", {"hidden_size": 24, "intermediate_size": 24}),
    ):
        files = saved(tmp_path / name, tiny_model(vocab_size=300, **changes))
        with pytest.raises(RunError, match=f"{name} cannot be compiled: {reason}.$"):
            compile_package(files, weights="int8")


@pytest.mark.parametrize("damage", ["facts", "code", "a byte", "no code", "weights"])
def test_a_damaged_package_is_left_alone(copied: tuple[ModelFiles, Path], damage: str) -> None:
    files, folder = copied
    if damage == "facts":
        (folder / FACTS).write_text('{"model": ')
    elif damage == "code":
        replaced(folder / STEP, (folder / STEP).read_bytes()[:1000])
    elif damage == "a byte":
        code = bytearray((folder / STEP).read_bytes())
        code[5000:5003] = b"\x00\x01\x02"
        replaced(folder / STEP, bytes(code))
    elif damage == "no code":
        (folder / STEP).unlink()
    else:
        (folder / packages.OWN).write_bytes(b"x" * 20)
    model = loaded(files)
    assert model.package is None
    assert model.warnings[0].startswith(f"The compiled step in {folder} ")
    assert texts(model) == texts(loaded(files, "never"))


def test_weights_are_read_whole_only_where_their_time_has_changed(copied: tuple[ModelFiles, Path]) -> None:
    files, folder = copied
    own = folder / packages.OWN
    expected, before, content = texts(loaded(files, "require")), own.stat(), bytearray(own.read_bytes())
    replaced(own, bytes(content))  # as after a copy
    assert texts(loaded(files, "require")) == expected
    content[-1] ^= 1
    replaced(own, bytes(content))
    assert loaded(files).package is None
    os.utime(own, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert loaded(files, "require").package is not None, "as with the model's own files"
    facts = found_package(files, "exact")
    assert facts is not None
    with pytest.raises(RunError, match="is damaged"):
        check_whole(facts)  # when it would be made anew


def test_code_that_others_could_have_written_is_not_loaded(copied: tuple[ModelFiles, Path]) -> None:
    files, folder = copied
    for each in (folder, folder.parent):
        each.chmod(0o777)
        assert loaded(files).warnings[0].startswith(f"The folder {each} can be written by others, so no code is loaded")
        assert "(chmod go-w takes that away)" in loaded(files).warnings[0]
        with pytest.raises(RunError, match=r"so no code is loaded from it: chmod go-w takes that away\.$"):
            compile_package(files)
        each.chmod(0o700)
    assert loaded(files).warnings == ()


def test_several_rows_have_code_of_their_own_which_is_read_when_it_is_needed(
    copied: tuple[ModelFiles, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    files, folder = copied
    expected = texts(loaded(files, "never"))
    code = bytearray((folder / WIDE).read_bytes())
    code[5000:5003] = b"\x00\x01\x02"
    replaced(folder / WIDE, bytes(code))
    model = loaded(files, "require")
    assert texts(model) == expected
    assert not getattr(model.network, "is_loaded", True)
    assert texts(model, max_running=4) == expected, "by the network"
    assert getattr(model.network, "is_loaded", False)
    facts = found_package(files, "exact")
    assert facts is not None
    with pytest.raises(RunError, match="is damaged"):
        check_whole(facts)
    (folder / WIDE).unlink()
    assert texts(loaded(files, "require"), max_running=4) == expected
    told = json.loads((folder / FACTS).read_text())
    del told["digests"][WIDE]
    (folder / FACTS).write_text(json.dumps(told))
    with pytest.raises(RunError, match="is damaged"):
        check_whole(packages.read_facts(folder))


def test_a_damaged_package_is_made_anew(copied: tuple[ModelFiles, Path]) -> None:
    files, folder = copied
    replaced(folder / STEP, (folder / STEP).read_bytes()[:-1])
    assert loaded(files).package is None
    compile_package(files)
    assert loaded(files, "require").package is not None


def test_a_package_belongs_to_a_folder_whatever_it_is_called(compiled: ModelFiles) -> None:
    assert found_package(replace(compiled, name="another"), "exact") is not None


def test_a_weight_file_that_is_gone_is_said_as_ever(copied: tuple[ModelFiles, Path]) -> None:
    files, folder = copied
    weights = files.path / "model.safetensors"
    weights.rename(folder / "gone")
    try:
        with pytest.raises(SourceError, match="there are no weights to load"):
            loaded(files)
    finally:
        (folder / "gone").rename(weights)


def test_a_step_that_fails_is_made_by_the_network(compiled: ModelFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    model = loaded(compiled)
    steps = iter(range(100))
    assert model.package is not None
    step = model.package.step

    def failing(*given: Any) -> Any:
        if next(steps) == 5:
            raise RuntimeError("a kernel failed")
        return step(*given)

    monkeypatch.setattr(model.package, "step", failing)
    assert texts(model) == texts(replace(model, package=None))
    assert next(steps) == 6, "it is not asked again"


def test_a_step_for_several_rows_that_fails_is_made_by_the_network_and_one_row_goes_on(
    compiled: ModelFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, widths = loaded(compiled), list[int]()
    assert model.package is not None
    step = model.package.step

    def failing(ids: torch.Tensor, *given: Any) -> torch.Tensor:
        widths.append(len(ids))
        if len(ids) > 1 and widths.count(MOST_ROWS) == 5:
            step(ids, *given)
            raise RuntimeError("a kernel failed")
        return step(ids, *given)

    monkeypatch.setattr(model.package, "step", failing)
    engine = Engine(model, max_running=4)
    for i, prompt in enumerate(PROMPTS):
        params = SamplingParams(temperature=0, max_new_tokens=40 if i else 60, ignore_eos=True)
        engine.add_request(prompt, params, str(i))
    outputs: list[Output] = []
    while engine.has_unfinished_requests():
        outputs += engine.step()
    found = [output.token_id for output in outputs if output.request_id == "0"]
    assert found == texts(replace(model, package=None), max_new_tokens=60)[0]
    assert widths == [1, *[MOST_ROWS] * 5, *[1] * 20], "a prompt of one token is read alone"


@pytest.mark.parametrize(
    ("source", "weights", "command"),
    [
        (PathSource(Path("a b")), "exact", "minigen models compile 'a b'"),
        (HubSource("org/name", "v1"), "int8", "minigen models compile org/name --revision v1 --weights int8"),
        (HubSource("org/name"), "exact", "minigen models compile org/name"),
        (WheelSource("name==1", "a.gguf", "0" * 64), "int8", "minigen models compile --weights int8"),
    ],
)
def test_what_would_make_a_package_is_a_command_that_can_be_pasted(
    cache: Path, tmp_path: Path, source: Source, weights: str, command: str
) -> None:
    files = ModelFiles(path=tmp_path, gguf=None, source=source, name="it")
    with pytest.raises(RunError, match=f"; {command} makes one.$"):
        package_for(files, "require", weights=weights, device="cpu", dtype="float32")


def test_a_gguf_file_and_odd_models_say_that_they_cannot_be_compiled(cache: Path, tmp_path: Path) -> None:
    from transformers import BloomConfig, BloomForCausalLM

    config = BloomConfig(vocab_size=258, hidden_size=16, n_layer=1, n_head=2, bos_token_id=256, eos_token_id=257)
    files = saved(tmp_path, BloomForCausalLM(config))
    with pytest.raises(RunError, match=r"cannot be compiled: its attention or its cache is of another kind\.$"):
        compile_package(files)
    with pytest.raises(RunError, match="only models with safetensors weights can be compiled"):
        compile_package(replace(files, gguf="model.gguf"))
    assert not list((cache / "packages").glob(".making-*"))
    with compilation(files.path, "exact", MOST_ROWS, tmp_path, tmp_path) as beside:
        assert beside.told() == {"error": "its attention or its cache is of another kind"}


def compiling(folder: Path, **settings: Any) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*COMMAND, "models", "compile", str(folder)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **settings,
    )


def test_a_build_that_is_killed_leaves_nothing_that_is_used_and_two_at_once_build_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINIGEN_CACHE", str(tmp_path / "cache"))
    files = saved(tmp_path / "model", tiny_model(vocab_size=300))
    folder = tmp_path / "cache" / "packages"
    killed = compiling(files.path, start_new_session=True)
    while not list(folder.glob(".making-*/scratch/*")):
        assert killed.poll() is None, killed.communicate()
        time.sleep(0.05)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert loaded(files).package is None
    both = [compiling(files.path), compiling(files.path)]
    said = [process.communicate(timeout=300)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert sum("compiling the decode step" in text for text in said) == 1
    assert all(f"{files.name} is compiled (" in text for text in said)
    assert [path.name for path in folder.glob(".*")] == [".lock"], "what was left half made is gone"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert loaded(files, "require").package is not None


def compilers_of(folder: Path) -> dict[int, int]:
    """Give the processes that compile for a folder, by the rows of their steps."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_text().split("\0")
            if "minigen.generation.compile_process" in words and str(folder) in words:
                found[int(words[words.index(str(folder)) + 2])] = int(path.parent.name)
    return found


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="processes are found in /proc")
@pytest.mark.parametrize("killed", ["the second", "the first"])
def test_either_of_two_compiling_processes_that_is_killed_takes_the_other_along(
    tmp_path: Path, killed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINIGEN_CACHE", str(tmp_path / "cache"))
    files = saved(tmp_path / "model", tiny_model(vocab_size=300))
    running = compiling(files.path)
    while len(compilers := compilers_of(files.path)) < 2:
        assert running.poll() is None, running.communicate()
        time.sleep(0.05)
    os.kill(compilers[MOST_ROWS if killed == "the second" else 1], signal.SIGKILL)
    said = running.communicate(timeout=300)[1].splitlines()
    assert running.returncode == 1
    assert said[1:] == [f"minigen: {files.name} cannot be compiled: it ended with code -9."]
    assert compilers_of(files.path) == {}
    assert [path.name for path in (tmp_path / "cache" / "packages").iterdir()] == [".lock"]


def test_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINIGEN_CACHE", str(tmp_path / "cache"))
    files = saved(tmp_path / "model", tiny_model(vocab_size=300))
    command = ["sh", "-c", 'ulimit -f 40; trap "" XFSZ; exec "$@"', "sh", *COMMAND, "models", "compile"]
    done = subprocess.run([*command, str(files.path)], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    first, last = done.stderr.splitlines()
    assert first == f"minigen: compiling the decode step of {files.name}, once ..."
    sentence = f"minigen: The model could not be written to {tmp_path / 'cache' / 'packages'}: the disk is full ("
    assert last.startswith(sentence), last
    assert [path.name for path in (tmp_path / "cache" / "packages").iterdir()] == [".lock"]
    assert loaded(files).package is None


def test_the_commands_tell_of_a_compiled_step(
    copied: tuple[ModelFiles, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    files, folder = copied
    run = ["run", "ab", "--raw", "--no-stdin", "--device", "cpu", "-m", str(files.path), "--temperature", "0"]
    assert main([*run, "--compile", "require"]) == 0
    text = capsys.readouterr().out
    assert main(["models", "show", str(files.path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("compiled")
    changed_key(folder, "torch")
    assert main([*run, "--compile", "require"]) == 1
    sentence = f"The compiled step of {files.name} was made for another torch"
    assert capsys.readouterr().err == f"minigen: {sentence}; minigen models compile {files.path} makes one.\n"
    assert main(run) == 0
    shown = capsys.readouterr()
    assert shown.out == text
    advice = f"the plain loop runs, with exact weights (minigen models compile {files.path} makes one)."
    assert shown.err == f"minigen: warning: {sentence}; {advice}\n"
    assert main(["models", "show", str(files.path), "--json"]) == 0
    [step] = json.loads(capsys.readouterr().out)["compiled"]
    assert (step["weights"], step["reason_not_used"]) == ("exact", sentence)
    assert main(["score", "ab", "-m", str(files.path), "--device", "cpu", "--no-stdin"]) == 0
    assert capsys.readouterr().err == "", "a command that decodes nothing needs no step"


def test_packages_whose_models_are_gone_are_removed(copied: tuple[ModelFiles, Path]) -> None:
    _, folder = copied
    assert packages.discard_orphans() == 0
    facts = json.loads((folder / FACTS).read_text())
    (folder / FACTS).write_text(json.dumps(facts | {"model_folder": str(folder / "gone")}))
    assert packages.discard_orphans() > 10_000
    assert not folder.exists()
