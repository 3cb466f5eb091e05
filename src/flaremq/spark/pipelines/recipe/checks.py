"""A recipe checked by its formats before Spark starts: their options, and what they support."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Final

from flaremq.base.errors import ConfigError, FlareError
from flaremq.base.localpath import local_path
from flaremq.spark.archive.identity import known_identity
from flaremq.spark.pipelines.recipe.model import Recipe, SinkSpec, SourceSpec, StepSpec
from flaremq.spark.pipelines.recipe.yamltree import Node, YamlText, near
from flaremq.spark.read.options import NAMES as READ_NAMES
from flaremq.spark.read.options import ReadOptions
from flaremq.spark.storesource import NAMES as STORE_NAMES
from flaremq.spark.storesource import StoreOptions
from flaremq.spark.write.options import NAMES as WRITE_NAMES
from flaremq.spark.write.options import WriteOptions

ARCHIVE: Final = "archive"
ARCHIVE_NAMES: Final = ("path", "topics", "begin", "end")
_FILES: Final = ("parquet", "orc", "json", "csv", "text", "avro", "xml")
_SOURCES: Final = ("rocketmq", "rocketmq-store", ARCHIVE, *_FILES, "binaryFile", "jdbc", "kafka", "rate")
_SINKS: Final = ("rocketmq", *_FILES, "console", "noop", "jdbc", "kafka")
_TABLES: Final = ("delta", "iceberg")
_BATCH_MODES: Final = ("append", "overwrite", "ignore", "error")
_STREAM_MODES: Final = ("append", "update", "complete")
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_PATTERN: Final = re.compile(r"[*?{\[]")
_OURS: Final = {"checkpointlocation": "use checkpoint at the top level", "queryname": "it is the sink's name"}


def check(recipe: Recipe) -> None:
    """Raises ConfigError with the line and key."""
    checks = _Checks(recipe)
    for source in recipe.sources:
        checks.source(source)
    for step in recipe.steps:
        checks.step(step)
    for sink in recipe.sinks:
        checks.sink(sink)


class _Checks:
    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._wrong = recipe.tree.wrong

    def source(self, source: SourceSpec) -> None:
        node, options = source.node, _values(source.options)
        self._format(node, source.format, _SOURCES, "flaremq pipeline archive writes them")
        if source.format == "rocketmq":
            self._names(node, source.options, READ_NAMES)
            self._asked(node, lambda: ReadOptions.of(options, streaming=source.stream))
        elif source.format in ("rocketmq-store", ARCHIVE):
            if source.stream:
                raise self._wrong(
                    _field(node, "stream"), f"{source.format} cannot be read as a stream: remove it"
                )
            is_store = source.format == "rocketmq-store"
            self._names(node, source.options, STORE_NAMES if is_store else ARCHIVE_NAMES)
            if not is_store and "path" not in options:
                raise self._wrong(node, "path is missing: expected the folder of an archive")
            for name in ("begin", "end"):
                self._asked(node, partial(time_of, name, None if is_store else options.get(name)))
            if is_store:
                self._asked(node, lambda: StoreOptions.of(options))
            else:
                self._asked(node, lambda: known_identity(local_path(options["path"])))
        elif source.format in _FILES:
            self._files(node, options)
            self._is_there(_field(node, "path"), options)
            if source.stream and source.schema is None and source.format != "text":
                raise self._wrong(
                    node,
                    f"a stream of {source.format} files needs a schema, for example schema: id bigint, name "
                    "string",
                )
        if source.schema is not None and source.format in ("rocketmq", "rocketmq-store", ARCHIVE):
            raise self._wrong(_field(node, "schema"), "messages have fixed columns: choose some with columns")

    def sink(self, sink: SinkSpec) -> None:
        node, options = sink.node, _values(sink.options)
        is_stream = sink.view in self._recipe.streaming
        self._format(node, sink.format, _SINKS, "write parquet, or use flaremq pipeline archive for topics")
        modes: Sequence[str] = _STREAM_MODES if is_stream else _BATCH_MODES
        if sink.format == "rocketmq":
            modes = ("append",)
        if sink.mode is not None and sink.mode not in modes:
            raise self._wrong(_field(node, "mode"), f"{sink.mode!r}: expected {' or '.join(modes)}")
        for name in sink.options:
            if name.casefold() in _OURS:
                raise self._wrong(_field(node, name), f"cannot be set here: {_OURS[name.casefold()]}")
        if sink.format == "rocketmq":
            self._names(node, sink.options, WRITE_NAMES)
            if sink.partition_by:
                raise self._wrong(
                    _field(node, "partitionBy"), "messages go to queues, not folders: remove it"
                )
            self._asked(node, lambda: WriteOptions.of(options, streaming=is_stream))
        elif sink.format in _FILES:
            self._files(node, options)

    def step(self, step: StepSpec) -> None:
        """Look for the function without running the module, which may do anything."""
        if step.python is None:
            return
        module, _, name = step.python.partition(":")
        node = _field(step.node, "python")
        path = self._module(node, module)
        if path is None:
            return  # Not a Python file: its import will report errors.
        try:
            body = ast.parse(path.read_bytes(), str(path)).body
        except (SyntaxError, OSError, ValueError) as error:
            raise self._wrong(node, f"cannot read {path.name}: {error}") from None
        defined = [each.name for each in body if isinstance(each, ast.FunctionDef)]
        others = any(isinstance(each, ast.Assign | ast.ImportFrom) for each in body)
        if name not in defined and not others:
            raise self._wrong(node, f"{path.name} has no function {name}: {near(name, defined)}")

    def _module(self, node: Node, module: str) -> Path | None:
        """The file of a module, next to the recipe or installed. It is not run."""
        place: Sequence[str] | None = [str(self._recipe.folder), *sys.path]
        spec: ModuleSpec | None = None
        for part in module.split("."):
            spec = None if place is None else PathFinder.find_spec(part, place)
            place = None if spec is None else spec.submodule_search_locations
            if spec is None:
                break
        if spec is None and module.partition(".")[0] not in sys.builtin_module_names:
            raise self._wrong(
                node,
                f"there is no module {module}: expected {module.replace('.', '/')}.py in "
                f"{self._recipe.folder}, or an installed package",
            )
        origin = None if spec is None else spec.origin
        return Path(origin) if origin is not None and origin.endswith(".py") else None

    def _is_there(self, node: Node, options: Mapping[str, str]) -> None:
        """Check that files on this machine exist; files elsewhere cannot be checked."""
        given = next(value for name, value in options.items() if name.casefold() == "path")
        if _URL.match(given) and not given.startswith("file:"):
            return
        path = local_path(given)
        fixed = next(part for part in (path, *path.parents) if not _PATTERN.search(str(part)))
        if not fixed.exists():
            raise self._wrong(node, f"{fixed} does not exist: expected a file or a folder to read")

    def _format(self, node: Node, name: str, known: Sequence[str], instead: str) -> None:
        at = _field(node, "format")
        if name in _TABLES:
            raise self._wrong(at, f"{name} tables are archives: read them with format: archive; {instead}")
        hint = near(name, known)
        # An unknown format may belong to another package: only a likely typo is an error.
        if name not in known and hint.startswith("did"):
            raise self._wrong(at, f"there is no format {name}, {hint}")

    def _names(self, node: Node, options: Mapping[str, YamlText], names: Sequence[str]) -> None:
        folded = {name.casefold() for name in names}
        for name in options:
            if name.casefold() not in folded:
                raise self._wrong(_field(node, name), f"unknown key, {near(name, names)}")

    def _files(self, node: Node, options: Mapping[str, str]) -> None:
        if "path" not in {name.casefold() for name in options}:
            raise self._wrong(node, "path is missing: expected a folder")

    def _asked(self, node: Node, ask: Callable[[], object]) -> None:
        """Raise errors of an option with the line of that option."""
        try:
            ask()
        except FlareError as error:
            raise self._wrong(_spoken_of(node, str(error)), str(error)) from None


def _values(options: Mapping[str, YamlText]) -> dict[str, str]:
    return {name: text.value for name, text in options.items()}


def _field(node: Node, name: str) -> Node:
    """A field by its name in any case; the whole node if it is missing."""
    fields = {key.casefold(): each for key, each in (node.fields or {}).items()}
    return fields.get(name.casefold(), node)


def _spoken_of(node: Node, message: str) -> Node:
    """The field that an error names among its first words: "tasks=x: ...", "invalid topic name ..."."""
    for word in message.split(" ")[:2]:
        found = _field(node, word.partition("=")[0].rstrip(":"))
        if found is not node:
            return found
    return node


def time_of(name: str, text: str | None) -> datetime | None:
    """The start or end of an archive's rows."""
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{name}={text!r}: expected ISO-8601, for example {name}: 2026-05-01T12:00:00Z"
        ) from None
