"""Stores that RocketMQ has divided: old plain files, and behind them the ledger of a member."""

from __future__ import annotations

import shutil
import struct
from itertools import pairwise
from pathlib import Path

import pytest
from tests.dledger.dividedtools import Divided, divide_store
from tests.dledger.test_convert import COUNT, HALF, bytes_of, converted, fill, messages, seen

from flaremq.arrow.batches import Decoder
from flaremq.arrow.storefolder import ArrowStore
from flaremq.base.errors import CorruptStore
from flaremq.dledger.convert import StoreKind
from flaremq.model import layout
from flaremq.model.columns import Fact
from flaremq.store.offline.export import ExportFilter, by_log, by_queue
from flaremq.store.offline.folder import OfflineStore
from flaremq.store.offline.moment import last_entry
from flaremq.store.offline.scan import StoreScan
from flaremq.store.offline.verify import Verifier
from flaremq.store.store import MessageStore
from flaremq.testing.fakes.builders import a_message, small_settings

OLD = 70


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """The same messages in a store of one kind."""
    fill(tmp_path / "whole")
    return tmp_path / "whole"


@pytest.fixture
def divided(tmp_path: Path, whole: Path) -> Divided:
    shutil.copytree(whole, tmp_path / "divided")
    return divide_store(tmp_path / "divided", OLD)


def test_a_scan_goes_on_behind_the_divide(whole: Path, divided: Divided) -> None:
    found = messages(divided.root)
    assert [seen(message) for message in found] == [seen(message) for message in messages(whole)]
    assert found[OLD - 1].physical_offset < divided.divide < found[OLD].physical_offset


def test_a_scan_begins_on_either_side_of_the_divide(divided: Divided) -> None:
    scan = StoreScan(divided.root)
    offsets = [walked.begin for walked in scan.records(rows=1)]
    for first in (OLD - 1, OLD, OLD + 1):
        assert [walked.begin for walked in scan.records(offsets[first], rows=1)] == offsets[first:]
    assert [walked.begin for walked in scan.records(0, divided.divide, rows=1)] == offsets[:OLD]


def test_a_divide_without_an_old_record_in_its_last_file_is_passed(divided: Divided) -> None:
    """Java closes a file that was made ahead with a blank record, too, when the one before it is full."""
    names = sorted(path.name for path in (divided.root / "commitlog").iterdir())
    offsets = [walked.begin for walked in StoreScan(divided.root).records(rows=1)]
    size = divided.divide // len(names)
    last = divided.root / "commitlog" / names[-1]
    blank = struct.pack(">ii", size, layout.BLANK_MAGIC).ljust(size, b"\0")
    last.write_bytes(blank)
    found = [walked.begin for walked in StoreScan(divided.root).records(rows=1)]
    assert found == [offset for offset in offsets if not int(last.name) <= offset < divided.divide]


@pytest.mark.parametrize("kind", list(StoreKind))
def test_a_divided_store_is_converted_into_one_of_either_kind(
    whole: Path, divided: Divided, tmp_path: Path, kind: StoreKind
) -> None:
    before = bytes_of(divided.root)
    done = converted(divided.root, tmp_path / "new", kind)
    assert [seen(message) for message in messages(tmp_path / "new")] == [seen(m) for m in messages(whole)]
    assert (done.records, done.notes) == (COUNT, [])
    assert (tmp_path / "new" / "commitlog").exists() is (kind is StoreKind.PLAIN)
    assert (tmp_path / "new" / "dledger-n0").exists() is (kind is StoreKind.DLEDGER)
    report = Verifier(OfflineStore(tmp_path / "new")).run()
    assert (report.problems, report.records, report.entries) == ([], COUNT, COUNT)
    assert bytes_of(divided.root) == before


def test_a_divided_store_becomes_the_plain_store_that_it_would_have_been(
    whole: Path, divided: Divided, tmp_path: Path
) -> None:
    converted(divided.root, tmp_path / "plain", StoreKind.PLAIN)
    for folder in ("commitlog", "consumequeue"):
        assert bytes_of(tmp_path / "plain" / folder) == bytes_of(whole / folder)


def test_a_message_behind_the_divide_names_the_copy_of_its_prepared_one_before_it(tmp_path: Path) -> None:
    with MessageStore(small_settings(tmp_path / "store")) as store:
        store.put(a_message(b"before"))
        half = store.put(a_message(b"half", topic=HALF))
        store.put(a_message(b"paid", prepared_transaction_offset=half.physical_offset))
    divided = divide_store(tmp_path / "store", 2)
    converted(divided.root, tmp_path / "ledger", StoreKind.DLEDGER)
    _, prepared, paid = messages(tmp_path / "ledger")
    assert paid.prepared_transaction_offset == prepared.physical_offset


def test_a_store_that_was_divided_and_got_no_message_since_is_converted(whole: Path, tmp_path: Path) -> None:
    (whole / "dledger-n0" / "data").mkdir(parents=True)
    done = converted(whole, tmp_path / "ledger", StoreKind.DLEDGER)
    assert (done.records, done.notes) == (COUNT, [])


