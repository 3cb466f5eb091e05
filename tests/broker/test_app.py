"""A whole broker with its ports: what each of them serves, and what is changed while it runs."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.protocol.samples import a_pull, a_send

from flaremq.broker.app import Broker
from flaremq.broker.config import BrokerConfig
from flaremq.broker.settings import BrokerServerSettings, BrokerSettings
from flaremq.broker.tables.configfile import ConfigFile
from flaremq.model.record import decode_many
from flaremq.model.topic import TopicConfig
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command
from flaremq.remoting.caller import Caller
from flaremq.testing.cluster import eventually
from flaremq.testing.fakes.builders import small_settings

SEND = replace(a_send(e="0"), body=b"hello")
PULL = a_pull(queueId="0", queueOffset="0", sysFlag="4", subscription="*")


class Site:
    def __init__(self, broker: Broker, caller: Caller) -> None:
        self.broker = broker
        self._caller = caller

    async def ask(self, request: Command, below: int = 0) -> Command:
        """At the port of clients, or so far below it."""
        return await self._caller.call(f"127.0.0.1:{self.broker.port - below}", request, 5)


def a_broker(root: Path) -> Broker:
    return Broker(
        BrokerConfig(
            broker=BrokerSettings(ip1="127.0.0.1", broker_name="broker-a"),
            server=BrokerServerSettings(listen_port=0, bind_address="127.0.0.1", drain_s=1),
            store=small_settings(root),
        )
    )


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    broker = a_broker(tmp_path)
    await broker.start()
    broker.tables.topics.put(TopicConfig("TopicTest", 4, 4))
    caller = Caller()
    try:
        yield Site(broker, caller)
    finally:
        await caller.aclose()
        await broker.stop()


async def test_the_vip_port_takes_sends_and_has_no_pulls_to_wait_behind(site: Site) -> None:
    assert (await site.ask(SEND, below=2)).code == ResponseCode.SUCCESS
    refused = await site.ask(PULL, below=2)
    assert (refused.code, refused.remark) == (
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        " request type 11 not supported",
    )
    assert (await site.ask(PULL)).code == ResponseCode.SUCCESS


async def test_what_is_changed_from_afar_holds_at_once(site: Site) -> None:
    assert (await site.ask(PULL)).code == ResponseCode.PULL_NOT_FOUND
    update = Command(code=RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=2\n")
    assert (await site.ask(update)).code == ResponseCode.SUCCESS
    assert (await site.ask(PULL)).code == ResponseCode.NO_PERMISSION
    assert (await site.ask(SEND)).code == ResponseCode.SUCCESS


async def test_tracing_that_is_switched_off_is_off_for_the_next_send_in_both_lanes(site: Site) -> None:
    plain = replace(a_send(e="0", i=""), body=b"hello")  # Without an id it takes the plain lane.
    assert [(await site.ask(each)).fields["TRACE_ON"] for each in (SEND, plain)] == ["true", "true"]
    update = Command(code=RequestCode.UPDATE_BROKER_CONFIG, body=b"traceOn=false\n")
    assert (await site.ask(update)).code == ResponseCode.SUCCESS
    assert [(await site.ask(each)).fields["TRACE_ON"] for each in (SEND, plain)] == ["false", "false"]
    site.broker.store.dispatch()  # Another thread may still be making the new queue.
    body = (await site.ask(PULL)).body
    assert body is not None
    stored = [message.properties["TRACE_ON"] for message in decode_many(body)]
    assert stored == ["true", "true", "false", "false"]


async def test_a_changed_number_of_queues_holds_for_topics_made_from_then_on(site: Site) -> None:
    first = replace(a_send(b="First", d="100", e="0"), body=b"x")
    assert (await site.ask(first)).code == ResponseCode.SUCCESS
    update = Command(code=RequestCode.UPDATE_BROKER_CONFIG, body=b"defaultTopicQueueNums=3\n")
    assert (await site.ask(update)).code == ResponseCode.SUCCESS
    assert (await site.ask(replace(first, ext_fields={**first.fields, "b": "Second"}))).code == 0
    made = [site.broker.tables.topics.get(name) for name in ("First", "Second")]
    assert [config.write_queue_nums for config in made if config is not None] == [8, 3]


async def test_a_value_that_means_nothing_changes_nothing(site: Site) -> None:
    update = Command(code=RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=many\n")
    answer = await site.ask(update)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "brokerPermission" in (answer.remark or "")
    assert (await site.ask(SEND)).code == ResponseCode.SUCCESS


BEAT = (
    b'{"clientID":"c1","consumerDataSet":[{"groupName":"g1","subscriptionDataSet":[{"topic":"TopicTest",'
    b'"subString":"*"}]}],"producerDataSet":[]}'
)


async def test_a_heartbeat_is_answered_before_its_new_group_is_on_the_disk(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk_goes_on, write = threading.Event(), ConfigFile.save

    def slow(file: ConfigFile, text: bytes) -> None:
        assert disk_goes_on.wait(30)
        write(file, text)

    monkeypatch.setattr(ConfigFile, "save", slow)
    groups = tmp_path / "config" / "subscriptionGroup.json"
    try:
        assert (await site.ask(Command(code=RequestCode.HEART_BEAT, body=BEAT))).code == 0
        assert not groups.exists() or b'"g1"' not in groups.read_bytes()
    finally:
        disk_goes_on.set()

    async def saved() -> bool:
        return groups.exists() and b'"g1"' in groups.read_bytes()

    await eventually("the group is saved", saved)
    assert b"%RETRY%g1" in (tmp_path / "config" / "topics.json").read_bytes()


async def test_a_group_of_the_last_heartbeat_before_a_stop_is_kept(tmp_path: Path) -> None:
    broker = a_broker(tmp_path)
    await broker.start()
    caller = Caller()
    answer = await Site(broker, caller).ask(Command(code=RequestCode.HEART_BEAT, body=BEAT))
    await caller.aclose()
    await broker.stop()
    assert answer.code == 0
    assert b'"g1"' in (tmp_path / "config" / "subscriptionGroup.json").read_bytes()
    assert b"%RETRY%g1" in (tmp_path / "config" / "topics.json").read_bytes()
