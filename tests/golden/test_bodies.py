"""Bodies of real frames: read into beans, and what Java wrote is written again to the byte."""

from __future__ import annotations

from typing import Any

import pytest
from tests.golden.samples import Sample, answers_to, requests, samples

from flaremq.model.topic import GroupConfig, TopicConfig
from flaremq.protocol import beans, fastjson
from flaremq.protocol.bodies import cluster, group, pop, route, running, stats
from flaremq.protocol.codes import Version
from flaremq.protocol.fastjson import Dialect

REQUESTS: dict[str, Any] = {
    "REGISTER_BROKER": route.RegisterBrokerBody,
    "HEART_BEAT": group.HeartbeatData,
    "LOCK_BATCH_MQ": group.LockBatchRequestBody,
    "UNLOCK_BATCH_MQ": group.LockBatchRequestBody,
    "CHECK_CLIENT_CONFIG": group.CheckClientRequestBody,
    "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP": GroupConfig,
    "QUERY_ASSIGNMENT": pop.QueryAssignmentRequestBody,
    "SET_MESSAGE_REQUEST_MODE": pop.SetMessageRequestModeRequestBody,
}
ANSWERS: dict[str, Any] = {
    "GET_BROKER_CLUSTER_INFO": cluster.ClusterInfo,
    "GET_ROUTEINFO_BY_TOPIC": route.TopicRouteData,
    "GET_CONSUMER_LIST_BY_GROUP": group.GetConsumerListByGroupResponseBody,
    "LOCK_BATCH_MQ": group.LockBatchResponseBody,
    "GET_TOPIC_STATS_INFO": stats.TopicStatsTable,
    "GET_CONSUME_STATS": stats.ConsumeStats,
    "GET_BROKER_CONSUME_STATS": stats.ConsumeStatsList,
    "INVOKE_BROKER_TO_RESET_OFFSET": group.ResetOffsetBody,
    "GET_TOPIC_CONFIG": TopicConfig,
    "QUERY_ASSIGNMENT": pop.QueryAssignmentResponseBody,
    "GET_ALL_TOPIC_LIST_FROM_NAMESERVER": cluster.TopicList,
    "GET_SYSTEM_TOPIC_LIST_FROM_BROKER": cluster.TopicList,
    "GET_CONSUMER_CONNECTION_LIST": running.ConsumerConnection,
    "GET_PRODUCER_CONNECTION_LIST": running.ProducerConnection,
    "GET_ALL_PRODUCER_INFO": running.ProducerTableInfo,
    "GET_CONSUMER_RUNNING_INFO": running.ConsumerRunningInfo,
    "QUERY_TOPIC_CONSUME_BY_WHO": group.GroupList,
    "VIEW_BROKER_STATS_DATA": stats.BrokerStatsData,
    "QUERY_CONSUME_QUEUE": stats.QueryConsumeQueueResponseBody,
    "GET_BROKER_HA_STATUS": cluster.HARuntimeInfo,
    "GET_ALL_TOPIC_CONFIG": route.TopicConfigSerializeWrapper,
    "GET_ALL_SUBSCRIPTIONGROUP_CONFIG": group.SubscriptionGroupWrapper,
}
LATER = {"heartbeatFingerprint", "withoutSub", "onlyThisBroker"}  # Members that 4.9 did not have.


def with_body(found: list[Sample]) -> list[Sample]:
    return [each for each in found if each.command.body]


@pytest.mark.parametrize("sample", with_body(requests(*REQUESTS)), ids=str)
def test_the_body_of_a_request_is_read_and_written_again(sample: Sample) -> None:
    body = bytes(sample.command.body or b"")
    again = beans.encode(beans.decode(REQUESTS[sample.name], body))
    if sample.is_java and sample.command.version == Version.V5_3_3:
        assert again == body
    else:
        given, seen = fastjson.loads(body), fastjson.loads(again)
        assert isinstance(given, dict)
        assert isinstance(seen, dict)
        assert seen.keys() - given.keys() <= LATER


@pytest.mark.parametrize("sample", with_body(answers_to(*ANSWERS)), ids=str)
def test_the_body_of_an_answer_is_read_and_written_again_to_the_byte(sample: Sample) -> None:
    body = bytes(sample.command.body or b"")
    bean = beans.decode(ANSWERS[sample.name.partition("_")[2].partition("_")[2]], body)
    dialect = Dialect.STANDARD if b'{"0":' in body else Dialect.FASTJSON
    assert beans.encode(bean, dialect) == body


def test_every_kind_of_json_body_has_a_bean() -> None:
    for sample in samples():
        body = bytes(sample.command.body or b"")
        if body.startswith(b"{") and sample.name not in REQUESTS and "SEND" not in sample.name:
            assert sample.name.partition("_")[2].partition("_")[2] in ANSWERS, sample
