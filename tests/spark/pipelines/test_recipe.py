"""Recipes: a YAML file is read and checked, and every error says where it is and what was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from flaremq.base.errors import ConfigError

pytest.importorskip("pyspark", reason="the options of the formats are checked by themselves")

from flaremq.spark.pipelines.recipe.describe import describe_recipe
from flaremq.spark.pipelines.recipe.load import load_recipe
from flaremq.spark.pipelines.recipe.model import Recipe, Trigger
from flaremq.spark.pipelines.recipe.sqlnames import named_views

GOOD = """\
name: paid-orders
sources:
  orders: {format: rocketmq, nameServer: 127.0.0.1:9876, topic: Orders, startingOffsets: earliest}
  customers: {format: parquet, path: customers/}
steps:
  paid: {sql: "select body, keys from orders where tags = 'later'"}
  enriched: {python: "mine:enrich", inputs: [paid, customers]}
sinks:
  out: {from: paid, format: rocketmq, nameServer: 127.0.0.1:9876, topic: Paid, mode: append}
  files: {from: enriched, format: parquet, path: out, partitionBy: [day, hour]}
trigger: {every: 10s}
spark: {spark.sql.shuffle.partitions: 4}
"""


def load(folder: Path, text: str, **environment: str) -> Recipe:
    """Of a folder in which everything is that the good file names."""
    (folder / "customers").mkdir(exist_ok=True)
    if not (folder / "mine.py").exists():
        (folder / "mine.py").write_text("def enrich(spark, *frames): ...\n")
    file = folder / "p.yaml"
    file.write_text(text)
    return load_recipe(file, environment)


def error(folder: Path, text: str, **environment: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(folder, text, **environment)
    return str(caught.value)


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new, 1)


def test_a_good_file_is_read(tmp_path: Path) -> None:
    recipe = load(tmp_path, GOOD)
    assert recipe.name == "paid-orders"
    assert [(each.name, each.stream) for each in recipe.sources] == [("orders", True), ("customers", False)]
    assert [each.inputs for each in recipe.steps] == [("orders",), ("paid", "customers")]
    assert recipe.streaming == {"orders", "paid", "enriched"}
    assert recipe.trigger == Trigger(every_ms=10_000)
    assert recipe.sinks[1].partition_by == ("day", "hour")
    assert recipe.sinks[1].options["path"].value == str(tmp_path / "out")
    assert recipe.checkpoint_of(recipe.sinks[0]) == str(tmp_path / ".flaremq/paid-orders/out")
    assert recipe.spark == {"spark.sql.shuffle.partitions": "4"}


def test_without_a_trigger_it_is_a_batch_unless_it_says_stream(tmp_path: Path) -> None:
    text = changed("trigger: {every: 10s}\n", "")
    assert not load(tmp_path, text).is_streaming
    assert load(tmp_path, text + "stream: true\n").streaming == {"orders", "paid", "enriched"}
    once = load(tmp_path, changed("every: 10s", "available-now: true"))
    assert once.trigger == load(tmp_path, changed("every: 10s", "once: true")).trigger == Trigger(once=True)
    assert load(tmp_path, changed("name: paid-orders\n", "")).name == "p"


def test_parts_can_be_shared_and_paths_of_elsewhere_stay(tmp_path: Path) -> None:
    text = """\
sources:
  a: &where {format: rocketmq, nameServer: 127.0.0.1:9876, topic: A}
  b: {<<: *where, topic: B}
  c: {format: parquet, path: "s3a://bucket/c"}
