"""Stores converted into ledgers and back: every message with all that consumers see of it."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flaremq.base.errors import CorruptStore, DiskFull, InvalidParameter, RecordTooLarge
from flaremq.dledger import convert, logwriter
from flaremq.dledger.convert import Conversion, Converted, StoreKind
from flaremq.dledger.note import ConversionNote
from flaremq.dledger.rebuild import rebuild_queues
from flaremq.model import layout
from flaremq.model.columns import Fact
from flaremq.model.message import StoredMessage
from flaremq.model.record import decode, stored_message
from flaremq.store.offline.folder import OfflineStore
from flaremq.store.offline.verify import Verifier
from flaremq.store.store import MessageStore
from flaremq.testing.fakes.builders import a_message, small_settings

HALF = b"RMQ_SYS_TRANS_HALF_TOPIC"
WHEEL = b"rmq_sys_wheel_timer"
COUNT = 120


def fill(root: Path, count: int = COUNT, **options: Any) -> None:
    """Several files of several topics, with keys."""
    with MessageStore(small_settings(root, **options)) as store:
        for n in range(count):
            properties = b"KEYS\x01k%d\x02TAGS\x01t%d\x02UNIQ_KEY\x01%032d\x02" % (n, n % 3, n)
            store.put(
                a_message(
                    b"%d" % n + b"." * 1200, topic=b"T%d" % (n % 2), queue_id=n % 3, properties=properties
                )
            )


def converted(source: Path, target: Path, kind: StoreKind, **more: Any) -> Converted:
    return Conversion(source, target, kind, small_settings(source), **more).run()


def messages(root: Path) -> list[StoredMessage]:
    return [
        stored_message(walked.view, walked.facts, row)
        for walked in OfflineStore(root).scan.records()
        for row in range(walked.count)
    ]


def seen(message: StoredMessage) -> tuple[object, ...]:
    """What does not depend on the place of its record."""
    return (
        *(message.topic, message.queue_id, message.queue_offset, message.body, message.raw_properties),
        *(message.born_timestamp_ms, message.store_timestamp_ms, message.sys_flag, message.flag),
    )


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    fill(tmp_path / "store")
    return tmp_path / "store"


def test_a_ledger_holds_every_message_at_its_queue_offset(store: Path, tmp_path: Path) -> None:
    done = converted(store, tmp_path / "ledger", StoreKind.DLEDGER, self_id="n2")
    before, after = messages(store), messages(tmp_path / "ledger")
    assert [seen(message) for message in after] == [seen(message) for message in before]
    assert (done.records, done.notes) == (COUNT, [])
    assert done.bytes == sum(message.size for message in before)
    ledger = tmp_path / "ledger" / "dledger-n2"
    assert (ledger / "checkpoint").read_text() == f"committedIndex={COUNT - 1}\nendIndex={COUNT - 1}\n"
    assert (ledger / "currterm").read_text() == "checksum=617476ae\nvoteLeader=\ncurrTerm=0\n"
    assert len(list((ledger / "data").iterdir())) > 2


def test_the_units_of_a_ledger_lead_to_its_entries(store: Path, tmp_path: Path) -> None:
    converted(store, tmp_path / "ledger", StoreKind.DLEDGER)
    units = next((tmp_path / "ledger" / "dledger-n0" / "index").iterdir()).read_bytes()
    assert len(units) == layout.DLEDGER_INDEX_FILE_SIZE
    for index, message in enumerate(messages(tmp_path / "ledger")):
        unit = struct.unpack_from(layout.DLEDGER_UNIT_FORMAT, units, index * layout.DLEDGER_UNIT_SIZE)
        position = message.physical_offset - layout.DLEDGER_HEADER_SIZE
        assert unit == (layout.DLEDGER_MAGIC, position, message.size + layout.DLEDGER_HEADER_SIZE, index, 0)


def test_there_and_back_gives_the_same_log_queues_and_keys(store: Path, tmp_path: Path) -> None:
    converted(store, tmp_path / "ledger", StoreKind.DLEDGER)
    converted(tmp_path / "ledger", tmp_path / "plain", StoreKind.PLAIN)
    for folder in ("commitlog", "consumequeue"):
        assert bytes_of(tmp_path / "plain" / folder) == bytes_of(store / folder)
    with MessageStore(small_settings(tmp_path / "plain")) as opened:
        assert opened.report is not None and opened.report.clean
        (found,) = opened.query(b"T1", b"k7", 10, 0, 1 << 60)
        assert decode(bytes(found)).body.startswith(b"7.")
        assert opened.put(a_message(b"new", topic=b"T0", queue_id=0)).queue_offset == COUNT // 6


@pytest.mark.parametrize("append_crc", [False, True], ids=["without", "with"])
def test_a_ledger_and_a_plain_store_are_sound(tmp_path: Path, append_crc: bool) -> None:
    fill(tmp_path / "store", append_crc=append_crc)
    for kind in (StoreKind.DLEDGER, StoreKind.PLAIN):
        source = tmp_path / ("store" if kind is StoreKind.DLEDGER else "dledger")
        converted(source, tmp_path / kind.value, kind)
        report = Verifier(OfflineStore(tmp_path / kind.value)).run()
        assert (report.problems, report.records, report.entries) == ([], COUNT, COUNT)


def test_damage_within_an_entry_is_reported(store: Path, tmp_path: Path) -> None:
    converted(store, tmp_path / "ledger", StoreKind.DLEDGER)
    path = min((tmp_path / "ledger" / "dledger-n0" / "data").iterdir())
    data = bytearray(path.read_bytes())
    data[messages(tmp_path / "ledger")[1].physical_offset + 200] ^= 1
    path.write_bytes(data)
    report = Verifier(OfflineStore(tmp_path / "ledger")).run()
    assert "the entry there holds no sound record" in report.problems[0]


def test_a_committed_message_names_the_copy_of_its_prepared_one(tmp_path: Path) -> None:
    with MessageStore(small_settings(tmp_path / "store", append_crc=True)) as store:
        store.put(a_message(b"before"))
        half = store.put(a_message(b"half", topic=HALF))
        for n in range(100):
            store.put(a_message(b"%d" % n + b"." * 400))
        store.put(a_message(b"paid", prepared_transaction_offset=half.physical_offset))
        store.put(a_message(b"of a half that is gone", prepared_transaction_offset=1))
    converted(tmp_path / "store", tmp_path / "ledger", StoreKind.DLEDGER)
    copies = messages(tmp_path / "ledger")
    assert copies[-2].prepared_transaction_offset == copies[1].physical_offset
    assert copies[-1].prepared_transaction_offset == 0
    assert Verifier(OfflineStore(tmp_path / "ledger")).run().is_sound


def test_a_waiting_timer_leads_to_its_copy(tmp_path: Path) -> None:
    with MessageStore(small_settings(tmp_path / "store")) as store:
        store.put(a_message(b"before"))
        waiting = store.put(a_message(b"waits", topic=WHEEL))
    units = b"".join(
        struct.pack(layout.TIMER_UNIT_FORMAT, layout.TIMER_UNIT_SIZE, -1, 1, 5, 6, at, 99, 7, 0)
        for at in (waiting.physical_offset, 1 << 40)
    )
    (tmp_path / "store" / "timerlog").mkdir()
    (tmp_path / "store" / "timerlog" / ("0" * 20)).write_bytes(units.ljust(4096, b"\0"))
    (tmp_path / "store" / "timerwheel").write_bytes(b"wheel")
    converted(tmp_path / "store", tmp_path / "ledger", StoreKind.DLEDGER)
    data = (tmp_path / "ledger" / "timerlog" / ("0" * 20)).read_bytes()
    found = [struct.unpack_from(layout.TIMER_UNIT_FORMAT, data, at) for at in (0, layout.TIMER_UNIT_SIZE)]
    assert [unit[5] for unit in found] == [messages(tmp_path / "ledger")[1].physical_offset, -1]
    assert found[0][:5] == (layout.TIMER_UNIT_SIZE, -1, 1, 5, 6)
    assert (tmp_path / "ledger" / "timerwheel").read_bytes() == b"wheel"


def test_tables_come_along_and_speak_of_the_new_log(store: Path, tmp_path: Path) -> None:
    config, third = store / "config", messages(store)[2]
    config.mkdir()
    (config / "consumerOffset.json").write_text('{"offsetTable":{"T0@g":{0:3}}}')
    (config / "deletedTopics.json").write_text(
        json.dumps({"deletedTopics": {"T0": third.physical_offset, "Gone": 1 << 40}})
    )
    (config / "deduplication.json").write_text('{"walkFrom": 4096}')
    (store / "kvStore").mkdir()
    done = converted(store, tmp_path / "ledger", StoreKind.DLEDGER)
    copied = tmp_path / "ledger" / "config"
    assert (copied / "consumerOffset.json").read_text() == '{"offsetTable":{"T0@g":{0:3}}}'
    assert not (copied / "deduplication.json").exists()
    deleted = json.loads((copied / "deletedTopics.json").read_text())["deletedTopics"]
    copies = messages(tmp_path / "ledger")
    end = copies[-1].physical_offset + copies[-1].size
    assert deleted == {"T0": copies[2].physical_offset, "Gone": end}
    assert done.notes == ["left behind: kvStore"]


def test_a_store_whose_oldest_files_were_deleted_is_converted_from_what_is_left(
    store: Path, tmp_path: Path
) -> None:
    min((store / "commitlog").iterdir()).unlink()
    left = messages(store)
    assert 0 < len(left) < COUNT
    converted(store, tmp_path / "ledger", StoreKind.DLEDGER)
    assert [seen(message) for message in messages(tmp_path / "ledger")] == [seen(message) for message in left]
    queues = OfflineStore(tmp_path / "ledger").queues.get("T0", 0)
    assert queues is not None and queues.end == COUNT // 6


@pytest.mark.parametrize("step", range(4))
def test_a_conversion_that_was_interrupted_goes_on(
    store: Path, tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After any file, and before the queues are made."""
    with MessageStore(small_settings(store)) as opened:
        half = opened.put(a_message(b"half", topic=HALF))
        for n in range(COUNT):
            opened.put(a_message(b"%d" % n + b"." * 400))
        opened.put(a_message(b"paid", prepared_transaction_offset=half.physical_offset))
    converted(store, tmp_path / "whole", StoreKind.DLEDGER)
    target, steps = tmp_path / "ledger", iter(range(100))

    class Cut(Exception):
        pass

    def cut_before(plain: Callable[..., Any]) -> Callable[..., Any]:
        def do(*given: Any, **named: Any) -> Any:
            if next(steps) == step:
                raise Cut
            return plain(*given, **named)

        return do

    with monkeypatch.context() as patch:
        patch.setattr(ConversionNote, "save", cut_before(ConversionNote.save))
        patch.setattr(convert, "rebuild_queues", cut_before(rebuild_queues))
        patch.setattr(ConversionNote, "finish", cut_before(ConversionNote.finish))
        with pytest.raises(Cut):
            converted(store, target, StoreKind.DLEDGER)
    assert ConversionNote.is_there(target)
    done = converted(store, target, StoreKind.DLEDGER)
    assert done.records == len(messages(store)) and not ConversionNote.is_there(target)
    for folder in ("dledger-n0", "consumequeue"):
        assert bytes_of(target / folder) == bytes_of(tmp_path / "whole" / folder)


