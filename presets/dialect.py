"""The YAML that presets are written in: plain data, with numbers as people write them.

It is YAML 1.1's safe subset with three repairs: `1e-5` is a number, dates and `1:30` are text, and `010` is
text rather than an octal eight. No tag builds an object, and nesting has a bound.
"""

import re

import yaml

MAX_DEPTH = 20
_TAG = "tag:yaml.org,2002:"
_DIGITS = r"[0-9][0-9_]*"
_EXPONENT = r"[eE][-+]?[0-9]+"
_WORDS = {
    "bool": (r"yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF", "yYnNtTfFoO"),
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "int": (r"[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)", "-+0123456789"),
    "float": (
        rf"[-+]?(?:{_DIGITS}\.[0-9_]*(?:{_EXPONENT})?|\.{_DIGITS}(?:{_EXPONENT})?|{_DIGITS}{_EXPONENT}"
        r"|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
    "merge": (r"<<", "<"),
}


class TooDeep(yaml.YAMLError):
    """Nesting past MAX_DEPTH."""


class PresetLoader(yaml.SafeLoader):
    """Composes nodes only; building values from them is reading.py's work."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 -- PyYAML's own registry, filled below
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooDeep
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


for _name, (_pattern, _first) in _WORDS.items():
    PresetLoader.add_implicit_resolver(_TAG + _name, re.compile(rf"(?:{_pattern})\Z"), list(_first))


def kind_of(node: yaml.Node) -> str | None:
    """Give "str", "int", "map" and the like for plain data, None for any other tag."""
    kind = node.tag.removeprefix(_TAG)
    return kind if kind in {*_WORDS, "str", "seq", "map"} else None


def scalar_of(kind: str, text: str) -> str | int | float | bool | None:
    """Turn a scalar's text into its value; raise ValueError where the text is not one."""
    if kind == "null":
        return None
    if kind == "bool":
        if not re.fullmatch(_WORDS["bool"][0], text):
            raise ValueError(text)
        return text.lower() in {"yes", "true", "on"}
    plain = text.replace("_", "").lower()
    if kind == "int":
        return int(plain, 16 if "0x" in plain else 10)
    if kind == "float":
        return float(plain.replace(".inf", "inf").replace(".nan", "nan"))
    return _whole_characters(text)


def _whole_characters(text: str) -> str:
    r"""Join the halves of a character escaped as "\ud83d\ude00"; half of one raises ValueError."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16")
