"""`flaremq store`: whole folders, damaged ones, and one that a broker writes to."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cli.commands import Ended, flaremq

from flaremq.model import layout
from flaremq.store.store import MessageStore
from flaremq.testing.fakes.builders import a_message, small_settings

COUNT = 300


def written(root: Path, count: int = COUNT) -> MessageStore:
    store = MessageStore(small_settings(root), owner_dispatches=True)
    store.open()
    for i in range(count):
        body = f"{i} {'.' * 500}".encode() if i % 50 else b"\xff\x00" + str(i).encode()
        store.put(
            a_message(body, queue_id=i % 3, properties=f"TAGS\x01Tag{i % 2}\x02KEYS\x01key{i}\x02".encode())
        )
    store.dispatch()
    return store


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("whole")
    written(root).close()
    return root


@pytest.fixture
def root(whole: Path, tmp_path: Path) -> Path:
    """A copy that may be damaged."""
    shutil.copytree(whole, tmp_path / "store")
    return tmp_path / "store"


def problems(root: Path) -> list[str]:
    ended = flaremq("store", "verify", root, "--json")
    found = json.loads(ended.out)
    assert ended.status == (0 if found["sound"] else 1), ended.err
    assert ended.err == ""
    assert len(found["problems"]) == found["problems_count"]
    sentences: list[str] = found["problems"]
    return sentences


def patch(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def log_file(root: Path, n: int) -> Path:
    return sorted((root / "commitlog").iterdir())[n]


def queue_file(root: Path, queue_id: int, n: int = 0) -> Path:
    return sorted((root / "consumequeue" / "TopicTest" / str(queue_id)).iterdir())[n]


# Whole ones.


def test_a_whole_store_is_sound(whole: Path) -> None:
    ended = flaremq("store", "verify", whole, "--json")
    found = ended.document
    assert (found["sound"], found["records"], found["queue_entries"]) == (True, COUNT, COUNT)
    assert found["index_entries"] == COUNT
    assert found["notes"] == []
    assert "is sound: 300 records" in flaremq("store", "verify", whole).out


def test_inspect_tells_files_ranges_and_queues(whole: Path) -> None:
    found = flaremq("store", "inspect", whole, "--json").document
    assert (found["held_by_pid"], found["abort_file"], found["odd"]) == (None, False, [])
    assert found["log"]["begin"] == 0
    assert [file["offset"] for file in found["log"]["files"]][:2] == [0, 64 << 10]
    assert found["log"]["end"] > 2 * (64 << 10)
    assert [(q["topic"], q["queue_id"], q["min_offset"], q["max_offset"]) for q in found["queues"]] == [
        ("TopicTest", n, 0, COUNT // 3) for n in range(3)
    ]
    assert sum(each["entries"] for each in found["index"]) == COUNT
    assert found["log"]["first_stored_at"].endswith("Z") and found["log"]["first_stored_at_ms"] > 0
    shown = flaremq("store", "inspect", whole).out
    assert "TopicTest" in shown and "by no process" in shown


def exported(root: Path, *words: object) -> list[dict[str, Any]]:
    ended = flaremq("store", "export", root, *words)
    assert (ended.status, ended.err) == (0, "")
    return [json.loads(line) for line in ended.lines]


def test_all_messages_are_exported_in_the_order_of_the_log(whole: Path) -> None:
    found = exported(whole)
    assert len(found) == COUNT
    assert [each["physical_offset"] for each in found] == sorted(each["physical_offset"] for each in found)
    assert found[1]["body"].startswith("1 ..") and found[1]["body_encoding"] == "utf-8"
    assert (found[0]["body"], found[0]["body_encoding"]) == ("/wAw", "base64")
    assert (found[7]["tags"], found[7]["keys"], found[7]["topic"]) == ("Tag1", ["key7"], "TopicTest")


@pytest.mark.parametrize("words", [(), ("--by-log",)])
def test_a_range_of_a_queue_is_exported(whole: Path, words: tuple[str, ...]) -> None:
    given = ("--topic", "TopicTest", "--queue", 2, "--from-offset", 10, "--to-offset", 13, *words)
    found = exported(whole, *given)
    assert [(each["queue_id"], each["queue_offset"]) for each in found] == [(2, 10), (2, 11), (2, 12)]


def test_messages_are_exported_by_key_time_and_number(whole: Path) -> None:
    (one,) = exported(whole, "--key", "key123")
    assert one["body"].startswith("123 ")
    assert exported(whole, "--topic", "TopicTest", "--key", "key9")[0]["queue_offset"] == 3
    assert exported(whole, "--to", "2001-01-01") == []
    assert len(exported(whole, "--from", one["stored_at_ms"], "--to", one["stored_at_ms"])) >= 1
    assert len(exported(whole, "--limit", 5)) == 5


@pytest.mark.parametrize(
    ("status", "words", "hint"),
    [
        (1, ("--queue", "1"), "--topic"),
        (1, ("--topic", "TopicTest", "--from-offset", "5", "--to-offset", "4"), "end offset 4"),
        (1, ("--topic", "Nowhere"), "TopicTest"),
        (1, ("--topic", "TopicTest", "--queue", "7"), "queue 7"),
        (2, ("--from", "soon"), "'soon'"),
        (1, ("--from", "now", "--to", "1h"), "end time"),
    ],
)
def test_what_cannot_be_exported_is_told(whole: Path, status: int, words: tuple[str, ...], hint: str) -> None:
    assert hint in flaremq("store", "export", whole, *words).complaint_with(status)


# Beside a broker.


@pytest.fixture
def live(tmp_path: Path) -> Iterator[MessageStore]:
    store = written(tmp_path / "live", 100)
    yield store
    store.close()


def changed_at(root: Path) -> dict[Path, int]:
    """When each file was changed, but for log files that a store makes ahead of need on its own."""
    ahead = f"{small_settings(root).commitlog_file_size:020d}"
    files = (path for path in root.rglob("*") if path.is_file())
    return {
        path: path.stat().st_mtime_ns
        for path in files
        if path.parent.name != "commitlog" or path.name < ahead
    }


def test_a_store_in_use_can_be_looked_at_and_keeps_its_lock(live: MessageStore, tmp_path: Path) -> None:
    root = tmp_path / "live"
    files = changed_at(root)
    found = flaremq("store", "inspect", root, "--json").document
    assert found["held_by_pid"] is not None and found["abort_file"]
    assert problems(root) == []
    assert len(exported(root)) == 100
    assert changed_at(root) == files
    live.put(a_message(b"goes on"))
    assert len(exported(root)) == 101


def test_beside_a_broker_what_it_has_not_dispatched_yet_is_not_judged_and_a_note_says_so(
    live: MessageStore, tmp_path: Path
) -> None:
    end = live.log.end
    live.put(a_message(b"not dispatched"))
    found = flaremq("store", "verify", tmp_path / "live", "--json").document
    assert found["sound"] and found["records"] == 100
    assert any(each.endswith(f"when this check began, up to offset {end}") for each in found["notes"])


def test_beside_a_broker_damage_is_found_all_the_same(live: MessageStore, tmp_path: Path) -> None:
    root = tmp_path / "live"
    patch(log_file(root, 0), 3000, b"DAMAGE")
    patch(queue_file(root, 1), 5 * layout.ENTRY_SIZE, bytes(layout.ENTRY_SIZE))
    found = problems(root)
    assert any("the CRC of the body is wrong" in each for each in found), found
    assert any("no entry for 1 record from offset" in each for each in found), found
    assert live.log.end  # It is still open.


# Damage.


def test_a_damaged_body_is_found_and_the_rest_is_read(root: Path) -> None:
    patch(log_file(root, 1), 3000, b"DAMAGE")
    found = problems(root)
    assert any("the CRC of the body is wrong" in each and str(log_file(root, 1)) in each for each in found)
    assert any("begins no record" in each and each.startswith("queue TopicTest-") for each in found)
    assert json.loads(flaremq("store", "verify", root, "--json").out)["records"] == COUNT - 1


@pytest.mark.parametrize(
    ("at", "data", "words"),
    [
        (0, struct.pack(">i", 20), "a record of 20 bytes cannot be"),
        (0, struct.pack(">i", 1 << 30), "cannot be"),
        (4, b"\0\0\0\1", "magic 0x00000001 is of no record"),
        (28, struct.pack(">q", 5), "says that it lies at 5"),
        (84, struct.pack(">i", 7), "do not add up"),
        (0, bytes(8), "zeros"),
    ],
)
def test_what_is_wrong_with_a_record_is_said_and_where(root: Path, at: int, data: bytes, words: str) -> None:
    log = log_file(root, 0)
    (size,) = struct.unpack_from(">i", log.read_bytes(), 0)
    patch(log, size + at, data)
    found = problems(root)
    assert any(words in each and f"offset {size})" in each for each in found), found


def test_a_record_that_went_to_another_topic_is_told(root: Path) -> None:
    log = log_file(root, 0)
    at = log.read_bytes().index(b"TopicTest")
    patch(log, at, b"\x80")  # No CRC covers it.
    assert any("queue TopicTest-0, entry 0" in each for each in problems(root))
    assert "\\udc80opicTest" in flaremq("store", "verify", root).out


def test_a_log_that_was_cut_off_in_the_middle_is_told(root: Path) -> None:
    with log_file(root, 1).open("r+b") as file:
        file.truncate(10_000)
    found = problems(root)
    assert any("10000 bytes long" in each for each in found)


def test_a_missing_log_file_is_told(root: Path) -> None:
    log_file(root, 1).unlink()
    assert any("the file before it ends at 65536" in each for each in problems(root))
    assert flaremq("store", "inspect", root, "--json").document["odd"]
    assert len(exported(root)) < COUNT


def test_an_empty_entry_among_others_is_told(root: Path) -> None:
    patch(queue_file(root, 1), 5 * layout.ENTRY_SIZE, bytes(layout.ENTRY_SIZE))
    assert any("queue TopicTest-1: no entry for 1 record from offset" in each for each in problems(root))


@pytest.mark.parametrize("offset", [3, 999_999_999, 1 << 62])
def test_an_entry_that_leads_elsewhere_is_told(root: Path, offset: int) -> None:
    patch(queue_file(root, 2), 7 * layout.ENTRY_SIZE, struct.pack(">q", offset))
    assert any("queue TopicTest-2, entry 7" in each for each in problems(root))


def test_a_wrong_tags_code_is_told(root: Path) -> None:
    patch(queue_file(root, 0), 12, struct.pack(">q", 77))
    assert any("has tags code 77" in each for each in problems(root))


def test_entries_that_were_lost_at_the_end_are_told(root: Path) -> None:
    last = max((root / "consumequeue" / "TopicTest" / "1").iterdir())
    last.write_bytes(bytes(last.stat().st_size))
    assert any("queue TopicTest-1: no entry for the newest" in each for each in problems(root))


def test_after_a_crash_they_are_only_noted(root: Path) -> None:
    (root / "abort").touch()
    last = max((root / "consumequeue" / "TopicTest" / "1").iterdir())
    last.write_bytes(bytes(last.stat().st_size))
    assert problems(root) == []


def test_a_deleted_topic_is_only_noted(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "TopicTest")
    found = flaremq("store", "verify", root, "--json").document
    assert found["sound"]
    assert any("topic TopicTest: 300 records, but no queue" in each for each in found["notes"])
    assert len(exported(root, "--topic", "TopicTest", "--by-log")) == COUNT


def test_a_damaged_index_is_told(root: Path) -> None:
    index = min((root / "index").iterdir())
    patch(
        index, layout.INDEX_HEADER_SIZE + 50 * layout.INDEX_SLOT_SIZE + layout.INDEX_ENTRY_SIZE, b"\xff" * 8
    )
    assert any(str(index) in each for each in problems(root))
    assert flaremq("store", "verify", root, "--no-index").status == 0


def test_export_of_a_damaged_queue_says_that_it_is_not_all(root: Path) -> None:
    patch(queue_file(root, 1), 5 * layout.ENTRY_SIZE, struct.pack(">q", 3))
    ended = flaremq("store", "export", root, "--topic", "TopicTest", "--queue", 1)
    assert ended.status == 0
    assert len(ended.lines) == 5
    assert "could be read up to offset 4 only" in ended.err


@pytest.mark.parametrize("command", ["inspect", "verify", "export"])
def test_a_folder_that_is_no_store_is_one_line(tmp_path: Path, command: str) -> None:
    assert "does not exist" in flaremq("store", command, tmp_path / "nowhere").complaint
    assert "is not a store folder" in flaremq("store", command, tmp_path).complaint
    (tmp_path / "file").write_text("x")
    assert "is a file" in flaremq("store", command, tmp_path / "file").complaint
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    assert f"did you mean {tmp_path / 'store'}?" in flaremq("store", command, tmp_path).complaint
    assert flaremq("store", command, tmp_path / "store").status == 0


Harm = Callable[[Path], None]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_damage_whatever_leads_to_a_traceback(whole: Path, tmp_path: Path, data: st.DataObject) -> None:
    root = tmp_path / "damaged"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(whole, root)
    files = sorted(path for path in root.rglob("*") if path.is_file())
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(files))
        if not path.exists():
            continue
        size = path.stat().st_size
        match data.draw(st.sampled_from(["patch", "cut", "empty", "remove"])):
            case "patch":
                patch(path, data.draw(st.integers(0, max(0, size - 1))), data.draw(st.binary(max_size=64)))
            case "cut":
                with path.open("r+b") as file:
                    file.truncate(data.draw(st.integers(0, size)))
            case "empty":
                path.write_bytes(b"")
            case _:
                path.unlink()
    ended: list[Ended] = [flaremq("store", command, root) for command in ("inspect", "verify", "export")]
    assert all(each.status in (0, 1) for each in ended)
    assert not any("this is a bug" in each.err for each in ended), [each.err for each in ended]
