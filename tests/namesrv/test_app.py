"""A NameServer on a real port, asked as brokers, clients and mqadmin ask it."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from flaremq.base.errors import ConfigError
from flaremq.model.topic import DataVersion, TopicConfig
from flaremq.namesrv.app import NameServer
from flaremq.namesrv.kvconfig import KVConfig
from flaremq.namesrv.settings import NamesrvSettings
from flaremq.protocol import beans
from flaremq.protocol.bodies.cluster import ClusterInfo, KVTable, TopicList
from flaremq.protocol.bodies.route import RegisterBrokerBody, TopicConfigSerializeWrapper, TopicRouteData
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command
from flaremq.remoting.caller import Caller
from flaremq.remoting.settings import ServerSettings
from flaremq.testing.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def namesrv(tmp_path: Path, clock: ManualClock) -> AsyncIterator[NameServer]:
    settings = NamesrvSettings(
        kv_config_path=tmp_path / "kv.json", config_store_path=tmp_path / "namesrv.properties"
    )
    namesrv = NameServer(settings, ServerSettings(bind_address="127.0.0.1", drain_s=1), clock)
    await namesrv.start()
    yield namesrv
    await namesrv.stop()


class Client:
    """Somebody with a connection of its own."""

    def __init__(self, namesrv: NameServer) -> None:
        self._address = f"127.0.0.1:{namesrv.port}"
        self.caller = Caller()

    async def ask(
        self, code: int, body: bytes | None = None, *, version: int = 479, **fields: str
    ) -> Command:
        request = Command(code=code, ext_fields=fields, body=body, version=version)
        return await self.caller.call(self._address, request, timeout_s=5)

    async def register(self, *topics: str, name: str = "broker-a", crc: bool = True) -> Command:
        table = {topic: TopicConfig(topic, 4, 4) for topic in topics}
        wrapper = TopicConfigSerializeWrapper(data_version=DataVersion(0, 1, 5), topic_config_table=table)
        body = beans.encode(RegisterBrokerBody(topic_config_serialize_wrapper=wrapper))
        return await self.ask(
            RequestCode.REGISTER_BROKER,
            body,
            brokerName=name,
            brokerAddr="10.0.0.1:10911",
            clusterName="C",
            haServerAddr="10.0.0.1:10912",
            brokerId="0",
            compressed="false",
            bodyCrc32=str(zlib.crc32(body) & 0x7FFFFFFF if crc else 1),
        )


@pytest.fixture
async def client(namesrv: NameServer) -> AsyncIterator[Client]:
    client = Client(namesrv)
    yield client
    await client.caller.aclose()


async def test_a_registered_broker_is_found_by_topic(client: Client) -> None:
    assert (await client.register("A", "B")).code == 0
    answer = await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="A")
    route = beans.decode(TopicRouteData, answer.body)
    assert route.broker_datas[0].broker_addrs == {0: "10.0.0.1:10911"}


async def test_old_clients_get_fastjsons_dialect_and_new_ones_standard_json(client: Client) -> None:
    await client.register("A", "B")
    old = await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, version=317, topic="A")
    new = await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, version=401, topic="A")
    asked = await client.ask(
        RequestCode.GET_ROUTEINFO_BY_TOPIC, version=317, topic="A", acceptStandardJsonOnly="true"
    )
    assert b'{0:"10.0.0.1:10911"}' in bytes(old.body or b"")
    assert b'{"0":"10.0.0.1:10911"}' in bytes(new.body or b"") and new.body == asked.body


async def test_an_unknown_topic_is_answered_as_such(client: Client) -> None:
    answer = await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="Nobody")
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert (answer.remark or "").startswith("No topic route info")


async def test_a_registration_that_was_damaged_on_its_way_is_refused(client: Client) -> None:
    answer = await client.register("A", "B", crc=False)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "crc32 not match")


async def test_a_missing_field_is_an_answer_and_not_a_crash(client: Client) -> None:
    answer = await client.ask(RequestCode.REGISTER_BROKER, brokerName="x")
    assert answer.code != 0
    assert (await client.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).code == 0


async def test_a_broker_whose_connection_closes_is_gone_for_everybody(
    namesrv: NameServer, client: Client
) -> None:
    broker = Client(namesrv)
    await broker.register("A", "B")
    await broker.caller.aclose()
    answer = Command(code=0)
    while answer.code == 0:
        answer = await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="A")
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_silent_broker_is_gone_after_two_minutes(
    namesrv: NameServer, client: Client, clock: ManualClock
) -> None:
    broker = Client(namesrv)
    await broker.register("A", "B")
    clock.advance_ms(119_000)
    heartbeat: dict[str, Any] = {"clusterName": "C", "brokerAddr": "10.0.0.1:10911", "brokerName": "broker-a"}
    assert (await client.ask(RequestCode.BROKER_HEARTBEAT, **heartbeat)).code == 0
    clock.advance_ms(119_000)
    namesrv.expire()
    assert (await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="A")).code == 0
    clock.advance_ms(2_000)
    namesrv.expire()
    assert (
        await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="A")
    ).code == ResponseCode.TOPIC_NOT_EXIST
    await broker.caller.aclose()


async def test_data_versions_tell_whether_a_broker_must_register_again(client: Client) -> None:
    await client.register("A", "B")
    who: dict[str, Any] = {
        "clusterName": "C",
        "brokerAddr": "10.0.0.1:10911",
        "brokerName": "broker-a",
        "brokerId": "0",
    }
    for version, changed in ((DataVersion(0, 1, 5), "false"), (DataVersion(0, 2, 6), "true")):
        answer = await client.ask(RequestCode.QUERY_DATA_VERSION, beans.encode(version), **who)
        assert answer.fields["changed"] == changed


async def test_clusters_and_topics_are_listed(client: Client) -> None:
    await client.register("A", "B")
    info = beans.decode(ClusterInfo, (await client.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).body)
    assert info.cluster_addr_table == {"C": ("broker-a",)}
    everything = await client.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    of_cluster = await client.ask(RequestCode.GET_TOPICS_BY_CLUSTER, cluster="C")
    for answer in (everything, of_cluster):
        assert beans.decode(TopicList, answer.body).topic_list == ("A", "B")


async def test_kv_settings_are_kept_on_disk(client: Client, tmp_path: Path, clock: ManualClock) -> None:
    await client.ask(RequestCode.PUT_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="A", value="broker-a:4")
    got = await client.ask(RequestCode.GET_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="A")
    assert got.fields["value"] == "broker-a:4"
    registered = await client.register("A", "B")
    assert beans.decode(KVTable, registered.body).table == {"A": "broker-a:4"}
    settings = NamesrvSettings(kv_config_path=tmp_path / "kv.json", config_store_path=tmp_path / "x")
    again = NameServer(settings, ServerSettings(bind_address="127.0.0.1", drain_s=0), clock)
    await again.start()
    other = Client(again)
    listed = await other.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="ORDER_TOPIC_CONFIG")
    assert beans.decode(KVTable, listed.body).table == {"A": "broker-a:4"}
    await other.caller.aclose()
    await again.stop()
    await client.ask(RequestCode.DELETE_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="A")
    gone = await client.ask(RequestCode.GET_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="A")
    assert gone.code == ResponseCode.QUERY_NOT_FOUND


def a_namesrv(folder: Path) -> NameServer:
    settings = NamesrvSettings(kv_config_path=folder / "kv.json", config_store_path=folder / "x")
    return NameServer(settings, ServerSettings(bind_address="127.0.0.1", drain_s=0))


async def put_kv(namesrv: NameServer, key: str, value: str) -> Command:
    client = Client(namesrv)
    try:
        return await client.ask(RequestCode.PUT_KV_CONFIG, namespace="N", key=key, value=value)
    finally:
        await client.caller.aclose()


@pytest.mark.parametrize("broken", [b"", b'{"configTable":', b"[1]", b'{"configTable":{"N":1}}', b"\xff\x00"])
async def test_a_kv_file_that_cannot_be_read_is_never_overwritten(tmp_path: Path, broken: bytes) -> None:
    (tmp_path / "kv.json").write_bytes(broken)
    with pytest.raises(ConfigError, match=r"kv\.json.*Restore"):
        await a_namesrv(tmp_path).start()
    assert (tmp_path / "kv.json").read_bytes() == broken


async def test_a_broken_kv_file_is_replaced_by_its_backup(tmp_path: Path) -> None:
    namesrv = a_namesrv(tmp_path)
    await namesrv.start()
    for value in ("1", "2"):
        assert (await put_kv(namesrv, "key", value)).code == 0
    await namesrv.stop()
    (tmp_path / "kv.json").write_bytes(b"{")
    again = a_namesrv(tmp_path)
    await again.start()
    client = Client(again)
    got = await client.ask(RequestCode.GET_KV_CONFIG, namespace="N", key="key")
    await client.caller.aclose()
    await again.stop()
    assert got.fields["value"] == "1"


async def test_a_kv_setting_that_cannot_be_written_is_refused_and_not_shown(tmp_path: Path) -> None:
    folder = tmp_path / "kv"
    namesrv = a_namesrv(folder)
    await namesrv.start()
    folder.write_bytes(b"no folder")
    refused = await put_kv(namesrv, "key", "1")
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE and "cannot be written" in (
        refused.remark or ""
    )
    client = Client(namesrv)
    got = await client.ask(RequestCode.GET_KV_CONFIG, namespace="N", key="key")
    await client.caller.aclose()
    await namesrv.stop()
    assert got.code == ResponseCode.QUERY_NOT_FOUND


async def test_kv_settings_put_together_are_all_kept(tmp_path: Path) -> None:
    namesrv = a_namesrv(tmp_path)
    await namesrv.start()
    answers = await asyncio.gather(*(put_kv(namesrv, f"k{number}", "v") for number in range(20)))
    await namesrv.stop()
    assert all(answer.code == 0 for answer in answers)
    again = KVConfig(tmp_path / "kv.json")
    again.load()
    assert again.namespace("N") == {f"k{number}": "v" for number in range(20)}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"enableAllTopicList=false", ResponseCode.SUCCESS),
        (b"kvConfigPath=/etc/passwd", ResponseCode.NO_PERMISSION),
        (b"rocketmqHome=/tmp", ResponseCode.NO_PERMISSION),
        (b"listenPort=1", ResponseCode.SYSTEM_ERROR),
        (b"enableAllTopicList=perhaps", ResponseCode.SYSTEM_ERROR),
        (b"nonsense=1", ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_only_harmless_settings_may_be_changed_from_afar(
    client: Client, body: bytes, code: int
) -> None:
    assert (await client.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body)).code == code
    listed = await client.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    assert listed.code == (ResponseCode.SYSTEM_ERROR if code == 0 else 0)
    config = bytes((await client.ask(RequestCode.GET_NAMESRV_CONFIG)).body or b"")
    assert b"enableAllTopicList=" + (b"false" if code == 0 else b"true") in config


async def test_write_permission_of_a_broker_is_wiped(client: Client) -> None:
    await client.register("A", "B")
    answer = await client.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-a")
    assert answer.fields["wipeTopicCount"] == "2"
    answer = await client.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName="broker-a")
    assert answer.fields["addTopicCount"] == "2"


async def test_the_watch_over_silent_brokers_survives_a_failure(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    settings = NamesrvSettings(
        kv_config_path=tmp_path / "kv.json",
        config_store_path=tmp_path / "namesrv.properties",
        scan_interval_ms=1,
    )
    namesrv = NameServer(settings, ServerSettings(bind_address="127.0.0.1", drain_s=1), clock)
    looks, again = list[int](), asyncio.Event()

    def expire(now_ms: int) -> list[str]:
        looks.append(now_ms)
        if len(looks) == 1:
            raise ZeroDivisionError("of all things")
        again.set()
        return []

    namesrv.routes.expire = expire  # type: ignore[method-assign]
    await namesrv.start()
    await asyncio.wait_for(again.wait(), 60)
    await namesrv.stop()
    assert "the watch over silent brokers failed and will be repeated" in caplog.text
