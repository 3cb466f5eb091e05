"""The options of a group: what is wrong is said before anything is opened."""

from __future__ import annotations

import pytest

from flaremq.base.errors import ConfigError
from flaremq.dledger.settings import RaftSettings

PEERS = "n0-10.0.0.1:40911;n1-10.0.0.2:40911;n2-[::1]:40913"


def test_members_are_read_with_their_addresses() -> None:
    given = RaftSettings(enabled=True, peers=PEERS, self_id="n1", preferred="n2;n0")
    assert dict(given.addresses) == {"n0": "10.0.0.1:40911", "n1": "10.0.0.2:40911", "n2": "[::1]:40913"}
    assert given.membership.majority == 2
    assert given.preferred_ids == ("n2", "n0")
    assert given.broker_id == 2


def test_a_broker_without_a_group_needs_no_members() -> None:
    assert not RaftSettings().enabled


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "dLegerPeers is not set"),
        ({"peers": PEERS}, "dLegerSelfId is not set"),
        ({"peers": PEERS, "self_id": "n7"}, "dLegerSelfId=n7 is not in dLegerPeers"),
        ({"peers": "n0-10.0.0.1", "self_id": "n0"}, "n0-10.0.0.1 is not a member"),
        ({"peers": "n0-10.0.0.1:99999", "self_id": "n0"}, "n0-10.0.0.1:99999 is not a member"),
        ({"peers": "first-10.0.0.1:1", "self_id": "first"}, "first-10.0.0.1:1 is not a member"),
        ({"peers": "n0-a:1;n0-b:1", "self_id": "n0"}, "names n0 twice"),
        ({"peers": "n0-a:1;n1-a:1", "self_id": "n0"}, "names a:1 twice"),
        ({"peers": PEERS, "self_id": "n0", "preferred": "n9"}, "n9 is not in dLegerPeers"),
    ],
)
def test_what_cannot_be_a_group_is_refused_with_the_value(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace(".", r"\.")):
        RaftSettings(enabled=True, **given)  # type: ignore[arg-type]


def test_a_leader_stops_answering_before_another_one_can_be_elected() -> None:
    pace = RaftSettings(election_ms=600).pace
    assert pace.heartbeat_s < pace.lease_s < pace.election_s == 0.6
