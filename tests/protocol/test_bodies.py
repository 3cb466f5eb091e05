"""Bodies with a meaning of their own: subscriptions, heartbeats, registrations, bit sets."""

from __future__ import annotations

import struct
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.base.errors import Malformed, UsageError
from flaremq.model.message import MessageQueue
from flaremq.model.topic import DataVersion, TopicConfig
from flaremq.protocol import beans
from flaremq.protocol.bodies import cluster, group, pop, route, stats
from flaremq.protocol.bodies.group import SubscriptionData
from flaremq.protocol.fastjson import Dialect

ROUTE = route.TopicRouteData(
    queue_datas=(route.QueueData(broker_name="broker-a", read_queue_nums=4, write_queue_nums=4, perm=6),),
    broker_datas=(
        route.BrokerData(
            cluster="DefaultCluster",
            broker_name="broker-a",
            broker_addrs={0: "127.0.0.1:10911", 1: "127.0.0.1:20911"},
        ),
    ),
)


def test_a_route_is_written_in_the_dialect_that_its_reader_wants() -> None:
    java = (
        '{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:10911",1:"127.0.0.1:20911"},"brokerName":"broker-a",'
        '"cluster":"DefaultCluster","enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{'
        '"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
    )
    assert beans.encode(ROUTE).decode() == java
    standard = java.replace("{0:", '{"0":').replace(",1:", ',"1":')
    assert beans.encode(ROUTE, Dialect.STANDARD).decode() == standard
    assert beans.decode(route.TopicRouteData, java.encode()) == ROUTE


def test_tables_with_queues_as_keys_are_written_raw() -> None:
    table = {MessageQueue("T", "broker-a", 0): 5, MessageQueue("T", "broker-a", 1): 6}
    assert beans.encode(group.ResetOffsetBody(offset_table=table)) == (
        b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:5,'
        b'{"brokerName":"broker-a","queueId":1,"topic":"T"}:6}}'
    )
    queue = MessageQueue("T", "broker-a", 0)
    consumed = stats.ConsumeStats(
        offset_table={queue: stats.OffsetWrapper(broker_offset=10, consumer_offset=9)}
    )
    assert beans.encode(consumed) == (
        b'{"consumeTps":0.0,"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:'
        b'{"brokerOffset":10,"consumerOffset":9,"lastTimestamp":0,"pullOffset":0}}}'
    )


def test_offsets_and_locks_have_javas_form() -> None:
    offsets = group.ConsumerOffsetSerializeWrapper(offset_table={"T@g1": {0: 5, 1: 6}})
    assert beans.encode(offsets) == b'{"offsetTable":{"T@g1":{0:5,1:6}}}'
    lock = group.LockBatchRequestBody(
        consumer_group="g1", client_id="c1", mq_set=(MessageQueue("T", "broker-a", 0),)
    )
    assert beans.encode(lock) == (
        b'{"clientId":"c1","consumerGroup":"g1","mqSet":[{"brokerName":"broker-a","queueId":0,"topic":"T"}],'
        b'"onlyThisBroker":false}'
    )
    assert beans.encode(cluster.KVTable(table={"k": "v"})) == b'{"table":{"k":"v"}}'


@pytest.mark.parametrize(
    ("expression", "sub_string", "tags", "codes"),
    [
        ("*", "*", (), ()),
        ("", "*", (), ()),
        ("TagA || TagB", "TagA || TagB", ("TagA", "TagB"), (2598919, 2598920)),
        ("TagA||TagA|| ", "TagA||TagA|| ", ("TagA",), (2598919,)),
        ("中文", "中文", ("中文",), (646394,)),
    ],
)
def test_a_tag_expression_names_tags_and_their_hashes(
    expression: str, sub_string: str, tags: tuple[str, ...], codes: tuple[int, ...]
) -> None:
    data = SubscriptionData.of("T", expression)
    assert (data.sub_string, data.tags_set, data.code_set) == (sub_string, tags, codes)


def test_an_expression_of_bars_alone_names_no_tag() -> None:
    with pytest.raises(UsageError, match="names no tag"):
        SubscriptionData.of("T", " || ")