def test_half_a_record_that_a_crash_left_is_not_taken(store: Path, tmp_path: Path) -> None:
    (store / "abort").touch()
    newest = messages(store)[-1]
    log = max((store / "commitlog").iterdir())
    data = bytearray(log.read_bytes())
    at = newest.physical_offset % len(data)
    data[at + newest.size - 1] ^= 1  # A property: only the lengths and the body are known to be right.
    data[at + 200] ^= 1
    log.write_bytes(data)
    done = converted(store, tmp_path / "ledger", StoreKind.DLEDGER)
    assert done.records == COUNT - 1
    assert done.notes == [f"half a record at {newest.physical_offset}, as after a crash, was left out"]


def damage(store: Path, tmp_path: Path) -> None:
    log = min((store / "commitlog").iterdir())
    data = bytearray(log.read_bytes())
    data[700] ^= 1
    log.write_bytes(data)


def fill_target(_store: Path, tmp_path: Path) -> None:
    (tmp_path / "ledger").mkdir()
    (tmp_path / "ledger" / "mine").touch()


def begin_another(store: Path, tmp_path: Path) -> None:
    shutil.copytree(store, tmp_path / "other")
    ConversionNote(tmp_path / "ledger", {"source": str(tmp_path / "other"), "sourceBegin": 0})


