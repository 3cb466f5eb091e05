"""By the name of this package Spark finds the format "rocketmq-store", without being told of it.

Spark imports every package called pyspark_*, and an error in one of them breaks all Python sources of
a session. So what is missing is said when somebody uses the format, and not before.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]

DefaultSource: type[DataSource]

try:
    from flaremq.spark.storesource import RocketMQStore

    DefaultSource = RocketMQStore
except ImportError as error:
    _WHY = str(error)

    class Incomplete(DataSource):
        """Stands for the format where something that it needs is not installed."""

        @classmethod
        def name(cls) -> str:
            return "rocketmq-store"

        def schema(self) -> StructType:
            raise ImportError(
                f"the format rocketmq-store needs something that is not installed ({_WHY}): "
                "run pip install '.[spark]' in FlareMQ's source folder, on the driver and on all executors"
            )

    DefaultSource = Incomplete
