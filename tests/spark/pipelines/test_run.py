"""Recipes that are done: tables are written, streams run, and errors say which line they are about."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.servers import fill, make_topic, servers

from flaremq.base.errors import ConfigError, FlareError, SparkFailed, UsageError
from flaremq.spark.pipelines.archive import ArchivePlan, run_archive
from flaremq.spark.pipelines.recipe.load import load_recipe
from flaremq.spark.pipelines.recipe.model import Recipe
from flaremq.spark.pipelines.recipe.progress import SinkProgress, lag_of
from flaremq.spark.pipelines.recipe.run import RecipeRun, SinkResult, _RunningSink, run_recipe
from flaremq.testing.embedded import EmbeddedThread

EXAMPLE = Path(__file__).parents[3] / "examples" / "pipeline.yaml"
COUNT = 300
TAGS = ("paid", "open", None)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedThread]:
    with servers(tmp_path_factory.mktemp("servers")) as found:
        for topic in ("Orders", "Paid", "Counted"):
            make_topic(found.namesrv, topic, queues=2)
        fill(found.namesrv, "Orders", COUNT, tags=TAGS)
        yield found


def recipe(folder: Path, text: str, running: EmbeddedThread) -> Recipe:
    file = folder / "p.yaml"
    file.write_text(text)
    return load_recipe(file, {"NS": running.namesrv})


def bodies(spark: SparkSession, running: EmbeddedThread, topic: str) -> list[int]:
    reader = spark.read.format("rocketmq").option("nameServer", running.namesrv).option("topic", topic)
    return sorted(int(bytes(row[0])[:8]) for row in reader.load().select("body").collect())


SOURCE = (
    "sources: {orders: {format: rocketmq, nameServer: '${NS}', topic: Orders, startingOffsets: earliest}}\n"
)


class GoneWithItsJvm:
    """A session, and a query of it, when nobody answers any more."""

    def newSession(self) -> GoneWithItsJvm:  # noqa: N802
        return self

    def __getattr__(self, name: str) -> object:
        raise ConnectionRefusedError(111, "Connection refused")


def test_a_stream_whose_jvm_is_killed_is_told_with_its_sink(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(f"{SOURCE}sinks: {{out: {{from: orders, format: console}}}}\n")
    found = load_recipe(file, {"NS": "127.0.0.1:1"})
    gone: Any = GoneWithItsJvm()
    sink, message = found.sinks[0], r"p\.yaml:2.*the JVM in which Spark runs is gone"
    with RecipeRun(gone, found) as pipeline:
        pipeline._running.append(_RunningSink(sink, gone, SinkResult(sink.name, True)))
        with pytest.raises(SparkFailed, match=message):
            pipeline.wait()


def test_the_example_goes_on_where_it_has_ended(
    spark: SparkSession, running: EmbeddedThread, tmp_path: Path
) -> None:
    environment = {"NAMESRV_ADDR": running.namesrv, "OUT": str(tmp_path)}
    told: list[SinkProgress] = []
    ran = run_recipe(spark, load_recipe(EXAMPLE, environment), told.append)
    assert {each.name: each.rows for each in ran.sinks} == {"topic": COUNT // 3, "files": COUNT // 3}
    assert all(each.stream and each.batches for each in ran.sinks)
    assert sum(each.rows for each in told if each.sink == "topic") == COUNT // 3
    last = [each for each in told if each.sink == "files"][-1]
    assert last.lag_total == 0 and len(last.lag) == 2 and last.seconds > 0
    paid = list(range(0, COUNT, 3))
    assert bodies(spark, running, "Paid") == paid
    assert (
        sorted(int(row[0][:8]) for row in spark.read.parquet(f"{tmp_path}/paid").select("body").collect())
        == paid
    )
    assert [path.name[:4] for path in (tmp_path / "paid").glob("day=*")] == ["day="]
    again = run_recipe(spark, load_recipe(EXAMPLE, environment))
    assert [each.rows for each in again.sinks] == [0, 0]
    assert bodies(spark, running, "Paid") == paid
    assert not spark.catalog.tableExists("orders")


def test_a_batch_with_sql_and_functions_of_ones_own(
    spark: SparkSession, running: EmbeddedThread, tmp_path: Path
) -> None:
    (tmp_path / "own_steps.py").write_text(
        "from pyspark.sql.functions import udf\n\n"
        "SHOUT = 'counted'\n\n"
        "def shout(text):\n    return (text or 'none').upper() + SHOUT\n\n"
        "def louder(spark, counts, names):\n"
        "    return counts.join(names, 'tags').withColumn('loud', udf(shout)('tags'))\n"
    )
    spark.createDataFrame([("paid", 1), ("open", 2)], "tags string, id int").write.json(
        str(tmp_path / "names")
    )
    text = (
        SOURCE.replace("}}\n", "}, names: {format: json, path: names, schema: 'tags string, id int'}}\n")
        + "steps:\n"
        + "  counts: {sql: 'select tags, count(*) as n from orders group by tags'}\n"
        + "  loud: {python: 'own_steps:louder', inputs: [counts, names]}\n"
        + "sinks:\n"
        + "  files: {from: loud, format: json, path: out, mode: overwrite}\n"
        + "  nothing: {from: orders, format: noop}\n"
        + "spark: {spark.sql.shuffle.partitions: 3}\n"
    )
    ran = run_recipe(spark, recipe(tmp_path, text, running))
    assert [(each.rows, each.stream) for each in ran.sinks] == [(2, False), (COUNT, False)]
    rows = spark.read.json(str(tmp_path / "out")).orderBy("id").collect()
    assert [(row.tags, row.n, row.loud) for row in rows] == [
        ("paid", 100, "PAIDcounted"),
        ("open", 100, "OPENcounted"),
    ]
    assert spark.conf.get("spark.sql.shuffle.partitions") != "3"
    with pytest.raises(FlareError, match=r"p\.yaml:6: sinks\.files: .*already exists"):
        run_recipe(spark, recipe(tmp_path, text.replace(", mode: overwrite", ""), running))


def test_an_archive_is_a_source(spark: SparkSession, running: EmbeddedThread, tmp_path: Path) -> None:
    run_archive(spark, ArchivePlan(namesrv=running.namesrv, topics=("Orders",), to=tmp_path / "kept"))
    text = (
        "sources: {old: {format: archive, path: kept, topics: [Orders], begin: 2020-01-01}}\n"
        "steps: {orders: {sql: \"select *, 1 as old from old where tags = 'paid'\"}}\n"
        "sinks: {out: {from: orders, format: noop}}\n"
    )
    assert [each.rows for each in run_recipe(spark, recipe(tmp_path, text, running)).sinks] == [COUNT // 3]
    with pytest.raises(ConfigError, match=r"p\.yaml:1: sources\.old\.begin: begin='soon': expected ISO-8601"):
        recipe(tmp_path, text.replace("2020-01-01", "soon"), running)


@pytest.mark.parametrize(
    ("steps", "sink", "told"),
    [
        (
            "{a: {sql: 'select frm orders wher'}}",
            "{from: a, format: noop}",
            r"p\.yaml:2: steps\.a\.sql: Syntax error",
        ),
        (
            "{a: {sql: 'select * from ordrs'}}",
            "{from: a, format: noop}",
            r"p\.yaml:2: steps\.a\.sql: there is no view ordrs: did you mean orders\?",
        ),
        (
            "{a: {sql: 'select bdy from orders'}}",
            "{from: a, format: noop}",
            r"p\.yaml:2: steps\.a\.sql: .*`bdy`",
        ),
        (
            "{a: {python: 'not_there:f', inputs: [orders]}}",
            "{from: a, format: noop}",
            r"p\.yaml:2: steps\.a\.python: there is no module not_there: expected not_there\.py in ",
        ),
        (
            "{a: {sql: 'select body as b from orders'}}",
            "{from: a, format: rocketmq, nameServer: '${NS}', topic: Counted}",
            r"p\.yaml:3: sinks\.out: column 'b' cannot be written",
        ),
    ],
)
def test_what_only_spark_can_tell_has_its_line_too(
    spark: SparkSession, running: EmbeddedThread, tmp_path: Path, steps: str, sink: str, told: str
) -> None:
    text = f"{SOURCE}steps: {steps}\nsinks: {{out: {sink}}}\n"
    with pytest.raises((ConfigError, UsageError, SparkFailed), match=told) as caught:
        run_recipe(spark, recipe(tmp_path, text, running))
    assert running.namesrv not in str(caught.value)


def test_a_stream_runs_until_it_is_stopped_and_one_that_fails_ends_the_others(
    spark: SparkSession, running: EmbeddedThread, tmp_path: Path
) -> None:
    text = (
        SOURCE
        + "stream: true\n"
        + "steps: {bad: {sql: \"select assert_true(tags = 'none', 'wrong tag') as x from orders\"}}\n"
        + "sinks:\n"
        + "  good: {from: orders, format: noop}\n"
    )
    seen = threading.Event()

    def tell(progress: SinkProgress) -> None:
        if progress.rows:
            seen.set()

    with RecipeRun(spark, recipe(tmp_path, text, running), tell) as pipeline:
        pipeline.start()
        waiting = threading.Thread(target=pipeline.wait)
        waiting.start()
        assert seen.wait(120)
        pipeline.stop()
        waiting.join(60)
        assert not waiting.is_alive()
    assert pipeline.ran().sinks[0].rows == COUNT
    failing = text + "  failing: {from: bad, format: noop}\nname: failing\n"
    with RecipeRun(spark, recipe(tmp_path, failing, running)) as pipeline:
        pipeline.start()
        with pytest.raises(FlareError, match=r"p\.yaml:6: sinks\.failing: .*wrong tag") as caught:
            pipeline.wait(120)
    assert "\n" not in str(caught.value)
    assert not pipeline._spark.streams.active


def test_the_lag_is_that_of_each_queue() -> None:
    latest = '{"v": 1, "q": {"A@b:0": 10, "A@b:1": 4, "A@b:2": 1}}'
    assert lag_of(latest, '{"v": 1, "q": {"A@b:0": 7, "A@b:1": 5}}') == {"A@b:0": 3, "A@b:1": 0}
    assert (
        lag_of(latest, '{"v": 1, "start": {"at": "latest"}}') == lag_of("7", "5") == lag_of(None, None) == {}
    )


def test_a_stream_whose_worker_was_late_once_is_started_again(
    spark: SparkSession, running: EmbeddedThread, tmp_path: Path
) -> None:
    (tmp_path / "late.py").write_text(
        "from pathlib import Path\n"
        "MARK = Path(__file__).with_name('was-late')\n"
        "def once(spark, orders):\n"
        "    def work(batches):\n"
        "        if not MARK.exists():\n"
        "            MARK.touch()\n"
        "            raise RuntimeError('Python worker failed to connect back.')\n"
        "        yield from batches\n"
        "    return orders.select('body').mapInArrow(work, 'body binary')\n"
    )
    text = (
        f"{SOURCE}steps: {{late: {{python: 'late:once', inputs: [orders]}}}}\n"
        "sinks: {out: {from: late, format: parquet, path: out}}\ntrigger: {available-now: true}\n"
    )
    done = run_recipe(spark, recipe(tmp_path, text, running))
    assert (tmp_path / "was-late").exists()
    assert done.sinks[0].rows == COUNT
    assert spark.read.parquet(str(tmp_path / "out")).count() == COUNT
