"""Term files that are damaged or old, in groups of real brokers: nobody votes twice in a term."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.testing.sim.groups import Group, play

from flaremq.dledger.ledger.ballots import BallotFile
from flaremq.dledger.types import Ballot
from flaremq.testing.sim.world import Machine


def ballots_of(group: Group, member: Machine) -> BallotFile:
    return BallotFile(member.disk, group.log(member).folder)


def flip_a_digit(file: BallotFile, _old: bytes) -> None:
    text = file.path.read_bytes()
    at = text.index(b"currTerm=") + len(b"currTerm=")
    file.path.write_bytes(text[:at] + bytes((text[at] ^ 4,)) + text[at + 1 :])


def restore(file: BallotFile, old: bytes) -> None:
    file.path.write_bytes(old)


@pytest.mark.parametrize("spoil", [flip_a_digit, restore])
def test_faults_11_and_42_a_member_whose_ballot_is_damaged_or_old_elects_nobody_until_it_is_vouched_for(
    spoil: Callable[[BallotFile, bytes], None],
) -> None:
    async def scenario(group: Group) -> None:
        first = await group.led()
        old = {each.name: ballots_of(group, each).path.read_bytes() for each in group.others(first)}
        acknowledged = await group.sent("in the first term")
        first.kill()
        leader = await group.led(but_not_by=first)
        await first.start()
        acknowledged += await group.sent("in the second term")
        (spoilt,) = (each for each in group.others(leader) if each is not first)
        await group.until(lambda: group.log(spoilt).last_term == group.of(leader).node.term)
        await group.until(lambda: group.log(spoilt).last_index == group.log(leader).last_index)
        spoilt.kill()
        leader.kill()
        spoil(ballots_of(group, spoilt), old[spoilt.name])
        await spoilt.start()
        await group.never(lambda: group.leader is not None, 10.0)
        assert ballots_of(group, spoilt).load() == Ballot(group.log(spoilt).last_term, "", is_voter=False)
        await leader.start()
        acknowledged += await group.sent("in a later term")
        assert await group.agree() == sorted(acknowledged)
        node = group.of(spoilt).node
        await group.until(lambda: node.status().may_vote)

    play(scenario)
