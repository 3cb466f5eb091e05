"""Figures as Prometheus reads them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from tests.broker.nobody import Nobody

from flaremq.base.errors import ConfigError
from flaremq.base.live import Live
from flaremq.base.metrics import CONTENT_TYPE, Registry
from flaremq.broker.offload import Offload
from flaremq.broker.settings import BrokerSettings, MetricsExporter
from flaremq.broker.stats.metrics import BrokerMetrics, extra_labels, version_name
from flaremq.broker.stats.stats import Stats
from flaremq.broker.tables.producers import ClientMember
from flaremq.broker.tables.tables import Tables
from flaremq.model.topic import TopicConfig
from flaremq.protocol.bodies.group import ConsumerData
from flaremq.protocol.codes import LanguageCode
from flaremq.store.flags import Flag
from flaremq.store.store import MessageStore
from flaremq.testing.clock import ManualClock
from flaremq.testing.fakes.builders import NOW_MS, a_message, small_settings

OWN = 'cluster="C",node_type="broker",node_id="broker-a"'


@dataclass
class Line:
    limit: int = 10
    waiting: int = 3

    def head_wait_ms(self) -> int:
        return 0


class Bench:
    def __init__(self, store: MessageStore, root: Path, offload: Offload, **other: Any) -> None:
        clock = self.clock = ManualClock(NOW_MS)
        given: dict[str, Any] = {
            "broker_name": "broker-a",
            "cluster_name": "C",
            "ip1": "a",
            "ip2": "a",
            **other,
        }
        self.live = Live(BrokerSettings(**given))
        self.watched: dict[str, Any] = {
            "store": store,
            "stats": Stats(self.live, clock),
            "tables": Tables(self.live, root / "config", offload, clock),
            "families": {"send": Line(), "litePull": Line(waiting=4), "query": Line(waiting=0)},
            "offload": offload,
            "clock": clock,
        }
        self.stats: Stats = self.watched["stats"]
        self.tables: Tables = self.watched["tables"]
        self.metrics = BrokerMetrics(self.live, **self.watched)

    async def lines(self) -> set[str]:
        answer = await self.metrics.page()
        assert answer.content_type == CONTENT_TYPE
        return {line.replace(OWN + ",", "").replace(OWN, "") for line in answer.body.splitlines()}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore(small_settings(tmp_path / "store"), clock=ManualClock(NOW_MS)) as store:
        yield store


@pytest.fixture
async def offload() -> AsyncIterator[Offload]:
    offload = Offload(1)
    yield offload
    offload.close()


@pytest.fixture
def bench(store: MessageStore, tmp_path: Path, offload: Offload) -> Bench:
    return Bench(store, tmp_path, offload)


async def test_every_metric_has_the_labels_of_its_broker(bench: Bench) -> None:
    text = (await bench.metrics.page()).body
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert samples and all(OWN in line for line in samples)


async def test_the_broker_tells_of_itself(bench: Bench) -> None:
    bench.tables.topics.put(TopicConfig("A"))
    assert {
        "rocketmq_broker_permission{} 6",
        "rocketmq_topic_number{} 1",
        "rocketmq_consumer_group_number{} 0",
        'rocketmq_processor_watermark{processor="send"} 3',
        'rocketmq_processor_watermark{processor="lite_pull"} 4',
        'rocketmq_processor_watermark{processor="query_message"} 0',
    } <= await bench.lines()


def _group_labels(topic: str, group: str = "g", retry: str = "false") -> str:
    return f'{{topic="{topic}",consumer_group="{group}",is_retry="{retry}",is_system="false"}}'


async def test_messages_are_counted_in_and_out(bench: Bench) -> None:
    topics, stats = bench.tables.topics, bench.stats
    topics.put(TopicConfig("A", attributes={"message.type": "FIFO"}))
    stats.put("A", 5, 500)
    stats.put("RMQ_SYS_TRACE_TOPIC", 1, 10)
    stats.got("g", "%RETRY%g", 4, 400)
    stats.got("g", "A", 3, 300)
    stats.sent_to_dlq("g", "A")
    assert {
        'rocketmq_messages_in_total{topic="A",message_type="fifo",is_system="false"} 5',
        'rocketmq_throughput_in_total{topic="A",message_type="fifo",is_system="false"} 500',
        'rocketmq_messages_in_total{topic="RMQ_SYS_TRACE_TOPIC",message_type="normal",is_system="true"} 1',
        f"rocketmq_messages_out_total{_group_labels('%RETRY%g', retry='true')} 4",
        f"rocketmq_throughput_out_total{_group_labels('A')} 300",
        f"rocketmq_send_to_dlq_messages_total{_group_labels('A')} 1",
    } <= await bench.lines()


async def test_what_was_deleted_is_shown_no_more(bench: Bench) -> None:
    bench.stats.put("Gone", 5, 500)
    assert any("Gone" in line for line in await bench.lines())
    bench.stats.topic_deleted("Gone")
    assert not any("Gone" in line for line in await bench.lines())


def a_member(peer: Nobody, language: LanguageCode | None, version: int) -> ClientMember:
    return ClientMember(peer=peer, client_id="c", language=language, version=version)


async def test_clients_are_counted_by_language_and_version(bench: Bench) -> None:
    peers = [Nobody() for _ in range(3)]
    for peer in peers:
        bench.tables.producers.register("p", a_member(peer, LanguageCode.JAVA, 479))
    bench.tables.producers.register("q", a_member(peers[0], None, 5))
    bench.tables.groups.heartbeat(a_member(peers[0], LanguageCode.GO, 317), ConsumerData(group_name="g"))
    assert {
        'rocketmq_producer_connections{language="java",version="v5_3_3",protocol_type="remoting"} 3',
        'rocketmq_producer_connections{language="other",version="5",protocol_type="remoting"} 1',
        'rocketmq_consumer_connections{consumer_group="g",consume_mode="push",language="go",version="v4_5_2",'
        'protocol_type="remoting",is_system="false"} 1',
    } <= await bench.lines()


async def test_lag_is_what_is_not_consumed_yet(bench: Bench, store: MessageStore) -> None:
    for _ in range(10):
        store.put(a_message(), wait=False)
    store.dispatch()
    offsets = bench.tables.offsets
    offsets.commit("g", "TopicTest", 0, 3)
    offsets.pulled("g", "TopicTest", 0, 7)
    offsets.commit("done", "TopicTest", 0, 10)
    offsets.commit("lost", "Unknown", 0, 99)
    bench.clock.advance_ms(4000)
    lines = await bench.lines()
    for name, group, value in (
        ("lag_messages", "g", 7),
        ("inflight_messages", "g", 4),
        ("ready_messages", "g", 3),
        ("lag_latency", "g", 4000),
        ("queueing_latency", "g", 4000),
        ("lag_messages", "done", 0),
        ("lag_latency", "done", 0),
    ):
        assert f"rocketmq_consumer_{name}{_group_labels('TopicTest', group)} {value}" in lines
    assert f"rocketmq_consumer_lag_messages{_group_labels('Unknown', 'lost')} 0" in lines


async def test_the_store_tells_how_full_and_how_far_behind_it_is(bench: Bench, store: MessageStore) -> None:
    store.put(a_message(), wait=False)
    store.dispatch()
    store.log.flush(0)
    bench.clock.advance_ms(60_000)
    labels = 'storage_type="local",storage_medium="disk"'
    lines = await bench.lines()
    assert {
        f"rocketmq_storage_flush_behind_bytes{{{labels}}} 0",
        f"rocketmq_storage_dispatch_behind_bytes{{{labels}}} 0",
        f"rocketmq_storage_message_reserve_time{{{labels}}} 60000",
    } <= lines
    assert any(line.startswith(f"rocketmq_storage_size{{{labels}}} ") for line in lines)


async def test_too_many_members_are_cut_off(store: MessageStore, tmp_path: Path, offload: Offload) -> None:
    bench = Bench(store, tmp_path, offload, metrics_members_max=10)
    for number in range(100):
        bench.stats.put(f"T{number}", 1, 1)
    lines = await bench.lines()
    assert len([line for line in lines if line.startswith("rocketmq_messages_in_total{")]) == 10


async def test_further_labels_and_metrics_are_shown(
    store: MessageStore, tmp_path: Path, offload: Offload
) -> None:
    bench = Bench(store, tmp_path, offload, metrics_label="zone:z1, rack:r2")
    assert 'rocketmq_topic_number{zone="z1",rack="r2"} 0' in await bench.lines()
    registry = Registry()
    registry.counter("own_total", "Of the process").inc()
    metrics = BrokerMetrics(bench.live, **bench.watched, own=registry)
    assert "own_total 1" in (await metrics.page()).body


@pytest.mark.parametrize("text", ["zone", "1x:2", "zone:z1,:b", "zöne:1"])
def test_a_label_that_is_none_is_told(text: str) -> None:
    with pytest.raises(ConfigError, match="metricsLabel"):
        extra_labels(text)


async def test_health_says_whether_messages_are_taken(bench: Bench, store: MessageStore) -> None:
    assert (await bench.metrics.health()).status is HTTPStatus.OK
    store.flags.set(Flag.DISK_FULL, "/data is 99% full")
    sick = await bench.metrics.health()
    assert sick.status is HTTPStatus.SERVICE_UNAVAILABLE and "99% full" in sick.body


async def test_health_says_which_part_fails_and_tries_again(bench: Bench, store: MessageStore) -> None:
    store.flags.trouble("dispatch", OSError(24, "Too many open files"))
    degraded = await bench.metrics.health()
    assert degraded.status is HTTPStatus.OK, "messages are taken"
    assert degraded.body == "degraded: dispatch: OSError: [Errno 24] Too many open files\n"
    store.flags.healed("dispatch")
    assert (await bench.metrics.health()).body == "ok\n"


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (213, "v4_0_0"),
        (232, "v4_1_0_snapshot"),
        (317, "v4_5_2"),
        (401, "v4_9_4"),
        (412, "v5_0_0_snapshot"),
        (413, "v5_0_0"),
        (479, "v5_3_3"),
        (612, "higher_version"),
        (99999, "higher_version"),
        (37, "37"),
        (-1, "-1"),
    ],
)
def test_versions_have_the_names_that_java_gives_them(number: int, name: str) -> None:
    assert version_name(number) == name


@pytest.mark.parametrize("exporter", [MetricsExporter.OTLP_GRPC, MetricsExporter.LOG])
def test_an_exporter_that_is_not_here_is_told(exporter: MetricsExporter) -> None:
    with pytest.raises(ConfigError, match=f"metricsExporterType={exporter.name}"):
        BrokerSettings(broker_name="b", ip1="a", ip2="a", metrics_exporter=exporter)
