"""Options of a NameServer that no other test would miss: each is set, and what it changes is seen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.namesrv.test_app import Client

from flaremq.model.topic import TopicConfig
from flaremq.namesrv.app import NameServer
from flaremq.namesrv.settings import NamesrvSettings
from flaremq.protocol import beans
from flaremq.protocol.bodies.cluster import GetBrokerMemberGroupResponseBody
from flaremq.protocol.bodies.route import RegisterBrokerBody, TopicConfigSerializeWrapper, TopicRouteData
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command, response_to
from flaremq.remoting.router import Family, Peer, Router
from flaremq.remoting.server import Server
from flaremq.remoting.settings import ServerSettings
from flaremq.servers.config import NamesrvConfig
from flaremq.testing.clock import ManualClock

CODE, OK = RequestCode, ResponseCode.SUCCESS


@asynccontextmanager
async def asking(folder: Path, **other: Any) -> AsyncIterator[tuple[NameServer, Client]]:
    settings = NamesrvSettings(
        **{"kv_config_path": folder / "kv.json", "config_store_path": folder / "n.properties", **other}
    )
    namesrv = NameServer(settings, ServerSettings(bind_address="127.0.0.1", drain_s=1))
    await namesrv.start()
    client = Client(namesrv)
    try:
        yield namesrv, client
    finally:
        await client.caller.aclose()
        await namesrv.stop()


async def test_silent_brokers_are_looked_for_as_often_as_was_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = asyncio.Semaphore(0)
    monkeypatch.setattr(NameServer, "expire", lambda _namesrv: looks.release())
    async with asking(tmp_path, scan_interval_ms=1), asyncio.timeout(4):  # The default is five seconds.
        await looks.acquire()
        await looks.acquire()


@pytest.mark.parametrize(("is_on", "conf"), [(True, "broker-a:4"), (False, None)])
async def test_routes_carry_the_order_of_their_topic_where_that_is_wished(
    tmp_path: Path, is_on: bool, conf: str | None
) -> None:
    async with asking(tmp_path, order_message_enabled=is_on) as (_, client):
        await client.ask(CODE.PUT_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="A", value="broker-a:4")
        await client.register("A", "B")
        found = await client.ask(CODE.GET_ROUTEINFO_BY_TOPIC, topic="A")
        assert beans.decode(TopicRouteData, found.body).order_topic_conf == conf


@pytest.mark.parametrize("is_on", [True, False])
async def test_brokers_are_told_the_order_of_topics_unless_that_is_switched_off(
    tmp_path: Path, is_on: bool
) -> None:
    async with asking(tmp_path, return_order_config=is_on) as (_, client):
        await client.ask(CODE.PUT_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="A", value="broker-a:4")
        assert bool((await client.register("A", "B")).body) is is_on


@pytest.mark.parametrize("is_on", [True, False])
async def test_a_topic_that_its_broker_no_longer_names_goes_at_once_where_that_is_wished(
    tmp_path: Path, is_on: bool
) -> None:
    async with asking(tmp_path, delete_topic_with_registration=is_on) as (namesrv, client):
        await client.register("A", "B", "C")
        await client.register("A", "B")
        assert ("C" not in namesrv.routes.topics()) is is_on


@pytest.mark.parametrize(
    ("option", "code", "fields"),
    [
        ("topic_list_enabled", CODE.GET_TOPICS_BY_CLUSTER, {"cluster": "C"}),
        ("all_topic_list_enabled", CODE.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}),
    ],
)
async def test_lists_of_topics_may_be_switched_off(
    tmp_path: Path, option: str, code: int, fields: dict[str, Any]
) -> None:
    for is_on in (True, False):
        async with asking(tmp_path, **{option: is_on}) as (_, client):
            assert ((await client.ask(code, **fields)).code == OK) is is_on


MEMBER: dict[str, Any] = {
    "brokerName": "broker-a", "clusterName": "C", "brokerId": "1", "haServerAddr": "127.0.0.1:1",
    "enableActingMaster": "true", "heartbeatTimeoutMillis": "10000", "compressed": "false", "bodyCrc32": "0",
}  # fmt: skip


def topics_of_a_member() -> bytes:
    table = {topic: TopicConfig(topic, 4, 4) for topic in ("A", "B")}
    wrapper = TopicConfigSerializeWrapper(topic_config_table=table)
    return beans.encode(RegisterBrokerBody(topic_config_serialize_wrapper=wrapper))


@pytest.mark.parametrize("is_on", [True, False])
async def test_a_slave_stands_for_its_missing_master_where_that_is_wished(
    tmp_path: Path, is_on: bool
) -> None:
    async with asking(tmp_path, acting_masters=is_on) as (_, client):
        member = {**MEMBER, "brokerAddr": "127.0.0.1:10911"}
        await client.ask(CODE.REGISTER_BROKER, topics_of_a_member(), **member)
        found = await client.ask(CODE.GET_ROUTEINFO_BY_TOPIC, topic="A")
        (data,) = beans.decode(TopicRouteData, found.body).broker_datas
        assert list(data.broker_addrs) == [0 if is_on else 1]
        await client.ask(
            CODE.UPDATE_NAMESRV_CONFIG, b"supportActingMaster=" + str(not is_on).lower().encode()
        )
        found = await client.ask(CODE.GET_ROUTEINFO_BY_TOPIC, topic="A")
        (data,) = beans.decode(TopicRouteData, found.body).broker_datas
        assert list(data.broker_addrs) == [1 if is_on else 0]


@asynccontextmanager
async def running(server: Server) -> AsyncIterator[None]:
    await server.start()
    try:
        yield
    finally:
        await server.stop()


@pytest.mark.parametrize("is_on", [True, False])
async def test_members_are_told_who_has_the_lowest_id_where_that_is_wished(
    tmp_path: Path, is_on: bool
) -> None:
    told: asyncio.Queue[dict[str, str]] = asyncio.Queue()

    async def take(_peer: Peer, request: Command) -> Command:
        told.put_nowait(dict(request.fields))
        return response_to(request)

    router = Router()
    router.serve(Family("member", 10), {CODE.NOTIFY_MIN_BROKER_ID_CHANGE: take})
    member = Server(ServerSettings(bind_address="127.0.0.1", drain_s=1), router)
    async with running(member), asking(tmp_path, notify_lowest_id=is_on) as (namesrv, client):
        given = {**MEMBER, "brokerId": "2", "brokerAddr": f"127.0.0.1:{member.port}"}
        await client.ask(CODE.REGISTER_BROKER, topics_of_a_member(), **given)
        lower = Client(namesrv)
        await lower.ask(CODE.REGISTER_BROKER, topics_of_a_member(), **{**MEMBER, "brokerAddr": "127.0.0.1:1"})
        if is_on:
            came = await asyncio.wait_for(told.get(), 10)
            assert came == {
                "minBrokerId": "1", "minBrokerAddr": "127.0.0.1:1", "haBrokerAddr": "127.0.0.1:1"
            }  # fmt: skip
        await lower.caller.aclose()
        if is_on:
            left = await asyncio.wait_for(told.get(), 10)
            assert (left["minBrokerId"], left["offlineBrokerAddr"]) == ("2", "127.0.0.1:1")
        else:
            while (await members(client)) != [2]:
                pass
    assert told.empty()


async def members(client: Client) -> list[int]:
    found = await client.ask(CODE.GET_BROKER_MEMBER_GROUP, clusterName="C", brokerName="broker-a")
    group = beans.decode(GetBrokerMemberGroupResponseBody, found.body).broker_member_group
    assert group is not None
    return sorted(group.broker_addrs)


async def test_a_silent_member_loses_its_connection_and_so_learns_that_it_must_register(
    tmp_path: Path,
) -> None:
    settings = NamesrvSettings(
        kv_config_path=tmp_path / "kv.json", config_store_path=tmp_path / "n.properties"
    )
    clock = ManualClock()
    namesrv = NameServer(settings, ServerSettings(bind_address="127.0.0.1", drain_s=1), clock)
    await namesrv.start()
    client, lost = Client(namesrv), asyncio.Event()
    client.caller.on_close = lambda _address: lost.set()
    await client.ask(
        CODE.REGISTER_BROKER, topics_of_a_member(), **{**MEMBER, "brokerAddr": "127.0.0.1:10911"}
    )
    clock.advance_ms(10_000)
    namesrv.expire()
    assert await members(client) == [1]
    clock.advance_ms(1)
    namesrv.expire()
    await asyncio.wait_for(lost.wait(), 30)
    assert await members(client) == []
    await client.caller.aclose()
    await namesrv.stop()


async def test_names_on_the_black_list_cannot_be_changed_from_afar(tmp_path: Path) -> None:
    async with asking(tmp_path, config_black_list=("enableTopicList",)) as (_, client):
        refused = await client.ask(CODE.UPDATE_NAMESRV_CONFIG, b"enableTopicList=false")
        assert refused.code == ResponseCode.NO_PERMISSION


async def test_small_settings_lie_in_the_file_that_was_set(tmp_path: Path) -> None:
    async with asking(tmp_path, kv_config_path=tmp_path / "elsewhere" / "kv.json") as (_, client):
        await client.ask(CODE.PUT_KV_CONFIG, namespace="N", key="k", value="v")
        assert b'"v"' in (tmp_path / "elsewhere" / "kv.json").read_bytes()


async def test_changed_settings_are_kept_in_the_file_that_was_set(tmp_path: Path) -> None:
    path = tmp_path / "elsewhere" / "n.properties"
    async with asking(tmp_path, config_store_path=path) as (_, client):
        answer = await client.ask(CODE.UPDATE_NAMESRV_CONFIG, b"enableTopicList=false")
        assert (answer.code, answer.remark) == (OK, None)
    assert path.read_text() == "enableTopicList=false\n"
    flags = [f"configStorePath={path}", f"kvConfigPath={tmp_path / 'kv.json'}"]
    assert not NamesrvConfig.load(None, {}, flags).namesrv.topic_list_enabled


def test_a_file_that_was_given_is_where_changes_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.conf"
    path.write_text("enableTopicList=false\n")
    config = NamesrvConfig.load(path, {}, []).namesrv
    assert (config.config_store_path, config.topic_list_enabled) == (path, False)
