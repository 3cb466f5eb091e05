"""What a member must never forget, on the disk: its term, and for whom it has voted in it.

The small file `currterm`, as DLedger has it, with a line more that says whether this member may vote.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from flaremq.base.logs import fields, logger
from flaremq.dledger.ledger.checkpoint import lines_of
from flaremq.dledger.types import Ballot
from flaremq.store.files.disk import Disk

log = logger("dledger.ballots")
CURRENT_TERM: Final = "currterm"
_TERM: Final = "currTerm"
_VOTE: Final = "voteLeader"
_IS_VOTER: Final = "isVoter"


def packed(ballot: Ballot) -> bytes:
    lines = [f"{_VOTE}={ballot.voted_for}", f"{_TERM}={ballot.term}"]
    if not ballot.is_voter:
        lines.append(f"{_IS_VOTER}=false")
    return "".join(f"{line}\n" for line in lines).encode()


class BallotFile:
    """In the folder of a member's ledger."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        self._disk = disk
        self.path = folder / CURRENT_TERM

    def load(self) -> Ballot | None:
        """None if there is none, or none that can be read: this member is new, or has forgotten it."""
        if not self._disk.exists(self.path):
            return None
        given = lines_of(self._disk.read(self.path))
        try:
            term = int(given[_TERM])
        except (KeyError, ValueError):
            log.error("a ballot cannot be read: expected a line currTerm=", extra=fields(file=self.path))
            return None
        return Ballot(term, given.get(_VOTE, ""), given.get(_IS_VOTER, "true") != "false")

    def save(self, ballot: Ballot) -> None:
        """Returns when it is on the disk."""
        self._disk.replace(self.path, packed(ballot))
