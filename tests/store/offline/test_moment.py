"""One moment of a live store: what a broker has finished is believed, and what it is at is not."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from flaremq.model import layout
from flaremq.model.layout import index_slots
from flaremq.store.index.indexfile import IndexHeader
from flaremq.store.offline.moment import last_entry, moment_of, slot_leads_to, whole_header
from flaremq.store.offline.scan import StoreScan
from flaremq.store.store import MessageStore
from flaremq.testing.fakes.builders import a_message, small_settings

KEYED = b"KEYS\x01k%d\x02"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    store = MessageStore(small_settings(tmp_path), owner_dispatches=True)
    store.open()
    yield store
    store.close()


def put(store: MessageStore, count: int, queue_id: int = 0) -> None:
    for number in range(count):
        store.put(a_message(b"%d" % number, queue_id=queue_id, properties=KEYED % number))
    store.dispatch()


def patch(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def queue_file(root: Path, queue_id: int = 0) -> Path:
    return min((root / "consumequeue").glob(f"*/{queue_id}/*"))


def test_behind_what_a_running_store_has_dispatched_nothing_is_believed(
    store: MessageStore, tmp_path: Path
) -> None:
    put(store, 1)
    end = store.log.end
    store.put(a_message(b"not dispatched yet"))
    moment = moment_of(StoreScan(tmp_path))
    assert moment is not None and moment.log_end == end
    store.close()
    assert moment_of(StoreScan(tmp_path)) is None


def test_the_index_is_believed_up_to_its_last_record(store: MessageStore, tmp_path: Path) -> None:
    put(store, 3)
    last = store.log.end
    store.put(a_message(b"without a key"))
    put(store, 1)
    moment = moment_of(StoreScan(tmp_path))
    assert moment is not None and last < moment.index_end < moment.log_end == store.log.end


@pytest.mark.parametrize("offset", [1 << 40, 70, 0])
def test_an_entry_that_leads_to_no_record_of_its_queue_moves_no_end(
    store: MessageStore, tmp_path: Path, offset: int
) -> None:
    put(store, 5)
    end = store.log.end
    patch(queue_file(tmp_path), 5 * layout.ENTRY_SIZE, struct.pack(layout.ENTRY_FORMAT, offset, 90, 0))
    scan = StoreScan(tmp_path)
    moment, entry = moment_of(scan), last_entry(scan, "TopicTest", 0)
    assert moment is not None and moment.log_end == end
    assert entry is not None and entry.queue_offset == 4


def test_what_looks_wrong_is_looked_at_again_until_patience_is_over(
    store: MessageStore, tmp_path: Path
) -> None:
    put(store, 1)
    moment = moment_of(StoreScan(tmp_path))
    assert moment is not None
    looks = iter(range(100))
    assert moment.settled(lambda: next(looks), lambda found: found == 3) == 3
    late = replace(moment, taken_s=0.0)
    assert late.settled(lambda: next(looks), lambda found: found == 50) == 4


def test_a_header_that_is_being_written_is_read_again(store: MessageStore, tmp_path: Path) -> None:
    put(store, 4)
    view = memoryview(bytearray(min((tmp_path / "index").iterdir()).read_bytes()))
    slots = index_slots(len(view))
    assert slots is not None
    header = whole_header(view, slots)
    assert header.next_entry == 5 and header == IndexHeader.read(view)
    torn = replace(header, next_entry=header.next_entry + 1)
    torn.write(view)
    assert whole_header(view, slots) == torn  # Never sound: it is given as it is.


def test_a_slot_may_lead_to_an_entry_by_way_of_newer_ones(store: MessageStore, tmp_path: Path) -> None:
    for _ in range(3):
        store.put(a_message(b"x", properties=KEYED % 7))
    store.dispatch()
    view = memoryview(min((tmp_path / "index").iterdir()).read_bytes())
    slots = index_slots(len(view))
    assert slots is not None
    used = [
        slot
        for slot in range(slots)
        if struct.unpack_from(">i", view, layout.INDEX_HEADER_SIZE + 4 * slot)[0]
    ]
    assert [slot_leads_to(view, slots, used[0], entry) for entry in (3, 2, 1, 0)] == [True] * 4
    assert not slot_leads_to(view, slots, used[0], 4)
