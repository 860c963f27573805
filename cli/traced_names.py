"""What the tokens of a trace are called: it has the texts of those that came near to being chosen, and no tokenizer."""

from __future__ import annotations

from .token_names import named, unnamed
from .trace_file import Trace


class TracedNames:
    """Names tokens by what a trace says of them."""

    def __init__(self, trace: Trace) -> None:
        self._texts = trace.texts
        tokens = (token for sample in trace.samples for token in sample.tokens)
        self._special = {token["id"] for token in tokens if token["special"]} | set(trace.header.end_token_ids)

    def text(self, token_id: int) -> str | None:
        """Give a token's own text, or None where the trace does not name it."""
        return self._texts.get(token_id)

    def is_special(self, token_id: int) -> bool:
        """Whether a token steers the model rather than being text."""
        return token_id in self._special

    def label(self, token_id: int) -> str:
        """Give a token on one line: text in quotes, with what cannot be seen made visible."""
        text = self.text(token_id)
        return unnamed(token_id) if text is None else named(text, is_special=self.is_special(token_id))
