"""Members whose power is cut or whose process is killed at any moment: what they have acknowledged stays."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from random import Random

import pytest
from tests.dledger.membertools import LoneMember
from tests.store.lives import end_of

from flaremq.model.record import decode
from flaremq.testing.fakes.disk import PowerLossDisk

_HEAD = 48


class MemberLives:
    """One member through several lives, now leading and now given entries by a leader, and what it has said
    to be on its disk."""

    def __init__(self, root: Path, seed: int) -> None:
        self.rng = Random(seed)
        self.root = root / "member"
        self.disk = PowerLossDisk(strict_names=bool(seed % 2))
        self.term = 0
        self.entries: list[tuple[int, bytes]] = []
        """Term and body of each, by its index."""
        self.known: dict[int, set[tuple[int, bytes]]] = defaultdict(set)
        """All that ever lay there."""
        self.acknowledged = self.committed = -1
        self.number = 0
        self.open()

    def open(self) -> None:
        self.member = LoneMember(self.root, disk=self.disk)
        self.member.store.open()

    def lead(self) -> None:
        """As the leader whom a majority follows at once: what it has is committed."""
        self.term += 1
        self.member.ledger.lead(self.term)
        self.note(self.term, b"")
        self.member.ledger.allow(True)
        self.sync()
        self.committed = self.member.ledger.last_index
        self.member.commit()
        self.member.store.lead(self.term)

    def live(self) -> None:
        self.lead()
        for _ in range(self.rng.randrange(30)):
            self.rng.choice((self.put, self.put, self.put, self.sync, self.commit, self.give_up, self.save))()

    def note(self, term: int, body: bytes) -> None:
        self.known[len(self.entries)].add((term, body))
        self.entries.append((term, body))
        assert self.member.ledger.last_index == len(self.entries) - 1

    def put(self) -> None:
        self.number += 1
        body = b"%d " % self.number + b"." * self.rng.randrange(6000)
        self.member.put(body)
        self.note(self.term, body)

    def sync(self) -> None:
        self.member.synced()
        self.acknowledged = self.member.ledger.synced_index

    def commit(self) -> None:
        if self.acknowledged > self.committed:
            self.committed = self.rng.randint(self.committed, self.acknowledged)
            self.member.ledger.commit_to(self.committed)
            self.member.store.show()

    def give_up(self) -> None:
        if self.committed + 1 < len(self.entries):
            first = self.rng.randint(self.committed + 1, len(self.entries) - 1)
            self.member.ledger.follow()
            self.member.ledger.truncate_from(first)
            del self.entries[first:]
            self.acknowledged = min(self.acknowledged, first - 1)
            self.lead()

    def save(self) -> None:
        self.member.log.save()

    def die(self) -> None:
        """Of a cut power, or of a kill that leaves what was written."""
        end_of(self.member.store)
        if self.rng.random() < 0.6:
            self.disk.lose_power(self.rng.choice((None, self.rng.randrange(1 << 30))))

    def check(self) -> None:
        ledger = self.member.ledger
        assert ledger.damage == ""
        assert ledger.last_index >= self.acknowledged
        for index in range(ledger.last_index + 1):
            run = ledger.run(index, 1)
            assert run is not None and run.count == 1
            message = decode(bytes(run.data)[_HEAD:])
            body = b"" if message.topic == "rmq_sys_raft" else message.body
            expected = self.known[index] if index > self.acknowledged else {self.entries[index]}
            assert (run.last_term, body) in expected
        committed = self.member.log.committed_index
        assert committed <= max(self.committed, -1)
        seen = [body for _, body in self.entries[: committed + 1] if body]
        assert self.member.bodies() == seen
        self.entries = self.entries[: self.acknowledged + 1]
        ledger.truncate_from(len(self.entries)) if ledger.last_index >= len(self.entries) else None


@pytest.mark.parametrize("seed", range(24))
def test_what_a_member_has_acknowledged_outlives_kills_and_power_cuts(tmp_path: Path, seed: int) -> None:
    lives = MemberLives(tmp_path, seed)
    for _ in range(4):
        lives.live()
        lives.die()
        lives.open()
        lives.check()
    lives.member.store.close()
