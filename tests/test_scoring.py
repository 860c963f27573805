"""Scores of given texts: equal to plain transformers whatever the blocks, windows and caches, and text cut exactly."""

import math
from types import SimpleNamespace
from typing import Any

import minigen.generation.rows as rows_module
import pytest
import torch
from hypothesis import given, settings, strategies as st
from minigen.generation.comparing import compare, gains, kl_bits, losses, total
from minigen.generation.continuations import continuations
from minigen.generation.errors import NumberError, ParameterError, PromptError
from minigen.generation.model import Model
from minigen.generation.passage import Passage, context_ids, read_after, read_alone
from minigen.generation.pieces import Lines, cut
from minigen.generation.prompt import encode_raw
from minigen.generation.scoring import Score, passes, read, score, score_each, score_text, summarize
from stubs import byte_tokenizer, sentencepiece_tokenizer, tiny_model, wordpiece_tokenizer

KINDS = ["llama", "gpt2", "qwen2", "mistral", "gemma"]
CLOSE = 1e-4
TEXT = "Once upon a time, in a village by the sea, there lived a wörd 🤖.\r\n\tThe end."


def wrapped(kind: str = "llama", **changes: Any) -> Model:
    return Model.wrap(tiny_model(kind, vocab_size=258, **changes), byte_tokenizer())


def odd_model(kind: str) -> Any:
    """A model whose past is a state that takes no parts, or that has none."""
    import transformers as tf

    torch.manual_seed(0)
    shape: dict[str, Any] = {"vocab_size": 258, "hidden_size": 32, "num_hidden_layers": 2}
    if kind == "mamba":
        return tf.MambaForCausalLM(tf.MambaConfig(**shape, state_size=8, initializer_range=0.5)).eval()
    if kind == "rwkv":
        return tf.RwkvForCausalLM(tf.RwkvConfig(**shape, attention_hidden_size=32)).eval()
    gpt: dict[str, Any] = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}
    return tf.OpenAIGPTLMHeadModel(tf.OpenAIGPTConfig(vocab_size=258, initializer_range=0.5, **gpt)).eval()


def plain_rows(network: Any, ids: list[int]) -> torch.Tensor:
    """Give the log-probabilities of one pass over all ids, (ids, vocab) in float64."""
    with torch.no_grad():
        logprobs: torch.Tensor = network(torch.tensor([ids])).logits[0].double().log_softmax(-1)
    return logprobs


def strided(network: Any, ids: list[int], window: int, stride: int) -> list[float | None]:
    """The recipe of transformers' own page on the perplexity of models of fixed length."""
    found: list[float | None] = [None] * len(ids)
    done = 0
    for begin in range(0, len(ids), stride):
        end = min(begin + window, len(ids))
        logprobs = plain_rows(network, ids[begin:end])
        for place in range(max(done, begin + 1), end):
            found[place] = float(logprobs[place - 1 - begin, ids[place]])
        done = end
        if end == len(ids):
            break
    return found


def flat(blocks: Any) -> list[Any]:
    return [one for block in blocks for one in block]


def whole(model: Model, ids: list[int], num_before: int = 0) -> list[Score]:
    return flat(score(model, ids, passes(num_before, len(ids), model.window, 64)))


def check(ours: list[Score], rows: torch.Tensor, ids: list[int], first: int) -> None:
    """Hold scores of ids[first:] to rows of log-probabilities."""
    for place, one in enumerate(ours, start=first):
        row = rows[place - 1]
        own = row[ids[place]]
        assert one.token_id == ids[place]
        assert one.logprob == pytest.approx(float(own), abs=CLOSE)
        assert one.surprisal == pytest.approx(-float(own) / math.log(2), abs=CLOSE * 2)
        num_near = int(((row - own).abs() < CLOSE).sum())  # these may change places with the order of a sum
        assert one.rank is not None
        assert abs(one.rank - 1 - int((row > own).sum())) <= num_near
        assert one.expected_id is not None
        assert float(row[one.expected_id]) == pytest.approx(float(row.max()), abs=CLOSE)
        assert one.expected_logprob == pytest.approx(float(row.max()), abs=CLOSE)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", [258, 258 * 7, 2**25])
