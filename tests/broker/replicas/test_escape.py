"""What an acting master delivers goes to other brokers, and is never lost on the way."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from tests.broker.replicas.wires import MemberBench

from flaremq.broker.replicas.escape import Escape
from flaremq.model.properties import decode_properties, encode_properties
from flaremq.protocol import beans
from flaremq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command, response_to
from flaremq.protocol.headers.send import SendMessageRequestHeader, decode_send
from flaremq.store.drafts import NewMessage

SEND, ROUTE = RequestCode.SEND_MESSAGE_V2, RequestCode.GET_ROUTEINFO_BY_TOPIC
B, C = "10.0.1.1:10911", "10.0.2.1:10911"


class Scene:
    def __init__(self, namesrvs: str = "n:1") -> None:
        self.bench = MemberBench(1, namesrvs)
        self.acts = True
        self.it = Escape(
            self.bench.live,
            self.bench.members.namesrvs,
            self.bench.wires,
            acts=lambda: self.acts,
            clock=self.bench.clock,
            sleep=self.bench.naps.sleep,
        )
        self.codes: dict[str, int] = {}
        self.routes: dict[str, TopicRouteData] = {}
        self.bench.wires.peers["n:1"] = {ROUTE: self._route}
        for address in (B, C):
            self.bench.wires.peers[address] = {SEND: partial(self._stored, address)}

    def _route(self, request: Command) -> Command:
        found = self.routes.get(request.fields["topic"])
        if found is None:
            return response_to(request, ResponseCode.TOPIC_NOT_EXIST, "No topic route info")
        return response_to(request, body=beans.encode(found))

    def _stored(self, address: str, request: Command) -> Command:
        return response_to(request, self.codes.get(address, ResponseCode.SUCCESS))

    def sent(self, address: str | None = None) -> list[SendMessageRequestHeader]:
        return [decode_send(SEND, each.fields) for each in self.bench.wires.requests(SEND, address)]


def route(*queues: tuple[str, int, int], **masters: str) -> TopicRouteData:
    """Queues: broker, number, permission."""
    return TopicRouteData(
        queue_datas=tuple(
            QueueData(broker_name=name, read_queue_nums=count, write_queue_nums=count, perm=perm)
            for name, count, perm in queues
        ),
        broker_datas=tuple(
            BrokerData(cluster="C", broker_name=name.replace("_", "-"), broker_addrs={0: address})
            for name, address in masters.items()
        ),
    )


EVERYWHERE = route(("broker-b", 2, 6), ("broker-c", 1, 6), broker_b=B, broker_c=C)


def a_message(number: int = 0, **known: str) -> NewMessage:
    properties = encode_properties({"UNIQ_KEY": f"U{number}", "WAIT": "true", **known})
    return NewMessage(
        topic=b"T",
        body=b"%d" % number,
        queue_id=9,
        properties=properties,
        flag=3,
        sys_flag=0x11,
        born_timestamp_ms=77,
        reconsume_times=2,
    )


async def test_messages_go_to_the_writable_queues_of_other_brokers_in_turn() -> None:
    scene = Scene()
    scene.routes["T"] = EVERYWHERE
    assert await scene.it.deliver([a_message(number) for number in range(4)]) == 4
    assert sorted(each.queue_id for each in scene.sent(B)) == [0, 0, 1]
    assert len(scene.sent(C)) == 1
    assert len(scene.bench.wires.requests(ROUTE)) == 1


async def test_a_message_arrives_as_it_was_but_for_what_only_its_own_broker_understands() -> None:
    scene = Scene()
    scene.routes["T"] = EVERYWHERE
    given = a_message(5, PRODUCER_SEQ="p:1", KEYS="k", INNER_MULTI_QUEUE_OFFSET="4")
    await scene.it.deliver([given, a_message(6, PGROUP="buyers")])
    plain, grouped = scene.sent()
    assert plain.producer_group == "InnerProducerGroup_broker-a_1"
    assert grouped.producer_group == "buyers"
    assert decode_properties((plain.properties or "").encode()) == {
        "UNIQ_KEY": "U5", "WAIT": "false", "KEYS": "k"
    }  # fmt: skip
    assert (plain.topic, plain.flag, plain.born_timestamp, plain.reconsume_times) == ("T", 3, 77, 2)
    assert plain.sys_flag == 0x1  # Without the width of a host that is not the sender's.
    assert bytes(scene.bench.wires.requests(SEND)[0].body or b"") == b"5"
    assert plain.max_reconsume_times is None


async def test_the_last_retry_of_a_message_is_still_a_retry() -> None:
    scene = Scene()
    scene.routes["%RETRY%g"] = EVERYWHERE
    await scene.it.deliver([replace(a_message(), topic=b"%RETRY%g", reconsume_times=16)])
    (retry,) = scene.sent()
    assert (retry.reconsume_times, retry.max_reconsume_times) == (16, 17)


@pytest.mark.parametrize(
    "code",
    [ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE],
)
async def test_what_is_stored_is_not_sent_again(code: int) -> None:
    scene = Scene()
    scene.routes["T"] = EVERYWHERE
    scene.codes = {B: code, C: code}
    assert await scene.it.deliver([a_message()]) == 1
    assert len(scene.sent()) == 1


async def test_what_nobody_takes_is_tried_until_somebody_does(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    naps = scene.bench.naps

    def things_change() -> None:
        if len(naps.slept) == 5:
            scene.routes["T"] = route(("broker-b", 1, 6), broker_b=B)
            scene.codes[B] = ResponseCode.SYSTEM_BUSY
        elif len(naps.slept) == 10:
            del scene.bench.wires.peers[B]
        elif len(naps.slept) == 15:
            scene.routes["T"] = route(("broker-b", 1, 6), ("broker-c", 1, 6), broker_b=B, broker_c=C)

    naps.each = things_change
    assert await scene.it.deliver([a_message()]) == 1
    assert naps.slept[:8] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert len(scene.sent(C)) == 1
    assert caplog.text.count("could not be sent to another broker") == 1


async def test_a_broker_that_stops_to_act_gives_up_and_says_how_far_it_came() -> None:
    scene = Scene()
    scene.routes["T"] = scene.routes["U"] = EVERYWHERE
    missing = replace(a_message(1), topic=b"Missing")
    naps = scene.bench.naps
    naps.each = lambda: setattr(scene, "acts", len(naps.slept) < 20)
    assert await scene.it.deliver([a_message(0), a_message(1), missing, a_message(3)]) == 2
    assert len(scene.sent()) == 3
    assert await scene.it.deliver([a_message(4)]) == 0
    assert len(scene.sent()) == 3


async def test_neither_this_group_nor_brokers_without_a_master_or_permission_are_sent_to() -> None:
    scene = Scene()
    queues = ("broker-a", 4, 6), ("broker-b", 4, 4), ("broker-d", 4, 6), ("broker-c", 1, 6)
    scene.routes["T"] = route(*queues, broker_a="10.0.0.1:10911", broker_b=B, broker_c=C)
    assert await scene.it.deliver([a_message(number) for number in range(5)]) == 5
    assert len(scene.sent(C)) == 5 == len(scene.sent())


async def test_a_route_is_asked_for_again_when_it_is_old_or_has_failed() -> None:
    scene = Scene("gone:1;n:1")
    scene.routes["T"] = EVERYWHERE
    for _ in range(3):
        await scene.it.deliver([a_message()])
    assert len(scene.bench.wires.requests(ROUTE, "n:1")) == 1
    scene.bench.clock.advance_ms(30_000)
    await scene.it.deliver([a_message()])
    assert len(scene.bench.wires.requests(ROUTE, "n:1")) == 2
    scene.codes = {B: ResponseCode.NO_PERMISSION, C: ResponseCode.NO_PERMISSION}
    scene.bench.naps.each = scene.codes.clear
    await scene.it.deliver([a_message()])
    assert len(scene.bench.wires.requests(ROUTE, "n:1")) == 3


async def test_what_has_no_topic_any_more_goes_where_any_topic_may_be_made() -> None:
    scene = Scene()
    scene.routes["TBW102"] = route(("broker-b", 8, 7), broker_b=B)
    assert await scene.it.deliver([replace(a_message(), topic=b"rmq_sys_undelivered")]) == 1
    (sent,) = scene.sent(B)
    assert (sent.topic, sent.default_topic) == ("rmq_sys_undelivered", "TBW102")


async def test_many_messages_that_wait_for_a_route_do_not_ask_one_by_one() -> None:
    scene = Scene("gone:1;n:1")
    naps = scene.bench.naps
    naps.each = lambda: setattr(scene, "acts", scene.bench.clock.monotonic_s() < 0.9)
    assert await scene.it.deliver([a_message(number) for number in range(64)]) == 0
    assert len(scene.bench.wires.requests(ROUTE)) == 2
