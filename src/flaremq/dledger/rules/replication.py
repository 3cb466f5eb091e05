"""What a leader knows of the other members, and pushes to them.

    probing      an empty push asks: is your log mine up to here? > [no: nearer to the beginning] > [yes]
    replicating  pushes with entries, several under way, each behind the one before

Rounds count all pushes. A push without entries is a beat: it is answered at once, whatever the member's disk
does, and its answer proves that the member still followed when it was sent. The lease of the leader, its
check that a majority is there, and the discovery of lost pushes all rest on beats.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from flaremq.dledger.rules.following import last_not_above
from flaremq.dledger.rules.membership import group_checksum
from flaremq.dledger.rules.state import MemberState
from flaremq.dledger.rules.vouching import KnownDoubt
from flaremq.dledger.types import (
    Commit,
    EntryRun,
    Index,
    Lead,
    MemberId,
    Membership,
    Push,
    PushAnswer,
    Restart,
    Standing,
    TakeOver,
    Term,
)

_BEATS_MAX: Final = 64  # Of a member that does not answer; older ones prove nothing any more.
_SILENT_ELECTIONS: Final = 2
NEVER: Final = float("-inf")
INFINITY: Final = float("inf")


class PeerProgress:
    """How far one member is, as its leader knows."""

    __slots__ = (
        *(
            "answered",
            "announced",
            "beats",
            "doubt",
            "floor",
            "heard_s",
            "is_damaged",
            "is_probing",
            "is_voter",
            "lease_at",
        ),
        *("matched", "matched_round", "member", "next", "previous_term", "probe_round", "underway"),
    )

    def __init__(self, member: MemberId, next_: Index, previous_term: Term, now: float, round_: int) -> None:
        self.member = member
        self.next = next_
        """The first entry that was not pushed yet."""
        self.previous_term = previous_term
        """Of the one before it."""
        self.matched: Index = -1
        """The last entry that it has synced, as far as it said so."""
        self.matched_round = round_
        """The newest round when it said so."""
        self.is_probing = True
        self.probe_round = round_ + 1
        """The round with which this probing began: answers to older ones are about another place."""
        self.underway: deque[tuple[Index, float]] = deque()
        """Last entry and time of each push that was not acknowledged yet."""
        self.beats: deque[tuple[int, float]] = deque(maxlen=_BEATS_MAX)
        """Round and time of those that were not answered yet."""
        self.answered = -1
        self.heard_s = now
        self.lease_at = NEVER
        self.is_voter = False
        self.is_damaged = False
        self.floor = -1
        """Answers to this round and older ones were given before it forgot something."""
        self.doubt = KnownDoubt()
        self.announced: Index = -1
        """How far it was told what is committed."""

    @property
    def may_lead(self) -> bool:
        return self.is_voter and not self.is_damaged


class LogReplication:
    """One leader in its term."""

    def __init__(self, state: MemberState) -> None:
        self._state = state
        self.began: Index = state.ledger.last_index + 1
        """The first entry of this term: from here on all entries are of it."""
        self.round = 0
        self._is_frozen = False
        self.lease_at = NEVER
        """When the newest round was sent that a majority has answered."""
        self.beat_at = state.now
        self.announce_at = INFINITY
        """When followers must be told what is committed."""
        self.peers: dict[MemberId, PeerProgress] = {}
        self._members = state.members
        self._group = group_checksum(self._members)
        self._meet()

    @property
    def members(self) -> Membership:
        """The newest in the log; who has come is known from now on."""
        members = self._state.ledger.membership
        if members is not self._members:
            self._members = members
            self._group = group_checksum(members)
            self._meet()
        return members

    def known(self) -> list[PeerProgress]:
        """The other members of now."""
        return [self.peers[each] for each in self.members.ids if each in self.peers]

    def begin(self) -> None:
        """Say so, and commit what is there by an entry of the own term."""
        s = self._state
        s.lead()
        s.actions.append(Lead(s.term))
        self.beat()

    def _meet(self) -> None:
        s, ids = self._state, self._members.ids
        for each in [each for each in self.peers if each not in ids]:
            del self.peers[each]
        for each in ids:
            if each != s.me and each not in self.peers:
                ledger = s.ledger
                self.peers[each] = PeerProgress(
                    each, ledger.last_index + 1, ledger.last_term, s.now, self.round
                )

    # Rounds, and what rests on them.

    def freeze(self) -> int:
        """Give the lease up, and begin no new round until `thaw`. Returns the last one."""
        self._is_frozen = True
        self.lease_at = NEVER
        for peer in self.peers.values():
            peer.beats.clear()
            peer.lease_at = NEVER
        return self.round

    def thaw(self) -> None:
        self._is_frozen = False

    def has_lease(self, now: float) -> bool:
        if self._is_frozen:
            return False
        is_alone = self._majority_of_others() <= 0
        return is_alone or now < self.lease_at + self._state.pace.lease_s

    def alive(self, within_s: float) -> set[MemberId]:
        """Voters that were heard lately, this member among them."""
        s = self._state
        return {
            s.me,
            *(p.member for p in self.peers.values() if p.is_voter and s.now - p.heard_s <= within_s),
        }

    def _majority_of_others(self) -> int:
        members = self.members
        return members.majority - (self._state.me in members.addresses)

    def _new_round(self) -> int:
        if not self._is_frozen:
            self.round += 1
        return self.round

    # Time.

    def tick(self) -> None:
        s = self._state
        if s.now < self.beat_at:
            return
        heard_since = s.now - _SILENT_ELECTIONS * s.pace.election_s
        others = sum(peer.heard_s >= heard_since for peer in self.peers.values())
        if others < self._majority_of_others():
            s.be_patient()
            s.step_down(s.term)
            return
        self.beat()

    def beat(self) -> None:
        """Tell everybody that this leader is there."""
        s = self._state
        self.beat_at = s.now + s.pace.heartbeat_s
        for peer in self.known():
            if peer.underway and s.now - peer.underway[0][1] >= s.pace.push_s:
                self._probe(peer)
            self._beat(peer)

    def _beat(self, peer: PeerProgress) -> None:
        s, ledger, previous = self._state, self._state.ledger, peer.next - 1
        knows_place = previous >= ledger.first_index - 1 and (
            previous in (-1, peer.matched) or ledger.term_at(previous) >= 0
        )
        round_ = self._new_round()
        if knows_place:
            self._push(peer, round_, None)
        elif not self._order_restart(peer, round_):
            return
        if not self._is_frozen:
            peer.beats.append((round_, s.now))

    def _order_restart(self, peer: PeerProgress, round_: int) -> bool:
        """The entry before the next one is deleted. False as long as there is none to begin with either."""
        s, ledger = self._state, self._state.ledger
        first = ledger.first_index
        run = ledger.run(first, 1)
        if run is None:
            return False
        peer.next, peer.previous_term = first, ledger.term_at(first - 1)
        s.say(peer.member, Restart(s.term, round_, first, run.position, peer.previous_term))
        return True

    def _probe(self, peer: PeerProgress) -> None:
        """Ask before anything more is pushed whether the log is the same before `next`."""
        peer.underway.clear()
        peer.is_probing = True
        peer.probe_round = self.round + 1

    # The log.

    def appended(self) -> None:
        for peer in self.known():
            self._pump(peer)

    def synced(self) -> None:
        self._advance()

    def _pump(self, peer: PeerProgress) -> None:
        """Push what was not pushed yet, as far as pushes may be under way."""
        s = self._state
        ledger, pace, underway = s.ledger, s.pace, peer.underway
        last = ledger.last_index
        while peer.next <= last and not peer.is_probing and len(underway) < pace.pushes_max:
            run = ledger.run(peer.next, pace.push_bytes_max)
            if run is None:
                self._probe(peer)
                return
            self._push(peer, self._new_round(), run)
            end = run.last
            underway.append((end, s.now))
            peer.next, peer.previous_term = end + 1, run.last_term

    def _push(self, peer: PeerProgress, round_: int, run: EntryRun | None) -> None:
        s = self._state
        vouched = peer.doubt.number if peer.doubt.is_settled else 0
        push = Push(s.term, peer.next - 1, peer.previous_term, s.commit, round_, run, self._group, vouched)
        s.say(peer.member, push)
        peer.announced = s.commit

    def _go_on(self, peer: PeerProgress) -> None:
        """After an answer: what is next for this member?"""
        if self._state.standing is not Standing.LEADER:
            return
        self._pump(peer)
        if self._is_uninformed(peer):
            self.announce_at = min(self.announce_at, self._state.now + self._state.pace.announce_s)

    def _is_uninformed(self, peer: PeerProgress) -> bool:
        """Whether it does not know what is committed, and no push is under way that tells it."""
        return peer.announced < self._state.commit and not peer.underway and not peer.is_probing

    def announce(self) -> None:
        """Tell what is committed to whom no push has told it meanwhile: under load the next one does."""
        self.announce_at = INFINITY
        for peer in self.known():
            if self._is_uninformed(peer):
                self._beat(peer)

    def _advance(self) -> None:
        """Commit what a majority has synced, this member included, if it is of this term."""
        s, members = self._state, self.members
        synced = [peer.matched for peer in self.peers.values() if peer.is_voter]
        if s.me in members.addresses:
            synced.append(s.ledger.synced_index)
        if len(synced) < members.majority:
            return
        synced.sort(reverse=True)
        index = synced[members.majority - 1]
        if index <= s.commit or not self._may_commit(index):
            return
        s.commit = index
        s.actions.append(Commit(index))
        for peer in self.peers.values():
            self._go_on(peer)
        if s.me not in members.addresses and index >= members.index:
            self._leave()

    def _may_commit(self, index: Index) -> bool:
        """Entries of older terms may still be overwritten, wherever they are, until one of this term is
        behind them."""
        return index >= self.began

    def _leave(self) -> None:
        """The group has removed this leader. Who has the whole log may begin an election at once."""
        s = self._state
        best = max(self.peers.values(), key=lambda peer: (peer.may_lead, peer.matched, peer.member))
        if best.may_lead and best.matched == s.ledger.last_index:
            s.say(best.member, TakeOver(s.term, self.round))
        s.step_down(s.term)

    # Answers.

    def answered(self, sender: MemberId, answer: PushAnswer) -> None:
        peer = self.peers.get(sender)
        if peer is None or answer.round > self.round or (answer.is_voter and answer.round <= peer.floor):
            return
        peer.heard_s = self._state.now
        peer.answered = max(peer.answered, answer.round)
        peer.is_damaged = answer.is_damaged
        is_new = self._doubted(peer, answer) if not answer.is_voter else False
        if answer.is_voter and not peer.is_voter:
            peer.is_voter, peer.matched = True, -1
        self._extend_lease(peer, answer)
        if answer.is_matching:
            self._matches(peer, answer)
        else:
            self._differs(peer, answer)
        if self._state.standing is Standing.LEADER:
            if is_new:
                self.beat()
            self._vouch()

    def _doubted(self, peer: PeerProgress, answer: PushAnswer) -> bool:
        """It is no voter: what it said before does not count. Whether it has now asked to be vouched for."""
        if peer.is_voter:
            peer.is_voter, peer.matched = False, -1
        peer.floor = self.round
        return peer.doubt.hear(answer.doubt, self.round)

    def _vouch(self) -> None:
        for peer in self.peers.values():
            if not peer.is_voter and peer.doubt.settle(
                peer.member, self._state.me, self.members, self.peers.items()
            ):
                self._beat(peer)

    def _extend_lease(self, peer: PeerProgress, answer: PushAnswer) -> None:
        beats = peer.beats
        if not beats or beats[0][0] > answer.round:
            return
        while beats and beats[0][0] <= answer.round:
            peer.lease_at = beats.popleft()[1]
        needed = self._majority_of_others()
        times = sorted((p.lease_at for p in self.peers.values() if p.is_voter), reverse=True)
        if 0 < needed <= len(times):
            self.lease_at = max(self.lease_at, times[needed - 1])

    def _matches(self, peer: PeerProgress, answer: PushAnswer) -> None:
        underway = peer.underway
        if answer.matched > peer.matched:
            peer.matched, peer.matched_round = answer.matched, self.round
            while underway and underway[0][0] <= answer.matched:
                underway.popleft()
            if peer.next <= answer.matched:
                peer.next = answer.matched + 1
                peer.previous_term = self._state.ledger.term_at(answer.matched)
        if peer.is_probing and answer.round >= peer.probe_round:
            peer.is_probing = False
            if peer.matched < peer.next - 1:
                underway.append((peer.next - 1, self._state.now))
        if answer.is_voter:
            self._advance()
        self._go_on(peer)

    def _differs(self, peer: PeerProgress, answer: PushAnswer) -> None:
        """Try nearer to the beginning; at once if that is news."""
        if answer.round < peer.probe_round:
            return
        place = self._meeting(answer.matched, answer.matched_term)
        if place < peer.matched:
            if answer.round <= peer.matched_round:
                place = peer.matched  # The answer is older than what it has synced since.
            else:
                peer.matched = -1  # It has lost what it had synced.
        is_news = place < peer.next - 1
        self._probe(peer)
        peer.next, peer.previous_term = place + 1, self._state.ledger.term_at(place)
        if is_news:
            self._beat(peer)

    def _meeting(self, index: Index, term: Term) -> Index:
        """The last entry of this log, from that place on backwards, that the member may have too. A member
        that does not know the term has deleted the entry, so it was committed."""
        ledger = self._state.ledger
        place = min(index, ledger.last_index)
        if place < ledger.first_index or term < 0 or ledger.term_at(place) <= term:
            return place
        return last_not_above(ledger, place, term, ledger.first_index - 1)
