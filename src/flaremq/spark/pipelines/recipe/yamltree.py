"""A YAML file with the line of every node, so that errors can name it.

All values are texts, as written: 08:30 does not become a number, nor `no` false. Environment variables are
substituted after the file has been parsed, so their values are never read as YAML.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import yaml

from flaremq.base.errors import ConfigError

_VARIABLE: Final = re.compile(r"\$(\$)?\{([^{}]*)\}")
_NAME: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:(:-)(.*))?", re.DOTALL)
_DEPTH_MAX: Final = 20
_SECRET_MIN: Final = 3
"""Shorter values are not hidden in messages: they would match everywhere."""


@dataclass(frozen=True, slots=True)
class YamlText:
    """A value, and how to show it: with the names of variables instead of their values."""

    value: str
    shown: str


@dataclass(frozen=True, slots=True)
class Node:
    """Part of a file: a text, a mapping or a list; an empty value has none of the three."""

    path: str
    """For example sources.orders.topic; empty for the whole file."""
    line: int
    text: YamlText | None = None
    fields: Mapping[str, Node] | None = None
    items: tuple[Node, ...] | None = None


@dataclass(slots=True)
class Tree:
    """One file."""

    file: Path
    environment: Mapping[str, str]
    used: dict[str, str] = field(default_factory=dict)
    """Variables that were substituted, and their values."""

    def load(self) -> Node:
        """Raises ConfigError, with the line."""
        try:
            content = self.file.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise ConfigError(f"{self.file} does not exist: expected the path of a YAML file") from None
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read {self.file}: {error}") from None
        return self.parse(content)

    def parse(self, content: str) -> Node:
        try:
            root = yaml.compose(content, Loader=yaml.SafeLoader)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            what = getattr(error, "problem", None) or str(error).partition("\n")[0]
            line = mark.line + 1 if mark is not None else 1
            raise ConfigError(f"{self.file.name}:{line}: not valid YAML: {what}") from None
        if not isinstance(root, yaml.MappingNode):
            raise ConfigError(f"{self.file.name}:1: expected a mapping with sources, steps and sinks")
        return self._node(root, "", 0)

    def wrong(self, node: Node, what: str) -> ConfigError:
        """The error for a node, with its file, line and path."""
        path = f"{node.path}: " if node.path else ""
        return ConfigError(f"{self.file.name}:{node.line}: {path}{self.hidden(what)}")

    def hidden(self, message: str) -> str:
        """A message with values of variables replaced by their names: they may be passwords."""
        for name, value in sorted(self.used.items(), key=lambda each: -len(each[1])):
            if len(value) >= _SECRET_MIN:
                message = message.replace(value, f"${{{name}}}")
        return message

    def _node(self, node: Any, path: str, depth: int) -> Node:
        line = node.start_mark.line + 1
        if depth > _DEPTH_MAX:
            raise self.wrong(Node(path, line), f"is nested more than {_DEPTH_MAX} deep, or contains itself")
        if isinstance(node, yaml.MappingNode):
            return Node(path, line, fields=self._fields(node, path, depth))
        if isinstance(node, yaml.SequenceNode):
            items = (self._node(each, f"{path}[{at}]", depth + 1) for at, each in enumerate(node.value))
            return Node(path, line, items=tuple(items))
        if node.tag == "tag:yaml.org,2002:null":
            return Node(path, line)
        return Node(path, line, text=self._text(Node(path, line), node.value))

    def _fields(self, node: yaml.MappingNode, path: str, depth: int) -> dict[str, Node]:
        found: dict[str, Node] = {}
        merged: dict[str, Node] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise self.wrong(Node(path, line), "expected a word as key")
            if key.tag == "tag:yaml.org,2002:merge":
                for each in self._merged(value):
                    merged |= {
                        k: v for k, v in self._fields(each, path, depth + 1).items() if k not in merged
                    }
                continue
            name = str(key.value)
            below = f"{path}.{name}" if path else name
            if name in found:
                raise self.wrong(Node(below, line), f"is a duplicate of line {found[name].line}")
            child = self._node(value, below, depth + 1)
            # A mapping begins in the line after its key, but errors should name the line of the key.
            found[name] = Node(below, line, child.text, child.fields, child.items)
        return {**merged, **found}

    def _merged(self, value: Any) -> Iterator[yaml.MappingNode]:
        for each in value.value if isinstance(value, yaml.SequenceNode) else [value]:
            if not isinstance(each, yaml.MappingNode):
                raise self.wrong(
                    Node("<<", each.start_mark.line + 1), "expected a mapping, for example <<: *name"
                )
            yield each

    def _text(self, node: Node, raw: str) -> YamlText:
        def put_in(match: re.Match[str]) -> str:
            if match[1]:
                return f"${{{match[2]}}}"
            said = _NAME.fullmatch(match[2])
            if said is None:
                raise self.wrong(
                    node, f"{match[0]} is not a variable: expected ${{NAME}} or ${{NAME:-default}}"
                )
            value = self.environment.get(said[1])
            if value:
                self.used[said[1]] = value
                return value
            if said[2]:
                return said[3]
            raise self.wrong(
                node,
                f"the variable {said[1]} is not set: set it, or give a default with ${{{said[1]}:-default}}",
            )

        return YamlText(_VARIABLE.sub(put_in, raw), raw)


def near(name: str, names: Iterable[str]) -> str:
    """The end of a message about an unknown name: a suggestion, or all names."""
    by_fold = {each.casefold(): each for each in names}
    found = get_close_matches(name.casefold(), by_fold, 1, 0.6)
    return (
        f"did you mean {by_fold[found[0]]}?"
        if found
        else f"expected one of {', '.join(by_fold.values())}"
        if by_fold
        else "there are none"
    )
