"""Headers of real frames: each is read into its class, and gives the same fields again."""

from __future__ import annotations

import pytest
from tests.golden.samples import Sample, answers_to, requests, samples

from flaremq.protocol import fields
from flaremq.protocol.codes import STORED, RequestCode, ResponseCode
from flaremq.protocol.fields import Header
from flaremq.protocol.headers import broker, group, namesrv, pop, pull, send, topic, transaction

REQUESTS: dict[int, type[Header]] = {
    RequestCode.PULL_MESSAGE: pull.PullMessageRequestHeader,
    RequestCode.LITE_PULL_MESSAGE: pull.PullMessageRequestHeader,
    RequestCode.QUERY_MESSAGE: pull.QueryMessageRequestHeader,
    RequestCode.QUERY_CONSUMER_OFFSET: pull.QueryConsumerOffsetRequestHeader,
    RequestCode.UPDATE_CONSUMER_OFFSET: pull.UpdateConsumerOffsetRequestHeader,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: pull.SearchOffsetRequestHeader,
    RequestCode.GET_MAX_OFFSET: pull.GetMaxOffsetRequestHeader,
    RequestCode.GET_MIN_OFFSET: pull.GetMinOffsetRequestHeader,
    RequestCode.GET_EARLIEST_MSG_STORETIME: pull.GetEarliestMsgStoretimeRequestHeader,
    RequestCode.VIEW_MESSAGE_BY_ID: pull.ViewMessageRequestHeader,
    RequestCode.UNREGISTER_CLIENT: group.UnregisterClientRequestHeader,
    RequestCode.CONSUMER_SEND_MSG_BACK: send.ConsumerSendMsgBackRequestHeader,
    RequestCode.END_TRANSACTION: transaction.EndTransactionRequestHeader,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: group.GetConsumerListByGroupRequestHeader,
    RequestCode.CHECK_TRANSACTION_STATE: transaction.CheckTransactionStateRequestHeader,
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: group.NotifyConsumerIdsChangedRequestHeader,
    RequestCode.UPDATE_AND_CREATE_TOPIC: topic.CreateTopicRequestHeader,
    RequestCode.GET_ALL_TOPIC_CONFIG: topic.GetAllTopicConfigRequestHeader,
    RequestCode.GET_TOPIC_CONFIG: topic.GetTopicConfigRequestHeader,
    RequestCode.GET_TOPIC_STATS_INFO: topic.GetTopicStatsInfoRequestHeader,
    RequestCode.DELETE_TOPIC_IN_BROKER: topic.DeleteTopicRequestHeader,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: namesrv.DeleteTopicFromNamesrvRequestHeader,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: topic.QueryTopicConsumeByWhoRequestHeader,
    RequestCode.QUERY_CONSUME_QUEUE: topic.QueryConsumeQueueRequestHeader,
    RequestCode.REGISTER_BROKER: namesrv.RegisterBrokerRequestHeader,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: namesrv.GetRouteInfoRequestHeader,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: namesrv.WipeWritePermOfBrokerRequestHeader,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: namesrv.AddWritePermOfBrokerRequestHeader,
    RequestCode.PUT_KV_CONFIG: namesrv.PutKVConfigRequestHeader,
    RequestCode.DELETE_KV_CONFIG: namesrv.DeleteKVConfigRequestHeader,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: group.GetAllSubscriptionGroupRequestHeader,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: group.GetConsumerConnectionListRequestHeader,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: group.GetProducerConnectionListRequestHeader,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: group.DeleteSubscriptionGroupRequestHeader,
    RequestCode.GET_CONSUME_STATS: group.GetConsumeStatsRequestHeader,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: group.ResetOffsetRequestHeader,
    RequestCode.GET_CONSUMER_RUNNING_INFO: group.GetConsumerRunningInfoRequestHeader,
    RequestCode.VIEW_BROKER_STATS_DATA: broker.ViewBrokerStatsDataRequestHeader,
    RequestCode.GET_BROKER_CONSUME_STATS: broker.GetBrokerConsumeStatsRequestHeader,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: send.ReplyMessageRequestHeader,
    RequestCode.POP_MESSAGE: pop.PopMessageRequestHeader,
    RequestCode.ACK_MESSAGE: pop.AckMessageRequestHeader,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: pop.ChangeInvisibleTimeRequestHeader,
}
SENDS = {
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
}
STREAM_CLIENT = "ReqT"  # A field that no header has: it says that a stream asks.
ANSWERS: dict[str, type[Header]] = {
    "PULL_MESSAGE": pull.PullMessageResponseHeader,
    "LITE_PULL_MESSAGE": pull.PullMessageResponseHeader,
    "QUERY_MESSAGE": pull.QueryMessageResponseHeader,
    "GET_MAX_OFFSET": pull.OffsetResponseHeader,
    "GET_MIN_OFFSET": pull.OffsetResponseHeader,
    "SEARCH_OFFSET_BY_TIMESTAMP": pull.OffsetResponseHeader,
    "GET_EARLIEST_MSG_STORETIME": pull.GetEarliestMsgStoretimeResponseHeader,
    "HEART_BEAT": group.HeartbeatResponseHeader,
    "REGISTER_BROKER": namesrv.RegisterBrokerResponseHeader,
    "WIPE_WRITE_PERM_OF_BROKER": namesrv.WipeWritePermOfBrokerResponseHeader,
    "ADD_WRITE_PERM_OF_BROKER": namesrv.AddWritePermOfBrokerResponseHeader,
    "GET_ALL_TOPIC_CONFIG": topic.GetAllTopicConfigResponseHeader,
    "GET_ALL_SUBSCRIPTIONGROUP_CONFIG": group.GetAllSubscriptionGroupResponseHeader,
    "POP_MESSAGE": pop.PopMessageResponseHeader,
    "CHANGE_MESSAGE_INVISIBLETIME": pop.ChangeInvisibleTimeResponseHeader,
}


