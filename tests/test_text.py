"""The text stream: pieces joined equal the whole, for any ids and any kind of tokenizer, at a flat cost."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from minigen.generation.text import TextStream, decode_new
from stubs import byte_tokenizer, sentencepiece_tokenizer, wordpiece_tokenizer
from tokenizers import decoders

MARK = "\ufffd"
END = 257  # of byte_tokenizer
SCRIPTS = [
    "Hello world! x != y , ' z' hello tokens .",
    "Привет, мир",
    "مرحبا بالعالم",
    "नमस्ते दुनिया",
    "தமிழ் மொழி",
    "我很好。中文",
    "👩‍👩‍👧🏽🙂✅❤️",
    "e\u0301a\u0308\u200b\n\t  \x00",
]


class DecodeOnly:
    """A tokenizer of which nothing is known but `decode`; it counts the ids it decodes."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer, self.num_decoded = tokenizer, 0

    def decode(self, ids: Sequence[int], **options: Any) -> str:
        self.num_decoded += len(ids)
        text: str = self.tokenizer.decode(ids, **options)
        return text


class Counting(DecodeOnly):
    """A tokenizer that counts the ids it decodes."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tokenizer, name)


class ByteString:
    """Tokens that are any bytes, also with the end of one character and the beginning of the next."""

    extra = (b"", b"ab\xf0", b"\x9f\x99\x82 \xe4\xb8")

    def __init__(self, errors: str) -> None:
        self.errors = errors

    def __len__(self) -> int:
        return 256 + len(self.extra)

    def decode(self, ids: Sequence[int], **options: Any) -> str:
        return b"".join(bytes([i]) if i < 256 else self.extra[(i - 256) % 3] for i in ids).decode(errors=self.errors)


def with_decoder(tokenizer: Any, decoder: Any) -> Any:
    tokenizer.backend_tokenizer.decoder = decoder
    return tokenizer


def no_strip() -> Any:
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    return with_decoder(sentencepiece_tokenizer(), decoders.Sequence(steps))


TOKENIZERS = {
    "byte-level": byte_tokenizer([" world", " x", "é", "ünï 中"]),
    "byte-level in a chain": with_decoder(byte_tokenizer([" x"]), decoders.Sequence([decoders.ByteLevel()])),
    "sentencepiece": sentencepiece_tokenizer(),
    "sentencepiece without strip": no_strip(),
    "metaspace": with_decoder(sentencepiece_tokenizer(), decoders.Metaspace()),
    "wordpiece": wordpiece_tokenizer(),
    "word ends": with_decoder(sentencepiece_tokenizer(), decoders.BPEDecoder(suffix="ello")),
    "no decoder": with_decoder(sentencepiece_tokenizer(), None),
    "bytes, marks for broken ones": ByteString("replace"),
    "bytes, broken ones dropped": ByteString("ignore"),
}
WITH_ENCODER = [name for name in TOKENIZERS if "bytes," not in name]
texts = st.lists(st.sampled_from(SCRIPTS).flatmap(lambda script: st.text(script, max_size=12)), max_size=6).map("".join)


def whole(tokenizer: Any, ids: Sequence[int]) -> str:
    text: str = tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text


def pieces(tokenizer: Any, ids: Sequence[int], context_ids: Sequence[int] = ()) -> list[str]:
    stream = TextStream(tokenizer, context_ids)
    return [*map(stream.push, ids), stream.flush()]


def ids_of(tokenizer: Any, *tokens: str) -> list[int]:
    return [tokenizer.convert_tokens_to_ids(token) for token in tokens]


def random_ids(tokenizer: Any) -> st.SearchStrategy[list[int]]:
    """Any ids, some past the tokenizer's end, with runs of the bytes of characters, whole and broken."""
    base = 3 if "<0x00>" in getattr(tokenizer, "vocab", ()) else 0
    of_bytes = st.sampled_from(["é", "中", "🙂", "\n", "a"]).map(lambda char: [byte + base for byte in char.encode()])
    any_id = st.integers(0, len(tokenizer) + 3).map(lambda token_id: [token_id])
    part = st.one_of(of_bytes, of_bytes.map(lambda ids: ids[:-1]), any_id)
    return st.lists(part, max_size=30).map(lambda parts: [token_id for ids in parts for token_id in ids])


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_pieces_joined_equal_the_whole_for_any_ids(name: str, data: st.DataObject) -> None:
    """UTF-2, and VOC-1 for ids past the tokenizer's end"""
    tokenizer = TOKENIZERS[name]
    ids = data.draw(random_ids(tokenizer))
    assert "".join(pieces(tokenizer, ids)) == decode_new(tokenizer, (), ids) == whole(tokenizer, ids)


