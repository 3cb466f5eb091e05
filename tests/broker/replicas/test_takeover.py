"""What waits at a master is delivered by the slave that acts for it, and not again by the master later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.broker.desks import DeskBench, a_desk
from tests.broker.nobody import Nobody
from tests.broker.replicas.takeover import SECOND, SIZES, Elsewhere, a_slave, folder_of_the_slave
from tests.protocol.samples import a_send

from flaremq.broker.delay.levels import DelayedMessages
from flaremq.broker.delay.timers import Timers
from flaremq.broker.transactions.transactions import GROUP, Transactions
from flaremq.model import names
from flaremq.model.properties import encode_properties
from flaremq.model.topic import TopicConfig
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.command import Command
from flaremq.store.drafts import copy_of
from flaremq.store.timer.timercheck import Progress, progress_of
from flaremq.testing.clock import ManualClock

TOPIC = "Orders"
DAY_MS = 86_400_000
AS_SENT = {
    "UNIQ_KEY": "U0", "KEYS": "k", "CLUSTER": "DefaultCluster",
    "MSG_REGION": "DefaultRegion", "TRACE_ON": "true",
}  # fmt: skip


async def send(desk: DeskBench, number: int, topic: str = TOPIC, **known: str) -> None:
    """A message that waits, as its properties say."""
    desk.tables.topics.put(TopicConfig(topic, 4, 4))
    pairs = {"UNIQ_KEY": f"U{number}", "KEYS": "k", **known}
    text = "".join(f"{name}\x01{value}\x02" for name, value in pairs.items())
    flag = "4" if "TRAN_MSG" in known else "0"
    (answer,) = await desk.ask(replace(a_send(b=topic, e="2", i=text, f=flag), body=b"%d" % number))
    assert answer.code == 0, answer.remark


def numbers(*found: int) -> list[bytes]:
    return [b"%d" % number for number in found]


def at_home(desk: DeskBench) -> list[bytes]:
    return [each.body for each in desk.messages() if each.topic == TOPIC]


# Delay levels.


async def test_delayed_messages_are_sent_to_other_brokers_when_they_are_due(tmp_path: Path) -> None:
    clock = ManualClock()
    async with a_desk(tmp_path / "m", clock=clock, **SIZES) as desk:
        for number in range(100):
            await send(desk, number, DELAY="3", TRAN_MSG="no", REAL_QID="x")
        await send(desk, 100, DELAY="4")
    async with a_slave(folder_of_the_slave(tmp_path / "m"), clock) as slave:
        delayed = slave.feature(DelayedMessages)
        clock.advance_ms(9 * SECOND)
        await delayed.deliver()
        await slave.settle()
        assert slave.elsewhere.bodies == []
        clock.advance_ms(1 * SECOND)
        await delayed.deliver()
        await slave.settle()
        assert slave.elsewhere.bodies == numbers(*range(100))
        assert slave.elsewhere.stored[0].topic == TOPIC.encode()
        assert slave.elsewhere.known() == AS_SENT
        assert slave.desk.tables.delays.get(3) == 100
        assert at_home(slave.desk) == []


async def test_a_level_that_nobody_takes_holds_up_no_other_and_goes_on_where_it_stopped(
    tmp_path: Path,
) -> None:
    clock, elsewhere = ManualClock(), Elsewhere()
    async with a_desk(tmp_path / "m", clock=clock, **SIZES) as desk:
        for number in range(4):
            await send(desk, number, DELAY="1")
        await send(desk, 9, DELAY="2")
    clock.advance_ms(10 * SECOND)
    folder = folder_of_the_slave(tmp_path / "m")
    elsewhere.takes = lambda message: message.body != b"2"
    async with a_slave(folder, clock, elsewhere) as slave:
        delayed = slave.feature(DelayedMessages)
        await delayed.deliver()
        await slave.settle()
        assert sorted(elsewhere.bodies) == numbers(0, 1, 9)
        assert (slave.desk.tables.delays.get(1), slave.desk.tables.delays.get(2)) == (2, 1)
    elsewhere.takes = lambda _message: True
    async with a_slave(folder, clock, elsewhere) as slave:  # What it knew is on its disk.
        delayed = slave.feature(DelayedMessages)
        await delayed.deliver()
        await slave.settle()
        assert sorted(elsewhere.bodies) == numbers(0, 1, 2, 3, 9)


async def test_who_acts_again_goes_on_where_the_master_was_meanwhile(tmp_path: Path) -> None:
    clock = ManualClock()
    async with a_desk(tmp_path / "m", clock=clock, **SIZES) as desk:
        for number in range(5):
            await send(desk, number, DELAY="1")
    clock.advance_ms(500)
    async with a_slave(folder_of_the_slave(tmp_path / "m"), clock) as slave:
        delayed = slave.feature(DelayedMessages)
        await delayed.deliver()
        slave.acts = False
        await delayed.deliver()
        slave.desk.tables.delays.set(1, 3)
        clock.advance_ms(500)
        await delayed.deliver()
        await slave.settle()
        assert slave.elsewhere.bodies == []
        slave.acts = True
        await delayed.deliver()
        await slave.settle()
        assert slave.elsewhere.bodies == numbers(3, 4)


async def test_what_waits_stays_in_the_log_while_nobody_knows_who_delivers(tmp_path: Path) -> None:
    clock, member = ManualClock(), {"acting_master": True}
    async with a_desk(tmp_path / "m", clock=clock, **SIZES) as desk:
        await send(desk, 0)
        first = desk.store.log.end
        await send(desk, 1, DELAY="1")
    clock.advance_ms(SECOND)
    async with a_desk(tmp_path / "m", clock=clock, broker=member, **SIZES) as desk:
        (delayed,) = (each for each in desk.made.inner if isinstance(each, DelayedMessages))
        await delayed.deliver()
        assert desk.tables.delays.get(1) == 0
        assert delayed.needed_from() == first


async def test_a_message_whose_topic_was_deleted_is_put_aside_elsewhere(tmp_path: Path) -> None:
    clock = ManualClock()
    async with a_desk(tmp_path / "m", clock=clock, **SIZES) as desk:
        await send(desk, 0, DELAY="1")
        await desk.delete(TOPIC)
        await send(desk, 1, DELAY="1", topic="Parts")
        desk.tables.topics.remove("Parts")  # As if the slave had not heard of it yet.
    clock.advance_ms(SECOND)
    async with a_slave(folder_of_the_slave(tmp_path / "m"), clock) as slave:
        await slave.feature(DelayedMessages).deliver()
        await slave.settle()
        assert [each.topic for each in slave.elsewhere.stored] == [names.UNDELIVERED_TOPIC.encode(), b"Parts"]
        assert not slave.desk.tables.is_awaited("")
        assert slave.desk.tables.topics.get("Parts") is None, "the slave has the topics that its master tells"


# Timers.


async def test_timers_are_fired_to_other_brokers_and_cancelled_ones_are_not(tmp_path: Path) -> None:
    clock = ManualClock()
    async with a_desk(tmp_path / "m", clock=clock, **SIZES) as desk:
        for number in range(100):
            await send(desk, number, TIMER_DELAY_SEC="5")
        await send(desk, 100, TIMER_DELAY_SEC="60")
    async with a_slave(folder_of_the_slave(tmp_path / "m"), clock) as slave:
        timers = slave.feature(Timers)
        clock.advance_ms(4 * SECOND)
        await timers.run()
        assert slave.elsewhere.bodies == []
        clock.advance_ms(2 * SECOND)
        await timers.run()
        assert slave.elsewhere.bodies == numbers(*range(100))
        assert slave.elsewhere.known() == AS_SENT
        assert timers.counts.total == 1
        assert at_home(slave.desk) == []
        await timers.run()
        assert len(slave.elsewhere.stored) == 100


async def test_a_cancelled_timer_is_not_sent(tmp_path: Path) -> None:
    clock = ManualClock()
    async with a_desk(tmp_path / "m", clock=clock, **SIZES) as desk:
        await send(desk, 0, TIMER_DELAY_SEC="5")
        await send(desk, 1, TIMER_DELAY_SEC="5")
        out_ms = str(clock.now_ms() + 5 * SECOND)
        (message,) = (each for each in desk.messages() if each.unique_key == "U0")
        known = {**message.properties, "TIMER_DEL_UNIQKEY": f"{TOPIC}+U0", "TIMER_DELIVER_MS": out_ms}
        desk.store.put(replace(copy_of(message), properties=encode_properties(known)), wait=False)
        await desk.run()
    async with a_slave(folder_of_the_slave(tmp_path / "m"), clock) as slave:
        clock.advance_ms(6 * SECOND)
        await slave.feature(Timers).run()
        assert slave.elsewhere.bodies == numbers(1)


async def test_a_timer_that_came_late_or_rolls_is_not_lost(tmp_path: Path) -> None:
    clock = ManualClock()
    async with a_desk(tmp_path / "m", clock=clock, timer_roll_slots=3600, **SIZES) as desk:
        await send(desk, 0, TIMER_DELAY_SEC=str(2 * 86_400))  # Further away than the wheel takes at once.
        await send(desk, 1, TIMER_DELAY_SEC="2")
    clock.advance_ms(30 * SECOND)  # Nobody has entered them yet.
    async with a_slave(folder_of_the_slave(tmp_path / "m"), clock) as slave:
        timers = slave.feature(Timers)
        timers.files.read_ms = clock.now_ms() // SECOND * SECOND
        await timers.run()
        clock.advance_ms(2 * SECOND)
        await timers.run()
        assert slave.elsewhere.bodies == numbers(1)
        for _ in range(60):
            clock.advance_ms(DAY_MS // 24)
            await timers.run()
        assert slave.elsewhere.bodies == numbers(1, 0)
        assert timers.counts.total == 0


async def test_a_slot_that_was_sent_in_part_goes_on_and_is_repeated_by_who_acts_later(
    tmp_path: Path,
) -> None:
    clock, elsewhere = ManualClock(), Elsewhere()
    async with a_desk(tmp_path / "m", clock=clock, **SIZES) as desk:
        for number in range(4):
            await send(desk, number, TIMER_DELAY_SEC="5")
    folder = folder_of_the_slave(tmp_path / "m")
    elsewhere.takes = lambda message: message.body != b"2"
    async with a_slave(folder, clock, elsewhere) as slave:
        timers = slave.feature(Timers)
        clock.advance_ms(6 * SECOND)

        async def stop() -> None:
            slave.acts = False

        elsewhere.each = stop
        await timers.run()
        assert elsewhere.bodies == numbers(0, 1)
        before_ms = timers.files.read_ms
        await timers.run()
        slave.acts, elsewhere.takes = True, lambda _message: True
        elsewhere.each = slave.settle
        await timers.run()
        assert elsewhere.bodies == numbers(0, 1, 0, 1, 2, 3)
        assert timers.files.read_ms > before_ms


async def told_by(desk: DeskBench) -> Progress:
    """What another member is told when it asks how far the timers are."""
    answer = await desk.router().answer(Nobody(), Command(code=RequestCode.GET_TIMER_CHECK_POINT))
    assert answer is not None and answer.code == 0
    return progress_of(bytes(answer.body or b""))


async def test_what_the_master_told_before_its_slave_acted_moves_nothing_back(tmp_path: Path) -> None:
    clock = ManualClock()
    async with a_desk(tmp_path / "m", clock=clock, **SIZES) as desk:
        for number, span in enumerate(("5", "5", "60")):
            await send(desk, number, TIMER_DELAY_SEC=span)
    async with a_slave(folder_of_the_slave(tmp_path / "m"), clock) as slave:
        timers = slave.feature(Timers)
        slave.acts = False
        timers.follow(Progress(timers.files.read_ms, 0, 2, 2, 3, 0, 41))
        await timers.run()
        assert timers.files.queue_offset == 2 and timers.counts.total == 0  # The master tells how many wait.
        slave.acts = True
        clock.advance_ms(10 * SECOND)
        await timers.run()
        assert slave.elsewhere.bodies == numbers(0, 1)
        slave.acts, read_ms = False, timers.files.read_ms
        await timers.run()
        told = await told_by(slave.desk)  # The next time of saving is not waited for.
        assert (timers.files.read_ms, told.read_ms) == (read_ms, read_ms)
        assert told.state_version == 3 and told.counter > 41, "RocketMQ's takes over what is newer"
        timers.follow(Progress(read_ms + SECOND, 0, 3, 3, 3, 0, 200))
        await timers.run()
        assert (await told_by(slave.desk))[4::2] == (3, 200)
        assert slave.elsewhere.bodies == numbers(0, 1)


async def master_after(
    folder: Path, clock: ManualClock, adopt: Callable[[Timers], None]
) -> tuple[list[bytes], int]:
    """What a master delivers when it is back, and how many timers wait then."""
    async with a_desk(folder, clock=clock, **SIZES) as desk:
        (timers,) = (each for each in desk.made.inner if isinstance(each, Timers))
        adopt(timers)
        await timers.run()
        await desk.run()
        return at_home(desk), timers.counts.total


async def test_a_master_that_returns_does_not_fire_what_its_slave_has_fired(tmp_path: Path) -> None:
    clock, master = ManualClock(), tmp_path / "m"
    async with a_desk(master, clock=clock, **SIZES) as desk:
        for number in range(3):
            await send(desk, number, TIMER_DELAY_SEC="5")
    slave_folder = folder_of_the_slave(master)
    async with a_desk(master, clock=clock, **SIZES) as desk:
        (timers,) = (each for each in desk.made.inner if isinstance(each, Timers))
        await send(desk, 3, TIMER_DELAY_SEC="5")  # The slave has never had it.
        await send(desk, 4, TIMER_DELAY_SEC="20")
        await timers.run()
    clock.advance_ms(10 * SECOND)
    async with a_slave(slave_folder, clock) as slave:
        timers = slave.feature(Timers)
        await timers.run()
        assert slave.elsewhere.bodies == numbers(0, 1, 2)
        await timers.save()
        told = timers.progress
    shown, waiting = await master_after(master, clock, lambda timers: timers.adopt(told))
    assert (shown, waiting) == (numbers(3), 1)
    clock.advance_ms(15 * SECOND)
    shown, waiting = await master_after(master, clock, lambda _timers: None)
    assert (shown, waiting) == (numbers(3, 4), 0)


async def test_a_master_that_is_further_than_its_slave_fires_as_ever(tmp_path: Path) -> None:
    clock, master = ManualClock(), tmp_path / "m"
    async with a_desk(master, clock=clock, **SIZES) as desk:
        (timers,) = (each for each in desk.made.inner if isinstance(each, Timers))
        await send(desk, 0, TIMER_DELAY_SEC="5")
        told = timers.progress._replace(queue_offset=9)
        clock.advance_ms(2 * SECOND)
        await timers.run()
    clock.advance_ms(10 * SECOND)
    shown, waiting = await master_after(master, clock, lambda timers: timers.adopt(told))
    assert (shown, waiting) == (numbers(0), 0)


# Transactions.


async def prepare(desk: DeskBench, number: int) -> None:
    await send(desk, number, TRAN_MSG="true", PGROUP="buyers")


async def test_open_transactions_are_sent_to_other_brokers_as_they_were_prepared(tmp_path: Path) -> None:
    clock, master = ManualClock(), tmp_path / "m"
    async with a_desk(master, clock=clock, **SIZES) as desk:
        (transactions,) = (each for each in desk.made.inner if isinstance(each, Transactions))
        for number in range(70):
            await prepare(desk, number)
        half = next(each for each in desk.messages() if each.unique_key == "U3")
        transactions.notice()
        transactions.commit(half)
        await desk.run()
    async with a_slave(folder_of_the_slave(master), clock) as slave:
        acting = slave.feature(Transactions)
        await acting.check()
        assert slave.elsewhere.bodies == numbers(*(n for n in range(70) if n != 3))
        sent, known = slave.elsewhere.stored[0], slave.elsewhere.known()
        assert (sent.topic, sent.sys_flag & 0xC) == (TOPIC.encode(), 0x4)
        assert (known["TRAN_MSG"], known["PGROUP"], known["UNIQ_KEY"]) == ("true", "buyers", "U0")
        assert "REAL_QID" not in known and "REAL_TOPIC" not in known
        await acting.check()
        assert len(slave.elsewhere.stored) == 69
        acting.save()
        done = slave.desk.tables.offsets.get(GROUP, names.TRANS_HALF_TOPIC, 0)
        assert done == 70
    async with a_desk(master, clock=clock, broker={"transaction_timeout_ms": 0}, **SIZES) as desk:
        (transactions,) = (each for each in desk.made.inner if isinstance(each, Transactions))
        assert len(transactions.ledger) == 69
        desk.tables.offsets.commit(GROUP, names.TRANS_HALF_TOPIC, 0, done)
        await prepare(desk, 70)
        await transactions.check()
        assert [half.key for half in transactions.ledger] == ["U70"]
        transactions.save()
        assert desk.tables.offsets.get(GROUP, names.TRANS_HALF_TOPIC, 0) == done


async def test_a_transaction_that_nobody_takes_stays_open(tmp_path: Path) -> None:
    clock, master, elsewhere = ManualClock(), tmp_path / "m", Elsewhere()
    async with a_desk(master, clock=clock, **SIZES) as desk:
        for number in range(4):
            await prepare(desk, number)
    elsewhere.takes = lambda message: message.body != b"2"
    async with a_slave(folder_of_the_slave(master), clock, elsewhere) as slave:
        acting = slave.feature(Transactions)
        await acting.check()
        acting.save()
        assert elsewhere.bodies == numbers(0, 1)
        assert slave.desk.tables.offsets.get(GROUP, names.TRANS_HALF_TOPIC, 0) == 2
        third = next(each for each in slave.desk.messages() if each.unique_key == "U2")
        assert acting.needed_from() == third.physical_offset
        slave.acts = False
        await acting.check()
        acting.save()
        assert acting.needed_from() == third.physical_offset
        slave.acts, elsewhere.takes = True, lambda _message: True
        await acting.check()
        assert elsewhere.bodies == numbers(0, 1, 2, 3)


async def test_a_slave_that_does_not_act_moves_no_offset(tmp_path: Path) -> None:
    clock, master = ManualClock(), tmp_path / "m"
    async with a_desk(master, clock=clock, **SIZES) as desk:
        await prepare(desk, 0)
    async with a_slave(folder_of_the_slave(master), clock) as slave:
        slave.acts = False
        quiet = slave.feature(Transactions)
        await quiet.check()
        quiet.save()
        assert len(quiet.ledger) == 0
        assert slave.desk.tables.offsets.get(GROUP, names.TRANS_HALF_TOPIC, 0) == -1
        assert slave.elsewhere.stored == []
