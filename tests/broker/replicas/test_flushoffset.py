"""How far a slave was told that its master is on the disk: RESET_MASTER_FLUSH_OFFSET."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.broker.replicas.groups import HOST, Group, a_group

from flaremq.protocol import beans
from flaremq.protocol.bodies.cluster import HARuntimeInfo
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command
from flaremq.protocol.headers.broker import ResetMasterFlushOffsetHeader
from flaremq.servers.together import Broker
from flaremq.testing.fakes.wireclient import WireClient

CODE = RequestCode.RESET_MASTER_FLUSH_OFFSET


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    async with a_group(tmp_path) as made:
        yield made


def address(broker: Broker) -> str:
    return f"{HOST}:{broker.port}"


async def reset(broker: Broker, offset: int) -> None:
    async with WireClient() as wire:
        await wire.ask(address(broker), CODE, ResetMasterFlushOffsetHeader(master_flush_offset=offset))


async def shown(broker: Broker) -> int:
    """What an operator sees of a slave."""
    async with WireClient() as wire:
        answer = await wire.ask(address(broker), RequestCode.GET_BROKER_HA_STATUS)
    return beans.decode(HARuntimeInfo, answer.body).ha_client_runtime_info.master_flush_offset


async def test_a_slave_shows_the_offset_that_it_was_told(group: Group) -> None:
    slave = await group.broker(1, "SLAVE")
    assert await shown(slave) == 0
    await reset(slave, 4711)
    assert await shown(slave) == 4711
    await reset(slave, 12)
    assert await shown(slave) == 12, "an offset may also be taken back"


async def test_a_slave_still_knows_it_after_a_start(group: Group) -> None:
    slave = await group.broker(1, "SLAVE")
    await reset(slave, 4711)
    await group.together.remove(slave)
    assert await shown(await group.broker(1, "SLAVE")) == 4711


async def test_a_master_has_none_and_says_yes_all_the_same(group: Group) -> None:
    """As RocketMQ's do: whoever asks need not know who the master is."""
    master = await group.broker(0, "ASYNC_MASTER")
    await reset(master, 4711)
    assert master.store.checkpoint.master_flushed_offset == 0


@pytest.mark.parametrize("given", [{}, {"masterFlushOffset": "much"}], ids=["nothing", "no number"])
async def test_a_request_without_a_number_is_refused_and_changes_nothing(
    group: Group, given: dict[str, str]
) -> None:
    slave = await group.broker(1, "SLAVE")
    await reset(slave, 4711)
    async with WireClient() as wire:
        answer = await wire.caller.call(address(slave), Command(code=CODE, ext_fields=given), 5)
    assert answer.code != ResponseCode.SUCCESS
    assert "masterFlushOffset" in (answer.remark or "")
    assert await shown(slave) == 4711
