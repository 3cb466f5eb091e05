"""Store folders as files: what two stores make of the same messages, byte for byte."""

import shutil
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.java.driver import JavaStore
from tests.java.sides import SMALL, Options
from tests.java.values import PutResult

from flaremq.model.layout import INDEX_ENTRY_FORMAT, index_slots
from flaremq.model.record import decode
from flaremq.store.index.indexfile import IndexHeader, entry_at, key_hash
from flaremq.store.offline.scan import StoreScan

Topics = Mapping[str, Mapping[str, str]]


def files_in(folder: Path) -> dict[str, bytes]:
    """Whole files by their path within the folder; none if there is no folder."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def index_files(root: Path) -> list[bytes]:
    """In their order, which their names give, as these are the times of their making.

    Java makes the next file with the next record, we with the next key: an empty last one does not count.
    """
    files = [data for _, data in sorted(files_in(root / "index").items())]
    return files[:-1] if files and IndexHeader.read(files[-1]).next_entry == 1 else files


def assert_same_files(found: Path, wanted: Path, folder: str) -> None:
    """One folder of two stores: the same names, and the same bytes from the first to the last."""
    one, other = files_in(found / folder), files_in(wanted / folder)
    assert sorted(one) == sorted(other)
    different = [name for name in sorted(one) if one[name] != other[name]]
    assert different == []


def assert_same_index(found: Path, wanted: Path) -> None:
    """Byte for byte; where Java has indexed tags as well (5.5), the same entries but for those."""
    one, other = index_files(found), index_files(wanted)
    ours, theirs = keys_of_index(one), keys_of_index(other)
    if len(ours) != len(theirs):
        fewer, more = sorted((ours, theirs), key=len)
        assert_same_but_for_tags(fewer, more, found)
        return
    assert [IndexHeader.read(data) for data in one] == [IndexHeader.read(data) for data in other]
    assert [place for place, data in enumerate(one) if data != other[place]] == []


def keys_of_index(files: list[bytes]) -> list[tuple[int, int]]:
    """Physical offset and hash of every entry, in the order in which they were put."""
    found: list[tuple[int, int]] = []
    for data in files:
        slots = index_slots(len(data))
        assert slots is not None
        for number in range(1, IndexHeader.read(data).next_entry):
            key, offset, _, _ = struct.unpack_from(INDEX_ENTRY_FORMAT, data, entry_at(slots, number))
            found.append((offset, key))
    return found


def assert_same_but_for_tags(fewer: list[tuple[int, int]], more: list[tuple[int, int]], root: Path) -> None:
    """RocketMQ 5.5 puts TOPIC#T#TAGS behind the keys of each record."""
    tags = set(_tag_keys(root))
    assert [entry for entry in more if entry not in tags] == [entry for entry in fewer if entry not in tags]
    assert set(fewer) <= set(more)
    assert set(more) - set(fewer) <= tags


def _tag_keys(root: Path) -> Iterator[tuple[int, int]]:
    for walked in StoreScan(root).records():
        for row in range(walked.count):
            message = decode(walked.record(row))
            tag = message.properties.get("TAGS")
            if tag:
                yield message.physical_offset, key_hash(message.topic.encode(), f"T#{tag}".encode())


def assert_same_queues_and_index(found: Path, wanted: Path) -> None:
    """All that is made from the log."""
    for folder in ("consumequeue", "consumequeue_ext", "batchconsumequeue"):
        assert_same_files(found, wanted, folder)
    assert_same_index(found, wanted)


def copy_log(root: Path, to: Path) -> Path:
    """A folder with the log alone, from which whoever opens it has to make the rest."""
    shutil.copytree(root / "commitlog", to / "commitlog")
    return to


@contextmanager
def opened(
    java: JavaStore, root: Path, options: Options = SMALL, topics: Topics | None = None
) -> Iterator[JavaStore]:
    """Java's store, closed in the end when everything is dispatched, and cleanly."""
    java.open(root, options=options, topics=topics)
    yield java
    java.wait_dispatched()
    assert java.close()


def stored(results: list[PutResult]) -> list[PutResult]:
    assert {result.status for result in results} == {"PUT_OK"}
    return results
