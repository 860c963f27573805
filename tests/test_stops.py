"""Stop strings: the earliest end wins, nothing of them is shown, and only what could become one is held."""

from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st
from minigen.generation.stops import StopStrings
from minigen.generation.text import TextStream
from stubs import byte_tokenizer, sentencepiece_tokenizer, wordpiece_tokenizer


def naive(text: str, stops: list[str]) -> tuple[str, str | None]:
    """Try every beginning of the text."""
    for end in range(len(text) + 1):
        for stop in stops:
            if text[:end].endswith(stop):
                return text[: end - len(stop)], stop
    return text, None


def could_become(text: str, stops: list[str]) -> int:
    """The length of the longest end of a text that a stop string begins with."""
    return max((n for stop in stops for n in range(len(stop)) if text.endswith(stop[:n])), default=0)


def streamed(tokens: list[str], stops: list[str]) -> tuple[list[str], str | None]:
    """The pieces of a text of whole tokens, as a stream over a byte-level tokenizer shows them."""
    tokenizer = byte_tokenizer([token for token in tokens if len(token) > 1])
    stream = TextStream(tokenizer, (), stops)
    shown = [stream.push(tokenizer.convert_tokens_to_ids(token)) for token in tokens]
    return [*shown, stream.flush()], stream.stopped_by


few = st.text("ab", min_size=1, max_size=5)


@settings(max_examples=500, deadline=None)
@given(st.lists(st.text("abc", max_size=6), max_size=12), st.lists(few, max_size=5))
@example(["abc"], ["c", "bc"])
@example(["abc"], ["bc", "c"])
@example(["aab"], ["aaa", "ab"])
def test_the_shown_text_equals_a_search_of_every_prefix(parts: list[str], stops: list[str]) -> None:
    watcher, shown, taken = StopStrings(stops), "", ""
    for part in parts:
        shown, taken = shown + watcher.push(part), taken + part
        text, stop = naive(taken, stops)
        assert watcher.matched == stop
        assert shown == (text if stop else text[: len(text) - could_become(text, stops)])  # STP-8
    assert (shown + watcher.flush(), watcher.matched) == naive(taken, stops)


SCRIPT = "Hello, мир! नमस्ते தமிழ் مرحبا 我很好🙂👩‍👩‍👧é e\u0301\n"


@pytest.mark.parametrize("make", [byte_tokenizer, sentencepiece_tokenizer, wordpiece_tokenizer])
@settings(max_examples=150, deadline=None)
@given(
    text=st.text(SCRIPT, max_size=40),
    stops=st.lists(st.text(SCRIPT, min_size=1, max_size=3), max_size=4),
)
def test_stops_are_found_whatever_the_tokens(make: Any, text: str, stops: list[str]) -> None:
    """STP-2"""
    tokenizer = make()
    ids = tokenizer.encode(text, add_special_tokens=False)
    whole = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    stream = TextStream(tokenizer, (), stops)
    shown = "".join(map(stream.push, ids)) + stream.flush()
    assert (shown, stream.stopped_by) == naive(whole, stops)


def test_no_part_of_a_stop_string_is_shown() -> None:
    """STP-1"""
    assert streamed(["ok ", "EN", "D", ".", "x"], ["END."]) == (["ok ", "", "", "", "", ""], "END.")


def test_a_stop_string_may_cross_tokens_or_lie_inside_one() -> None:
    """STP-2"""
    assert streamed(["hel", "lo", " world"], ["lo wo"]) == (["he", "l", "", ""], "lo wo")
    assert streamed(["a lo wo b"], ["lo wo"]) == (["a ", ""], "lo wo")


def test_held_text_is_shown_where_the_stop_does_not_come() -> None:
    """STP-3"""
    assert streamed(["abX", "Y"], ["XYZ"]) == (["ab", "", "XY"], None)
    assert streamed(["abX", "Y", "!"], ["XYZ"]) == (["ab", "", "XY!", ""], None)


def test_a_prompt_never_counts_for_a_stop_string() -> None:
    """STP-5"""
    tokenizer = byte_tokenizer()
    for prompt, stop, new, shown in [("hi\n", "\n", "a\nb", "a"), ("A", "AB", "Bc", "Bc")]:
        stream = TextStream(tokenizer, tokenizer.encode(prompt), [stop])
        assert "".join(map(stream.push, new.encode())) + stream.flush() == shown


def test_a_letter_that_begins_no_stop_is_shown_at_once() -> None:
    """STP-8"""
    assert streamed(["a", "b", "c"], ["0123456789"]) == (["a", "b", "c", ""], None)


def test_the_earliest_end_wins_and_then_the_order_of_the_list() -> None:
    assert streamed([*"abcd"], ["abcd", "bc"])[1] == "bc"
    assert streamed([*"abc"], ["bc", "abc"]) == (["", "", "a", ""], "bc")
    assert streamed([*"abc"], ["abc", "bc"]) == (["", "", "", ""], "abc")


def test_a_newline_token_stops_a_sentencepiece_text_at_once() -> None:
    """Byte tokens are held until their run ends, but a stop that they complete ends the run."""
    tokenizer = sentencepiece_tokenizer()
    hello, newline = (tokenizer.convert_tokens_to_ids(token) for token in ("▁Hello", "<0x0A>"))
    stream = TextStream(tokenizer, (), ["\n"])
    assert (stream.push(hello), stream.push(newline), stream.stopped_by) == ("Hello", "", "\n")
    stream = TextStream(tokenizer, (), ["o\n\n"])
    assert [stream.push(token_id) for token_id in (hello, newline, newline, hello)] == ["Hell", "", "", ""]
    assert (stream.flush(), stream.stopped_by) == ("", "o\n\n")


def test_a_stop_that_the_last_held_bytes_complete_is_found_by_the_flush() -> None:
    stream = TextStream(byte_tokenizer(), (), ["\ufffd"])
    assert (stream.push(0xF0), stream.stopped_by, stream.flush(), stream.stopped_by) == ("", None, "", "\ufffd")


def test_after_a_stop_nothing_more_is_shown() -> None:
    stream = TextStream(byte_tokenizer(), (), ["b"])
    assert [stream.push(byte) for byte in b"abab"] == ["a", "", "", ""]
    assert (stream.flush(), stream.stopped_by) == ("", "b")


def test_many_long_stops_that_nearly_match_leave_the_text_whole() -> None:
    stops = ["a" * 2000 + f"{n:02}" for n in range(64)]
    watcher = StopStrings(stops)
    shown = "".join(watcher.push("a" * 50) for _ in range(60))
    assert shown == "a" * 1000
    assert shown + watcher.flush() == "a" * 3000
