import threading
from pathlib import Path

import pytest

from flaremq.base.errors import CorruptStore
from flaremq.store.files.disk import Disk
from flaremq.store.files.filequeue import FileQueue, file_name
from flaremq.store.files.mappedfile import MappedFile, OpenFiles

SIZE = 4096


def queue_in(*folders: Path, open_files: OpenFiles | None = None) -> FileQueue:
    return FileQueue(Disk(), folders, SIZE, open_files=open_files)


def filled(folder: Path, count: int) -> FileQueue:
    queue = queue_in(folder)
    for i in range(count):
        queue.add(i * SIZE).append(bytes([i + 1]) * SIZE)
    return queue


def test_files_are_named_by_offset_in_twenty_digits(tmp_path: Path) -> None:
    filled(tmp_path, 2)
    assert [p.name for p in sorted(tmp_path.iterdir())] == ["0" * 20, "00000000000000004096"]


def test_a_loaded_queue_counts_as_full(tmp_path: Path) -> None:
    filled(tmp_path, 3).close()
    queue = queue_in(tmp_path)
    queue.load()
    assert [(f.offset, f.wrote, f.flushed) for f in queue.files] == [(i * SIZE, SIZE, SIZE) for i in range(3)]


def test_the_file_of_an_offset_is_found_and_none_outside(tmp_path: Path) -> None:
    queue = filled(tmp_path, 3)
    queue.drop_first(queue.files[0])
    assert queue.begin == SIZE
    assert queue.find(2 * SIZE - 1) is queue.files[0]
    assert queue.find(2 * SIZE) is queue.files[1]
    assert queue.find(SIZE - 1) is None
    assert queue.find(3 * SIZE) is None
    assert queue_in(tmp_path / "none").find(0) is None


def test_an_empty_last_file_is_removed_by_loading(tmp_path: Path) -> None:
    filled(tmp_path, 1).close()
    (tmp_path / file_name(SIZE)).touch()
    queue = queue_in(tmp_path)
    queue.load()
    assert len(queue.files) == 1
    assert not (tmp_path / file_name(SIZE)).exists()


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        (file_name(SIZE), SIZE - 1, "bytes long, but files here have 4096"),
        (file_name(2 * SIZE), SIZE, "a file is missing"),
        ("0" * 19 + "x", SIZE, "not a name of 20 digits"),
    ],
)
def test_a_foreign_file_stops_loading_and_is_named(
    tmp_path: Path, name: str, size: int, message: str
) -> None:
    filled(tmp_path, 1).close()
    (tmp_path / name).write_bytes(bytes(size))
    with pytest.raises(CorruptStore, match=message) as caught:
        queue_in(tmp_path).load()
    assert name in str(caught.value)


def test_files_of_several_folders_make_one_queue(tmp_path: Path) -> None:
    filled(tmp_path / "a", 2).close()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / file_name(SIZE)).rename(tmp_path / "b" / file_name(SIZE))
    queue = queue_in(tmp_path / "a", tmp_path / "b")
    queue.load()
    assert [f.path.parent.name for f in queue.files] == ["a", "b"]


def test_truncating_cuts_one_file_and_deletes_the_later_ones(tmp_path: Path) -> None:
    queue = filled(tmp_path, 3)
    queue.truncate(SIZE + 10)
    assert [f.wrote for f in queue.files] == [SIZE, 10]
    assert bytes(queue.files[1].view) == b"\x02" * 10 + bytes(SIZE - 10)
    assert len(list(tmp_path.iterdir())) == 2


def test_truncating_at_a_boundary_leaves_a_full_file(tmp_path: Path) -> None:
    queue = filled(tmp_path, 2)
    queue.truncate(SIZE)
    assert [f.wrote for f in queue.files] == [SIZE]
    queue.truncate(0)
    assert queue.files == ()
    assert list(tmp_path.iterdir()) == []


def test_dirty_pages_count_as_rocketmq_counts_them(tmp_path: Path) -> None:
    Disk().create(tmp_path / "f", 4 * SIZE)
    file = MappedFile(Disk(), tmp_path / "f", 0, 4 * SIZE)
    file.append(bytes(SIZE - 1))
    assert file.dirty_pages() == 0
    file.append(bytes(2))
    assert file.dirty_pages() == 1
    file.flush()
    assert (file.flushed, file.dirty_pages()) == (SIZE + 1, 0)
    file.append(bytes(4 * SIZE - file.wrote))
    assert file.dirty_pages() >= 4 * SIZE


def test_only_so_many_files_are_mapped_at_a_time(tmp_path: Path) -> None:
    open_files = OpenFiles(3)
    queue = queue_in(tmp_path, open_files=open_files)
    for i in range(10):
        queue.add(i * SIZE).append(bytes([i]) * SIZE)
    assert len(open_files) == 3
    assert [bytes(f.view[:1])[0] for f in queue.files] == list(range(10))
    assert len(open_files) == 3


def test_a_held_file_stays_mapped_though_others_would_rest(tmp_path: Path) -> None:
    queue = queue_in(tmp_path, open_files=OpenFiles(1))
    piece = queue.add(0).view[:4]
    other = queue.add(SIZE)
    other.append(b"data")
    queue.files[0].append(b"held")
    assert bytes(piece) == b"held"
    assert queue.files[0].held


def test_many_threads_share_few_open_files(tmp_path: Path) -> None:
    queue = queue_in(tmp_path, open_files=OpenFiles(2))
    for i in range(12):
        queue.add(i * SIZE).append(bytes([i]) * SIZE)
    wrong: list[object] = []

    def read(seed: int) -> None:
        try:
            for i in range(600):
                file = queue.files[(i * 7 + seed) % 12]
                if bytes(file.view[:2]) != bytes([file.offset // SIZE]) * 2:
                    wrong.append(file.offset)
        except Exception as error:  # noqa: BLE001
            wrong.append(error)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_deleted_file_can_still_be_read_by_who_found_it_before(tmp_path: Path) -> None:
    queue = filled(tmp_path, 2)
    first = queue.files[0]
    queue.drop_first(first)
    first.delete()
    assert bytes(first.view[:3]) == b"\x01\x01\x01"
    assert [p.name for p in tmp_path.iterdir()] == [file_name(SIZE)]
