"""Heartbeats, good-byes and who asks for whom, as requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.clients import Desk, FakePeer, desk, wants

from flaremq.broker.handlers.clients import ClientHandlers
from flaremq.broker.role import Role
from flaremq.model.tags import java_hash
from flaremq.model.topic import GroupConfig
from flaremq.protocol import beans, fastjson
from flaremq.protocol.bodies.group import (
    CheckClientRequestBody,
    ConsumerData,
    ConsumeType,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
)
from flaremq.protocol.bodies.running import ConsumerConnection, ProducerConnection, ProducerTableInfo
from flaremq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from flaremq.protocol.command import Command
from flaremq.testing.clock import settle

CODE = RequestCode
BEAT = b"""{"clientID":"10.0.0.1@1234#567","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",
"consumeType":"CONSUME_PASSIVELY","groupName":"g1","messageModel":"CLUSTERING","subscriptionDataSet":[
{"classFilterMode":false,"codeSet":[1,2],"expressionType":"TAG","subString":"TagA || TagB",
"subVersion":1700000000000,"tagsSet":["TagA","TagB"],"topic":"TopicTest"}],"unitMode":false}],
"heartbeatFingerprint":0,"producerDataSet":[{"groupName":"CLIENT_INNER_PRODUCER"}],"withoutSub":false}"""


def serving(made: Desk) -> None:
    made.serve(ClientHandlers(made.live, made.tables, made.clock, Role(is_slave=False)).table())


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Desk]:
    with desk(tmp_path) as made:
        serving(made)
        yield made


def beat(*consumers: ConsumerData, client_id: str = "c1", **other: Any) -> HeartbeatData:
    return HeartbeatData(client_id=client_id, consumer_data_set=consumers, **other)


def sub_changed(answer: Command) -> bool:
    assert answer.code == 0
    assert answer.fields["IS_SUPPORT_HEART_BEAT_V2"] == "true"
    return answer.fields["IS_SUB_CHANGE"] == "true"


async def test_heartbeat_makes_the_member_its_group_and_its_retry_topic(made: Desk) -> None:
    answer = await made.ask(CODE.HEART_BEAT, body=BEAT)
    assert sub_changed(answer)
    assert answer.version > 401
    group = made.groups.get("g1")
    assert group is not None and group.member("10.0.0.1@1234#567") is not None
    known = made.groups.subscription("g1", "TopicTest")
    assert known is not None and known.code_set == (java_hash("TagA"), java_hash("TagB"))
    assert made.subscriptions.contains("g1")
    retry = made.topics.get("%RETRY%g1")
    assert retry is not None and (retry.read_queue_nums, retry.perm) == (1, 6)
    assert made.producers.by_client_id("10.0.0.1@1234#567") is made.peer
    assert made.topics.dirty and made.subscriptions.dirty  # Saved behind the answer: test_app.


async def test_heartbeat_of_other_languages_is_understood(made: Desk) -> None:
    """Ordinals from C++, codes as text and nanoseconds from Go."""
    said = b"""{"clientID":"c","consumerDataSet":[{"consumeFromWhere":4,"consumeType":0,"groupName":"g",
    "messageModel":0,"subscriptionDataSet":[{"codeSet":["1"],"expressionType":"","subString":"*",
    "subVersion":1700000000000000000,"tagsSet":null,"topic":"T"}]}]}"""
    assert (await made.ask(CODE.HEART_BEAT, body=said)).code == 0
    group = made.groups.get("g")
    assert group is not None
    assert group.consume_type is ConsumeType.CONSUME_ACTIVELY
    assert group.message_model is MessageModel.BROADCASTING


@pytest.mark.parametrize(
    "body", [None, b"", b"{", b"[]", b"{}", b'{"clientID":""}', b'{"clientID":"c","consumerDataSet":5}']
)
async def test_heartbeat_that_means_nothing_is_refused(made: Desk, body: bytes | None) -> None:
    answer = await made.ask(CODE.HEART_BEAT, body=body)
    assert answer.code != 0 and answer.remark
    assert made.groups.all_groups() == {}


async def test_group_that_may_not_be_made_is_passed_over(tmp_path: Path) -> None:
    with desk(tmp_path, auto_create_groups=False) as made:
        serving(made)
        made.subscriptions.put(made.subscriptions.all()["TOOLS_CONSUMER"])
        answer = await made.ask(CODE.HEART_BEAT, body=beat(wants("new", "T"), wants("TOOLS_CONSUMER", "T")))
        assert answer.code == 0
        assert set(made.groups.all_groups()) == {"TOOLS_CONSUMER"}
        assert made.topics.get("%RETRY%new") is None


async def test_group_with_a_name_that_cannot_be_is_passed_over(made: Desk) -> None:
    assert (await made.ask(CODE.HEART_BEAT, body=beat(wants("../g", "T")))).code == 0
    assert made.groups.all_groups() == {}


async def test_pull_consumers_are_passed_over_where_they_are_rejected(tmp_path: Path) -> None:
    with desk(tmp_path, reject_pull_consumers=True) as made:
        serving(made)
        said = wants("g", "T", consume_type=ConsumeType.CONSUME_ACTIVELY)
        assert (await made.ask(CODE.HEART_BEAT, body=beat(said, wants("h", "T")))).code == 0
        assert set(made.groups.all_groups()) == {"h"}


async def test_heartbeat_of_one_that_has_left_already_makes_no_member(made: Desk) -> None:
    made.peer.close()
    await made.ask(CODE.HEART_BEAT, body=BEAT)
    assert made.groups.all_groups() == {}


async def test_retry_topic_is_ordered_if_the_group_wants_an_ordered_topic(made: Desk) -> None:
    made.topics.ensure("Ordered", 1, order=True)
    await made.ask(CODE.HEART_BEAT, body=beat(wants("g", "Ordered", unit_mode=True)))
    retry = made.topics.get("%RETRY%g")
    assert retry is not None and retry.order and retry.topic_sys_flag == 2


async def test_group_that_a_file_has_brought_is_there_even_without_a_retry_topic(made: Desk) -> None:
    made.subscriptions.put(GroupConfig("odd.name"))
    assert (await made.ask(CODE.HEART_BEAT, body=beat(wants("odd.name", "T")))).code == 0
    assert made.groups.get("odd.name") is not None
    assert made.topics.get("%RETRY%odd.name") is None


class TestFingerprints:
    """Heartbeats of the second kind leave out what the broker knows."""

    async def test_known_subscriptions_may_be_left_out(self, made: Desk) -> None:
        full = beat(wants("g", "T"), heartbeat_fingerprint=7)
        assert not sub_changed(await made.ask(CODE.HEART_BEAT, body=full))
        short = beat(wants("g"), heartbeat_fingerprint=7, without_sub=True)
        assert not sub_changed(await made.ask(CODE.HEART_BEAT, body=short))
        assert made.groups.subscription("g", "T") is not None

    async def test_other_fingerprint_must_be_said_in_full(self, made: Desk) -> None:
        await made.ask(CODE.HEART_BEAT, body=beat(wants("g", "T"), heartbeat_fingerprint=7))
        other = beat(wants("g"), heartbeat_fingerprint=8, without_sub=True)
        assert sub_changed(await made.ask(CODE.HEART_BEAT, body=other))
        assert sub_changed(await made.ask(CODE.HEART_BEAT, body=other))  # Until it has been said.
        full = beat(wants("g", "T", "U"), heartbeat_fingerprint=8)
        assert sub_changed(await made.ask(CODE.HEART_BEAT, body=full))
        assert not sub_changed(await made.ask(CODE.HEART_BEAT, body=full))
        assert made.groups.subscription("g", "U") is not None

    async def test_broker_that_has_forgotten_asks_for_all_of_it(self, made: Desk) -> None:
        short = beat(wants("g"), heartbeat_fingerprint=7, without_sub=True)
        assert sub_changed(await made.ask(CODE.HEART_BEAT, body=short))
        assert made.groups.get("g") is not None  # It is a member all the same.

    async def test_member_of_the_first_kind_makes_all_say_it_in_full(self, made: Desk) -> None:
        await made.ask(CODE.HEART_BEAT, body=beat(wants("g", "T"), heartbeat_fingerprint=7))
        assert sub_changed(await made.ask(CODE.HEART_BEAT, body=beat(wants("g", "T"))))
        short = beat(wants("g"), heartbeat_fingerprint=7, without_sub=True)
        assert sub_changed(await made.ask(CODE.HEART_BEAT, body=short))


async def test_good_bye_is_told_to_those_who_stay(made: Desk) -> None:
    leaving, staying = made.peer, FakePeer(2)
    await made.ask(
        CODE.HEART_BEAT, body=beat(wants("g", "T"), producer_data_set=(ProducerData(group_name="p"),))
    )
    made.peer = staying
    await made.ask(CODE.HEART_BEAT, body=beat(wants("g", "T"), client_id="c2"))
    await settle()
    staying.sent.clear()
    made.peer = leaving
    header = {"clientID": "c1", "producerGroup": "p", "consumerGroup": "g"}
    assert (await made.ask(CODE.UNREGISTER_CLIENT, header)).code == 0
    await settle()
    assert staying.codes() == [CODE.NOTIFY_CONSUMER_IDS_CHANGED]
    assert not made.producers.members("p")


async def test_ids_of_a_group_are_listed(made: Desk) -> None:
    await made.ask(CODE.HEART_BEAT, body=BEAT)
    answer = await made.ask(CODE.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g1"})
    assert beans.decode(GetConsumerListByGroupResponseBody, answer.body).consumer_id_list == (
        "10.0.0.1@1234#567",
    )
    answer = await made.ask(CODE.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "nobody"})
    assert (answer.code, answer.remark) == (1, "no consumer for this group, nobody")
    assert (await made.ask(CODE.GET_CONSUMER_LIST_BY_GROUP)).code == 1


@pytest.mark.parametrize(
    ("kind", "text", "code"), [("SQL92", "a > 1", 0), ("SQL92", "a >", 23), ("TAG", "a", 0)]
)
async def test_subscription_is_checked_before_a_consumer_starts(
    made: Desk, kind: str, text: str, code: int
) -> None:
    said = CheckClientRequestBody(
        client_id="c",
        group="g",
        subscription_data=SubscriptionData(topic="T", sub_string=text, expression_type=kind),
    )
    assert (await made.ask(CODE.CHECK_CLIENT_CONFIG, body=said)).code == code
    assert (await made.ask(CODE.CHECK_CLIENT_CONFIG)).code == ResponseCode.MESSAGE_ILLEGAL


async def test_connections_of_a_group_are_shown(made: Desk) -> None:
    await made.ask(CODE.HEART_BEAT, body=BEAT, version=401)
    answer = await made.ask(CODE.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "g1"})
    shown = beans.decode(ConsumerConnection, answer.body)
    (connection,) = shown.connection_set
    assert (connection.client_id, connection.client_addr) == ("10.0.0.1@1234#567", "10.0.0.9:5000")
    assert (connection.language, connection.version) == (LanguageCode.JAVA, 401)
    assert shown.consume_type is ConsumeType.CONSUME_PASSIVELY
    assert shown.subscription_table["TopicTest"].sub_string == "TagA || TagB"
    answer = await made.ask(CODE.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "nobody"})
    assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE


async def test_producers_are_shown(made: Desk) -> None:
    await made.ask(CODE.HEART_BEAT, body=BEAT)
    answer = await made.ask(CODE.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "CLIENT_INNER_PRODUCER"})
    assert len(beans.decode(ProducerConnection, answer.body).connection_set) == 1
    assert (await made.ask(CODE.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "p"})).code == 1
    answer = await made.ask(CODE.GET_ALL_PRODUCER_INFO)
    (info,) = beans.decode(ProducerTableInfo, answer.body).data["CLIENT_INNER_PRODUCER"]
    assert (info.remote_ip, info.last_update_timestamp) == ("/10.0.0.9:5000", made.clock.now_ms())
    assert fastjson.load_object(answer.body).keys() == {"data"}
