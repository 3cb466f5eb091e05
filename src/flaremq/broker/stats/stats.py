"""Statistics by topic and group, with RocketMQ's names and keys: what VIEW_BROKER_STATS_DATA shows.

    send, pull > [add] > item > (sampled every 10 s, 10 min, 1 h) > minute, hour, day

An item only adds up. The figure of a minute is the difference between two samples, that of an hour or a day
the difference between a sample and now. So a call on the hot path is one lookup and a few additions, and
does not read the clock.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Iterable, Iterator
from enum import Enum, StrEnum
from functools import partial
from itertools import islice
from typing import Final

from flaremq.base.clock import Clock
from flaremq.base.live import Live
from flaremq.base.units import MINUTE_MS
from flaremq.broker.features import Feature
from flaremq.broker.settings import BrokerSettings
from flaremq.broker.stats.rates import Day, PutTimes, Rates
from flaremq.broker.tasks import HOUR_S, MINUTE_S, Task, until_midnight_s
from flaremq.model.topic import is_system
from flaremq.protocol.bodies.stats import BrokerStatsData, BrokerStatsItem

_CHUNK: Final = 1000  # Items sampled in one turn of the event loop.
_IDLE_MIN_MIN: Final = 10  # An idle time of this or less is replaced by half an hour, as in Java.
_IDLE_SHORT_MIN: Final = 30


class Name(StrEnum):
    """Names of statistics. A key is a topic, topic@group or the cluster.

    RocketMQ also counts single queues (QUEUE_PUT_NUMS ..., and the queue in the key of a latency). An item
    takes 1.7 KB and stays, so a few thousand queues and groups would cost more than the broker itself.
    """

    TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"
    TOPIC_PUT_SIZE = "TOPIC_PUT_SIZE"
    TOPIC_PUT_LATENCY = "TOPIC_PUT_LATENCY"
    GROUP_GET_NUMS = "GROUP_GET_NUMS"
    GROUP_GET_SIZE = "GROUP_GET_SIZE"
    GROUP_GET_LATENCY = "GROUP_GET_LATENCY"
    GROUP_GET_FROM_DISK_NUMS = "GROUP_GET_FROM_DISK_NUMS"
    GROUP_GET_FROM_DISK_SIZE = "GROUP_GET_FROM_DISK_SIZE"
    GROUP_ACK_NUMS = "GROUP_ACK_NUMS"
    GROUP_CK_NUMS = "GROUP_CK_NUMS"
    SNDBCK_PUT_NUMS = "SNDBCK_PUT_NUMS"
    SNDBCK2DLQ_TIMES = "SNDBCK2DLQ_TIMES"
    DLQ_PUT_NUMS = "DLQ_PUT_NUMS"
    BROKER_PUT_NUMS = "BROKER_PUT_NUMS"
    BROKER_GET_NUMS = "BROKER_GET_NUMS"
    BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC = "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC"
    BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC = "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC"
    BROKER_GET_FROM_DISK_NUMS = "BROKER_GET_FROM_DISK_NUMS"
    BROKER_GET_FROM_DISK_SIZE = "BROKER_GET_FROM_DISK_SIZE"
    BROKER_ACK_NUMS = "BROKER_ACK_NUMS"
    BROKER_CK_NUMS = "BROKER_CK_NUMS"


_OF_BROKER: Final = frozenset(name for name in Name if name.startswith("BROKER_"))


class SampleSpan(Enum):
    """A reported span: the time between two samples, and how many samples cover it."""

    MINUTE = (0, 10_000, 7)
    HOUR = (1, 600_000, 7)
    DAY = (2, 3_600_000, 25)

    def __init__(self, index: int, step_ms: int, samples_max: int) -> None:
        self.index = index
        self.step_ms = step_ms
        self.samples_max = samples_max


class Item:
    """A sum, how many times it was added to, and its samples."""

    __slots__ = ("changed_ms", "samples", "seen", "times", "value")

    def __init__(self, now_ms: int) -> None:
        self.value: float = 0
        self.times = 0
        self.seen = 0  # `times` at the last sample of the minute.
        self.changed_ms = now_ms
        self.samples: tuple[array[int], ...] = tuple(array("q") for _ in SampleSpan)
        """For each span: time, times, value, repeated."""

    def add(self, value: float, times: int = 1) -> None:
        self.value += value
        self.times += times

    def sample(self, span: SampleSpan, now_ms: int) -> None:
        """Take a sample. The first gets a made-up one before it, as if all had come within one step."""
        samples = self.samples[span.index]
        if not samples:
            samples.extend((now_ms - span.step_ms, 0, 0))
        samples.extend((now_ms, self.times, int(self.value)))
        if len(samples) > 3 * span.samples_max:
            del samples[:3]
        if span is SampleSpan.MINUTE and self.times != self.seen:
            self.seen, self.changed_ms = self.times, now_ms

    def within(self, span: SampleSpan, now_ms: int) -> BrokerStatsItem:
        """The figures of a span. A minute is measured between samples, as rates over less than 10 s would
        jump. An hour and a day last until now: from samples alone, a day would miss its first hour."""
        samples = self.samples[span.index]
        if span is not SampleSpan.MINUTE:
            begin, end = self._begin(span, now_ms), array("q", (now_ms, self.times, int(self.value)))
        elif samples:
            begin, end = samples[:3], samples[-3:]
        else:
            return BrokerStatsItem()
        elapsed_ms, times, total = (after - before for before, after in zip(begin, end, strict=True))
        return BrokerStatsItem(
            sum=total,
            tps=total * 1000 / elapsed_ms if elapsed_ms > 0 else 0.0,
            avgpt=total / times if times > 0 else 0.0,
        )

    def _begin(self, span: SampleSpan, now_ms: int) -> array[int]:
        """The oldest sample within the span; without any, as if all had come within one step."""
        samples = self.samples[span.index]
        if not samples:
            return array("q", (now_ms - span.step_ms, 0, 0))
        oldest_ms = now_ms - span.step_ms * (span.samples_max - 1)
        at = next((at for at in range(0, len(samples), 3) if samples[at] >= oldest_ms), len(samples) - 3)
        return samples[at : at + 3]


class Stats(Feature):
    """All statistics of a broker. Used in the event loop only."""

    def __init__(self, settings: Live[BrokerSettings], clock: Clock) -> None:
        self._live = settings
        self._clock = clock
        self.boot_ms = clock.now_ms()
        self.rates = Rates(self._now_ms())
        self.put_times = PutTimes()
        self.puts_of_day, self.gets_of_day = Day(), Day()
        self.longest_get_ms = 0
        self._tables: dict[Name, dict[str, Item]] = {name: {} for name in Name}
        cluster = settings.now.cluster_name
        self._broker = {name: self._item(name, cluster) for name in Name if name in _OF_BROKER}
        self._all_puts = self._broker[Name.BROKER_PUT_NUMS]
        self._all_gets = self._broker[Name.BROKER_GET_NUMS]
        self._user_puts = self._broker[Name.BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC]
        self._user_gets = self._broker[Name.BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC]
        self._put_latencies = self._tables[Name.TOPIC_PUT_LATENCY]
        # What the hot path needs for a topic, or for a group and topic, in one lookup.
        self._puts: dict[str, tuple[Item, Item, Item | None]] = {}
        self._gets: dict[tuple[str, str], tuple[Item, Item, Item, Item | None]] = {}

    # Called on the hot path.

    def put(self, topic: str, count: int, size: int) -> None:
        """`count` messages of `size` bytes in total were stored."""
        found = self._puts.get(topic)
        if found is None:
            found = self._first_put(topic)
        nums, sizes, user = found
        nums.value += count
        nums.times += count
        sizes.value += size
        sizes.times += count
        self._all_puts.value += count
        if user is not None:
            user.value += count
        rates = self.rates
        rates.put += count
        rates.put_size += size

    def put_failed(self, count: int) -> None:
        """Messages were refused, could not be stored, or are stored but not known to be on the disk."""
        self.rates.put_failed += count

    def put_repeated(self, count: int) -> None:
        """Messages were not stored, because an earlier send had stored them (PRODUCER_SEQ)."""
        self.rates.put_repeated += count

    def put_took(self, topic: str, elapsed_ms: float, count: int) -> None:
        """How long these messages took from the append to their answer, whatever the answer. All messages
        of a turn have the same time, so the key is the topic without a queue."""
        self.put_times.add(elapsed_ms, count)
        item = self._put_latencies.get(topic)
        if item is None:
            item = self._item(Name.TOPIC_PUT_LATENCY, topic)
        item.value += elapsed_ms * count
        item.times += count

    def got(self, group: str, topic: str, count: int, size: int, latency_ms: float = 0.0) -> None:
        """One read found `count` messages, sent to a consumer `latency_ms` after the read began."""
        found = self._gets.get((group, topic))
        if found is None:
            found = self._first_get(group, topic)
        nums, sizes, latencies, user = found
        nums.value += count
        nums.times += 1
        sizes.value += size
        sizes.times += 1
        latencies.value += latency_ms
        latencies.times += 1
        self._all_gets.value += count
        if user is not None:
            user.value += count
        rates = self.rates
        rates.found += 1
        rates.transferred += count

    def missed(self) -> None:
        """One read found nothing."""
        self.rates.missed += 1

    def got_took(self, elapsed_ms: float) -> None:
        """How long a read took."""
        if elapsed_ms > self.longest_get_ms:
            self.longest_get_ms = int(elapsed_ms)

    def sent_back(self, group: str, topic: str) -> None:
        """A consumer could not process a message and sent it back."""
        self._item(Name.SNDBCK_PUT_NUMS, f"{topic}@{group}").add(1)

    # Less frequent events.

    def sent_to_dlq(self, group: str, topic: str, count: int = 1) -> None:
        """Messages that used up their retries."""
        self._item(Name.DLQ_PUT_NUMS, f"{topic}@{group}").add(count)
        self._item(Name.SNDBCK2DLQ_TIMES, f"{topic}@{group}").add(count)

    def got_from_disk(self, group: str, topic: str, count: int, size: int) -> None:
        """A read so far back that it most likely came from the disk."""
        key = f"{topic}@{group}"
        self._item(Name.GROUP_GET_FROM_DISK_NUMS, key).add(count)
        self._item(Name.GROUP_GET_FROM_DISK_SIZE, key).add(size)
        self._broker[Name.BROKER_GET_FROM_DISK_NUMS].add(count)
        self._broker[Name.BROKER_GET_FROM_DISK_SIZE].add(size)

    def acked(self, group: str, topic: str, count: int) -> None:
        self._item(Name.GROUP_ACK_NUMS, f"{topic}@{group}").add(count)
        self._broker[Name.BROKER_ACK_NUMS].add(count)

    # Reading.

    def view(self, name: str, key: str) -> BrokerStatsData | None:
        """The last minute, hour and day of an item; None if there is no such item."""
        if name not in Name.__members__:
            return None
        item = self._tables[Name(name)].get(key)
        if item is None:
            return None
        now_ms = self._now_ms()
        return BrokerStatsData(
            stats_minute=item.within(SampleSpan.MINUTE, now_ms),
            stats_hour=item.within(SampleSpan.HOUR, now_ms),
            stats_day=item.within(SampleSpan.DAY, now_ms),
        )

    def put_tps(self, topic: str) -> float:
        """Messages per second of a topic, over the last minute."""
        item = self._tables[Name.TOPIC_PUT_NUMS].get(topic)
        return item.within(SampleSpan.MINUTE, self._now_ms()).tps if item else 0.0

    def get_tps(self, group: str, topic: str) -> float:
        item = self._tables[Name.GROUP_GET_NUMS].get(f"{topic}@{group}")
        return item.within(SampleSpan.MINUTE, self._now_ms()).tps if item else 0.0

    def totals(self, name: Name) -> Iterator[tuple[str, int]]:
        """Key and sum since the start, for every item of a name."""
        return ((key, int(item.value)) for key, item in self._tables[name].items())

    @property
    def put_total(self) -> int:
        """Messages stored since the start, without those of system topics."""
        return int(self._user_puts.value)

    @property
    def get_total(self) -> int:
        return int(self._user_gets.value)

    # Called by the tasks.

    def tasks(self) -> Iterable[Task]:
        """Periods are Java's where Java has one."""
        clock = self._clock
        yield Task("sample-second", 1, 1, self.sample_second)
        yield Task("sample-minute", 0, 10, partial(self.sample, SampleSpan.MINUTE))
        yield Task("sample-hour", 0, 10 * MINUTE_S, partial(self.sample, SampleSpan.HOUR))
        yield Task("sample-day", 0, HOUR_S, partial(self.sample, SampleSpan.DAY))
        yield Task("turn-put-times", MINUTE_S, MINUTE_S, self.put_times.turn)
        yield Task("midnight", until_midnight_s(clock), lambda: until_midnight_s(clock), self.midnight)
        yield Task("drop-idle-statistics", 10 * MINUTE_S, 10 * MINUTE_S, self.drop_idle)

    async def sample(self, span: SampleSpan) -> None:
        """Take a sample of every item, a chunk per turn: there may be a hundred thousand of them."""
        items = iter([item for table in self._tables.values() for item in table.values()])
        while chunk := list(islice(items, _CHUNK)):
            now_ms = self._now_ms()
            for item in chunk:
                item.sample(span, now_ms)
            await asyncio.sleep(0)

    def sample_second(self) -> None:
        self.rates.sample(self._now_ms())

    def midnight(self) -> None:
        self.puts_of_day.midnight(self.put_total)
        self.gets_of_day.midnight(self.get_total)

    def drop_idle(self) -> int:
        """Drop items that have not changed for long, and return how many."""
        limit_min = self._live.now.statistics_idle_max_min
        if limit_min < 0:
            return 0
        limit_min = _IDLE_SHORT_MIN if limit_min <= _IDLE_MIN_MIN else limit_min
        before_ms = self._now_ms() - limit_min * MINUTE_MS
        return self._drop(lambda name, _key, changed_ms: name not in _OF_BROKER and changed_ms < before_ms)

    def topic_deleted(self, topic: str) -> None:
        if self._live.now.delete_unused_statistics:
            self._drop(lambda name, key, _changed_ms: _topic_of(name, key) == topic)

    def group_deleted(self, group: str) -> None:
        if self._live.now.delete_unused_statistics:
            self._drop(lambda name, key, _changed_ms: _group_of(name, key) == group)

    def _drop(self, wanted: Callable[[Name, str, int], bool]) -> int:
        gone = [
            (name, key)
            for name, table in self._tables.items()
            for key, item in table.items()
            if wanted(name, key, self._changed_ms(item))
        ]
        for name, key in gone:
            del self._tables[name][key]
        if gone:
            self._puts.clear()  # They hold items of these tables, and are filled again on demand.
            self._gets.clear()
        return len(gone)

    def _changed_ms(self, item: Item) -> int:
        return self._now_ms() if item.times != item.seen else item.changed_ms

    def _now_ms(self) -> int:
        """Monotonic: a rate over a time that stepped back would mean nothing."""
        return round(self._clock.monotonic_s() * 1000)

    def _item(self, name: Name, key: str) -> Item:
        table = self._tables[name]
        item = table.get(key)
        if item is None:
            item = table[key] = Item(self._now_ms())
        return item

    def _first_put(self, topic: str) -> tuple[Item, Item, Item | None]:
        nums, sizes = self._item(Name.TOPIC_PUT_NUMS, topic), self._item(Name.TOPIC_PUT_SIZE, topic)
        found = self._puts[topic] = nums, sizes, None if is_system(topic) else self._user_puts
        return found

    def _first_get(self, group: str, topic: str) -> tuple[Item, Item, Item, Item | None]:
        names = (Name.GROUP_GET_NUMS, Name.GROUP_GET_SIZE, Name.GROUP_GET_LATENCY)
        nums, sizes, latencies = (self._item(name, f"{topic}@{group}") for name in names)
        user = None if is_system(topic) else self._user_gets
        found = self._gets[group, topic] = nums, sizes, latencies, user
        return found


def _topic_of(name: Name, key: str) -> str | None:
    """The topic of a key. Neither topics nor groups may contain an @."""
    return None if name in _OF_BROKER else key.split("@")[0]


def _group_of(name: Name, key: str) -> str | None:
    _, _, group = key.partition("@")
    return group if group and name.startswith(("GROUP_", "SNDBCK", "DLQ_")) else None