@pytest.mark.parametrize("name", WITH_ENCODER)
@settings(max_examples=100, deadline=None)
@given(prompt=texts, new=texts)
def test_after_a_prompt_the_pieces_are_what_the_new_ids_add(name: str, prompt: str, new: str) -> None:
    tokenizer = TOKENIZERS[name]
    prompt_ids = tokenizer.encode(prompt + " a", add_special_tokens=False)
    new_ids = tokenizer.encode(new, add_special_tokens=False)
    added = whole(tokenizer, prompt_ids + new_ids)[len(whole(tokenizer, prompt_ids)) :]
    assert "".join(pieces(tokenizer, new_ids, prompt_ids)) == decode_new(tokenizer, prompt_ids, new_ids) == added


@pytest.mark.parametrize("name", WITH_ENCODER)
@settings(max_examples=100, deadline=None)
@given(text=texts)
def test_a_tokenizer_that_only_decodes_is_enough_for_text(name: str, text: str) -> None:
    tokenizer = TOKENIZERS[name]
    ids = tokenizer.encode(text)
    assert "".join(pieces(DecodeOnly(tokenizer), ids)) == whole(tokenizer, ids)


def test_a_character_is_shown_once_it_is_whole() -> None:
    """UTF-1"""
    assert pieces(byte_tokenizer(), list("✅".encode())) == ["", "", "✅", ""]
    assert pieces(DecodeOnly(byte_tokenizer()), list("✅".encode())) == ["", "", "✅", ""]


def test_every_prefix_of_ids_flushes_to_its_own_decode() -> None:
    """UTF-2"""
    tokenizer, ids = byte_tokenizer(), list("我很好🙂".encode())
    for end in range(len(ids) + 1):
        assert "".join(pieces(tokenizer, ids[:end])) == whole(tokenizer, ids[:end])


@pytest.mark.parametrize("wrap", [lambda tokenizer: tokenizer, DecodeOnly])
def test_a_broken_character_becomes_one_mark(wrap: Any) -> None:
    """UTF-5"""
    tokenizer = wrap(byte_tokenizer([" x"]))
    assert pieces(tokenizer, [0xE4, 0xB8, 258]) == ["", "", f"{MARK} x", ""]


@pytest.mark.parametrize("ending", [[], [END]])
def test_what_is_held_at_the_end_is_flushed(ending: list[int]) -> None:
    """UTF-6"""
    assert "".join(pieces(byte_tokenizer(), [*b"hi", 0xF0, 0x9F, *ending])) == f"hi{MARK}"


@pytest.mark.parametrize("wrap", [lambda tokenizer: tokenizer, DecodeOnly])
@pytest.mark.parametrize("make", [byte_tokenizer, sentencepiece_tokenizer])
def test_marks_of_a_long_broken_run_come_out_by_the_fourth_byte(make: Any, wrap: Any) -> None:
    """UTF-8"""
    tokenizer = make()
    byte = tokenizer.convert_tokens_to_ids("<0x80>") if make is sentencepiece_tokenizer else 0x80
    stream, num_shown = TextStream(wrap(tokenizer)), 0
    for num_pushed in range(1, 200):
        num_shown += len(stream.push(byte))
        assert num_pushed - num_shown < 4


@pytest.mark.parametrize("wrap", [Counting, DecodeOnly])
@pytest.mark.parametrize("token", ["<0x80>", "▁Hello", "▁", "</s>", "!"])
def test_the_cost_of_a_token_stays_flat(token: str, wrap: Any) -> None:
    """UTF-8: no token decodes more ids than a fixed number, however long the text"""
    tokenizer = wrap(sentencepiece_tokenizer())
    stream = TextStream(tokenizer)
    [token_id] = ids_of(tokenizer.tokenizer, token)
    most = 0
    for _ in range(2000):
        before = tokenizer.num_decoded
        stream.push(token_id)
        most = max(most, tokenizer.num_decoded - before)
    assert most <= 150