def test_scores_equal_one_plain_pass(kind: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window of eight keys among them; one, seven and all rows at a time."""
    monkeypatch.setattr(rows_module, "BLOCK", block)
    model = wrapped(kind)
    ids = torch.randint(0, 258, (60,), generator=torch.Generator().manual_seed(1)).tolist()
    found = whole(model, ids)
    assert found[0] == Score(token_id=ids[0])
    check(found[1:], plain_rows(model.network, ids), ids, 1)


@pytest.mark.parametrize("kind", ["mamba", "rwkv", "openai-gpt"])
def test_a_model_without_a_usable_cache_scores_alike(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "BLOCK", 258 * 9)
    model = Model.wrap(odd_model(kind), byte_tokenizer())
    ids = torch.randint(0, 258, (40,), generator=torch.Generator().manual_seed(1)).tolist()
    check(whole(model, ids)[1:], plain_rows(model.network, ids), ids, 1)
    both = score_each(model, ids[:20], [ids[20:], ids[20:30]])
    check(both[0], plain_rows(model.network, ids), ids, 20)
    assert len(both[1]) == 10


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("window", "stride"), [(16, 8), (16, 15), (16, 1), (17, 5), (64, 32), (200, 100)])
def test_a_sliding_window_equals_the_strided_recipe(
    kind: str, window: int, stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_module, "BLOCK", 258 * 6)
    model = wrapped(kind, window=256)
    ids = list(TEXT.encode()) * 2
    reading = read(model, read_alone(model.tokenizer, TEXT * 2), window=window, stride=stride)
    assert [*reading.passage.ids] == ids
    found = [one.logprob for one in flat(score_text(model, reading))]
    theirs = strided(model.network, ids, window, stride)
    assert found[0] is None
    assert found[1:] == pytest.approx(theirs[1:], abs=CLOSE)


@given(st.integers(0, 30), st.integers(1, 60), st.integers(2, 20), st.data())
@settings(deadline=None, max_examples=100)
def test_windows_score_each_token_once_with_enough_before_it(
    num_before: int, num_own: int, window: int, data: Any
) -> None:
    stride = data.draw(st.integers(1, window - 1))
    num_ids = num_before + num_own
    laid = passes(num_before, num_ids, window, stride)
    assert [place for each in laid for place in range(each.first, each.end)] == list(range(num_before, num_ids))
    for each in laid:
        assert each.end - each.begin <= window
        assert each.begin == 0 or each.first - each.begin >= window - stride
    assert len(laid) == 1 or num_ids > window


def test_no_more_logits_than_a_block_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """STA-9: bounded by the block, however long the text."""
    monkeypatch.setattr(rows_module, "BLOCK", 258 * 10)
    model = wrapped(window=512)
    sizes = []
    head = model.network.get_output_embeddings()
    head.register_forward_hook(lambda module, given, made: sizes.append(made.shape[1]))
    reading = read(model, read_alone(model.tokenizer, TEXT * 10), window=100)
    assert len(flat(score_text(model, reading))) == len(TEXT.encode()) * 10
    assert max(sizes) == 10


def test_a_shared_context_is_read_once() -> None:
    model = wrapped()
    seen = []
    body = model.network.get_input_embeddings()
    body.register_forward_hook(lambda module, given, made: seen.append(made.shape[1]))
    before, ways = list(b"The capital of France is"), [list(b" Paris"), list(b" Lyon"), list(b" a city")]
    found = score_each(model, before, ways)
    assert sum(seen) == len(before) - 1 + sum(map(len, ways))  # the context but its last, then each way but its last
    for way, scores in zip(ways, found, strict=True):
        check(scores, plain_rows(model.network, before + way), before + way, len(before))


class Fixed(torch.nn.Module):
    """A network that gives the same row of logits at every place."""

    def __init__(self, row: list[float]) -> None:
        super().__init__()
        self.row = torch.tensor(row)
        self.config = SimpleNamespace(vocab_size=len(row))

    def forward(self, input_ids: torch.Tensor) -> SimpleNamespace:
        return SimpleNamespace(logits=self.row.expand(1, input_ids.shape[1], -1))


def fixed(*row: float) -> Model:
    return Model(network=Fixed(list(row)), tokenizer=byte_tokenizer(), name="fixed", vocab_size=len(row))


def test_ranks_count_ties_by_id_and_the_expected_token_is_the_lowest_of_equals() -> None:
    """STA-5"""
    found = whole(fixed(1.0, 2.0, 2.0, 1.0, -math.inf), [0, 0, 1, 2, 3, 4])[1:]
    assert [one.rank for one in found] == [3, 1, 2, 4, 5]
    assert {one.expected_id for one in found} == {1}
    mass = 2 * math.e + 2 * math.e**2
    assert [one.logprob for one in found] == pytest.approx(
        [1 - math.log(mass), 2 - math.log(mass), 2 - math.log(mass), 1 - math.log(mass), -math.inf]
    )


def test_a_token_that_the_model_ruled_out_makes_the_sum_infinite() -> None:
    found = whole(fixed(0.0, 0.0, -math.inf), [0, 1, 2])
    assert found[2].surprisal == math.inf
    summary = summarize(found, 2)
    assert (summary.logprob, summary.perplexity, summary.bits_per_byte) == (-math.inf, math.inf, math.inf)


@pytest.mark.parametrize("row", [[math.nan, 0.0], [math.inf, 0.0], [-math.inf, -math.inf]])
def test_logits_that_are_no_numbers_are_said(row: list[float]) -> None:
    with pytest.raises(NumberError, match="non-finite logits before token 2"):
        whole(fixed(*row), [0, 1])


def test_an_id_without_a_logit_is_refused() -> None:
    model = Model.wrap(tiny_model(vocab_size=100), byte_tokenizer())
    with pytest.raises(ParameterError, match="token ids must be below 100, the width of the model's logits, not 195"):
        read(model, read_alone(model.tokenizer, "aé"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"window": 129}, "window must be a whole number between 2 and 128, not 129."),
        ({"stride": 128}, "stride must be a whole number between 1 and 127, not 128."),
        ({"window": 10, "stride": 10}, "stride must be a whole number between 1 and 9, not 10."),
    ],
)
def test_windows_and_strides_out_of_range_are_refused(given: dict[str, int], message: str) -> None:
    model = wrapped()
    with pytest.raises(ParameterError) as raised:
        read(model, read_alone(model.tokenizer, "abc"), **given)
    assert str(raised.value) == message


def test_a_model_without_a_known_window_reads_all_at_once_unless_one_is_given() -> None:
    model = fixed(*[0.0] * 258)
    reading = read(model, read_alone(model.tokenizer, TEXT))
    assert (reading.window, reading.stride, len(reading.passes)) == (None, None, 1)
    with pytest.raises(ParameterError, match="names no window"):
        read(model, read_alone(model.tokenizer, TEXT), stride=4)
    assert len(read(model, read_alone(model.tokenizer, TEXT), window=16).passes) > 1


# --- sums


def test_perplexity_is_of_the_scored_tokens_and_bits_per_byte_of_the_whole_text() -> None:
    model = wrapped()
    reading = read(model, read_alone(model.tokenizer, TEXT))
    scores = flat(score_text(model, reading))
    summary = reading.summary(scores)
    ids = list(TEXT.encode())
    logprobs = plain_rows(model.network, ids)[:-1].gather(-1, torch.tensor(ids)[1:, None])
    assert summary.num_scored == len(ids) - 1
    assert summary.logprob == pytest.approx(float(logprobs.sum()), abs=1e-3)
    assert summary.perplexity == pytest.approx(math.exp(-float(logprobs.mean())), rel=1e-4)
    assert summary.bits_per_byte == pytest.approx(-float(logprobs.sum()) / math.log(2) / len(ids), rel=1e-4)


def test_nothing_scored_has_no_mean() -> None:
    summary = summarize([Score(token_id=1)], 0)
    assert (summary.num_scored, summary.perplexity, summary.bits_per_byte) == (0, None, None)


def test_a_start_token_is_a_context_for_the_first_token() -> None:
    model = Model.wrap(tiny_model(vocab_size=258), byte_tokenizer(bos=True))
    passage = read_alone(model.tokenizer, "abc")
    assert (passage.before, passage.ids, passage.after) == ((256,), tuple(b"abc"), ())
    scores = flat(score_text(model, read(model, passage)))
    check(scores, plain_rows(model.network, [256, *b"abc"]), [256, *b"abc"], 1)


def test_a_context_is_read_and_not_scored() -> None:
    model = wrapped()
    passage = read_after(model.tokenizer, context_ids(model.tokenizer, "Hello "), "world")
    scores = flat(score_text(model, read(model, passage)))
    assert len(scores) == 5
    check(scores, plain_rows(model.network, list(b"Hello world")), list(b"Hello world"), 6)


# --- encoding


def test_a_continuation_gets_no_space_of_the_tokenizer_s_own() -> None:
    """As the loop would go on: a SentencePiece model writes a space before a text, and none inside one."""
    tokenizer = sentencepiece_tokenizer()
    names = tokenizer.convert_ids_to_tokens
    assert names(list(read_after(tokenizer, [1], " ab").ids)) == ["▁", "a", "b"]
    assert names(list(read_after(tokenizer, [1], "ab").ids)) == ["a", "b"]
    assert names(list(read_alone(tokenizer, "ab").ids)) == ["▁", "a", "b"]
    assert read_alone(tokenizer, "ab").before == (1,)
    assert context_ids(tokenizer, "") == (1,)
    assert context_ids(byte_tokenizer(), "") == ()


def test_special_tokens_in_a_text_are_parsed_as_raw_mode_does() -> None:
    passage = read_alone(byte_tokenizer(), "a<|end|>b")
    assert passage.ids == (97, 257, 98)
    assert passage.ids == encode_raw(byte_tokenizer(), "a<|end|>b").ids


def test_an_empty_text_is_refused() -> None:
    for encode in (lambda: read_alone(byte_tokenizer(), ""), lambda: read_after(byte_tokenizer(), [1], "")):
        with pytest.raises(PromptError, match="The prompt is empty"):
            encode()


# --- pieces


TOKENIZERS = {"bytes": byte_tokenizer, "sentencepiece": sentencepiece_tokenizer, "wordpiece": wordpiece_tokenizer}


@given(st.sampled_from(list(TOKENIZERS)), st.text("ab Hello world!é中🤖\r\n\t.,'", min_size=1, max_size=40))
@settings(deadline=None, max_examples=100)
def test_pieces_join_to_the_text_and_to_its_bytes(kind: str, text: str) -> None:
    tokenizer = TOKENIZERS[kind]()
    ids = read_alone(tokenizer, text).ids if tokenizer.encode(text, add_special_tokens=False) else ()
    pieces = cut(tokenizer, text, ids)
    if ids:
        assert "".join(piece.text for piece in pieces) == text
        assert b"".join(piece.raw for piece in pieces) == text.encode()
        starts = [piece.start for piece in pieces]
        assert starts == sorted(starts)
        assert 0 <= starts[0] <= starts[-1] < len(text)


def test_tokens_inside_a_character_begin_at_that_character() -> None:
    pieces = cut(byte_tokenizer(), "é🤖x", list("é🤖x".encode()))
    assert [piece.start for piece in pieces] == [0, 0, 1, 1, 1, 1, 2]
    assert [piece.text for piece in pieces] == ["", "é", "", "", "", "🤖", "x"]
    assert b"".join(piece.raw for piece in pieces) == "é🤖x".encode()


def test_byte_tokens_of_one_character_begin_at_that_character() -> None:
    tokenizer = sentencepiece_tokenizer()
    ids = read_alone(tokenizer, "a 🤖!").ids
    pieces = cut(tokenizer, "a 🤖!", ids)
    assert [piece.start for piece in pieces] == [0, 0, 1, 2, 2, 2, 2, 3]  # first the space that it writes itself
    assert [piece.text for piece in pieces] == ["", "a", " ", "", "", "", "🤖", "!"]


def test_a_tokenizer_that_drops_spaces_gives_them_to_the_token_after_them() -> None:
    tokenizer = wordpiece_tokenizer()
    text = "hello  world tokenizer "
    pieces = cut(tokenizer, text, read_alone(tokenizer, text).ids)
    assert [(piece.text, piece.start) for piece in pieces] == [
        ("hello", 0),
        ("  world", 7),
        (" token", 13),
        ("izer ", 18),
    ]


def test_a_slow_tokenizer_is_cut_by_what_each_token_adds() -> None:
    fast = wordpiece_tokenizer()

    class Slow:
        is_fast = False
        added_tokens_decoder: dict[int, Any] = {}  # noqa: RUF012

        def __len__(self) -> int:
            return len(fast)

        def convert_ids_to_tokens(self, token_id: int) -> Any:
            return fast.convert_ids_to_tokens(token_id)

        def decode(self, ids: list[int], **given: Any) -> Any:
            return fast.decode(ids, **given)

    pieces = cut(Slow(), "hello world", fast.encode("hello world"))
    assert [piece.text for piece in pieces] == ["hello", " world"]


def test_lines_and_columns_count_characters_from_one() -> None:
    lines = Lines("ab\r\n\tc\né中x")
    assert [lines.at(place) for place in (0, 2, 3, 4, 5, 7, 9)] == [
        (1, 1),
        (1, 3),
        (1, 4),
        (2, 1),
        (2, 2),
        (3, 1),
        (3, 3),
    ]


# --- continuations and comparisons


def test_continuations_are_ranked_by_the_whole_and_by_the_token() -> None:
    model = wrapped()
    before = list(b"The capital of France is")
    texts = [" Paris", " L", " a city in the north"]
    found = continuations(model, before, texts)
    rows = {text: plain_rows(model.network, before + list(text.encode())) for text in texts}
    expected = {
        text: sum(float(rows[text][len(before) - 1 + i, byte]) for i, byte in enumerate(text.encode()))
        for text in texts
    }
    per_token = {text: expected[text] / len(text.encode()) for text in texts}
    assert [one.text for one in found] == sorted(texts, key=lambda text: -expected[text])
    mass = sum(math.exp(value - max(expected.values())) for value in expected.values())
    for one in found:
        assert one.logprob == pytest.approx(expected[one.text], abs=CLOSE * len(one.scores))
        assert one.share == pytest.approx(math.exp(expected[one.text] - max(expected.values())) / mass, rel=1e-2)
        assert one.rank_per_token == 1 + sum(value > per_token[one.text] for value in per_token.values())
    assert sum(one.share or 0 for one in found) == pytest.approx(1)


def test_a_continuation_that_does_not_fit_says_both_numbers() -> None:
    model = wrapped(window=16)
    with pytest.raises(PromptError, match="have 17 tokens, but the model's window is 16"):
        continuations(model, [1] * 10, ["1234567"])


def test_continuations_that_are_all_impossible_have_no_share() -> None:
    model = fixed(0.0, *[-math.inf] * 257)
    found = continuations(model, [0], ["a", "b"])
    assert [(one.text, one.share, one.prob) for one in found] == [("a", None, 0.0), ("b", None, 0.0)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_comparison_equals_two_plain_passes(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "BLOCK", 258 * 4)
    model = wrapped(kind)
    a, b, text = list(b"Be brief."), list(b"Be long and polite:"), list(b" So it goes.")
    found = flat(compare(model, a, b, text))
    rows_a = plain_rows(model.network, a + text)[len(a) - 1 : -1]
    rows_b = plain_rows(model.network, b + text)[len(b) - 1 : -1]
    divergence = (rows_a.exp() * (rows_a - rows_b)).sum(-1) / math.log(2)
    assert [one.kl for one in found] == pytest.approx(divergence.tolist(), abs=CLOSE)
    targets = torch.tensor(text)[:, None]
    change = (rows_b.gather(-1, targets) - rows_a.gather(-1, targets)).flatten()
    assert [one.change for one in found] == pytest.approx(change.tolist(), abs=2 * CLOSE)
    sums = total(found)
    assert sums.change == pytest.approx(float(change.sum()), abs=1e-3)
    assert sums.kl == pytest.approx(float(divergence.sum()), abs=1e-3)
    order = sorted(range(len(text)), key=lambda i: -(found[i].change or 0))
    assert gains(found, 3) == [i for i in order if (found[i].change or 0) > 0][:3]
    assert losses(found, 3) == [i for i in reversed(order) if (found[i].change or 0) < 0][:3]


def test_a_prompt_without_tokens_tells_nothing_of_the_first_token() -> None:
    model = wrapped()
    found = flat(compare(model, [], list(b"ab"), list(b"xyz")))
    assert (found[0].a, found[0].kl, found[0].change) == (Score(token_id=120), None, None)
    check([one.b for one in found], plain_rows(model.network, list(b"abxyz")), list(b"abxyz"), 2)
    check([one.a for one in found[1:]], plain_rows(model.network, list(b"xyz")), list(b"xyz"), 1)
    assert total(found).num_compared == 2
    assert total(flat(compare(model, [], [], [97]))).kl is None


def test_a_divergence_from_what_is_ruled_out_is_infinite() -> None:
    a, b = torch.tensor([[0.0, 0.0, -math.inf]]), torch.tensor([[0.0, -math.inf, 0.0]])
    assert kl_bits(a, a) == [0.0]
    assert kl_bits(a, b) == [math.inf]


# --- the default model


@pytest.mark.real_model
def test_the_default_model_scores_as_plain_transformers_does(default_model: Model) -> None:
    text = "The capital of France is Paris. 巴黎 🗼 is its heart.\n"
    reading = read(default_model, read_alone(default_model.tokenizer, text))
    ids = list(reading.passage.ids)
    assert ids == default_model.tokenizer(text)["input_ids"]
    check(flat(score_text(default_model, reading))[1:], plain_rows(default_model.network, ids), ids, 1)
    narrow = read(default_model, read_alone(default_model.tokenizer, text), window=8, stride=3)
    found = [one.logprob for one in flat(score_text(default_model, narrow))]
    assert found[1:] == pytest.approx(strided(default_model.network, ids, 8, 3)[1:], abs=CLOSE)


@pytest.mark.real_model
def test_the_default_model_s_tokens_are_cut_at_their_characters(default_model: Model) -> None:
    text = "The 🤖 said:\r\n\t<|im_start|>é"
    ids = read_alone(default_model.tokenizer, text).ids
    pieces = cut(default_model.tokenizer, text, ids)
    assert "".join(piece.text for piece in pieces) == text
    assert [text[piece.start] for piece in pieces if not piece.text] == ["🤖"]


def test_passages_keep_what_a_tokenizer_sets_after_a_text() -> None:
    tokenizer = wordpiece_tokenizer()
    from tokenizers import processors

    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    hello = tokenizer.convert_tokens_to_ids("hello")
    assert read_alone(tokenizer, "hello") == Passage(text="hello", before=(2,), ids=(hello,), after=(3,))
    assert context_ids(tokenizer, "hello") == (2, hello)
