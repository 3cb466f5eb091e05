"""Ballots of members: what is believed of them at a start, in members that run."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.replicas.groupmembers import leads, put, running

from flaremq.dledger.ledger.ballots import BallotFile
from flaremq.dledger.types import Ballot
from flaremq.model.record import decode
from flaremq.store.files.disk import Disk
from flaremq.store.offline.folder import OfflineStore


def ballots_of(folder: Path, self_id: str = "n0") -> BallotFile:
    return BallotFile(Disk(), folder / self_id / f"dledger-{self_id}")


def terms_of(folder: Path) -> tuple[list[int], int]:
    """Of all entries of the first member, in order; and how many of them are messages."""
    walked = OfflineStore(folder / "n0").scan.records(rows=1)
    found = [(each.entry(0)[1], decode(each.record(0)).topic == "Orders") for each in walked]
    return [term for term, _ in found], sum(is_message for _, is_message in found)


@pytest.mark.parametrize("what", ["lost", "restored"])
async def test_fault_42_a_lone_member_without_its_ballot_goes_on_in_a_later_term_than_its_log(
    tmp_path: Path, what: str
) -> None:
    for _ in range(3):
        async with running(tmp_path) as (member,):
            await leads(member)
            await put(member)
    ballots = ballots_of(tmp_path)
    if what == "lost":
        ballots.path.unlink()
    else:
        ballots.save(Ballot(1, "n0"))
    for count in (4, 5):
        async with running(tmp_path) as (member,):
            await leads(member)
            assert member.node.term > 3
            await put(member)
        terms, messages = terms_of(tmp_path)
        assert (terms, messages) == (sorted(terms), count)
