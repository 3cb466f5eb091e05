"""The options of the store, under our names and with Java's, and the relations between them.

A default that is not RocketMQ's says why in docs/options.md. What Java clamps in silence is kept
as it was written and clamped by a property, so that a dump of the settings shows the operator's words.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from flaremq.base.errors import ConfigError
from flaremq.base.settings import check, computed, option
from flaremq.base.units import KiB, MiB
from flaremq.model import layout
from flaremq.model.delays import LEVELS, parse_levels

# Java keeps sizes and counts in an int, so it could not open a larger file.
_INT_MAX: Final = (1 << 31) - 1
_ROLL_SLOTS_MAX: Final = layout.WHEEL_SLOTS // 2 - 60
_TIMER_FILE_MIN: Final = layout.TIMER_UNIT_SIZE + layout.TIMER_BLANK_SIZE
_HEAD_ROOM: Final = 64 * KiB  # How much larger a record may be than the largest body.


LIVE: Final = (
    "delete_when",
    "disk_max_used_percent",
    "disk_clean_forcibly_percent",
    "disk_warning_percent",
    "clean_forcibly_enabled",
    "file_reserved_hours",
)
"""Settings that may change while a store is open: which files go, and when."""


class FlushDisk(Enum):
    """When a producer is answered: after the append, or after the sync that covers it."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