def test_sql_is_kept_as_it_is() -> None:
    data = SubscriptionData.of("T", "a > 5 || b", "SQL92", 7)
    assert (data.sub_string, data.tags_set, data.sub_version, data.is_sql) == ("a > 5 || b", (), 7, True)
    assert data.with_codes() == data


def test_codes_of_a_client_that_hashes_other_bytes_are_replaced() -> None:
    go = SubscriptionData(topic="T", sub_string="中文", tags_set=("中文",), code_set=(-1887180642,))
    assert go.with_codes().code_set == (646394,)
    bare = SubscriptionData(topic="T", sub_string="TagA", sub_version=3)
    assert bare.with_codes() == SubscriptionData.of("T", "TagA", sub_version=3)
    assert SubscriptionData(topic="T").with_codes().code_set == ()


HEARTBEAT = (
    '{"clientID":"10.0.0.1@1234#567","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",'
    '"consumeType":"CONSUME_PASSIVELY","groupName":"g1","messageModel":"CLUSTERING","subscriptionDataSet":['
    '{"classFilterMode":false,"codeSet":[2598919,2598920],"expressionType":"TAG","subString":"TagA || TagB",'
    '"subVersion":1700000000000,"tagsSet":["TagA","TagB"],"topic":"TopicTest"}],"unitMode":false}],'
    '"heartbeatFingerprint":0,"producerDataSet":[{"groupName":"CLIENT_INNER_PRODUCER"}],"withoutSub":false}'
)


def test_a_heartbeat_is_javas_to_the_byte_and_so_is_its_fingerprint() -> None:
    heartbeat = beans.decode(group.HeartbeatData, HEARTBEAT.encode())
    assert beans.encode(heartbeat).decode() == HEARTBEAT
    assert heartbeat.fingerprint() == 297842954


def test_a_heartbeat_of_cpp_has_numbers_for_names_and_leaves_much_out() -> None:
    body = (
        b'{"clientID":"c","consumerDataSet":[{"consumeFromWhere":4,"consumeType":1,"groupName":"g",'
        b'"messageModel":0,"subscriptionDataSet":[{"codeSet":["2598919"],"subString":"TagA","subVersion":"5",'
        b'"tagsSet":["TagA"],"topic":"T"}]}]}'
    )
    (consumer,) = beans.decode(group.HeartbeatData, body).consumer_data_set
    assert consumer.consume_from_where is group.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    assert consumer.consume_type is group.ConsumeType.CONSUME_PASSIVELY
    assert consumer.message_model is group.MessageModel.BROADCASTING
    assert consumer.subscription_data_set[0].code_set == (2598919,)


REGISTRATION = route.RegisterBrokerBody(
    topic_config_serialize_wrapper=route.TopicConfigSerializeWrapper(
        data_version=DataVersion(0, 0, 1700000000000),
        topic_config_table={"TopicTest": TopicConfig("TopicTest", 4, 4)},
    )
)


def inflated(body: bytes) -> bytes:
    return zlib.decompress(body)


def test_a_compressed_registration_holds_javas_bytes() -> None:
    body = route.encode_registration_compressed(REGISTRATION)
    version = b'{"counter":0,"stateVersion":0,"timestamp":1700000000000}'
    line = b"TopicTest 4 4 6 SINGLE_TAG {}"
    assert inflated(body) == b"".join(
        (
            *(struct.pack(">i", 0x38), version, struct.pack(">i", 1), struct.pack(">i", 0x1D), line),
            *(struct.pack(">i", 2), b"[]", bytes(4)),
        )
    )


def test_a_registration_is_read_in_both_forms_whatever_its_header_says() -> None:
    for body in (route.encode_registration_compressed(REGISTRATION), beans.encode(REGISTRATION)):
        read = route.decode_registration(body, 479).topic_config_serialize_wrapper
        assert read.topic_config_table == {"TopicTest": TopicConfig("TopicTest", 4, 4)}
        assert read.data_version == DataVersion(0, 0, 1700000000000)


