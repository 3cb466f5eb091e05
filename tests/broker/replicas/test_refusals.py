"""What a slave refuses, with which code, and that it runs no deliveries of its own."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.broker.clients import FakePeer, wants
from tests.broker.desks import DeskBench, Line, a_desk
from tests.broker.nobody import Nobody
from tests.broker.replicas.takeover import SIZES, folder_of_the_slave
from tests.protocol.samples import a_send

from flaremq.broker.replicas.refusals import REFUSED
from flaremq.broker.transactions.transactions import GROUP as TRANSACTIONS
from flaremq.model import names
from flaremq.model.topic import TopicConfig
from flaremq.protocol import beans
from flaremq.protocol.bodies.group import HeartbeatData
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command
from flaremq.store.settings import BrokerRole
from flaremq.testing.clock import ManualClock

CODE, ANSWER = RequestCode, ResponseCode
TOPIC, GROUP = "Orders", "billing"
MASTER = "10.0.0.1:10911"


@pytest.fixture
async def slave(tmp_path: Path) -> AsyncIterator[DeskBench]:
    async with a_desk(tmp_path, broker={"broker_id": 1}, role=BrokerRole.SLAVE) as desk:
        desk.broker.role.learn(MASTER, "10.0.0.1:10912")
        desk.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        yield desk


async def ask(desk: DeskBench, code: int, **fields: str) -> Command:
    answer = await desk.router().answer(Nobody(), Command(code=code, ext_fields=fields))
    assert answer is not None
    return answer


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (CODE.CONSUMER_SEND_MSG_BACK, ANSWER.SYSTEM_BUSY),
        (CODE.SEND_REPLY_MESSAGE_V2, ANSWER.SYSTEM_BUSY),
        (CODE.END_TRANSACTION, ANSWER.SLAVE_NOT_AVAILABLE),
        (CODE.RECALL_MESSAGE, ANSWER.SLAVE_NOT_AVAILABLE),
        (CODE.UPDATE_AND_CREATE_TOPIC, ANSWER.SYSTEM_ERROR),
        (CODE.UPDATE_AND_CREATE_TOPIC_LIST, ANSWER.SYSTEM_ERROR),
        (CODE.DELETE_TOPIC_IN_BROKER, ANSWER.SYSTEM_ERROR),
        (CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, ANSWER.SYSTEM_ERROR),
        (CODE.DELETE_SUBSCRIPTIONGROUP, ANSWER.SYSTEM_ERROR),
        (CODE.INVOKE_BROKER_TO_RESET_OFFSET, ANSWER.SYSTEM_ERROR),
    ],
    ids=lambda code: code.name,
)
async def test_a_slave_refuses_what_changes_something_with_the_code_of_rocketmq(
    slave: DeskBench, code: RequestCode, expected: ResponseCode
) -> None:
    answer = await ask(slave, code)
    assert answer.code == expected
    assert (answer.remark or "").startswith("this broker is a slave and ")
    assert (answer.remark or "").endswith(f": ask its master at {MASTER}")


async def test_a_master_serves_all_of_these(tmp_path: Path) -> None:
    async with a_desk(tmp_path) as desk:
        for code in REFUSED:
            answer = await desk.router().answer(Nobody(), Command(code=code, ext_fields={}))
            assert answer is None or "slave" not in (answer.remark or "")


@pytest.mark.parametrize("kind", ["ordinary", "batch", "new topic", "old code"])
async def test_sends_are_refused_before_any_work(slave: DeskBench, kind: str) -> None:
    request = replace(a_send(b=TOPIC, i="UNIQ_KEY\x01U1\x02"), body=b"body")
    if kind == "new topic":
        request = replace(a_send(b="New", i="UNIQ_KEY\x01U1\x02"), body=b"body")
    elif kind == "batch":
        request = replace(request, code=CODE.SEND_BATCH_MESSAGE)
    elif kind == "old code":
        request = replace(request, code=CODE.SEND_MESSAGE, ext_fields={"topic": TOPIC})
    (answer,) = await slave.ask(request)
    assert answer.code == ANSWER.SYSTEM_BUSY
    assert answer.remark == (
        f"[REJECTREQUEST]this broker is a slave and takes no messages: ask its master at {MASTER}"
    )
    assert slave.store.log.end == 0 and slave.tables.topics.get("New") is None


async def test_the_end_of_a_transaction_that_comes_by_the_socket_is_refused(slave: DeskBench) -> None:
    line = Line()
    slave.deliver(line, Command(code=CODE.END_TRANSACTION, ext_fields={}, opaque=3))
    await slave.run()
    assert [each.code for each in line.commands] == [CODE.END_TRANSACTION]  # Left to its handler.


async def test_without_a_known_master_the_remark_says_so(tmp_path: Path) -> None:
    async with a_desk(tmp_path, broker={"broker_id": 1}, role=BrokerRole.SLAVE) as desk:
        answer = await ask(desk, CODE.DELETE_TOPIC_IN_BROKER)
        assert "no NameServer knows one at the moment" in (answer.remark or "")


async def test_what_is_forbidden_to_a_group_may_be_asked_and_not_changed(slave: DeskBench) -> None:
    fields = {"group": GROUP, "topic": TOPIC}
    code = CODE.UPDATE_AND_GET_GROUP_FORBIDDEN
    assert (await ask(slave, code, **fields)).code == ANSWER.SUCCESS
    assert (await ask(slave, code, **fields, readable="false")).code == ANSWER.SYSTEM_ERROR


async def test_offsets_are_stored(slave: DeskBench) -> None:
    slave.tables.subscriptions.get(GROUP)
    queue = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0"}
    answer = await ask(slave, CODE.UPDATE_CONSUMER_OFFSET, **queue, commitOffset="7")
    assert answer.code == ANSWER.SUCCESS
    answer = await ask(slave, CODE.QUERY_CONSUMER_OFFSET, **queue)
    assert answer.fields == {"offset": "7"}


async def test_a_heartbeat_makes_a_group_here_and_no_topic(slave: DeskBench) -> None:
    body = beans.encode(HeartbeatData(client_id="c1", consumer_data_set=(wants(GROUP, TOPIC),)))
    peer = FakePeer()
    answer = await slave.router().answer(peer, Command(code=CODE.HEART_BEAT, body=body))
    assert answer is not None and answer.code == ANSWER.SUCCESS
    assert slave.tables.groups.get(GROUP) is not None
    assert slave.tables.topics.get(f"%RETRY%{GROUP}") is None


async def test_no_deliveries_run(tmp_path: Path) -> None:
    clock = ManualClock()
    async with a_desk(tmp_path / "m", clock=clock, **SIZES) as desk:
        desk.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        for asked, flag in (("DELAY\x011", "0"), ("TIMER_DELAY_SEC\x011", "0"), ("TRAN_MSG\x01true", "4")):
            request = a_send(b=TOPIC, e="2", i=f"UNIQ_KEY\x01U\x02PGROUP\x01p\x02{asked}\x02", f=flag)
            (answer,) = await desk.ask(request)
            assert answer.code == ANSWER.SUCCESS
    clock.advance_ms(60_000)
    folder = folder_of_the_slave(tmp_path / "m")
    async with a_desk(folder, clock=clock, role=BrokerRole.SLAVE, broker={"broker_id": 1}, **SIZES) as slave:
        end = slave.store.log.end
        work = {task.name: task.work for task in slave.made.tasks()}
        for name in ("deliver-delayed", "run-timers", "check-transactions", "save-transactions"):
            done = work[name]()
            if inspect.isawaitable(done):
                await done
        await slave.run()
        assert slave.store.log.end == end > 0
        assert slave.tables.delays.get(1) == 0
        assert slave.tables.offsets.get(TRANSACTIONS, names.TRANS_HALF_TOPIC, 0) == -1
