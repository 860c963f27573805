"""What settings that are texts mean in a tokenizer's ids: what a sampler has to know besides its settings."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .errors import ParameterError
from .params import SamplingParams

MAX_BREAKER = 40  # characters of a sequence breaker that count; this and the next are llama.cpp's
MAX_TAIL = 20  # tokens that finish a breaker which another token begins

Breakers = Mapping[int, Sequence[Sequence[int]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """Token ids that settings stand for."""

    end_token_ids: Sequence[int] = ()  # those that min_new_tokens holds back
    bad_word_ids: Sequence[Sequence[int]] = ()  # each way of writing a bad word
    breakers: Breakers = field(default_factory=dict)  # a breaker's first id, then what may finish it; () where it does
    newline_ids: Sequence[int] = ()  # a line break's, which mlx-lm's XTC spares


NO_WORDS = Words()


def words_for(params: SamplingParams, tokenizer: Any, end_token_ids: Sequence[int] = ()) -> Words:
    """Look up what `params` needs of a tokenizer; `end_token_ids` are all that end a text, ignored or not.

    The vocabulary is searched only where DRY is on. Raises ParameterError for a bad word that has no tokens.
    """
    has_dry = params.dry_multiplier > 0
    return Words(
        end_token_ids=tuple(dict.fromkeys(end_token_ids)),
        bad_word_ids=bad_word_ids(tokenizer, params.bad_words),
        breakers=find_breakers(tokenizer, params.dry_sequence_breakers) if has_dry else {},
        newline_ids=_known_ids(tokenizer, "\n") if params.order == "mlx" and params.xtc_probability > 0 else (),
    )


def check_words(params: SamplingParams) -> None:
    """Raise ParameterError for settings that mean nothing without a tokenizer's words."""
    needing = {
        "bad_words": bool(params.bad_words),
        "min_new_tokens": params.min_new_tokens > 0,
        "dry_sequence_breakers": params.dry_multiplier > 0 and bool(params.dry_sequence_breakers),
    }
    for name, is_needing in needing.items():
        if is_needing:
            wanted = "given together with `words`, the tokenizer's ids for it, which words_for looks up"
            raise ParameterError(name, getattr(params, name), wanted)


def bad_word_ids(tokenizer: Any, words: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Give the ids of each word, with and without a space before it; a word of nothing but spaces as it is.

    Both count even where they differ in length. Source: vLLM, which leaves out the one with a space there.
    """
    found: dict[tuple[int, ...], None] = {}
    for word in words:
        bare = word.lstrip(" ")
        spellings = [ids for text in ((bare, f" {bare}") if bare else (word,)) for ids in _spellings(tokenizer, text)]
        if not spellings:
            raise ParameterError("bad_words", word, "texts that the tokenizer has tokens for")
        found |= dict.fromkeys(spellings)
    return tuple(found)


def find_breakers(tokenizer: Any, texts: Sequence[str]) -> dict[int, tuple[tuple[int, ...], ...]]:
    """Give every token with which a breaker may begin, and the ids that then finish it.

    A token that holds a whole breaker is one by itself, with () to finish it. One that ends like the beginning of a
    breaker needs the rest of it after it. A breaker in no token, such as a rare character, is its own ids.
    Source: llama.cpp's DRY, after KoboldCpp.
    """
    found: dict[int, dict[tuple[int, ...], None]] = {}
    pieces = _pieces(tokenizer) if texts else []
    for text in texts:
        short = text[:MAX_BREAKER]
        for head, *tail in list(_beginnings(tokenizer, short, pieces)) or _spellings(tokenizer, short):
            found.setdefault(head, {})[tuple(tail)] = None
    return {head: tuple(tails) for head, tails in found.items()}


def _beginnings(tokenizer: Any, text: str, pieces: Sequence[str]) -> Iterator[tuple[int, ...]]:
    """Yield the id sequences of a breaker, by the token that they begin with."""
    starts = tuple(text[:length] for length in range(1, len(text)))
    tails = {start: _spellings(tokenizer, text[len(start) :]) for start in starts}
    for token_id, piece in enumerate(pieces):
        if text in piece:
            yield (token_id,)
        elif starts and piece.endswith(starts):
            begun = (start for start in starts if piece.endswith(start))
            yield from ((token_id, *tail[:MAX_TAIL]) for start in begun for tail in tails[start])


def _pieces(tokenizer: Any) -> Sequence[str]:
    """Give the text that each token adds after a letter, as some write their space only there; special ones by name."""
    letter = _known_ids(tokenizer, "a")[-1:]
    rows = [[*letter, token_id] for token_id in range(len(tokenizer))]
    core = getattr(tokenizer, "backend_tokenizer", None)
    if core is None:
        texts = [tokenizer.decode(row) for row in rows]
    else:
        texts = core.decode_batch(rows, skip_special_tokens=False)
    return [text.removeprefix("a") for text in texts] if letter else texts


def _spellings(tokenizer: Any, text: str) -> list[tuple[int, ...]]:
    """Give a text's ids at the beginning and within a line, where some tokenizers write no space of their own."""
    line, whole = _known_ids(tokenizer, "\n"), _known_ids(tokenizer, f"\n{text}")
    within = whole[len(line) :] if whole[: len(line)] == line else ()
    return [ids for ids in dict.fromkeys((_known_ids(tokenizer, text), within)) if ids]


def _known_ids(tokenizer: Any, text: str) -> tuple[int, ...]:
    """Give a text's ids, or none where a part of it is unknown to the tokenizer or half a character."""
    if any("\ud800" <= char <= "\udfff" for char in text):
        return ()
    ids = tuple(int(token_id) for token_id in tokenizer.encode(text, add_special_tokens=False))
    is_unknown = getattr(tokenizer, "unk_token_id", None) in ids and tokenizer.unk_token not in text
    return () if is_unknown else ids
