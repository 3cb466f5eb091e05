"""`flaremq cluster group`: what a person is told about Raft groups."""

from __future__ import annotations

from flaremq.admin.values.raft import RaftMember, RaftPeerView
from flaremq.cli.admin.raft import _remarks

MEMBERS = ("n0-10.0.0.1:1", "n1-10.0.0.2:1", "n2-10.0.0.3:1")


def a_member(name: str, leader: str = "n0", *peers: RaftPeerView) -> RaftMember:
    return RaftMember(
        broker="broker-a",
        address=f"10.0.0.{name[1:]}:10911",
        group="broker-a",
        member=name,
        standing="leader" if name == leader else "follower",
        term=3,
        leader=leader,
        answers=name == leader,
        last_index=7,
        synced_index=7,
        commit_index=7,
        members=MEMBERS,
        may_vote=True,
        not_fit="",
        caution="",
        damage="",
        last_refusal="",
        peers=peers,
    )


def test_members_that_are_missing_are_named() -> None:
    gone = RaftPeerView("n2", 4, 9.0, "10.0.0.3:1 cannot be reached: Connection refused")
    assert _remarks([a_member("n0", "n0", gone), a_member("n1")]) == [
        "broker-a, n2: 10.0.0.3:1 cannot be reached: Connection refused",
        "broker-a: no NameServer knows n2: start what does not run",
    ]


def test_a_group_that_is_whole_needs_no_words() -> None:
    assert _remarks([a_member("n0"), a_member("n1"), a_member("n2")]) == []


def test_a_group_without_a_leader_says_who_must_run() -> None:
    assert _remarks([a_member("n1", "")]) == [
        "broker-a has no leader: a majority of n0-10.0.0.1:1, n1-10.0.0.2:1, n2-10.0.0.3:1 must run"
    ]
