"""A store folder read from outside: whole records only, whatever its owner does meanwhile."""

from __future__ import annotations

import shutil
import struct
from itertools import pairwise
from pathlib import Path

import pytest

from flaremq.model import layout
from flaremq.model.columns import Fact
from flaremq.model.record import decode, decode_many
from flaremq.store.offline.scan import StoreScan
from flaremq.store.store import MessageStore
from flaremq.testing.fakes.builders import a_message, records_of, small_settings

TOPIC = b"TopicTest"


def written(root: Path, count: int = 300, size: int = 500) -> MessageStore:
    store = MessageStore(small_settings(root))
    store.open()
    for i in range(count):
        store.put(a_message(str(i).encode() + b"." * size, queue_id=i % 3))
    store.dispatch()
    return store


def numbers(scan: StoreScan, begin: int = 0, end: int | None = None) -> list[int]:
    return [
        int(decode(walked.record(row)).body.rstrip(b"."))
        for walked in scan.records(begin, end)
        for row in range(walked.count)
    ]


def test_all_records_of_a_live_store_are_seen_in_order(tmp_path: Path) -> None:
    store = written(tmp_path)
    try:
        assert numbers(StoreScan(tmp_path)) == list(range(300))
        assert len(StoreScan(tmp_path).log_files()) >= 3
    finally:
        store.close()


def test_a_scan_changes_nothing_and_needs_no_lock(tmp_path: Path) -> None:
    store = written(tmp_path)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    before = [(path, path.stat().st_mtime_ns) for path in files]
    numbers(StoreScan(tmp_path))
    list(StoreScan(tmp_path).queue_records("TopicTest", 0))
    assert [(path, path.stat().st_mtime_ns) for path in files] == before
    store.put(a_message())
    store.close()


def test_a_range_of_offsets_is_walked_alone(tmp_path: Path) -> None:
    store = written(tmp_path)
    store.close()
    scan = StoreScan(tmp_path)
    offsets = [w.facts[r * Fact.WIDTH] for w in scan.records() for r in range(w.count)]
    assert numbers(scan, offsets[100], offsets[200]) == list(range(100, 200))
    assert numbers(scan, 0, 0) == []


def test_files_can_be_walked_one_by_one(tmp_path: Path) -> None:
    written(tmp_path).close()
    scan = StoreScan(tmp_path)
    found = [
        int(decode(walked.record(row)).body.rstrip(b"."))
        for file in scan.log_files()
        for walked in scan.file_records(file)
        for row in range(walked.count)
    ]
    assert found == list(range(300))


def test_a_torn_record_ends_the_walk(tmp_path: Path) -> None:
    written(tmp_path).close()
    path = min((tmp_path / "commitlog").iterdir())
    data = bytearray(path.read_bytes())
    size = struct.unpack_from(">i", data)[0]
    data[10 * size + 200] ^= 1
    path.write_bytes(data)
    found = numbers(StoreScan(tmp_path))
    assert found == list(range(len(found)))
    assert 5 < len(found) < 15


def test_a_missing_file_ends_the_walk(tmp_path: Path) -> None:
    written(tmp_path).close()
    files = sorted((tmp_path / "commitlog").iterdir())
    files[1].unlink()
    assert len(numbers(StoreScan(tmp_path))) < 150


def test_queues_are_listed_and_read(tmp_path: Path) -> None:
    written(tmp_path).close()
    scan = StoreScan(tmp_path)
    assert scan.queues() == [("TopicTest", 0), ("TopicTest", 1), ("TopicTest", 2)]
    records = list(scan.queue_records("TopicTest", 1, begin=50))
    assert [int(decode(record).body.rstrip(b".")) for record in records] == list(range(151, 300, 3))


def test_an_entry_is_believed_only_if_its_record_agrees(tmp_path: Path) -> None:
    written(tmp_path).close()
    folder = tmp_path / "consumequeue" / "TopicTest"
    shutil.copytree(folder / "1", folder / "7")
    path = min((folder / "7").iterdir())
    data = path.read_bytes()
    path.write_bytes(data[20:40] + data[20:])  # Its first entry now points at the second record.
    assert list(StoreScan(tmp_path).queue_records("TopicTest", 7)) == []


def test_records_that_left_the_log_are_passed_over(tmp_path: Path) -> None:
    written(tmp_path).close()
    min((tmp_path / "commitlog").iterdir()).unlink()
    scan = StoreScan(tmp_path)
    first = decode(next(iter(scan.queue_records("TopicTest", 0))))
    assert first.physical_offset >= 64 * 1024
    assert numbers(scan)[-1] == 299


def test_an_empty_or_missing_folder_holds_nothing(tmp_path: Path) -> None:
    scan = StoreScan(tmp_path / "none")
    assert (scan.log_files(), scan.queues(), numbers(scan)) == ([], [], [])
    assert list(scan.queue_records("T", 0)) == []


@pytest.mark.parametrize("blank", [True, False])
def test_records_of_a_dledger_group_are_unwrapped(tmp_path: Path, blank: bool) -> None:
    data = bytearray()
    for i in range(5):
        position = len(data)
        record = records_of([a_message(str(i).encode())], base=position + layout.DLEDGER_HEADER_SIZE)
        size = layout.DLEDGER_HEADER_SIZE + len(record)
        header = (layout.DLEDGER_MAGIC, size, i, 1, position, 0, 0, 0, len(record))
        data += struct.pack(layout.DLEDGER_HEADER_FORMAT, *header) + record
    left = 4096 - len(data)
    tail = struct.pack(">ii", layout.DLEDGER_BLANK_MAGIC, left) if blank else b""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / ("0" * 20)).write_bytes((data + tail).ljust(4096, b"\0"))
    assert numbers(StoreScan(tmp_path, [tmp_path / "data"])) == [0, 1, 2, 3, 4]


def test_a_file_is_cut_where_records_begin(tmp_path: Path) -> None:
    written(tmp_path).close()
    scan = StoreScan(tmp_path)
    file = scan.log_files()[0]
    cuts = scan.cuts(file, 10_000)
    assert cuts[0] == file.offset and 5 <= len(cuts) <= 7
    pieces = [
        [walked.facts[row * Fact.WIDTH] for walked in found for row in range(walked.count)]
        for begin, end in pairwise([*cuts, file.offset + file.size])
        for found in [scan.file_records(file, begin - file.offset, end)]
    ]
    whole = [w.facts[row * Fact.WIDTH] for w in scan.file_records(file) for row in range(w.count)]
    assert [offset for piece in pieces for offset in piece] == whole
    assert [piece[0] for piece in pieces] == cuts


def test_pieces_of_a_queue_hold_its_records_across_files(tmp_path: Path) -> None:
    written(tmp_path).close()
    scan = StoreScan(tmp_path)
    assert scan.queue_bounds("TopicTest", 1) == (0, 100)
    pieces = list(scan.queue_pieces("TopicTest", 1, 10, 90, 32))
    assert [int(m.body.rstrip(b".")) for piece in pieces for m in decode_many(piece)] == list(
        range(31, 271, 3)
    )
    assert len(pieces) > 3
    assert scan.queue_bounds("NoSuchTopic", 0) == (0, 0)
    min((tmp_path / "commitlog").iterdir()).unlink()
    left = [
        m.queue_offset for piece in scan.queue_pieces("TopicTest", 1, 0, 100, 7) for m in decode_many(piece)
    ]
    assert left == list(range(left[0], 100)) and left[0] > 10
