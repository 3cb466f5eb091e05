"""The views of a recipe: sources and steps as DataFrames. Errors name the file and line."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from flaremq.base.errors import ConfigError, FlareError
from flaremq.base.localpath import local_path
from flaremq.spark.archive.reader import read_archive
from flaremq.spark.errors import planned, spark_error
from flaremq.spark.launch.session import RAISED
from flaremq.spark.pipelines.recipe.checks import ARCHIVE, time_of
from flaremq.spark.pipelines.recipe.model import Recipe, SourceSpec, StepSpec
from flaremq.spark.pipelines.recipe.yamltree import Node, near

_NOT_THERE: Final = re.compile(r"table or view `?([^`\s]+)`? cannot be found", re.IGNORECASE)


class Views:
    def __init__(self, spark: SparkSession, recipe: Recipe) -> None:
        self._spark = spark
        self._recipe = recipe
        self._frames: dict[str, DataFrame] = {}

    def made(self) -> dict[str, DataFrame]:
        """All views by name, made on the first call. Spark has then checked every name and type."""
        if not self._frames:
            self._parse_all()
            for source in self._recipe.sources:
                with about(self._recipe, source.node):
                    self._add(source.name, self._source(source))
            for step in self._recipe.steps:
                self._add(step.name, self._step(step))
        return self._frames

    def _add(self, name: str, frame: DataFrame) -> None:
        self._frames[name] = frame
        frame.createOrReplaceTempView(name)

    def _parse_all(self) -> None:
        """Parse all SQL before any source is read."""
        java: Any = getattr(self._spark, "_jsparkSession", None)
        for step in self._recipe.steps:
            if step.sql is not None and java is not None:
                with about(self._recipe, _at(step.node, "sql")):
                    java.sessionState().sqlParser().parsePlan(step.sql.value)

    def _source(self, source: SourceSpec) -> DataFrame:
        options = {name: text.value for name, text in source.options.items()}
        if source.format == ARCHIVE:
            topics = [word.strip() for word in options.get("topics", "").split(",") if word.strip()]
            begin, end = (time_of(name, options.get(name)) for name in ("begin", "end"))
            return read_archive(
                self._spark, local_path(options["path"]), topics=topics or None, begin=begin, end=end
            )
        reader: Any = self._spark.readStream if source.stream else self._spark.read
        if source.schema is not None:
            reader = reader.schema(source.schema)
        # Not every format accepts the path as an option.
        path = next((options.pop(name) for name in list(options) if name.casefold() == "path"), None)
        loaded = reader.format(source.format).options(**options)
        found: DataFrame = planned(lambda: loaded.load(path))
        return found

    def _step(self, step: StepSpec) -> DataFrame:
        if step.sql is not None:
            with about(self._recipe, _at(step.node, "sql"), self._frames):
                return self._spark.sql(step.sql.value)
        with about(self._recipe, _at(step.node, "python")):
            function = self._function(step)
            try:
                found = function(self._spark, *(self._frames[name] for name in step.inputs))
            except (PySparkException, Py4JError, FlareError):
                raise
            except Exception as error:
                raise ConfigError(f"{step.python} failed: {type(error).__name__}: {error}") from error
            if not isinstance(found, DataFrame):
                raise ConfigError(f"{step.python} returned {type(found).__name__}: expected a DataFrame")
            return found

    def _function(self, step: StepSpec) -> Callable[..., object]:
        assert step.python is not None
        name, _, called = step.python.partition(":")
        module = self._module(name)
        found = getattr(module, called, None)
        if not callable(found):
            names = [each for each in vars(module) if callable(getattr(module, each)) and each[0] != "_"]
            raise ConfigError(f"{name} has no function {called}: {near(called, names)}")
        typed: Callable[..., object] = found
        return typed

    def _module(self, name: str) -> ModuleType:
        folder = str(self._recipe.folder)
        sys.path.insert(0, folder)
        try:
            importlib.invalidate_caches()
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            where = f"put {name.partition('.')[0]}.py next to {self._recipe.file.name}, or install it"
            raise ConfigError(f"{error}: {where}") from error
        except Exception as error:
            raise ConfigError(f"cannot import module {name}: {type(error).__name__}: {error}") from error
        finally:
            sys.path.remove(folder)
        if str(getattr(module, "__file__", None) or "").startswith(folder):
            # Workers do not have this module, so its functions are pickled with the code that uses them.
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
        return module


@contextmanager
def about(recipe: Recipe, node: Node, views: dict[str, DataFrame] | None = None) -> Iterator[None]:
    """Errors raised inside get the file, line and key of this node."""
    try:
        yield
    except (*RAISED, FlareError) as error:
        missing = _NOT_THERE.search(str(error)) if views is not None else None
        if missing is not None:
            what = f"there is no view {missing[1]}: {near(missing[1], views or ())}"
            raise recipe.tree.wrong(node, what) from None
        raise placed(recipe, node, error) from error


def placed(recipe: Recipe, node: Node, error: BaseException) -> FlareError:
    """The same error, prefixed with the file, line and key."""
    found = spark_error(error)
    text = str(found)
    if not text.startswith(f"{recipe.file.name}:"):
        found.args = (str(recipe.tree.wrong(node, text)),)
    return found


def _at(node: Node, name: str) -> Node:
    return (node.fields or {}).get(name, node)
