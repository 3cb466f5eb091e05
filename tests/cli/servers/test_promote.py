"""`flaremq broker promote`: a slave becomes the master, unless a living master has more."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.cli.commands import flaremq

from flaremq.client.sync import LitePullConsumer, Producer
from flaremq.model.message import Message
from flaremq.testing.cluster import Cluster, eventually
from flaremq.testing.fakes.wireclient import WireClient

SLAVE: dict[str, Any] = {"brokerName": "broker-a", "brokerRole": "SLAVE", "brokerId": 1}


def send(namesrv: str, *bodies: bytes) -> list[int]:
    with Producer("p", namesrv=namesrv) as producer:
        queue = producer.queues("Orders")[0]
        return [producer.send(Message("Orders", body), to=queue).queue_offset for body in bodies]


def test_a_slave_takes_the_place_of_its_dead_master_and_goes_on_where_that_was(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        namesrv = f"127.0.0.1:{cluster.namesrv().port}"
        master = cluster.broker("broker-a", namesrv, brokerRole="SYNC_MASTER")
        slave = cluster.broker("slave", namesrv, **SLAVE)
        with Producer("p", namesrv=namesrv) as producer:
            producer.send(Message("Orders", b"first"))
        asyncio.run(eventually("the slave follows", lambda: is_copied(slave.port, master.port)))
        last = send(namesrv, b"one", b"two")[-1]
        config = slave.folder / "conf.properties"
        alive = flaremq("broker", "promote", "-c", str(config), "--yes")
        assert alive.status != 0 and "is in use: stop the slave first" in alive.err
        slave.stop()
        alive = flaremq("broker", "promote", "-c", str(config), "--yes")
        assert alive.status != 0 and "is alive" in alive.err
        master.kill()
        promoted = flaremq("broker", "promote", "-c", str(config), "--yes")
        assert promoted.status == 0 and "from its next start on" in promoted.out, promoted.err
        text = config.read_text()
        assert "brokerRole=ASYNC_MASTER" in text and "brokerId=0" in text
        cluster.again(slave)
        assert send(namesrv, b"three") == [last + 1]
        with LitePullConsumer("readers", namesrv=namesrv) as consumer:
            consumer.assign(consumer.queues("Orders"))
            found: list[bytes] = []
            while b"three" not in found or len(found) < 4:
                found += [message.body for message in consumer.poll(timeout_s=5)]
        assert sorted(found) == [b"first", b"one", b"three", b"two"]


async def is_copied(slave: int, master: int) -> bool:
    async with WireClient() as wire:
        theirs = await wire.bounds(f"127.0.0.1:{master}", "Orders", 0)
        return theirs == await wire.bounds(f"127.0.0.1:{slave}", "Orders", 0)


def test_only_a_slave_is_promoted(tmp_path: Path) -> None:
    asked = flaremq("broker", "promote", "-o", f"storePathRootDir={tmp_path}", "--yes")
    assert asked.status != 0 and "brokerRole=ASYNC_MASTER: expected SLAVE" in asked.err
