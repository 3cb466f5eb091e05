"""The ledger as a node knows it: a store with the log of a member.

All that changes the log is called in the event loop. Syncs come from the thread that flushes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from flaremq.base.clock import Clock
from flaremq.base.errors import ResourceShort
from flaremq.dledger.ledger.ballots import BallotFile
from flaremq.dledger.ledger.raftlog import RaftLog, data_folder
from flaremq.dledger.ledger.records import members_are, term_begins
from flaremq.dledger.settings import RaftSettings
from flaremq.dledger.types import EntryRun, Membership
from flaremq.store.settings import BrokerRole, FlushDisk, StoreSettings
from flaremq.store.store import MessageStore


def member_settings(settings: StoreSettings, group: RaftSettings) -> StoreSettings:
    """Settings of a store whose log is kept by a group: what the group decides on is not asked of them."""
    folder = data_folder(settings, group.self_id, group.data_path)
    return replace(
        settings,
        commitlog_paths=(str(folder),),
        read_only_commitlog_paths=(),
        role=BrokerRole.ASYNC_MASTER,
        flush_disk=FlushDisk.ASYNC_FLUSH,
        pool_enabled=False,
        append_crc=False,
        force_record_crc=False,
        read_uncommitted=False,
    )


class StoreLedger:
    """Of a store that was made with `raft_log`. It may be opened later."""

    def __init__(self, store: MessageStore, configured: Membership, clock: Clock) -> None:
        """`configured`: the members, as long as the log does not say otherwise."""
        assert isinstance(store.log, RaftLog)
        self._store = store
        self._log = store.log
        self._configured = configured
        self._clock = clock
        self._roster: tuple[object, Membership] = (None, configured)
        self._stalled: tuple[int, float] | None = None
        self.ballots = BallotFile(store.disk, store.log.folder)
        self.committed = store.log.committed
        """Behind the last entry that the group has decided on."""

    @property
    def damage(self) -> str:
        """What of the log was known to be on the disk and is lost; empty if nothing is. A member with damage
        may not vote."""
        return self._log.damage

    # What the rules see.

    @property
    def first_index(self) -> int:
        return self._log.first_index

    @property
    def last_index(self) -> int:
        return self._log.last_index

    @property
    def last_term(self) -> int:
        return self._log.last_term

    @property
    def synced_index(self) -> int:
        return self._log.synced_index

    @property
    def end(self) -> int:
        """Behind the last entry."""
        return self._log.last_end

    def term_at(self, index: int) -> int:
        return self._log.term_at(index)

    def run(self, first: int, bytes_max: int) -> EntryRun | None:
        return self._log.run(first, bytes_max)

    @property
    def membership(self) -> Membership:
        rosters = self._log.rosters
        if self._roster[0] is not rosters:
            index = max(rosters, default=-1)
            newest = Membership(dict(rosters[index]), index) if rosters else self._configured
            self._roster = rosters, newest
        return self._roster[1]

    @property
    def is_damaged(self) -> bool:
        return self._log.known_damage.hinders

    @property
    def damage_found(self) -> str:
        return str(self._log.known_damage)

    # What they ask for.

    def append_run(self, run: EntryRun) -> None:
        if self._log.has_blank and run.position == self._log.last_end:
            with self._store.giving_up():
                self._log.drop_blank()
        with self._store.appending():
            self._log.append_run(run)

    def truncate_from(self, index: int) -> None:
        with self._store.giving_up():
            self._log.give_up(index)

    def empty(self, first: int, position: int, previous_term: int) -> None:
        with self._store.giving_up():
            self._store.dispatcher.rewind(
                position, lambda: self._log.begin_anew(first, position, previous_term)
            )
        self._store.retention.request_correction()

    def commit_to(self, index: int) -> None:
        self._log.commit_to(index)
        if self._log.rosters and self._log.is_led and len(self._log.files.files) > 1:
            self._say_members_again()

    def _say_members_again(self) -> None:
        """Old files go, and a member that begins anew must hear who the members are."""
        if self._log.needs_oldest and self.membership.index <= self._log.committed_index:
            with suppress(ResourceShort):  # It is tried again with the next commit.
                self.change(self.membership)

    def lead(self, term: int) -> None:
        """Append the record with which the term begins. The store takes messages when it is told to lead."""
        with self._store.appending():
            self._log.term, self._log.is_led = term, True
            try:
                self._log.append_said(term_begins(term, self._clock.now_ms()))
            except BaseException:
                self._log.is_led = False
                raise

    def follow(self) -> None:
        self._log.is_led = False
        self._store.follow()

    def allow(self, may_append: bool) -> None:
        self._store.allow(may_append)

    def change(self, membership: Membership) -> None:
        with self._store.appending():
            drafts = members_are(self._log.term, membership.addresses, self._clock.now_ms())
            self._log.append_said(drafts, membership.addresses)

    # The disk.

    def stalled_s(self) -> float:
        flushed = self._log.flushed.value
        if flushed >= self._log.last_end:
            self._stalled = None
            return 0.0
        now_s = self._clock.monotonic_s()
        if self._stalled is None or self._stalled[0] != flushed:
            self._stalled = flushed, now_s
        return now_s - self._stalled[1]

    @property
    def failure(self) -> Exception | None:
        return self._store.flags.failure

    def watch(self, appended: Callable[[], None], synced: Callable[[], None]) -> Callable[[], None]:
        unwatch_appends = self._log.watch_appends(appended)
        unwatch_syncs = self._log.flushed.watch(lambda _value: synced())

        def unwatch() -> None:
            unwatch_appends()
            unwatch_syncs()

        return unwatch
