"""The power fails while messages wait: none is lost, none comes early, none of a transaction comes twice."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Final

import pytest
from tests.broker.desks import PORT, DeskBench, Line
from tests.protocol.samples import a_send
from tests.store.lives import end_of

from flaremq.base.units import SECOND_MS
from flaremq.broker.app import Broker
from flaremq.broker.config import BrokerConfig
from flaremq.broker.delay.levels import DelayedMessages
from flaremq.broker.delay.timers import Timers
from flaremq.broker.settings import BrokerServerSettings, BrokerSettings, FamilySettings
from flaremq.broker.transactions.transactions import Transactions
from flaremq.model.message import StoredMessage
from flaremq.model.record import decode_many
from flaremq.model.topic import GroupConfig, TopicConfig
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command
from flaremq.store.settings import FlushDisk
from flaremq.testing.clock import ManualClock
from flaremq.testing.fakes.builders import small_settings
from flaremq.testing.fakes.disk import PowerLossDisk

TOPIC, HALF_TOPIC, PRODUCERS = "Orders", "RMQ_SYS_TRANS_HALF_TOPIC", "buyers"
READERS = "readers"
RETRIES = f"%RETRY%{READERS}"
LEVELS_S: Final = (1, 5, 10)
QUICK: Final = [1]


class BrokerLives:
    """A broker through several lives. What it acknowledged is noted, and looked for in each."""

    def __init__(self, folder: Path, seed: int, flush: FlushDisk) -> None:
        self.random = Random(seed)
        self.clock = ManualClock()
        self._folder = folder
        self._flush = flush
        self._births = self._named = 0
        self._disk = PowerLossDisk(strict_names=seed % 2 == 1)
        self.due_ms: dict[str, int] = {}
        """For each message, the earliest moment at which it may be seen."""
        self.promised: set[str] = set()
        """On the disk: never to be lost any more."""
        self._acknowledged: set[str] = set()
        self.halves: dict[str, StoredMessage] = {}
        self.decided: dict[str, bool] = {}
        """Transactions for which an end was sent, and whether it was a commit."""
        self.given_back: Counter[str] = Counter()
        """How often consumers have sent a message back."""
        self.crashes = 0
        self.desk: DeskBench

    async def born(self) -> None:
        root = self._folder / f"life{self._births}"
        store = small_settings(
            root, flush_disk=self._flush, append_crc=True, force_record_crc=True, timer_enabled=True,
            commitlog_file_size=1 << 16, delay_levels="1s 5s 10s", timer_precision_ms=2_000,
            timer_roll_slots=4,
        )  # fmt: skip
        config = BrokerConfig(
            broker=BrokerSettings(ip1="127.0.0.1", ip2="127.0.0.1", broker_name="broker-a"),
            server=BrokerServerSettings(listen_port=PORT),
            store=store,
            families=FamilySettings(),
        )
        broker = Broker(config, self.clock, rng=self.random, disk=self._disk)
        made = broker.compose()
        for feature in made.inner:
            await feature.start()
        self.desk = DeskBench(broker, made, self.clock)
        self.desk.tables.topics.put(TopicConfig(TOPIC, 1, 1))
        (self.levels,) = (each for each in made.inner if isinstance(each, DelayedMessages))
        (self.timers,) = (each for each in made.inner if isinstance(each, Timers))
        (self.transactions,) = (each for each in made.inner if isinstance(each, Transactions))
        self.desk.tables.subscriptions.put(GroupConfig(READERS, retry_queue_nums=1))
        noted = self.desk.tables.offsets.get(READERS, TOPIC, 0)
        assert noted <= self.desk.store.max_offset(TOPIC.encode(), 0), "a group would skip what comes next"

    async def dies(self) -> None:
        """The power fails now. Whatever the old broker still does, it does to no folder of the next."""
        self.crashes += 1
        root = self._folder / f"life{self._births}"
        self._births += 1
        with self._disk._lock:
            self._disk.lose_power(self.random.randrange(1 << 30))
            root.rename(self._folder / f"life{self._births}")
        self._acknowledged &= self.promised
        end_of(self.desk.store)
        self.desk.broker._offload.close()
        self.desk.acks.close()
        shutil.rmtree(root, ignore_errors=True)
        await self.born()

    # What happens.

    async def live(self, events: int) -> None:
        happenings: list[Callable[[], Awaitable[None]]] = [
            *[self.send_by_level] * 4, *[self.send_by_timer] * 4, *[self.prepare] * 4, *[self.end] * 4,
            *[self.time_passes] * 4, *[self.consume] * 2, *[self.give_back] * 2, *[self.save] * 2, self.dies,
        ]  # fmt: skip
        for _ in range(events):
            await self.random.choice(happenings)()
            self.check()

    async def _ask(self, *requests: Command) -> list[Command]:
        line = Line()
        self.desk.deliver(line, *requests)
        await self.desk.run()
        async with asyncio.timeout(60):
            await self.desk.acks.drain()
        answers = line.read()
        for command in line.commands:  # What the lanes have left.
            answer = await self.desk.router().answer(_At(line), command)
            answers += [] if answer is None else [answer]
        return answers

    def _promise(self, name: str) -> None:
        self._acknowledged.add(name)
        if self._flush is FlushDisk.SYNC_FLUSH:
            self.promised.add(name)

    async def _send(self, due_ms: int, **properties: object) -> str:
        self._named += 1
        name = f"m{self._named}"
        text = "".join(f"{key}\x01{value}\x02" for key, value in {"UNIQ_KEY": name, **properties}.items())
        self.due_ms[name] = due_ms
        request = a_send(b=TOPIC, e="0", i=text)
        (answer,) = await self._ask(Command(code=request.code, ext_fields=request.fields, body=name.encode()))
        assert answer.code == ResponseCode.SUCCESS
        return name

    async def send_by_level(self) -> None:
        level = self.random.randrange(3)
        self._promise(await self._send(self.clock.now_ms() + LEVELS_S[level] * SECOND_MS, DELAY=level + 1))

    async def send_by_timer(self) -> None:
        moment_ms = self.clock.now_ms() + self.random.randrange(1, 30_000)
        self._promise(await self._send(moment_ms, TIMER_DELIVER_MS=moment_ms))

    async def prepare(self) -> None:
        name = await self._send(0, TRAN_MSG="true", PGROUP=PRODUCERS)
        (self.halves[name],) = (each for each in self.of(HALF_TOPIC) if each.unique_key == name)

    async def end(self) -> None:
        """A new decision, or an old one again: a producer that got no answer asks once more."""
        left = {each.unique_key for each in self.of(HALF_TOPIC)}  # A crash may have taken some.
        names = sorted(name for name in self.halves if name in left)
        if not names:
            return
        name = self.random.choice(names)
        commits = self.decided.setdefault(name, self.random.random() < 0.7)
        half = self.halves[name]
        fields = {
            "producerGroup": PRODUCERS,
            "tranStateTableOffset": str(half.queue_offset),
            "commitLogOffset": str(half.physical_offset),
            "commitOrRollback": "8" if commits else "12",
            "msgId": name,
        }
        request = Command(code=RequestCode.END_TRANSACTION, opaque=5, ext_fields=fields)
        (answer,) = await self._ask(request)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        if commits:
            self._promise(name)

    async def consume(self) -> None:
        """A group commits how far it has come: as far as it can see."""
        seen = self.desk.store.max_offset(TOPIC.encode(), 0)
        self.desk.tables.offsets.commit(READERS, TOPIC, 0, seen)

    async def give_back(self) -> None:
        """A consumer cannot handle a message: it is to come again, later."""
        seen = self.of(TOPIC)
        if not seen:
            return
        message, level = self.random.choice(seen), self.random.randrange(3)
        fields = {
            "offset": str(message.physical_offset),
            "group": READERS,
            "delayLevel": str(level + 1),
            "originMsgId": message.message_id,
            "originTopic": TOPIC,
        }
        (answer,) = await self._ask(
            Command(code=RequestCode.CONSUMER_SEND_MSG_BACK, opaque=6, ext_fields=fields)
        )
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        name = _again(message)
        due_ms = self.clock.now_ms() + LEVELS_S[level] * SECOND_MS
        self.due_ms[name] = min(due_ms, self.due_ms.get(name, due_ms))
        self.given_back[name] += 1
        self._promise(name)

    async def time_passes(self) -> None:
        self.clock.advance_ms(self.random.choice([100, 900, 1_000, 4_000]))
        await self.levels.deliver()
        await self.timers.run()
        await self.desk.run()

    async def save(self) -> None:
        """What periodic work does."""
        if self.random.random() < 0.7:
            self.desk.store.workers.log_flusher.flush(0)
            self.promised |= self._acknowledged
        await self.levels.save()
        await self.timers.save()
        self.transactions.save()
        await self.desk.tables.offsets.save()

    # What must be so.

    def of(self, topic: str) -> list[StoredMessage]:
        log = self.desk.store.log
        view = log.slice(log.begin, log.readable_end - log.begin)
        return [each for each in decode_many(bytes(view or b"")) if each.topic == topic]

    def seen(self) -> Counter[str]:
        first = Counter(each.body.decode() for each in self.of(TOPIC))
        return first + Counter(_again(each) for each in self.of(RETRIES))

    def check(self) -> None:
        for name in self.seen():
            assert self.due_ms[name] <= self.clock.now_ms(), f"{name} is early"
            if name in self.halves:
                assert self.decided.get(name), f"{name} was not committed"

    async def check_all(self) -> None:
        """All that was promised has come in the end; what belongs to a transaction only once."""
        for _ in range(40):
            self.clock.advance_ms(SECOND_MS)
            await self.levels.deliver()
            await self.timers.run()
            self.desk.store.workers.log_flusher.flush(0)  # What rolls is seen then, under SYNC_FLUSH.
            await self.desk.run()
        self.check()
        seen = self.seen()
        assert self.promised <= seen.keys()
        for name, count in seen.items():
            times = 1 if name in self.halves else (self.given_back[name] or 1) * (1 + self.crashes)
            assert count <= times, f"{name} came {count} times"

    async def ends(self) -> None:
        for feature in reversed(self.desk.made.inner):
            await feature.stop()


def _again(message: StoredMessage) -> str:
    """The name of a message that is to come again."""
    return f"{message.body.decode()} again"


class _At:
    is_open = True

    def __init__(self, line: Line) -> None:
        self.address = line.address

    def send(self, command: Command) -> None: ...

    def close(self) -> None: ...

    async def call(self, request: Command, timeout_s: float) -> Command:
        raise AssertionError((request, timeout_s))


async def run(folder: Path, seed: int, events: int, flush: FlushDisk) -> None:
    lives = BrokerLives(folder, seed, flush)
    folder.mkdir(parents=True, exist_ok=True)
    await lives.born()
    try:
        await lives.live(events)
        await lives.dies()
        await lives.check_all()
    finally:
        await lives.ends()


@pytest.mark.parametrize("seed", QUICK)
@pytest.mark.parametrize("flush", FlushDisk)
async def test_what_waits_survives_the_loss_of_power(tmp_path: Path, seed: int, flush: FlushDisk) -> None:
    await run(tmp_path, seed, 40, flush)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("flush", FlushDisk)
@pytest.mark.parametrize("ten", range(1, 5))
async def test_what_waits_survives_the_loss_of_power_in_many_histories(
    tmp_path: Path, ten: int, flush: FlushDisk
) -> None:
    for seed in range(10 * ten, 10 * ten + 10):
        await run(tmp_path / str(seed), seed, 60, flush)
        shutil.rmtree(tmp_path / str(seed))
