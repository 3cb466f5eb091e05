"""The inbox: a message changes your own database once, however often it is delivered.

    inbox = Inbox(lambda: sqlite3.connect("shop.db"), group="billing")
    inbox.create_table()

    @consumer.subscribe("Orders")
    @inbox.handler
    def bill(message: ReceivedMessage, db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO bills VALUES (?, ?)", (message.keys[0], 12))

    begin > insert the id into the inbox table > your handler > commit > acknowledge
            the id is there already: acknowledge         any exception: roll back, redelivered later

The id and your own changes are in one database transaction: both are stored or neither. If the process dies
before the commit, nothing has happened and the message is delivered again; if it dies after, the next
delivery finds the id. A second consumer that gets the same message at the same time waits at the insert until
the first has committed or rolled back.

The insert is the first statement of the transaction. So when it fails because the id is there, a rollback
loses nothing, and no dialect of SQL is needed: neither ON CONFLICT nor a savepoint, without which PostgreSQL
accepts no further statement. Whether the id really is there is looked up, because a constraint of your own
must not pass for it.

Any DB-API module will do (PEP 249). Its calls block, so handlers are plain functions: consumers run them in
threads, async consumers too. Each thread has a connection of its own, unless you give a pool.
"""

from __future__ import annotations

import functools
import inspect
import logging
import re
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any, Final, Generic, Protocol, Self, TypeVar

from flaremq.base.clock import Clock, SystemClock
from flaremq.base.errors import UsageError
from flaremq.client.consumer.outcome import Later
from flaremq.client.message import ReceivedMessage
from flaremq.model.names import check_group

log = logging.getLogger(__name__)

KEY_LENGTH_MAX: Final = 255
_TABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")
_PARAMETERS: Final = {
    "qmark": "?",
    "format": "%s",
    "pyformat": "%({name})s",
    "named": ":{name}",
    "numeric": ":{number}",
}


class DbConnection(Protocol):
    """A connection of a DB-API module."""

    def cursor(self) -> Any: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def close(self) -> None: ...


C = TypeVar("C", bound=DbConnection)


