"""What a member must never forget, on the disk: its term, and for whom it has voted in it.

    checksum=1f0a33c2    CRC-32 of all that follows it
    voteLeader=n2        empty if for nobody
    currTerm=9
    isVoter=false        only while this member may not vote

The small file `currterm`, as DLedger has it, with lines that DLedger passes over, and drops when it writes
the file itself. So a file of its two lines alone may be RocketMQ's, and is believed. With any other line it
must have its checksum, which stands first, so that a file that was cut short never passes for RocketMQ's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final
from zlib import crc32

from flaremq.base.logs import fields, logger
from flaremq.dledger.ledger.checkpoint import lines_of
from flaremq.dledger.types import Ballot
from flaremq.store.files.disk import Disk

log = logger("dledger.ballots")
CURRENT_TERM: Final = "currterm"
_CHECKSUM: Final = "checksum"
_TERM: Final = "currTerm"
_VOTE: Final = "voteLeader"
_IS_VOTER: Final = "isVoter"


def packed(ballot: Ballot) -> bytes:
    lines = [f"{_VOTE}={ballot.voted_for}", f"{_TERM}={ballot.term}"]
    if not ballot.is_voter:
        lines.append(f"{_IS_VOTER}=false")
    said = "".join(f"{line}\n" for line in lines).encode()
    return f"{_CHECKSUM}={crc32(said):08x}\n".encode() + said


def parse(text: bytes) -> Ballot:
    """Raises ValueError if it is none, or not the one that was written."""
    first, _, said = text.partition(b"\n")
    given = lines_of(text)
    if given.pop(_CHECKSUM, None) is not None:
        if first != f"{_CHECKSUM}={crc32(said):08x}".encode():
            raise ValueError("it does not fit its checksum")
    elif {name for name in given if not name.startswith("#")} != {_VOTE, _TERM} or not text.endswith(b"\n"):
        raise ValueError(f"expected lines {_VOTE}= and {_TERM}=, as RocketMQ writes them, or a checksum")
    return Ballot(int(given[_TERM]), given[_VOTE], given.get(_IS_VOTER, "true") != "false")


class BallotFile:
    """In the folder of a member's ledger."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        self._disk = disk
        self.path = folder / CURRENT_TERM

    def load(self) -> Ballot | None:
        """None if there is none, or none that can be believed: this member is new, or has forgotten it."""
        if not self._disk.exists(self.path):
            return None
        try:
            return parse(self._disk.read(self.path))
        except (KeyError, ValueError) as error:
            log.error("a ballot cannot be believed: %s", error, extra=fields(file=self.path))
            return None

    def save(self, ballot: Ballot) -> None:
        """Returns when it is on the disk."""
        self._disk.replace(self.path, packed(ballot))
