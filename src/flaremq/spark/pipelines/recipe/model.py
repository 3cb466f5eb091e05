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
    """Either an SQL query, or a Python function of the user."""

    name: str
    sql: YamlText | None
    python: str | None
    inputs: tuple[str, ...]
    """For SQL, the views that its text names."""
    node: Node


@dataclass(frozen=True, slots=True)
class SinkSpec:
    name: str
    view: str
    format: str
    mode: str | None
    """None: the default."""
    partition_by: tuple[str, ...]
    options: Mapping[str, YamlText]
    node: Node


@dataclass(frozen=True, slots=True)
class Trigger:
    """When a stream starts its next batch; by default, as soon as the last one is done."""

    once: bool = False
    """Process everything available at the start, in as many batches as the limits need, and end."""
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
    """A folder; each streaming sink has its checkpoint below it."""
    spark: Mapping[str, str] = field(default_factory=dict)
    """Spark settings."""

    @property
    def file(self) -> Path:
        return self.tree.file

    @property
    def folder(self) -> Path:
        """Relative paths begin here, and Python modules are found here."""
        return self.file.absolute().parent

    @property
    def streaming(self) -> frozenset[str]:
        """Views that are streams, as far as is known before Spark analyses them."""
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
    """Messages are always appended; files of an earlier run are not touched unless the recipe says so."""
    return "append" if is_stream or sink.format in ("rocketmq", "console", "noop") else "error"
