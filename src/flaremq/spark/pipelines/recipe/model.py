"""A recipe: sources, steps and sinks, as read from a YAML file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from flaremq.spark.pipelines.recipe.yamltree import Node, Tree, YamlText


@dataclass(frozen=True, slots=True)
class SourceSpec:
    name: str
    format: str
    stream: bool
    options: Mapping[str, YamlText]
    schema: str | None
    node: Node


@dataclass(frozen=True, slots=True)
class StepSpec:
    """Either the text of a query, or a function of the user's."""

    name: str
    sql: YamlText | None
    python: str | None
    inputs: tuple[str, ...]
    """Of SQL those views that its text names."""
    node: Node


@dataclass(frozen=True, slots=True)
class SinkSpec:
    name: str
    view: str
    format: str
    mode: str | None
    """None: what is usual."""
    partition_by: tuple[str, ...]
    options: Mapping[str, YamlText]
    node: Node


@dataclass(frozen=True, slots=True)
class Trigger:
    """When a stream makes its next batch; neither is set: as soon as the last one is done."""

    once: bool = False
    """All that is there when it begins, in as many batches as limits want, and then it ends."""
    every_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Recipe:
    tree: Tree
    name: str
    sources: tuple[SourceSpec, ...]
    steps: tuple[StepSpec, ...]
    sinks: tuple[SinkSpec, ...]
    trigger: Trigger
    checkpoint: str
    """A folder; each sink that streams has one below it."""
    spark: Mapping[str, str] = field(default_factory=dict)
    """Settings of Spark."""

    @property
    def file(self) -> Path:
        return self.tree.file

    @property
    def folder(self) -> Path:
        """Relative paths begin here, and modules are found here."""
        return self.file.absolute().parent

    @property
    def streaming(self) -> frozenset[str]:
        """Views that never end, as far as can be told before Spark has seen them."""
        found = {source.name for source in self.sources if source.stream}
        for step in self.steps:
            if found.intersection(step.inputs):
                found.add(step.name)
        return frozenset(found)

    @property
    def is_streaming(self) -> bool:
        return bool(self.streaming)

    def checkpoint_of(self, sink: SinkSpec) -> str:
        return f"{self.checkpoint.rstrip('/')}/{sink.name}"


def usual_mode(sink: SinkSpec, is_stream: bool) -> str:
    """Messages are only ever added; files of an earlier run are not touched unless somebody says so."""
    return "append" if is_stream or sink.format in ("rocketmq", "console", "noop") else "error"
