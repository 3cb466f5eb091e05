"""What a store holds after it was stopped, crashed, cut or damaged: all that was whole, and nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flaremq.base.errors import CorruptStore
from flaremq.model.record import decode, decode_many
from flaremq.store.api import GetStatus
from flaremq.store.recovery import RecoveryReport
from flaremq.store.store import MessageStore
from flaremq.testing.clock import ManualClock
from flaremq.testing.fakes.builders import NOW_MS, a_message, small_settings

TOPICS = (b"A", b"B")
FOREVER = 1 << 62


def opened(root: Path, **options: Any) -> MessageStore:
    store = MessageStore(small_settings(root, **options), clock=ManualClock(NOW_MS))
    store.open()
    return store


def everything(store: MessageStore) -> dict[tuple[bytes, int], list[tuple[int, bytes]]]:
    """Every queue with its messages, as (queue offset, body)."""
    found: dict[tuple[bytes, int], list[tuple[int, bytes]]] = {}
    for key, queue in store.queues.items():
        at = queue.min_offset
        messages: list[tuple[int, bytes]] = []
        while (result := store.get(*key, at)).status is GetStatus.FOUND:
            messages += [(m.queue_offset, m.body) for m in decode_many(result.gathered())]
            at = result.next_offset
        if messages:
            found[key] = messages
    return found


class Model:
    """What the store should hold: messages by queue, with the places of their records."""

    def __init__(self) -> None:
        self.messages: list[tuple[tuple[bytes, int], bytes, int]] = []

    def put(self, store: MessageStore, topic: bytes, queue_id: int, body: bytes) -> None:
        key = b"KEYS\x01k%d\x02" % len(self.messages)
        result = store.put(a_message(body, topic=topic, queue_id=queue_id, properties=key))
        self.messages.append(((topic, queue_id), body, result.end))

    def cut(self, end: int) -> None:
        self.messages = [m for m in self.messages if m[2] <= end]

    def expected(self) -> dict[tuple[bytes, int], list[tuple[int, bytes]]]:
        found: dict[tuple[bytes, int], list[tuple[int, bytes]]] = {}
        for key, body, _ in self.messages:
            found.setdefault(key, []).append((len(found.get(key, [])), body))
        return found


@contextmanager
def crashed_copy(store: MessageStore, root: Path) -> Iterator[Path]:
    """The folder as a killed process would leave it: what was written, no goodbye."""
    copy = root.with_name(root.name + "-crashed")
    shutil.copytree(root, copy)
    store.close()
    shutil.rmtree(root)
    copy.rename(root)
    yield root


def zero_from(root: Path, end: int, file_size: int = 64 * 1024) -> None:
    """Take the tail of the log away, as if it had never reached the disk."""
    for path in (root / "commitlog").iterdir():
        keep = max(0, min(file_size, end - int(path.name)))
        data = path.read_bytes()
        path.write_bytes(data[:keep] + bytes(file_size - keep))


puts = st.tuples(
    st.just("put"), st.sampled_from(TOPICS), st.integers(0, 2), st.binary(max_size=40), st.integers(0, 9000)
)
events = st.one_of(
    puts,
    puts,
    puts,
    st.tuples(st.sampled_from(["reopen", "crash", "lose queues", "lose index"])),
    st.tuples(st.just("cut"), st.integers(0, 20_000)),
)


class History:
    """A store and what it should hold, through one event after the other."""

    def __init__(self, root: Path, file_size: int, per_queue_file: int) -> None:
        self.root = root
        self.model = Model()
        self.options = {
            "commitlog_file_size": file_size,
            "consumequeue_file_size": 20 * per_queue_file,
            # Without a CRC of its own a record that is torn within its properties would pass for whole.
            "append_crc": True,
            "force_record_crc": True,
        }
        self.store = opened(root, **self.options)

    def happen(self, event: tuple[Any, ...]) -> None:
        if event[0] == "put":
            self.model.put(self.store, event[1], event[2], event[3] + bytes(event[4]))
            return
        if event[0] == "reopen":
            self.store.close()
        else:
            self._crash(event)
        self.store = opened(self.root, **self.options)

    def _crash(self, event: tuple[Any, ...]) -> None:
        end = self.store.log.end
        with crashed_copy(self.store, self.root):
            if event[0] == "cut":
                zero_from(self.root, max(0, end - event[1]), self.options["commitlog_file_size"])
                self.model.cut(max(0, end - event[1]))
            elif event[0] != "crash":
                lost = "index" if event[0] == "lose index" else "consumequeue"
                shutil.rmtree(self.root / lost, ignore_errors=True)

    def check(self) -> None:
        self.store.dispatch()
        assert everything(self.store) == self.model.expected()
        for number, (key, body, _) in enumerate(self.model.messages):
            found = self.store.query(key[0], b"k%d" % number, 64, 0, FOREVER)
            assert any(decode(record).body == body for record in found)


histories = {
    "script": st.lists(events, max_size=30),
    "file_size": st.sampled_from([20_480, 64 * 1024, 100_000]),
    "per_queue_file": st.sampled_from([1, 7, 50]),
}


def replay(script: list[tuple[Any, ...]], root: Path, file_size: int, per_queue_file: int) -> None:
    history = History(root / "store", file_size, per_queue_file)
    try:
        for event in script:
            history.happen(event)
        history.check()
    finally:
        history.store.close()


@settings(max_examples=25)
@given(**histories)
def test_any_history_reads_back_exactly(tmp_path_factory: pytest.TempPathFactory, **history: Any) -> None:
    replay(root=tmp_path_factory.mktemp("history"), **history)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@settings(max_examples=600)
@given(**histories)
def test_hundreds_of_histories_read_back_exactly(
    tmp_path_factory: pytest.TempPathFactory, **history: Any
) -> None:
    replay(root=tmp_path_factory.mktemp("history"), **history)


def fill(store: MessageStore, count: int, size: int = 300, queues: int = 3) -> Model:
    model = Model()
    for i in range(count):
        model.put(store, b"A", i % queues, str(i).encode() + b"." * size)
    store.dispatch()
    return model


def test_a_clean_stop_needs_no_dispatch_and_leaves_no_abort(tmp_path: Path) -> None:
    store = opened(tmp_path)
    model = fill(store, 600)
    store.close()
    assert not (tmp_path / "abort").exists()
    store = opened(tmp_path)
    report = store.report
    assert report is not None
    assert report.clean and report.cut_bytes == 0 and report.rebuilt == ()
    assert report.scanned_from == store.log.files.files[-1].offset
    assert everything(store) == model.expected()
    store.close()


def test_a_torn_last_record_is_cut_and_its_place_used_again(tmp_path: Path) -> None:
    store = opened(tmp_path)
    model = fill(store, 10)
    end = store.log.end
    with crashed_copy(store, tmp_path):
        path = tmp_path / "commitlog" / ("0" * 20)
        data = bytearray(path.read_bytes())
        data[end - 100] ^= 0xFF  # In the last body.
        path.write_bytes(data)
    store = opened(tmp_path)
    last_begin = model.messages[-2][2]
    assert store.log.end == last_begin
    assert store.report is not None
    assert store.report.cut_bytes > 0
    model.cut(last_begin)
    model.put(store, b"A", 0, b"short")
    store.dispatch()
    assert everything(store) == model.expected()
    store.close()


def test_dead_records_behind_the_end_do_not_rise_again(tmp_path: Path) -> None:
    """A tail is cut; then a record of exactly the size of the lost first one is put, and we crash."""
    store = opened(tmp_path)
    model = fill(store, 10, queues=1)
    sixth_end = model.messages[5][2]
    with crashed_copy(store, tmp_path):
        path = tmp_path / "commitlog" / ("0" * 20)
        data = bytearray(path.read_bytes())
        data[sixth_end + 95] ^= 0xFF
        path.write_bytes(data)
    store = opened(tmp_path)
    model.cut(sixth_end)
    model.put(store, b"A", 0, b"6" + b"." * 300)
    with crashed_copy(store, tmp_path):
        pass
    store = opened(tmp_path)
    assert everything(store) == model.expected()
    store.close()


def lost(root: Path, name: str) -> None:
    shutil.rmtree(root / name)


def halved(root: Path, name: str) -> None:
    path = next(p for p in sorted((root / name).rglob("*")) if p.is_file())
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(root: Path, name: str) -> None:
    path = next(p for p in sorted((root / name).rglob("*")) if p.is_file())
    path.write_bytes(b"")


def overwritten(root: Path, name: str) -> None:
    path = next(p for p in sorted((root / name).rglob("*")) if p.is_file())
    path.write_bytes(b"\xff" * path.stat().st_size)


@pytest.mark.parametrize("clean", [True, False], ids=["after a clean stop", "after a crash"])
@pytest.mark.parametrize("part", ["consumequeue", "index", "consumequeue/A/1"])
@pytest.mark.parametrize("damage", [lost, halved, emptied, overwritten], ids=lambda f: f.__name__)
def test_queues_and_index_are_rebuilt_from_the_log_alone(
    tmp_path: Path, clean: bool, part: str, damage: Any
) -> None:
    store = opened(tmp_path)
    model = fill(store, 500)
    if clean:
        store.close()
        damage(tmp_path, part)
    else:
        with crashed_copy(store, tmp_path):
            damage(tmp_path, part)
    store = opened(tmp_path)
    assert everything(store) == model.expected()
    for number in (0, 250, 499):
        (record,) = store.query(b"A", b"k%d" % number, 1, 0, FOREVER)
        assert decode(record).body == model.messages[number][1]
    store.close()


def test_keys_of_a_damaged_index_file_in_the_middle_are_found_again(tmp_path: Path) -> None:
    store = opened(tmp_path)
    fill(store, 1000)
    store.close()
    middle = sorted((tmp_path / "index").iterdir())[2]
    middle.write_bytes(b"\xff" * 100 + middle.read_bytes()[100:])
    store = opened(tmp_path)
    for number in range(0, 1000, 50):
        assert store.query(b"A", b"k%d" % number, 1, 0, FOREVER), number
    store.close()


def test_a_queue_entry_beyond_the_log_is_dropped(tmp_path: Path) -> None:
    store = opened(tmp_path)
    model = fill(store, 100)
    end = model.messages[49][2]
    with crashed_copy(store, tmp_path):
        zero_from(tmp_path, end)
    store = opened(tmp_path)
    model.cut(end)
    assert store.max_offset(b"A", 0) == 17
    assert everything(store) == model.expected()
    store.close()


def test_a_spare_file_of_zeros_is_no_harm(tmp_path: Path) -> None:
    store = opened(tmp_path)
    model = fill(store, 10)
    store.close()
    (tmp_path / "commitlog" / f"{64 * 1024:020d}").write_bytes(bytes(64 * 1024))
    (tmp_path / "abort").touch()
    store = opened(tmp_path)
    assert everything(store) == model.expected()
    store.close()


def test_without_a_log_all_queues_begin_anew(tmp_path: Path) -> None:
    store = opened(tmp_path)
    fill(store, 10)
    store.close()
    shutil.rmtree(tmp_path / "commitlog")
    store = opened(tmp_path)
    assert everything(store) == {}
    assert store.put(a_message(topic=b"A")).queue_offset == 0
    store.close()


def test_a_log_file_of_the_wrong_length_stops_the_start(tmp_path: Path) -> None:
    opened(tmp_path).close()
    (tmp_path / "commitlog").mkdir(exist_ok=True)
    (tmp_path / "commitlog" / ("0" * 20)).write_bytes(bytes(100))
    with pytest.raises(CorruptStore, match="100 bytes long, but files here have 65536"):
        opened(tmp_path)
    (tmp_path / "commitlog" / ("0" * 20)).unlink()
    opened(tmp_path).close()  # The refused start did not keep the lock.


@pytest.mark.parametrize(("check", "kept"), [(True, 4), (False, 10)])
def test_crcs_are_verified_only_if_asked_for(tmp_path: Path, check: bool, kept: int) -> None:
    store = opened(tmp_path)
    model = fill(store, 10, queues=1)
    with crashed_copy(store, tmp_path):
        path = tmp_path / "commitlog" / ("0" * 20)
        data = bytearray(path.read_bytes())
        data[model.messages[3][2] + 95] ^= 0xFF
        path.write_bytes(data)
    store = opened(tmp_path, check_crc_on_recover=check)
    assert store.max_offset(b"A", 0) == kept
    store.close()


def test_records_without_their_own_crc_are_cut_when_it_is_demanded(tmp_path: Path) -> None:
    store = opened(tmp_path, append_crc=True)
    fill(store, 5)
    store.close()
    store = opened(tmp_path)
    fill(store, 5)
    with crashed_copy(store, tmp_path):
        pass
    store = opened(tmp_path, force_record_crc=True, append_crc=True)
    assert isinstance(store.report, RecoveryReport)
    assert store.report.records == 5
    store.close()
