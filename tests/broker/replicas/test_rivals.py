"""Two masters of one name: one of them serves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.broker.replicas.groups import HOST, Group, a_group
from tests.broker.replicas.pairs import replication

from flaremq.base.errors import ConfigError
from flaremq.broker.replicas.mastership import Mastership
from flaremq.broker.stats.exporter import Exporter
from flaremq.protocol import beans
from flaremq.protocol.bodies.cluster import HARuntimeInfo, KVTable
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command
from flaremq.remoting.ports import BROKER, free_port
from flaremq.servers.together import Broker
from flaremq.testing.cluster import eventually
from flaremq.testing.fakes.wireclient import Want, WireClient, pull_request, send_request

pytestmark = pytest.mark.filterwarnings("error")


def is_registered(group: Group, broker: Broker) -> bool:
    return group.namesrv.routes.member_group("", "broker-a").broker_addrs.get(0) == f"{HOST}:{broker.port}"


async def until(what: str, holds: Callable[[], bool]) -> None:
    async def look() -> bool:
        return holds()

    await eventually(what, look)


def promoted(folder: Path, epoch: int = 1) -> None:
    note = Mastership(folder)
    note.load()
    while note.epoch < epoch:
        note.promote()


async def figures(wire: WireClient, broker: Broker) -> dict[str, str]:
    answer = await wire.ask(f"{HOST}:{broker.port}", RequestCode.GET_BROKER_RUNTIME_INFO)
    return dict(beans.decode(KVTable, answer.body).table)


async def test_a_master_does_not_start_beside_another_one_of_its_name(tmp_path: Path) -> None:
    async with a_group(tmp_path) as group:
        first = await group.broker(0, "ASYNC_MASTER")
        with pytest.raises(ConfigError, match=f"another master of broker-a is at {HOST}:{first.port}"):
            await group.broker(0, "ASYNC_MASTER", storePathRootDir=tmp_path / "other")
        assert is_registered(group, first)
        assert first.role.displaced == ""
        async with WireClient() as wire:
            shown = await figures(wire, first)
            assert "wants to be the master of this name too, and yields" in shown["haRival"]


async def test_an_old_master_does_not_start_beside_the_promoted_one_nor_later(tmp_path: Path) -> None:
    async with a_group(tmp_path) as group:
        promoted(tmp_path / "other")
        new = await group.broker(0, "ASYNC_MASTER", storePathRootDir=tmp_path / "other")
        with pytest.raises(ConfigError, match=r"was promoted in place of.*epoch 1, ours is 0.*brokerId=1$"):
            await group.broker(0, "ASYNC_MASTER")
        await group.together.remove(new)
        with pytest.raises(ConfigError, match="If the promoted one is gone for good"):
            await group.broker(0, "ASYNC_MASTER")


async def test_a_promoted_one_that_starts_displaces_the_old_one_which_serves_no_client_any_more(
    tmp_path: Path,
) -> None:
    async with a_group(tmp_path) as group, WireClient() as wire:
        old = await group.broker(0, "ASYNC_MASTER")
        await wire.send(f"{HOST}:{old.port}", "Orders", 0, b"one")
        parked = pull_request(Want(topic="Orders", queue_id=0, offset=1, suspend_ms=30_000))
        waiting = asyncio.ensure_future(wire.caller.call(f"{HOST}:{old.port}", parked, 40))
        promoted(tmp_path / "other")
        new = await group.broker(0, "ASYNC_MASTER", storePathRootDir=tmp_path / "other")
        assert "was promoted in place of this broker" in old.role.displaced
        await until("the promoted one is registered", lambda: is_registered(group, new))
        for request in requests_of_clients():
            answer = await wire.caller.call(f"{HOST}:{old.port}", request, 5)
            assert answer.code == ResponseCode.SYSTEM_BUSY, request
            assert "serves no clients: a slave of broker-a was promoted" in (answer.remark or "")
        assert (await asyncio.wait_for(waiting, 10)).code != ResponseCode.SUCCESS
        assert "was promoted in place" in (await figures(wire, old))["haDisplaced"]
        answer = await wire.ask(f"{HOST}:{old.port}", RequestCode.GET_BROKER_HA_STATUS)
        assert "was promoted" in (beans.decode(HARuntimeInfo, answer.body).flare_displaced or "")
        assert replication(old).has_slaves is False
        assert (await health(old)).startswith("serves no clients: a slave of broker-a was promoted")
        assert await health(new) == "ok\n"
        await wire.send(f"{HOST}:{new.port}", "Orders", 0, b"two")


async def health(broker: Broker) -> str:
    assert broker.composition is not None
    (exporter,) = (each for each in broker.composition.outer if isinstance(each, Exporter))
    return (await exporter._metrics.health()).body


def requests_of_clients() -> list[Command]:
    code = RequestCode
    offset = {"consumerGroup": "g", "topic": "Orders", "queueId": "0"}
    end = {
        "producerGroup": "p", "tranStateTableOffset": "0", "commitLogOffset": "0", "commitOrRollback": "8",
        "msgId": "x", "transactionId": "x", "fromTransactionCheck": "false",
    }  # fmt: skip
    return [
        send_request("Orders", 0, b"x"),
        pull_request(Want(topic="Orders", queue_id=0, offset=0)),
        Command(code=code.END_TRANSACTION, ext_fields=end),
        Command(code=code.UPDATE_CONSUMER_OFFSET, ext_fields={**offset, "commitOffset": "1"}),
        Command(code=code.QUERY_CONSUMER_OFFSET, ext_fields=offset),
        Command(code=code.GET_ALL_TOPIC_CONFIG),
    ]


async def test_of_two_masters_that_could_not_ask_anyone_the_later_one_yields_when_they_can(
    tmp_path: Path,
) -> None:
    """NameServers were away when both started."""
    port = free_port(steps=BROKER)
    async with a_group(tmp_path) as group:
        first = await group.broker(0, "ASYNC_MASTER", namesrvAddr=f"{HOST}:{port}")
        second = await group.broker(0, "SYNC_MASTER", namesrvAddr=f"{HOST}:{port}")
        for each in (first, second):
            each.configuration.update({"namesrvAddr": group.together.namesrv})
        await until("the later one yields", lambda: bool(second.role.displaced))
        assert "began before this one (both epoch 0)" in second.role.displaced
        assert first.role.displaced == ""
        await until("the first one is registered", lambda: is_registered(group, first))
        assert not Mastership(tmp_path / "broker-a-SYNC_MASTER-0").is_outranked


async def test_a_broker_that_starts_again_elsewhere_is_not_locked_out_by_its_old_address(
    tmp_path: Path,
) -> None:
    async with a_group(tmp_path) as group:
        first = await group.broker(0, "ASYNC_MASTER")
        address = f"{HOST}:{first.port}"
        await group.together.remove(first)
        # It was killed: the NameServer still holds its address, where nobody is any more.
        gone = group.namesrv.routes.member_group("", "broker-a").broker_addrs
        assert address not in gone.values()
        second = await group.broker(0, "ASYNC_MASTER")
        await until("registered", lambda: is_registered(group, second))
        assert second.role.displaced == ""


async def test_a_slave_that_starts_as_a_master_is_promoted_unless_another_one_serves(tmp_path: Path) -> None:
    async with a_group(tmp_path) as group:
        master = await group.broker(0, "ASYNC_MASTER")
        store = tmp_path / "slave"
        slave = await group.broker(1, "SLAVE", storePathRootDir=store)
        await group.together.remove(slave)
        with pytest.raises(ConfigError, match="another master of broker-a"):
            await group.broker(0, "ASYNC_MASTER", storePathRootDir=store)
        await group.together.remove(master)
        await group.broker(0, "ASYNC_MASTER", storePathRootDir=store)
        with pytest.raises(ConfigError, match="was promoted in place of this broker"):
            await group.broker(0, "ASYNC_MASTER")


async def test_a_slave_of_the_promoted_master_does_not_follow_the_old_one(tmp_path: Path) -> None:
    async with a_group(tmp_path) as group:
        note = Mastership(tmp_path / "broker-a-SLAVE-1")
        note.begins_as_slave()
        note.follows(1)
        await group.broker(0, "ASYNC_MASTER")
        slave = await group.broker(1, "SLAVE")
        assert slave.composition is not None

        def why() -> str:
            follower = replication(slave).slave
            assert follower is not None
            return follower.status().why

        await until(
            "it is refused", lambda: "is a master of epoch 0, and this store has seen epoch 1" in why()
        )
