"""Planted bugs of Raft groups of real brokers: what the rules alone (tests/dledger/group_bugs.py) cannot
show, and those of the rules that clients would see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.dledger.group_bugs import (
    acknowledged_before_it_is_synced,
    lease_off,
    shorter_log_may_lead,
    stale_leader_not_fenced,
)
from tests.testing.sim.bugs import LOST, Patch, PlantedBug, windows_of_producers_not_read_again

from flaremq.base.errors import NotWritable
from flaremq.broker.replicas.raftside import RaftSide
from flaremq.broker.replicas.tablewriter import TableWriter
from flaremq.dledger.ledger.entrylog import EntryLog
from flaremq.dledger.ledger.storeledger import StoreLedger
from flaremq.dledger.node import MemberNode
from flaremq.dledger.types import Standing
from flaremq.store.store import MessageStore
from flaremq.testing.sim.groupchecks import GroupChecks
from flaremq.testing.sim.offsetwatch import OffsetWatch
from flaremq.testing.sim.queueends import QueueEnds


def dispatched_beyond_the_commit_index(patch: Patch) -> None:
    """Readers see what the group may still give up; queues follow when it is."""
    truncated_without_the_queues(patch)

    def truncate_from(self: StoreLedger, index: int) -> None:
        unit = self._log.unit(index)
        with self._store.giving_up():
            end = self._log.last_end if unit is None else unit.position

            def give_up() -> None:
                self._store.queues.truncate(end)
                self._log.give_up(index)

            self._store.dispatcher.rewind(end, give_up)

    patch.setattr(StoreLedger, "truncate_from", truncate_from)


def truncated_without_the_queues(patch: Patch) -> None:
    """A follower that gives up entries keeps their units in its queues."""
    patch.setattr(EntryLog, "confirmed", property(lambda self: self.readable_end))


def answered_before_the_group_has_decided(patch: Patch) -> None:
    patch.setattr(RaftSide, "marks", lambda _self: iter(()))


def deposed_leader_answers_with_success(patch: Patch) -> None:
    patch.setattr(RaftSide, "deposed", lambda self: self._committed.advance(self._store.log.end))


def lease_off_and_only_clients_watch(patch: Patch) -> None:
    """Who was deposed answers on, and nobody looks into the members."""
    lease_off(patch)
    for watch in (GroupChecks, OffsetWatch, QueueEnds):
        patch.setattr(watch, "look", lambda _self: None)


def served_before_its_queues_are_rebuilt(patch: Patch) -> None:
    """A new leader waits for nothing: it numbers messages by the queues that it has, and not by all that the
    group has decided on before."""

    def lead(self: MessageStore, term: int) -> None:
        with self._append_lock:
            if not self.log.is_of(term):
                raise NotWritable(f"this member does not lead in term {term} any more")
            self.queues.number(self.offsets)
            self._appended = self.dispatcher.records
            self._leads = True
            self._takes_puts = self._open and self._may_put

    patch.setattr(MessageStore, "lead", lead)
    patch.setattr(StoreLedger, "end", 0)
    patch.setattr(MemberNode, "leads", property(lambda self: self.member.standing is Standing.LEADER))


def offsets_not_through_the_log(patch: Patch) -> None:
    patch.setattr(TableWriter, "_offset_news", _nothing)


def topics_not_through_the_log(patch: Patch) -> None:
    patch.setattr(TableWriter, "_topic_news", _nothing)


def _nothing(_self: TableWriter, *_given: Any) -> Iterator[Any]:
    return iter(())


SAID = frozenset({"two values", "lost entry", "no majority", "not settled", "other messages", "unreadable"})
"""Members have, or show, different things."""
LED = frozenset({"two leaders in a term", "two leaders"})
BACK = frozenset({"offset back", "offset ahead"})

PLANTED = [
    PlantedBug(truncated_without_the_queues, LOST | SAID | {"lost topic"}, 0),
    PlantedBug(dispatched_beyond_the_commit_index, LOST | SAID, 22),
    PlantedBug(acknowledged_before_it_is_synced, LOST | SAID, 13),
    PlantedBug(stale_leader_not_fenced, LOST | SAID | LED, 1),
    PlantedBug(lease_off, LED, 4),
    PlantedBug(shorter_log_may_lead, LOST | SAID, 0),
    PlantedBug(answered_before_the_group_has_decided, frozenset({"no majority"}), 0),
    PlantedBug(deposed_leader_answers_with_success, LOST | SAID, 10),
    PlantedBug(served_before_its_queues_are_rebuilt, LOST | SAID | {"verify"}, 9),
    PlantedBug(offsets_not_through_the_log, BACK, 6),
    PlantedBug(topics_not_through_the_log, frozenset({"lost topic", "not settled"}), 0),
    PlantedBug(windows_of_producers_not_read_again, frozenset({"stored twice"}), 80),
]
