"""Dead letters through an admin: found by group, reason and age, sent again once, and put away."""

from __future__ import annotations

import json

import pytest
from tests.admin.test_messages import send

from flaremq.admin.admin import Admin
from flaremq.admin.messages import deadletters
from flaremq.admin.values.deadletters import DeadLetter, LetterFilter, kind_of
from flaremq.admin.values.messages import FoundMessage, Scan, TimeRange
from flaremq.admin.values.topics import TopicKind, TopicSettings
from flaremq.base.errors import CallTimeout, InvalidParameter
from flaremq.model.names import DLQ_MARKS_TOPIC
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.headers.send import ConsumerSendMsgBackRequestHeader
from flaremq.testing.cluster import eventually
from flaremq.testing.embedded import Embedded
from flaremq.testing.fakes.wireclient import WireClient

GROUP = "billing"
OF_GROUP = LetterFilter(group=GROUP)


async def die(wire: WireClient, address: str, offset_id: str, reason: str | None, group: str = GROUP) -> None:
    back = ConsumerSendMsgBackRequestHeader(
        offset=int(offset_id[16:], 16), group=group, delay_level=-1, failure_reason=reason
    )
    await wire.ask(address, RequestCode.CONSUMER_SEND_MSG_BACK, back)


async def seen(admin: Admin, *topics: str) -> None:
    async def are_known() -> bool:
        return set(topics) <= {each.name for each in await admin.topics.list()}

    await eventually("the topics are known", are_known)


@pytest.fixture
async def letters(admin: Admin, servers: Embedded, wire: WireClient) -> None:
    """Six of one group at two brokers, three of each reason or of none, and one of another group."""
    await admin.topics.create("orders", TopicSettings(read_queues=2, write_queues=2))
    reasons = ["KeyError: no order 17", "KeyError: no order 23", "Timeout: bank", None, "Timeout: bank", None]
    for number, reason in enumerate(reasons):
        address = servers.addresses[number % 2]
        await wire.heartbeat(address, GROUP, "orders")
        await wire.heartbeat(address, "other", "orders")
        await die(wire, address, await send(wire, address, number, shop="north"), reason)
    await die(wire, servers.addresses[0], await send(wire, servers.addresses[0], 9), "no", "other")
    await seen(admin, "%DLQ%billing", "%DLQ%other")


async def found(admin: Admin, chosen: LetterFilter = OF_GROUP) -> list[DeadLetter]:
    return [each async for each in admin.dead_letters.scan(chosen)]


async def bodies(admin: Admin, chosen: LetterFilter = OF_GROUP) -> set[bytes]:
    return {each.message.body for each in await found(admin, chosen)}


async def copies(admin: Admin, topic: str = "orders") -> list[FoundMessage]:
    """What was sent again."""
    every = [each async for each in admin.messages.scan(Scan(topic=topic))]
    return [each for each in every if each.get("RESENT_FROM")]


def numbered(*numbers: int) -> set[bytes]:
    return {f"body {number}".encode() for number in numbers}


@pytest.mark.usefixtures("letters")
async def test_groups_are_listed_with_numbers_and_kinds_of_reasons(admin: Admin) -> None:
    billing, other = await admin.dead_letters.list()
    assert (billing.group, billing.count, other.group, other.count) == ("billing", 6, "other", 1)
    assert billing.reasons == {"KeyError: no order #": 2, "Timeout: bank": 2, None: 2}
    assert 0 < billing.oldest_ms <= billing.newest_ms
    assert list(await admin.dead_letters.list(LetterFilter(group="no-such-group"))) == []


@pytest.mark.usefixtures("letters")
async def test_a_dead_letter_says_where_it_came_from_and_why_it_failed(admin: Admin) -> None:
    letter = next(each for each in await found(admin) if each.message.body == b"body 0")
    assert (letter.group, letter.origin_topic, letter.attempts) == ("billing", "orders", 1)
    assert letter.failure is not None and letter.failure.reason == "KeyError: no order 17"
    assert letter.message.keys == ("key-0", "all")


@pytest.mark.usefixtures("letters")
@pytest.mark.parametrize(
    ("chosen", "numbers"),
    [
        (LetterFilter(group=GROUP, reason="keyerror"), {0, 1}),
        (LetterFilter(group=GROUP, reason="order 23"), {1}),
        (LetterFilter(group=GROUP, reason="no order #"), {0, 1}),
        (LetterFilter(group=GROUP, within=TimeRange(0, 1)), set()),
        (LetterFilter(group=GROUP, within=TimeRange(1_000)), {0, 1, 2, 3, 4, 5}),
        (LetterFilter(reason="no"), {0, 1, 9}),
    ],
)
async def test_they_are_chosen_by_reason_and_age(
    admin: Admin, chosen: LetterFilter, numbers: set[int]
) -> None:
    assert await bodies(admin, chosen) == numbered(*numbers)


