"""Which servers are meant, and what is told where some of them cannot be asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.admin.ghost import NAME, haunt

from flaremq.admin.admin import Admin
from flaremq.admin.values.groups import Position
from flaremq.admin.values.messages import found_in
from flaremq.admin.values.topics import TopicSettings
from flaremq.base.errors import ConnectFailed, Incomplete, InvalidParameter, Malformed, UsageError
from flaremq.client.settings import ClientSettings
from flaremq.model import sysflag
from flaremq.model.batch import join_batch
from flaremq.model.compression import compress
from flaremq.model.topic import GroupConfig
from flaremq.remoting.ports import free_port
from flaremq.testing.embedded import Embedded
from flaremq.testing.fakes.builders import a_message, records_of
from flaremq.testing.fakes.wireclient import WireClient


@pytest.fixture
async def admin(servers: Embedded) -> AsyncIterator[Admin]:
    async with Admin(servers.namesrv) as found:
        yield found


async def test_a_nameserver_that_is_away_is_passed_over_by_questions_and_told_by_changes(
    servers: Embedded,
) -> None:
    dead = f"127.0.0.1:{free_port()}"
    async with Admin(settings=ClientSettings(namesrv=f"{dead};{servers.namesrv}")) as admin:
        assert len(await admin.brokers.list()) == 2
        assert await admin.namesrvs.addresses() == (dead, servers.namesrv)
        assert list((await admin.namesrvs.config()).failed) == [dead]
        with pytest.raises(Incomplete) as caught:
            await admin.namesrvs.kv_put("mine", "a", "1")
        assert caught.value.done == (servers.namesrv,) and list(caught.value.failed) == [dead]
        assert await admin.namesrvs.kv_get("mine", "a") == "1"


async def test_a_broker_with_slaves_only_has_no_master_to_change(
    admin: Admin, servers: Embedded, wire: WireClient
) -> None:
    await admin.topics.create("orders", TopicSettings(read_queues=4, write_queues=4))
    await admin.groups.create(GroupConfig("billing"))
    await haunt(wire, servers.namesrv, "orders", broker_id=1)
    assert [(each.name, each.id) for each in await admin.brokers.list(runtime=False)] == [
        ("broker-a", 0),
        ("broker-b", 0),
        (NAME, 1),
    ]
    with pytest.raises(InvalidParameter, match=f"broker '{NAME}' has no master now"):
        await admin.topics.create("orders", broker=NAME)
    assert list((await admin.topics.stats("orders")).failed) == [f"{NAME}:1"]
    with pytest.raises(UsageError, match=f"{NAME} has no master now"):
        await admin.groups.reset("billing", "orders", Position.end())
    assert await admin.groups.create(GroupConfig("shipping")) == ("broker-a", "broker-b")


async def test_a_cluster_without_brokers_says_so(tmp_path: Path) -> None:
    async with Embedded(tmp_path, brokers=0) as servers, Admin(servers.namesrv) as admin:
        assert await admin.brokers.clusters() == () and list(await admin.brokers.list()) == []
        assert await admin.topics.list() == ()
        with pytest.raises(InvalidParameter, match="no master"):
            await admin.topics.create("orders")
        with pytest.raises(InvalidParameter, match=r"known one \(none\)"):
            await admin.brokers.runtime("broker-a")


async def test_where_all_fail_for_one_reason_it_is_that_reason(tmp_path: Path, wire: WireClient) -> None:
    async with Embedded(tmp_path, brokers=0) as servers, Admin(servers.namesrv) as admin:
        address = await haunt(wire, servers.namesrv)
        with pytest.raises(ConnectFailed, match=address):
            await admin.topics.create("orders")
        with pytest.raises(ConnectFailed, match=address):
            await admin.groups.list()


def test_messages_that_lie_in_one_record_are_told_one_by_one() -> None:
    both = join_batch([b"one", b"two"], [b"TAGS\x01A\x02"] * 2)
    flags = sysflag.INNER_BATCH | sysflag.NEED_UNWRAP | sysflag.COMPRESSED | sysflag.COMPRESSION_ZLIB
    whole = a_message(compress(both), sys_flag=flags, properties=b"INNER_NUM\x012\x02")
    records = bytes(records_of([a_message(b"zero"), whole]))
    found = list(found_in(records, "broker-a"))
    assert [(each.body, each.queue_offset) for each in found] == [(b"zero", 0), (b"one", 1), (b"two", 2)]
    assert {each.tags for each in found[1:]} == {"A"}
    broken = replace(whole, body=b"no batch at all")
    with pytest.raises(Malformed):
        list(found_in(bytes(records_of([broken])), "broker-a"))
