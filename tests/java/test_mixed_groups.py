"""Members of ours in groups of RocketMQ's: they follow, lead and hand over, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.java.mixedgroup import MixedGroup
from tests.java.peers import Peers
from tests.java.toolchain import Toolchain

from flaremq.client.message import SendStatus
from flaremq.client.settings import ProducerSettings
from flaremq.client.sync import Producer
from flaremq.model.message import Message

pytestmark = pytest.mark.java
TOPIC = "Orders"


@pytest.fixture
def peers(tmp_path: Path) -> Iterator[Peers]:
    with Peers(tmp_path) as started:
        yield started


@pytest.fixture
def group(peers: Peers, java_toolchain: Toolchain) -> MixedGroup:
    return MixedGroup(peers, java_toolchain)


def send(group: MixedGroup, begin: int, count: int) -> None:
    """Messages of which each is acknowledged in the end."""
    with Producer("sellers", namesrv=group.namesrv.address, settings=ProducerSettings(timeout_s=20.0)) as seller:
        for number in range(begin, begin + count):
            assert seller.send(Message(TOPIC, b"order %06d" % number)).status is SendStatus.OK


def test_our_member_follows_a_leader_of_apaches_and_has_its_files_byte_for_byte(group: MixedGroup) -> None:
    group.start({"n0": "java", "n1": "java"})
    group.leader()
    send(group, 0, 200)
    group.start({"n2": "ours"})
    send(group, 200, 200)
    group.same_logs("n0", "n1", "n2", least=100 * 400)
    assert group.log("n2").count(b"order ") == 400
    status = group.status("n2")
    assert status.standing == "follower" and status.leader == group.leader()
    assert "only as safe as its members that run Apache's DLedger, n0, n1" in status.caution


@pytest.mark.parametrize("batches", [False, True], ids=["singly", "in batches"])
def test_our_member_leads_members_of_apaches_and_hands_over_to_them(group: MixedGroup, batches: bool) -> None:
    kinds = {"n0": "ours", "n1": "java", "n2": "java"}
    group.start({"n1": "java", "n2": "java"}, enableBatchPush=batches)
    group.leader()
    send(group, 0, 100)
    group.start({"n0": "ours"}, enableBatchPush=batches, preferredLeaderId="n0")
    group.same_logs(*kinds, least=100 * 100)
    group.until_status("n0", "it may vote", lambda now: now.voter)
    first = group.leader()
    group.kill(first)
    group.launch(first, "java", enableBatchPush=batches, preferredLeaderId="n0").wait_ready(120.0)
    group.kill(group.leader("n0")) if group.leader() != "n0" else None
