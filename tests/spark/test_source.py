"""The format as Spark finds it: by the name of a package, whole or with a reason why it cannot be used."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, LongType, MapType, StringType, StructType

from flaremq.arrow.schema import COLUMNS, arrow_schema
from flaremq.base.errors import UsageError
from flaremq.spark.read.options import NAMES
from flaremq.spark.schema import columns_of, row_schema, spark_schema

GUIDE = Path(__file__).parent.parent.parent / "docs" / "guide" / "spark.md"
WITHOUT = """
import sys
sys.modules["pyarrow"] = None  # As if it were not installed.
import pyspark_rocketmq
source = pyspark_rocketmq.DefaultSource({"topic": "T"})
print(source.name())
try:
    source.schema()
except ImportError as error:
    print(error)
"""


def test_without_pyarrow_the_format_says_what_to_install_and_breaks_nothing_else() -> None:
    ran = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    name, why = ran.stdout.splitlines()
    assert name == "rocketmq"
    assert "pyarrow" in why and "pip install '.[spark]'" in why


def test_types_are_those_that_spark_compares_batches_with() -> None:
    assert to_arrow_schema(spark_schema(), timezone="UTC") == arrow_schema()
    assert row_schema(spark_schema()) == arrow_schema()
    texts = MapType(StringType(), StringType())
    own = StructType().add("queueOffset", LongType(), nullable=False).add("properties", texts)
    assert row_schema(own) == to_arrow_schema(own, timezone="UTC")
    assert not row_schema(own).field("queueOffset").nullable


def test_a_schema_of_somebodys_own_may_name_columns_that_there_are() -> None:
    assert columns_of(spark_schema()) == COLUMNS
    assert columns_of(spark_schema(("body", "topic"))) == ("body", "topic")
    for name, kind, says in (
        ("bodi", BinaryType(), "did you mean 'body'"),
        ("queueId", LongType(), "can only be read as int"),
        ("properties", MapType(StringType(), BinaryType()), "can only be read as map<string,string>"),
    ):
        with pytest.raises(UsageError, match=re.escape(says)):
            columns_of(StructType().add(name, kind))
    with pytest.raises(UsageError, match="no columns"):
        columns_of(StructType([]))


def test_the_guide_has_all_options_and_columns_and_no_others() -> None:
    text = GUIDE.read_text()
    rows = re.findall(r"^\| (`.+?`(?:, `.+?`)*) \|", text, re.MULTILINE)
    assert sorted(name for row in rows for name in re.findall(r"`(\w+)`", row)) == sorted(NAMES)
    assert all(f"`{name}`" in text for name in COLUMNS)
