"""The small files that say who has a folder and how it was left: lock, abort and checkpoint."""

import struct
from pathlib import Path

import pytest
from tests.java.driver import JavaStore, JavaStores
from tests.java.files import index_files
from tests.java.jvm import JavaStoreError
from tests.java.samples import mixed
from tests.java.sides import SMALL, assert_same_queues, our_store, put_all, scan_ours

from flaremq.base.errors import StoreLocked
from flaremq.store.files.disk import Disk
from flaremq.store.files.lock import StoreLock
from flaremq.store.index.indexfile import IndexHeader

pytestmark = pytest.mark.java


def refused_by_java(java: JavaStore, root: Path) -> None:
    with pytest.raises(JavaStoreError, match=r"open: .*Lock failed, ?MQ already started"):
        java.open(root, options=SMALL)


def refused_by_us(root: Path) -> None:
    with pytest.raises(StoreLocked, match=r"process \d+ has opened this store"), our_store(root):
        pass


def test_neither_opens_what_the_other_has_open(java_store: JavaStores, tmp_path: Path) -> None:
    with java_store() as java:
        java.open(tmp_path, options=SMALL)
        java.put(mixed(50))
        java.wait_dispatched()
        theirs = java.scan()
        refused_by_us(tmp_path)
        assert_same_queues(java.scan(), theirs)
        assert java.close()
        # Java locks a folder only after it has loaded it, so none of our stores is put at risk here.
        with StoreLock(tmp_path, Disk()):
            refused_by_java(java, tmp_path)
        with our_store(tmp_path) as store:
            assert_same_queues(scan_ours(store), theirs)


def test_java_takes_our_checkpoint_and_our_abort_for_its_own(java_store: JavaStores, tmp_path: Path) -> None:
    with our_store(tmp_path) as store:
        put_all(store, mixed(600))
        assert int((tmp_path / "abort").read_bytes()) > 0
        last_ms = store.log.last_store_ms
    full_until_ms = IndexHeader.read(index_files(tmp_path)[-2]).end_ms
    with java_store() as java:
        assert java.open(tmp_path, options=SMALL).last_exit_ok
        state = java.state()
        assert (state.physic_timestamp, state.logics_timestamp) == (last_ms, last_ms)
        assert state.index_timestamp == full_until_ms


def test_we_take_javas_checkpoint_and_abort_for_our_own(java_store: JavaStores, tmp_path: Path) -> None:
    with java_store() as java:
        java.open(tmp_path, options=SMALL)
        last_ms = java.put(mixed(600))[-1].store_timestamp or 0
        java.wait_dispatched()
        assert java.close()
    full_until_ms = IndexHeader.read(index_files(tmp_path)[-2]).end_ms
    noted_ms = struct.unpack_from(">qq", (tmp_path / "checkpoint").read_bytes())
    with our_store(tmp_path) as store:
        assert store.report is not None and store.report.clean
        # Java does not note the flushes that its shutdown does, so both may count as safe up to earlier.
        assert (store.checkpoint.log_time_ms, store.checkpoint.queue_time_ms) == noted_ms
        assert max(noted_ms) <= last_ms
        assert store.checkpoint.index_time_ms == full_until_ms
    with java_store() as java:
        java.open(tmp_path, options=SMALL)
        java.halt()
    with our_store(tmp_path) as store:
        assert store.report is not None and not store.report.clean
