"""Words and bans: what texts mean in token ids, and what is then never drawn."""

import math
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import minigen.generation as f
import pytest
import torch
from hypothesis import given, settings, strategies as st
from minigen.generation.errors import NumberError, ParameterError
from minigen.generation.model import Model
from minigen.generation.params import SamplingParams
from minigen.generation.sampler import Sampler
from minigen.generation.words import MAX_BREAKER, MAX_TAIL, Words, bad_word_ids, find_breakers, words_for
from stubs import byte_tokenizer, sentencepiece_tokenizer, wordpiece_tokenizer
from transformers.generation import logits_process as hf

INF = math.inf


def kept(row: torch.Tensor) -> list[int]:
    return [i for i, value in enumerate(row.tolist()) if value > -INF]


def test_allowed_ids_leave_no_other() -> None:
    row = torch.zeros(2, 5)
    assert [kept(each) for each in f.apply_allowed_token_ids(row, [3, 1, 3])] == [[1, 3], [1, 3]]
    assert f.apply_allowed_token_ids(row, []) is row
    assert f.apply_allowed_token_ids(row, None) is row
    with pytest.raises(ParameterError, match=r"^allowed_token_ids must be token ids from 0 to 4, not 5\.$"):
        f.apply_allowed_token_ids(row, [5])


@pytest.mark.parametrize(
    ("output", "left"),
    [([], [0, 2, 3, 4]), ([2], [0, 2, 4]), ([3, 2], [0, 2]), ([2, 3], [0, 2, 3, 4]), ([1, 3, 2], [0, 2])],
)
def test_a_bad_word_s_last_token_is_dropped_where_the_others_stand(output: list[int], left: list[int]) -> None:
    words = [(1,), (2, 3), (3, 2, 4)]
    assert kept(f.apply_bad_words(torch.zeros(5), output, words)) == left


def test_a_word_past_the_vocabulary_is_none_that_could_be_drawn() -> None:
    row = torch.zeros(4)
    assert f.apply_bad_words(row, [1], [(9,), (1, 9)]) is row
    assert f.apply_min_new_tokens(row, 0, 3, [9]) is row


