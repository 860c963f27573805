"""The lines of a batch: how a stream is cut, and what a line may hold."""

import io
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from minigen.cli.batch_input import Input, Line, LineReader, input_at
from minigen.cli.batch_requests import Form, fields_of, id_of, is_blank, request_of
from minigen.generation.errors import MinigenError, RunError, UsageError
from minigen.generation.params import SamplingParams


def reader(data: bytes, **limits: int) -> LineReader:
    return LineReader(io.BytesIO(data), "a stream", **limits)


def raws(data: bytes) -> list[bytes]:
    return [line.raw for line in reader(data)]


def line(data: bytes | str) -> Line:
    (found,) = reader(data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass"))
    return found


def refusal(data: bytes | str) -> str:
    """What is wrong with a JSON line."""
    with pytest.raises(MinigenError) as found:
        check(line(data))
    return str(found.value)


def check(line: Line) -> None:
    fields = fields_of(line, "json")
    id_of(fields)
    SamplingParams(**request_of(fields).settings)


# --- cutting


def test_lines_end_in_lf_or_crlf_and_the_last_one_may_lack_it() -> None:
    """INP-5"""
    assert raws(b"a\nb\r\n\r\n\nc") == [b"a", b"b", b"", b"", b"c"]
    assert raws(b"a\n") == raws(b"a") == raws(b"a\r\n") == [b"a"]
    assert raws(b"") == []
    assert raws(b"\n") == [b""]
    assert raws(b"a\rb\n") == [b"a\rb"]


def test_a_byte_order_mark_is_dropped_at_the_beginning_only() -> None:
    assert raws("\ufeffa\n\ufeffb".encode()) == [b"a", "\ufeffb".encode()]
    assert reader("\ufeffa".encode()).next() == reader(b"a").next()


def test_lines_are_numbered_and_known_by_their_content() -> None:
    lines = list(reader(b"a\n\nb\r\na"))
    assert [each.number for each in lines] == [1, 2, 3, 4]
    assert lines[0].digest == lines[3].digest
    assert len({each.digest for each in lines}) == 3
    assert all(len(each.digest) == 16 for each in lines)
    assert lines[2].digest == line(b"b").digest


@given(st.lists(st.binary(max_size=40).filter(lambda data: b"\n" not in data), max_size=8), st.integers(1, 7))
@settings(max_examples=60, deadline=None)
def test_where_a_stream_breaks_changes_nothing(lines: list[bytes], size: int) -> None:
    class Slow(io.BytesIO):
        def read(self, most: int | None = -1, /) -> bytes:
            return super().read(size)

    data = b"".join(each + b"\n" for each in lines)
    assert list(LineReader(Slow(data), "slow", limit=10)) == list(reader(data, limit=10))
    whole = [each.removesuffix(b"\r") for each in data.removeprefix(b"\xef\xbb\xbf").split(b"\n")[:-1]]
    assert [each.num_bytes for each in reader(data)] == [len(each) for each in whole]


def test_of_a_line_that_is_too_long_only_the_digest_is_kept() -> None:
    """INP-12"""

    class Endless(io.RawIOBase):
        def __init__(self) -> None:
            self.left = 10_000_000

        def readable(self) -> bool:
            return True

        def read(self, size: int = -1) -> bytes:
            taken = min(self.left, 65_536)
            self.left -= taken
            return b"x" * taken

    lines = LineReader(Endless(), "endless", limit=100_000)
    found = lines.next()
    assert found is not None
    assert found.is_too_long
    assert (found.raw, found.num_bytes, lines.has_ended) == (b"", 10_000_000, True)
    both = list(reader(b"x" * 101 + b"\n" + b"y" * 100 + b"\nz", limit=100))
    assert [(each.is_too_long, each.num_bytes) for each in both] == [(True, 101), (False, 100), (False, 1)]
    with pytest.raises(UsageError, match=r"The line has 101 bytes, and the limit is 100\."):
        fields_of(both[0], "json")


def test_a_pipe_gives_what_came_and_says_where_more_may_come(tmp_path: Path) -> None:
    out, into = os.pipe()
    lines = LineReader(os.fdopen(out, "rb", buffering=0), "a pipe")
    assert lines.next() is None
    os.write(into, b"one\ntw")
    found = lines.next()
    assert found is not None
    assert found.raw == b"one"
    assert lines.next() is None
    assert not lines.has_ended
    os.write(into, b"o")
    os.close(into)
    assert [each.raw for each in lines] == [b"two"]
    assert lines.has_ended
    lines.close()


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot be read: No such file or directory\."):
        input_at(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=r"cannot be read: Is a directory\."):
        input_at(tmp_path)

    class Broken(io.BytesIO):
        def read(self, most: int | None = -1, /) -> bytes:
            raise OSError(5, "Input/output error")

    with pytest.raises(RunError, match=r"^a disk could not be read any further: Input/output error\.$"):
        LineReader(Broken(), "a disk").next()


def test_a_file_can_be_read_twice_and_a_pipe_cannot(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a")
    os.mkfifo(tmp_path / "pipe")
    assert input_at(tmp_path / "file").is_file
    assert not input_at(tmp_path / "pipe").is_file
    assert input_at(tmp_path / "file") == Input(path=tmp_path / "file", name=repr(str(tmp_path / "file")), is_file=True)


# --- what a line holds


@pytest.mark.parametrize(
    ("data", "form", "blank"),
    [("", "json", True), (" \t", "json", True), ("", "text", True), (" ", "text", False), ("{}", "json", False)],
)
def test_an_empty_line_is_no_request(data: str, form: Form, blank: bool) -> None:
    """INP-2: spaces are a prompt where lines are prompts."""
    lines = list(reader(data.encode() + b"\n"))
    assert is_blank(lines[0], form) == blank


def test_a_line_of_text_is_its_prompt_as_it_stands() -> None:
    """INP-2, INP-11"""
    for text in (" a\t", '{"prompt": 1}', "\x00", "a\\n", "\u200b", "é🤖"):
        request = request_of(fields_of(line(text), "text"))
        assert (request.prompt, request.settings, request.system) == (text, {}, None)


def test_a_json_line_has_every_setting_by_its_name() -> None:
    given: dict[str, Any] = {
        "temperature": 1, "top_p": 0.5, "top_k": 3, "stop": "x", "bad_words": ["a", "b"], "ignore_eos": True,
        "order": "vllm", "seed": 2**63 - 1, "max_new_tokens": 5, "end_token_ids": [1, 2], "logit_bias": {"5": -2},
    }  # fmt: skip
    fields = {"prompt": "p", "id": "a", "system": "s", **given}
    request = request_of(fields_of(line(json.dumps(fields)), "json"))
    assert (request.prompt, request.system) == ("p", "s")
    assert request.settings == given | {"logit_bias": {5: -2}}
    assert SamplingParams(**request.settings).stop == ("x",)
    assert id_of(fields) == "a"


def test_null_is_as_good_as_none_and_bans_a_token() -> None:
    names = ["id", "messages", "system", *SamplingParams.__dataclass_fields__]
    request = request_of(fields_of(line(json.dumps({"prompt": "p", **dict.fromkeys(names)})), "json"))
    assert (request.prompt, request.settings, request.system) == ("p", {}, None)
    banned = request_of(fields_of(line('{"prompt": "p", "logit_bias": {"7": null, "8": -1e999}}'), "json"))
    assert banned.settings == {"logit_bias": {7: -math.inf, 8: -math.inf}}


def test_messages_stand_in_place_of_a_prompt() -> None:
    messages = [{"role": "user", "content": "hi"}, {"content": "", "role": "assistant"}]
    request = request_of({"messages": messages, "system": "s"})
    assert (request.messages, request.prompt, request.system) == (messages, None, "s")


BAD = {
    "": "The line is no JSON: Expecting value at character 1.",
    '{"prompt": "a"': "The line is no JSON: Expecting ',' delimiter at character 15.",
    '{"prompt": "a"} x': "The line is no JSON: Extra data at character 17.",
    '"text"': 'The line must be an object, such as {"prompt": "..."}, not a text.',
    "[1]": 'The line must be an object, such as {"prompt": "..."}, not a list.',
    "null": 'The line must be an object, such as {"prompt": "..."}, not null.',
    "true": 'The line must be an object, such as {"prompt": "..."}, not true or false.',
    "1": 'The line must be an object, such as {"prompt": "..."}, not a number.',
    '{"prompt": "a", "temperature": NaN}': "The line is no JSON: NaN is no number there.",
    '{"prompt": "a", "temperature": -Infinity}': "The line is no JSON: -Infinity is no number there.",
    '{"prompt": "a", "temperature": 1e999}': "temperature must be between 0 and 100, not inf.",
    '{"prompt": "a", "seed": ' + "1" * 5000 + "}": "The line has a number of too many digits.",
    '{"prompt": "a", "seed": 9223372036854775808}': (
        "seed must be a whole number between 0 and 2^63-1, not 9223372036854775808."
    ),
    '{"prompt": "a", "temperature": "0.5"}': "temperature must be a number between 0 and 100, not '0.5'.",
    '{"prompt": "a", "temperature": true}': "temperature must be a number between 0 and 100, not True.",
    '{"prompt": "a", "top_k": 1.5}': "top_k must be a whole number, 0 or more, not 1.5.",
    '{"prompt": "a", "top_k": 1.0}': "top_k must be a whole number, 0 or more, not 1.0.",
    '{"prompt": "a", "ignore_eos": 1}': "ignore_eos must be true or false, not 1.",
    '{"prompt": "a", "stop": [""]}': "stop must be at most 64 strings, none of them empty, not [''].",
    '{"prompt": "a", "stop": {"a": 1}}': "stop must be at most 64 strings, none of them empty, not {'a': 1}.",
    '{"prompt": "a", "logit_bias": {"x": 1}}': (
        "logit_bias must be token ids (0 or more) with a finite number or -inf each, not {'x': 1}."
    ),
    '{"prompt": "a", "logit_bias": [1]}': (
        "logit_bias must be token ids (0 or more) with a finite number or -inf each, not [1]."
    ),
    '{"prompt": "a", "order": "mine"}': None,
    '{"prompt": "a", "prompt": "b"}': "prompt is given twice.",
    '{"prompt": "a", "logit_bias": {"1": 1, "1": 2}}': "'1' is given twice.",
    '{"prompt": "a", "temprature": 1}': "temprature is not known; did you mean temperature?",
    '{"prompt": "a", "max_tokens": 1}': "max_tokens is not known; did you mean max_new_tokens?",
    '{"prompt": "a", "\\u001b[2J": 1}': (
        "'\\x1b[2J' is not known; the keys are id, prompt, messages, system, and the sampling settings."
    ),
    '{"id": 1}': "The line has no prompt and no messages: give one of them.",
    '{"prompt": null}': "The line has no prompt and no messages: give one of them.",
    '{"prompt": ""}': "The prompt is empty.",
    '{"prompt": 5}': "prompt must be a text, not 5.",
    '{"prompt": ["a"]}': "prompt must be a text, not ['a'].",
    '{"prompt": "a", "messages": [{"role": "user", "content": "b"}]}': (
        "prompt and messages contradict each other: give one of them."
    ),
    '{"prompt": "a\\ud800"}': "prompt is no valid text: character 2 is half of one ('\\ud800').",
    '{"prompt": "a", "stop": ["\\udfff"]}': "stop is no valid text: character 1 is half of one ('\\udfff').",
    '{"prompt": "a", "system": 1}': "system must be a text, not 1.",
    '{"prompt": "a", "id": 1.5}': "id must be a text or a whole number, not 1.5.",
    '{"prompt": "a", "id": true}': "id must be a text or a whole number, not True.",
    '{"prompt": "a", "id": [1]}': "id must be a text or a whole number, not [1].",
    '{"prompt": "a", "id": "\\ud800"}': "id is no valid text: character 1 is half of one ('\\ud800').",
    '{"messages": []}': "messages must be a list of at least one message, not [].",
    '{"messages": "hi"}': "messages must be a list of at least one message, not 'hi'.",
    '{"messages": ["hi"]}': "messages[0] must be an object with role and content, and nothing else, not 'hi'.",
    '{"messages": [{"role": "user"}]}': (
        "messages[0] must be an object with role and content, and nothing else, not {'role': 'user'}."
    ),
    '{"messages": [{"role": "user", "content": [{"text": "a"}]}]}': (
        "messages[0].content must be a text, not [{'text': 'a'}]."
    ),
    '{"messages": [{"role": "user", "content": "\\udc00"}]}': (
        "messages[0].content is no valid text: character 1 is half of one ('\\udc00')."
    ),
    '{"system": "a", "messages": [{"role": "system", "content": "b"}]}': (
        "system and a message of the role system contradict each other: give one of them."
    ),
}


@pytest.mark.parametrize(("data", "sentence"), BAD.items(), ids=[data[:60] for data in BAD])
def test_a_bad_line_is_refused_with_one_sentence(data: str, sentence: str | None) -> None:
    """SMP-4, RNG-4, CFG-1"""
    with pytest.raises(MinigenError) as found:
        check(Line(number=1, raw=data.encode(), digest="", num_bytes=len(data)))
    assert sentence is None or str(found.value) == sentence


def test_a_line_that_is_not_utf_8_is_refused_with_the_byte() -> None:
    """INP-3"""
    expected = "The line must be UTF-8, and it has the byte 0xe9 at offset 15."
    assert refusal(b'{"prompt": "caf\xe9"}') == expected
    assert refusal('{"prompt": "a"}'.encode("utf-16")).startswith("The line must be UTF-8")
    with pytest.raises(UsageError, match="0xff at offset 0"):
        fields_of(line(b"\xff"), "text")


@pytest.mark.parametrize(
    "data", ["[" * 100_000, '{"a":' * 100_000, '{"prompt": "a", "stop": ' + "[" * 900 + "]" * 900 + "}"]
)
def test_a_line_that_is_nested_deeply_is_refused(data: str) -> None:
    assert refusal(data)


def test_a_message_about_a_long_value_is_short() -> None:
    for data in ({"prompt": "a", "x" * 10_000_000: 1}, {"prompt": "a", "temperature": "x" * 10_000_000}):
        assert len(refusal(json.dumps(data))) < 500