def test_damage_before_the_divide_is_not_taken_for_what_the_group_has_given_up(
    divided: Divided, tmp_path: Path
) -> None:
    """Not even if the member knew of no decision yet, or if a crash may have left half a record somewhere."""
    newest = messages(divided.root)[OLD - 1]
    path = max((divided.root / "commitlog").iterdir())
    data = bytearray(path.read_bytes())
    data[newest.physical_offset - int(path.name) + 200] ^= 1
    path.write_bytes(data)
    (divided.root / "dledger-n0" / "checkpoint").write_text("endIndex=-1\ncommittedIndex=-1\n")
    (divided.root / "abort").touch()
    for kind in StoreKind:
        with pytest.raises(CorruptStore, match="flaremq store verify"):
            converted(divided.root, tmp_path / kind.value, kind)


def test_verify_reads_both_sides_of_the_divide(divided: Divided) -> None:
    report = Verifier(OfflineStore(divided.root)).run()
    assert (report.problems, report.records, report.entries) == ([], COUNT, COUNT)


@pytest.mark.parametrize("record", [3, OLD + 3], ids=["before", "behind"])
def test_verify_reports_damage_on_either_side_of_the_divide(divided: Divided, record: int) -> None:
    offset = messages(divided.root)[record].physical_offset
    file = next(f for f in StoreScan(divided.root).log_files() if f.offset <= offset < f.offset + f.size)
    data = bytearray(file.path.read_bytes())
    data[offset - file.offset + 200] ^= 1
    file.path.write_bytes(data)
    report = Verifier(OfflineStore(divided.root)).run()
    assert str(file.path) in report.problems[0]


def test_verify_misses_the_queue_entries_of_old_records_though_the_group_has_decided_nothing(
    divided: Divided,
) -> None:
    (divided.root / "dledger-n0" / "checkpoint").write_text("endIndex=-1\ncommittedIndex=-1\n")
    path = min((divided.root / "consumequeue" / "T0" / "0").iterdir())
    path.write_bytes(path.read_bytes()[:20] + bytes(len(path.read_bytes()) - 20))
    problems = Verifier(OfflineStore(divided.root)).run().problems
    assert any("queue T0-0: no entry" in problem for problem in problems)


def test_exports_read_both_sides_of_the_divide(whole: Path, divided: Divided) -> None:
    wanted = ExportFilter(topic="T1", queue_id=1)
    folder, plain = OfflineStore(divided.root), OfflineStore(whole)
    complaints: list[str] = []
    expected = [seen(message) for message in by_queue(plain, wanted, complaints.append)]
    assert [seen(message) for message in by_queue(folder, wanted, complaints.append)] == expected
    assert [seen(message) for message in by_log(folder, wanted, lambda _done: None)] == expected
    assert len(expected) == COUNT // 6 and complaints == []


def test_spark_reads_both_sides_of_the_divide(divided: Divided) -> None:
    """As whole files, cut into pieces, and by queues."""
    store = ArrowStore(divided.root)
    store.check()
    numbers = [int(message.body.rstrip(b".")) for message in messages(divided.root)]
    for tasks in (1, 100):
        decoder = Decoder(("body",))
        found = [
            int(body.rstrip(b"."))
            for piece in store.log_pieces(tasks=tasks)
            for batch in store.read(piece, decoder)
            for body in batch.column(0).to_pylist()
        ]
        assert found == numbers
    for piece in store.queue_pieces(store.queues(["T0", "T1"])):
        assert sum(batch.num_rows for batch in store.read(piece, Decoder(("body",)))) == 20


def test_spark_reads_a_ledger_alone(whole: Path, tmp_path: Path) -> None:
    converted(whole, tmp_path / "ledger", StoreKind.DLEDGER)
    store = ArrowStore(tmp_path / "ledger")
    store.check()
    read = [batch for piece in store.log_pieces() for batch in store.read(piece, Decoder(("body",)))]
    assert sum(batch.num_rows for batch in read) == COUNT


def test_files_on_both_sides_are_cut_where_records_or_entries_begin(divided: Divided) -> None:
    scan = StoreScan(divided.root)
    begins = {walked.begin for walked in scan.records(rows=1)}
    for file in scan.log_files():
        cuts = [*scan.cuts(file, 10_000), file.offset + file.size]
        assert set(cuts[1:-1]) <= begins
        pieces = [
            walked.facts[row * Fact.WIDTH]
            for begin, end in pairwise(cuts)
            for walked in scan.file_records(file, begin - file.offset, end)
            for row in range(walked.count)
        ]
        whole = [w.facts[r * Fact.WIDTH] for w in scan.file_records(file) for r in range(w.count)]
        assert pieces == whole


def test_the_last_entry_of_a_queue_may_lie_on_either_side(divided: Divided) -> None:
    newest = messages(divided.root)[-1]
    entry = last_entry(StoreScan(divided.root), newest.topic, newest.queue_id)
    assert entry is not None and entry.physical_offset == newest.physical_offset
    shutil.rmtree(divided.root / "dledger-n0")
    left = last_entry(StoreScan(divided.root), newest.topic, newest.queue_id)
    assert left is not None and left.physical_offset < divided.divide


def test_a_glance_names_the_files_of_both_kinds(divided: Divided) -> None:
    facts = OfflineStore(divided.root).facts()
    newest = messages(divided.root)[-1]
    assert (facts.log_begin, facts.log_end) == (0, newest.physical_offset + newest.size)
    assert {file.path.parent.name for file in facts.log_files} == {"commitlog", "data"}
    assert facts.odd == []
