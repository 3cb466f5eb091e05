"""Single messages through an admin."""

from __future__ import annotations

import zlib

import pytest
from tests.admin.ghost import NAME, haunt
from tests.admin.member import Member

from flaremq.admin.admin import Admin
from flaremq.admin.values.messages import FoundMessage, Scan, TimeRange, TrackState
from flaremq.admin.values.topics import TopicSettings
from flaremq.base.errors import (
    ConsumerOffline,
    Incomplete,
    InvalidName,
    InvalidParameter,
    MessageNotFound,
    TopicNotFound,
)
from flaremq.model import properties, sysflag
from flaremq.model.message import MessageQueue
from flaremq.model.properties import decode_text, encode_properties
from flaremq.model.topic import GroupConfig
from flaremq.protocol import beans, fields
from flaremq.protocol.bodies.group import (
    CMResult,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    SubscriptionData,
)
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command
from flaremq.protocol.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    SendMessageRequestHeader,
    SendMessageResponseHeader,
)
from flaremq.testing.cluster import eventually
from flaremq.testing.embedded import Embedded
from flaremq.testing.fakes.wireclient import WireClient

TWO = TopicSettings(read_queues=2, write_queues=2)
UNIQUE = "7F000001303918B4AAC2{:012X}"
"""As a client makes them: no broker is at the address that is in it."""


async def send(wire: WireClient, address: str, number: int, queue_id: int = 0, **given: str) -> str:
    """The offset id of message `number` of "orders": compressed, with tag, keys and an id of its sender."""
    known = {
        "KEYS": f"key-{number} all",
        "TAGS": "A" if number % 2 else "B",
        "UNIQ_KEY": UNIQUE.format(number),
    }
    header = SendMessageRequestHeader(
        producer_group="shop",
        topic="orders",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=queue_id,
        sys_flag=sysflag.COMPRESSED | sysflag.COMPRESSION_ZLIB,
        born_timestamp=1_700_000_000_000 + number,
        flag=0,
        properties=decode_text(encode_properties({**known, **given})),
    )
    body = zlib.compress(f"body {number}".encode())
    request = Command(code=RequestCode.SEND_MESSAGE, ext_fields=fields.encode(header), body=body)
    answer = await wire.caller.call(address, request, 30)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return fields.decode(SendMessageResponseHeader, answer.fields).msg_id


