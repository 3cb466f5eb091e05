"""What Spark writes with, at Apache RocketMQ's servers: the suite that it passes at ours, delays and ids."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from tests.java.clients import JavaClients
from tests.java.peers import Apache, Peers
from tests.java.toolchain import ERAS, Toolchain
from tests.spark.servers import make_topic
from tests.spark.write.test_sender import (  # noqa: F401 - Tests.
    send,
    stored,
    test_a_row_goes_to_the_queue_that_it_names,
    test_a_row_that_cannot_be_sent_fails_all_that_come_after,
    test_large_rows_go_alone_in_their_turn,
    test_rows_of_a_key_stay_in_order_between_others,
    test_rows_without_an_order_all_arrive_as_they_are,
)

from flaremq.spark.clients import close_links
from flaremq.spark.write.ids import derived_ids
from flaremq.testing.cluster import eventually

pytestmark = pytest.mark.java


@pytest.fixture(scope="module", params=list(ERAS.values()), ids=list(ERAS))
def era(request: pytest.FixtureRequest) -> tuple[str, str]:
    """A version of servers, and one of clients to go with it."""
    versions: tuple[str, str] = request.param
    return versions


@pytest.fixture(scope="module")
def namesrv(
    era: tuple[str, str], java_toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    kind = Apache(java_toolchain, version=era[0])
    with Peers(tmp_path_factory.mktemp("apache")) as peers:
        server = peers.namesrv(kind)
        for name in ("broker-a", "broker-b"):
            peers.broker(kind, server.address, name)
        yield server.address
        close_links()


def test_delayed_rows_come_later(namesrv: str) -> None:
    make_topic(namesrv, "Delayed", queues=1)
    began_ms = time.time_ns() // 1_000_000
    batch = {
        "body": pa.array([b"now", b"later", b"now too"]),
        "orderKey": pa.array(["one"] * 3),
        "delayLevel": pa.array([None, 1, 0], pa.int32()),
    }
    send(namesrv, "Delayed", batch)
    rows = stored(namesrv, "Delayed", 3)
    assert [row["body"] for row in rows] == [b"now", b"now too", b"later"]
    assert rows[2]["storeTimestamp"].timestamp() * 1000 >= began_ms + 1000


def test_javas_tools_find_a_message_by_a_derived_id(
    era: tuple[str, str], namesrv: str, java_toolchain: Toolchain
) -> None:
    make_topic(namesrv, "Found", queues=1)
    batch = {"body": pa.array([b"x"] * 3), "keys": pa.array(["k0", "k1", "k2"])}
    send(namesrv, "Found", batch, delivery="idempotent", writeId="write")
    wanted = derived_ids("write/3", 1, 1)[0]
    assert wanted in {row["msgId"] for row in stored(namesrv, "Found", 3)}
    with JavaClients(java_toolchain, era[1]) as java:
        java.namesrv = namesrv

        async def is_so() -> bool:
            found = java.mqadmin("queryMsgByUniqueKey", "-t", "Found", "-i", wanted).out
            return "k1" in found and wanted in found

        asyncio.run(eventually("its index knows the message", is_so))
