"""A store folder as batches: planned, read in pieces, damaged, and beside its running broker."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from flaremq.arrow.batches import Decoder
from flaremq.arrow.columnspec import Only
from flaremq.arrow.storefolder import ArrowStore, LogPiece, QueuePiece, Times, share
from flaremq.base.errors import CorruptStore, StoreError, UsageError
from flaremq.store.store import MessageStore
from flaremq.testing.clock import START_MS, ManualClock
from flaremq.testing.fakes.builders import a_message, small_settings

COUNT = 300


def written(root: Path, count: int = COUNT, **settings: Any) -> MessageStore:
    """Messages a second apart, of two topics in turn, each with two queues."""
    clock = ManualClock()
    store = MessageStore(small_settings(root, **settings), clock=clock, owner_dispatches=True)
    store.open()
    for i in range(count):
        store.put(a_message(b"%d" % i + b"." * 500, topic=(b"A", b"B")[i % 2], queue_id=i // 2 % 2))
        clock.advance_ms(1000)
    store.dispatch()
    return store


def numbers(
    folder: ArrowStore, pieces: Sequence[LogPiece | QueuePiece], only: Only | None = None
) -> list[int]:
    decoder = Decoder(("body",), only=only)
    return [
        int(body.rstrip(b"."))
        for piece in pieces
        for batch in folder.read(piece, decoder)
        for body in batch.column(0).to_pylist()
    ]


def test_files_are_pieces_and_together_they_are_the_log(tmp_path: Path) -> None:
    written(tmp_path).close()
    folder = ArrowStore(tmp_path)
    pieces = folder.log_pieces()
    assert len(pieces) == len(list((tmp_path / "commitlog").iterdir())) >= 3
    assert numbers(folder, pieces) == list(range(COUNT))
    assert numbers(pickle.loads(pickle.dumps(folder)), pickle.loads(pickle.dumps(pieces))) == list(
        range(COUNT)
    )


def test_a_single_file_is_cut_for_many_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flaremq.arrow.storefolder._CUT_BYTES", 20_000)
    written(tmp_path, commitlog_file_size=1 << 20).close()
    folder = ArrowStore(tmp_path)
    pieces = folder.log_pieces(tasks=4)
    assert len(pieces) >= 8 and [piece.is_last for piece in pieces].count(True) == 1
    assert numbers(folder, pieces) == list(range(COUNT))
    assert len(folder.log_pieces(tasks=1)) == 1


def test_the_empty_rest_of_a_file_weighs_nothing_when_work_is_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flaremq.arrow.storefolder._CUT_BYTES", 4_000)
    written(tmp_path, commitlog_file_size=1 << 20).close()
    folder = ArrowStore(tmp_path)
    shares = [len(numbers(folder, task)) for task in share(folder.log_pieces(tasks=3), 3)]
    assert len(shares) == 3 and min(shares) > COUNT // 5


def test_queues_are_read_by_their_entries(tmp_path: Path) -> None:
    written(tmp_path).close()
    folder = ArrowStore(tmp_path)
    assert folder.queues(["A"]) == [("A", 0), ("A", 1)]
    assert folder.queues(pattern="[B-Z]") == [("B", 0), ("B", 1)]
    pieces = folder.queue_pieces(folder.queues(["A"]))
    assert [(piece.begin, piece.end) for piece in pieces] == [(0, 75), (0, 75)]
    assert sorted(numbers(folder, pieces)) == list(range(0, COUNT, 2))
    assert numbers(folder, [QueuePiece("A", 1, 10, 12)]) == [42, 46]


def test_times_leave_out_files_and_rows(tmp_path: Path) -> None:
    written(tmp_path).close()
    folder = ArrowStore(tmp_path)
    times = Times(START_MS + 50_000, START_MS + 60_000)
    pieces = folder.log_pieces(times)
    assert len(pieces) == 1
    only = Only(time_begin_ms=times.begin_ms, time_end_ms=times.end_ms)
    assert numbers(folder, pieces, only) == list(range(50, 60))
    assert folder.log_pieces(Times(end_ms=START_MS)) == []


def test_beside_a_running_broker_only_what_is_confirmed_is_read(tmp_path: Path) -> None:
    store = written(tmp_path)
    try:
        store.put(a_message(b"999"))
        folder = ArrowStore(tmp_path)
        assert numbers(folder, folder.log_pieces()) == list(range(COUNT))
        store.dispatch()
        assert numbers(folder, folder.log_pieces(tasks=9)) == [*range(COUNT), 999]
    finally:
        store.close()


@pytest.mark.parametrize("tasks", [1, 99])
def test_damage_is_told_with_its_place_or_skipped(tmp_path: Path, tasks: int) -> None:
    written(tmp_path).close()
    path = sorted((tmp_path / "commitlog").iterdir())[1]
    data = bytearray(path.read_bytes())
    data[5000] ^= 0xFF
    path.write_bytes(data)
    folder = ArrowStore(tmp_path)
    with pytest.raises(CorruptStore, match=rf"{path.name}: no whole record at offset \d+, the next one"):
        numbers(folder, folder.log_pieces(tasks=tasks))
    skipping = ArrowStore(tmp_path, skips_damage=True)
    found = numbers(skipping, skipping.log_pieces(tasks=tasks))
    assert len(found) == COUNT - 1 and sorted(found) == found


def test_what_a_crash_has_torn_is_the_end_of_the_log(tmp_path: Path) -> None:
    written(tmp_path, 10).close()
    path = min((tmp_path / "commitlog").iterdir())
    data = bytearray(path.read_bytes())
    end = data.rindex(b"9" + b"." * 500)
    data[end:] = bytes(len(data) - end)
    path.write_bytes(data)
    folder = ArrowStore(tmp_path)
    assert numbers(folder, folder.log_pieces()) == list(range(9))


@pytest.mark.parametrize("tasks", [1, 99])
def test_a_file_that_was_made_ahead_is_behind_the_end_of_the_log(tmp_path: Path, tasks: int) -> None:
    written(tmp_path).close()
    last = max((tmp_path / "commitlog").iterdir())
    for number in (1, 2):
        name = f"{int(last.name) + number * last.stat().st_size:020d}"
        (last.parent / name).write_bytes(bytes(last.stat().st_size))
    folder = ArrowStore(tmp_path)
    pieces = folder.log_pieces(tasks=tasks)
    assert numbers(folder, pieces) == list(range(COUNT))
    assert pieces[-1].file_offset == int(last.name) and pieces[-1].is_last


def test_a_file_that_was_deleted_meanwhile_is_told(tmp_path: Path) -> None:
    written(tmp_path).close()
    folder = ArrowStore(tmp_path)
    pieces = folder.log_pieces()
    min((tmp_path / "commitlog").iterdir()).unlink()
    with pytest.raises(StoreError, match="the log file at offset 0 is gone"):
        numbers(folder, pieces)


def test_a_folder_that_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist: expected a store"):
        ArrowStore(tmp_path).check()
