"""Topics made, changed, deleted and shown, as requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.clients import BROKER, CLUSTER, Desk, a_member, desk, wants

from flaremq.broker.handlers.admin_topic import AdminTopicHandlers
from flaremq.model.message import MessageQueue
from flaremq.model.topic import TopicConfig
from flaremq.protocol import beans, fastjson
from flaremq.protocol.bodies.cluster import CreateTopicListRequestBody, TopicList
from flaremq.protocol.bodies.group import GroupList
from flaremq.protocol.bodies.route import TopicConfigSerializeWrapper
from flaremq.protocol.bodies.stats import QueryCorrectionOffsetBody, TopicOffset, TopicStatsTable
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.testing.fakes.builders import a_message

CODE = RequestCode
INVALID = ResponseCode.INVALID_PARAMETER


def serving(made: Desk) -> None:
    made.serve(AdminTopicHandlers(made.tables, made.store, made.stats, made.offload).table())


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Desk]:
    with desk(tmp_path) as made, made.store:
        serving(made)
        yield made


def create(topic: str = "Orders", **other: Any) -> dict[str, str]:
    given = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": "4",
        "writeQueueNums": "4",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    return {**given, **other}


def fill(made: Desk, topic: str, count: int, queue_id: int = 0) -> None:
    for _ in range(count):
        made.store.put(a_message(topic=topic.encode(), queue_id=queue_id))
    made.store.dispatch()


async def test_topic_is_made_kept_and_told(made: Desk, tmp_path: Path) -> None:
    told: list[str] = []
    made.topics.listeners.append(lambda changed: told.extend(each.topic_name for each in changed))
    attributes = "+message.type=FIFO"
    assert (await made.ask(CODE.UPDATE_AND_CREATE_TOPIC, create(attributes=attributes))).code == 0
    assert made.topics.get("Orders") == TopicConfig(
        "Orders", read_queue_nums=4, write_queue_nums=4, attributes={"message.type": "FIFO"}
    )
    assert told == ["Orders"]
    assert b'"Orders"' in (tmp_path / "config" / "topics.json").read_bytes()


async def test_same_topic_again_changes_nothing(made: Desk) -> None:
    await made.ask(CODE.UPDATE_AND_CREATE_TOPIC, create())
    version = made.topics.version
    assert (await made.ask(CODE.UPDATE_AND_CREATE_TOPIC, create())).code == 0
    assert made.topics.version == version
    await made.ask(CODE.UPDATE_AND_CREATE_TOPIC, create(readQueueNums="8"))
    assert made.topics.version > version


async def test_topic_keeps_the_attributes_that_a_change_does_not_name(made: Desk) -> None:
    await made.ask(CODE.UPDATE_AND_CREATE_TOPIC, create(attributes="+message.type=FIFO"))
    await made.ask(CODE.UPDATE_AND_CREATE_TOPIC, create(perm="4"))
    config = made.topics.get("Orders")
    assert config is not None and config.attributes == {"message.type": "FIFO"} and config.perm == 4


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"topic": ""}, INVALID),
        ({"topic": "../../tmp/x"}, INVALID),
        ({"topic": "a/b"}, INVALID),
        ({"topic": "x" * 128}, INVALID),
        ({"topic": "TBW102"}, INVALID),
        ({"topic": "rmq_sys_x"}, INVALID),
        ({"topic": CLUSTER}, INVALID),
        ({"topic": BROKER}, INVALID),
        ({"readQueueNums": "-1"}, INVALID),
        ({"writeQueueNums": "100000"}, INVALID),
        ({"perm": "9"}, INVALID),
        ({"topicFilterType": "ALL_TAGS"}, INVALID),
        ({"attributes": "+message.type=MIXED"}, INVALID),
        ({"attributes": "+colour=red"}, 1),
        ({"attributes": "nonsense"}, 1),
        ({"perm": "many"}, 1),
    ],
)
async def test_topic_that_cannot_be_is_refused(made: Desk, changed: dict[str, str], code: int) -> None:
    before = dict(made.topics.all())
    answer = await made.ask(CODE.UPDATE_AND_CREATE_TOPIC, {**create(), **changed})
    assert answer.code == code and answer.remark
    assert made.topics.all() == before


async def test_what_is_forbidden_by_default_may_be_allowed(tmp_path: Path) -> None:
    with desk(tmp_path, validate_system_topic=False, mixed_message_type=True) as made:
        serving(made)
        asked = create("TBW102", attributes="+message.type=MIXED")
        assert (await made.ask(CODE.UPDATE_AND_CREATE_TOPIC, asked)).code == 0


async def test_list_of_topics_is_taken_as_a_whole_or_not_at_all(made: Desk) -> None:
    good = TopicConfig("A", attributes={"+message.type": "DELAY"})
    bad = CreateTopicListRequestBody(topic_config_list=(good, TopicConfig("B", perm=99)))
    assert (await made.ask(CODE.UPDATE_AND_CREATE_TOPIC_LIST, body=bad)).code == INVALID
    assert made.topics.get("A") is None
    both = CreateTopicListRequestBody(topic_config_list=(good, TopicConfig("B")))
    assert (await made.ask(CODE.UPDATE_AND_CREATE_TOPIC_LIST, body=both)).code == 0
    assert made.topics.get("A") == TopicConfig("A", attributes={"message.type": "DELAY"})
    assert made.topics.get("B") is not None
    assert (await made.ask(CODE.UPDATE_AND_CREATE_TOPIC_LIST)).code != 0


async def test_deleted_topic_takes_queues_offsets_and_pop_retries_with_it(made: Desk) -> None:
    for topic in ("Orders", "%RETRY%g+Orders", "%RETRY%g_Orders", "%RETRY%g"):
        made.topics.put(TopicConfig(topic))
    fill(made, "Orders", 3)
    made.offsets.commit("g", "Orders", 0, 2)
    assert (await made.ask(CODE.DELETE_TOPIC_IN_BROKER, {"topic": "Orders"})).code == 0
    assert [topic for topic in made.topics.all() if "Orders" in topic] == []
    assert made.topics.get("%RETRY%g") is not None
    assert made.offsets.get("g", "Orders", 0) == -1
    assert made.store.max_offset(b"Orders", 0) == 0
    assert not made.topics.dirty and not made.offsets.dirty
    assert (await made.ask(CODE.DELETE_TOPIC_IN_BROKER, {"topic": "Orders"})).code == 0


@pytest.mark.parametrize("topic", ["", "../x", "TBW102", BROKER])
async def test_topic_that_may_not_go_stays(made: Desk, topic: str) -> None:
    assert (await made.ask(CODE.DELETE_TOPIC_IN_BROKER, {"topic": topic})).code == INVALID


async def test_queues_of_unknown_topics_are_cleaned_away(made: Desk) -> None:
    made.topics.put(TopicConfig("Known"))
    for topic in ("Known", "Unknown", "%LMQ%light", "SCHEDULE_TOPIC_XXXX"):
        fill(made, topic, 1)
    assert (await made.ask(CODE.CLEAN_UNUSED_TOPIC)).code == 0
    assert {key[0] for key, _ in made.store.queues.items()} == {
        b"Known",
        b"%LMQ%light",
        b"SCHEDULE_TOPIC_XXXX",
    }


async def test_all_topics_are_shown_at_once_or_by_the_page(made: Desk) -> None:
    answer = await made.ask(CODE.GET_ALL_TOPIC_CONFIG)
    whole = beans.decode(TopicConfigSerializeWrapper, answer.body)
    assert whole.topic_config_table == made.topics.all()
    assert whole.data_version == made.topics.version
    assert fastjson.load_object(answer.body).keys() == {
        *("dataVersion", "mappingDataVersion", "topicConfigTable"),
        *("topicQueueMappingDetailMap", "topicQueueMappingInfoMap"),
    }
    known = fastjson.dumps(made.topics.version.to_dict()).decode()
    seen: dict[str, TopicConfig] = {}
    while len(seen) < len(made.topics.all()):
        paged = {"topicSeq": str(len(seen)), "dataVersion": known, "maxTopicNum": "5"}
        answer = await made.ask(CODE.GET_ALL_TOPIC_CONFIG, paged)
        assert answer.fields == {"totalTopicNum": str(len(made.topics.all()))}
        seen.update(beans.decode(TopicConfigSerializeWrapper, answer.body).topic_config_table)
    assert seen == made.topics.all()


async def test_one_topic_is_shown(made: Desk) -> None:
    answer = await made.ask(CODE.GET_TOPIC_CONFIG, {"topic": "TBW102", "lo": "true"})
    assert beans.decode(TopicConfig, answer.body) == made.topics.get("TBW102")
    answer = await made.ask(CODE.GET_TOPIC_CONFIG, {"topic": "Nowhere"})
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST


async def test_queues_of_a_topic_are_shown_with_their_ends(made: Desk) -> None:
    made.topics.put(TopicConfig("Orders", read_queue_nums=1, write_queue_nums=2))
    fill(made, "Orders", 3, queue_id=1)
    answer = await made.ask(CODE.GET_TOPIC_STATS_INFO, {"topic": "Orders"})
    assert beans.decode(TopicStatsTable, answer.body).offset_table == {
        MessageQueue("Orders", BROKER, 0): TopicOffset(),
        MessageQueue("Orders", BROKER, 1): TopicOffset(
            max_offset=3, last_update_timestamp=made.clock.now_ms()
        ),
    }
    answer = await made.ask(CODE.GET_TOPIC_STATS_INFO, {"topic": "Nowhere"})
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST


async def test_groups_of_a_topic_are_those_connected_and_those_with_offsets(made: Desk) -> None:
    made.groups.heartbeat(a_member(), wants("online", "Orders"))
    made.offsets.commit("away", "Orders", 0, 1)
    made.offsets.commit("other", "Bills", 0, 1)
    answer = await made.ask(CODE.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "Orders"})
    assert beans.decode(GroupList, answer.body).group_list == ("away", "online")


async def test_system_topics_are_listed(made: Desk) -> None:
    made.topics.put(TopicConfig("Orders"))
    answer = await made.ask(CODE.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    listed = beans.decode(TopicList, answer.body).topic_list
    assert {"TBW102", BROKER, CLUSTER, "SCHEDULE_TOPIC_XXXX"} <= set(listed)
    assert "Orders" not in listed


async def test_correction_offsets_are_the_least_of_all_groups(made: Desk) -> None:
    for group, offset in (("a", 7), ("b", 5), ("left-out", 1)):
        made.offsets.commit(group, "Orders", 0, offset)
    made.offsets.commit("a", "Orders", 1, 9)
    asked = {"topic": "Orders", "compareGroup": "b", "filterGroups": "left-out,nobody"}
    answer = await made.ask(CODE.QUERY_CORRECTION_OFFSET, asked)
    assert beans.decode(QueryCorrectionOffsetBody, answer.body).correction_offsets == {0: 5, 1: 9}
    asked = {"topic": "Orders", "compareGroup": "left-out", "filterGroups": "left-out"}
    answer = await made.ask(CODE.QUERY_CORRECTION_OFFSET, asked)
    assert beans.decode(QueryCorrectionOffsetBody, answer.body).correction_offsets == {0: (1 << 63) - 1, 1: 9}
    assert made.offsets.get("left-out", "Orders", 0) == 1  # Asking takes nothing away.
