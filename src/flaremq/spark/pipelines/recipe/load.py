"""A user's own pipeline, read from a YAML file and checked before Spark starts.

    recipe = load_recipe(Path("paid-orders.yaml"))
    print(describe_recipe(recipe))

Only what Spark alone can know, such as whether a column exists, is left for Spark to report.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from flaremq.spark.pipelines.recipe.checks import check
from flaremq.spark.pipelines.recipe.model import Recipe
from flaremq.spark.pipelines.recipe.parse import parse_recipe
from flaremq.spark.pipelines.recipe.yamltree import Tree


def load_recipe(file: Path, environment: Mapping[str, str] | None = None) -> Recipe:
    """Read and check a file. Raises ConfigError. Variables come from `os.environ` unless given."""
    recipe = parse_recipe(Tree(file, os.environ if environment is None else environment))
    check(recipe)
    return recipe
