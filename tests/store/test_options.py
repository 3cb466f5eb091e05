"""Every option of the store that must be honoured, by RocketMQ's own name: read, and obeyed.

The first half shows that each name reaches its setting. The table at the end names, for each, the test that
fails when the setting is ignored.
"""

from __future__ import annotations

import ast
import logging
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import flaremq
from flaremq.base.settings import Sources, dump, load
from flaremq.store.files.preallocate import Preallocator
from flaremq.store.queue.consumequeue import ConsumeQueue
from flaremq.store.settings import BrokerRole, FlushDisk, StoreSettings
from flaremq.store.store import MessageStore
from flaremq.testing.fakes.builders import a_message, small_settings
from flaremq.testing.fakes.disk import FaultyDisk

READ: list[tuple[str, str, str, Any]] = [
    ("storePathRootDir", "/data/store", "root", Path("/data/store")),
    ("storePathCommitLog", "/a,/b", "commitlog_folders", (Path("/a"), Path("/b"))),
    ("mappedFileSizeCommitLog", "1073741824", "commitlog_file_size", 1 << 30),
    ("mapedFileSizeCommitLog", "536870912", "commitlog_file_size", 1 << 29),
    ("mappedFileSizeConsumeQueue", "6000001", "consumequeue_bytes", 6_000_020),
    ("mapedFileSizeConsumeQueue", "2000", "consumequeue_bytes", 2000),
    ("enableConsumeQueueExt", "true", "ext_enabled", True),
    ("mappedFileSizeConsumeQueueExt", "1048576", "ext_file_size", 1 << 20),
    ("bitMapLengthConsumeQueueExt", "112", "ext_bit_map_length", 112),
    ("flushIntervalCommitLog", "700", "flush_interval_ms", 700),
    ("commitIntervalCommitLog", "150", "commit_interval_ms", 150),
    ("flushCommitLogTimed", "true", "flush_timed", True),
    ("flushIntervalConsumeQueue", "1500", "queue_flush_interval_ms", 1500),
    ("flushDelayOffsetInterval", "2500", "flush_delay_offsets_ms", 2500),
    ("timerWheelEnable", "false", "timer_enabled", False),
    ("timerPrecisionMs", "100", "timer_precision_ms", 100),
    ("timerRollWindowSlot", "3600", "timer_roll_ms", 3_600_000),
    ("mappedFileSizeTimerLog", "1048576", "timer_log_file_size", 1 << 20),
    ("timerFlushIntervalMs", "500", "timer_flush_ms", 500),
    ("timerMaxDelaySec", "3600", "timer_delay_max_s", 3600),
    ("timerCongestNumEachSlot", "1000", "timer_slot_max", 1000),
    ("cleanResourceInterval", "9000", "clean_interval_ms", 9000),
    ("deleteCommitLogFilesInterval", "50", "delete_log_interval_ms", 50),
    ("deleteConsumeQueueFilesInterval", "60", "delete_queue_interval_ms", 60),
    ("destroyMapedFileIntervalForcibly", "1000", "destroy_interval_ms", 1000),
    ("redeleteHangedFileInterval", "2000", "redelete_interval_ms", 2000),
    ("deleteWhen", "02;14", "delete_hours", frozenset({2, 14})),
    ("diskMaxUsedSpaceRatio", "80", "disk_max_used_ratio", 0.8),
    ("fileReservedTime", "48", "file_reserved_hours", 48),
    ("putMsgIndexHightWater", "1000", "dispatch_lag_max", 1000),
    ("maxMessageSize", "1048576", "message_size_max", 1 << 20),
    ("checkCRCOnRecover", "false", "check_crc_on_recover", False),
    ("flushCommitLogLeastPages", "8", "flush_least_pages", 8),
    ("commitCommitLogLeastPages", "9", "commit_least_pages", 9),
    ("flushLeastPagesWhenWarmMapedFile", "16", "warm_flush_least_pages", 16),
    ("flushConsumeQueueLeastPages", "3", "queue_flush_least_pages", 3),
    ("flushCommitLogThoroughInterval", "3000", "flush_thorough_interval_ms", 3000),
    ("commitCommitLogThoroughInterval", "400", "commit_thorough_interval_ms", 400),
    ("flushConsumeQueueThoroughInterval", "20000", "queue_flush_thorough_interval_ms", 20_000),
    ("flushDiskType", "SYNC_FLUSH", "flush_disk", FlushDisk.SYNC_FLUSH),
    ("transientStorePoolEnable", "true", "pool_enabled", True),
    ("brokerRole", "SLAVE", "role", BrokerRole.SLAVE),
]