def test_a_compressed_registration_keeps_attributes_and_the_mappings_of_static_topics() -> None:
    topic = TopicConfig("T", 1, 2, 7, attributes={"message.type": "FIFO"})
    info = route.TopicQueueMappingInfo(topic="T", bname="broker-a", total_queues=3, curr_id_map={0: 1})
    wrapper = route.TopicConfigSerializeWrapper(
        topic_config_table={"T": topic}, topic_queue_mapping_info_map={"T": info}
    )
    sent = route.RegisterBrokerBody(topic_config_serialize_wrapper=wrapper, filter_server_list=("f",))
    read = route.decode_registration(route.encode_registration_compressed(sent), 479)
    assert read == sent


def test_a_broker_of_version_4_leaves_out_the_mappings_and_the_oldest_all_but_the_topics() -> None:
    body = route.encode_registration_compressed(REGISTRATION)
    wrapper = route.decode_registration(body, 401).topic_config_serialize_wrapper
    assert wrapper.topic_queue_mapping_info_map is None
    old = beans.encode(REGISTRATION.topic_config_serialize_wrapper)
    assert route.decode_registration(old, 36) == REGISTRATION
    assert route.decode_registration(None, 479) == route.RegisterBrokerBody()


@pytest.mark.parametrize(
    ("body", "match"),
    [
        (b"x\x00", "cannot be decompressed"),
        (route.encode_registration_compressed(REGISTRATION)[:-5], "cut off"),
        (zlib.compress(b""), "ends at byte 0"),
        (zlib.compress(struct.pack(">i", 99)), "a length of 99"),
        (zlib.compress(struct.pack(">i", -1)), "a length of -1"),
        (zlib.compress(struct.pack(">i2sii1s", 2, b"{}", 1, 1, b"T")), "a registered topic of 1 words"),
    ],
)
def test_a_registration_that_is_none_is_malformed(body: bytes, match: str) -> None:
    with pytest.raises(Malformed, match=match):
        route.decode_registration(body, 479)


@given(st.binary(max_size=80))
def test_any_bytes_give_a_registration_or_malformed(data: bytes) -> None:
    for body in (data, zlib.compress(data), zlib.compress(struct.pack(">i2si", 2, b"{}", 1) + data)):
        with suppress(Malformed):
            route.decode_registration(body, 479)


def test_bits_of_a_batch_ack_are_javas() -> None:
    assert pop.bits_of(100, [100, 103, 109]) == "CQI="
    ack = pop.BatchAck(consumer_group="g1", topic="T", start_offset=100, bit_set="CQI=")
    assert ack.offsets() == (100, 103, 109)
    with pytest.raises(Malformed, match="expected base64"):
        pop.BatchAck(consumer_group="g", topic="T", bit_set="?").offsets()


def test_a_batch_ack_may_be_written_short_or_long() -> None:
    short = (
        b'{"acks":[{"b":"CQI=","c":"g1","it":60000,"pt":1700000000000,"q":1,"r":"0","rq":2,"so":100,"t":"T"}],'
        b'"brokerName":"broker-a"}'
    )
    body = beans.decode(pop.BatchAckMessageRequestBody, short)
    assert beans.encode(body) == short
    long = b'{"acks":[{"consumerGroup":"g1","topic":"T","queueId":1}]}'
    assert beans.decode(pop.BatchAckMessageRequestBody, long).acks[0].queue_id == 1


@given(st.sets(st.integers(0, 300), max_size=20), st.integers(0, 1 << 40))
def test_acknowledged_offsets_survive_their_bits(places: set[int], start: int) -> None:
    offsets = sorted(start + place for place in places)
    ack = pop.BatchAck(consumer_group="g", topic="T", start_offset=start, bit_set=pop.bits_of(start, offsets))
    assert list(ack.offsets()) == offsets


def test_no_assignment_and_an_empty_one_are_different_things() -> None:
    assert beans.encode(pop.QueryAssignmentResponseBody()) == b"{}"
    assert beans.encode(pop.QueryAssignmentResponseBody(message_queue_assignments=())) == (
        b'{"messageQueueAssignments":[]}'
    )
