"""The inbox: each message changes the user's database once, whatever dies in between."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.client import inboxworker
from tests.client.consumer.tools import quick
from tests.client.inboxworker import a_received, opened
from tests.postgres import running_postgres

from flaremq.base.errors import InvalidName, UsageError
from flaremq.client import sync
from flaremq.client.consumer.outcome import Later
from flaremq.client.consumer.push import PushConsumer
from flaremq.client.inbox import KEY_LENGTH_MAX, Inbox, module_of
from flaremq.client.message import ReceivedMessage
from flaremq.client.producer.producer import Producer
from flaremq.model.message import Message
from flaremq.testing.clock import ManualClock
from flaremq.testing.cluster import eventually
from flaremq.testing.embedded import EmbeddedThread

ROOT = Path(__file__).parent.parent.parent
TABLES = ("CREATE TABLE bills (body VARCHAR(50))", "CREATE TABLE balance (total INTEGER)")


class Database:
    """A database of the user, of either kind."""

    def __init__(self, where: str) -> None:
        self.where = where

    def connect(self) -> Any:
        return opened(self.where)[0]

    @property
    def module(self) -> Any:
        connection, module = opened(self.where)
        connection.close()
        assert module_of(connection) is module
        return module

    def run(self, *statements: str) -> None:
        connection = self.connect()
        for statement in statements:
            connection.cursor().execute(statement)
        connection.commit()
        connection.close()

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        connection = self.connect()
        found = connection.cursor().execute(sql).fetchall()
        connection.close()
        return [tuple(row) for row in found]

    def bills(self) -> list[str]:
        return sorted(body for (body,) in self.rows("SELECT body FROM bills"))


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with running_postgres() as where:
        yield where


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    if request.param == "sqlite":
        found = Database(str(tmp_path / "shop.db"))
    else:
        found = Database(request.getfixturevalue("postgres"))
        found.run(*(f"DROP TABLE IF EXISTS {name}" for name in ("bills", "balance", "flaremq_inbox")))
    found.run(*TABLES, "INSERT INTO balance VALUES (0)")
    return found


@pytest.fixture
def inbox(database: Database) -> Iterator[Inbox[Any]]:
    with Inbox(database.connect, "billing") as made:
        made.create_table()
        yield made


def bill(message: ReceivedMessage, db: Any) -> str:
    db.cursor().execute(f"INSERT INTO bills VALUES ('{message.body.decode()}')")
    return "billed"


# One process.


def test_a_message_is_handled_once_however_often_it_comes(inbox: Inbox[Any], database: Database) -> None:
    handle = inbox.handler(bill)
    assert handle(a_received(b"a", "A")) == "billed"
    assert handle(a_received(b"a", "A")) is None
    assert handle(a_received(b"b", "B")) == "billed"
    assert database.bills() == ["a", "b"]


def test_groups_do_not_share_what_they_have_handled(inbox: Inbox[Any], database: Database) -> None:
    with Inbox(database.connect, "shipping") as other:
        for each in (inbox, other, inbox, other):
            each.once(bill)(a_received(b"a", "A"))
    assert database.bills() == ["a", "a"]


@pytest.mark.parametrize("ending", ["raises", "later"])
def test_what_fails_leaves_nothing_and_is_handled_when_it_comes_again(
    inbox: Inbox[Any], database: Database, ending: str
) -> None:
    outcomes = [ending, "ends well"]

    @inbox.handler
    def handle(message: ReceivedMessage, db: Any) -> Later | None:
        bill(message, db)
        outcome = outcomes.pop(0)
        if outcome == "raises":
            raise RuntimeError("no")
        return Later("not yet") if outcome == "later" else None

    if ending == "raises":
        with pytest.raises(RuntimeError, match="no"):
            handle(a_received())
    else:
        assert isinstance(handle(a_received()), Later)
    assert database.bills() == []
    handle(a_received())
    assert database.bills() == ["x"]


def test_a_constraint_of_your_own_is_an_error_and_not_a_duplicate(
    inbox: Inbox[Any], database: Database
) -> None:
    database.run("CREATE TABLE IF NOT EXISTS one (n INTEGER PRIMARY KEY)", "DELETE FROM one")

    @inbox.handler
    def handle(message: ReceivedMessage, db: Any) -> None:
        db.cursor().execute("INSERT INTO one VALUES (1)")

    handle(a_received(message_id="A"))
    with pytest.raises(database.module.IntegrityError):
        handle(a_received(message_id="B"))
    assert database.rows("SELECT message_key FROM flaremq_inbox") == [("A",)]


def test_a_table_that_refuses_the_id_for_another_reason_is_an_error(
    database: Database, tmp_path: Path
) -> None:
    database.run("DROP TABLE IF EXISTS picky")
    database.run(
        "CREATE TABLE picky (consumer_group VARCHAR(255), message_key VARCHAR(255), handled_ms BIGINT, "
        "CHECK (message_key <> 'B'))"
    )
    error = database.module.IntegrityError
    with Inbox(database.connect, "billing", table="picky") as inbox, pytest.raises(error):
        inbox.handler(bill)(a_received(message_id="B"))


def test_the_key_may_be_your_own(inbox: Inbox[Any], database: Database) -> None:
    with Inbox(database.connect, "billing", key=lambda message: message.keys[0]) as by_order:
        handle = by_order.handler(bill)
        handle(a_received(b"a", "A", KEYS="order-1"))
        handle(a_received(b"b", "B", KEYS="order-1"))
    assert database.bills() == ["a"]


@pytest.mark.parametrize("wrong", ["", "x" * (KEY_LENGTH_MAX + 1), 7])
def test_a_key_that_cannot_be_one_is_refused(wrong: Any) -> None:
    inbox = Inbox(lambda: sqlite3.connect(":memory:"), "g", key=lambda _: wrong)
    with pytest.raises(UsageError, match=r"inbox key .*: expected text of 1 to 255 characters"):
        inbox.handler(bill)(a_received())


def test_two_deliveries_at_the_same_time_are_handled_once(inbox: Inbox[Any], database: Database) -> None:
    inside, go_on, calls = threading.Event(), threading.Event(), []

    @inbox.handler
    def handle(message: ReceivedMessage, db: Any) -> None:
        calls.append(threading.get_ident())
        bill(message, db)
        inside.set()
        go_on.wait(20)

    threads = [threading.Thread(target=handle, args=[a_received()]) for _ in range(2)]
    threads[0].start()
    assert inside.wait(20)
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join(30)
    assert len(calls) == 1 and database.bills() == ["x"]


def test_old_ids_are_forgotten(database: Database) -> None:
    clock = ManualClock()
    with Inbox(database.connect, "billing", clock=clock) as inbox:
        inbox.create_table()
        inbox.create_table()
        handle = inbox.handler(bill)
        handle(a_received(message_id="old"))
        clock.advance_ms(3_600_000)
        handle(a_received(message_id="new"))
        assert inbox.forget(older_than_s=1800) == 1
        assert database.rows("SELECT message_key FROM flaremq_inbox") == [("new",)]
        with pytest.raises(UsageError, match="older_than_s=0: expected more than 0"):
            inbox.forget(0)


def test_a_broken_connection_is_replaced(database: Database) -> None:
    made: list[Any] = []

    def connect() -> Any:
        made.append(database.connect())
        return made[-1]

    with Inbox(connect, "billing") as inbox:
        inbox.create_table()
        handle = inbox.handler(bill)
        made[-1].close()
        handle(a_received())
        assert database.bills() == ["x"] and len(made) == 2
        handle(a_received(message_id="B"))
    assert len(made) == 2, "a connection is kept"


def test_a_pool_gets_every_connection_back(database: Database) -> None:
    lent: list[Any] = []

    def connect() -> Any:
        lent.append(database.connect())
        return lent[-1]

    def release(connection: Any) -> None:
        lent.remove(connection)
        connection.close()

    inbox = Inbox(connect, "billing", release=release)
    inbox.create_table()

    @inbox.handler
    def handle(message: ReceivedMessage, db: Any) -> None:
        assert lent == [db]
        if message.body == b"bad":
            raise RuntimeError("no")

    handle(a_received())
    handle(a_received())
    with pytest.raises(RuntimeError):
        handle(a_received(b"bad", "B"))
    assert lent == []


# Misuse.


def test_a_connection_that_commits_by_itself_is_refused(tmp_path: Path) -> None:
    inbox = Inbox(lambda: sqlite3.connect(tmp_path / "x", isolation_level=None), "g")
    with pytest.raises(UsageError, match=r"commits every statement by itself .*: expected one with trans"):
        inbox.create_table()
    told: Any = SimpleNamespace(autocommit=lambda: None, get_autocommit=lambda: True, close=lambda: None)
    with pytest.raises(UsageError, match="commits every statement"):
        Inbox(lambda: told, "g", module=sqlite3).create_table()


def test_misuse_is_told_at_once(tmp_path: Path) -> None:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(tmp_path / "x")

    async def handler(message: ReceivedMessage, db: sqlite3.Connection) -> None: ...

    with pytest.raises(UsageError, match="handler is async, but calls of a DB-API connection block"):
        Inbox(connect, "g").handler(handler)
    with pytest.raises(UsageError, match="table='a; DROP': expected a name of letters, digits and _"):
        Inbox(connect, "g", table="a; DROP")
    with pytest.raises(InvalidName):
        Inbox(connect, "no group")
    no_connection: Any = SimpleNamespace(close=lambda: None)
    with pytest.raises(UsageError, match="is not a connection of a DB-API module"):
        Inbox(lambda: no_connection, "g").create_table()
    with pytest.raises(UsageError, match="got list: use batch_max=1"):
        Inbox(connect, "g").handler(bill)([a_received()])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("style", "sql", "given"),
    [
        ("qmark", "VALUES (?, ?, ?)", ("g", "ID", 5)),
        ("format", "VALUES (%s, %s, %s)", ("g", "ID", 5)),
        ("numeric", "VALUES (:1, :2, :3)", ("g", "ID", 5)),
        ("named", "VALUES (:v1, :v2, :v3)", {"v1": "g", "v2": "ID", "v3": 5}),
        ("pyformat", "VALUES (%(v1)s, %(v2)s, %(v3)s)", {"v1": "g", "v2": "ID", "v3": 5}),
    ],
)
def test_parameters_are_written_as_the_module_wants_them(style: str, sql: str, given: object) -> None:
    ran: list[tuple[str, object]] = []
    cursor = SimpleNamespace(execute=lambda *words: ran.append(words))
    nothing: Any = SimpleNamespace(
        cursor=lambda: cursor, commit=lambda: None, rollback=lambda: None, close=lambda: None
    )
    module: Any = SimpleNamespace(paramstyle=style, IntegrityError=sqlite3.IntegrityError)
    inbox = Inbox(lambda: nothing, "g", module=module, clock=ManualClock(5))
    inbox.handler(lambda _message, _db: None)(a_received())
    ((text, values),) = ran
    assert text.endswith(sql) and values == given


# Kills.


def worker(database: Database, dies_at: int, *bodies: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "tests.client.inboxworker", database.where, str(dies_at), *bodies]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


STEPS = 5
"""Of one message: the insert into the inbox, two statements of the handler, commit and acknowledgement."""


@pytest.mark.parametrize("dies_at", range(STEPS))
def test_a_kill_before_any_statement_leaves_each_effect_once(
    database: Database, inbox: Inbox[Any], dies_at: int
) -> None:
    killed = worker(database, STEPS + dies_at, "a", "b")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    is_done = dies_at == 4
    assert database.bills() == (["a", "b"] if is_done else ["a"])
    steps = inboxworker.main(database.where, -1, ["b", "c"])  # What was not acknowledged comes again.
    assert steps == (3 if is_done else STEPS) + STEPS, "insert, look up, acknowledge"
    assert database.bills() == ["a", "b", "c"]
    assert database.rows("SELECT total FROM balance") == [(3,)]


CONSUMER = """
import sqlite3, sys
from flaremq import ConsumeFromWhere, ConsumerSettings
from flaremq.client.inbox import Inbox
from flaremq.client.sync import PushConsumer
namesrv, topic, database = sys.argv[1:]
inbox = Inbox(lambda: sqlite3.connect(database, timeout=30), "billing")
first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
consumer = PushConsumer("billing", namesrv, settings=ConsumerSettings(start_from=first, concurrency=4))

