"""The store lock, between processes and within one, and the mark of an unclean stop."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flaremq.base.errors import StoreError, StoreLocked
from flaremq.store.files.disk import Disk
from flaremq.store.files.lock import AbortFile, StoreLock

# Locks as RocketMQ does: byte 0 of the file, by fcntl. Says so, and holds it until stdin closes.
HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "a+")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def foreign_holder(path: Path) -> Iterator[int]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == "held\n"
        yield process.pid
        process.stdin.close()


def foreign_can_lock(path: Path) -> bool:
    tried = subprocess.run(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    return tried.returncode == 0


def test_the_lock_file_holds_what_java_writes(tmp_path: Path) -> None:
    with StoreLock(tmp_path / "store", Disk()):
        assert (tmp_path / "store" / "lock").stat().st_size == 4
    assert (tmp_path / "store" / "lock").read_bytes() == b"lock"


def test_other_words_in_the_lock_file_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "lock").write_bytes(b"something longer")
    with StoreLock(tmp_path, Disk()):
        pass
    assert (tmp_path / "lock").read_bytes() == b"lock"


def test_a_store_of_another_process_is_refused_with_its_pid(tmp_path: Path) -> None:
    with foreign_holder(tmp_path / "lock") as pid:
        lock = StoreLock(tmp_path, Disk())
        with pytest.raises(StoreLocked, match=f"{tmp_path}: process {pid} .*storePathRootDir"):
            lock.acquire()
        assert not lock.held


def test_a_lock_that_was_refused_can_be_had_later(tmp_path: Path) -> None:
    lock = StoreLock(tmp_path, Disk())
    with foreign_holder(tmp_path / "lock"), pytest.raises(StoreLocked):
        lock.acquire()
    lock.acquire()
    assert lock.held
    lock.release()


def test_another_process_is_kept_out_until_release(tmp_path: Path) -> None:
    lock = StoreLock(tmp_path, Disk())
    lock.acquire()
    assert not foreign_can_lock(tmp_path / "lock")
    lock.release()
    assert foreign_can_lock(tmp_path / "lock")


def test_a_second_store_in_one_process_is_refused_and_leaves_the_first_locked(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "store")
    with StoreLock(tmp_path / "store", Disk()):
        for same in ("store", "link"):
            with pytest.raises(StoreLocked, match=f"pid {os.getpid()}.* already opened"):
                StoreLock(tmp_path / same, Disk()).acquire()
        # A POSIX lock is lost when any descriptor of its file is closed: nothing was opened here.
        assert not foreign_can_lock(tmp_path / "store" / "lock")


def test_two_stores_in_one_process_may_have_two_folders(tmp_path: Path) -> None:
    with StoreLock(tmp_path / "a", Disk()), StoreLock(tmp_path / "b", Disk()):
        pass


def test_a_released_lock_may_be_taken_and_released_again(tmp_path: Path) -> None:
    lock = StoreLock(tmp_path, Disk())
    for _ in range(2):
        lock.acquire()
        lock.release()
    lock.release()
    assert not lock.held


def test_a_failed_body_gives_the_folder_back(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="load failed"), StoreLock(tmp_path, Disk()):
        raise RuntimeError("load failed")
    with StoreLock(tmp_path, Disk()) as lock:
        assert lock.held


def test_a_lock_file_that_cannot_be_opened_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with pytest.raises(StoreError, match="check owner and rights") as caught:
        StoreLock(tmp_path, Disk()).acquire()
    assert not isinstance(caught.value, StoreLocked)


def test_a_file_system_without_locks_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", no_locks)
    with pytest.raises(StoreError, match=r"No locks available.*POSIX locks"):
        StoreLock(tmp_path, Disk()).acquire()


def test_the_abort_mark_is_there_from_create_to_remove(tmp_path: Path) -> None:
    abort = AbortFile(tmp_path, Disk())
    assert not abort.exists()
    abort.create()
    assert abort.exists()
    assert (tmp_path / "abort").read_text() == str(os.getpid())
    abort.remove()
    assert not abort.exists()


def test_the_abort_mark_of_a_crashed_java_broker_is_seen_and_taken_over(tmp_path: Path) -> None:
    (tmp_path / "abort").write_text("4711")
    (tmp_path / "abort.bak").write_text("4711")
    abort = AbortFile(tmp_path, Disk())
    assert abort.exists()
    abort.create()
    abort.remove()
    abort.remove()
    assert not abort.exists()
