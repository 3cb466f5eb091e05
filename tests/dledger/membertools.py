"""Members of a group without their group: stores with ledgers, whose leader the test is."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

from flaremq.dledger.ledger.raftlog import RaftLog
from flaremq.dledger.ledger.storeledger import StoreLedger, member_settings
from flaremq.dledger.settings import RaftSettings
from flaremq.model import layout
from flaremq.model.record import decode_many
from flaremq.store.api import GetStatus
from flaremq.store.files.disk import Disk
from flaremq.store.store import MessageStore
from flaremq.testing.clock import ManualClock
from flaremq.testing.fakes.builders import NOW_MS, STORE_HOST, a_message, small_settings

PEERS = "n0-10.0.0.1:1;n1-10.0.0.2:1;n2-10.0.0.3:1"
UNIT_FILE = 128 * layout.DLEDGER_UNIT_SIZE
"""Small index files, so that some dozens of entries need several."""
SOON_S = 20.0


def group_of(self_id: str = "n0", **other: Any) -> RaftSettings:
    return RaftSettings(enabled=True, group="g", peers=PEERS, self_id=self_id, **other)


class LoneMember:
    """A store that a test opens, leads, copies to, and closes."""

    def __init__(
        self,
        root: Path,
        self_id: str = "n0",
        *,
        disk: Disk | None = None,
        unit_file_size: int = UNIT_FILE,
        as_library: bool = False,
        **options: Any,
    ) -> None:
        group = group_of(self_id)
        self.clock = ManualClock(NOW_MS)
        self.settings = member_settings(small_settings(root, **options), group)
        self.store = MessageStore(
            self.settings,
            store_host=STORE_HOST,
            clock=self.clock,
            disk=disk,
            make_log=partial(RaftLog, self_id=self_id, as_library=as_library, unit_file_size=unit_file_size),
        )
        self.ledger = StoreLedger(self.store, group.membership, self.clock)
        assert isinstance(self.store.log, RaftLog)
        self.log = self.store.log

    def __enter__(self) -> LoneMember:
        self.store.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    def lead(self, term: int = 1) -> None:
        """Be the leader, as one whom the whole group follows at once."""
        self.ledger.lead(term)
        self.ledger.allow(True)
        self.commit()
        self.store.lead(term)

    def follows(self) -> bool:
        return self.store.follows

    def commit(self) -> None:
        self.ledger.commit_to(self.ledger.last_index)

    def put(self, *bodies: bytes, topic: bytes = b"TopicTest", queue_id: int = 0) -> None:
        for body in bodies:
            self.store.put(a_message(body, topic=topic, queue_id=queue_id))

    def synced(self) -> None:
        """Return when all entries are on the disk."""
        assert self.log.flushed.wait_blocking(self.log.last_end, SOON_S)

    def copy(self, source: LoneMember, bytes_max: int = 1 << 20) -> int:
        """Append what the other one has and this one has not; in how many runs."""
        runs = 0
        while (run := source.ledger.run(self.ledger.last_index + 1, bytes_max)) is not None:
            self.ledger.append_run(run)
            runs += 1
        return runs

    def bodies(self, topic: bytes = b"TopicTest", queue_id: int = 0) -> list[bytes]:
        """What a consumer sees."""
        self.store.show()
        found: list[bytes] = []
        while (result := self.store.get(topic, queue_id, len(found), 1000)).status is GetStatus.FOUND:
            found += [message.body for message in decode_many(result.gathered())]
        return found

    def as_killed(self, to: Path) -> Path:
        """The folder as the end of the process would leave it at this moment."""
        shutil.copytree(self.settings.root, to)
        return to