@consumer.subscribe(topic)
@inbox.handler
def handle(message, db):
    db.execute("INSERT INTO bills VALUES (?)", (message.body.decode(),))

consumer.run()
"""


@pytest.mark.slow
async def test_consumers_that_are_killed_again_and_again_bill_each_order_once(
    servers: EmbeddedThread, topic: str, tmp_path: Path
) -> None:
    database = Database(str(tmp_path / "shop.db"))
    database.run(*TABLES, "PRAGMA journal_mode=WAL")
    Inbox(database.connect, "billing").create_table()
    async with Producer("shop", servers.namesrv) as producer:
        await producer.send_many([Message(topic, b"%03d" % n) for n in range(300)])
    (tmp_path / "consumer.py").write_text(CONSUMER)
    words = [sys.executable, str(tmp_path / "consumer.py"), servers.namesrv, topic, database.where]
    for wanted in (20, 100, 300):
        process = subprocess.Popen(words)
        try:

            async def has_billed(wanted: int = wanted, alive: Any = process) -> bool:
                assert alive.poll() is None
                return len(await asyncio.to_thread(database.bills)) >= wanted

            await eventually(f"{wanted} orders are billed", has_billed, 60)
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
    assert database.bills() == [f"{n:03}" for n in range(300)]


# With consumers.


@pytest.mark.parametrize("kind", [PushConsumer, sync.PushConsumer], ids=["async", "blocking"])
async def test_both_kinds_of_consumers_run_it_in_threads(
    kind: Callable[..., Any], servers: EmbeddedThread, topic: str, tmp_path: Path
) -> None:
    database = Database(str(tmp_path / "shop.db"))
    database.run(*TABLES)
    inbox = Inbox(lambda: sqlite3.connect(database.where, timeout=30), "billing")
    inbox.create_table()
    consumer = kind(f"G-{topic}", servers.namesrv, settings=quick())
    consumer.subscribe(topic, inbox.handler(bill))
    async with Producer("shop", servers.namesrv) as producer:
        await producer.send_many([Message(topic, b"%d" % n) for n in range(20)])

    async def are_billed() -> bool:
        return len(await asyncio.to_thread(database.bills)) == 20

    if kind is PushConsumer:
        async with consumer:
            await eventually("all are billed", are_billed)
    else:
        with consumer:
            await eventually("all are billed", are_billed)
    inbox.close()
