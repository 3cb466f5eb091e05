"""A recipe described as text, without starting Spark and without revealing secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from flaremq.spark.pipelines.recipe.model import Recipe, SinkSpec, Trigger, usual_mode
from flaremq.spark.pipelines.recipe.yamltree import YamlText

_SECRET: Final = re.compile(r"pass(word|wd)?|secret|token|credential|accesskey", re.IGNORECASE)


def shown_options(options: Mapping[str, YamlText]) -> dict[str, str]:
    """Options to show: variables by name, and probable secrets hidden."""
    return {name: "***" if _SECRET.search(name) else text.shown for name, text in options.items()}


def describe_recipe(recipe: Recipe) -> str:
    """What the recipe would do, as text."""
    streaming = recipe.streaming
    lines = [f"{recipe.name} ({recipe.file.name}): {'a stream' if streaming else 'a batch'}", "", "sources"]
    for source in recipe.sources:
        kind = "stream" if source.stream else "table"
        lines.append(f"  {source.name}: {source.format}, {kind}{_listed(source.options)}")
    if recipe.steps:
        lines += ["", "steps"]
    for step in recipe.steps:
        kind = "stream" if step.name in streaming else "table"
        what = f"python {step.python}" if step.sql is None else f"sql {_one_line(step.sql.shown)}"
        of = f" of {', '.join(step.inputs)}" if step.inputs else ""
        lines.append(f"  {step.name}: {kind}{of}: {what}")
    lines += ["", "sinks"]
    for sink in recipe.sinks:
        lines.append(f"  {sink.name}: {_sink_line(recipe, sink)}")
        if sink.view in streaming:
            lines.append(f"    checkpoint {recipe.tree.hidden(recipe.checkpoint_of(sink))}")
    if streaming:
        lines += ["", f"trigger: {_trigger_line(recipe.trigger)}"]
    lines += [f"setting: {name}={recipe.tree.hidden(value)}" for name, value in recipe.spark.items()]
    return "\n".join(lines)


def _sink_line(recipe: Recipe, sink: SinkSpec) -> str:
    is_stream = sink.view in recipe.streaming
    mode = sink.mode or usual_mode(sink, is_stream)
    parts = f", in folders by {', '.join(sink.partition_by)}" if sink.partition_by else ""
    kind = "every batch" if is_stream else "once"
    return f"{sink.view} to {sink.format}, {kind}, mode {mode}{parts}{_listed(sink.options)}"


def _listed(options: Mapping[str, YamlText]) -> str:
    return "".join(f"\n    {name} {_one_line(value)}" for name, value in shown_options(options).items())


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _trigger_line(trigger: Trigger) -> str:
    if trigger.once:
        return "everything available now, then stop"
    if trigger.every_ms is not None:
        return f"a batch every {trigger.every_ms / 1000:g} s, until stopped"
    return "a batch as soon as there are messages, until stopped"
