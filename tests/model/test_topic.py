"""The JSON texts are what fastjson prints for Java's own objects, without its line breaks."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.base.errors import Malformed
from flaremq.model import topic
from flaremq.model.retrypolicy import Customized, Exponential, RetryPolicy, RetryPolicyType
from flaremq.model.topic import (
    DataVersion,
    GroupConfig,
    SimpleSubscription,
    TopicConfig,
    TopicFilterType,
    perm_text,
)

TOPIC_JSON = (
    '{"attributes":{},"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG",'
    '"topicName":"T","topicSysFlag":0,"writeQueueNums":4}'
)
GROUP_JSON = (
    '{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,'
    '"consumeMessageOrderly":false,"consumeTimeoutMinute":15,"groupName":"G",'
    '"groupRetryPolicy":{"type":"CUSTOMIZED"},"groupSysFlag":0,"notifyConsumerIdsChangedEnable":true,'
    '"retryMaxTimes":16,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}'
)


def compact(data: dict[str, object]) -> str:
    return json.dumps(data, separators=(",", ":"))


def test_a_topic_is_written_as_java_writes_it() -> None:
    assert compact(TopicConfig("T", 4, 4).to_dict()) == TOPIC_JSON
    assert TopicConfig.from_dict(json.loads(TOPIC_JSON)) == TopicConfig("T", 4, 4)


def test_a_group_is_written_as_java_writes_it() -> None:
    assert compact(GroupConfig("G").to_dict()) == GROUP_JSON
    assert GroupConfig.from_dict(json.loads(GROUP_JSON)) == GroupConfig("G")


@given(
    st.builds(
        TopicConfig,
        st.text(min_size=1),
        st.integers(0, 1024),
        st.integers(0, 1024),
        st.integers(0, 15),
        st.sampled_from(TopicFilterType),
        st.integers(0, 3),
        st.booleans(),
        st.dictionaries(st.text(), st.text()),
    )
)
def test_a_topic_is_read_back(config: TopicConfig) -> None:
    assert TopicConfig.from_dict(json.loads(compact(config.to_dict()))) == config


@given(
    st.builds(
        GroupConfig,
        group_name=st.text(min_size=1),
        consume_enable=st.booleans(),
        notify_consumer_ids_changed_enable=st.booleans(),
        retry_max_times=st.integers(0, 100),
        broker_id=st.integers(0, 2**40),
        group_retry_policy=st.builds(
            RetryPolicy,
            st.sampled_from(RetryPolicyType),
            st.none() | st.builds(Exponential, st.integers(1, 9), st.integers(1, 99), st.integers(1, 9)),
            st.none() | st.builds(Customized, st.lists(st.integers(0, 99), min_size=1).map(tuple)),
        ),
        subscription_data_set=st.none()
        | st.lists(st.builds(SimpleSubscription, st.text(), st.text(), st.text(), st.integers(0, 9))).map(
            tuple
        ),
        attributes=st.dictionaries(st.text(), st.text()),
    )
)
def test_a_group_is_read_back(config: GroupConfig) -> None:
    assert GroupConfig.from_dict(json.loads(compact(config.to_dict()))) == config


def test_members_come_in_alphabetical_order() -> None:
    group = GroupConfig("G", subscription_data_set=(SimpleSubscription("T", "TAG", "*"),))
    for data in (group.to_dict(), TopicConfig("T").to_dict(), DataVersion().to_dict()):
        assert list(data) == sorted(data)


def test_what_is_missing_is_the_default_and_what_is_unknown_is_passed_over() -> None:
    assert TopicConfig.from_dict({"topicName": "T", "attributes": None, "later": 1}) == TopicConfig("T")
    assert GroupConfig.from_dict({"groupName": "G", "groupRetryPolicy": None, "later": 1}) == GroupConfig("G")
    assert DataVersion.from_dict({}) == DataVersion()


def test_numbers_and_booleans_may_be_text_as_for_java() -> None:
    config = TopicConfig.from_dict({"topicName": "T", "perm": "4", "order": "True"})
    assert (config.perm, config.order) == (4, True)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"topicName": None}, "topicName of a topic is None, expected text"),
        ({"topicName": 5}, "expected text"),
        ({"perm": "six"}, "perm of a topic is 'six', expected a whole number"),
        ({"perm": True}, "whole number"),
        ({"perm": 1.5}, "whole number"),
        ({"perm": "9" * 5000}, "whole number"),
        ({"order": 1}, "true or false"),
        ({"topicFilterType": "ANY"}, "one of SINGLE_TAG, MULTI_TAG"),
        ({"topicFilterType": 0}, "one of SINGLE_TAG"),
        ({"attributes": []}, "an object of texts"),
        ({"attributes": {"a": 1}}, "an object of texts"),
    ],
)
def test_a_topic_that_makes_no_sense_is_malformed(wrong: dict[str, Any], complaint: str) -> None:
    with pytest.raises(Malformed, match=complaint):
        TopicConfig.from_dict({"topicName": "T", **wrong})


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"groupName": None}, "groupName of a group"),
        ({"groupRetryPolicy": "x"}, "groupRetryPolicy of a group is 'x', expected an object"),
        ({"groupRetryPolicy": {"type": "x"}}, "type of a group.groupRetryPolicy"),
        (
            {"groupRetryPolicy": {"customizedRetryPolicy": {"next": 5}}},
            "next of .*customizedRetryPolicy is 5",
        ),
        ({"groupRetryPolicy": {"customizedRetryPolicy": {"next": ["x"]}}}, "whole number"),
        ({"subscriptionDataSet": {}}, "a list of objects"),
        ({"subscriptionDataSet": [1]}, "a list of objects"),
        ({"subscriptionDataSet": [{}]}, "topic of a group.subscriptionDataSet"),
    ],
)
def test_a_group_that_makes_no_sense_is_malformed(wrong: dict[str, Any], complaint: str) -> None:
    with pytest.raises(Malformed, match=complaint):
        GroupConfig.from_dict({"groupName": "G", **wrong})


@pytest.mark.parametrize(
    ("perm", "text", "flags"),
    [
        (0, "---", (False, False, False)),
        (4, "R--", (True, False, False)),
        (6, "RW-", (True, True, False)),
        (7, "RWX", (True, True, True)),
        (10, "-W-", (False, True, False)),
    ],
)
def test_permissions_are_bits(perm: int, text: str, flags: tuple[bool, bool, bool]) -> None:
    config = TopicConfig("T", perm=perm)
    assert perm_text(perm) == text
    assert (config.readable, config.writable, config.inherited) == flags


def test_attributes_say_how_a_topic_is_stored() -> None:
    plain = TopicConfig("T", attributes={"queue.type": "SimpleCQ", "cleanup.policy": "DELETE"})
    special = TopicConfig("T", attributes={"queue.type": "BatchCQ", "cleanup.policy": "COMPACTION"})
    assert (plain.is_batch_queue, plain.is_compacted) == (False, False)
    assert (special.is_batch_queue, special.is_compacted) == (True, True)
    assert not TopicConfig("T").is_batch_queue


def test_configs_do_not_change_when_their_attributes_do() -> None:
    attributes = {"a": "1"}
    config, group = TopicConfig("T", attributes=attributes), GroupConfig("G", attributes=attributes)
    attributes["a"] = "2"
    assert dict(config.attributes) == dict(group.attributes) == {"a": "1"}
    with pytest.raises(TypeError):
        config.attributes["a"] = "3"  # type: ignore[index]
    assert hash(config) == hash(TopicConfig("T", attributes={"a": "1"}))


def test_versions_are_ordered_by_state_then_counter_then_time() -> None:
    first = DataVersion(0, 1, 500)
    assert first < DataVersion(0, 2, 400) < DataVersion(0, 2, 401) < DataVersion(1, 0, 0)
    assert first.next(600) == DataVersion(0, 2, 600)
    assert DataVersion(3, 1, 500).next(600) == DataVersion(3, 2, 600)
    assert DataVersion.from_dict({"counter": 2, "stateVersion": 1, "timestamp": 3}) == DataVersion(1, 2, 3)
    assert compact(DataVersion(1, 2, 3).to_dict()) == '{"counter":2,"stateVersion":1,"timestamp":3}'


def test_the_rules_for_names_can_be_had_from_here() -> None:
    assert topic.retry_topic("g") == "%RETRY%g"
    assert topic.is_dlq(topic.dlq_topic("g"))
    topic.check_topic("T")
