"""Looking for messages by key, id and time, asked as clients and mqadmin ask."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.broker.nobody import Nobody

from flaremq.broker.handlers.query import QueryHandlers
from flaremq.broker.offload import Offload
from flaremq.filter.selector import TagSelector
from flaremq.model.record import decode_many
from flaremq.model.tags import java_hash
from flaremq.protocol import beans
from flaremq.protocol.bodies.group import SubscriptionData
from flaremq.protocol.bodies.stats import QueryConsumeQueueResponseBody
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command
from flaremq.remoting.router import Family, Peer, Router
from flaremq.store.api import Selector
from flaremq.store.store import MessageStore
from flaremq.testing.clock import ManualClock, settle
from flaremq.testing.fakes.builders import NOW_MS, a_message, small_settings

KEYS = b"TAGS\x01TagA\x02KEYS\x01order-%d both\x02UNIQ_KEY\x01ID%d\x02"


class Online:
    """One group that is there, and what it wants."""

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        return SubscriptionData(topic=topic, sub_string="TagA") if group == "there" else None

    def of_subscription(self, group: str, topic: str, subscription: SubscriptionData) -> Selector | None:
        return TagSelector(array("q", [java_hash("TagA")]))


class Asked:
    """A router before the handlers: what they raise becomes an answer, as it does in a broker."""

    def __init__(self, store: MessageStore, offload: Offload, peer: Peer) -> None:
        online = Online()
        self._router, self._peer = Router(), peer
        self._router.serve(Family("query", 100), QueryHandlers(store, offload, online, online).table())

    async def __call__(self, code: int, **fields: object) -> Command:
        given = {name: str(value) for name, value in fields.items()}
        answer = await self._router.answer(self._peer, Command(code=code, ext_fields=given))
        assert answer is not None
        return answer


@contextmanager
def opened(root: Path, clock: ManualClock, **other: Any) -> Iterator[MessageStore]:
    with MessageStore(small_settings(root, **other), clock=clock) as store:
        for number in range(5):
            properties = KEYS % (number, number)
            store.put(a_message(b"m%d" % number, properties=properties), wait=False)
            clock.advance_ms(1000)
        store.dispatch()
        yield store


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_MS)


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[MessageStore]:
    with opened(tmp_path, clock) as store:
        yield store


@pytest.fixture
async def offload() -> AsyncIterator[Offload]:
    offload = Offload(1)
    yield offload
    offload.close()


@pytest.fixture
def ask(store: MessageStore, offload: Offload) -> Asked:
    return Asked(store, offload, Nobody())


def bodies(answer: Command) -> list[bytes]:
    return [message.body for message in decode_many(bytes(answer.body or b""))]


async def query(ask: Asked, key: str, count: int = 10, **other: object) -> Command:
    given = {"beginTimestamp": 0, "endTimestamp": 1 << 62, **other}
    return await ask(RequestCode.QUERY_MESSAGE, topic="TopicTest", key=key, maxNum=count, **given)


async def test_messages_are_found_by_key(ask: Asked, store: MessageStore) -> None:
    answer = await query(ask, "order-3")
    assert (answer.code, bodies(answer)) == (0, [b"m3"])
    assert answer.fields["indexLastUpdateTimestamp"] == str(NOW_MS + 4000)
    assert int(answer.fields["indexLastUpdatePhyoffset"]) > 0
    assert len(bodies(await query(ask, "both"))) == 5
    assert len(bodies(await query(ask, "both", 2))) == 2


async def test_the_id_that_a_sender_gave_is_a_key_too(ask: Asked) -> None:
    answer = await query(ask, "ID2", 0, _UNIQUE_KEY_QUERY="true")
    assert bodies(answer) == [b"m2"]


@pytest.mark.parametrize("other", [{"key": "none"}, {"key": "both", "endTimestamp": 1}, {"key": "\ud800"}])
async def test_what_is_not_found_is_told_as_java_tells_it(ask: Asked, other: dict[str, Any]) -> None:
    answer = await query(ask, **other)
    assert answer.code == ResponseCode.QUERY_NOT_FOUND
    assert answer.remark == "can not find message, maybe time range not correct"
    assert "indexLastUpdateTimestamp" in answer.fields


@pytest.mark.parametrize("count", [0, -1])
async def test_to_ask_for_no_message_is_an_error(ask: Asked, count: int) -> None:
    answer = await query(ask, "both", count)
    assert answer.code == ResponseCode.SYSTEM_ERROR and "maxNum" in (answer.remark or "")


async def test_without_an_index_nothing_is_found_by_key(
    tmp_path: Path, offload: Offload, clock: ManualClock
) -> None:
    with opened(tmp_path, clock, index_enabled=False) as store:
        answer = await query(Asked(store, offload, Nobody()), "both")
        assert (answer.code, answer.fields["indexLastUpdatePhyoffset"]) == (ResponseCode.QUERY_NOT_FOUND, "0")


async def test_a_message_is_found_where_it_lies(ask: Asked, store: MessageStore) -> None:
    (second,) = decode_many(store.get(b"TopicTest", 0, 1, 1).gathered())
    answer = await ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=second.physical_offset)
    assert bodies(answer) == [b"m1"]


@pytest.mark.parametrize("offset", [-1, 7, 1 << 40, -(1 << 62)])
async def test_where_no_message_lies_there_is_none(ask: Asked, offset: int) -> None:
    answer = await ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=offset)
    assert (answer.code, answer.remark) == (1, f"can not find message by the offset, {offset}")


@pytest.mark.parametrize(
    ("timestamp", "boundary", "offset"),
    [
        (NOW_MS + 2000, "LOWER", 2),
        (NOW_MS + 2500, "lower", 3),
        (NOW_MS + 2500, "UPPER", 2),
        (0, None, 0),
        (1 << 62, None, 5),
    ],
)
async def test_an_offset_is_found_by_time(
    ask: Asked, timestamp: int, boundary: str | None, offset: int
) -> None:
    other = {"boundaryType": boundary} if boundary else {}
    answer = await ask(
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, topic="TopicTest", queueId=0, timestamp=timestamp, **other
    )
    assert (answer.code, answer.fields["offset"]) == (0, str(offset))


@pytest.mark.parametrize(
    ("topic", "queue_id", "end"), [("TopicTest", 0, 5), ("TopicTest", 9, 0), ("../..", -1, 0)]
)
async def test_a_queue_tells_where_it_begins_and_ends(
    ask: Asked, topic: str, queue_id: int, end: int
) -> None:
    most = await ask(RequestCode.GET_MAX_OFFSET, topic=topic, queueId=queue_id, committed="true")
    least = await ask(RequestCode.GET_MIN_OFFSET, topic=topic, queueId=queue_id)
    assert (most.fields["offset"], least.fields["offset"]) == (str(end), "0")


async def test_the_end_of_a_queue_counts_what_another_thread_is_dispatching(
    ask: Asked, store: MessageStore
) -> None:
    """A new queue gets its files in another thread: whoever asks meanwhile waits for it."""
    with store.dispatcher._lock:
        store.put(a_message(b"acknowledged"), wait=False)
        asking = asyncio.create_task(ask(RequestCode.GET_MAX_OFFSET, topic="TopicTest", queueId=0))
        await settle()
        assert not asking.done()
    assert (await asking).fields["offset"] == "6"


@pytest.mark.parametrize(("queue_id", "stored_ms"), [(0, NOW_MS), (1, -1)])
async def test_the_oldest_message_of_a_queue_has_a_time(ask: Asked, queue_id: int, stored_ms: int) -> None:
    answer = await ask(RequestCode.GET_EARLIEST_MSG_STORETIME, topic="TopicTest", queueId=queue_id)
    assert answer.fields["timestamp"] == str(stored_ms)


async def entries(ask: Asked, **other: object) -> QueryConsumeQueueResponseBody:
    given = {"topic": "TopicTest", "queueId": 0, "index": 0, "count": 10, **other}
    answer = await ask(RequestCode.QUERY_CONSUME_QUEUE, **given)
    assert answer.code == 0
    return beans.decode(QueryConsumeQueueResponseBody, answer.body)


async def test_entries_of_a_queue_are_shown_as_they_are(ask: Asked, store: MessageStore) -> None:
    found = await entries(ask, index=1, count=2)
    messages = list(decode_many(store.get(b"TopicTest", 0, 1, 2).gathered()))
    assert [each.physic_offset for each in found.queue_data] == [each.physical_offset for each in messages]
    assert (found.min_queue_index, found.max_queue_index) == (0, 5)
    assert found.subscription_data is None and found.filter_data is None


@pytest.mark.parametrize(
    ("index", "count", "shown"), [(3, 100, 2), (5, 1, 0), (99, 1, 0), (0, 0, 0), (0, -5, 0), (-10, 12, 2)]
)
async def test_entries_that_are_not_there_are_not_shown(
    ask: Asked, index: int, count: int, shown: int
) -> None:
    assert len((await entries(ask, index=index, count=count)).queue_data) == shown


async def test_a_group_that_is_there_is_shown_with_its_subscription(ask: Asked) -> None:
    there, gone = await entries(ask, consumerGroup="there"), await entries(ask, consumerGroup="gone")
    assert there.subscription_data is not None and there.subscription_data.sub_string == "TagA"
    assert gone.filter_data == "gone@TopicTest is not online!"


async def test_a_queue_that_is_not_there_is_told(ask: Asked) -> None:
    answer = await ask(RequestCode.QUERY_CONSUME_QUEUE, topic="Nobody", queueId=0, index=0, count=1)
    assert (answer.code, answer.remark) == (1, "0@Nobody is not exist!")


async def test_a_batch_queue_is_shown_and_has_times_too(
    tmp_path: Path, offload: Offload, clock: ManualClock
) -> None:
    batch = a_message(b"inner", sys_flag=0xC0, properties=b"INNER_NUM\x013\x02")
    with MessageStore(small_settings(tmp_path), clock=clock, is_batch=lambda _topic: True) as store:
        ask = Asked(store, offload, Nobody())
        store.put(batch, wait=False)
        store.put(batch, wait=False)
        store.dispatch()
        found = await ask(RequestCode.GET_EARLIEST_MSG_STORETIME, topic="TopicTest", queueId=0)
        assert found.fields["timestamp"] == str(NOW_MS)
        assert len((await entries(ask)).queue_data) == 2
        assert len((await entries(ask, count=3)).queue_data) == 1


async def test_an_extension_is_shown_with_its_entry(
    tmp_path: Path, offload: Offload, clock: ManualClock
) -> None:
    with opened(tmp_path, clock, ext_enabled=True) as store:
        ask = Asked(store, offload, Nobody())
        (first, *_) = (await entries(ask, consumerGroup="there")).queue_data
        (unjudged, *_) = (await entries(ask)).queue_data
        assert first.extend_data_json == f'{{"msgStoreTime":{NOW_MS},"tagsCode":{java_hash("TagA")}}}'
        assert first.eval and not unjudged.eval
        store.queues.ext((b"TopicTest", 0)).destroy()  # type: ignore[union-attr]
        (lost, *_) = (await entries(ask)).queue_data
        assert lost.msg == f"Cq extend not exist!addr: {first.tags_code}"


@pytest.mark.parametrize("code", [12, 29, 30, 31, 32, 33, 321])
async def test_a_header_without_its_fields_is_an_answer(ask: Asked, code: int) -> None:
    answer = await ask(code)
    assert answer.code == ResponseCode.SYSTEM_ERROR and "is missing" in (answer.remark or "")
