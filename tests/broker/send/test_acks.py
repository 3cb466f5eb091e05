"""Answers that wait for the disk: given in order, once, and never before their time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from flaremq.base.errors import FlushFailed
from flaremq.base.watermark import Watermark
from flaremq.broker.send.acks import Acks, Mark
from flaremq.protocol.codes import ResponseCode
from flaremq.store.settings import FlushDisk
from flaremq.store.store import MessageStore
from flaremq.testing.clock import settle
from flaremq.testing.fakes.builders import small_settings


class Bench:
    def __init__(self, store: MessageStore) -> None:
        self.store = store
        timeout_s = store.settings.sync_flush_timeout_ms / 1000
        mark = Mark(store.flushed, late=ResponseCode.FLUSH_DISK_TIMEOUT, timeout_s=timeout_s)
        self.waits = Acks([mark], lambda: store.show(wait=False))
        self.told: list[tuple[str, int]] = []

    def hold(self, name: str, end: int) -> None:
        self.waits.hold(end, lambda code: self.told.append((name, code)))


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    store = MessageStore(
        small_settings(tmp_path, flush_disk=FlushDisk.SYNC_FLUSH, sync_flush_timeout_ms=50),
        owner_dispatches=True,
    )
    store.open()
    bench = Bench(store)
    try:
        yield bench
    finally:
        bench.waits.close()
        store.close()


async def test_they_are_given_in_order_as_far_as_the_log_is_safe(bench: Bench) -> None:
    bench.hold("first", 100)
    bench.hold("second", 200)
    bench.store.flushed.advance(150)
    await settle()
    assert bench.told == [("first", ResponseCode.SUCCESS)]
    bench.store.flushed.advance(200)
    await settle()
    assert bench.told == [("first", 0), ("second", 0)]
    assert len(bench.waits) == 0


async def test_what_is_safe_already_need_not_wait(bench: Bench) -> None:
    bench.store.flushed.advance(500)
    bench.hold("late", 400)
    assert bench.told == [("late", ResponseCode.SUCCESS)]


async def test_whoever_waits_too_long_is_told_so(bench: Bench) -> None:
    bench.hold("slow", 100)
    await asyncio.wait_for(bench.waits.drain(), 60)
    assert bench.told == [("slow", ResponseCode.FLUSH_DISK_TIMEOUT)]


async def test_a_disk_that_failed_vouches_for_nothing(bench: Bench) -> None:
    bench.hold("lost", 100)
    bench.store.flushed.fail(FlushFailed("no"))
    bench.hold("later", 200)
    assert bench.told == [("lost", ResponseCode.SYSTEM_ERROR), ("later", ResponseCode.SYSTEM_ERROR)]


async def test_an_answer_that_cannot_be_given_keeps_back_no_other(bench: Bench) -> None:
    def broken(_code: int) -> None:
        raise RuntimeError("a bug")

    bench.waits.hold(100, broken)
    bench.hold("other", 100)
    bench.store.flushed.advance(100)
    await settle()
    assert bench.told == [("other", ResponseCode.SUCCESS)]


async def test_draining_waits_for_the_last_of_them(bench: Bench) -> None:
    bench.hold("one", 100)
    drained = asyncio.create_task(bench.waits.drain())
    await settle()
    assert not drained.done()
    bench.store.flushed.advance(100)
    await asyncio.wait_for(drained, 60)


class Marks:
    """A disk and a slave."""

    def __init__(self, *, disk_s: float = 0.05, slave_s: float = 0.05, **slave: Any) -> None:
        self.disk, self.slave = Watermark(), Watermark()
        self.shown = 0
        self.told: list[tuple[str, int]] = []
        self.acks = Acks(
            [
                Mark(self.disk, late=ResponseCode.FLUSH_DISK_TIMEOUT, timeout_s=disk_s),
                Mark(self.slave, late=ResponseCode.FLUSH_SLAVE_TIMEOUT, timeout_s=slave_s, **slave),
            ],
            self._show,
        )

    def _show(self) -> None:
        self.shown += 1

    def hold(self, name: str, end: int) -> None:
        self.acks.hold(end, lambda code: self.told.append((name, code)))


async def test_an_answer_waits_for_every_mark() -> None:
    marks = Marks()
    marks.hold("a", 100)
    marks.disk.advance(100)
    await settle()
    assert marks.told == [] and marks.shown == 0
    marks.slave.advance(150)
    await settle()
    assert marks.told == [("a", ResponseCode.SUCCESS)] and marks.shown == 1


@pytest.mark.parametrize(
    ("disk", "slave", "code"),
    [
        (0, 100, ResponseCode.FLUSH_DISK_TIMEOUT),
        (100, 0, ResponseCode.FLUSH_SLAVE_TIMEOUT),
        (0, 0, ResponseCode.FLUSH_SLAVE_TIMEOUT),
    ],
)
async def test_the_mark_that_is_late_gives_the_answer_and_slaves_outrank_the_disk(
    disk: int, slave: int, code: int
) -> None:
    marks = Marks()
    marks.hold("a", 100)
    marks.disk.advance(disk)
    marks.slave.advance(slave)
    await asyncio.wait_for(marks.acks.drain(), 60)
    assert marks.told == [("a", code)]


async def test_a_mark_that_failed_ends_the_wait_with_its_own_code() -> None:
    marks = Marks(failed=ResponseCode.SLAVE_NOT_AVAILABLE)
    marks.hold("a", 100)
    marks.disk.advance(100)
    marks.slave.fail(FlushFailed("the slave is gone"))
    marks.hold("b", 200)
    assert marks.told == [("a", ResponseCode.SLAVE_NOT_AVAILABLE), ("b", ResponseCode.SLAVE_NOT_AVAILABLE)]


async def test_where_waiting_for_slaves_makes_no_sense_the_answer_waits_for_the_disk_alone() -> None:
    marks = Marks(absent=lambda _end: ResponseCode.SLAVE_NOT_AVAILABLE)
    marks.hold("a", 100)
    assert marks.told == []
    marks.disk.advance(100)
    await settle()
    assert marks.told == [("a", ResponseCode.SLAVE_NOT_AVAILABLE)] and len(marks.acks) == 0


async def test_each_wait_ends_by_its_own_deadline() -> None:
    marks = Marks(disk_s=60.0, slave_s=0.02)
    marks.hold("a", 100)
    marks.hold("b", 100)
    while marks.acks.waits_for(marks.slave):
        await asyncio.sleep(0)
    assert marks.told == []  # The disk has time.
    marks.disk.advance(100)
    await settle()
    assert marks.told == [("a", ResponseCode.FLUSH_SLAVE_TIMEOUT), ("b", ResponseCode.FLUSH_SLAVE_TIMEOUT)]


async def test_an_answer_without_a_slave_does_not_wait_behind_one_that_had_one() -> None:
    absent: list[ResponseCode | None] = [None]
    marks = Marks(slave_s=60.0, absent=lambda _end: absent[0])
    marks.hold("had one", 100)
    absent[0] = ResponseCode.SLAVE_NOT_AVAILABLE
    marks.hold("has none", 200)
    marks.disk.advance(200)
    await settle()
    assert marks.told == [("has none", ResponseCode.SLAVE_NOT_AVAILABLE)]


async def test_without_marks_nothing_need_wait() -> None:
    assert not Acks([], lambda: None).needed
