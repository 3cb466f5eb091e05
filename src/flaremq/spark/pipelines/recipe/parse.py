"""YAML into a recipe. Every error names the file, the line and the key, and suggests what was meant."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from flaremq.base.errors import ConfigError, FlareError
from flaremq.base.units import parse_span_ms
from flaremq.spark.launch.plan import SessionPlan
from flaremq.spark.pipelines.recipe.model import Recipe, SinkSpec, SourceSpec, StepSpec, Trigger
from flaremq.spark.pipelines.recipe.sqlnames import named_views
from flaremq.spark.pipelines.recipe.yamltree import Node, Tree, YamlText, near

_KEYS: Final = ("name", "stream", "sources", "steps", "sinks", "trigger", "checkpoint", "spark")
_TRIGGERS: Final = ("once", "available-now", "every")
_VIEW: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FUNCTION: Final = re.compile(r"(?P<module>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*):(?P<name>[A-Za-z_]\w*)")
_ELSEWHERE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
"""A path that begins like this is a URL, and is left as it is."""
_WORDS: Final = {"true": True, "false": False}


def parse_recipe(tree: Tree) -> Recipe:
    """The recipe in a file. Raises ConfigError with the line."""
    return _Reading(tree).recipe(tree.load())


class _Reading:
    """Turns nodes into a recipe."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._wrong = tree.wrong

    def recipe(self, root: Node) -> Recipe:
        fields = self._mapping(root)
        self._known(fields, _KEYS)
        for name in ("sources", "sinks"):
            if name not in fields:
                raise self._wrong(
                    root, f"{name} is missing: a pipeline needs sources and sinks; steps are optional"
                )
        trigger = self._trigger(fields["trigger"]) if "trigger" in fields else Trigger()
        stream = self._flag(fields["stream"]) if "stream" in fields else "trigger" in fields
        sources = tuple(
            self._source(name, node, stream) for name, node in self._named(fields["sources"]).items()
        )
        views = [source.name for source in sources]
        found = Recipe(
            tree=self._tree,
            name=self._name(fields),
            sources=sources,
            steps=self._steps(fields["steps"], views) if "steps" in fields else (),
            sinks=tuple(self._sink(n, node, views) for n, node in self._named(fields["sinks"]).items()),
            trigger=trigger,
            checkpoint=self._checkpoint(fields),
            spark=self._settings(fields["spark"]) if "spark" in fields else {},
        )
        self._check_kind(found, fields)
        return found

    def _check_kind(self, found: Recipe, fields: Mapping[str, Node]) -> None:
        if found.is_streaming:
            return
        for name in ("trigger", "checkpoint"):
            if name in fields:
                raise self._wrong(
                    fields[name], "is for streams, but no source is a stream: remove it, or set stream: true"
                )
        if "stream" in fields and self._flag(fields["stream"]):
            raise self._wrong(
                fields["stream"], "no source can be a stream: expected one with format rocketmq"
            )

    def _name(self, fields: Mapping[str, Node]) -> str:
        if "name" not in fields:
            return self._tree.file.stem
        found = self._text(fields["name"])
        if not re.fullmatch(r"[\w.-]+", found) or found in (".", ".."):
            raise self._wrong(
                fields["name"],
                f"{found!r} is also the name of a folder: expected letters, digits, -, _ and .",
            )
        return found

    def _checkpoint(self, fields: Mapping[str, Node]) -> str:
        if "checkpoint" in fields:
            return self._place(self._text(fields["checkpoint"]))
        return self._place(f".flaremq/{self._name(fields)}")

    def _source(self, name: str, node: Node, stream: bool) -> SourceSpec:
        fields = dict(self._mapping(node))
        format_name = self._required(node, fields, "format")
        said = fields.pop("stream", None)
        schema = fields.pop("schema", None)
        streams = stream and format_name == "rocketmq" if said is None else self._flag(said)
        text = None if schema is None else self._text(schema)
        return SourceSpec(name, format_name, streams, self._options(fields), text, node)

    def _steps(self, node: Node, views: list[str]) -> tuple[StepSpec, ...]:
        steps = self._named(node)
        found = []
        for name, each in steps.items():
            if name in views:
                raise self._wrong(each, f"{name} is the name of a source: give the step another name")
            later = [other for other in steps if other not in views]
            found.append(self._step(name, each, views, later))
            views.append(name)
        return tuple(found)

    def _step(self, name: str, node: Node, views: Sequence[str], later: Sequence[str]) -> StepSpec:
        fields = self._mapping(node)
        self._known(fields, ("sql", "python", "inputs"))
        if ("sql" in fields) == ("python" in fields):
            raise self._wrong(
                node,
                'expected either sql or python, for example {sql: "select * from orders where tags = '
                "'paid'\"}",
            )
        if "sql" in fields:
            if "inputs" in fields:
                raise self._wrong(
                    fields["inputs"], "is only for python, because sql names its views: remove it"
                )
            return self._sql_step(name, fields["sql"], node, (views, later))
        said = fields["python"]
        python = self._text(said)
        if not _FUNCTION.fullmatch(python):
            raise self._wrong(
                said, f"{python!r} is not a function: expected module:function, for example mine:enrich"
            )
        inputs = self._words(fields["inputs"]) if "inputs" in fields else ()
        for at in inputs:
            self._check_view(fields["inputs"], at, views, later)
        return StepSpec(name, None, python, inputs, node)

    def _sql_step(
        self, name: str, node: Node, whole: Node, views: tuple[Sequence[str], Sequence[str]]
    ) -> StepSpec:
        known, later = views
        text = self._text_of(node)
        named = named_views(text.value)
        if not named.is_query:
            raise self._wrong(node, "is not a query: expected select ..., with ... select or values ...")
        for each in later:
            if each.casefold() in named.read:
                self._check_view(node, each, known, later)
        inputs = tuple(each for each in known if each.casefold() in named.words)
        return StepSpec(name, text, None, inputs, whole)

    def _check_view(self, node: Node, view: str, views: Sequence[str], later: Sequence[str]) -> None:
        if view in views:
            return
        if view in later:
            what = "is this step itself" if node.path.split(".")[1] == view else "is defined by a later step"
            raise self._wrong(node, f"{view} {what}: a step can read sources and earlier steps; move it up")
        raise self._wrong(node, f"there is no view {view}: {near(view, views)}")

    def _sink(self, name: str, node: Node, views: Sequence[str]) -> SinkSpec:
        fields = dict(self._mapping(node))
        view = self._required(node, fields, "from", keep=True)
        self._check_view(fields.pop("from"), view, views, ())
        format_name = self._required(node, fields, "format")
        mode = fields.pop("mode", None)
        parts = fields.pop("partitionBy", None)
        return SinkSpec(
            name=name,
            view=view,
            format=format_name,
            mode=None if mode is None else self._text(mode).lower(),
            partition_by=() if parts is None else self._words(parts),
            options=self._options(fields),
            node=node,
        )

    def _options(self, fields: Mapping[str, Node]) -> dict[str, YamlText]:
        found: dict[str, YamlText] = {}
        for name, node in fields.items():
            found[name] = self._text_of(node)
            if name.casefold() in ("path", "logpath"):
                several = name.casefold() == "logpath"  # A comma in a path may be one of a pattern, {a,b}.
                parts = found[name].value.split(",") if several else [found[name].value]
                found[name] = YamlText(",".join(map(self._place, parts)), found[name].shown)
        return found

    def _place(self, path: str) -> str:
        """Relative paths begin at the folder of the file, wherever the pipeline is run."""
        path = path.strip()
        if _ELSEWHERE.match(path):
            return path
        return str(self._tree.file.absolute().parent / Path(path).expanduser())

    def _trigger(self, node: Node) -> Trigger:
        fields = self._mapping(node)
        self._known(fields, _TRIGGERS)
        if len(fields) != 1:
            raise self._wrong(node, "expected one of once: true, available-now: true or every: 10s")
        ((name, said),) = fields.items()
        if name != "every":
            if not self._flag(said):
                raise self._wrong(
                    said, "can only be true: to run batches one after the other, remove the trigger"
                )
            return Trigger(once=True)
        try:
            return Trigger(every_ms=parse_span_ms(self._text(said)))
        except ConfigError as error:
            raise self._wrong(said, str(error)) from None

    def _settings(self, node: Node) -> dict[str, str]:
        found = {name: self._text(each) for name, each in self._mapping(node).items()}
        for name, value in found.items():
            try:
                SessionPlan(conf={name: value})
            except FlareError as error:
                raise self._wrong(self._mapping(node)[name], str(error)) from None
        return found

    # Nodes, checked for their kind.

    def _mapping(self, node: Node) -> Mapping[str, Node]:
        if node.fields is None:
            raise self._wrong(node, "expected a mapping, for example name: {key: value}")
        return node.fields

    def _named(self, node: Node) -> Mapping[str, Node]:
        fields = self._mapping(node)
        if not fields:
            raise self._wrong(node, "is empty: expected at least one")
        seen: dict[str, str] = {}
        for name, each in fields.items():
            if not _VIEW.fullmatch(name):
                raise self._wrong(
                    each,
                    f"{name!r} is not a valid name: expected letters, digits and _, for example paid_orders",
                )
            if name.casefold() in seen:
                raise self._wrong(
                    each, f"is the same name as {seen[name.casefold()]}, because SQL ignores case"
                )
            seen[name.casefold()] = name
        return fields

    def _known(self, fields: Mapping[str, Node], names: Sequence[str]) -> None:
        for name, node in fields.items():
            if name not in names:
                raise self._wrong(node, f"unknown key, {near(name, names)}")

    def _required(self, node: Node, fields: dict[str, Node], name: str, *, keep: bool = False) -> str:
        if name not in fields:
            likely = [each for each in fields if near(each, (name,)).startswith("did")]
            if likely:
                raise self._wrong(fields[likely[0]], f"unknown key, did you mean {name}?")
            raise self._wrong(node, f"{name} is missing")
        return self._text(fields[name] if keep else fields.pop(name))

    def _text_of(self, node: Node) -> YamlText:
        if node.items is not None and all(each.text is not None for each in node.items):
            texts = [each.text for each in node.items if each.text is not None]
            return YamlText(",".join(each.value for each in texts), ",".join(each.shown for each in texts))
        if node.fields is not None or node.items is not None:
            raise self._wrong(node, "expected a value, or a list of values")
        if node.text is None or not node.text.value.strip():
            raise self._wrong(node, "is empty: give it a value, or remove it")
        return node.text

    def _text(self, node: Node) -> str:
        return self._text_of(node).value.strip()

    def _words(self, node: Node) -> tuple[str, ...]:
        return tuple(word.strip() for word in self._text(node).split(",") if word.strip())

    def _flag(self, node: Node) -> bool:
        text = self._text(node).lower()
        if text not in _WORDS:
            raise self._wrong(node, f"{text!r}: expected true or false")
        return _WORDS[text]