def meant(given: dict[str, str]) -> dict[str, str]:
    """Fields without what means nothing: an empty text, the mark of a stream."""
    return {name: value for name, value in given.items() if name != STREAM_CLIENT}


@pytest.mark.parametrize("sample", [s for s in samples() if s.kind != "resp" and s.code in REQUESTS], ids=str)
def test_the_header_of_a_request_is_read_and_gives_the_same_fields(sample: Sample) -> None:
    given = dict(sample.command.fields)
    header = fields.decode(REQUESTS[sample.code], given)
    again = fields.encode(header)
    assert meant(given).items() <= again.items()
    added = again.keys() - given.keys()
    assert all(again[name] in ("true", "false", "0", "-1") for name in added), (
        "only what Java means by silence"
    )


def test_every_request_with_a_header_has_a_class() -> None:
    for sample in samples():
        if sample.kind != "resp" and sample.command.fields and sample.code not in SENDS:
            assert sample.code in REQUESTS, sample


@pytest.mark.parametrize("sample", [s for s in samples() if s.kind != "resp" and s.code in SENDS], ids=str)
def test_a_send_by_letters_is_read_and_written_by_letters(sample: Sample) -> None:
    given = dict(sample.command.fields)
    header = send.decode_send(sample.code, given)
    assert header.topic == given["b"]
    assert header.properties == given["i"]
    assert send.encode_send(sample.code, header) == given


@pytest.mark.parametrize("sample", answers_to(*ANSWERS), ids=str)
def test_the_header_of_an_answer_is_read_and_gives_the_same_fields(sample: Sample) -> None:
    given = dict(sample.command.fields)
    if sample.code == ResponseCode.SUBSCRIPTION_NOT_LATEST:
        assert not given
        return
    header = fields.decode(ANSWERS[sample.name.partition("_")[2].partition("_")[2]], given)
    assert fields.encode(header) == given


@pytest.mark.parametrize("sample", answers_to("SEND_MESSAGE_V2", "SEND_BATCH_MESSAGE"), ids=str)
def test_the_answer_to_a_send_says_where_the_message_lies(sample: Sample) -> None:
    assert sample.code in STORED
    given = dict(sample.command.fields)
    header = fields.decode(send.SendMessageResponseHeader, given)
    assert {**fields.encode(header), "MSG_REGION": "DefaultRegion", "TRACE_ON": "true"} == given


def test_node_sends_numbers_where_java_sends_text() -> None:
    (sample, *_) = (each for each in requests("PULL_MESSAGE") if not each.is_java)
    assert b'"queueId":0' in sample.frame
    assert fields.decode(pull.PullMessageRequestHeader, sample.command.fields).max_msg_nums == 32
