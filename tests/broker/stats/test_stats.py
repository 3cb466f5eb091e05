"""Statistics: what is added up, what a minute, an hour and a day make of it, and what is forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from flaremq.base.live import Live
from flaremq.broker.settings import BrokerSettings
from flaremq.broker.stats.rates import Rate
from flaremq.broker.stats.stats import Name, SampleSpan, Stats
from flaremq.protocol.bodies.stats import BrokerStatsData
from flaremq.testing.clock import ManualClock


def made(clock: ManualClock, **other: Any) -> Stats:
    given: dict[str, Any] = {
        "broker_name": "broker-a",
        "cluster_name": "C",
        "ip1": "127.0.0.1",
        "ip2": "127.0.0.1",
    }
    return Stats(Live(BrokerSettings(**{**given, **other})), clock)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def stats(clock: ManualClock) -> Stats:
    return made(clock)


def seen(stats: Stats, name: str, key: str) -> BrokerStatsData:
    found = stats.view(name, key)
    assert found is not None
    return found


async def test_a_minute_is_the_difference_of_its_samples(stats: Stats, clock: ManualClock) -> None:
    for _ in range(4):
        stats.put("A", 10, 1000)
        await stats.sample(SampleSpan.MINUTE)
        clock.advance_ms(10_000)
    minute = seen(stats, "TOPIC_PUT_NUMS", "A").stats_minute
    assert (minute.sum, minute.tps) == (40, 1.0)
    size = seen(stats, "TOPIC_PUT_SIZE", "A").stats_minute
    assert (size.sum, size.avgpt) == (4000, 100.0)


async def test_what_is_older_than_a_minute_counts_no_more(stats: Stats, clock: ManualClock) -> None:
    stats.put("A", 1000, 1)
    for _ in range(8):
        await stats.sample(SampleSpan.MINUTE)
        clock.advance_ms(10_000)
    assert seen(stats, "TOPIC_PUT_NUMS", "A").stats_minute.sum == 0


async def test_hours_and_days_have_samples_of_their_own(stats: Stats, clock: ManualClock) -> None:
    stats.got("g", "A", 36, 360)
    await stats.sample(SampleSpan.HOUR)
    await stats.sample(SampleSpan.DAY)
    view = seen(stats, "GROUP_GET_NUMS", "A@g")
    assert (view.stats_minute.sum, view.stats_hour.sum, view.stats_day.sum) == (0, 36, 36)
    assert (view.stats_hour.tps, view.stats_day.tps) == (36 / 600, 0.01)


async def test_a_day_counts_what_came_before_its_first_sample(stats: Stats, clock: ManualClock) -> None:
    stats.put("A", 200_000, 1)
    clock.advance_ms(5 * 60_000)
    view = seen(stats, "TOPIC_PUT_NUMS", "A")
    assert (view.stats_hour.sum, view.stats_day.sum) == (200_000, 200_000)
    await stats.sample(SampleSpan.DAY)
    clock.advance_ms(30 * 60_000)
    stats.put("A", 1, 1)
    assert seen(stats, "TOPIC_PUT_NUMS", "A").stats_day.sum == 200_001


async def test_a_day_forgets_what_came_before_it(stats: Stats, clock: ManualClock) -> None:
    stats.put("A", 1000, 1)
    for _ in range(26):
        await stats.sample(SampleSpan.DAY)
        clock.advance_ms(3_600_000)
        stats.put("A", 1, 1)
    assert seen(stats, "TOPIC_PUT_NUMS", "A").stats_day.sum == 24


async def test_a_second_look_without_time_is_no_division_by_zero(stats: Stats) -> None:
    stats.put("A", 1, 1)
    await stats.sample(SampleSpan.MINUTE)
    for _ in range(20):
        await stats.sample(SampleSpan.MINUTE)
    assert seen(stats, "TOPIC_PUT_NUMS", "A").stats_minute.tps == 0.0


async def test_a_wall_clock_that_is_set_changes_no_rate(stats: Stats, clock: ManualClock) -> None:
    stats.put("A", 10, 10)
    await stats.sample(SampleSpan.MINUTE)
    clock.step_wall_ms(-3_600_000)
    clock.advance_ms(10_000)
    stats.put("A", 10, 10)
    await stats.sample(SampleSpan.MINUTE)
    stats.sample_second()
    assert seen(stats, "TOPIC_PUT_NUMS", "A").stats_minute.tps == 1.0
    assert stats.rates.per_second(Rate.PUT, 10) == 2.0


def test_what_was_never_counted_is_not_there(stats: Stats) -> None:
    assert stats.view("TOPIC_PUT_NUMS", "Nobody") is None
    assert stats.view("NO_SUCH_NAME", "A") is None
    assert stats.view("__class__", "A") is None


async def test_the_broker_counts_all_and_users_alone(stats: Stats) -> None:
    stats.put("A", 3, 30)
    stats.put("RMQ_SYS_TRACE_TOPIC", 4, 40)
    stats.got("g", "A", 2, 20)
    stats.got("g", "SELF_TEST_TOPIC", 5, 50)
    await stats.sample(SampleSpan.MINUTE)
    sums = {
        name: seen(stats, name, "C").stats_minute.sum
        for name in (
            "BROKER_PUT_NUMS",
            "BROKER_GET_NUMS",
            "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC",
            "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC",
        )
    }
    assert list(sums.values()) == [7, 7, 3, 2]
    assert (stats.put_total, stats.get_total) == (3, 2)


async def test_all_that_happens_to_a_message_has_its_key(stats: Stats) -> None:
    stats.sent_back("g", "A")
    stats.sent_to_dlq("g", "A")
    stats.got("g", "A", 2, 20, latency_ms=15)
    stats.got_from_disk("g", "A", 2, 20)
    stats.acked("g", "A", 1)
    stats.put_took("A", 12.0, 2)
    await stats.sample(SampleSpan.MINUTE)
    for name, key, total in (
        ("SNDBCK_PUT_NUMS", "A@g", 1),
        ("DLQ_PUT_NUMS", "A@g", 1),
        ("SNDBCK2DLQ_TIMES", "A@g", 1),
        ("GROUP_GET_LATENCY", "A@g", 15),
        ("GROUP_GET_FROM_DISK_SIZE", "A@g", 20),
        ("BROKER_GET_FROM_DISK_NUMS", "C", 2),
        ("GROUP_ACK_NUMS", "A@g", 1),
        ("BROKER_ACK_NUMS", "C", 1),
        ("TOPIC_PUT_LATENCY", "A", 24),
    ):
        assert seen(stats, name, key).stats_minute.sum == total, name
    assert seen(stats, "TOPIC_PUT_LATENCY", "A").stats_minute.avgpt == 12.0


@pytest.mark.parametrize("name", ["QUEUE_PUT_NUMS", "QUEUE_GET_SIZE", "GROUP_GET_FALL_SIZE", "NO_SUCH_NAME"])
def test_what_is_not_counted_has_no_item(stats: Stats, name: str) -> None:
    stats.put("A", 1, 1)
    stats.got("g", "A", 1, 1)
    assert all(stats.view(name, key) is None for key in ("A", "A@0", "A@0@g", "0@A@g"))


def test_a_group_takes_the_same_memory_for_a_thousand_queues_as_for_one(stats: Stats) -> None:
    for _queue in range(1000):
        stats.got("g", "A", 1, 1, latency_ms=1)
    assert sum(len(table) for name, table in stats._tables.items() if name.startswith("GROUP_")) == 3


async def test_idle_items_are_dropped_and_begin_again(clock: ManualClock) -> None:
    stats = made(clock, statistics_idle_max_min=60)
    stats.put("Idle", 1, 1)
    stats.put("Busy", 1, 1)
    await stats.sample(SampleSpan.MINUTE)
    clock.advance_ms(61 * 60_000)
    stats.put("Busy", 1, 1)
    assert stats.drop_idle() == 2
    assert stats.view("TOPIC_PUT_NUMS", "Idle") is None
    assert stats.view("BROKER_PUT_NUMS", "C") is not None
    stats.put("Idle", 5, 5)
    stats.put("Busy", 1, 1)
    assert dict(stats.totals(Name.TOPIC_PUT_NUMS)) == {"Busy": 3, "Idle": 5}


@pytest.mark.parametrize(
    ("limit_min", "kept_min", "gone_min"), [(-1, 100_000, None), (0, 29, 31), (60, 59, 61)]
)
async def test_how_long_idle_items_are_kept(
    clock: ManualClock, limit_min: int, kept_min: int, gone_min: int | None
) -> None:
    stats = made(clock, statistics_idle_max_min=limit_min)
    stats.put("A", 1, 1)
    await stats.sample(SampleSpan.MINUTE)
    clock.advance_ms(kept_min * 60_000)
    assert stats.drop_idle() == 0
    if gone_min is not None:
        clock.advance_ms((gone_min - kept_min) * 60_000)
        assert stats.drop_idle() == 2


def fill_all(stats: Stats) -> None:
    for topic in ("A", "AA"):
        stats.put(topic, 1, 1)
        stats.put_took(topic, 1, 1)
        for group in ("g", "gg"):
            stats.got(group, topic, 1, 1)
            stats.sent_back(group, topic)


def keys(stats: Stats) -> set[str]:
    return {key for table in stats._tables.values() for key in table}


def test_a_deleted_topic_takes_its_figures_with_it(stats: Stats) -> None:
    fill_all(stats)
    stats.topic_deleted("A")
    assert keys(stats) == {"C", "AA", "AA@g", "AA@gg"}


def test_a_deleted_group_takes_its_figures_with_it(stats: Stats) -> None:
    fill_all(stats)
    stats.group_deleted("g")
    assert {key for key in keys(stats) if key.endswith("@g")} == set()
    assert {"A", "A@gg", "C"} <= keys(stats)


def test_figures_of_the_deleted_stay_if_the_operator_wants_them(clock: ManualClock) -> None:
    stats = made(clock, delete_unused_statistics=False)
    fill_all(stats)
    stats.topic_deleted("A")
    stats.group_deleted("g")
    assert {"A", "A@g"} <= keys(stats)


async def test_rates_per_topic_and_group_are_those_of_the_last_minute(stats: Stats) -> None:
    stats.put("A", 100, 1)
    stats.got("g", "A", 50, 1)
    await stats.sample(SampleSpan.MINUTE)
    assert (stats.put_tps("A"), stats.get_tps("g", "A")) == (10.0, 5.0)
    assert (stats.put_tps("B"), stats.get_tps("g", "B")) == (0.0, 0.0)


async def test_a_great_many_items_are_sampled_over_several_turns(stats: Stats) -> None:
    for number in range(1500):
        stats.put(f"T{number}", 1, 1)
    turns = 0
    sampling = stats.sample(SampleSpan.MINUTE)
    while True:
        try:
            sampling.send(None)
        except StopIteration:
            break
        turns += 1
    assert turns >= 3
    assert seen(stats, "TOPIC_PUT_NUMS", "T1499").stats_minute.sum == 1


def test_midnight_keeps_yesterdays_total(stats: Stats) -> None:
    stats.put("A", 5, 5)
    stats.midnight()
    stats.put("A", 7, 7)
    stats.midnight()
    stats.got("g", "A", 1, 1)
    assert (stats.puts_of_day.yesterday_morning, stats.puts_of_day.this_morning, stats.put_total) == (
        5,
        12,
        12,
    )
    assert (stats.gets_of_day.this_morning, stats.get_total) == (0, 1)
