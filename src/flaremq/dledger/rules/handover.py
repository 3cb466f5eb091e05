"""A leader gives its place to another member: an operator wants it to, or it is not a preferred one.

    begin: no more appends > [it has all entries] > TakeOver: no lease, no new rounds > [it is elected]
                                                                                      > give up, go on

From TakeOver on the others may vote within the lease of this leader, so that has ended. The order names the
leader's last round: who has heard a later one knows that the leader goes on, and does not vote any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from flaremq.dledger.rules.replication import LogReplication, PeerProgress
from flaremq.dledger.rules.state import MemberState
from flaremq.dledger.types import MemberId, TakeOver, VoteRequest

_GIVE_UP_ELECTIONS: Final = 2
_PREFERENCE_ELECTIONS: Final = 5  # So long between two attempts to hand over to a preferred member.
_NEARLY_ALL: Final = 1000  # Entries that it may lack before appends are stopped for it.


class Handover:
    """Of one leader in its term."""

    def __init__(
        self, state: MemberState, replication: LogReplication, preferred: Sequence[MemberId]
    ) -> None:
        self._state = state
        self._replication = replication
        self._preferred = () if state.me in preferred else tuple(preferred)
        self._preference_at = state.now + state.pace.election_s
        self._ends_at = state.now
        self._asked_round: int | None = None
        self.target: MemberId = ""
        """Empty while nothing is handed over."""

    def begin(self, to: MemberId) -> None:
        s = self._state
        self.target = to
        self._ends_at = s.now + _GIVE_UP_ELECTIONS * s.pace.election_s
        self.go_on()

    def go_on(self) -> None:
        """Something has changed: is it time to ask, to ask again, or to give up?"""
        if not self.target:
            return
        s, replication = self._state, self._replication
        peer = replication.peers.get(self.target)
        if peer is None or s.now >= self._ends_at:
            self._give_up()
        elif self._asked_round is None and peer.may_lead and peer.matched == s.ledger.last_index:
            self._asked_round = replication.freeze()
            self._ask()

    def beat(self) -> None:
        """Time has passed: who was asked may not have heard it."""
        self.go_on()
        if self._asked_round is not None:
            self._ask()
        elif not self.target:
            self._prefer()

    def is_asked(self, candidate: MemberId, asked: VoteRequest) -> bool:
        """Whether this leader has asked for this election."""
        return (
            asked.is_transfer
            and candidate == self.target
            and asked.round == self._asked_round
            and asked.term == self._state.term + 1
        )

    def _ask(self) -> None:
        if self._asked_round is not None:
            self._state.say(self.target, TakeOver(self._state.term, self._asked_round))

    def _give_up(self) -> None:
        self.target = ""
        self._asked_round = None
        self._replication.thaw()
        self._replication.beat()

    def _prefer(self) -> None:
        s = self._state
        if not self._preferred or s.now < self._preference_at or s.commit < self._replication.began:
            return
        self._preference_at = s.now + _PREFERENCE_ELECTIONS * s.pace.election_s
        for each in self._preferred:
            peer = self._replication.peers.get(each)
            if peer is not None and self._may_lead(peer):
                self.begin(each)
                return

    def _may_lead(self, peer: PeerProgress) -> bool:
        s = self._state
        is_alive = s.now - peer.heard_s <= s.pace.election_s
        return peer.may_lead and is_alive and peer.matched >= s.ledger.last_index - _NEARLY_ALL
