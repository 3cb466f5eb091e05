"""How a member that has forgotten something becomes a voter again.

A member that lost its ballots may have voted in a term that it does not know of; one that lost entries may
have acknowledged what it does not have. If it voted or counted at once, a majority that has decided on
something could become one that has not. It is safe again when three things are true:

1. An election timeout and some more has passed since it started. No election lasts longer, so a forgotten
   vote elects nobody who was not elected by then. Only now does it show its doubt: a number of this start.
2. A majority without it, or everybody else, has answered a round that its leader began after it had heard of
   the doubt. So nobody was elected with the forgotten vote in a later term: one of them would have been
   needed, would know of that term, and would not have answered in this one.
3. It has synced all that this leader knew to be committed then. Forgotten acknowledgements that come late
   do not count: the leader forgets what it knew of a member whenever that says that it is no voter, and
   takes nothing from it that answers an older round.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from flaremq.dledger.types import MemberId, Membership

_PATIENCE: Final = 1.25  # Election timeouts: clocks may differ by as much as a lease allows for.
_NUMBER_BITS: Final = 62


class OwnDoubt:
    """Of a member: whether it may ask to be vouched for, and with which number."""

    def __init__(self, now: float, election_s: float, rng: random.Random) -> None:
        self._from = now + _PATIENCE * election_s
        self._number = rng.getrandbits(_NUMBER_BITS) | 1

    def shown(self, now: float) -> int:
        return self._number if now >= self._from else 0


class Vouched(Protocol):
    """What a leader knows of a member, as far as it matters here."""

    @property
    def is_voter(self) -> bool: ...
    @property
    def answered(self) -> int:
        """The newest round that it has answered."""


@dataclass(slots=True)
class KnownDoubt:
    """Of a leader: the doubt of one member."""

    number: int = 0
    since_round: int = 0
    is_settled: bool = False

    def hear(self, number: int, round_: int) -> bool:
        """Whether this is a new one. `round_` is the leader's newest."""
        if number in (0, self.number):
            return False
        self.number, self.since_round, self.is_settled = number, round_, False
        return True

    def settle(
        self, doubter: MemberId, me: MemberId, members: Membership, peers: Iterable[tuple[MemberId, Vouched]]
    ) -> bool:
        """Whether the others have just proved that they follow this leader."""
        if not self.number or self.is_settled:
            return False
        since = [
            peer.is_voter for each, peer in peers if each != doubter and peer.answered > self.since_round
        ]
        leads_as_member = me in members.addresses
        is_majority = sum(since) + leads_as_member >= members.majority
        is_everybody = len(since) + leads_as_member == len(members.addresses) - (doubter in members.addresses)
        self.is_settled = is_majority or is_everybody
        return self.is_settled