def test_a_byte_run_costs_each_byte_once() -> None:
    tokenizer = Counting(sentencepiece_tokenizer())
    ids = [byte + 3 for byte in ("中" * 700).encode()]
    assert "".join(pieces(tokenizer, ids)) == "中" * 700
    assert tokenizer.num_decoded < 3 * len(ids)


def test_words_keep_their_spaces() -> None:
    """SPC-1"""
    tokenizer = sentencepiece_tokenizer()
    assert pieces(tokenizer, ids_of(tokenizer, "▁Hello", "▁world", "!")) == ["Hello", " world", "!", ""]


@pytest.mark.parametrize("name", ["byte-level", "sentencepiece"])
@pytest.mark.parametrize("text", ["x != y , ' z'", "f (x) . do not , it 's n't"])
def test_spaces_before_punctuation_stay(name: str, text: str) -> None:
    """SPC-3: with a tokenizer that asks for the clean-up of spaces"""
    tokenizer = byte_tokenizer() if name == "byte-level" else sentencepiece_tokenizer()
    tokenizer.clean_up_tokenization_spaces = True
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert "".join(pieces(tokenizer, ids)) == decode_new(tokenizer, (), ids) == text


def test_spaces_stay_over_many_tokens() -> None:
    """SPC-4"""
    tokenizer = sentencepiece_tokenizer()
    ids = ids_of(tokenizer, *["▁Hello", "▁world", "▁Hello", "!"] * 50)
    assert "".join(pieces(tokenizer, ids)) == " ".join(["Hello world Hello!"] * 50)


def test_a_prompt_is_cut_off_by_tokens() -> None:
    """SPC-5"""
    tokenizer = byte_tokenizer()
    prompt_ids = tokenizer.encode("King , Q <|end|> 中")
    assert pieces(tokenizer, list(b"OK"), prompt_ids) == ["O", "K", ""]
    assert decode_new(tokenizer, prompt_ids, list(b"OK")) == "OK"


def test_a_continued_text_keeps_its_leading_space() -> None:
    tokenizer = sentencepiece_tokenizer()
    new_ids = ids_of(tokenizer, "▁world")
    for context in (["▁Hello"], ["<s>", "▁"], ["▁Hello", "</s>"], ["▁Hello", "<0xE4>", "<0xB8>", "<0xAD>"]):
        assert pieces(tokenizer, new_ids, ids_of(tokenizer, *context)) == [" world", ""]
    assert pieces(tokenizer, new_ids, ids_of(tokenizer, "<s>")) == ["world", ""]
    words = wordpiece_tokenizer()
    context_ids = words.encode("hello", add_special_tokens=False)
    assert pieces(words, ids_of(words, "world", "##s", "."), context_ids) == [" world", "s", ".", ""]


def test_bytes_after_a_prompt_of_bytes_are_a_run_of_their_own() -> None:
    """A broken byte would otherwise turn the prompt's last character into marks, which count as its text."""
    tokenizer = sentencepiece_tokenizer()
    context_ids = ids_of(tokenizer, "▁Hello", "<0xE4>", "<0xB8>", "<0xAD>")
    assert "".join(pieces(tokenizer, ids_of(tokenizer, "<0x80>", "!"), context_ids)) == f"{MARK}!"


def test_special_tokens_and_unknown_ids_have_no_text() -> None:
    """VOC-1, TOK-3"""
    assert pieces(byte_tokenizer(), [97, 300, END, 98]) == ["a", "", "", "b", ""]
    assert "".join(pieces(DecodeOnly(byte_tokenizer()), [97, 300, END, 98])) == "ab"


def test_special_tokens_do_not_end_a_run_of_bytes() -> None:
    tokenizer = sentencepiece_tokenizer()
    ids = ids_of(tokenizer, "<0xE4>", "</s>", "<0xB8>", "<0xAD>", "!")
    assert "".join(pieces(tokenizer, ids)) == whole(tokenizer, ids) == "中!"
