"""A process that handles messages with an inbox, and dies before its n-th statement if told to.

    python -m tests.client.inboxworker DATABASE DIES_AT MESSAGE...

DATABASE is the path of an SQLite file, or a connection string of PostgreSQL. Every statement, commit and
acknowledgement counts; what happens before number DIES_AT is a real kill -9.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from types import ModuleType
from typing import Any

from flaremq.client.inbox import Inbox
from flaremq.client.message import ReceivedMessage, received
from flaremq.model.message import MessageQueue
from flaremq.model.properties import encode_properties
from flaremq.testing.fakes.builders import a_message, records_of


class Steps:
    """Counts steps, and dies before one of them."""

    def __init__(self, dies_at: int) -> None:
        self.count = 0
        self._dies_at = dies_at

    def step(self) -> None:
        if self.count == self._dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.count += 1


class CountedCursor:
    def __init__(self, inner: Any, steps: Steps) -> None:
        self._inner, self._steps = inner, steps

    def execute(self, *given: Any) -> Any:
        self._steps.step()
        return self._inner.execute(*given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class CountedConnection:
    def __init__(self, inner: Any, steps: Steps) -> None:
        self._inner, self._steps = inner, steps

    def cursor(self) -> Any:
        return CountedCursor(self._inner.cursor(), self._steps)

    def commit(self) -> None:
        self._steps.step()
        self._inner.commit()

    def rollback(self) -> None:
        self._inner.rollback()

    def close(self) -> None:
        self._inner.close()


def a_received(body: bytes = b"x", message_id: str = "ID", **more: str) -> ReceivedMessage:
    """A message as a consumer gets it, without a broker."""
    record = records_of([a_message(body, properties=encode_properties({"UNIQ_KEY": message_id, **more}))])
    (found,) = received(bytes(record), MessageQueue("TopicTest", "broker-a", 0))
    return found


def opened(database: str) -> tuple[Any, ModuleType]:
    if "=" in database:
        import psycopg

        return psycopg.connect(database), psycopg
    return sqlite3.connect(database), sqlite3


def main(database: str, dies_at: int, bodies: list[str]) -> int:
    steps = Steps(dies_at)
    connection, module = opened(database)
    connection.close()
    inbox = Inbox(lambda: CountedConnection(opened(database)[0], steps), "billing", module=module)

    @inbox.handler
    def handle(message: ReceivedMessage, db: CountedConnection) -> None:
        cursor = db.cursor()
        mark = "%s" if module is not sqlite3 else "?"
        cursor.execute(f"INSERT INTO bills (body) VALUES ({mark})", (message.body.decode(),))
        cursor.execute("UPDATE balance SET total = total + 1")

    for body in bodies:
        handle(a_received(body.encode(), f"ID-{body}"))
        steps.step()  # The acknowledgement.
    inbox.close()
    return steps.count


if __name__ == "__main__":
    print(main(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
