"""Offsets and locks, as requests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.broker.clients import Desk, desk

from flaremq.broker.handlers.offset import OffsetHandlers
from flaremq.model.message import MessageQueue
from flaremq.protocol import beans
from flaremq.protocol.bodies.group import LockBatchRequestBody, LockBatchResponseBody
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command
from flaremq.testing.fakes.builders import a_message

CODE = RequestCode
QUEUE = {"consumerGroup": "g", "topic": "TopicTest", "queueId": "0"}


@contextmanager
def serving(root: Path, **store: Any) -> Iterator[Desk]:
    with desk(root, store=store) as made, made.store:
        handlers = OffsetHandlers(made.topics, made.subscriptions, made.offsets, made.locks, made.store)
        made.serve(handlers.table())
        made.topics.ensure("TopicTest", 4)
        made.subscriptions.get("g")
        yield made


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Desk]:
    with serving(tmp_path) as made:
        yield made


async def test_commit_is_what_is_asked_for_later(made: Desk) -> None:
    assert (await made.ask(CODE.UPDATE_CONSUMER_OFFSET, {**QUEUE, "commitOffset": "5"})).code == 0
    answer = await made.ask(CODE.QUERY_CONSUMER_OFFSET, QUEUE)
    assert (answer.code, answer.fields) == (0, {"offset": "5"})


async def test_new_group_on_a_queue_that_is_still_empty_starts_at_zero(made: Desk) -> None:
    """Else what arrives between this answer and the client's question for the end is never delivered."""
    assert (await made.ask(CODE.QUERY_CONSUMER_OFFSET, QUEUE)).fields == {"offset": "0"}
    wishes = {**QUEUE, "setZeroIfNotFound": "false"}
    assert (await made.ask(CODE.QUERY_CONSUMER_OFFSET, wishes)).code == ResponseCode.QUERY_NOT_FOUND


async def test_new_group_on_a_young_queue_starts_with_its_first_message(made: Desk) -> None:
    made.store.put(a_message())
    made.store.dispatch()
    assert (await made.ask(CODE.QUERY_CONSUMER_OFFSET, QUEUE)).fields == {"offset": "0"}
    wishes = {**QUEUE, "setZeroIfNotFound": "false"}
    assert (await made.ask(CODE.QUERY_CONSUMER_OFFSET, wishes)).code == ResponseCode.QUERY_NOT_FOUND


async def test_new_group_on_a_queue_with_old_messages_chooses_its_start_itself(tmp_path: Path) -> None:
    with serving(tmp_path, in_memory_percent=0) as made:
        made.store.put(a_message())
        made.store.dispatch()
        assert (await made.ask(CODE.QUERY_CONSUMER_OFFSET, QUEUE)).code == ResponseCode.QUERY_NOT_FOUND


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"consumerGroup": "nobody"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"topic": "Nowhere"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": "4"}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": "-1"}, ResponseCode.INVALID_PARAMETER),
        ({"commitOffset": "-1"}, ResponseCode.INVALID_PARAMETER),
        ({"commitOffset": "much"}, ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_commit_that_cannot_be_is_refused(made: Desk, changed: dict[str, str], code: int) -> None:
    answer = await made.ask(CODE.UPDATE_CONSUMER_OFFSET, {**QUEUE, "commitOffset": "5", **changed})
    assert answer.code == code and answer.remark
    assert not made.offsets.topics_by_group()


async def test_commit_is_passed_over_while_a_reset_waits(made: Desk) -> None:
    made.offsets.reset("g", "TopicTest", 0, 3)
    answer = await made.ask(CODE.UPDATE_CONSUMER_OFFSET, {**QUEUE, "commitOffset": "5"})
    assert (answer.code, answer.remark) == (0, "Offset has been previously reset")
    assert (await made.ask(CODE.QUERY_CONSUMER_OFFSET, QUEUE)).fields == {"offset": "3"}


async def test_all_offsets_are_given_as_java_gives_them(made: Desk) -> None:
    made.offsets.commit("g", "T", 0, 5)
    answer = await made.ask(CODE.GET_ALL_CONSUMER_OFFSET)
    assert answer.body is not None and b'"offsetTable":{"T@g":{0:5}}' in bytes(answer.body)


def lock_body(client_id: str, *queue_ids: int) -> LockBatchRequestBody:
    queues = tuple(MessageQueue("T", "broker-a", queue_id) for queue_id in queue_ids)
    return LockBatchRequestBody(consumer_group="g", client_id=client_id, mq_set=queues)


def locked(answer: Command) -> list[int]:
    assert answer.code == 0
    return [queue.queue_id for queue in beans.decode(LockBatchResponseBody, answer.body).lock_ok_mq_set]


async def test_queues_are_locked_and_given_back(made: Desk) -> None:
    assert locked(await made.ask(CODE.LOCK_BATCH_MQ, body=lock_body("c1", 0, 1))) == [0, 1]
    assert locked(await made.ask(CODE.LOCK_BATCH_MQ, body=lock_body("c2", 1, 2))) == [2]
    assert (await made.ask(CODE.UNLOCK_BATCH_MQ, body=lock_body("c1", 1))).code == 0
    assert locked(await made.ask(CODE.LOCK_BATCH_MQ, body=lock_body("c2", 1))) == [1]


@pytest.mark.parametrize("code", [CODE.LOCK_BATCH_MQ, CODE.UNLOCK_BATCH_MQ])
@pytest.mark.parametrize("body", [None, b"{}", b'{"consumerGroup":"g","clientId":"c","mqSet":[1]}'])
async def test_lock_that_means_nothing_is_refused(made: Desk, code: RequestCode, body: bytes | None) -> None:
    answer = await made.ask(code, body=body)
    assert answer.code != 0 and answer.remark