@pytest.fixture
async def ids(admin: Admin, servers: Embedded, wire: WireClient) -> list[str]:
    """Offset ids of messages 0 to 9: even ones on broker a, odd ones on broker b, by turns in both queues."""
    await admin.topics.create("orders", TWO)
    found = [await send(wire, servers.addresses[n % 2], n, n // 2 % 2) for n in range(10)]

    async def are_there() -> bool:
        return (await admin.topics.stats("orders")).count == 10 and len(
            await admin.messages.by_key("orders", "all")
        ) == 10

    await eventually("all messages are in queues and index", are_there)
    return found


def bodies(found: object) -> list[bytes]:
    assert isinstance(found, list | tuple)
    return [each.body for each in found]


async def read(admin: Admin, wanted: Scan) -> list[FoundMessage]:
    return [each async for each in admin.messages.scan(wanted)]


# Finding.


async def test_a_message_is_found_by_the_id_that_says_where_it_lies(admin: Admin, ids: list[str]) -> None:
    found = await admin.messages.get(ids[3])
    assert (found.topic, found.body, found.tags, found.keys) == ("orders", b"body 3", "A", ("key-3", "all"))
    assert found.queue == MessageQueue("orders", "broker-b", 1) and found.queue_offset == 0
    assert (found.offset_id, found.message_id) == (ids[3], UNIQUE.format(3))
    assert found.born_ms == 1_700_000_000_003 and found.reconsume_times == 0
    assert found.get("KEYS") == found.properties["KEYS"] == "key-3 all"
    assert (await admin.messages.get(ids[4], "orders")).body == b"body 4"


@pytest.mark.usefixtures("ids")
async def test_a_message_is_found_by_the_id_of_its_sender(
    admin: Admin, servers: Embedded, wire: WireClient
) -> None:
    assert (await admin.messages.get(UNIQUE.format(4), "orders")).body == b"body 4"
    await send(wire, servers.addresses[1], 4)

    async def are_two() -> bool:
        return len(await admin.messages.by_unique_key("orders", UNIQUE.format(4))) == 2

    await eventually("both copies are in the index", are_two)
    copies = await admin.messages.by_unique_key("orders", UNIQUE.format(4))
    assert [each.broker for each in copies] == ["broker-a", "broker-b"]
    assert (await admin.messages.get(UNIQUE.format(4), "orders")).broker == "broker-a"


async def test_a_unique_id_is_found_without_its_topic(admin: Admin, ids: list[str]) -> None:
    found = await admin.messages.get(UNIQUE.format(4))
    assert found.topic == "orders"
    assert found == await admin.messages.get(UNIQUE.format(4), "orders")


async def test_a_search_through_topics_has_a_bound_and_says_what_it_searched(
    admin: Admin, ids: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await admin.topics.create("zzz")
    monkeypatch.setattr("flaremq.admin.messages.messages.SEARCHED_MAX", 1)
    with pytest.raises(MessageNotFound, match=r"topics searched: 1 of \d+\).* name the topic"):
        await admin.messages.get(UNIQUE.format(77))


async def test_what_is_not_there_is_told(admin: Admin, ids: list[str]) -> None:
    with pytest.raises(MessageNotFound, match=r"no index has the id \(topics searched: \d+\)"):
        await admin.messages.get(UNIQUE.format(77))
    with pytest.raises(MessageNotFound, match="not in topic 'orders'"):
        await admin.messages.get(UNIQUE.format(77), "orders")
    beyond = ids[0][:-16] + f"{10**9:016X}"
    with pytest.raises(MessageNotFound, match="no broker has it at that place"):
        await admin.messages.get(beyond)
    within = ids[0][:-16] + f"{int(ids[0][-16:], 16) + 7:016X}"
    with pytest.raises(MessageNotFound, match="no broker has it at that place"):
        await admin.messages.get(within)
    with pytest.raises(TopicNotFound):
        await admin.messages.get(UNIQUE.format(4), "order")
    for wrong in ("", "xyz", "G" * 32):
        with pytest.raises(InvalidParameter, match="message id"):
            await admin.messages.get(wrong)


@pytest.mark.usefixtures("ids")
async def test_messages_are_found_by_key_the_newest_first(admin: Admin) -> None:
    assert bodies((await admin.messages.by_key("orders", "key-7")).items) == [b"body 7"]
    found = await admin.messages.by_key("orders", "all")
    times = [each.stored_ms for each in found]
    assert times == sorted(times, reverse=True) and len(times) == 10
    assert len(await admin.messages.by_key("orders", "all", count_max=2)) == 4  # Two of each broker.
    assert list(await admin.messages.by_key("orders", "all", TimeRange(0, min(times) - 60_000))) == []
    assert list(await admin.messages.by_key("orders", "nothing")) == []
    with pytest.raises(InvalidParameter, match="key is empty"):
        await admin.messages.by_key("orders", " ")
    with pytest.raises(InvalidParameter, match="the earlier time first"):
        TimeRange(5, 4)


@pytest.mark.usefixtures("ids")
async def test_a_message_is_found_by_its_offset(admin: Admin) -> None:
    queue = MessageQueue("orders", "broker-a", 0)
    assert [(await admin.messages.by_offset(queue, n)).body for n in range(3)] == [
        b"body 0",
        b"body 4",
        b"body 8",
    ]
    with pytest.raises(MessageNotFound, match=r"orders broker-a:0 has no message at 3: it holds 0 to 2"):
        await admin.messages.by_offset(queue, 3)
    with pytest.raises(InvalidParameter):
        await admin.messages.by_offset(queue, -1)
    with pytest.raises(InvalidParameter, match="broker-c"):
        await admin.messages.by_offset(MessageQueue("orders", "broker-c", 0), 0)


# Reading.


@pytest.mark.usefixtures("ids")
async def test_a_scan_reads_queue_by_queue_and_no_more_than_is_wanted(admin: Admin) -> None:
    numbers = [0, 4, 8, 2, 6, 1, 5, 9, 3, 7]
    every = await read(admin, Scan(topic="orders"))
    assert [each.body for each in every] == [f"body {n}".encode() for n in numbers]
    assert [each.body for each in await read(admin, Scan(topic="orders", count_max=4))] == bodies(every[:4])
    one = await read(admin, Scan(topic="orders", broker="broker-b", queue_id=0))
    assert bodies(one) == [b"body 1", b"body 5", b"body 9"]
    some = await read(admin, Scan(topic="orders", queue_id=0, begin_offset=1, end_offset=2))
    assert bodies(some) == [b"body 4", b"body 5"]
    tagged = await read(admin, Scan(topic="orders", tags="A || C"))
    assert {each.tags for each in tagged} == {"A"} and len(tagged) == 5


@pytest.mark.usefixtures("ids")
async def test_a_scan_keeps_to_its_time(admin: Admin) -> None:
    every = await read(admin, Scan(topic="orders"))
    first_ms, last_ms = min(each.stored_ms for each in every), max(each.stored_ms for each in every)
    assert await read(admin, Scan(topic="orders", within=TimeRange(first_ms, last_ms))) == every
    assert await read(admin, Scan(topic="orders", within=TimeRange(last_ms + 1))) == []
    assert await read(admin, Scan(topic="orders", within=TimeRange(0, first_ms - 1))) == []


@pytest.mark.usefixtures("ids")
async def test_a_scan_that_misses_a_broker_gives_the_rest_and_says_so(
    admin: Admin, servers: Embedded
) -> None:
    found: list[FoundMessage] = []

    async def read_on() -> None:
        async for each in admin.messages.scan(Scan(topic="orders")):
            found.append(each)  # noqa: PERF401 - What came before the error counts.

    async with WireClient() as registrar:
        await haunt(registrar, servers.namesrv, "orders")
        with pytest.raises(Incomplete, match=NAME):
            await read_on()
    assert len(found) == 10


async def test_a_scan_of_nothing(admin: Admin) -> None:
    with pytest.raises(TopicNotFound):
        await read(admin, Scan(topic="orders"))
    await admin.topics.create("orders", TWO)
    assert await read(admin, Scan(topic="orders")) == []
    with pytest.raises(InvalidParameter, match=r"broker='broker-c'.*broker-a with 2 queues"):
        await read(admin, Scan(topic="orders", broker="broker-c"))
    with pytest.raises(InvalidName):
        await read(admin, Scan(topic="or ders"))
    with pytest.raises(InvalidParameter):
        Scan(topic="orders", count_max=0)


# What becomes of one.


async def test_what_became_of_a_message_in_each_group(
    admin: Admin, servers: Embedded, wire: WireClient, member: Member, ids: list[str]
) -> None:
    message = await admin.messages.get(ids[4])  # At offset 1 of queue 0 on broker a.
    for group, offset in (("past", 2), ("before", 1)):
        await admin.groups.create(GroupConfig(group))
        await wire.commit(servers.addresses[0], group, "orders", 0, offset)
    await member.join(servers.addresses, "live", "orders")
    await wire.commit(servers.addresses[0], "live", "orders", 0, 3)
    found = {each.group: each for each in await admin.messages.track(message)}
    assert (found["past"].state, found["past"].online) == (TrackState.CONSUMED, False)
    assert (found["before"].state, found["before"].online) == (TrackState.NOT_YET, False)
    assert (found["live"].state, found["live"].online) == (TrackState.CONSUMED, True)


async def test_groups_that_keep_their_own_account_are_told_as_such(
    admin: Admin, servers: Embedded, member: Member, ids: list[str]
) -> None:
    message = await admin.messages.get(ids[4])  # Its tag is B.
    wants = SubscriptionData.of("orders", "A")
    for consumer in (
        ConsumerData(group_name="picky", subscription_data_set=(wants,)),
        ConsumerData(
            group_name="puller",
            consume_type=ConsumeType.CONSUME_ACTIVELY,
            subscription_data_set=(wants,),
        ),
        ConsumerData(
            group_name="each", message_model=MessageModel.BROADCASTING, subscription_data_set=(wants,)
        ),
    ):
        data = HeartbeatData(client_id=member.client_id, consumer_data_set=(consumer,))
        await member.ask(servers.addresses[0], RequestCode.HEART_BEAT, None, beans.encode(data))
    await member.commit(servers.addresses[0], "picky", "orders", 0, 2)
    found = {each.group: each.state for each in await admin.messages.track(message)}
    assert found == {
        "picky": TrackState.FILTERED,
        "puller": TrackState.PULLS,
        "each": TrackState.BROADCASTS,
    }


async def test_a_member_consumes_a_message_on_demand(
    admin: Admin, servers: Embedded, member: Member, ids: list[str]
) -> None:
    message = await admin.messages.get(ids[4])
    with pytest.raises(ConsumerOffline, match="billing"):
        await admin.messages.consume_directly(message, "billing")
    await member.join(servers.addresses, "billing", "orders")
    found = await admin.messages.consume_directly(message, "billing")
    assert (found.client_id, found.result, found.remark) == (member.client_id, CMResult.CR_LATER, "not now")
    assert found.spent_ms == 3 and found.auto_commit and not found.order
    assert [zlib.decompress(each) for each in member.consumed] == [b"body 4"]
    with pytest.raises(InvalidParameter, match=rf"no member 'other'.*{member.client_id}"):
        await admin.messages.consume_directly(message, "billing", "other")


async def test_a_dead_letter_is_given_to_its_group_once_more(
    admin: Admin, servers: Embedded, wire: WireClient, ids: list[str]
) -> None:
    message = await admin.messages.get(ids[4])
    with pytest.raises(InvalidParameter, match="expected a dead letter"):
        await admin.messages.resend(message)
    address = servers.addresses[0]
    await wire.heartbeat(address, "billing", "orders")
    back = ConsumerSendMsgBackRequestHeader(
        offset=message.stored.physical_offset, group="billing", delay_level=-1, origin_topic="orders"
    )
    await wire.ask(address, RequestCode.CONSUMER_SEND_MSG_BACK, back)

    async def is_dead() -> bool:
        listed = [each.name for each in await admin.topics.list()]
        return "%DLQ%billing" in listed and "%RETRY%billing" in listed

    await eventually("the dead letter has a topic", is_dead)
    (letter,) = await read(admin, Scan(topic="%DLQ%billing"))
    assert letter.reconsume_times == 1
    resent = await admin.messages.resend(letter)
    assert resent.queue == MessageQueue("%RETRY%billing", "broker-a", 0)
    (again,) = await read(admin, Scan(topic="%RETRY%billing"))
    assert (again.body, again.tags, again.message_id) == (b"body 4", "B", message.message_id)
    assert (again.reconsume_times, again.offset_id) == (0, resent.offset_id)
    assert again.get(properties.RETRY_TOPIC) == "orders"
    assert len(await read(admin, Scan(topic="%DLQ%billing"))) == 1
