"""What is synced at each send is appended to single pages: a large folio would be written as a whole."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from flaremq.store.drafts import NewMessage
from flaremq.store.settings import FlushDisk, StoreSettings
from flaremq.store.store import MessageStore

FILE_SIZE = 1 << 20
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how files are mapped")


def advised(folder: Path) -> dict[str, bool]:
    """Files of the log by name: whether any part of their maps has no read-ahead (VmFlags rr)."""
    found: dict[str, bool] = {}
    name = ""
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ", 1)[0]:
            path = line.rpartition(" ")[2]
            name = Path(path).name if path.startswith(str(folder)) else ""
        elif name and line.startswith("VmFlags:"):
            found[name] = found.get(name, False) or " rr" in line
    return found


def a_store(folder: Path, flush: FlushDisk) -> MessageStore:
    return MessageStore(
        StoreSettings(root=folder, flush_disk=flush, commitlog_file_size=FILE_SIZE, message_size_max=1 << 18)
    )


def fill(store: MessageStore, files: int) -> None:
    message = NewMessage(topic=b"Orders", body=b"x" * 100_000)
    while len([file for file in store.log.files.files if file.wrote]) < files:
        store.put(message)


def test_the_file_that_is_appended_to_is_taken_page_by_page(tmp_path: Path) -> None:
    with a_store(tmp_path, FlushDisk.SYNC_FLUSH) as store:
        fill(store, 2)
        first, second = (file.path.name for file in store.log.files.files[:2])
        found = advised(tmp_path / "commitlog")
        assert found[second]
        assert not found[first], "readers of a full file want the system to read ahead"


def test_a_file_that_goes_on_after_a_start_is_taken_page_by_page(tmp_path: Path) -> None:
    with a_store(tmp_path, FlushDisk.SYNC_FLUSH) as store:
        fill(store, 1)
    with a_store(tmp_path, FlushDisk.SYNC_FLUSH) as store:
        assert advised(tmp_path / "commitlog")[store.log.files.files[0].path.name]


def test_nothing_is_advised_where_nobody_waits_for_syncs(tmp_path: Path) -> None:
    with a_store(tmp_path, FlushDisk.ASYNC_FLUSH) as store:
        fill(store, 2)
        assert not any(advised(tmp_path / "commitlog").values())
