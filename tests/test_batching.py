"""Many requests in one loop: the same texts as alone, whatever the schedule, and no block ever lost."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from minigen.generation.block_runner import BlockRunner
from minigen.generation.block_tables import BlockTables
from minigen.generation.block_trial import tried_cache
from minigen.generation.engine import Engine
from minigen.generation.errors import NumberError, ParameterError
from minigen.generation.model import Model
from minigen.generation.params import SamplingParams
from minigen.generation.trace import Inspection, Output
from stubs import ScriptedModel, byte_tokenizer, tiny_model

FAMILIES = ["llama", "gpt2", "qwen2", "mistral", "gemma"]
VOCAB = 300
MODELS: dict[str, Model] = {}


def model_of(kind: str = "llama") -> Model:
    """Give a tiny model whose tokens are bytes; the window is 128."""
    if kind not in MODELS:
        MODELS[kind] = Model.wrap(tiny_model(kind, vocab_size=VOCAB), byte_tokenizer())
    return MODELS[kind]


def engine_of(model: Model, *, blocks: int | None = None, block_size: int = 4, **settings: Any) -> Engine:
    """Give an engine with so many blocks of KV memory."""
    small = tried_cache(model.network)
    memory = None if blocks is None else blocks * small.block_bytes // small.block_size * block_size
    return Engine(model, kv_memory=memory, block_size=block_size, **settings)


def tables_of(engine: Engine) -> BlockTables:
    tables = engine.scheduler.memory
    assert isinstance(tables, BlockTables)
    return tables


def check_blocks(engine: Engine) -> None:
    """Every block is free or used, and its owners are those in whose tables it stands."""
    pool = tables_of(engine).pool
    owners = Counter(block for sequence in engine.scheduler.running for block in sequence.table)
    assert pool.num_free + pool.num_used == pool.num_blocks
    assert {block: count for block, count in enumerate(pool.owners) if count} == owners


def drained(engine: Engine) -> dict[str, list[Output]]:
    """Step to the end, checking the blocks at every step."""
    outputs: dict[str, list[Output]] = {}
    while engine.has_unfinished_requests():
        for output in engine.step():
            outputs.setdefault(output.request_id, []).append(output)
        check_blocks(engine)
    assert tables_of(engine).pool.num_used == 0
    return outputs


def ids_of(outputs: Sequence[Output]) -> list[int | None]:
    return [output.token_id for output in outputs]


def played(engine: Engine, jobs: Sequence[tuple[Sequence[int], SamplingParams, int]]) -> dict[str, list[Output]]:
    """Give the outputs of requests by their place. jobs: prompts, settings, and the steps at which they come."""
    outputs: dict[str, list[Output]] = {str(i): [] for i in range(len(jobs))}
    late, step = sorted(range(len(jobs)), key=lambda i: jobs[i][2]), 0
    while late or engine.has_unfinished_requests():
        while late and jobs[late[0]][2] <= step:
            index = late.pop(0)
            engine.add_request(jobs[index][0], jobs[index][1], str(index))
        for output in engine.step():
            outputs[output.request_id].append(output)
        check_blocks(engine)
        assert len(engine.scheduler.running) <= engine.max_running
        step += 1
    return outputs


def outputs_alone(model: Model, prompt: Sequence[int], params: SamplingParams) -> list[Output]:
    engine = Engine(model, max_running=1)
    engine.add_request(prompt, params)
    found = []
    while engine.has_unfinished_requests():
        found += engine.step()
    return found


def alone(model: Model, prompt: Sequence[int], params: SamplingParams) -> list[int | None]:
    return ids_of(outputs_alone(model, prompt, params))


def check_as_alone(found: Sequence[Output], expected: Sequence[Output]) -> None:
    """Hold a text against that of a single run. Where they part, the two tokens must be equally likely.

    Sums in another order may then rank the one or the other first, and the same number draws what stands in its place.
    """
    for one, other in zip(found, expected, strict=False):
        if one.token_id != other.token_id:
            assert one.draw is not None
            assert other.draw is not None
            assert one.draw.logit == pytest.approx(other.draw.logit, abs=1e-4)
            return
    assert len(found) == len(expected)


prompts = st.one_of(
    st.lists(st.integers(3, VOCAB - 1), min_size=1, max_size=30),
    st.integers(1, 24).map(lambda length: [7, 9, 11] * (length // 3) + [7] * (length % 3 + 1)),  # common beginnings
    st.sampled_from([[5] * 9, [5] * 16, [6, 7]]),  # the same prompt several times
)
params = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.7, 1.0]),
    top_k=st.sampled_from([0, 5]),
    top_p=st.sampled_from([1.0, 0.9]),
    repetition_penalty=st.sampled_from([1.0, 1.2]),
    seed=st.integers(0, 5),
    max_new_tokens=st.integers(1, 12),
    ignore_eos=st.booleans(),
)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(FAMILIES), st.lists(st.tuples(prompts, params, st.integers(0, 6)), max_size=9))
def test_any_schedule_gives_each_request_the_text_it_has_alone(data: st.DataObject, kind: str, jobs: Any) -> None:
    """BAT-1, BAT-2, BAT-6, BAT-7, RNG-1"""
    model = model_of(kind)
    block_size = data.draw(st.sampled_from([1, 2, 4, 16]))
    most = max([len(prompt) + given.max_new_tokens for prompt, given, _ in jobs], default=1)
    blocks = -(-most // block_size) + data.draw(st.integers(0, 12))
    max_running = data.draw(st.integers(2, 5))
    step_tokens = max_running + data.draw(st.integers(0, 40))
    engine = engine_of(model, blocks=blocks, block_size=block_size, max_running=max_running, step_tokens=step_tokens)
    outputs = played(engine, jobs)
    assert tables_of(engine).pool.num_used == 0
    for index, (prompt, given_params, _) in enumerate(jobs):
        check_as_alone(outputs[str(index)], outputs_alone(model, prompt, given_params))


@settings(max_examples=25, deadline=None)
@given(st.data(), st.lists(st.tuples(prompts, params), min_size=2, max_size=6))
def test_requests_can_be_aborted_at_any_time(data: st.DataObject, jobs: Any) -> None:
    """BAT-7"""
    engine = engine_of(model_of(), blocks=20, block_size=4, max_running=3, step_tokens=16)
    names = [engine.add_request(prompt, given_params) for prompt, given_params in jobs]
    ends: Counter[str] = Counter()
    while engine.has_unfinished_requests():
        if data.draw(st.booleans()):
            engine.abort_request(data.draw(st.sampled_from(names)))
            check_blocks(engine)
        for output in engine.step():
            ends[output.request_id] += output.finish_reason is not None
        check_blocks(engine)
    assert ends == Counter(names)
    assert tables_of(engine).pool.num_used == 0


@pytest.mark.parametrize("kind", FAMILIES)
def test_logits_in_a_batch_are_those_of_a_single_run(kind: str) -> None:
    """BAT-1, BAT-2, RNG-3, CTX-6: a window of 8 keys among the families"""
    engine = engine_of(model_of(kind), max_running=5, step_tokens=24)
    check_logits(engine, [[9, 8, 7, 6, 5], [5, 6, 7], [200] * 30, [11], list(range(20, 60))])


def check_logits(engine: Engine, jobs: list[list[int]]) -> None:
    """Every row of logits is that of a plain pass over the same ids."""
    greedy = SamplingParams(temperature=0, max_new_tokens=20, ignore_eos=True)
    names = [engine.add_request(prompt, greedy, inspection=Inspection(num_leading=VOCAB)) for prompt in jobs]
    together = drained(engine)
    for name, prompt in zip(names, jobs, strict=True):
        ids = [*prompt, *(output.token_id for output in together[name])]
        with torch.no_grad():
            plain = engine.model.network(torch.tensor([ids])).logits[0, len(prompt) - 1 : -1]
        for output, row in zip(together[name], plain, strict=True):
            assert output.draw is not None
            leading = output.draw.leading
            assert leading is not None
            found = torch.tensor(list(leading.logits))
            assert (found - row[torch.tensor(list(leading.token_ids)).long()]).abs().max() < 1e-4 * row.abs().max()


SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "initializer_range": 0.3,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("Gemma2", {"sliding_window": 8}),  # scores that are capped, every second layer within a window
        ("GptOss", {"sliding_window": 8, "num_local_experts": 4}),  # sinks, experts
        ("GPTNeoX", {}),
        ("Phi3", {"sliding_window": 8}),
        ("Qwen3", {}),
        ("Mixtral", {}),
        ("OPT", {}),  # learned positions
    ],
)
def test_other_architectures_give_the_same_logits_too(name: str, changes: dict[str, int]) -> None:
    import transformers as tf

    torch.manual_seed(0)
    config = getattr(tf, f"{name}Config")(**SHAPE | changes)
    model = Model.wrap(getattr(tf, f"{name}ForCausalLM")(config).eval(), byte_tokenizer())
    engine = Engine(model, max_running=3, block_size=4, step_tokens=16)
    assert engine.one_at_a_time is None
    check_logits(engine, [[9, 8, 7, 6, 5], [5, 6, 7], [200] * 30])


def test_a_row_of_nan_fails_alone() -> None:
    """BAT-4"""
    network = tiny_model(vocab_size=VOCAB)
    with torch.no_grad():
        network.get_input_embeddings().weight[99] = torch.nan
    model = Model.wrap(network, byte_tokenizer())
    greedy = SamplingParams(temperature=0, max_new_tokens=12, ignore_eos=True)
    engine = engine_of(model, blocks=9, max_running=3)
    for name, prompt in {"one": [5, 6, 7], "two": [5, 6, 99, 7], "three": [8] * 5}.items():
        engine.add_request(prompt, greedy, name)
    outputs = drained(engine)
    [failed] = outputs["two"]
    assert failed.finish_reason == "error"
    assert isinstance(failed.error, NumberError)
    assert ids_of(outputs["one"]) == alone(model, [5, 6, 7], greedy)
    assert ids_of(outputs["three"]) == alone(model, [8] * 5, greedy)
    engine.add_request([8] * 20, greedy, "after")  # in blocks that have held what is no number
    assert ids_of(drained(engine)["after"]) == alone(model, [8] * 20, greedy)


def test_a_pass_that_fails_for_one_sequence_is_made_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """BAT-4"""
    model = model_of()
    engine = engine_of(model, max_running=3)
    assert isinstance(engine.runner, BlockRunner)
    forward = engine.runner.forward

    def failing(works: Any) -> Any:
        if any(99 in work.sequence.prompt_ids for work in works):
            raise RuntimeError("a kernel failed")
        return forward(works)

    monkeypatch.setattr(engine.runner, "forward", failing)
    greedy = SamplingParams(temperature=0, max_new_tokens=5, ignore_eos=True)
    for name, prompt in {"one": [5, 6], "two": [99], "three": [7]}.items():
        engine.add_request(prompt, greedy, name)
    outputs = drained(engine)
    assert "a kernel failed" in str(outputs["two"][-1].error)
    assert [len(outputs["one"]), len(outputs["three"])] == [5, 5]
    assert ids_of(outputs["three"]) == alone(model, [7], greedy)


def test_a_long_prompt_is_read_in_chunks_beside_the_texts_of_others() -> None:
    engine = engine_of(model_of(), max_running=3, step_tokens=8)
    going = SamplingParams(temperature=0, max_new_tokens=30, ignore_eos=True)
    engine.add_request([5, 6], going, "first")
    engine.step()
    engine.add_request([7] * 40, going, "long")
    steps = []
    while not any("long" in names for names in steps):
        steps.append([output.request_id for output in engine.step()])
    assert len(steps) == 6, "40 tokens at 7 a step"
    assert all(names[0] == "first" for names in steps), "nobody waits for longer than a chunk"


def test_a_late_request_joins_at_the_next_step_and_one_that_ends_leaves_at_once() -> None:
    engine = engine_of(model_of(), max_running=2)
    engine.add_request([5], SamplingParams(temperature=0, max_new_tokens=3, ignore_eos=True), "a")
    engine.step()
    engine.add_request([6], SamplingParams(temperature=0, max_new_tokens=4, ignore_eos=True), "b")
    engine.add_request([7], SamplingParams(temperature=0, max_new_tokens=1, ignore_eos=True), "c")
    steps = [[output.request_id for output in engine.step()] for _ in range(3)]
    assert steps == [["a", "b"], ["a", "b"], ["b", "c"]]


def test_samples_of_one_prompt_read_it_once() -> None:
    engine = engine_of(model_of(), max_running=8, step_tokens=16)
    read: list[int] = []
    assert isinstance(engine.runner, BlockRunner)
    forward = engine.runner.forward

    def counting(works: Any) -> Any:
        read.append(sum(work.count for work in works))
        return forward(works)

    engine.runner.forward = counting  # type: ignore[method-assign]
    for seed in range(8):
        engine.add_request([9] * 30, SamplingParams(seed=seed, max_new_tokens=5, ignore_eos=True), str(seed))
    first = [output.request_id for output in engine.step()]
    second = [output.request_id for output in engine.step()]
    assert (first, second) == ([], [str(seed) for seed in range(8)]), "all have their first token when it is read"
    assert read == [16, 14]
    outputs = drained(engine)
    for seed in range(8):
        expected = alone(model_of(), [9] * 30, SamplingParams(seed=seed, max_new_tokens=5, ignore_eos=True))
        assert ids_of(outputs[str(seed)]) == expected[1:]


def test_a_common_beginning_is_read_once() -> None:
    engine = engine_of(model_of(), max_running=4, step_tokens=64)
    greedy = SamplingParams(temperature=0, max_new_tokens=2, ignore_eos=True)
    read: list[int] = []
    assert isinstance(engine.runner, BlockRunner)
    forward = engine.runner.forward

    def counting(works: Any) -> Any:
        read.append(sum(work.count for work in works))
        return forward(works)

    engine.runner.forward = counting  # type: ignore[method-assign]
    for last in range(4):
        engine.add_request([9] * 32 + [10 + last] * 3, greedy, str(last))
    outputs = drained(engine)
    assert read[:2] == [35, 1 + 3 * 3]
    for last in range(4):
        assert ids_of(outputs[str(last)]) == alone(model_of(), [9] * 32 + [10 + last] * 3, greedy)


def test_the_newest_sequence_is_set_back_where_memory_runs_short_and_its_text_stays_the_same() -> None:
    """BAT-6"""
    model = model_of()
    engine = engine_of(model, blocks=8, max_running=3)
    long = SamplingParams(temperature=1.0, seed=3, max_new_tokens=20, ignore_eos=True)
    jobs = {"old": [5, 6, 7], "middle": [8] * 4, "new": [9] * 2}
    for name, prompt in jobs.items():
        engine.add_request(prompt, long, name)
    running, outputs = [], {name: [] for name in jobs}  # type: ignore[var-annotated]
    while engine.has_unfinished_requests():
        for output in engine.step():
            outputs[output.request_id].append(output.token_id)
        check_blocks(engine)
        running.append([sequence.request_id for sequence in engine.scheduler.running])
    assert running[0] == ["old", "middle", "new"]
    assert ["old"] in running, "first the new, then the middle one made room"
    assert list(outputs.values()) == [alone(model, prompt, long) for prompt in jobs.values()]


def test_who_writes_goes_first_and_prompts_share_what_is_left() -> None:
    engine = engine_of(model_of(), max_running=3, step_tokens=16)
    params = SamplingParams(temperature=0, max_new_tokens=8, ignore_eos=True)
    engine.add_request([9] * 20, params, "long")
    engine.add_request([5], params, "short")
    steps = []
    for _ in range(3):
        works = engine.scheduler.schedule()
        steps.append([(work.sequence.request_id, work.count) for work in works])
        for sequence, row in engine._rows(works):
            engine._advance(sequence, row)
    assert steps == [[("long", 16)], [("long", 4), ("short", 1)], [("long", 1), ("short", 1)]]
    engine.add_request(list(range(20, 60)), params, "late")
    works = engine.scheduler.schedule()
    assert [(work.sequence.request_id, work.count) for work in works] == [("long", 1), ("short", 1), ("late", 14)]
    [long, short, late] = engine.scheduler.running
    assert long.num_uncached == short.num_uncached == 1
    engine._rows(works)
    engine.scheduler.remove(long)
    works = engine.scheduler.schedule()  # the one that was interrupted reads again, and after it the prompt
    assert [(work.sequence.request_id, work.count) for work in works] == [("short", short.length), ("late", 13)]
    assert late.num_cached == 14


def test_who_was_set_back_comes_before_those_who_wait() -> None:
    engine = engine_of(model_of(), blocks=8, max_running=2)
    long = SamplingParams(temperature=0, max_new_tokens=20, ignore_eos=True)
    for name in ("old", "new", "waiting"):
        engine.add_request([5, 6, 7], long, name)
    ended, running = [], []
    while engine.has_unfinished_requests():
        ended += [output.request_id for output in engine.step() if output.finish_reason]
        running.append([sequence.request_id for sequence in engine.scheduler.running])
    assert ["old"] in running
    assert running.index(["old"]) < next(i for i, names in enumerate(running) if "waiting" in names)
    assert ended == ["old", "new", "waiting"]


def test_a_prompt_is_admitted_only_where_each_that_runs_keeps_a_spare_block() -> None:
    engine = engine_of(model_of(), blocks=4, max_running=3)
    params = SamplingParams(temperature=0, max_new_tokens=4, ignore_eos=True)
    engine.add_request([5] * 4, params, "first")  # takes one of the 4 blocks of 4 tokens, and soon another
    engine.add_request([6] * 12, params, "second")  # would fit into the 3 that are left, only to be set back
    running = []
    while engine.has_unfinished_requests():
        engine.step()
        running.append([sequence.request_id for sequence in engine.scheduler.running])
    assert running == [["first"]] * 3 + [[]] + [["second"]] * 3 + [[]]


def test_a_request_that_could_never_fit_is_refused_with_the_numbers() -> None:
    engine = engine_of(model_of(), blocks=5, max_running=2)
    with pytest.raises(ParameterError, match=r"max_new_tokens.*15.*prompt.*20 tokens"):
        engine.add_request([5] * 15, SamplingParams(max_new_tokens=6))
    engine.add_request([5] * 15, SamplingParams(max_new_tokens=5, ignore_eos=True), "fits")
    assert len(drained(engine)["fits"]) == 5


@pytest.mark.parametrize(
    ("settings", "name"),
    [({"max_running": 0}, "max_running"), ({"step_tokens": 3}, "step_tokens"), ({"kv_memory": 1}, "kv_memory"),
     ({"block_size": 0}, "block_size")],
)  # fmt: skip
def test_an_engine_says_what_it_cannot_be(settings: dict[str, int], name: str) -> None:
    with pytest.raises(ParameterError, match=name):
        Engine(model_of(), **settings)


def test_a_model_of_another_kind_runs_one_request_at_a_time_and_says_so() -> None:
    engine = Engine(Model.wrap(ScriptedModel([104, 257, 105, 257], eos_token_id=257), byte_tokenizer(), name="odd"))
    assert engine.one_at_a_time == "odd runs one request at a time: it is not a model of the transformers library."
    assert engine.max_running == 1
    engine.add_request([1], SamplingParams(temperature=0), "a")
    engine.add_request([2], SamplingParams(temperature=0), "b")
    texts = Counter[str]()
    found: dict[str, str] = {}
    while engine.has_unfinished_requests():
        for output in engine.step():
            found[output.request_id] = found.get(output.request_id, "") + output.text
            texts[output.request_id] += 1
    assert found == {"a": "h", "b": "i"}


def test_a_model_that_keeps_a_state_runs_one_request_at_a_time() -> None:
    import transformers as tf

    torch.manual_seed(0)
    config = tf.MambaConfig(vocab_size=VOCAB, hidden_size=16, state_size=4, num_hidden_layers=2)
    engine = Engine(Model.wrap(tf.MambaForCausalLM(config).eval(), byte_tokenizer(), name="mamba"))
    assert engine.one_at_a_time is not None
    assert engine.one_at_a_time.startswith("mamba runs one request at a time: ")
    short = SamplingParams(temperature=0, max_new_tokens=3, ignore_eos=True)
    names = [engine.add_request([5, 6], short), engine.add_request([7], short)]
    order = []
    while engine.has_unfinished_requests():
        order += [output.request_id for output in engine.step()]
    assert order == [names[0]] * 3 + [names[1]] * 3


def test_attention_of_another_kind_is_told_by_trying() -> None:
    """A bias by distance, which no position says: the numbers come out otherwise, or the model never asks."""
    import transformers as tf

    torch.manual_seed(0)
    config = tf.BloomConfig(vocab_size=VOCAB, hidden_size=32, n_layer=2, n_head=4)
    assert Engine(Model.wrap(tf.BloomForCausalLM(config).eval(), byte_tokenizer())).one_at_a_time is not None
    chunked = tf.Llama4TextConfig(**SHAPE, attention_chunk_size=8, num_local_experts=2)
    network = tf.Llama4ForCausalLM(chunked).eval()
    reason = Engine(Model.wrap(network, byte_tokenizer(), name="llama4")).one_at_a_time
    assert reason == "llama4 runs one request at a time: a layer of it attends within chunks."


def test_outside_a_step_the_model_attends_as_before() -> None:
    model = model_of("qwen2")
    ids = torch.tensor([[5, 6, 7, 8]])
    before = model.network(ids).logits
    engine = engine_of(model, max_running=2)
    engine.add_request([5, 6], SamplingParams(max_new_tokens=2))
    drained(engine)
    assert torch.equal(model.network(ids).logits, before)


def test_no_block_is_lost_over_many_requests() -> None:
    """BAT-7"""
    engine = engine_of(model_of(), blocks=24, max_running=4)
    for round_ in range(100):
        for i in range(5):
            params = SamplingParams(seed=i, max_new_tokens=1 + (round_ + i) % 6, ignore_eos=True)
            engine.add_request([5 + (round_ * i) % 40] * (1 + i), params)
        drained(engine)
