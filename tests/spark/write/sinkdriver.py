"""A driver of its own that copies one topic to another until its stdin ends, or once. Tests kill it.

python -m tests.spark.write.sinkdriver '{"namesrv": ..., "from": ..., "to": ..., "checkpoint": ...,
    "delivery": ..., "batch": ..., "rate": ..., "master": ..., "once": false}'

A copy's body says where the message lay, so that two copies of one are known by it: "queue offset body".
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.spark.drivers import play, stdin_ended


def start(spark: SparkSession, said: dict[str, Any]) -> StreamingQuery:
    reader = spark.readStream.format("rocketmq").option("nameServer", said["namesrv"])
    reader = reader.option("topic", said["from"]).option("startingOffsets", "earliest")
    reader = reader.option("maxOffsetsPerTrigger", said["batch"]).option("minPartitions", "2")
    rows = reader.option("brokerTimeout", "120s").load()
    copies = rows.selectExpr("concat_ws(' ', queueId, queueOffset, CAST(body AS STRING)) AS body")
    writer = copies.writeStream.format("rocketmq").option("nameServer", said["namesrv"])
    writer = writer.option("topic", said["to"]).option("delivery", said["delivery"])
    writer = writer.option("ratePerTask", said["rate"]).option("checkpointLocation", said["checkpoint"])
    if said["once"]:
        writer = writer.trigger(availableNow=True)
    return writer.start()


def run(spark: SparkSession, said: dict[str, Any]) -> None:
    query = start(spark, said)
    if said["once"]:
        query.awaitTermination()
        print("{}", flush=True)
        return
    ended = stdin_ended()
    while not ended.is_set() and not query.awaitTermination(1):
        pass
    query.stop()


if __name__ == "__main__":
    play(run)
