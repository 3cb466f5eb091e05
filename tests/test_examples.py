"""The examples do what they say. Where the broker needs it, they are given a moment."""

from __future__ import annotations

import asyncio
import importlib
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from examples import (
    broadcast,
    filters,
    in_a_test,
    many,
    operate,
    orderly,
    outbox_sqlite,
    producer,
    pull,
    retries,
)
from tests.client.inboxworker import a_received
from tests.postgres import running_postgres

from flaremq import ConsumeFromWhere, ConsumerSettings, PushConsumer, ReceivedMessage
from flaremq.testing.cluster import eventually
from flaremq.testing.embedded import EmbeddedThread
from flaremq.testing.patience import load_factor

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def namesrv(tmp_path: Path) -> Iterator[str]:
    with EmbeddedThread(tmp_path / "servers") as servers:
        yield servers.namesrv


async def test_the_first_minute(namesrv: str, capsys: pytest.CaptureFixture[str]) -> None:
    consumer = importlib.import_module("examples.consumer").make(namesrv)
    printed: list[str] = []

    async def all_printed() -> bool:
        printed.append(capsys.readouterr().out)
        return "".join(printed).count("one book") == 5

    with consumer:
        assert await asyncio.to_thread(producer.main, namesrv) == 5
        await eventually("all orders are consumed", all_printed)
    assert "".join(printed).count("('o-") == 5


async def test_many_messages_are_sent(namesrv: str) -> None:
    assert await many.main(namesrv) == 4001


async def test_steps_of_an_order_stay_in_order(namesrv: str) -> None:
    seen = await orderly.main(namesrv)
    assert len(seen) == orderly.ORDERS
    assert all(tuple(steps) == orderly.STEPS for steps in seen.values())


async def test_filters_choose(namesrv: str) -> None:
    assert await filters.main(namesrv) == {"tags": 20, "sql": 10}


async def test_broadcasting_reaches_everybody(namesrv: str, tmp_path: Path) -> None:
    heard = await broadcast.main(namesrv, tmp_path / "offsets")
    assert all(len(bodies) == 10 for bodies in heard.values())


def test_messages_can_be_asked_for(namesrv: str) -> None:
    assert pull.main(namesrv) == 100


async def test_what_fails_is_tried_again_or_buried(namesrv: str) -> None:
    assert await retries.main(namesrv) == (2, [b"nonsense"])


async def test_an_order_and_its_message_are_stored_together(namesrv: str, tmp_path: Path) -> None:
    assert await asyncio.to_thread(outbox_sqlite.main, namesrv, tmp_path / "shop.db") == 2
    seen: list[str] = []
    settings = ConsumerSettings(start_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer = PushConsumer("readers", namesrv, settings=settings)

    @consumer.subscribe("Sold")
    async def note(message: ReceivedMessage) -> None:
        seen.append(message.body.decode())

    async def have_come() -> bool:
        return len(seen) >= 2

    async with consumer:
        await eventually("what was sold has come", have_come)
    assert sorted(seen) == ["one book", "two pens"]


def test_a_checker_finds_what_was_stored_and_nothing_else(namesrv: str, tmp_path: Path) -> None:
    shop = outbox_sqlite.Shop(tmp_path / "shop.db", namesrv)
    with sqlite3.connect(tmp_path / "shop.db") as db:
        db.execute("INSERT INTO orders VALUES ('o', 'x', 'known')")
    assert shop.was_stored(a_received(message_id="known"))
    assert not shop.was_stored(a_received(message_id="lost"))


DIES = """
import os, signal, sqlite3, sys
from pathlib import Path
from examples.outbox_sqlite import Shop
from flaremq.client.sync import Transaction
namesrv, database, when, order = sys.argv[1:]
shop = Shop(Path(database), namesrv)
die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
if when == "before-its-commit":
    Transaction.id = property(die)  # It is asked for in the statement that stores the order.
else:
    shop.producer.end = die
with shop.producer:
    shop.sell(order, order)
"""


@pytest.mark.slow
async def test_a_shop_that_is_killed_sends_what_it_has_stored_and_nothing_else(tmp_path: Path) -> None:
    soon = {"transactionCheckInterval": "500", "transactionTimeOut": "1000"}
    database, seen = tmp_path / "shop.db", list[str]()
    settings = ConsumerSettings(start_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    with EmbeddedThread(tmp_path / "servers", options=soon) as servers:
        for when in ("before-its-commit", "after-its-commit"):
            words = [sys.executable, "-c", DIES, servers.namesrv, str(database), when, when]
            done = await asyncio.to_thread(
                subprocess.run, words, cwd=EXAMPLES.parent, timeout=60 * load_factor(), check=False
            )
            assert done.returncode == -signal.SIGKILL
        consumer = PushConsumer("readers", servers.namesrv, settings=settings)

        @consumer.subscribe("Sold")
        async def note(message: ReceivedMessage) -> None:
            seen.append(message.body.decode())

        async def has_come() -> bool:
            return "last" in seen and len(seen) >= 2

        shop = outbox_sqlite.Shop(database, servers.namesrv)
        with shop.producer:
            await asyncio.to_thread(shop.sell, "last", "last")  # The broker asks producers that it knows.
            async with consumer:
                await eventually("the stored order has come", has_come, 60)
    assert sorted(seen) == ["after-its-commit", "last"]


def test_orders_are_sold_and_billed_once_in_postgresql(namesrv: str) -> None:
    with running_postgres() as database:
        outbox_postgres = importlib.import_module("examples.outbox_postgres")
        assert outbox_postgres.main(namesrv, database) == [("o-1", "one book"), ("o-2", "two pens")]


def test_a_cluster_is_operated_by_a_program(namesrv: str) -> None:
    assert 0 <= operate.main(namesrv) < 20


def test_a_broker_lives_in_a_test(tmp_path: Path) -> None:
    in_a_test.test_my_program_sends_an_order(tmp_path)


def test_a_program_is_tested_by_the_plugin() -> None:
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLES / "test_orders.py")]
    done = subprocess.run(
        run, cwd=EXAMPLES.parent, capture_output=True, text=True, timeout=100 * load_factor(), check=False
    )
    assert "2 passed" in done.stdout, done.stdout


def test_every_example_is_in_the_list_and_under_test() -> None:
    listed = (EXAMPLES / "README.md").read_text()
    tested = Path(__file__).read_text()
    for path in EXAMPLES.glob("*.py"):
        assert f"`{path.name}`" in listed
        assert path.stem in tested
