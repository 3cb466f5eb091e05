"""The table of GET_BROKER_RUNTIME_INFO: what a broker is doing, for tools and exporters.

Every value is text and a real figure. Values of a part that this broker does not have are 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from flaremq.base.clock import Clock
from flaremq.base.live import Live
from flaremq.base.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from flaremq.broker.settings import BrokerSettings
from flaremq.broker.stats.rates import WINDOWS_S, Rate
from flaremq.broker.stats.stats import Stats
from flaremq.protocol.codes import CURRENT_VERSION
from flaremq.protocol.fastjson import java_double
from flaremq.store import status
from flaremq.store.status import Disks
from flaremq.store.store import MessageStore

FAMILIES: Final = ("send", "pull", "litePull", "query", "ack")
"""The families whose backlog is reported, by the names that their keys begin with."""
END_TRANSACTION: Final = "endTransaction"

_NO_POOL: Final = (1 << 31) - 1  # Java's answer if there is no pool that could run out of buffers.
_UNITS: Final = "KMGTPE"


class Backlog(Protocol):
    """The backlog of a family: its limit, how many requests wait, and how long the first has waited."""

    @property
    def limit(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    def head_wait_ms(self) -> int: ...


class Runtime:
    def __init__(
        self,
        settings: Live[BrokerSettings],
        store: MessageStore,
        stats: Stats,
        families: Mapping[str, Backlog],
        clock: Clock,
        parts: Sequence[Callable[[], Mapping[str, str]]] = (),
    ) -> None:
        """`families` has the names in FAMILIES and END_TRANSACTION as keys; missing ones are idle. Each of
        `parts` adds the figures of a part of the broker."""
        self._live = settings
        self._store = store
        self._stats = stats
        self._families = families
        self._clock = clock
        self._parts = tuple(parts)

    def measured(self) -> tuple[Disks, int]:
        """The values that need the disk: its usage, and the age of the oldest message. Call in a thread."""
        return status.disks(self._store), status.earliest_ms(self._store)

    def table(self, disks: Disks, earliest_ms: int) -> dict[str, str]:
        return {
            **self._of_puts(),
            **self._of_gets(),
            **self._of_days(),
            **self._of_store(disks, earliest_ms),
            **self._of_families(),
            **self._of_broker(),
            **{name: value for part in self._parts for name, value in part().items()},
        }

    def _of_broker(self) -> dict[str, str]:
        stats = self._stats
        return {
            "brokerActive": _boolean(self._live.now.is_master),
            "brokerVersionDesc": CURRENT_VERSION.name,
            "bootTimestamp": str(stats.boot_ms),
            "runtime": _span(self._clock.now_ms() - stats.boot_ms),
            "startAcceptSendRequestTimeStamp": str(self._live.now.accept_sends_from_ms),
            "timerReadBehind": "0",
            "timerOffsetBehind": "0",
            "timerCongestNum": "0",
            "timerEnqueueTps": "0.0",
            "timerDequeueTps": "0.0",
        }

    def _of_puts(self) -> dict[str, str]:
        rates, times = self._stats.rates, self._stats.put_times
        return {
            "putTps": self._tps(Rate.PUT),
            "putMessageTimesTotal": str(rates.put),
            "putMessageFailedTimes": str(rates.put_failed),
            "putMessageRepeatedTimes": str(rates.put_repeated),
            "putMessageSizeTotal": str(rates.put_size),
            "putMessageAverageSize": java_double(rates.put_size / max(1, rates.put)),
            "putMessageEntireTimeMax": str(times.longest_ms),
            "putMessageDistributeTime": times.spread(),
            "putLatency99": f"{times.percentile_ms(0.99):.2f}",
            "putLatency999": f"{times.percentile_ms(0.999):.2f}",
        }

    def _of_gets(self) -> dict[str, str]:
        rates = self._stats.rates
        both = (
            rates.per_second(Rate.FOUND, window_s) + rates.per_second(Rate.MISSED, window_s)
            for window_s in WINDOWS_S
        )
        transferred = self._tps(Rate.TRANSFERRED)
        return {
            "getFoundTps": self._tps(Rate.FOUND),
            "getMissTps": self._tps(Rate.MISSED),
            "getTotalTps": " ".join(map(java_double, both)),
            "getTransferredTps": transferred,
            "getTransferedTps": transferred,  # Its name up to version 4.
            "getMessageEntireTimeMax": str(self._stats.longest_get_ms),
        }

    def _tps(self, rate: Rate) -> str:
        rates = self._stats.rates
        return " ".join(java_double(rates.per_second(rate, window_s)) for window_s in WINDOWS_S)

    def _of_days(self) -> dict[str, str]:
        stats, table = self._stats, {}
        for kind, day, now in (
            ("Put", stats.puts_of_day, stats.put_total),
            ("Get", stats.gets_of_day, stats.get_total),
        ):
            table[f"msg{kind}TotalYesterdayMorning"] = str(day.yesterday_morning)
            table[f"msg{kind}TotalTodayMorning"] = str(day.this_morning)
            table[f"msg{kind}TotalTodayNow"] = str(now)
        return table

    def _of_store(self, disks: Disks, earliest_ms: int) -> dict[str, str]:
        store, free = self._store, status.free_buffers(self._store)
        table = {
            "commitLogDiskRatio": java_double(disks.log_ratio),
            "consumeQueueDiskRatio": java_double(disks.queue_ratio),
            "commitLogMinOffset": str(store.log.begin),
            "commitLogMaxOffset": str(store.log.readable_end),
            "commitLogDirCapacity": f"Total : {_size(disks.total)}, Free : {_size(disks.free)}.",
            "dispatchBehindBytes": str(store.dispatcher.behind),
            "dispatchMaxBuffer": "0",  # As in current Java: there is no buffer before dispatch.
            "pageCacheLockTimeMills": str(store.flags.append_stuck_ms()),
            "earliestMessageTimeStamp": str(earliest_ms),
            "remainTransientStoreBufferNumbs": str(_NO_POOL if free is None else free),
            "remainHowManyDataToFlush": _size(status.flush_behind(store)),
        }
        degraded = store.flags.degraded
        if degraded:
            table["degraded"] = degraded
        for folder, ratio in disks.log_ratios.items():
            table[f"commitLogDiskRatio_{folder}"] = java_double(ratio)
        if free is not None:
            table["remainHowManyDataToCommit"] = _size(status.commit_behind(store))
        return table

    def _of_families(self) -> dict[str, str]:
        table = {}
        for name in FAMILIES:
            family = self._families.get(name)
            begin = f"{name}ThreadPoolQueue"
            table[f"{begin}Size"] = str(family.waiting if family else 0)
            table[f"{begin}Capacity"] = str(family.limit if family else 0)
            table[f"{begin}HeadWaitTimeMills"] = str(family.head_wait_ms() if family else 0)
        ending = self._families.get(END_TRANSACTION)
        table["EndTransactionQueueSize"] = str(ending.waiting if ending else 0)
        table["EndTransactionThreadPoolQueueCapacity"] = str(ending.limit if ending else 0)
        return table


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _span(elapsed_ms: int) -> str:
    elapsed_ms = max(0, elapsed_ms)
    days, hours = elapsed_ms // DAY_MS, elapsed_ms % DAY_MS // HOUR_MS
    minutes, seconds = elapsed_ms % HOUR_MS // MINUTE_MS, elapsed_ms % MINUTE_MS // SECOND_MS
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _size(count: int) -> str:
    """A number of bytes in readable form, for example `1.5 GiB`."""
    if count < 1024:
        return f"{count} B"
    steps = min(len(_UNITS), (count.bit_length() - 1) // 10)
    return f"{count / 1024**steps:.1f} {_UNITS[steps - 1]}iB"
