"""What a leader pushes to members that speak the library's protocol, and what follows from their answers.

    COMPARE the last entry ► where the logs part ► TRUNCATE there ► APPEND, many under way ► COMMIT when idle
       ▲                                                              │ INCONSISTENT_STATE, or no answer
       └──────────────────────────────────────────────────────────────┘

Java's members acknowledge what lies in their memory, so a mixed group is as safe as they are. This leader
does what it can: it counts its own log as far as it is on the disk, and takes nothing for decided before an
entry of its own term is, which the library's leaders do. It begins its term with such an entry.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from flaremq.dledger.library.messages import (
    BeatCall,
    BeatReply,
    LibraryEntry,
    PushCall,
    PushReply,
    Result,
    TransferCall,
    TransferReply,
    entries_in,
)
from flaremq.dledger.library.state import LibraryState, PushLimits
from flaremq.dledger.types import Commit, Index, MemberId, Standing

_BEATS_MAX: Final = 8
_RUN_BYTES: Final = 64 << 10


def size_of(call: PushCall) -> int:
    return sum(len(each.data) for each in call.entries)


@dataclass(slots=True)
class PushedPeer:
    """Another member, as its leader sees it."""

    member: MemberId
    heard_s: float
    """When the newest heartbeat was sent that it answered."""
    matched: Index | None = None
    """It has acknowledged all up to here. None before the logs were compared."""
    next: Index = -1
    compares: Index = -1
    """The entry to compare next; -1 for the last."""
    asked: PushCall | None = None
    """A comparison or truncation that is under way."""
    asked_s: float = 0.0
    under_way: dict[Index, tuple[PushCall, float]] = field(default_factory=dict)
    """Pushes of entries by their first index, and when each was sent."""
    bytes_under_way: int = 0
    rests_until_s: float = 0.0
    told_commit: Index = -1
    told_s: float = 0.0
    beats: deque[tuple[BeatCall, float]] = field(default_factory=lambda: deque(maxlen=_BEATS_MAX))
    """Heartbeats that are under way, and when each was sent."""

    def acknowledged(self) -> None:
        """Forget pushes of what it has. They were sent in order."""
        while self.under_way and self.matched is not None:
            first, (call, _) = next(iter(self.under_way.items()))
            if call.last > self.matched:
                return
            del self.under_way[first]
            self.bytes_under_way -= size_of(call)

    def compare_anew(self, from_s: float = 0.0) -> None:
        self.matched, self.asked, self.compares = None, None, -1
        self.under_way.clear()
        self.bytes_under_way = 0
        self.rests_until_s = from_s


class Pushing:
    """Of the time in which this member leads."""

    def __init__(self, state: LibraryState, limits: PushLimits) -> None:
        self._s = state
        self._limits = limits
        self.peers = {each: PushedPeer(each, state.now) for each in state.others}
        self.beat_at = state.now
        self.target: MemberId = ""
        """Whom this member hands over to; no messages are taken meanwhile."""
        self._target_ticket: object = None
        self._prefers_at = state.now + state.pace.prefer_s
        self._commit_at = state.now
        self._began = False

    @property
    def deadline(self) -> float:
        at = min(self.beat_at, self._commit_at)
        for peer in self.peers.values():
            if peer.matched is None:
                at = min(at, peer.rests_until_s if peer.asked is None else at)
            elif peer.under_way:
                at = min(at, next(iter(peer.under_way.values()))[1] + self._s.pace.push_s)
        return max(at, self._s.now + 0.001)

    def heard_within(self, time_s: float, now: float) -> int:
        """How many members have answered a heartbeat of so long ago, this one among them."""
        return 1 + sum(now - each.heard_s <= time_s for each in self.peers.values())

    # Heartbeats.

    def tick(self) -> None:
        s = self._s
        if s.now >= self.beat_at:
            if self.heard_within(s.pace.lost_s, s.now) < s.majority:
                s.stand_down()
                return
            self.beat_at = s.now + s.pace.heartbeat_s
            for peer in self.peers.values():
                self._beat(peer)
            self._prefer()
        for peer in self.peers.values():
            self._retry(peer)
            self._push(peer)
        if s.now >= self._commit_at:
            self._commit_at = s.now + s.pace.commit_s
            self._tell_commit()

    def _beat(self, peer: PushedPeer) -> None:
        call = BeatCall(self._s.term, self._s.me)
        peer.beats.append((call, self._s.now))
        self._s.ask(peer.member, call)

    def beaten(self, member: MemberId, call: BeatCall, reply: BeatReply | None) -> None:
        s, peer = self._s, self.peers[member]
        if reply is None:
            return
        if reply.code == Result.SUCCESS:
            # An answer says no more than that the leader was followed when it asked.
            sent = [sent_s for each, sent_s in peer.beats if each is call]
            peer.heard_s = max([peer.heard_s, *sent])
        elif reply.code == Result.TERM_NOT_READY:
            self._beat(peer)
        elif reply.code == Result.EXPIRED_TERM and reply.term > s.term:
            s.enter(reply.term)

    # Pushes.

    def appended(self) -> None:
        self._began = True
        self._count()
        for peer in self.peers.values():
            self._push(peer)

    def synced(self) -> None:
        self._count()

    def _push(self, peer: PushedPeer) -> None:
        s = self._s
        if not self._began or s.now < peer.rests_until_s or s.standing is not Standing.LEADER:
            return
        if peer.matched is None:
            if peer.asked is None:
                self._compare(peer)
            return
        if not self._has_room(peer, 2):
            return  # Entries are read many at once, so it waits until many may be sent.
        while peer.next <= s.end and self._has_room(peer, 1):
            run = s.ledger.run(peer.next, _RUN_BYTES)
            if run is None:  # It has expired meanwhile.
                peer.compare_anew()
                return
            for call in self._calls(entries_in(run)):
                self._send(peer, call)

    def _has_room(self, peer: PushedPeer, parts: int) -> bool:
        """Whether less is under way than this part of what may be."""
        limits = self._limits
        is_few = len(peer.under_way) * parts < limits.pushes_max
        return is_few and peer.bytes_under_way * parts < limits.under_way_bytes_max

    def _calls(self, entries: list[LibraryEntry]) -> Iterator[PushCall]:
        s, batch, size = self._s, list[LibraryEntry](), 0
        for entry in entries:
            if not self._limits.batch_bytes:
                yield PushCall(s.term, s.me, "APPEND", s.commit, (entry,))
                continue
            batch.append(entry)
            size += len(entry.data)
            if size >= self._limits.batch_bytes:
                yield PushCall(s.term, s.me, "APPEND", s.commit, tuple(batch), True)
                batch, size = [], 0
        if batch:
            yield PushCall(s.term, s.me, "APPEND", s.commit, tuple(batch), True)

    def _send(self, peer: PushedPeer, call: PushCall) -> None:
        peer.under_way[call.first] = call, self._s.now
        peer.bytes_under_way += size_of(call)
        peer.next = call.last + 1
        peer.told_commit = call.commit
        self._s.ask(peer.member, call)

    def _retry(self, peer: PushedPeer) -> None:
        """What was not answered in time: the entry behind the last acknowledged one, or the comparison."""
        s = self._s
        if peer.matched is None:
            if peer.asked is not None and s.now >= peer.asked_s + s.pace.lost_s:
                peer.compare_anew()
            return
        found = peer.under_way.get(peer.matched + 1)
        if found is not None and s.now >= found[1] + s.pace.push_s:
            peer.under_way[found[0].first] = found[0], s.now
            s.ask(peer.member, found[0])

    def answered(self, member: MemberId, call: PushCall, reply: PushReply | None) -> None:
        peer = self.peers[member]
        if call.term != self._s.term:
            return
        if call.type == "COMMIT":
            self._look_for_loss(peer, reply)
        elif call.type == "APPEND":
            self._appended_there(peer, call, reply)
        elif call is peer.asked:
            peer.asked = None
            self._compared(peer, call, reply)
        self._push(peer)

    def _look_for_loss(self, peer: PushedPeer, reply: PushReply | None) -> None:
        """A member that began anew with an empty folder asks for nothing."""
        if reply is None or reply.code != Result.SUCCESS or peer.matched is None:
            return
        if reply.end < peer.matched:
            peer.compare_anew()

    def _appended_there(self, peer: PushedPeer, call: PushCall, reply: PushReply | None) -> None:
        found = peer.under_way.get(call.first)
        if peer.matched is None or found is None or found[0] is not call:
            return
        code = Result.NETWORK_ERROR if reply is None else reply.code
        if code == Result.SUCCESS:
            # Members append in order, so all before these are there too.
            peer.matched = max(peer.matched, call.last)
            peer.acknowledged()
            self._count()
        elif code not in (Result.REPEATED_PUSH, Result.PUSH_REQUEST_IS_FULL):
            inconsistent = code == Result.INCONSISTENT_STATE
            peer.compare_anew(self._s.now + (0.0 if inconsistent else self._s.pace.rest_s))

    # Where the logs part.

    def _compare(self, peer: PushedPeer) -> None:
        s = self._s
        if s.end < s.ledger.first_index:
            return
        if not s.ledger.first_index <= peer.compares <= s.end:
            peer.compares = s.end
        self._ask_about(peer, "COMPARE", peer.compares)

    def _ask_about(self, peer: PushedPeer, what: str, index: Index) -> None:
        s = self._s
        entry = s.entry(index)
        if entry is None:
            peer.compare_anew(s.now + s.pace.rest_s)
            return
        peer.asked, peer.asked_s = PushCall(s.term, s.me, what, s.commit, (entry,)), s.now
        s.ask(peer.member, peer.asked)

    def _compared(self, peer: PushedPeer, call: PushCall, reply: PushReply | None) -> None:
        s, index, begin = self._s, call.first, self._s.ledger.first_index
        if reply is None or reply.code not in (Result.SUCCESS, Result.INCONSISTENT_STATE):
            peer.compare_anew(s.now + s.pace.rest_s)
        elif call.type == "TRUNCATE":
            if reply.code == Result.SUCCESS:
                self._goes_on(peer, index)
            else:
                peer.compare_anew(s.now + s.pace.rest_s)
        elif reply.code == Result.SUCCESS:
            if reply.end == index:
                self._goes_on(peer, index)
            else:
                self._ask_about(peer, "TRUNCATE", index)
        elif reply.end < begin or reply.begin > s.end or index < reply.begin:
            self._ask_about(peer, "TRUNCATE", begin)
        else:
            peer.compares = reply.end if index > reply.end else index - 1
            if peer.compares < begin:
                self._ask_about(peer, "TRUNCATE", begin)

    def _goes_on(self, peer: PushedPeer, index: Index) -> None:
        peer.matched, peer.next = index, index + 1
        self._count()

    # What the group has decided on.

    def _count(self) -> None:
        s = self._s
        if s.standing is not Standing.LEADER or not self._began:
            return
        known = [s.synced, *(-1 if each.matched is None else each.matched for each in self.peers.values())]
        index = sorted(known, reverse=True)[s.majority - 1]
        if index > s.commit and s.ledger.term_at(index) == s.term:
            s.commit = index
            s.actions.append(Commit(index))

    def _tell_commit(self) -> None:
        s = self._s
        for peer in self.peers.values():
            is_due = peer.told_commit < s.commit or s.now >= peer.told_s + s.pace.push_s
            if peer.matched is not None and is_due and not peer.under_way:
                peer.told_commit, peer.told_s = s.commit, s.now
                s.ask(peer.member, PushCall(s.term, s.me, "COMMIT", s.commit))

    # Handing over.

    def hand_over(self, to: MemberId, ticket: object = None) -> None:
        s = self._s
        self.target, self._target_ticket = to, ticket
        s.ask(to, TransferCall(s.term, s.me, s.me, to, s.end))

    def handed_over(self, call: TransferCall, reply: TransferReply | None) -> None:
        """The other member leads, or does not. If it does, it has said so before, or will in a moment."""
        if call.transferee != self.target:
            return
        code = int(Result.NETWORK_ERROR) if reply is None else reply.code
        if self._target_ticket is not None:
            self._s.reply(self._target_ticket, TransferReply(code, self._s.term))
        self.target, self._target_ticket = "", None

    def is_near(self, member: MemberId) -> bool:
        """Whether this member is there, and lacks few entries."""
        s, peer = self._s, self.peers[member]
        is_there = s.now - peer.heard_s <= 2 * s.pace.heartbeat_s
        return is_there and peer.matched is not None and s.end - peer.matched < self._limits.behind_max

    def _prefer(self) -> None:
        s = self._s
        if self.target or not s.preferred or s.me in s.preferred or s.now < self._prefers_at:
            return
        self._prefers_at = s.now + s.pace.prefer_s
        near = [each for each in s.preferred if each in self.peers and self.is_near(each)]
        if near:
            self.hand_over(max(near, key=lambda each: self.peers[each].matched or 0))