REPLICATED = frozenset({"replication"})
"""What a store needs of its process before it may be a slave's."""


@pytest.mark.parametrize(("name", "text", "setting", "value"), READ, ids=[row[0] for row in READ])
def test_rocketmqs_name_sets_it(tmp_path: Path, name: str, text: str, setting: str, value: Any) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"# a broker.conf\n{name} = {text}\n")
    (settings,) = load(Sources.of(conf), StoreSettings, available=REPLICATED)
    assert getattr(settings, setting) == value
    (again,) = load(Sources.of(None, {}, [f"{name}={text}"]), StoreSettings, available=REPLICATED)
    assert again == settings


def test_what_is_printed_reads_back_as_the_same_settings(tmp_path: Path) -> None:
    settings = small_settings(tmp_path, commitlog_paths=("/a", "/b"), delete_when="01;02")
    (again,) = load(Sources.of(None, {}, [f"{k}={v}" for k, v in dump(settings)]), StoreSettings)
    assert again == settings


def test_a_choice_of_javas_locks_is_accepted_and_told_to_have_no_effect(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        load(Sources.of(None, {}, ["useReentrantLockWhenPutMessage=false"]), StoreSettings)
    lines = [r.getMessage() for r in caplog.records if "useReentrantLockWhenPutMessage" in r.getMessage()]
    assert len(lines) == 1
    assert "no effect" in lines[0]


def test_everything_lies_below_the_root(tmp_path: Path) -> None:
    with MessageStore(small_settings(tmp_path / "here")) as store:
        store.put(a_message())
        store.dispatch()
    assert [path.name for path in tmp_path.iterdir()] == ["here"]
    names = {path.name for path in (tmp_path / "here").iterdir()}
    assert {"commitlog", "consumequeue", "checkpoint", "lock"} <= names


def test_the_cleaner_rests_for_its_interval(tmp_path: Path) -> None:
    with MessageStore(small_settings(tmp_path, clean_interval_ms=9000)) as store:
        assert store.workers._clean_step(store.workers.cleaner) == 9.0


@pytest.mark.parametrize(("pages", "syncs"), [(4, 4 + 1), (16, 1 + 1), (100, 1)])
def test_a_file_that_is_warmed_under_sync_flush_is_synced_in_portions(
    tmp_path: Path, pages: int, syncs: int
) -> None:
    disk = FaultyDisk()
    settings = small_settings(
        tmp_path, warm_enabled=True, warm_flush_least_pages=pages, flush_disk=FlushDisk.SYNC_FLUSH
    )
    Preallocator(disk, settings).make(0, tmp_path / "commitlog" / "0")  # 16 pages long.
    assert len(disk.synced) == syncs


@pytest.mark.parametrize(("bits", "stored"), [(112, 14), (128, 16), (64, 0)])
def test_a_bit_map_has_the_configured_length(tmp_path: Path, bits: int, stored: int) -> None:
    class FourteenBytes:
        def bit_map(self, topic: bytes, properties: object) -> bytes:
            return b"\x01" * 14

    settings = small_settings(tmp_path, ext_enabled=True, ext_bit_map_length=bits)
    with MessageStore(settings, bit_mapper=FourteenBytes()) as store:
        store.put(a_message())
        store.dispatch()
        ext, queue = store.queues.ext((b"TopicTest", 0)), store.queues.get(b"TopicTest", 0)
        assert isinstance(queue, ConsumeQueue)
        assert ext is not None
        entry = queue.entry(0)
        assert entry is not None
        unit = ext.get(entry[2])
        assert unit is not None
        assert len(unit.bit_map) == stored


OBEYED = {
    "storePathRootDir": "test_everything_lies_below_the_root",
    "storePathCommitLog": "test_several_folders_take_turns_and_a_full_one_is_passed_over",
    "mappedFileSizeCommitLog": "test_a_record_that_does_not_fit_starts_the_next_file",
    "mappedFileSizeConsumeQueue": "test_a_read_crosses_queue_files_only_when_allowed_and_empty_handed",
    "enableConsumeQueueExt": "test_queue_extensions_hold_calculated_bit_maps",
    "mappedFileSizeConsumeQueueExt": "test_queue_extensions_hold_calculated_bit_maps",
    "bitMapLengthConsumeQueueExt": "test_a_bit_map_has_the_configured_length",
    "flushIntervalCommitLog": "test_the_log_is_flushed_every_interval_when_enough_pages_are_dirty",
    "commitIntervalCommitLog": "test_the_pool_is_committed_by_pages_and_by_time",
    "useReentrantLockWhenPutMessage": ("test_a_choice_of_javas_locks_is_accepted_and_told_to_have_no_effect"),
    "flushCommitLogTimed": "test_a_put_wakes_the_flusher_unless_it_is_timed",
    "flushIntervalConsumeQueue": "test_queues_are_flushed_every_interval_when_enough_pages_are_dirty",
    "cleanResourceInterval": "test_the_cleaner_rests_for_its_interval",
    "deleteCommitLogFilesInterval": "test_the_disk_gets_a_pause_between_two_deletions",
    "deleteConsumeQueueFilesInterval": "test_a_queue_that_lost_files_is_followed_by_a_pause",
    "destroyMapedFileIntervalForcibly": (
        "test_the_name_goes_at_the_latest_after_the_grace_and_the_reader_keeps_its_bytes"
    ),
    "redeleteHangedFileInterval": "test_a_postponed_file_is_asked_again_after_an_interval",
    "deleteWhen": "test_the_hour_is_an_option_and_is_local",
    "diskMaxUsedSpaceRatio": "test_the_first_level_is_an_option",
    "fileReservedTime": "test_how_long_files_are_kept_is_an_option",
    "putMsgIndexHightWater": "test_puts_are_refused_while_dispatch_is_too_far_behind",
    "maxMessageSize": "test_what_is_too_large_changes_nothing",
    "checkCRCOnRecover": "test_crcs_are_verified_only_if_asked_for",
    "flushCommitLogLeastPages": "test_the_log_is_flushed_every_interval_when_enough_pages_are_dirty",
    "commitCommitLogLeastPages": "test_the_pool_is_committed_by_pages_and_by_time",
    "flushLeastPagesWhenWarmMapedFile": ("test_a_file_that_is_warmed_under_sync_flush_is_synced_in_portions"),
    "flushConsumeQueueLeastPages": "test_queues_are_flushed_every_interval_when_enough_pages_are_dirty",
    "flushCommitLogThoroughInterval": (
        "test_after_the_thorough_interval_every_byte_is_flushed_and_the_checkpoint_moves"
    ),
    "commitCommitLogThoroughInterval": "test_the_pool_is_committed_by_pages_and_by_time",
    "flushConsumeQueueThoroughInterval": (
        "test_after_the_thorough_interval_all_queues_are_flushed_and_the_checkpoint_says_so"
    ),
    "flushDiskType": "test_what_may_be_seen_follows_the_flush_type",
    "transientStorePoolEnable": "test_with_the_pool_only_committed_bytes_are_read_or_flushed",
    "brokerRole": "test_a_slave_takes_no_messages",
    "flushDelayOffsetInterval": "test_progress_is_saved_as_often_as_is_configured",
    "timerWheelEnable": "test_a_broker_without_the_wheel_says_so",
    "timerPrecisionMs": "test_a_finer_precision_brings_messages_closer_to_their_moment",
    "timerRollWindowSlot": "test_a_far_moment_rolls_and_comes_once_and_in_time",
    "mappedFileSizeTimerLog": "test_old_files_of_the_timer_log_go_with_their_messages",
    "timerFlushIntervalMs": "test_progress_of_the_wheel_is_saved_as_often_as_is_configured",
    "timerMaxDelaySec": "test_a_delay_over_the_cap_is_refused_with_the_cap",
    "timerCongestNumEachSlot": "test_a_second_that_is_full_takes_no_more",
}


FOLDER = Path(__file__).parent


def test_every_option_that_must_be_honoured_has_a_test_that_knows_it() -> None:
    names = {name for name, _, _, _ in READ} - {"mapedFileSizeCommitLog", "mapedFileSizeConsumeQueue"}
    assert set(OBEYED) == names | {"useReentrantLockWhenPutMessage"}
    tests = {
        node.name
        for path in (*FOLDER.glob("test_*.py"), *(FOLDER.parent / "broker" / "delay").glob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert set(OBEYED.values()) <= tests


def test_every_setting_is_read_by_somebody() -> None:
    """A setting that nobody reads promises an operator what it does not keep: it has no effect, and is
    listed so in docs/options.md."""
    package = Path(flaremq.__file__).parent
    read = {
        node.attr
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
    }
    assert {field.name for field in fields(StoreSettings)} <= read