@pytest.mark.parametrize("seed", range(5))
def test_bad_words_equal_transformers_own(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    words = [torch.randint(0, 6, (1 + i % 4,), generator=generator).tolist() for i in range(12)]
    words += [[40], [41, 42]]
    for length in (1, 2, 3, 20):
        ids = torch.randint(0, 6, (1, length), generator=generator)
        rows = torch.randn(1, 50, generator=generator)
        expected = hf.NoBadWordsLogitsProcessor(words)(ids, rows.clone())
        assert torch.equal(f.apply_bad_words(rows, ids[0].tolist(), words), expected)


@pytest.mark.parametrize("num_new", [0, 2, 3, 4])
def test_min_new_tokens_equals_transformers_own(num_new: int) -> None:
    rows = torch.randn(3, 50, generator=torch.Generator().manual_seed(0))
    ids = torch.zeros(3, 7 + num_new, dtype=torch.long)
    expected = hf.MinNewTokensLengthLogitsProcessor(7, 3, [4, 9])(ids, rows.clone())
    assert torch.equal(f.apply_min_new_tokens(rows, num_new, 3, [4, 9]), expected)


def test_neutral_bans_change_nothing_bit_for_bit() -> None:
    row = torch.zeros(4)
    assert f.apply_bad_words(row, [1], None) is row
    assert f.apply_bad_words(row, [1], []) is row
    assert f.apply_min_new_tokens(row, 0, None, [1]) is row
    assert f.apply_min_new_tokens(row, 5, 5, [1]) is row


def test_a_bad_word_is_looked_up_with_and_without_a_space() -> None:
    tokenizer = byte_tokenizer(["cat", " cat", " catalog"])
    cat, spaced, catalog = range(258, 261)
    assert bad_word_ids(tokenizer, ["cat"]) == ((cat,), (spaced,))
    assert bad_word_ids(tokenizer, ["  cat"]) == ((cat,), (spaced,))
    assert bad_word_ids(tokenizer, ["catalog"]) == ((cat, *b"alog"), (catalog,)), "of different lengths, both"
    assert bad_word_ids(tokenizer, ["\n"]) == ((10,), (32, 10))
    assert bad_word_ids(tokenizer, [" "]) == ((32,),)
    assert bad_word_ids(tokenizer, ["<|end|>"])[0] == (257,)


def test_a_bad_word_in_other_kinds_of_vocabularies() -> None:
    sentences, words = sentencepiece_tokenizer(), wordpiece_tokenizer()
    bare = sentences.convert_tokens_to_ids([*"ab"])
    mark = sentences.convert_tokens_to_ids("▁")
    assert bad_word_ids(sentences, ["ab"]) == ((mark, *bare), (*bare,), (mark, mark, *bare)), "it writes a space itself"
    assert bad_word_ids(words, ["hello"]) == ((words.convert_tokens_to_ids("hello"),),)


@pytest.mark.parametrize("word", ["\n", "zzz", "\ud800"])
def test_a_bad_word_without_tokens_is_refused(word: str) -> None:
    with pytest.raises(ParameterError, match=r"^bad_words must be texts that the tokenizer has tokens for, not "):
        bad_word_ids(wordpiece_tokenizer(), [word])


def test_every_token_that_holds_a_breaker_is_one() -> None:
    tokenizer = byte_tokenizer([": ", "x\n\n", "fine"])
    assert find_breakers(tokenizer, ["\n", ":"]) == {10: ((),), 58: ((),), 258: ((),), 259: ((),)}
    assert find_breakers(tokenizer, []) == {}


def test_a_token_may_begin_a_breaker_that_others_finish() -> None:
    tokenizer = byte_tokenizer(["x#", "##", "a###b"])
    hash_, x, two, whole = 35, 258, 259, 260
    found = find_breakers(tokenizer, ["###"])
    assert found[whole] == ((),)
    assert set(found[x]) == {(two,)}
    assert set(found[two]) == {(two,), (hash_,)}
    assert set(found[hash_]) == {(two,)}
    context = [1, 2, two, hash_, 1, 2]
    broken = f.apply_dry(torch.zeros(300), context, 1.0, breakers=found)
    assert broken[two] == -1.0, "the repetition is as long as what follows the breaker"
    assert torch.equal(f.apply_dry(torch.zeros(300), [1, 2, 3, two, hash_, 2], 1.0, breakers=found), torch.zeros(300))


def test_a_breaker_in_no_token_is_its_own_ids() -> None:
    tokenizer = byte_tokenizer()
    assert find_breakers(tokenizer, ["。"]) == {0xE3: ((0x80, 0x82),)}
    assert find_breakers(wordpiece_tokenizer(), ["\n", "語", "\ud800"]) == {}


def test_byte_tokens_and_marks_are_read_as_what_they_say() -> None:
    tokenizer = sentencepiece_tokenizer()
    assert find_breakers(tokenizer, ["\n"]) == {tokenizer.convert_tokens_to_ids("<0x0A>"): ((),)}
    assert tokenizer.convert_tokens_to_ids("!") in find_breakers(tokenizer, ["!"])
    assert set(find_breakers(tokenizer, [" w"])) == set(tokenizer.convert_tokens_to_ids(["▁world", "▁", "<0x20>"]))
    words = wordpiece_tokenizer()
    assert set(find_breakers(words, [" h"])) == set(words.convert_tokens_to_ids(["hello", "h"]))


def test_a_long_breaker_is_cut() -> None:
    tails = find_breakers(byte_tokenizer(), ["a" + "b" * 100])[ord("a")]
    assert max(map(len, tails)) == min(MAX_TAIL, MAX_BREAKER - 1)


def test_a_tokenizer_of_decode_alone_will_do() -> None:
    plain = byte_tokenizer()
    duck = SimpleNamespace(decode=lambda ids: "\ufffd" if ids[0] > 127 else chr(ids[0]), encode=plain.encode)

    class Duck:
        def __len__(self) -> int:
            return 200

        def __getattr__(self, name: str) -> Any:
            return getattr(duck, name)

    assert find_breakers(Duck(), [":"]) == {58: ((),)}


def test_the_vocabulary_is_searched_only_for_dry() -> None:
    class Blind:
        def encode(self, text: str, add_special_tokens: bool) -> list[int]:
            raise AssertionError("asked")

    assert words_for(SamplingParams(), Blind(), [2, 1, 2]) == Words(end_token_ids=(2, 1))
    with pytest.raises(AssertionError):
        words_for(SamplingParams(dry_multiplier=1), Blind())


@pytest.mark.parametrize(
    "params",
    [{"bad_words": "x"}, {"min_new_tokens": 2}, {"dry_multiplier": 0.8}],
    ids=lambda params: next(iter(params)),
)
def test_a_sampler_says_which_setting_needs_words(params: dict[str, Any]) -> None:
    name = "dry_sequence_breakers" if "dry_multiplier" in params else next(iter(params))
    with pytest.raises(ParameterError, match=rf"^{name} must be given together with `words`"):
        Sampler(SamplingParams(**params))
    Sampler(SamplingParams(**params), words=Words())
    Sampler(SamplingParams(dry_multiplier=0.8, dry_sequence_breakers=[]))


def test_an_end_token_waits_for_the_smallest_number_of_tokens() -> None:
    row = torch.tensor([0.0, 1.0, 5.0])
    params = SamplingParams(temperature=0, min_new_tokens=2)
    sampler = Sampler(params, words=Words(end_token_ids=[2]))
    assert [sampler.draw(row).token_id for _ in range(4)] == [1, 1, 2, 2]


def test_bans_that_leave_nothing_name_those_that_did_it() -> None:
    params = SamplingParams(
        allowed_token_ids=[1, 2], bad_words="x", repetition_penalty=1.5, min_new_tokens=1, logit_bias={0: 1.0}
    )
    words = Words(bad_word_ids=[(1,)], end_token_ids=[2])
    message = "^allowed_token_ids and bad_words and min_new_tokens ban every token at token 1"
    with pytest.raises(NumberError, match=message):
        Sampler(params, words=words).draw(torch.zeros(4))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=3), max_size=4),
    st.lists(st.integers(0, 7), max_size=6),
    st.integers(0, 5),
    st.sampled_from([{}, {"temperature": 0}, {"xtc_probability": 1.0}, {"mirostat_tau": 3.0}, {"top_n_sigma": 1.0}]),
)
def test_a_banned_token_is_never_drawn(
    bad: list[list[int]], allowed: list[int], minimum: int, others: dict[str, Any]
) -> None:
    params = SamplingParams(bad_words="x", allowed_token_ids=allowed, min_new_tokens=minimum, seed=3, **others)
    sampler = Sampler(params, words=Words(bad_word_ids=bad, end_token_ids=[6]))
    generator = torch.Generator().manual_seed(1)
    with suppress(NumberError):  # where nothing is left to draw
        for _ in range(20):
            sampler.draw(torch.randn(8, generator=generator) * 3)
    ids = sampler.output_ids
    assert not allowed or set(ids) <= set(allowed)
    assert 6 not in ids[:minimum]
    for word in bad:
        assert not any(ids[start : start + len(word)] == word for start in range(len(ids)))


@pytest.mark.real_model
def test_the_default_vocabulary_has_its_words(default_model: Model) -> None:
    tokenizer = default_model.tokenizer
    words = bad_word_ids(tokenizer, ["Hogwarts"])
    assert {tokenizer.decode(ids) for ids in words} == {"Hogwarts", " Hogwarts"}
    found = find_breakers(tokenizer, SamplingParams().dry_sequence_breakers)
    for token_id, tails in found.items():
        assert any(breaker in tokenizer.decode([token_id]) for breaker in ("\n", ":", '"', "*"))
        assert tails == ((),)
    others = [i for i in range(0, len(tokenizer), 37) if i not in found]
    assert not any(set(tokenizer.decode([token_id])) & set('\n:"*') for token_id in others)
