"""Text on a terminal: what could steer it is shown in visible form instead of being sent."""

from typing import Final

_KEPT = "\n\t"
_STEERING: Final = [
    *range(0x20),  # C0
    *range(0x7F, 0xA0),  # DEL and C1
    *range(0x2028, 0x202F),  # line and paragraph separators, bidirectional overrides
    *range(0x2066, 0x206A),  # bidirectional isolates
    *range(0xD800, 0xE000),  # half of a surrogate pair
    0xFFFE,  # no characters, and not allowed in XML
    0xFFFF,
]
_UNSTEADY: Final = [
    0xAD,
    *range(0x200B, 0x2010),  # zero-width spaces and joiners, direction marks
    *range(0x2060, 0x2066),
    0xFEFF,
    *range(0xFE00, 0xFE10),  # variation selectors
    *range(0x1F1E6, 0x1F200),  # regional indicators: two make a flag
    *range(0x1F3FB, 0x1F400),  # skin tones
    *range(0xE0000, 0xE0080),  # tags
]


def _escape(code: int) -> str:
    named = {0x0A: r"\n", 0x09: r"\t", 0x0D: r"\r"}
    if code in named:
        return named[code]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_FOR_TEXT = {code: _escape(code) for code in _STEERING if chr(code) not in _KEPT}
_FOR_CELL = {code: _escape(code) for code in [*_STEERING, *_UNSTEADY]}


def shown(text: str) -> str:
    """Give `text` with control and bidirectional characters made visible; newlines and tabs stay."""
    return text.translate(_FOR_TEXT)


def shown_in_cell(text: str) -> str:
    """Give `text` on one line, with characters whose width terminals disagree about made visible too."""
    return text.translate(_FOR_CELL)


def quoted(text: str) -> str:
    """Give `text` on one line in double quotes; those within have a backslash before them."""
    return '"' + shown_in_cell(text).replace('"', '\\"') + '"'
