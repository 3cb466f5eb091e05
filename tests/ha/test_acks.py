"""The replicated mark: how many slaves have a byte, never how many connections."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from flaremq.ha.acks import SlaveAcks


@dataclass(eq=False)
class Slave:
    host: str = "10.0.0.1"
    broker_id: int | None = None
    acked: int = -1


class Bench:
    def __init__(self, needed: int = 1, gap_max: int = 1000) -> None:
        self.acks = SlaveAcks(needed, gap_max)

    def add(self, host: str = "10.0.0.1", broker_id: int | None = None, acked: int = -1) -> Slave:
        slave = Slave(host, broker_id, acked)
        self.acks.joined(slave)
        self.acks.moved()
        return slave

    def report(self, slave: Slave, position: int) -> int:
        slave.acked = position
        self.acks.moved()
        return self.acks.replicated.value


def test_one_slave_moves_the_mark_with_every_report() -> None:
    bench = Bench()
    slave = bench.add()
    assert bench.acks.replicated.value == 0
    assert [bench.report(slave, 100), bench.report(slave, 250)] == [100, 250]


def test_two_needed_slaves_move_it_as_far_as_the_slower_one_has_the_log() -> None:
    bench = Bench(needed=2)
    first, second = bench.add("a"), bench.add("b")
    assert bench.report(first, 500) == 0
    assert bench.report(second, 200) == 200
    assert bench.report(second, 700) == 500


def test_two_connections_of_one_machine_are_one_slave() -> None:
    bench = Bench(needed=2)
    bench.report(bench.add("a"), 500)
    assert bench.report(bench.add("a"), 500) == 0


def test_two_slaves_of_one_machine_that_say_who_they_are_count_as_two() -> None:
    bench = Bench(needed=2)
    bench.report(bench.add("a", broker_id=1), 500)
    assert bench.report(bench.add("a", broker_id=2), 400) == 400


def test_two_connections_of_one_broker_id_are_one_slave() -> None:
    bench = Bench(needed=2)
    bench.report(bench.add("a", broker_id=1), 500)
    assert bench.report(bench.add("b", broker_id=1), 500) == 0


def test_a_nameless_connection_beside_a_named_one_of_its_machine_may_be_the_same_slave() -> None:
    bench = Bench(needed=2)
    bench.report(bench.add("a", broker_id=1), 500)
    assert bench.report(bench.add("a"), 500) == 0


def test_a_connection_that_never_reports_counts_for_nothing() -> None:
    bench = Bench(needed=2)
    bench.add("b")
    assert bench.report(bench.add("a"), 500) == 0
    assert bench.acks.near(500) == 1


def test_the_mark_stays_when_a_slave_leaves_and_waits_for_the_next_one() -> None:
    bench = Bench()
    slave = bench.add()
    bench.report(slave, 500)
    bench.acks.left(slave)
    assert bench.report(bench.add(), 300) == 500


@pytest.mark.parametrize(("acked", "near"), [(-1, 0), (0, 0), (1000, 0), (1001, 1), (2000, 1)])
def test_a_slave_is_near_if_it_lacks_less_than_the_gap(acked: int, near: int) -> None:
    bench = Bench(gap_max=1000)
    bench.report(bench.add(), acked)
    assert bench.acks.near(2000) == near
