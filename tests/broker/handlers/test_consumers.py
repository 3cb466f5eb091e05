"""What administrators ask of consumers, through the broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.clients import BROKER, Desk, FakePeer, a_member, desk, wants

from flaremq.base.errors import ConnectionLost
from flaremq.broker.handlers.consumers import ConsumerHandlers
from flaremq.model.host import Host
from flaremq.model.message import MessageQueue
from flaremq.model.msgid import encode_offset_id
from flaremq.model.topic import TopicConfig
from flaremq.protocol import beans, fastjson
from flaremq.protocol.bodies.group import GetConsumerStatusBody, ResetOffsetBody
from flaremq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from flaremq.protocol.command import Command, response_to
from flaremq.testing.fakes.builders import a_message

CODE = RequestCode
RESET = {"group": "g", "topic": "T", "timestamp": "-1", "isForce": "true"}


def serving(made: Desk) -> None:
    made.serve(ConsumerHandlers(made.live, made.tables, made.store, made.offload).table())
    made.topics.put(TopicConfig("T", read_queue_nums=2, write_queue_nums=2))
    made.subscriptions.get("g")
    for _ in range(5):
        made.clock.advance_ms(1000)
        made.store.put(a_message(topic=b"T"))
    made.store.dispatch()


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Desk]:
    with desk(tmp_path) as made, made.store:
        serving(made)
        yield made


@pytest.fixture
def by_clients(tmp_path: Path) -> Iterator[Desk]:
    """A broker that leaves resets to its consumers."""
    with desk(tmp_path, server_side_reset=False) as made, made.store:
        serving(made)
        yield made


def queue(queue_id: int) -> MessageQueue:
    return MessageQueue("T", BROKER, queue_id)


def targets(answer: Command) -> dict[int, int]:
    assert answer.code == 0, answer.remark
    table = beans.decode(ResetOffsetBody, answer.body).offset_table
    return {queue.queue_id: offset for queue, offset in table.items()}


class TestResetHere:
    async def test_all_queues_go_to_their_end(self, made: Desk, tmp_path: Path) -> None:
        answer = await made.ask(CODE.INVOKE_BROKER_TO_RESET_OFFSET, RESET)
        assert targets(answer) == {0: 5, 1: 0}
        assert made.offsets.take_reset("g", "T", 0) == 5
        assert b'"T@g":{0:5,1:0}' in (tmp_path / "config" / "consumerOffset.json").read_bytes()

    async def test_all_queues_go_to_a_time(self, made: Desk) -> None:
        asked = {**RESET, "timestamp": str(made.clock.now_ms() - 2000)}
        assert targets(await made.ask(CODE.INVOKE_BROKER_TO_RESET_OFFSET, asked)) == {0: 2, 1: 0}

    async def test_one_queue_goes_to_an_offset(self, made: Desk) -> None:
        asked = {**RESET, "queueId": "0", "offset": "3"}
        assert targets(await made.ask(CODE.INVOKE_BROKER_TO_RESET_OFFSET, asked)) == {0: 3}
        assert not made.offsets.has_reset("g", "T", 1)
        asked = {**RESET, "queueId": "0", "offset": "-1"}
        assert targets(await made.ask(CODE.INVOKE_BROKER_TO_RESET_OFFSET, asked)) == {0: 5}

    @pytest.mark.parametrize(
        ("changed", "code"),
        [
            ({"topic": "Nowhere"}, ResponseCode.TOPIC_NOT_EXIST),
            ({"group": "nobody"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
            ({"queueId": "2"}, ResponseCode.INVALID_PARAMETER),
            ({"queueId": "0", "offset": "6"}, 1),
            ({"queueId": "0", "offset": "-2"}, 1),
        ],
    )
    async def test_reset_that_cannot_be_is_refused(
        self, made: Desk, changed: dict[str, str], code: int
    ) -> None:
        answer = await made.ask(CODE.INVOKE_BROKER_TO_RESET_OFFSET, {**RESET, **changed})
        assert answer.code == code and answer.remark
        assert not made.offsets.has_reset("g", "T", 0)

    async def test_slave_resets_nothing(self, tmp_path: Path) -> None:
        with desk(tmp_path, broker_id=1) as made, made.store:
            serving(made)
            answer = await made.ask(CODE.INVOKE_BROKER_TO_RESET_OFFSET, RESET)
            assert answer.code == 1 and "slave" in (answer.remark or "")


class TestResetThere:
    async def test_consumers_are_told_and_nothing_is_set_here(self, by_clients: Desk) -> None:
        made, consumer = by_clients, FakePeer(2)
        made.groups.heartbeat(a_member("c1", consumer), wants("g", "T"))
        for queue_id in (0, 1):
            made.offsets.commit("g", "T", queue_id, 1)
        answer = await made.ask(CODE.INVOKE_BROKER_TO_RESET_OFFSET, RESET)
        assert targets(answer) == {0: 5, 1: 0}
        (told,) = consumer.asked()
        assert told.code == CODE.RESET_CONSUMER_CLIENT_OFFSET and told.is_oneway
        assert told.body == beans.encode(ResetOffsetBody(offset_table={queue(0): 5, queue(1): 0}))
        assert made.offsets.get("g", "T", 0) == 1

    async def test_without_force_nobody_goes_forward(self, by_clients: Desk) -> None:
        made = by_clients
        made.groups.heartbeat(a_member("c1"), wants("g", "T"))
        for queue_id in (0, 1):
            made.offsets.commit("g", "T", queue_id, 1)
        answer = await made.ask(CODE.INVOKE_BROKER_TO_RESET_OFFSET, {**RESET, "isForce": "false"})
        assert targets(answer) == {0: 1, 1: 0}

    async def test_one_who_speaks_c_plus_plus_has_them_told_in_a_list(self, by_clients: Desk) -> None:
        made, consumer = by_clients, FakePeer(2)
        made.groups.heartbeat(a_member("c1", consumer), wants("g", "T"))
        for queue_id in (0, 1):
            made.offsets.commit("g", "T", queue_id, 1)
        await made.ask(CODE.INVOKE_BROKER_TO_RESET_OFFSET, RESET, language=LanguageCode.CPP)
        body = consumer.asked()[0].body
        assert body is not None and isinstance(fastjson.load_object(body)["offsetTable"], list)

    async def test_nobody_connected_and_nothing_consumed_are_told(self, by_clients: Desk) -> None:
        made = by_clients
        answer = await made.ask(CODE.INVOKE_BROKER_TO_RESET_OFFSET, RESET)
        assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE
        made.groups.heartbeat(a_member("c1"), wants("g", "T"))
        assert (await made.ask(CODE.INVOKE_BROKER_TO_RESET_OFFSET, RESET)).code == 1

    async def test_consumer_that_is_too_old_hinders_it(self, by_clients: Desk) -> None:
        made, consumer = by_clients, FakePeer(2)
        made.groups.heartbeat(a_member("c1", consumer, version=27), wants("g", "T"))
        for queue_id in (0, 1):
            made.offsets.commit("g", "T", queue_id, 1)
        answer = await made.ask(CODE.INVOKE_BROKER_TO_RESET_OFFSET, RESET)
        assert answer.code == 1 and "version 27" in (answer.remark or "")
        assert consumer.asked() == []


async def test_group_is_put_where_another_one_is(made: Desk) -> None:
    made.offsets.commit("g", "T", 0, 3)
    made.offsets.commit("g", "Gone", 0, 3)
    asked = {"srcGroup": "g", "destGroup": "h", "offline": "false"}
    assert (await made.ask(CODE.CLONE_GROUP_OFFSET, asked)).code == 0
    assert made.offsets.topics_of_group("h") == {"T"}
    made.groups.heartbeat(a_member(), wants("g", "Other"))
    assert (await made.ask(CODE.CLONE_GROUP_OFFSET, {**asked, "destGroup": "i", "topic": "T"})).code == 0
    assert made.offsets.topics_of_group("i") == set()  # The group no longer wants it.
    offline = {**asked, "destGroup": "i", "topic": "T", "offline": "true"}
    await made.ask(CODE.CLONE_GROUP_OFFSET, offline)
    assert made.offsets.get("i", "T", 0) == 3
    answer = await made.ask(CODE.CLONE_GROUP_OFFSET, {**asked, "destGroup": "a/b"})
    assert answer.code == ResponseCode.INVALID_PARAMETER


def answering(**other: Any) -> FakePeer:
    peer = FakePeer(2)
    peer.answer = lambda request: response_to(request, **other)
    return peer


async def test_consumers_tell_where_they_are(made: Desk) -> None:
    status = beans.encode(GetConsumerStatusBody(message_queue_table={queue(0): 4}))
    made.groups.heartbeat(a_member("good", answering(body=status)), wants("g", "T"))
    made.groups.heartbeat(a_member("silent", FakePeer(3)), wants("g", "T"))
    made.groups.heartbeat(a_member("confused", answering(body=b"{")), wants("g", "T"))
    made.groups.heartbeat(a_member("unwilling", answering(code=1)), wants("g", "T"))
    asked = {"topic": "T", "group": "g"}
    answer = await made.ask(CODE.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, asked)
    table = beans.decode(GetConsumerStatusBody, answer.body).consumer_table
    assert table == {"good": {queue(0): 4}}
    answer = await made.ask(CODE.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, {**asked, "clientAddr": "silent"})
    assert beans.decode(GetConsumerStatusBody, answer.body).consumer_table == {}
    answer = await made.ask(CODE.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, {**asked, "group": "nobody"})
    assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE


INFO = {"consumerGroup": "g", "clientId": "c1", "jstackEnable": "true"}


async def test_consumer_tells_how_it_does_in_its_own_words(made: Desk) -> None:
    consumer = answering(body=b'{"jstack":"..."}', remark="fine")
    made.groups.heartbeat(a_member("c1", consumer), wants("g", "T"))
    answer = await made.ask(CODE.GET_CONSUMER_RUNNING_INFO, INFO, opaque=77)
    assert (answer.code, answer.opaque, answer.remark, answer.body) == (0, 77, "fine", b'{"jstack":"..."}')
    assert consumer.asked()[0].code == CODE.GET_CONSUMER_RUNNING_INFO
    assert consumer.asked()[0].fields == INFO


async def test_consumer_that_is_away_old_late_or_lost_is_told(made: Desk) -> None:
    answer = await made.ask(CODE.GET_CONSUMER_RUNNING_INFO, INFO)
    assert (answer.code, answer.remark) == (1, "The Consumer <g> <c1> not online")
    silent = FakePeer(2)
    made.groups.heartbeat(a_member("c1", silent), wants("g", "T"))
    assert (await made.ask(CODE.GET_CONSUMER_RUNNING_INFO, INFO)).code == ResponseCode.CONSUME_MSG_TIMEOUT

    def lost(_request: Command) -> Command:
        raise ConnectionLost("gone")

    silent.answer = lost
    assert (await made.ask(CODE.GET_CONSUMER_RUNNING_INFO, INFO)).code == 1
    made.groups.heartbeat(a_member("c1", silent, version=61), wants("g", "T"))
    answer = await made.ask(CODE.GET_CONSUMER_RUNNING_INFO, INFO)
    assert answer.code == 1 and "V3_1_8_SNAPSHOT" in (answer.remark or "")


async def test_consumer_consumes_one_message_on_demand(made: Desk) -> None:
    consumer = answering(body=b'{"consumeResult":"CR_SUCCESS"}')
    made.groups.heartbeat(a_member("c1", consumer), wants("g", "T"))
    asked = {
        "consumerGroup": "g",
        "clientId": "c1",
        "topic": "T",
        "msgId": encode_offset_id(Host("10.0.0.1", 1), 0),
    }
    answer = await made.ask(CODE.CONSUME_MESSAGE_DIRECTLY, asked)
    assert (answer.code, answer.body) == (0, b'{"consumeResult":"CR_SUCCESS"}')
    (told,) = consumer.asked()
    record = made.store.record(0)
    assert record is not None and told.body == bytes(record)
    assert told.fields == {**asked, "brokerName": BROKER, "topicSysFlag": "0", "groupSysFlag": "0"}


@pytest.mark.parametrize("message_id", [None, "nonsense", encode_offset_id(Host("10.0.0.1", 1), 1 << 40)])
async def test_message_that_is_not_there_is_not_consumed(made: Desk, message_id: str | None) -> None:
    consumer = answering()
    made.groups.heartbeat(a_member("c1", consumer), wants("g", "T"))
    asked = {"consumerGroup": "g", "clientId": "c1"} | ({"msgId": message_id} if message_id else {})
    answer = await made.ask(CODE.CONSUME_MESSAGE_DIRECTLY, asked)
    assert answer.code != 0 and answer.remark
    assert consumer.asked() == []