def add_ledgers(store: Path, _tmp_path: Path) -> None:
    for member in ("n0", "n1"):
        (store / f"dledger-{member}" / "data").mkdir(parents=True)


def lose_all(store: Path, _tmp_path: Path) -> None:
    for path in (store / "commitlog").iterdir():
        path.unlink()


@pytest.mark.parametrize(
    ("spoil", "error", "words"),
    [
        (damage, CorruptStore, "flaremq store verify"),
        (fill_target, InvalidParameter, "is not empty: name a new folder"),
        (begin_another, InvalidParameter, "another conversion is under way here, with source="),
        (add_ledgers, InvalidParameter, r"ledgers of several members \(dledger-n0, dledger-n1\)"),
        (lose_all, InvalidParameter, "no log files"),
    ],
)
def test_what_cannot_be_converted_is_refused_and_left_alone(
    store: Path, tmp_path: Path, spoil: Callable[[Path, Path], None], error: type[Exception], words: str
) -> None:
    spoil(store, tmp_path)
    before = bytes_of(store)
    with pytest.raises(error, match=words):
        converted(store, tmp_path / "ledger", StoreKind.DLEDGER)
    assert bytes_of(store) == before


def test_a_store_of_the_same_kind_one_that_is_open_and_a_folder_within_are_refused(
    store: Path, tmp_path: Path
) -> None:
    with pytest.raises(InvalidParameter, match="of this kind already: plain"):
        converted(store, tmp_path / "ledger", StoreKind.PLAIN)
    with pytest.raises(InvalidParameter, match="lies in the store itself"):
        converted(store, store / "ledger", StoreKind.DLEDGER)
    with MessageStore(small_settings(store)), pytest.raises(InvalidParameter, match="stop its broker first"):
        converted(store, tmp_path / "ledger", StoreKind.DLEDGER)
    assert not (tmp_path / "ledger").exists()


