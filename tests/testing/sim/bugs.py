"""Planted bugs: each is a patch of the product that breaks one promise, and the check that must notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from flaremq.base.errors import FlushFailed
from flaremq.base.files import BackedFile
from flaremq.broker.delay.firing import Firing
from flaremq.broker.delay.levels import DelayedMessages
from flaremq.broker.replicas.replication import Replication
from flaremq.broker.send.acks import Mark
from flaremq.broker.send.deduplication import Deduplication
from flaremq.broker.tables.topics import TopicConfigs
from flaremq.client.api import Api
from flaremq.client.consumer.assignment import Assignment
from flaremq.client.consumer.concurrent import Concurrent
from flaremq.client.consumer.orderly import Orderly
from flaremq.client.consumer.rebalance import Rebalancer
from flaremq.client.message import Decision
from flaremq.client.producer.transaction import TransactionProducer
from flaremq.ha.acks import SlaveAcks
from flaremq.ha.master import SlaveConnection
from flaremq.protocol.codes import ResponseCode
from flaremq.store.commitlog import CommitLog
from flaremq.store.flush import LogFlusher
from flaremq.store.follow import FollowingLog
from flaremq.store.store import MessageStore
from flaremq.store.timer.timerfiles import TimerFiles
from flaremq.testing.fakes.disk import FaultyDisk
from flaremq.testing.sim.disk import SimDisk

Patch = pytest.MonkeyPatch


def answer_before_flush(patch: Patch) -> None:
    plain = Replication.marks

    def marks(self: Replication) -> Iterator[Mark]:
        return (mark for mark in plain(self) if mark.late != ResponseCode.FLUSH_DISK_TIMEOUT)

    patch.setattr(Replication, "marks", marks)


def folder_sync_lost(patch: Patch) -> None:
    patch.setattr(SimDisk, "sync_folder", FaultyDisk.sync_folder)


def offset_before_its_message(patch: Patch) -> None:
    plain = Api.commit

    async def commit(self: Api, address: str, group: str, queue: Any, offset: int, **other: Any) -> None:
        await plain(self, address, group, queue, offset + 1, **other)

    patch.setattr(Api, "commit", commit)


class _Ahead:
    def __init__(self, clock: Any) -> None:
        self._clock = clock
        self.monotonic_s = clock.monotonic_s

    def now_ms(self) -> int:
        return int(self._clock.now_ms()) + 700


def delivered_early(patch: Patch) -> None:
    plain = DelayedMessages.__init__

    def init(self: DelayedMessages, *given: Any, **named: Any) -> None:
        plain(self, *given, **named)
        self._clock = _Ahead(self._clock)

    patch.setattr(DelayedMessages, "__init__", init)


def rollback_commits(patch: Patch) -> None:
    plain = TransactionProducer.end

    async def end(self: TransactionProducer, transaction: Any) -> None:
        if transaction.decision is Decision.ROLLBACK:
            transaction.decision = Decision.COMMIT
        await plain(self, transaction)

    patch.setattr(TransactionProducer, "end", end)


def failed_sync_counts_as_done(patch: Patch) -> None:
    """Found only where recovery does not write the tail of the log once more: that makes it good."""
    recovery_leaves_the_tail(patch)
    plain = CommitLog.flush

    def flush(self: CommitLog, least_pages: int) -> None:
        try:
            plain(self, least_pages)
        except FlushFailed:
            self.flushed.advance(self.readable_end)

    patch.setattr(CommitLog, "flush", flush)


def topic_not_saved(patch: Patch) -> None:
    async def save(_self: TopicConfigs) -> None: ...

    patch.setattr(TopicConfigs, "save", save)
    patch.setattr(TopicConfigs, "settle", save)


def retry_forgotten(patch: Patch) -> None:
    async def send_back(_self: Api, _address: str, _header: Any) -> bool:
        return True

    patch.setattr(Api, "send_back", send_back)


# What a crash leaves, and recovery.


def recovery_leaves_the_tail(patch: Patch) -> None:
    patch.setattr(CommitLog, "_write_again", staticmethod(lambda _file, _at: None))


def full_file_not_synced(patch: Patch) -> None:
    def flush(self: CommitLog, _least_pages: int) -> None:
        file = self.files.files[-1]
        if file.flushed < file.committed:
            self.flushed.advance(file.offset + file.flush())

    patch.setattr(CommitLog, "flush", flush)


def windows_of_producers_not_read_again(patch: Patch) -> None:
    patch.setattr(Deduplication, "rebuild", lambda _self: None)


def first_send_forgotten(patch: Patch) -> None:
    patch.setattr(Deduplication, "first", lambda _self, *_given: None)


# Consumers.


def queue_without_owner(patch: Patch) -> None:
    plain = Rebalancer._share

    async def share(self: Rebalancer, route: Any) -> Any:
        mine = await plain(self, route)
        return mine[:-1] if mine else mine

    patch.setattr(Rebalancer, "_share", share)


def ordered_without_locks(patch: Patch) -> None:
    patch.setattr(Assignment, "_locks_queues", False)


def failure_counts_as_consumed(patch: Patch) -> None:
    plain = Concurrent.settle

    def settle(self: Concurrent, run: Any, _failures: Any) -> None:
        plain(self, run, [])

    patch.setattr(Concurrent, "settle", settle)


def ordered_failure_counts_as_consumed(patch: Patch) -> None:
    plain = Orderly.settle

    def settle(self: Orderly, run: Any, _failures: Any) -> None:
        plain(self, run, [])

    patch.setattr(Orderly, "settle", settle)


# Replication.


def slave_reports_what_is_not_synced(patch: Patch) -> None:
    patch.setattr(FollowingLog, "safe_end", property(lambda self: self._store.log.end))


def piece_not_sent(patch: Patch) -> None:
    plain = SlaveConnection._send

    def send(self: SlaveConnection, offset: int, piece: memoryview) -> None:
        if len(piece) < 2000:
            plain(self, offset, piece)

    patch.setattr(SlaveConnection, "_send", send)


def answer_without_a_slave(patch: Patch) -> None:
    patch.setattr(Replication, "marks", lambda _self: iter(()))


def ack_counted_before_it_came(patch: Patch) -> None:
    plain = SlaveConnection.pump

    def pump(self: SlaveConnection) -> None:
        plain(self)
        if self.acked >= 0:
            self.acked = self._next
            self._master.acks.moved()

    patch.setattr(SlaveConnection, "pump", pump)


def byte_changed_on_the_way(patch: Patch) -> None:
    plain = MessageStore.append_raw

    def append_raw(self: MessageStore, physical_offset: int, data: memoryview) -> None:
        other = memoryview(bytes(data[:-1]) + b"?")
        plain(self, physical_offset, other if len(data) > 2000 else data)

    patch.setattr(MessageStore, "append_raw", append_raw)


def one_slave_counted_twice(patch: Patch) -> None:
    """Each of its connections counts, also one that its machine has left behind."""

    def positions(self: SlaveAcks) -> dict[str, int]:
        return {each.address: each.acked for each in self._connections if each.acked >= 0}  # type: ignore[attr-defined]

    patch.setattr(SlaveAcks, "_positions", positions)


def checkpoint_ahead_of_its_data(patch: Patch) -> None:
    """It says that the log is on the disk before it is: recovery does not write its tail again."""
    plain = LogFlusher.flush

    def flush(self: LogFlusher, least_pages: int) -> None:
        self._checkpoint.log_time_ms = self._log.last_store_ms + 1
        self._checkpoint.flush()
        plain(self, least_pages)

    patch.setattr(LogFlusher, "flush", flush)


def shown_before_it_is_synced(patch: Patch) -> None:
    """Consumers and slaves are given what the disk of the master does not have."""
    plain = CommitLog.__init__

    def init(self: CommitLog, *given: Any, **named: Any) -> None:
        plain(self, *given, **named)
        self._confirms_flushed = False

    patch.setattr(CommitLog, "__init__", init)


# Tables and timers.


def older_table_loaded(patch: Patch) -> None:
    """A broker begins with the tables before the last ones: topics and offsets as they were some time ago."""
    plain = BackedFile.load_as

    def load_as(self: BackedFile, parse: Callable[[bytes], Any]) -> Any:
        self.path, self.backup = self.backup, self.path
        try:
            return plain(self, parse)
        finally:
            self.path, self.backup = self.backup, self.path

    patch.setattr(BackedFile, "load_as", load_as)


def wheel_not_made_again(patch: Patch) -> None:
    """What waits in the timer log after a crash has no place in the wheel."""
    plain = TimerFiles._rebuild

    def rebuild(self: TimerFiles, *given: Any) -> Any:
        counted = plain(self, *given)
        self.wheel.wipe()
        return counted

    patch.setattr(TimerFiles, "_rebuild", rebuild)


def cancel_ignored(patch: Patch) -> None:
    patch.setattr(Firing, "_is_cancelled", lambda _self, _stored: False)


@dataclass(frozen=True)
class PlantedBug:
    plant: Callable[[Patch], None]
    checks: frozenset[str]
    """The checks that may notice it first."""
    seed: int
    """The quickest seed that does."""

    @property
    def name(self) -> str:
        return self.plant.__name__


COPIES = frozenset({"no copy", "other bytes", "other messages", "slave behind", "slave refused", "verify"})
LOST = frozenset({"lost send", "not consumed", "unread", "two values", "poll order", "moved send"})

PLANTED = [
    PlantedBug(answer_before_flush, LOST, 30),
    PlantedBug(folder_sync_lost, LOST | {"lost topic"}, 1),
    PlantedBug(offset_before_its_message, LOST | {"fifo", "offset ahead"}, 4),
    PlantedBug(delivered_early, frozenset({"early"}), 4),
    PlantedBug(rollback_commits, frozenset({"rolled back"}), 1),
    PlantedBug(topic_not_saved, frozenset({"lost topic"}), 0),
    PlantedBug(failed_sync_counts_as_done, LOST | {"offset ahead"}, 4),
    PlantedBug(retry_forgotten, LOST, 3),
    PlantedBug(full_file_not_synced, LOST | {"verify"}, 182),
    PlantedBug(windows_of_producers_not_read_again, frozenset({"stored twice"}), 128),
    PlantedBug(first_send_forgotten, frozenset({"stored twice"}), 0),
    PlantedBug(queue_without_owner, LOST, 225),
    PlantedBug(ordered_without_locks, LOST | {"fifo"}, 225),
    PlantedBug(failure_counts_as_consumed, LOST, 179),
    PlantedBug(ordered_failure_counts_as_consumed, LOST | {"fifo"}, 179),
    PlantedBug(slave_reports_what_is_not_synced, COPIES, 126),
    PlantedBug(piece_not_sent, COPIES, 218),
    PlantedBug(answer_without_a_slave, COPIES, 2),
    PlantedBug(ack_counted_before_it_came, COPIES, 2),
    PlantedBug(byte_changed_on_the_way, COPIES, 2),
    PlantedBug(one_slave_counted_twice, frozenset({"no copy"}), 21),
    PlantedBug(checkpoint_ahead_of_its_data, LOST | COPIES, 8),
    PlantedBug(shown_before_it_is_synced, LOST | COPIES, 43),
    PlantedBug(older_table_loaded, frozenset({"offset back", "lost topic"}), 7),
    PlantedBug(wheel_not_made_again, LOST, 272),
    PlantedBug(cancel_ignored, frozenset({"cancelled"}), 151),
]
