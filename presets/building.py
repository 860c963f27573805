"""From YAML nodes to plain data: aliases, merge keys, duplicate keys, and where each value stands."""

from typing import Any

import yaml

from ..generation.errors import PresetError
from .dialect import MAX_DEPTH, kind_of, scalar_of

MAX_VALUES = 100_000  # after aliases are followed, which is what an alias bomb multiplies
MAX_NUMBER_LENGTH = 100
KeyPath = tuple[str | int, ...]
Pairs = dict[str | int, tuple[yaml.Node, yaml.Node]]


class Builder:
    """Builds values from nodes, follows aliases and merge keys, and notes where each value stands."""

    def __init__(self, label: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self.words: dict[KeyPath, str] = {}
        self._label = label
        self._num_values = 0

    def build(self, node: yaml.Node, path: KeyPath) -> Any:
        """Give the node's value; `path` is where it stands."""
        self._count(node)
        if len(path) > MAX_DEPTH:
            raise self._error(node, f"nesting goes deeper than {MAX_DEPTH} levels")
        if kind_of(node) is None:
            tag = node.tag.replace("tag:yaml.org,2002:", "!!")[:80]
            raise self._error(node, f"the tag {tag} is not allowed; a preset holds plain data only")
        self.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*path, i)) for i, item in enumerate(node.value)]
        value = self._scalar(node)
        if not isinstance(value, str):
            self.words[path] = node.value
        return value

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str | int, Any]:
        data: dict[str | int, Any] = {}
        for key, (key_node, value_node) in self._pairs(node, path, 0).items():
            self.lines[*path, key] = key_node.start_mark.line + 1
            data[key] = self.build(value_node, (*path, key))
        return data

    def _pairs(self, node: yaml.MappingNode, path: KeyPath, depth: int) -> Pairs:
        """Give a mapping's own pairs over those that its merge key `<<` brings in."""
        if depth > MAX_DEPTH:
            raise self._error(node, "a merge key << leads back to itself")
        own: Pairs = {}
        merged: Pairs = {}
        merge_node: yaml.Node | None = None
        for key_node, value_node in node.value:
            self._count(key_node)
            if kind_of(key_node) == "merge":
                if merge_node is not None:
                    raise self._twice((*path, "<<"), merge_node, key_node)
                merge_node = key_node
                merged = self._merged(value_node, path, depth + 1)
                continue
            key = self._key(key_node)
            if key in own:
                raise self._twice((*path, key), own[key][0], key_node)
            own[key] = key_node, value_node
        return {**merged, **own}

    def _merged(self, node: yaml.Node, path: KeyPath, depth: int) -> Pairs:
        parents = node.value if isinstance(node, yaml.SequenceNode) else [node]
        pairs: Pairs = {}
        for parent in parents:
            self._count(parent)
            if not isinstance(parent, yaml.MappingNode):
                raise self._error(parent, "a merge key << takes a mapping or a list of mappings")
            pairs = {**self._pairs(parent, path, depth), **pairs}  # the first that has a key wins
        return pairs

    def _key(self, node: yaml.Node) -> str | int:
        value = self._scalar(node) if isinstance(node, yaml.ScalarNode) and kind_of(node) else None
        if isinstance(value, bool):
            meant = "true" if value else "false"
            raise self._error(
                node, f'the key {node.value} is read by YAML as {meant}; put it in quotes: "{node.value}"'
            )
        if not isinstance(value, str | int):
            raise self._error(node, "a key must be a name or a token id")
        return value

    def _scalar(self, node: yaml.Node) -> str | int | float | bool | None:
        kind = kind_of(node) or "str"
        if kind in {"int", "float"} and len(node.value) > MAX_NUMBER_LENGTH:
            raise self._error(node, f"a number has at most {MAX_NUMBER_LENGTH} characters")
        try:
            return scalar_of(kind, node.value)
        except (ValueError, OverflowError):
            wanted = {"str": "text of whole characters", "int": "a whole number", "float": "a number"}
            raise self._error(node, f"{node.value[:40]!r} is not {wanted.get(kind, kind)}") from None

    def _count(self, node: yaml.Node) -> None:
        self._num_values += 1
        if self._num_values > MAX_VALUES:
            raise self._error(node, f"the file holds more than {MAX_VALUES:,} values, aliases followed")

    def _twice(self, path: KeyPath, first: yaml.Node, second: yaml.Node) -> PresetError:
        lines = first.start_mark.line + 1, second.start_mark.line + 1
        key = dotted(path)
        return self._error(second, f"{key} is given twice, on line {lines[0]} and on line {lines[1]}; keep one")

    def _error(self, node: yaml.Node, problem: str) -> PresetError:
        return PresetError(f"{self._label}:{node.start_mark.line + 1}: {problem}.")


def dotted(path: KeyPath) -> str:
    """Write a key path as people do: `model.source[0].sha256`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part[:60]}" for part in path)
    return text.removeprefix(".")