@pytest.mark.usefixtures("letters")
async def test_they_are_sent_to_their_topic_as_they_were_and_only_once(admin: Admin) -> None:
    done = await admin.dead_letters.resend(LetterFilter(group=GROUP, reason="KeyError"))
    assert (done.sent, done.failed, done.is_cut_short) == (2, {}, False)
    assert await bodies(admin) == numbered(2, 3, 4, 5)
    again = await copies(admin)
    assert {each.body for each in again} == numbered(0, 1)
    for copy in again:
        originals = await admin.messages.by_unique_key("orders", copy.message_id)
        first = next(each for each in originals if not each.get("RESENT_FROM"))
        kept = {"KEYS", "TAGS", "UNIQ_KEY", "shop"}
        assert {name: copy.properties[name] for name in kept} == {
            name: first.properties[name] for name in kept
        }
        assert (copy.born_ms, copy.reconsume_times) == (first.born_ms, 0)
        gone = {"RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "FAILURE_REASON", "FAILURE_TIME", "DELAY", "REAL_TOPIC"}
        assert not gone & copy.properties.keys()
    assert (await admin.dead_letters.resend(LetterFilter(group=GROUP, reason="KeyError"))).sent == 0
    assert len(await copies(admin)) == 2


@pytest.mark.usefixtures("letters")
async def test_they_go_to_another_topic_or_to_their_group_alone(admin: Admin) -> None:
    await admin.topics.create("aside", TopicSettings(read_queues=1, write_queues=1))
    await admin.dead_letters.resend(LetterFilter(group=GROUP, reason="KeyError"), to="aside")
    assert {each.body for each in await copies(admin, "aside")} == numbered(0, 1)
    await admin.dead_letters.resend(LetterFilter(group=GROUP, reason="bank"), to_group=True)
    retries = [each async for each in admin.messages.scan(Scan(topic="%RETRY%billing"))]
    assert {(each.body, each.get("RETRY_TOPIC")) for each in retries} == {
        (b"body 2", "orders"),
        (b"body 4", "orders"),
    }
    assert await copies(admin) == []
    with pytest.raises(InvalidParameter, match="only one of them"):
        await admin.dead_letters.resend(OF_GROUP, to="aside", to_group=True)
    with pytest.raises(InvalidParameter, match="holds dead letters"):
        await admin.dead_letters.resend(OF_GROUP, to="%DLQ%other")


@pytest.mark.usefixtures("letters")
async def test_a_limit_takes_them_bit_by_bit(admin: Admin) -> None:
    left = [6]
    while (await admin.dead_letters.resend(LetterFilter(group=GROUP, limit=4))).sent:
        left.append(len(await found(admin)))
    assert left == [6, 2, 0]
    assert {each.body for each in await copies(admin)} == numbered(0, 1, 2, 3, 4, 5)


@pytest.mark.usefixtures("letters")
async def test_what_cannot_be_sent_stays_and_is_told(admin: Admin, wire: WireClient) -> None:
    done = await admin.dead_letters.resend(LetterFilter(group=GROUP, reason="bank"), to="no-such-topic")
    assert done.sent == 0 and len(done.failed) == 2
    assert all("no-such-topic" in str(error) for error in done.failed.values())
    assert len(await found(admin)) == 6


@pytest.mark.usefixtures("letters")
async def test_a_crash_before_the_mark_repeats_a_message_and_loses_none(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dies(*_: object) -> None:
        raise CallTimeout("the process is killed here, says the test")

    with monkeypatch.context() as patch:
        patch.setattr(deadletters, "send_to", dies)
        with pytest.raises(CallTimeout):
            await admin.dead_letters.resend(LetterFilter(group=GROUP, reason="bank"))
    sent = len(await copies(admin))
    assert sent > 0
    await admin.dead_letters.resend(LetterFilter(group=GROUP, reason="bank"))
    assert {each.body for each in await copies(admin)} == numbered(2, 4)
    assert await bodies(admin) == numbered(0, 1, 3, 5)


@pytest.mark.usefixtures("letters")
async def test_what_is_purged_is_found_no_more_but_stays_in_its_topic(admin: Admin) -> None:
    assert await admin.dead_letters.purge(LetterFilter(group=GROUP, reason="Timeout")) == 2
    assert await admin.dead_letters.purge(LetterFilter(group=GROUP, reason="Timeout")) == 0
    assert await bodies(admin) == numbered(0, 1, 3, 5)
    assert await bodies(admin, LetterFilter(group="other")) == numbered(9)
    assert len([each async for each in admin.messages.scan(Scan(topic="%DLQ%billing"))]) == 6
    kinds = {each.name: each.kind for each in await admin.topics.list()}
    assert kinds[DLQ_MARKS_TOPIC] is TopicKind.SYSTEM


@pytest.mark.usefixtures("letters")
async def test_letters_of_a_topic_that_was_made_anew_are_not_taken_for_old_ones(
    admin: Admin, servers: Embedded, wire: WireClient
) -> None:
    """Offsets begin at 0 again, so marks name places in the log."""
    assert await admin.dead_letters.purge(OF_GROUP) == 6
    await admin.topics.delete("%DLQ%billing")
    for address in servers.addresses:
        await die(wire, address, await send(wire, address, 7), "new")
    await seen(admin, "%DLQ%billing")
    assert await bodies(admin) == numbered(7)


@pytest.mark.usefixtures("letters")
async def test_messages_of_others_in_the_topic_of_marks_do_no_harm(
    admin: Admin, servers: Embedded, wire: WireClient
) -> None:
    await admin.dead_letters.purge(LetterFilter(group=GROUP, reason="KeyError"))
    for body in (b"hello", b"[]", b'{"offsets": 7}', json.dumps({"offsets": ["x", None]}).encode()):
        await wire.send(servers.addresses[0], DLQ_MARKS_TOPIC, 0, body)
    assert await bodies(admin) == numbered(2, 3, 4, 5)


def test_reasons_that_differ_in_numbers_are_of_one_kind() -> None:
    assert kind_of("no order 17 at 0x7fA0") == kind_of("no order 4 at 0x1b") == "no order # at #"
