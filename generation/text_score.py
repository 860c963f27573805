"""A whole text and its score: how it is cut and read, what each token came to, and what all of them do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .errors import ParameterError
from .model import Model
from .passage import Passage, check_ids
from .pieces import Piece, cut
from .ranges import Range
from .scoring import Pass, Score, Summary, passes, score, summarize


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a text is read: its tokens' shares of it, and the windows over it."""

    passage: Passage
    pieces: tuple[Piece, ...]  # one for each of the passage's own ids
    window: int | None  # tokens; None: everything is read at once
    stride: int | None  # how far the window moves
    passes: tuple[Pass, ...]  # one where everything fits

    def summary(self, scores: Sequence[Score]) -> Summary:
        """Give what the scores of all of the text's tokens come to, over all of its bytes."""
        return summarize(scores, sum(len(piece.raw) for piece in self.pieces))


def read(model: Model, passage: Passage, *, window: int | None = None, stride: int | None = None) -> Reading:
    """Lay windows of at most `window` tokens over a text: None is as many as the model can look at.

    Raises ParameterError for a window beyond the model's, a stride that leaves a token nothing before it, or an id that
    has no logit.
    """
    ids = [*passage.before, *passage.ids]
    check_ids(ids, model.vocab_size)
    if window is not None and model.window is not None:
        window = int(Range(int, 2, model.window).check("window", window))
    window = model.window if window is None else window
    stride = _stride(window, stride)
    return Reading(
        passage=passage,
        pieces=tuple(cut(model.tokenizer, passage.text, passage.ids)),
        window=window,
        stride=stride,
        passes=tuple(passes(len(passage.before), len(ids), window, stride)),
    )


def score_text(model: Model, reading: Reading) -> Iterator[list[Score]]:
    """Yield the scores of a text's own tokens, block by block, in order. Raises NumberError and OutOfMemory."""
    return score(model, [*reading.passage.before, *reading.passage.ids], reading.passes)


def _stride(window: int | None, stride: int | None) -> int | None:
    if window is None:
        if stride is not None:
            raise ParameterError("stride", stride, "left out: the model names no window, and none is given")
        return None
    return max(1, window // 2) if stride is None else int(Range(int, 1, max(1, window - 1)).check("stride", stride))
