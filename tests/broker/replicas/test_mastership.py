"""Epochs, kept with a store, and which of two masters yields."""

from __future__ import annotations

from pathlib import Path

import pytest

from flaremq.base.errors import ConfigError
from flaremq.broker.replicas.mastership import Claim, Mastership, yields


def loaded(folder: Path) -> Mastership:
    found = Mastership(folder)
    found.load()
    return found


def a_claim(epoch: int = 0, *, started: int = 1, start_id: int = 1, serves: bool = True) -> Claim:
    return Claim("10.0.0.1:10911", epoch, started, start_id, serves)


def java(*, started: int) -> Claim:
    return Claim("10.0.0.2:10911", 0, started, 0, serves=True, is_flare=False)


def test_a_store_that_knows_nothing_of_slaves_has_no_file(tmp_path: Path) -> None:
    note = loaded(tmp_path)
    assert (note.epoch, note.newest, note.was_slave, note.is_outranked) == (0, 0, False, False)
    assert list(tmp_path.iterdir()) == []


def test_a_promotion_begins_an_epoch_that_is_newer_than_all_others(tmp_path: Path) -> None:
    slave = loaded(tmp_path)
    slave.begins_as_slave()
    slave.follows(3)
    assert loaded(tmp_path).was_slave
    slave.promote()
    again = loaded(tmp_path)
    assert (again.epoch, again.was_slave) == (4, False)
    assert b'"epoch":4' in (tmp_path / "config" / "mastership.json").read_bytes()


def test_a_master_that_was_outranked_says_so_after_its_next_start_until_it_follows(tmp_path: Path) -> None:
    master = loaded(tmp_path)
    master.yields_to(2)
    again = loaded(tmp_path)
    assert (again.epoch, again.newest, again.is_outranked) == (0, 2, True)
    again.begins_as_slave()
    again.follows(2)
    assert not loaded(tmp_path).is_outranked
    again.yields_to(1)
    assert not loaded(tmp_path).is_outranked


def test_a_promotion_outranks_also_the_one_that_outranked_it(tmp_path: Path) -> None:
    master = loaded(tmp_path)
    master.yields_to(5)
    master.promote()
    assert (master.epoch, master.is_outranked) == (6, False)


@pytest.mark.parametrize("text", [b"{", b'{"epoch":"1"}', b'{"slave":0}'])
def test_a_file_that_cannot_be_read_is_not_taken_for_no_promotion(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "mastership.json").write_bytes(text)
    with pytest.raises(ConfigError, match=r"mastership\.json"):
        loaded(tmp_path)


def test_the_lower_epoch_yields_whoever_began_first() -> None:
    old, promoted = a_claim(0, started=1), a_claim(1, started=9, start_id=2)
    assert yields(old, promoted) and not yields(promoted, old)
    starting = old._replace(serves=False)
    assert yields(starting, promoted) and not yields(promoted, starting)
    assert yields(old, promoted._replace(serves=False)), "it may be away only for a moment"


def test_of_equal_epochs_the_one_that_began_later_yields() -> None:
    first, second = a_claim(2, started=1), a_claim(2, started=5, start_id=2)
    assert yields(second, first) and not yields(first, second)
    starting = second._replace(serves=False, started_ms=0)  # Its clock is behind.
    assert yields(starting, first) and not yields(first, starting)
    twin = a_claim(2, started=1, start_id=2)
    assert yields(twin, first) and not yields(first, twin), "in one millisecond: one of them, all the same"


def test_nobody_yields_to_itself_or_to_one_that_serves_no_more() -> None:
    own = a_claim(1)
    assert not yields(own, own._replace(address="10.0.0.9:10911"))
    assert not yields(own._replace(serves=False), a_claim(1, start_id=2, serves=False))


def test_a_master_of_rocketmq_counts_as_equal_and_does_not_yield() -> None:
    promoted = a_claim(3, started=5)
    assert yields(promoted, java(started=1))
    assert not yields(promoted, java(started=9))
    assert yields(promoted._replace(serves=False), java(started=9))
