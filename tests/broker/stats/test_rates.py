"""Rates of the whole broker, and how long puts take."""

from __future__ import annotations

import pytest

from flaremq.broker.stats.rates import PutTimes, Rate, Rates


def test_a_rate_is_that_of_its_window() -> None:
    rates = Rates(now_ms=0)
    for second in range(1, 701):
        rates.put += 100 if second > 690 else 10
        rates.sample(second * 1000)
    assert rates.per_second(Rate.PUT, 10) == 100.0
    assert rates.per_second(Rate.PUT, 60) == (10 * 100 + 50 * 10) / 60
    assert rates.per_second(Rate.PUT, 600) == (10 * 100 + 590 * 10) / 600


def test_a_young_broker_tells_the_rate_since_its_start() -> None:
    rates = Rates(now_ms=5000)
    assert rates.per_second(Rate.TRANSFERRED, 10) == 0.0
    rates.transferred += 30
    rates.sample(7000)
    assert rates.per_second(Rate.TRANSFERRED, 600) == 15.0


def test_two_samples_of_one_moment_make_no_endless_rate() -> None:
    rates = Rates(now_ms=10_000)
    rates.found += 5
    rates.sample(10_000)
    assert rates.per_second(Rate.FOUND, 10) == 0.0
    rates.sample(11_000)
    assert rates.per_second(Rate.FOUND, 10) == 5.0


def test_put_times_are_told_of_the_last_whole_minute() -> None:
    times = PutTimes()
    times.add(0.2, 7)
    times.add(9.9, 2)
    times.add(10, 1)
    times.add(20_000, 1)
    assert "[<=0ms]:0 " in times.spread()
    times.turn()
    assert times.spread().startswith("[<=0ms]:7 [0~10ms]:2 [10~50ms]:1 [50~100ms]:0 ")
    assert times.spread().endswith("[10s~]:1 ")
    times.turn()
    assert "[<=0ms]:0 " in times.spread()
    assert times.longest_ms == 20_000


@pytest.mark.parametrize(("share", "about_ms"), [(0.5, 3.0), (0.99, 45.0), (1.0, 46.0)])
def test_a_percentile_is_as_near_as_its_step(share: float, about_ms: float) -> None:
    times = PutTimes()
    times.add(3.0, 900)
    times.add(45.5, 100)
    times.turn()
    assert times.percentile_ms(share) == pytest.approx(about_ms, abs=2)


def test_no_puts_have_no_percentile_and_endless_ones_have_the_longest() -> None:
    times = PutTimes()
    assert times.percentile_ms(0.99) == 0.0
    times.add(99_000, 5)
    times.turn()
    assert times.percentile_ms(0.999) == 99_000.0
