"""Members of ours in groups of RocketMQ's: they follow, lead and hand over, and nothing is lost."""

from __future__ import annotations

import time
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
from flaremq.testing.patience import load_factor

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
    with Producer(
        "sellers", namesrv=group.namesrv.address, settings=ProducerSettings(timeout_s=20.0)
    ) as seller:
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
def test_apaches_leader_hands_over_to_our_member_which_leads_and_may_be_killed(
    group: MixedGroup, batches: bool
) -> None:
    group.start({"n1": "java", "n2": "java"}, preferredLeaderId="n0", enableBatchPush=batches)
    group.leader()
    send(group, 0, 100)
    group.start({"n0": "ours"}, preferredLeaderId="n0", enableBatchPush=batches)
    group.until_status("n0", "our member leads", lambda now: now.answers)
    assert group.leader() == "n0"
    send(group, 100, 300)
    group.same_logs("n0", "n1", "n2", least=400 * 100)
    group.kill("n0")
    group.leader("n0")
    send(group, 400, 100)
    group.start({"n0": "ours"}, preferredLeaderId="n0", enableBatchPush=batches)
    group.until_status("n0", "our member leads again", lambda now: now.answers)
    send(group, 500, 10)
    group.same_logs("n0", "n1", "n2")
    log = group.log("n0")
    assert all(log.count(b"order %06d" % number) for number in range(510))


def test_our_leader_hands_over_to_a_member_of_apaches_when_it_is_asked_to_and_when_it_stops(
    group: MixedGroup,
) -> None:
    group.start({"n1": "java", "n2": "java"}, preferredLeaderId="n0")
    group.leader()
    send(group, 0, 10)
    group.start({"n0": "ours"})
    group.until_status("n0", "our member leads", lambda now: now.answers)
    send(group, 10, 40)
    group.transfer("n0", "n1")  # Which hands back, as it prefers n0.
    group.until_status("n0", "our member leads again", lambda now: now.answers)
    send(group, 50, 50)
    began_s = time.monotonic()
    group.stop("n0")
    assert group.leader("n0") in ("n1", "n2")
    assert time.monotonic() - began_s < 6.0 * load_factor(), "it was missed, and has not handed over"
    send(group, 100, 50)
    group.same_logs("n1", "n2")
    log = group.log("n1")
    assert all(log.count(b"order %06d" % number) for number in range(150))