class BrokerRole(Enum):
    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """The settings of a store, checked when they are made."""

    # Where.
    root: Path = computed("storePathRootDir", lambda: Path.home() / "store")
    commitlog_paths: tuple[str, ...] = option("storePathCommitLog", ())
    read_only_commitlog_paths: tuple[str, ...] = option("readOnlyCommitLogStorePaths", ())

    # How large. A store that holds data keeps the sizes it was written with.
    commitlog_file_size: int = option(
        "mappedFileSizeCommitLog",
        1024 * MiB,
        also=("mapedFileSizeCommitLog",),
        minimum=layout.PAGE,
        maximum=_INT_MAX,
        unit="size",
    )
    consumequeue_file_size: int = option(
        "mappedFileSizeConsumeQueue",
        300_000 * layout.ENTRY_SIZE,
        also=("mapedFileSizeConsumeQueue",),
        minimum=1,
        maximum=_INT_MAX - layout.ENTRY_SIZE,
        unit="size",
    )
    ext_enabled: bool = option("enableConsumeQueueExt", False)
    ext_file_size: int = option(
        "mappedFileSizeConsumeQueueExt", 48 * MiB, minimum=1, maximum=_INT_MAX, unit="size"
    )
    ext_bit_map_length: int = option(
        "bitMapLengthConsumeQueueExt",
        64,
        minimum=0,
        maximum=8 * (layout.EXT_UNIT_SIZE_MAX - layout.EXT_UNIT_FIXED_SIZE),
    )
    batch_queue_file_size: int = option(
        "mapperFileSizeBatchConsumeQueue",
        300_000 * layout.BATCH_ENTRY_SIZE,
        minimum=1,
        maximum=_INT_MAX,
        unit="size",
    )

    # When bytes become safe.
    flush_disk: FlushDisk = option("flushDiskType", FlushDisk.ASYNC_FLUSH)
    flush_interval_ms: int = option("flushIntervalCommitLog", 500, minimum=1, unit="span_ms")
    flush_timed: bool = option("flushCommitLogTimed", False)
    flush_wake_on_put: bool = option("wakeFlushWhenPutMessage", True)
    flush_least_pages: int = option("flushCommitLogLeastPages", 4, minimum=0)
    flush_thorough_interval_ms: int = option(
        "flushCommitLogThoroughInterval", 10_000, minimum=0, unit="span_ms"
    )
    sync_flush_timeout_ms: int = option("syncFlushTimeout", 5_000, minimum=1, unit="span_ms")
    commit_interval_ms: int = option("commitIntervalCommitLog", 200, minimum=1, unit="span_ms")
    commit_least_pages: int = option("commitCommitLogLeastPages", 4, minimum=0)
    commit_thorough_interval_ms: int = option(
        "commitCommitLogThoroughInterval", 200, minimum=0, unit="span_ms"
    )
    commit_wake_on_put: bool = option("wakeCommitWhenPutMessage", True)
    queue_flush_interval_ms: int = option("flushIntervalConsumeQueue", 1_000, minimum=1, unit="span_ms")
    queue_flush_least_pages: int = option("flushConsumeQueueLeastPages", 2, minimum=0)
    queue_flush_thorough_interval_ms: int = option(
        "flushConsumeQueueThoroughInterval", 60_000, minimum=0, unit="span_ms"
    )

    # How files are made ready.
    pool_enabled: bool = option("transientStorePoolEnable", False)
    pool_size: int = option("transientStorePoolSize", 5, minimum=1, maximum=1024)
    pool_fast_fail: bool = option("fastFailIfNoBufferInStorePool", False)
    warm_enabled: bool = option("warmMapedFileEnable", False)
    warm_flush_least_pages: int = option("flushLeastPagesWhenWarmMapedFile", 4096, minimum=1)
    read_ahead_enabled: bool = option("dataReadAheadEnable", True)

    # What a record may be.
    message_size_max: int = option(
        "maxMessageSize", 4 * MiB, minimum=1, maximum=_INT_MAX - _HEAD_ROOM, unit="size"
    )
    append_crc: bool = option("enabledAppendPropCRC", False)
    check_crc_on_recover: bool = option("checkCRCOnRecover", True)
    force_record_crc: bool = option("forceVerifyPropCRC", False)
    auto_v2: bool = option("autoMessageVersionOnTopicLen", True)

    # What goes, and when.
    clean_interval_ms: int = option("cleanResourceInterval", 10_000, minimum=1, unit="span_ms")
    delete_log_interval_ms: int = option("deleteCommitLogFilesInterval", 100, minimum=0, unit="span_ms")
    delete_queue_interval_ms: int = option("deleteConsumeQueueFilesInterval", 100, minimum=0, unit="span_ms")
    destroy_interval_ms: int = option("destroyMapedFileIntervalForcibly", 120_000, minimum=0, unit="span_ms")
    redelete_interval_ms: int = option("redeleteHangedFileInterval", 120_000, minimum=0, unit="span_ms")
    delete_when: str = option("deleteWhen", "04")
    disk_max_used_percent: int = option("diskMaxUsedSpaceRatio", 75)
    disk_clean_forcibly_percent: int = option("diskSpaceCleanForciblyRatio", 85)
    disk_warning_percent: int = option("diskSpaceWarningLevelRatio", 90)
    clean_forcibly_enabled: bool = option("cleanFileForciblyEnable", True)
    file_reserved_hours: int = option("fileReservedTime", 72, minimum=0)
    delete_batch_max: int = option("deleteFileBatchMax", 10, minimum=1)
    replicas_per_partition: int = option("replicasPerDiskPartition", 1, minimum=1)
    logical_disk_threshold: float = option(
        "logicalDiskSpaceCleanForciblyThreshold", 0.8, minimum=0.01, maximum=1.0
    )

    # Keys.
    index_enabled: bool = option("messageIndexEnable", True)
    index_slots: int = option("maxHashSlotNum", 5_000_000, minimum=1)
    index_entries: int = option("maxIndexNum", 20_000_000, minimum=2)  # Entry 0 is never used.
    query_max: int = option("maxMsgsNumBatch", 64, minimum=1)
    unique_query_max: int = option("defaultQueryMaxNum", 32, minimum=1)

    # When a put is refused.
    dispatch_lag_max: int = option("putMsgIndexHightWater", 600_000, minimum=1)
    page_cache_busy_ms: int = option("osPageCacheBusyTimeOutMills", 1_000, minimum=1, unit="span_ms")

    # How much one read takes.
    filter_scan_max: int = option("maxFilterMessageSize", 16_000, minimum=1)
    transfer_bytes_in_memory: int = option(
        "maxTransferBytesOnMessageInMemory", 256 * KiB, minimum=1, unit="size"
    )
    transfer_count_in_memory: int = option("maxTransferCountOnMessageInMemory", 1024, minimum=1)
    transfer_bytes_on_disk: int = option("maxTransferBytesOnMessageInDisk", 64 * KiB, minimum=1, unit="size")
    transfer_count_on_disk: int = option("maxTransferCountOnMessageInDisk", 8, minimum=1)
    in_memory_percent: int = option("accessMessageInMemoryMaxRatio", 40, minimum=0, maximum=100)
    travel_queue_files: int = option("travelCqFileNumWhenGetMessage", 1, minimum=1)

    # What this store is to others.
    role: BrokerRole = option("brokerRole", BrokerRole.ASYNC_MASTER)
    offset_check_in_slave: bool = option("offsetCheckInSlave", False)
    read_uncommitted: bool = option("readUnCommitted", False)
    lmq_enabled: bool = option("enableLmq", False)
    multi_dispatch_enabled: bool = option("enableMultiDispatch", False)
    delay_levels: str = option("messageDelayLevel", LEVELS)
    flush_delay_offsets_ms: int = option("flushDelayOffsetInterval", 10_000, minimum=1, unit="span_ms")
    timer_enabled: bool = option("timerWheelEnable", True)
    timer_precision_ms: int = option("timerPrecisionMs", 1_000, minimum=1, maximum=60_000, unit="span_ms")
    timer_roll_slots: int = option("timerRollWindowSlot", 172_800)
    timer_log_file_size: int = option(
        "mappedFileSizeTimerLog", 100 * MiB, minimum=_TIMER_FILE_MIN, maximum=_INT_MAX, unit="size"
    )
    timer_flush_ms: int = option("timerFlushIntervalMs", 1_000, minimum=1, unit="span_ms")
    timer_delay_max_s: int = option("timerMaxDelaySec", 0, minimum=0)
    timer_slot_max: int = option("timerCongestNumEachSlot", _INT_MAX, minimum=1)
    correct_min_offset_interval_ms: int = option(
        "correctLogicMinOffsetForceInterval", 300_000, minimum=0, unit="span_ms"
    )

    def __post_init__(self) -> None:
        check(self)
        _check_sizes(self)
        _check_folders(self)
        _check_levels(self)
        _ = self.delete_hours, self.delay_levels_ms  # Each raises for text that it cannot read.

    @property
    def commitlog_folders(self) -> tuple[Path, ...]:
        """Where log files may be created."""
        paths = self.commitlog_paths or (str(self.root / "commitlog"),)
        return tuple(Path(path) for path in paths if path not in self.read_only_commitlog_paths)

    @property
    def read_only_commitlog_folders(self) -> tuple[Path, ...]:
        """Where log files are read and deleted, but never created."""
        return tuple(Path(path) for path in self.read_only_commitlog_paths)

    @property
    def consumequeue_folder(self) -> Path:
        return self.root / "consumequeue"

    @property
    def ext_folder(self) -> Path:
        return self.root / "consumequeue_ext"

    @property
    def batch_queue_folder(self) -> Path:
        return self.root / "batchconsumequeue"

    @property
    def index_folder(self) -> Path:
        return self.root / "index"

    @property
    def consumequeue_bytes(self) -> int:
        """The size of a queue file: whole entries, as Java rounds it."""
        return -(-self.consumequeue_file_size // layout.ENTRY_SIZE) * layout.ENTRY_SIZE

    @property
    def index_file_size(self) -> int:
        return (
            layout.INDEX_HEADER_SIZE
            + self.index_slots * layout.INDEX_SLOT_SIZE
            + self.index_entries * layout.INDEX_ENTRY_SIZE
        )

    @property
    def record_size_max(self) -> int:
        """The largest record: a body with its head room, as far as a log file can hold it."""
        return min(self.message_size_max + _HEAD_ROOM, self.commitlog_file_size - layout.BLANK_SIZE)

    @property
    def pool_used(self) -> bool:
        """A slave gets its bytes through the map and has no use for buffers, as in Java."""
        return self.pool_enabled and self.role is not BrokerRole.SLAVE

    @property
    def disk_max_used_ratio(self) -> float:
        """Above it old files go at any hour."""
        return _clamped(self.disk_max_used_percent, 10, 95)

    @property
    def disk_clean_forcibly_ratio(self) -> float:
        """Above it files go whatever their age."""
        return _clamped(self.disk_clean_forcibly_percent, 30, 85)

    @property
    def disk_warning_ratio(self) -> float:
        """Above it nothing more is written."""
        return _clamped(self.disk_warning_percent, 35, 90)

    @property
    def delete_hours(self) -> frozenset[int]:
        """Hours of the day, local time, at which files go for their age alone."""
        hours = [text.strip() for text in self.delete_when.split(";")]
        if not all(text.isascii() and text.isdigit() and int(text) <= 23 for text in hours):
            raise ConfigError(
                f"deleteWhen={self.delete_when!r}: expected hours from 0 to 23, separated by ; as in 04;16"
            )
        return frozenset(int(text) for text in hours)

    @property
    def timer_roll_ms(self) -> int:
        """How far ahead a timer message is entered; one for a later moment is put back on the way."""
        slots = self.timer_roll_slots
        return (slots if 2 <= slots <= _ROLL_SLOTS_MAX else _ROLL_SLOTS_MAX) * self.timer_precision_ms

    @property
    def delay_levels_ms(self) -> tuple[int, ...]:
        """The delay of level n is the (n-1)th."""
        return parse_levels(self.delay_levels)


def _clamped(percent: int, low: int, high: int) -> float:
    return max(low, min(high, percent)) / 100


def _check_sizes(given: StoreSettings) -> None:
    # The smallest record around the largest body: a topic of one byte and no property.
    largest = given.message_size_max + layout.FIXED_SIZE + 1 + layout.BLANK_SIZE
    if largest > given.commitlog_file_size:
        raise ConfigError(
            f"maxMessageSize={given.message_size_max} does not fit in mappedFileSizeCommitLog="
            f"{given.commitlog_file_size}: a record is never split, so files need {largest} bytes or more"
        )
    if given.batch_queue_file_size % layout.BATCH_ENTRY_SIZE:
        raise ConfigError(
            f"mapperFileSizeBatchConsumeQueue={given.batch_queue_file_size} is no multiple of "
            f"{layout.BATCH_ENTRY_SIZE}, the size of an entry: an entry is never split"
        )
    unit = layout.EXT_UNIT_FIXED_SIZE + -(-given.ext_bit_map_length // 8) + layout.EXT_FILE_TAIL
    if given.ext_file_size < unit:
        raise ConfigError(
            f"mappedFileSizeConsumeQueueExt={given.ext_file_size} has no room for one unit with "
            f"bitMapLengthConsumeQueueExt={given.ext_bit_map_length}: files need {unit} bytes or more"
        )
    if given.index_file_size > _INT_MAX:
        raise ConfigError(
            f"maxHashSlotNum={given.index_slots} and maxIndexNum={given.index_entries} make index files of "
            f"{given.index_file_size} bytes, limit is {_INT_MAX}: lower one of them"
        )


def _check_folders(given: StoreSettings) -> None:
    paths = given.commitlog_paths
    if len(set(paths)) < len(paths):
        raise ConfigError(f"storePathCommitLog={','.join(paths)} names a folder twice: each may come once")
    if not given.commitlog_folders:
        raise ConfigError(
            f"storePathCommitLog={','.join(paths)}: readOnlyCommitLogStorePaths="
            f"{','.join(given.read_only_commitlog_paths)} leaves no folder to write to; add one"
        )


def _check_levels(given: StoreSettings) -> None:
    # diskMaxUsedSpaceRatio is left out: 88, above the forced level, stands in many a broker.conf,
    # and does no more harm than that files go by force before they go by age.
    if given.disk_clean_forcibly_ratio > given.disk_warning_ratio:
        raise ConfigError(
            f"diskSpaceCleanForciblyRatio={given.disk_clean_forcibly_percent} is above "
            f"diskSpaceWarningLevelRatio={given.disk_warning_percent}: writes would be refused before any "
            "file is deleted to make room; lower the first or raise the second"
        )
    # A slave writes what its master made, so its own enabledAppendPropCRC says nothing.
    if given.force_record_crc and not given.append_crc and given.role is not BrokerRole.SLAVE:
        raise ConfigError(
            "forceVerifyPropCRC=true with enabledAppendPropCRC=false: recovery would throw away every "
            "record written here, as none has that CRC; set both, or neither"
        )
