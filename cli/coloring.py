"""Text by how its tokens came about: five levels from sure to unsure, in colours, in marks and in words.

Each level has a foreground of its own on a background of its own, so that it reads the same on dark and on light
screens. The backgrounds grow lighter from level to level and run from blue to yellow, the pair of hues that people with
any common kind of colour blindness tell apart (as in cividis, Nuñez et al. 2018); the last level is underlined as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from ..generation.trace import Draw, Output
from .escaping import shown
from .painting import Piece

if TYPE_CHECKING:
    from rich.text import Text

Measure = Literal["prob", "rank", "entropy", "surprisal"]
STYLES_OF_256 = (
    "color(231) on color(17)",
    "color(231) on color(24)",
    "color(16) on color(102)",
    "color(16) on color(179)",
    "bold underline color(16) on color(227)",
)
STYLES_OF_16 = (
    "bright_white on black",
    "bright_white on blue",
    "bright_white on magenta",
    "black on cyan",
    "underline black on white",  # not bold, which some terminals draw as bright black
)


class Scale(NamedTuple):
    """Where the levels of a measure begin, from sure to unsure."""

    title: str
    bounds: Sequence[float]  # of level 2 and on
    labels: Sequence[str]
    ends: tuple[str, str]  # what the first and the last level are called
    is_falling: bool = False  # True: a level holds the numbers below its bound, rather than those from it on


_BITS, _BIT_LABELS = (0.5, 2, 4, 6), ("below 0.5", "0.5+", "2+", "4+", "6+")
SCALES: dict[Measure, Scale] = {
    "prob": Scale(
        "prob",
        (0.9, 0.5, 0.1, 0.01),
        ("0.9+", "0.5+", "0.1+", "0.01+", "less"),
        ("likely", "rare"),
        is_falling=True,
    ),
    "rank": Scale("rank", (2, 4, 11, 51), ("1", "2-3", "4-10", "11-50", "51+"), ("favourite", "far down")),
    "entropy": Scale("entropy in bits", _BITS, _BIT_LABELS, ("sure", "unsure")),
    "surprisal": Scale("surprisal in bits", _BITS, _BIT_LABELS, ("expected", "surprising")),
}


def value_of(draw: Draw, measure: Measure) -> float:
    """Give what the model thought of a token: its raw probability, its rank, or bits."""
    if measure == "rank":
        return draw.rank
    if measure == "entropy":
        return draw.entropy
    return math.exp(draw.logprob) if measure == "prob" else draw.surprisal


def level_of(value: float, measure: Measure) -> int:
    """Give the level of a value, 0 (sure) to 4 (unsure)."""
    scale = SCALES[measure]
    return sum(value < bound if scale.is_falling else value >= bound for bound in scale.bounds)


class OwnTexts(Protocol):
    """What is asked about tokens whose text comes late."""

    def text(self, token_id: int) -> str | None: ...

    def is_special(self, token_id: int) -> bool: ...


class Coloring:
    """Gives the text of a run in pieces, each in the style of the token that it came from.

    Text that was held back comes with a later token and is shared out by the tokens' own texts. Where these do not make
    it up, as with the parts of one character, all of it takes the style of the token that released it.
    """

    def __init__(self, measure: Measure, styles: Sequence[str], texts: OwnTexts) -> None:
        self.measure, self.styles, self._texts = measure, styles, texts
        self.begin()

    def begin(self) -> None:
        """Start a text anew."""
        self._waiting: list[Piece] = []  # the own texts of tokens that have not been shown
        self._style = ""

    def pieces(self, output: Output) -> list[Piece]:
        """Give what a step made safe to show, with control characters made visible."""
        if output.draw is not None:
            self._style = self.styles[level_of(value_of(output.draw, self.measure), self.measure)]
            token_id = output.draw.token_id
            own = "" if self._texts.is_special(token_id) else self._texts.text(token_id) or ""
            self._waiting.append(Piece(own, self._style))
        return [Piece(shown(text), style) for text, style in self._shared(output.text) if text]

    def _shared(self, text: str) -> list[Piece]:
        parts, rest = [], text
        while rest and self._waiting:
            own, style = self._waiting.pop(0)
            length = min(len(own), len(rest))
            if own[:length] != rest[:length]:
                break
            parts.append(Piece(rest[:length], style))
            rest = rest[length:]
            if own[length:]:
                self._waiting.insert(0, Piece(own[length:], style))
        if not rest:
            return parts
        self._waiting = []
        return [Piece(text, self._style)]

    def legend(self, width: int) -> list[Text]:
        """Say what the colours mean, on as few lines as the width allows."""
        from rich.text import Text

        from .columns import filled

        blocks = [
            Text(f" {label} ", style=style)
            for label, style in zip(SCALES[self.measure].labels, self.styles, strict=True)
        ]
        title = [Text("colour by"), Text(f"{SCALES[self.measure].title}:")]
        first, last = map(Text, SCALES[self.measure].ends)
        return filled([*title, first, *blocks, last], width, between=" ")
