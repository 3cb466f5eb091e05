"""A stream from topic to topic, killed again and again: nothing is lost, repeats are known by their ids.

    FLAREMQ_KILL_MESSAGES, FLAREMQ_KILL_ROUNDS   make it longer (see kills.py)

How many copies came twice is printed (`pytest -s`), and is a property of the test in reports.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.spark.kills import BATCH, MESSAGES, TIMEOUT_S, TOPIC, Place, Run, check_same, newest
from tests.spark.servers import send

from flaremq.admin.admin import Admin
from flaremq.base.errors import FlareError
from flaremq.model.message import Message
from flaremq.spark.clients import close_links
from flaremq.spark.launch.java import Java
from flaremq.spark.read.batch import BatchReader
from flaremq.spark.read.options import ReadOptions
from flaremq.spark.schema import spark_schema

COPIES = "Copies"
LAST = "Last"
Record = Callable[[str, object], None]
COLUMNS = ("queueId", "queueOffset", "msgId", "body")


class Copying(Run):
    module = "tests.spark.write.sinkdriver"
    topics = (TOPIC, COPIES, LAST)

    def __init__(self, folder: Path, master: str, delivery: str) -> None:
        super().__init__(folder, master)
        self._delivery = delivery
        self._checkpoint = folder / "checkpoint"
        self._known = (-1, 0)

    def said(self) -> dict[str, object]:
        return {
            "from": TOPIC,
            "to": COPIES,
            "checkpoint": str(self._checkpoint),
            "delivery": self._delivery,
            "rate": BATCH,  # Of each of two tasks: half a second for a batch, to be killed in.
        }

    def done(self) -> int:
        """By what Spark has written down of the last batch that ended: repeats do not count."""
        batch = newest(self._checkpoint / "commits")
        if batch > self._known[0]:
            ends = json.loads((self._checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1])
            self._known = batch, sum(ends["q"].values())
        return self._known[1]

    async def moment(self) -> None:
        """A batch is under way, and some of it has been stored."""
        first: dict[int, int] = {}
        async with Admin(self.namesrv) as admin:

            async def is_so() -> bool:
                self.look()
                batch = newest(self._checkpoint / "offsets")
                if batch <= newest(self._checkpoint / "commits"):
                    return False
                with suppress(FlareError):
                    stored = sum(each.max_offset for each in (await admin.topics.stats(COPIES)).queues)
                    return stored > first.setdefault(batch, stored)
                return False

            await self.until("a batch is being sent", is_so)

    def stored(self, topic: str) -> Iterator[tuple[int, int, str, bytes]]:
        """All that a topic holds: queue, offset, id and body."""
        try:
            given = {"nameServer": self.namesrv, "topic": topic, "columns": ",".join(COLUMNS)}
            reader = BatchReader(ReadOptions.of(given, streaming=False), spark_schema(COLUMNS))
            for task in reader.partitions():
                for batch in reader.read(task):
                    yield from zip(*(batch.column(name).to_pylist() for name in COLUMNS), strict=True)
        finally:
            close_links()


def check_nothing_is_lost(run: Copying) -> list[tuple[str, bytes]]:
    """Every message of the first topic has a copy, and there is no copy of anything else; ids and bodies."""
    send(run.namesrv, [Message(LAST, b"x")])  # Queues get what was stored before it no later than it.
    lying: dict[Place, int] = {(queue, at): int(body) for queue, at, _, body in run.stored(TOPIC)}
    assert not run.sender.acknowledged.items() - lying.items()
    assert len(run.sender.acknowledged) >= MESSAGES
    copies = [(name, body) for _, _, name, body in run.stored(COPIES)]
    wanted = {b"%d %d %010d" % (*place, number) for place, number in lying.items()}
    check_same({body for _, body in copies}, wanted)
    return copies


def told(record: Record, run: Copying, copies: list[tuple[str, bytes]]) -> int:
    """How many copies there are besides the first ones."""
    repeats = len(copies) - len({body for _, body in copies})
    record("repeats", repeats)
    print(f"{repeats} of {len(copies)} copies came twice; killed: {', '.join(run.killed)}")
    return repeats


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize(
    ("master", "victims"),
    [
        ("local[2]", ["driver", "broker", "worker", "jvm"]),
        ("local-cluster[2,1,1024]", ["executor", "driver", "worker", "broker", "jvm"]),
    ],
)
def test_copies_that_came_twice_have_one_id_and_others_never_share_one(
    java: Java,
    tmp_path: Path,
    record_property: Record,
    master: str,
    victims: list[str],
) -> None:
    with Copying(tmp_path, master, "idempotent") as run:
        asyncio.run(run.play(victims))
        copies = check_nothing_is_lost(run)
    repeats, different = told(record_property, run, copies), set(copies)
    assert len({body for _, body in different}) == len(different), "one message has copies with two ids"
    assert len({name for name, _ in different}) == len(different), "two messages have copies with one id"
    assert repeats > 0, "nothing came twice, so nothing was tried"


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S)
def test_nothing_is_lost_where_ids_are_new_each_time(
    java: Java, tmp_path: Path, record_property: Record
) -> None:
    with Copying(tmp_path, "local[2]", "at-least-once") as run:
        asyncio.run(run.play(["driver", "broker", "worker", "jvm"]))
        copies = check_nothing_is_lost(run)
    told(record_property, run, copies)
    # What the test above finds is not so by itself: here a message that came twice has two ids.
    assert len(set(copies)) > len({body for _, body in copies})
