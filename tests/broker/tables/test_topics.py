"""Topics of a broker: presets, first sends, retries, and the file they are kept in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.broker.clients import BROKER, CLUSTER, Desk, desk

from flaremq.base.errors import ConfigError, InvalidName, InvalidParameter
from flaremq.broker.tables.topics import TopicConfigs, check_config
from flaremq.model.topic import DataVersion, TopicConfig


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Desk]:
    with desk(tmp_path) as made:
        yield made


@pytest.fixture
def topics(made: Desk) -> TopicConfigs:
    return made.topics


PRESETS = {
    "SELF_TEST_TOPIC": (1, 6),
    "TBW102": (8, 7),
    "BenchmarkTest": (1024, 6),
    CLUSTER: (16, 7),
    BROKER: (1, 7),
    "OFFSET_MOVED_EVENT": (1, 6),
    "SCHEDULE_TOPIC_XXXX": (18, 6),
    f"{CLUSTER}_REPLY_TOPIC": (1, 6),
    f"rmq_sys_REVIVE_LOG_{CLUSTER}": (8, 6),
    f"rmq_sys_SYNC_BROKER_MEMBER_{BROKER}": (1, 1),
    "RMQ_SYS_TRANS_HALF_TOPIC": (1, 6),
    "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 6),
    "rmq_sys_wheel_timer": (1, 6),
}


def test_new_broker_has_the_topics_that_javas_has(topics: TopicConfigs) -> None:
    assert {name: (config.write_queue_nums, config.perm) for name, config in topics.all().items()} == PRESETS
    assert all(topics.is_system(name) for name in PRESETS)


def test_pattern_and_own_topics_follow_the_settings(tmp_path: Path) -> None:
    with desk(tmp_path, auto_create_topics=False, cluster_topic=False, trace_topic=True) as made:
        assert made.topics.get("TBW102") is None
        assert made.topics.get("RMQ_SYS_TRACE_TOPIC") is not None
        cluster = made.topics.get(CLUSTER)
        assert cluster is not None and cluster.perm == 1


def test_first_send_makes_the_topic_after_its_pattern(topics: TopicConfigs) -> None:
    made = topics.create_for_send("Orders", "TBW102", 4)
    assert made == TopicConfig("Orders", read_queue_nums=4, write_queue_nums=4, perm=6)
    assert topics.get("Orders") == made
    assert topics.create_for_send("Orders", "TBW102", 2) == made  # It is there.


def test_first_send_gets_no_more_queues_than_the_pattern_has(topics: TopicConfigs) -> None:
    made = topics.create_for_send("Orders", "TBW102", 100, unit=True)
    assert made is not None and made.read_queue_nums == 8 and made.topic_sys_flag == 1


def test_first_send_makes_nothing_without_a_pattern_that_is_inherited(topics: TopicConfigs) -> None:
    assert topics.create_for_send("Orders", "Nowhere", 4) is None
    assert topics.create_for_send("Orders", "BenchmarkTest", 4) is None
    assert topics.get("Orders") is None


def test_first_send_makes_nothing_where_topics_are_made_by_hand(tmp_path: Path) -> None:
    with desk(tmp_path) as made:
        kept = made.topics.get("TBW102")
    with desk(tmp_path, auto_create_topics=False) as made:
        assert kept is not None
        made.topics.put(kept)  # As a file of before would bring it.
        assert made.topics.create_for_send("Orders", "TBW102", 4) is None


@pytest.mark.parametrize("name", ["", "a/b", "../../etc", "a b", "x" * 128, "\0"])
def test_first_send_to_a_name_that_cannot_be_is_refused(topics: TopicConfigs, name: str) -> None:
    with pytest.raises(InvalidName):
        topics.create_for_send(name, "TBW102", 4)


@pytest.mark.parametrize("count", [0, -1])
def test_first_send_that_wants_no_queues_is_refused(topics: TopicConfigs, count: int) -> None:
    with pytest.raises(InvalidParameter, match=f"{count} queues"):
        topics.create_for_send("Orders", "TBW102", count)


def test_topic_for_retries_is_made_once(topics: TopicConfigs) -> None:
    made = topics.ensure("%RETRY%g", 1, sys_flag=2)
    assert (made.perm, made.read_queue_nums, made.topic_sys_flag) == (6, 1, 2)
    assert topics.ensure("%RETRY%g", 5) == made
    assert topics.ensure("%RETRY%g", 1, order=True).order
    assert topics.ensure("%RETRY%g", 1).order  # Not said, so not changed.


def test_every_change_is_told_and_counted_and_the_same_again_is_none(topics: TopicConfigs) -> None:
    told: list[list[str]] = []
    topics.listeners.append(lambda changed: told.append([each.topic_name for each in changed]))
    before = topics.version
    orders = TopicConfig("Orders")
    topics.put(orders)
    topics.put(orders)
    topics.put_many([orders, replace(orders, perm=4), TopicConfig("Bills")])
    assert topics.remove("Bills") is not None
    assert topics.remove("Bills") is None
    assert told == [["Orders"], ["Orders", "Bills"], []]
    assert topics.version.counter == before.counter + 3
    assert topics.version > before


@pytest.mark.parametrize(
    "config",
    [
        TopicConfig("a", read_queue_nums=-1),
        TopicConfig("a", write_queue_nums=1 << 20),
        TopicConfig("a", perm=8),
        TopicConfig("a", perm=-1),
    ],
)
def test_topic_that_cannot_be_is_refused(config: TopicConfig) -> None:
    with pytest.raises(InvalidParameter, match="expected"):
        check_config(config)


async def test_topics_outlive_the_broker(tmp_path: Path) -> None:
    orders = TopicConfig("Orders", read_queue_nums=3, order=True, attributes={"message.type": "FIFO"})
    with desk(tmp_path) as made:
        made.topics.put(orders)
        made.topics.put(TopicConfig("TBW102", perm=6))
        await made.topics.save()
        assert not made.topics.dirty
        version = made.topics.version
    with desk(tmp_path) as made:
        assert made.topics.get("Orders") == orders
        assert made.topics.get("TBW102") == TopicConfig("TBW102", perm=6)  # By an administrator: it stays.
        assert made.topics.version == version


async def test_file_has_the_members_that_java_reads(tmp_path: Path) -> None:
    with desk(tmp_path) as made:
        await made.topics.save()
    data = json.loads((tmp_path / "config" / "topics.json").read_bytes())
    assert data.keys() == {"dataVersion", "topicConfigTable"}
    assert data["dataVersion"].keys() == {"counter", "stateVersion", "timestamp"}
    assert data["topicConfigTable"]["TBW102"] == {
        "attributes": {},
        "order": False,
        "perm": 7,
        "readQueueNums": 8,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "TBW102",
        "topicSysFlag": 0,
        "writeQueueNums": 8,
    }


JAVA_4 = """{
	"dataVersion":{
		"counter":7,
		"timestamp":1700000000000
	},
	"topicConfigTable":{
		"Orders":{
			"order":false,
			"perm":6,
			"readQueueNums":4,
			"topicFilterType":"SINGLE_TAG",
			"topicName":"Orders",
			"topicSysFlag":0,
			"writeQueueNums":4
		}
	}
}"""
JAVA_5 = """{
	"dataVersion":{"counter":7,"stateVersion":0,"timestamp":1700000000000},
	"topicConfigTable":{
		"A":{"attributes":{"message.type":"FIFO"},"order":false,"perm":6,"readQueueNums":4,
			"topicFilterType":"SINGLE_TAG","topicName":"A","topicSysFlag":0,"writeQueueNums":4},
		"Orders":{"attributes":{"$ref":"$.topicConfigTable.A.attributes"},"order":false,"perm":6,
			"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"Orders","topicSysFlag":0,"writeQueueNums":4}
	}
}"""


@pytest.mark.parametrize(("text", "kind"), [(JAVA_4, None), (JAVA_5, "FIFO")])
def test_file_of_javas_broker_is_read(tmp_path: Path, text: str, kind: str | None) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text(text)
    with desk(tmp_path) as made:
        orders = made.topics.get("Orders")
        assert orders is not None and orders.write_queue_nums == 4
        assert orders.attributes.get("message.type") == kind
        assert made.topics.version == DataVersion(0, 7, 1_700_000_000_000)
        assert made.topics.get("TBW102") is not None


def test_file_that_is_json_but_no_table_of_topics_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text('{"topicConfigTable":{"Orders":{"perm":"x"}}}')
    with pytest.raises(ConfigError, match=r"topics\.json"), desk(tmp_path):
        pass