sinks: {out: {from: b, format: noop}}
"""
    _, b, c = load(tmp_path, text).sources
    assert {name: each.value for name, each in b.options.items()} == {
        "nameServer": "127.0.0.1:9876",
        "topic": "B",
    }
    assert c.options["path"].value == "s3a://bucket/c"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("topic: Orders", "topc: Orders", "p.yaml:3: sources.orders.topc: unknown key, did you mean topic?"),
        ("sinks:", "snks:", "p.yaml:8: snks: unknown key, did you mean sinks?"),
        ("{from: paid", "{form: paid", "p.yaml:9: sinks.out.form: unknown key, did you mean from?"),
        (
            "{from: paid",
            "{from: payed",
            "p.yaml:9: sinks.out.from: there is no view payed: did you mean paid?",
        ),
        (
            "[paid, customers]",
            "[paid, custmers]",
            "p.yaml:7: steps.enriched.inputs: there is no view custmers: did you mean customers?",
        ),
        (
            "from orders",
            "from enriched",
            "p.yaml:6: steps.paid.sql: enriched is defined by a later step: a step can read sources and "
            "earlier steps; move it up",
        ),
        (
            "[paid, customers]",
            "[enriched]",
            "p.yaml:7: steps.enriched.inputs: enriched is this step itself: a step can read sources and "
            "earlier steps; move it up",
        ),
        (
            "  customers: {",
            "  orders: {",
            "p.yaml:4: sources.orders: is a duplicate of line 3",
        ),
        (
            "  paid: {",
            "  orders: {",
            "p.yaml:6: steps.orders: orders is the name of a source: give the step another name",
        ),
        (
            "  paid: {",
            "  pa-id: {",
            "p.yaml:6: steps.pa-id: 'pa-id' is not a valid name: expected letters, digits and _, for example "
            "paid_orders",
        ),
        (
            "parquet, path: cus",
            "parqet, path: cus",
            "p.yaml:4: sources.customers.format: there is no format parqet, did you mean parquet?",
        ),
        (", path: customers/", "", "p.yaml:4: sources.customers: path is missing: expected a folder"),
        ("format: parquet, path: cust", "path: cust", "p.yaml:4: sources.customers: format is missing"),
        (
            "mine:enrich",
            "enrich",
            "p.yaml:7: steps.enriched.python: 'enrich' is not a function: expected module:function, for "
            "example mine:enrich",
        ),
        ("mode: append", "mode: overwrite", "p.yaml:9: sinks.out.mode: 'overwrite': expected append"),
        (
            "path: out,",
            "path: out, mode: overwrite,",
            "p.yaml:10: sinks.files.mode: 'overwrite': expected append or update or complete",
        ),
        (
            "path: out,",
            "path: out, checkpointLocation: x,",
            "p.yaml:10: sinks.files.checkpointLocation: cannot be set here: use checkpoint at the top level",
        ),
        (
            "every: 10s",
            "every: soon",
            "p.yaml:11: trigger.every: 'soon' is not a span of time such as 500ms, 10s, 48h or 3d",
        ),
        ("{every: 10s}", "{evry: 10s}", "p.yaml:11: trigger.evry: unknown key, did you mean every?"),
        (
            "{every: 10s}",
            "{every: 10s, once: true}",
            "p.yaml:11: trigger: expected one of once: true, available-now: true or every: 10s",
        ),
        (
            "{spark.sql",
            "{sql",
            "p.yaml:12: spark.sql.shuffle.partitions: 'sql.shuffle.partitions' is not a Spark setting: "
            "expected a name that begins with 'spark.'",
        ),
        ("topic: Orders", "topic: [,", "p.yaml:3: not valid YAML: expected the node content, but found ','"),
        (
            "topic: Orders",
            "topic:",
            "p.yaml:3: sources.orders.topic: is empty: give it a value, or remove it",
        ),
        (
            "topic: Orders",
            "stream: maybe, topic: Orders",
            "p.yaml:3: sources.orders.stream: 'maybe': expected true or false",
        ),
        (
            "select body",
            "drop body",
            "p.yaml:6: steps.paid.sql: is not a query: expected select ..., with ... select or values ...",
        ),
        (
            "name: paid-orders",
            "name: a/b",
            "p.yaml:1: name: 'a/b' is also the name of a folder: expected letters, digits, -, _ and .",
        ),
    ],
)
def test_errors_say_where_and_what_was_meant(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert error(tmp_path, changed(old, new)) == told


def test_values_of_options_are_read_by_the_formats_themselves(tmp_path: Path) -> None:
    told = error(tmp_path, changed("topic: Orders", "topic: Orders, maxOffsetsPerTrigger: many"))
    assert told == (
        "p.yaml:3: sources.orders.maxOffsetsPerTrigger: maxOffsetsPerTrigger='many': expected "
        "a whole number of at least 1, for example maxOffsetsPerTrigger=1000"
    )
    told = error(tmp_path, changed("topic: Paid", "topic: Paid, delivery: twice"))
    assert told.startswith("p.yaml:9: sinks.out.delivery: delivery='twice': expected at-least-once or")
    told = error(tmp_path, changed("topic: Orders", "topic: Orders, endingOffsets: latest"))
    assert told.startswith(
        "p.yaml:3: sources.orders.endingOffsets: endingOffsets is set, but a stream has no end"
    )
    store = changed("{format: parquet, path: customers/}", "{format: rocketmq-store, path: nowhere}")
    assert error(tmp_path, store).startswith("p.yaml:4: sources.customers: ")
    assert str(tmp_path / "nowhere") in error(tmp_path, store)
    archive = changed("{format: parquet, path: customers/}", "{format: archive, path: nowhere}")
    assert error(tmp_path, archive).startswith("p.yaml:4: sources.customers: ")
    for name in ("delta", "iceberg"):
        told = error(tmp_path, changed("format: parquet, path: out", f"format: {name}, path: out"))
        assert told.startswith(f"p.yaml:10: sinks.files.format: {name} tables are archives")


def test_a_function_is_looked_for_without_running_its_module(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("raise SystemExit\n\ndef enrichment(spark, *frames): ...\n")
    assert error(tmp_path, GOOD) == (
        "p.yaml:7: steps.enriched.python: mine.py has no function enrich: did you mean enrichment?"
    )
    (tmp_path / "mine.py").write_text("def enrich(:\n")
    assert error(tmp_path, GOOD).startswith("p.yaml:7: steps.enriched.python: cannot read mine.py: ")


@pytest.mark.parametrize("module", ["nowhere", "nowhere.deep", "flaremq.nowhere", "mine.deep"])
def test_a_module_that_is_neither_beside_the_recipe_nor_installed_is_told(
    tmp_path: Path, module: str
) -> None:
    assert error(tmp_path, changed("mine:enrich", f"{module}:enrich")) == (
        f"p.yaml:7: steps.enriched.python: there is no module {module}: expected "
        f"{module.replace('.', '/')}.py in {tmp_path}, or an installed package"
    )


def test_modules_of_packages_beside_the_recipe_and_installed_ones_are_found(tmp_path: Path) -> None:
    (tmp_path / "own" / "deep").mkdir(parents=True)
    (tmp_path / "own" / "__init__.py").write_text("raise SystemExit\n")
    (tmp_path / "own" / "deep" / "steps.py").write_text("def enrich(spark, *frames): ...\n")
    load(tmp_path, changed("mine:enrich", "own.deep.steps:enrich"))
    load(tmp_path, changed("mine:enrich", "pyspark.sql.functions:lit"))
    load(tmp_path, changed("mine:enrich", "math:sqrt"))


@pytest.mark.parametrize("path", ["nowhere", "file:/no/where", "nowhere/*.parquet"])
def test_a_folder_to_read_that_does_not_exist_is_told(tmp_path: Path, path: str) -> None:
    missing = "/no/where" if path.startswith("file") else tmp_path / "nowhere"
    assert error(tmp_path, changed("path: customers/", f'path: "{path}"')) == (
        f"p.yaml:4: sources.customers.path: {missing} does not exist: expected a file or a folder to read"
    )


def test_patterns_and_files_of_elsewhere_are_left_to_spark(tmp_path: Path) -> None:
    for path in ("customers/*.parquet", "customers/{a,b}/x", "hdfs://host/customers"):
        load(tmp_path, changed("path: customers/", f'path: "{path}"'))


def test_variables_are_put_in_and_never_shown(tmp_path: Path) -> None:
    text = changed("127.0.0.1:9876, topic: Orders", '"${NS}", topic: "${TOPIC:-Orders}"')
    recipe = load(tmp_path, text, NS="10.1.2.3:9876")
    assert recipe.sources[0].options["nameServer"].value == "10.1.2.3:9876"
    assert recipe.sources[0].options["topic"].value == "Orders"
    assert "10.1.2.3" not in describe_recipe(recipe) and "nameServer ${NS}" in describe_recipe(recipe)
    assert error(tmp_path, text) == (
        "p.yaml:3: sources.orders.nameServer: the variable NS is not set: set it, or give a "
        "default with ${NS:-default}"
    )
    told = error(tmp_path, text, NS="10.1.2.3:9876", TOPIC="hidden!word")
    assert told.startswith("p.yaml:3: sources.orders.topic: invalid topic name '${TOPIC}'")
    assert "hidden!word" not in told
    assert "is not a variable" in error(tmp_path, changed("topic: Orders", 'topic: "${a b}"'))
    literal = load(tmp_path, changed("'later'", "'$${NS}'")).steps[0].sql
    assert literal is not None and literal.value.endswith("'${NS}'")


def test_secrets_are_not_described(tmp_path: Path) -> None:
    text = changed("{format: parquet, path: customers/}", "{format: jdbc, url: u, password: hunter2}")
    assert "hunter2" not in describe_recipe(load(tmp_path, text))


def test_streams_and_tables_are_not_mixed_up(tmp_path: Path) -> None:
    tables = changed("format: rocketmq, nameServer", "format: rocketmq, stream: false, nameServer")
    assert error(tmp_path, tables) == (
        "p.yaml:11: trigger: is for streams, but no source is a stream: remove it, or set stream: true"
    )
    assert error(tmp_path, changed("path: customers/", "path: customers/, stream: true")) == (
        "p.yaml:4: sources.customers: a stream of parquet files needs a schema, for example schema:"
        " id bigint, name string"
    )
    assert "sources is missing" in error(tmp_path, "sinks: {a: {from: b, format: noop}}\n")
    assert error(tmp_path, "- a\n") == "p.yaml:1: expected a mapping with sources, steps and sinks"
    assert "contains itself" in error(tmp_path, "sources: &a {x: *a}\nsinks: {}\n")
    with pytest.raises(ConfigError, match=r"none\.yaml does not exist"):
        load_recipe(tmp_path / "none.yaml")


def test_what_it_would_do_is_told(tmp_path: Path) -> None:
    assert describe_recipe(load(tmp_path, GOOD)).splitlines() == [
        "paid-orders (p.yaml): a stream",
        "",
        "sources",
        "  orders: rocketmq, stream",
        "    nameServer 127.0.0.1:9876",
        "    topic Orders",
        "    startingOffsets earliest",
        "  customers: parquet, table",
        "    path customers/",
        "",
        "steps",
        "  paid: stream of orders: sql select body, keys from orders where tags = 'later'",
        "  enriched: stream of paid, customers: python mine:enrich",
        "",
        "sinks",
        "  out: paid to rocketmq, every batch, mode append",
        "    nameServer 127.0.0.1:9876",
        "    topic Paid",
        f"    checkpoint {tmp_path}/.flaremq/paid-orders/out",
        "  files: enriched to parquet, every batch, mode append, in folders by day, hour",
        "    path out",
        f"    checkpoint {tmp_path}/.flaremq/paid-orders/files",
        "",
        "trigger: a batch every 10 s, until stopped",
        "setting: spark.sql.shuffle.partitions=4",
    ]


def test_views_in_texts_comments_and_common_tables_are_not_taken_for_others() -> None:
    sql = "with later as (select 1) -- from comment\nselect 'from text', a.b from later join `Orders` o on x"
    named = named_views(sql)
    assert named.is_query and named.read == {"orders"}
    assert not {"comment", "text"} & named.words
    assert not named_views("insert into t select 1").is_query
    assert named_views("(select 1)").is_query and not named_views("-- nothing").is_query
