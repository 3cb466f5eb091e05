"""Which offsets of a master replace those of its slave."""

from __future__ import annotations

import pytest

from flaremq.broker.replicas.masteroffsets import MasterOffsets
from flaremq.model.topic import DataVersion
from flaremq.protocol.bodies.group import ConsumerOffsetSerializeWrapper

KEY = "Orders", "billing"


class Table:
    """One queue of one group in a slave, and what its master tells of it."""

    def __init__(self, ours: int | None = None, version: int = 0) -> None:
        self.ours = ours
        self.version = version
        self.it = MasterOffsets()

    def told(self, offset: int, version: int = 0) -> int | None:
        """The master tells an offset. Returns ours after that."""
        wrapper = ConsumerOffsetSerializeWrapper(
            offset_table={"Orders@billing": {0: offset}}, data_version=DataVersion(0, version, 1)
        )
        ours = {} if self.ours is None else {KEY: {0: self.ours}}
        news = self.it.news(wrapper, ours, DataVersion(0, self.version, 1))
        if news:
            assert news.keys() == {KEY}
            self.ours = news[KEY][0]
        self.version = version
        return self.ours


def test_the_example_of_the_docstring() -> None:
    table = Table(100)
    assert table.told(100, 5) == 100
    assert table.told(120, 5) == 120
    assert table.told(50, 5) == 50
    table.it.away()
    table.ours = 80
    assert table.told(48, 5) == 80
    assert table.told(60, 5) == 60
    assert table.told(60, 5) == 60


def test_an_offset_that_the_master_has_not_changed_stays_as_it_was_committed_here() -> None:
    table = Table()
    assert table.told(100) == 100
    table.ours = 150
    table.it.away()
    assert table.told(100) == 150
    assert table.told(100, 9) == 150
    table.ours = 70  # Consumers may go back here, too.
    assert table.told(100) == 70


def test_a_master_that_is_ahead_is_followed_even_when_it_was_away() -> None:
    table = Table()
    table.told(100)
    table.ours = 150
    table.it.away()
    assert table.told(200) == 200


def test_a_newer_table_is_followed_even_back() -> None:
    table = Table()
    table.told(100, 5)
    table.ours = 150
    table.it.away()
    assert table.told(20, 6) == 20


def test_an_offset_that_nobody_committed_here_is_the_masters() -> None:
    table = Table()
    table.told(100)
    table.it.away()
    assert table.told(95) == 95


@pytest.mark.parametrize(("version", "ours"), [(7, 150), (8, 95)])
def test_after_a_start_the_version_on_the_disk_says_whether_the_master_has_moved_on(
    version: int, ours: int
) -> None:
    assert Table(150, version=7).told(95, version) == ours
    assert Table(90, version=7).told(95, version) == 95
    assert Table(None, version=7).told(95, version) == 95


def test_another_master_is_judged_as_after_a_start() -> None:
    table = Table()
    table.told(100, 5)
    table.it.forget()
    table.ours, table.version = 150, 5
    assert table.told(100, 5) == 150
    assert table.told(101, 5) == 101


def test_only_the_queues_that_moved_are_taken() -> None:
    it = MasterOffsets()
    version = DataVersion()

    def told(**queues: int) -> ConsumerOffsetSerializeWrapper:
        table = {int(name[1:]): offset for name, offset in queues.items()}
        return ConsumerOffsetSerializeWrapper(offset_table={"Orders@billing": table}, data_version=version)

    assert it.news(told(q0=1, q1=2), {}, version) == {KEY: {0: 1, 1: 2}}
    assert it.news(told(q0=1, q1=3), {KEY: {0: 9, 1: 2}}, version) == {KEY: {1: 3}}
    assert it.news(told(q0=1, q1=3), {KEY: {0: 9, 1: 3}}, version) == {}