class Inbox(Generic[C]):
    """Messages that a consumer group has handled, in a table of your own database. Threads may share it."""

    def __init__(
        self,
        connect: Callable[[], C],
        group: str,
        *,
        table: str = "flaremq_inbox",
        key: Callable[[ReceivedMessage], str] | None = None,
        release: Callable[[C], None] | None = None,
        module: ModuleType | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`connect` opens a connection; each thread keeps one. For a pool give `release` as well: then each
        message takes a connection by `connect`, and gives it back.

        `key` says what makes two messages the same; by default it is `message.message_id`, which stays the
        same when a message is redelivered, or sent again by its producer. `module` is the DB-API module; give
        it if the class of your connections belongs to another one, as a wrapper does.
        """
        check_group(group)
        if not _TABLE.fullmatch(table):
            raise UsageError(f"table={table!r}: expected a name of letters, digits and _, or schema.name")
        self.group = group
        self.table = table
        self._connect = connect
        self._release = release
        self._key = key
        self._module = module
        self._clock = clock or SystemClock()
        self._own = threading.local()
        self._opened: dict[int, C] = {}
        self._lock = threading.Lock()

    @property
    def schema(self) -> str:
        """The SQL that creates the table, for your migrations."""
        return (
            f"CREATE TABLE {self.table} (consumer_group VARCHAR(255) NOT NULL, message_key VARCHAR(255) "
            "NOT NULL, handled_ms BIGINT NOT NULL, PRIMARY KEY (consumer_group, message_key))"
        )

    # Handling.

    def handler(self, function: Callable[[ReceivedMessage, C], Any]) -> Callable[[ReceivedMessage], Any]:
        """Decorate a handler `(message, connection)`; the result is a handler for `subscribe`.

        It must not commit or roll back itself. If it raises, or returns `Later`, its changes are rolled back
        and the message is redelivered.
        """
        call = getattr(function, "__call__", None)  # noqa: B004 - An object may have an async one.
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call):
            raise UsageError(
                f"{_name(function)} is async, but calls of a DB-API connection block: expected a plain "
                "function, which consumers run in a thread"
            )

        @functools.wraps(function)
        def handle(message: ReceivedMessage) -> Any:
            return self._handle(message, function)

        del handle.__wrapped__  # It has one parameter, not two.
        return handle

    once = handler

    def _handle(self, message: ReceivedMessage, function: Callable[[ReceivedMessage, C], Any]) -> Any:
        if not isinstance(message, ReceivedMessage):
            raise UsageError(
                f"an inbox handles one message at a time, and got {type(message).__name__}: use batch_max=1"
            )
        key = self._key_of(message)
        connection = self._claimed(key)
        if connection is None:
            log.debug("message %s was handled before by group %s", key, self.group)
            return None
        try:
            result = function(message, connection)
            if isinstance(result, Later):
                connection.rollback()
            else:
                connection.commit()
        except BaseException:
            self._give_up(connection)
            raise
        self._done(connection)
        return result

    def _key_of(self, message: ReceivedMessage) -> str:
        key = message.message_id if self._key is None else self._key(message)
        if not isinstance(key, str) or not 0 < len(key) <= KEY_LENGTH_MAX:
            raise UsageError(f"inbox key {key!r}: expected text of 1 to {KEY_LENGTH_MAX} characters")
        return key

    def _claimed(self, key: str) -> C | None:
        """A connection whose transaction has stored the key; None if the key was stored before."""
        kept: C | None = getattr(self._own, "connection", None)
        if kept is not None:
            try:
                return self._insert(kept, key)
            except Exception as error:  # noqa: BLE001 - Of any DB-API module.
                # Nothing was done in it yet. It may be broken, by a restart of the server for example.
                log.info("group %s: the inbox opens a new connection, because: %s", self.group, error)
                self._drop(kept)
        return self._insert(self._open(), key)

    def _insert(self, connection: C, key: str) -> C | None:
        try:
            columns = ("consumer_group", "message_key", "handled_ms")
            sql = f"INSERT INTO {self.table} ({', '.join(columns)}) VALUES ({{}}, {{}}, {{}})"
            try:
                self._execute(connection, sql, self.group, key, self._clock.now_ms())
            except self._module_of(connection).IntegrityError:
                connection.rollback()
                if not self._is_stored(connection, key):
                    raise
                self._done(connection)
                return None
        except BaseException:
            self._give_up(connection)
            raise
        return connection

    def _is_stored(self, connection: C, key: str) -> bool:
        sql = f"SELECT 1 FROM {self.table} WHERE consumer_group = {{}} AND message_key = {{}}"
        cursor = self._execute(connection, sql, self.group, key)
        found = cursor.fetchone() is not None
        cursor.close()
        connection.rollback()
        return found

    def _execute(self, connection: C, sql: str, *values: str | int) -> Any:
        style = self._module_of(connection).paramstyle
        names = [f"v{number}" for number in range(1, len(values) + 1)]
        marks = [_PARAMETERS[style].format(name=name, number=at) for at, name in enumerate(names, 1)]
        given: Any = dict(zip(names, values, strict=True)) if style in ("pyformat", "named") else values
        cursor = connection.cursor()
        cursor.execute(sql.format(*marks), given)
        return cursor

    # Upkeep.

    def create_table(self) -> None:
        """Create the table unless it is there."""
        connection = self._open()
        try:
            connection.cursor().execute(self.schema.replace("TABLE", "TABLE IF NOT EXISTS", 1))
            connection.commit()
        except BaseException:
            self._give_up(connection)
            raise
        self._done(connection)

    def forget(self, older_than_s: float) -> int:
        """Delete ids that were handled longer ago. Returns how many.

        A message that is delivered again after its id was deleted is handled again. So keep ids for longer
        than brokers keep messages (`fileReservedTime`, 72 hours by default).
        """
        if not older_than_s > 0:
            raise UsageError(f"older_than_s={older_than_s}: expected more than 0")
        connection = self._open()
        try:
            sql = f"DELETE FROM {self.table} WHERE consumer_group = {{}} AND handled_ms < {{}}"
            limit_ms = self._clock.now_ms() - int(older_than_s * 1000)
            deleted: int = self._execute(connection, sql, self.group, limit_ms).rowcount
            connection.commit()
        except BaseException:
            self._give_up(connection)
            raise
        self._done(connection)
        return deleted

    def close(self) -> None:
        """Close the connections that threads have kept. Stop the consumer first."""
        with self._lock:
            opened, self._opened = self._opened, {}
        self._own = threading.local()
        for connection in opened.values():
            _close(connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Connections.

    def _open(self) -> C:
        kept: C | None = getattr(self._own, "connection", None)
        if kept is not None:
            return kept
        connection = self._connect()
        try:
            self._module_of(connection)
            check_transactions(connection)
        except BaseException:
            self._done(connection) if self._release is not None else _close(connection)
            raise
        if self._release is None:
            self._own.connection = connection
            with self._lock:
                self._opened[id(connection)] = connection
        return connection

    def _module_of(self, connection: C) -> ModuleType:
        return self._module or module_of(connection)

    def _done(self, connection: C) -> None:
        if self._release is not None:
            self._release(connection)

    def _give_up(self, connection: C) -> None:
        """Roll back. A connection that cannot even do that is closed, and the next message gets a new one."""
        try:
            connection.rollback()
        except Exception:  # noqa: BLE001 - Of any DB-API module.
            self._drop(connection)
        self._done(connection)

    def _drop(self, connection: C) -> None:
        _close(connection)
        if getattr(self._own, "connection", None) is connection:
            del self._own.connection
        with self._lock:
            self._opened.pop(id(connection), None)


def check_transactions(connection: object) -> None:
    """Raises UsageError if a connection commits each statement by itself: then nothing happens together."""
    asked = getattr(connection, "get_autocommit", None)  # PyMySQL
    commits = getattr(connection, "autocommit", None) is True or (callable(asked) and asked() is True)
    if commits or (
        getattr(connection, "isolation_level", "") is None and hasattr(connection, "in_transaction")
    ):
        raise UsageError(
            "the connection commits every statement by itself (autocommit=True, or isolation_level=None of "
            "sqlite3): expected one with transactions, which is the default of DB-API modules"
        )


def module_of(connection: object) -> ModuleType:
    """The DB-API module of a connection, by the place of its class. Raises UsageError."""
    for cls in type(connection).__mro__:
        parts = cls.__module__.split(".")
        for end in range(len(parts), 0, -1):
            module = sys.modules.get(".".join(parts[:end]))
            if getattr(module, "paramstyle", None) in _PARAMETERS and hasattr(module, "IntegrityError"):
                assert module is not None
                return module
    raise UsageError(
        f"{type(connection).__module__}.{type(connection).__qualname__} is not a connection of a DB-API "
        "module: expected one, for example of sqlite3 or psycopg; for a wrapper, give module=..."
    )


def _close(connection: DbConnection) -> None:
    with suppress(Exception):  # It is broken, or belongs to another thread.
        connection.close()


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", repr(function))
