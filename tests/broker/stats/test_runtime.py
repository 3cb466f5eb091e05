"""The table of figures that tools read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flaremq.base.live import Live
from flaremq.broker.settings import BrokerSettings
from flaremq.broker.stats.runtime import Runtime
from flaremq.broker.stats.stats import Stats
from flaremq.store.store import MessageStore
from flaremq.testing.clock import ManualClock
from flaremq.testing.fakes.builders import NOW_MS, a_message, small_settings

EVERY_KEY = [
    "brokerVersionDesc",
    "brokerActive",
    "bootTimestamp",
    "runtime",
    "putTps",
    "getFoundTps",
    "getMissTps",
    "getTotalTps",
    "getTransferredTps",
    "getTransferedTps",
    "commitLogDiskRatio",
    "consumeQueueDiskRatio",
    "commitLogMinOffset",
    "commitLogMaxOffset",
    "msgPutTotalYesterdayMorning",
    "msgPutTotalTodayMorning",
    "msgPutTotalTodayNow",
    "msgGetTotalYesterdayMorning",
    "msgGetTotalTodayMorning",
    "msgGetTotalTodayNow",
    "putMessageEntireTimeMax",
    "putMessageTimesTotal",
    "putMessageFailedTimes",
    "putMessageRepeatedTimes",
    "putMessageSizeTotal",
    "putMessageDistributeTime",
    "putMessageAverageSize",
    "dispatchMaxBuffer",
    "getMessageEntireTimeMax",
    "putLatency99",
    "putLatency999",
    "dispatchBehindBytes",
    "pageCacheLockTimeMills",
    "earliestMessageTimeStamp",
    "startAcceptSendRequestTimeStamp",
    "commitLogDirCapacity",
    "remainTransientStoreBufferNumbs",
    "remainHowManyDataToFlush",
    "timerReadBehind",
    "timerOffsetBehind",
    "timerCongestNum",
    "timerEnqueueTps",
    "timerDequeueTps",
    "sendThreadPoolQueueSize",
    "sendThreadPoolQueueCapacity",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueSize",
    "pullThreadPoolQueueCapacity",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "litePullThreadPoolQueueSize",
    "litePullThreadPoolQueueCapacity",
    "litePullThreadPoolQueueHeadWaitTimeMills",
    "queryThreadPoolQueueSize",
    "queryThreadPoolQueueCapacity",
    "queryThreadPoolQueueHeadWaitTimeMills",
    "ackThreadPoolQueueSize",
    "ackThreadPoolQueueCapacity",
    "ackThreadPoolQueueHeadWaitTimeMills",
    "EndTransactionQueueSize",
    "EndTransactionThreadPoolQueueCapacity",
]


@dataclass
class Line:
    limit: int
    waiting: int
    wait_ms: int

    def head_wait_ms(self) -> int:
        return self.wait_ms


class Bench:
    def __init__(self, store: MessageStore, clock: ManualClock, **other: Any) -> None:
        given: dict[str, Any] = {"broker_name": "b", "ip1": "127.0.0.1", "ip2": "127.0.0.1", **other}
        settings = Live(BrokerSettings(**given))
        self.stats = Stats(settings, clock)
        self.runtime = Runtime(settings, store, self.stats, {"send": Line(10_000, 7, 55)}, clock)

    def table(self) -> dict[str, str]:
        return self.runtime.table(*self.runtime.measured())


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_MS)


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[MessageStore]:
    with MessageStore(small_settings(tmp_path), clock=clock) as store:
        yield store


@pytest.fixture
def bench(store: MessageStore, clock: ManualClock) -> Bench:
    return Bench(store, clock)


def test_every_key_has_a_value_even_in_an_empty_broker(bench: Bench, tmp_path: Path) -> None:
    table = bench.table()
    assert set(table) == {*EVERY_KEY, f"commitLogDiskRatio_{tmp_path / 'commitlog'}"}
    assert all(isinstance(value, str) and value for value in table.values())
    assert table["earliestMessageTimeStamp"] == "-1"
    assert table["brokerVersionDesc"] == "V5_3_3"
    assert table["putTps"].split(" ")[0] == "0.0"  # How mqadmin clusterList reads it.


def test_a_slave_is_not_active(store: MessageStore, clock: ManualClock) -> None:
    assert Bench(store, clock).table()["brokerActive"] == "true"
    assert Bench(store, clock, broker_id=1).table()["brokerActive"] == "false"


def test_figures_of_the_store_are_those_of_now(bench: Bench, store: MessageStore) -> None:
    result = store.put(a_message(b"x" * 2000))
    store.dispatch()
    store.log.flush(0)
    table = bench.table()
    assert table["earliestMessageTimeStamp"] == str(NOW_MS)
    assert (table["commitLogMinOffset"], table["commitLogMaxOffset"]) == ("0", str(result.end))
    assert table["dispatchBehindBytes"] == "0"
    assert table["remainHowManyDataToFlush"] == "0 B"
    assert table["remainTransientStoreBufferNumbs"] == "2147483647"
    assert table["pageCacheLockTimeMills"] == "0"
    assert 0 < float(table["commitLogDiskRatio"]) <= 1
    assert (
        table["commitLogDirCapacity"].startswith("Total : ")
        and "iB, Free : " in table["commitLogDirCapacity"]
    )


def test_a_pool_is_told_of_where_there_is_one(tmp_path: Path, clock: ManualClock) -> None:
    settings = small_settings(tmp_path, pool_enabled=True, pool_size=3)
    with MessageStore(settings, clock=clock) as store:
        table = Bench(store, clock).table()
        assert table["remainTransientStoreBufferNumbs"] == "3"
        assert table["remainHowManyDataToCommit"] == "0 B"


def test_what_was_sent_and_read_is_told(bench: Bench, clock: ManualClock) -> None:
    stats = bench.stats
    stats.put("A", 20, 3000)
    stats.put_failed(2)
    stats.put_took("A", 12.5, 20)
    stats.got("g", "A", 10, 1500)
    stats.missed()
    stats.got_took(33)
    stats.midnight()
    clock.advance_ms(2000)
    stats.sample_second()
    stats.put_times.turn()
    table = bench.table()
    assert table["putTps"] == "10.0 10.0 10.0"
    assert table["getTransferredTps"] == table["getTransferedTps"] == "5.0 5.0 5.0"
    assert (table["getFoundTps"], table["getMissTps"]) == ("0.5 0.5 0.5", "0.5 0.5 0.5")
    assert table["getTotalTps"] == "1.0 1.0 1.0"
    assert (table["putMessageTimesTotal"], table["putMessageFailedTimes"]) == ("20", "2")
    assert (table["putMessageSizeTotal"], table["putMessageAverageSize"]) == ("3000", "150.0")
    assert (table["putMessageEntireTimeMax"], table["getMessageEntireTimeMax"]) == ("12", "33")
    assert "[10~50ms]:20 " in table["putMessageDistributeTime"]
    assert 12 <= float(table["putLatency99"]) <= 13
    assert (table["msgPutTotalTodayMorning"], table["msgPutTotalTodayNow"]) == ("20", "20")
    assert (table["msgGetTotalYesterdayMorning"], table["msgGetTotalTodayNow"]) == ("0", "10")


def test_lines_of_waiting_requests_are_told(bench: Bench) -> None:
    table = bench.table()
    assert table["sendThreadPoolQueueSize"] == "7"
    assert table["sendThreadPoolQueueCapacity"] == "10000"
    assert table["sendThreadPoolQueueHeadWaitTimeMills"] == "55"
    assert table["ackThreadPoolQueueSize"] == table["EndTransactionThreadPoolQueueCapacity"] == "0"


@pytest.mark.parametrize(
    ("elapsed_ms", "text"),
    [
        (0, "[ 0 days, 0 hours, 0 minutes, 0 seconds ]"),
        (93_784_500, "[ 1 days, 2 hours, 3 minutes, 4 seconds ]"),
    ],
)
def test_a_broker_tells_how_long_it_runs(
    bench: Bench, clock: ManualClock, elapsed_ms: int, text: str
) -> None:
    clock.advance_ms(elapsed_ms)
    assert bench.table()["runtime"] == text


def test_a_clock_that_is_set_back_makes_no_negative_runtime(bench: Bench, clock: ManualClock) -> None:
    clock.step_wall_ms(-5000)
    assert bench.table()["runtime"] == "[ 0 days, 0 hours, 0 minutes, 0 seconds ]"


def test_a_part_that_fails_is_told_with_its_reason_until_it_is_well_again(
    store: MessageStore, clock: ManualClock
) -> None:
    bench = Bench(store, clock)
    store.flags.trouble("deleting old files", OSError(5, "Input/output error"))
    assert bench.table()["degraded"] == "deleting old files: OSError: [Errno 5] Input/output error"
    store.flags.healed("deleting old files")
    assert "degraded" not in bench.table()
