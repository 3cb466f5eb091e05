"""`flaremq cluster group`: what a person is told about Raft groups."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.cli.commands import Ended, flaremq

from flaremq.admin.values.raft import RaftMember, RaftPeerView
from flaremq.cli.admin.raft import _remarks, _row
from flaremq.client.sync import Message, Producer, ProducerSettings
from flaremq.remoting.ports import free_port
from flaremq.testing.cluster import Cluster, eventually
from flaremq.testing.patience import load_factor

MEMBERS = ("n0-10.0.0.1:1", "n1-10.0.0.2:1", "n2-10.0.0.3:1")


def a_member(name: str, leader: str = "n0", *peers: RaftPeerView, last: int = 7) -> RaftMember:
    return RaftMember(
        broker="broker-a",
        address=f"10.0.0.{name[1:]}:10911",
        group="broker-a",
        member=name,
        standing="leader" if name == leader else "follower",
        term=3,
        leader=leader,
        answers=name == leader,
        last_index=last,
        synced_index=last,
        commit_index=last,
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


def test_a_new_group_needs_all_of_its_members() -> None:
    assert _remarks([a_member("n0", "", last=-1), a_member("n1", "", last=-1)]) == [
        f"broker-a has no leader: it is new, and begins when all of {', '.join(MEMBERS)} run"
    ]


def test_a_broker_that_is_no_member_yet_or_any_more_is_told_so() -> None:
    found = [*(a_member(name) for name in ("n0", "n1", "n2")), a_member("n3", "")]
    assert _row(found[3], found)[-1] == "no member"
    assert _remarks(found) == [
        "broker-a, n3 runs and is no member: add it with `flaremq cluster group add n3 HOST:PORT`, or stop it"
    ]


# Live.


async def told(*words: object) -> Ended:
    """`flaremq cluster group` with these words."""
    return await asyncio.to_thread(flaremq, "cluster", "group", *words)


async def members_of(namesrv: str) -> list[dict[str, Any]]:
    """Whatever its exit status: a removed member that still runs is worth a 1."""
    found: list[dict[str, Any]] = json.loads((await told("--json", "-n", namesrv)).out)["members"]
    return found


async def settled(namesrv: str, *names: str) -> list[dict[str, Any]]:
    """The members, once these alone are told of by all, have one log, and may vote."""
    found: list[dict[str, Any]] = []

    async def are_equal() -> bool:
        found[:] = await members_of(namesrv)
        there = [one for one in found if one["member"] in names]
        told_of = [sorted(each.partition("-")[0] for each in one["members"]) for one in there]
        ends = {(one["last_index"], one["commit_index"]) for one in there}
        return told_of == [list(names)] * len(names) and len(ends) == 1 and all(o["may_vote"] for o in there)

    await eventually(f"{names} are the members", are_equal, 120)
    return found


async def changed(namesrv: str, *words: object) -> Ended:
    """A change, tried again while the group is busy with its last one."""
    last: list[Ended] = []

    async def is_done() -> bool:
        last[:] = [await told(*words, "--yes", "-n", namesrv)]
        return last[0].status == 0 or "try again" not in last[0].err

    await eventually(f"{words}", is_done, 120)
    return last[0]


async def test_a_member_is_added_and_copies_the_log_and_another_one_is_removed(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        namesrv = cluster.namesrv().address
        cluster.group(3, namesrv=namesrv)
        before = await settled(namesrv, "n0", "n1", "n2")
        flaremq("topic", "create", "Orders", "-n", namesrv)
        settings = ProducerSettings(timeout_s=20 * load_factor())
        with Producer("shop", namesrv, settings=settings) as producer:
            for number in range(50):
                producer.send(Message("Orders", b"%d" % number))
        address = f"127.0.0.1:{free_port()}"
        new: dict[str, Any] = {
            "brokerName": "broker-a",
            "enableDLegerCommitLog": True,
            "dLegerPeers": ";".join([*before[0]["members"], f"n3-{address}"]),
            "dLegerSelfId": "n3",
        }
        cluster.broker("broker-a-n3", namesrv, **new)
        added = await changed(namesrv, "add", "n3", address)
        assert (added.status, added.out) == (0, "n3 is a member now.\n"), added.err
        after = await settled(namesrv, "n0", "n1", "n2", "n3")
        assert after[3]["last_index"] >= 50

        again = await changed(namesrv, "add", "n3", address)
        assert "n3 is a member already" in again.complaint
        refused = await told("remove", "n3", "-n", namesrv)
        assert (refused.status, len(await members_of(namesrv))) == (1, 4)

        follower = next(each["member"] for each in after if each["standing"] != "leader")
        removed = await changed(namesrv, "remove", follower)
        assert (removed.status, removed.out) == (0, f"{follower} is no member any more.\n"), removed.err
        await settled(namesrv, *sorted({"n0", "n1", "n2", "n3"} - {follower}))
        unknown = await changed(namesrv, "remove", follower)
        assert f"{follower} is no member" in unknown.complaint
