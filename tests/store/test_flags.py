"""Flags of the store: which of them stop what, and what a refused caller is told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.base.errors import DiskFull, DispatchBehind, FlushFailed, NotWritable, PageCacheBusy
from flaremq.store.flags import Flag, Flags
from flaremq.testing.clock import ManualClock

LIMIT_MS = 1000
ANY_FLAGS = st.sets(st.sampled_from(list(Flag)))


def a_store(clock: ManualClock | None = None) -> Flags:
    return Flags(clock or ManualClock(), page_cache_busy_ms=LIMIT_MS, dispatch_lag_max=600_000)


def test_the_bits_are_javas() -> None:
    assert [flag.value for flag in Flag] == [1, 2, 4, 8, 16, 32, 64]


def test_a_store_without_trouble_lets_everything_pass() -> None:
    flags = a_store()
    assert flags.readable and flags.writable and flags.queue_writable
    flags.check_writable()
    flags.check_page_cache()
    flags.check_lag(600_000)


@given(ANY_FLAGS)
def test_what_each_flag_stops(raised: set[Flag]) -> None:
    flags = a_store()
    for flag in raised:
        flags.set(flag)
    assert flags.bits == sum(raised)
    assert flags.readable == (Flag.NOT_READABLE not in raised)
    assert flags.writable == (raised <= {Flag.NOT_READABLE})
    assert flags.queue_writable == (raised <= {Flag.NOT_READABLE, Flag.DISK_FULL, Flag.FENCED})


@given(ANY_FLAGS, ANY_FLAGS)
def test_a_cleared_flag_leaves_the_others(raised: set[Flag], cleared: set[Flag]) -> None:
    flags = a_store()
    for flag in raised:
        flags.set(flag)
    for flag in cleared:
        flags.clear(flag)
    assert flags.bits == sum(raised - cleared)


@given(ANY_FLAGS)
def test_the_check_raises_exactly_when_the_store_is_not_writable(raised: set[Flag]) -> None:
    flags = a_store()
    for flag in raised:
        flags.set(flag, f"because of {flag.value}.")
    harmless, disk = {Flag.NOT_READABLE}, {Flag.DISK_FULL, Flag.QUEUE_DISK_FULL}
    if raised <= harmless:
        flags.check_writable()
        return
    expected = DiskFull if raised <= harmless | disk else NotWritable
    with pytest.raises(expected) as caught:
        flags.check_writable()
    for flag in raised - harmless:
        assert f"because of {flag.value}." in str(caught.value)


def test_a_full_disk_is_told_with_its_figures() -> None:
    flags = a_store()
    flags.set(Flag.DISK_FULL, "/data is 92% full, limit is 90% (diskSpaceWarningLevelRatio)")
    with pytest.raises(DiskFull, match="/data is 92% full, limit is 90%") as caught:
        flags.check_writable()
    assert caught.value.retriable


def test_a_flag_without_figures_still_says_what_it_means() -> None:
    flags = a_store()
    flags.set(Flag.QUEUE_ERROR)
    with pytest.raises(NotWritable, match="a queue entry could not be written"):
        flags.check_writable()


def test_the_newest_reason_of_a_flag_is_told() -> None:
    flags = a_store()
    flags.set(Flag.DISK_FULL, "91% full")
    flags.set(Flag.DISK_FULL, "95% full")
    with pytest.raises(DiskFull, match="95%"):
        flags.check_writable()


def test_a_failed_flush_stops_everything_for_good() -> None:
    flags = a_store()
    flags.failed(FlushFailed("fdatasync said EIO"))
    flags.failed(FlushFailed("a later one"))
    flags.clear(Flag.NOT_WRITABLE)
    assert not flags.writable and not flags.queue_writable
    for _ in range(2):
        with pytest.raises(FlushFailed, match="EIO"):
            flags.check_writable()
    with pytest.raises(FlushFailed, match="EIO"):
        flags.check_page_cache()
    with pytest.raises(FlushFailed, match="EIO"):
        flags.check_lag(0)
    assert str(flags.failure) == "fdatasync said EIO"


def test_a_failed_flush_shows_in_the_bits_and_leaves_reading_alone() -> None:
    flags = a_store()
    assert flags.failure is None
    flags.failed(FlushFailed("EIO"))
    assert flags.bits == Flag.NOT_WRITABLE
    assert flags.readable


def test_repeating_a_failure_does_not_pile_up_tracebacks() -> None:
    flags = a_store()
    flags.failed(FlushFailed("EIO"))
    depths = set()
    for _ in range(3):
        with pytest.raises(FlushFailed) as caught:
            flags.check_writable()
        depths.add(len(caught.traceback))
    assert len(depths) == 1


def test_an_append_under_way_for_too_long_is_seen_by_others() -> None:
    clock = ManualClock()
    flags = a_store(clock)
    flags.append_began()
    clock.advance_ms(LIMIT_MS)
    flags.check_page_cache()
    clock.advance_ms(1)
    with pytest.raises(PageCacheBusy, match=r"1001 ms, limit is 1000 \(osPageCacheBusyTimeOutMills\)"):
        flags.check_page_cache()


def test_a_slow_append_counts_until_a_limit_has_passed_since_its_end() -> None:
    clock = ManualClock()
    flags = a_store(clock)
    flags.append_began()
    clock.advance_ms(2500)
    flags.append_ended()
    clock.advance_ms(LIMIT_MS - 1)
    with pytest.raises(PageCacheBusy, match="2500 ms"):
        flags.check_page_cache()
    clock.advance_ms(1)
    flags.check_page_cache()


def test_a_quick_append_after_a_slow_one_ends_the_alarm() -> None:
    clock = ManualClock()
    flags = a_store(clock)
    flags.append_began()
    clock.advance_ms(2500)
    flags.append_ended()
    flags.append_began()
    flags.append_ended()
    flags.check_page_cache()


def test_a_slow_append_just_ended_counts_while_the_next_is_under_way() -> None:
    clock = ManualClock()
    flags = a_store(clock)
    flags.append_began()
    clock.advance_ms(2500)
    flags.append_ended()
    flags.append_began()
    assert flags.append_stuck_ms() == 2500


def test_an_idle_store_is_never_busy_however_early_the_clock_stands() -> None:
    clock = ManualClock()
    flags = a_store(clock)
    assert flags.append_stuck_ms() == 0
    clock.step_wall_ms(-10_000_000)
    clock.advance_ms(10_000_000)
    assert flags.append_stuck_ms() == 0


def test_setting_the_wall_clock_makes_no_append_slow() -> None:
    clock = ManualClock()
    flags = a_store(clock)
    flags.append_began()
    clock.step_wall_ms(3_600_000)
    flags.check_page_cache()


def test_queues_too_far_behind_push_back_with_lag_and_limit() -> None:
    with pytest.raises(DispatchBehind, match=r"600001 records .* 600000 \(putMsgIndexHightWater\)"):
        a_store().check_lag(600_001)