def test_a_disk_without_room_is_noticed_before_anything_is_written(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=1000))
    with pytest.raises(DiskFull, match="free some space, or name a folder on another disk"):
        converted(store, tmp_path / "ledger", StoreKind.DLEDGER)
    assert not (tmp_path / "ledger").exists()


def test_a_record_that_leaves_no_room_for_the_head_of_an_entry_is_named(tmp_path: Path) -> None:
    settings = small_settings(tmp_path / "store", message_size_max=62 * 1024)
    with MessageStore(settings) as store:
        size = store.put(a_message(b"")).size
        store.put(
            a_message(
                b"." * 62 * 1024, properties=b"." * (settings.commitlog_file_size - size - 62 * 1024 - 9)
            )
        )
    with pytest.raises(RecordTooLarge):
        converted(tmp_path / "store", tmp_path / "ledger", StoreKind.DLEDGER)


def test_a_copy_that_is_not_right_is_found(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    converted(store, tmp_path / "ledger", StoreKind.DLEDGER)
    plain = logwriter.LogWriter.roll

    def roll(self: logwriter.LogWriter) -> None:
        self.view[layout.FLAG_AT] ^= 1
        plain(self)

    monkeypatch.setattr(logwriter.LogWriter, "roll", roll)
    with pytest.raises(CorruptStore, match="record 0 is not that of"):
        converted(tmp_path / "ledger", tmp_path / "plain", StoreKind.PLAIN)


def test_a_queue_that_was_not_made_right_is_found(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def rebuild_wrong(disk: Any, settings: Any, member: str | None) -> None:
        rebuild_queues(disk, settings, member)
        path = next((settings.root / "consumequeue" / "T1" / "1").iterdir())
        data = bytearray(path.read_bytes())
        data[7] ^= 1
        path.write_bytes(data)

    monkeypatch.setattr(convert, "rebuild_queues", rebuild_wrong)
    with pytest.raises(CorruptStore, match="queue T1-1 has no entry 0"):
        converted(store, tmp_path / "ledger", StoreKind.DLEDGER)


def test_columns_of_entries_point_at_records(store: Path, tmp_path: Path) -> None:
    converted(store, tmp_path / "ledger", StoreKind.DLEDGER)
    walked = next(OfflineStore(tmp_path / "ledger").scan.records())
    assert (walked.begin, walked.facts[Fact.OFFSET]) == (0, layout.DLEDGER_HEADER_SIZE)


def test_entries_that_a_group_has_given_up_are_not_taken(store: Path, tmp_path: Path) -> None:
    """A later leader has written over some of them; the others still lie behind, whole and in place."""
    converted(store, tmp_path / "ledger", StoreKind.DLEDGER)
    ledger = tmp_path / "ledger" / "dledger-n0"
    kept = messages(tmp_path / "ledger")[:60]
    for path in (ledger / "data").iterdir():
        data = bytearray(path.read_bytes())
        for message in kept:
            at = message.physical_offset - layout.DLEDGER_HEADER_SIZE - int(path.name)
            if 0 <= at < len(data):
                struct.pack_into(">q", data, at + 16, 7)  # The term of the later leader.
        path.write_bytes(data)
    (ledger / "checkpoint").write_text("endIndex=59\ncommittedIndex=59\n")
    done = converted(tmp_path / "ledger", tmp_path / "plain", StoreKind.PLAIN)
    assert [seen(message) for message in messages(tmp_path / "plain")] == [seen(message) for message in kept]
    assert "the group has given them up" in done.notes[0]
    (ledger / "checkpoint").write_text("endIndex=99\ncommittedIndex=99\n")
    with pytest.raises(CorruptStore, match="flaremq store verify"):
        converted(tmp_path / "ledger", tmp_path / "again", StoreKind.PLAIN)


def test_a_torn_record_at_the_end_of_a_file_is_no_end_of_the_log_if_more_files_follow(
    store: Path, tmp_path: Path
) -> None:
    """The walk stops there, and what a crash leaves lies behind all other records."""
    (store / "abort").touch()
    first = min((store / "commitlog").iterdir())
    data = bytearray(first.read_bytes())
    newest = [message for message in messages(store) if message.physical_offset < len(data)][-1]
    data[newest.physical_offset + 200] ^= 1
    first.write_bytes(data)
    with pytest.raises(CorruptStore, match="flaremq store verify"):
        converted(store, tmp_path / "ledger", StoreKind.DLEDGER)
