"""Options of the store: what may be said, what follows from it, and what is refused."""

import re
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import pytest

from flaremq.base.errors import ConfigError
from flaremq.base.options import all_names, find
from flaremq.base.settings import Sources, dump, load
from flaremq.model import layout
from flaremq.store.settings import BrokerRole, FlushDisk, StoreSettings

DIFFERENT_ON_PURPOSE = {
    *(
        "timerMaxDelaySec",
        "flushCommitLogTimed",
        "wakeFlushWhenPutMessage",
        "maxTransferCountOnMessageInMemory",
    ),
}


def loaded(*flags: str) -> StoreSettings:
    (settings,) = load(Sources.of(flags=flags), StoreSettings, available=frozenset({"replication"}))
    return settings


def test_every_default_is_rocketmqs_but_for_those_that_we_explain() -> None:
    differing = set()
    for name, text in dump(StoreSettings()):
        row = find(name, "MessageStoreConfig")
        assert row is not None, f"{name} is no option of the Java store"
        default = row.default_5.replace("$HOME", str(Path.home())).replace("null", "")
        if text != default:
            differing.add(name)
    assert differing == DIFFERENT_ON_PURPOSE


def test_every_field_has_an_option_of_its_own() -> None:
    names = [name for name, _ in dump(StoreSettings())]
    assert len(names) == len(set(names)) == len(fields(StoreSettings))


def test_what_is_dumped_loads_back_to_the_same(tmp_path: Path) -> None:
    settings = StoreSettings(
        root=tmp_path,
        commitlog_paths=("/a", "/b"),
        flush_disk=FlushDisk.SYNC_FLUSH,
        role=BrokerRole.SLAVE,
        delete_when="04;16",
        logical_disk_threshold=0.5,
    )
    assert loaded(*(f"{name}={text}" for name, text in dump(settings))) == settings


def test_settings_cannot_be_changed_once_they_are_checked(tmp_path: Path) -> None:
    settings = StoreSettings(root=tmp_path)
    with pytest.raises(FrozenInstanceError):
        settings.role = BrokerRole.SLAVE  # type: ignore[misc]


def test_the_old_spelling_of_the_file_sizes_is_understood() -> None:
    settings = loaded("mapedFileSizeCommitLog=8388608", "mapedFileSizeConsumeQueue=100")
    assert settings.commitlog_file_size == 8388608
    assert settings.consumequeue_file_size == 100


def test_sizes_and_spans_may_carry_a_unit() -> None:
    settings = loaded("mappedFileSizeCommitLog=16MiB", "flushIntervalCommitLog=2s")
    assert (settings.commitlog_file_size, settings.flush_interval_ms) == (16 * 1024 * 1024, 2000)


@pytest.mark.parametrize(("given", "used"), [(1, 20), (20, 20), (21, 40), (6_000_000, 6_000_000)])
def test_queue_files_hold_whole_entries(given: int, used: int) -> None:
    assert StoreSettings(consumequeue_file_size=given).consumequeue_bytes == used


def test_the_log_lies_below_the_root_unless_told_otherwise(tmp_path: Path) -> None:
    assert StoreSettings(root=tmp_path).commitlog_folders == (tmp_path / "commitlog",)


def test_several_log_folders_without_those_that_are_only_read() -> None:
    settings = loaded("storePathCommitLog=/a, /b ,/c", "readOnlyCommitLogStorePaths=/b,/old")
    assert settings.commitlog_folders == (Path("/a"), Path("/c"))
    assert settings.read_only_commitlog_folders == (Path("/b"), Path("/old"))


def test_the_other_folders_lie_below_the_root(tmp_path: Path) -> None:
    settings = StoreSettings(root=tmp_path)
    folders = (
        settings.consumequeue_folder,
        settings.ext_folder,
        settings.batch_queue_folder,
        settings.index_folder,
    )
    names = ["consumequeue", "consumequeue_ext", "batchconsumequeue", "index"]
    assert [folder.relative_to(tmp_path).as_posix() for folder in folders] == names


def test_an_index_file_has_the_size_of_rocketmqs() -> None:
    assert StoreSettings().index_file_size == 420_000_040


@pytest.mark.parametrize(("percent", "ratio"), [(-5, 0.10), (9, 0.10), (10, 0.10), (95, 0.95), (99, 0.95)])
def test_the_ageing_level_is_clamped_as_in_java(percent: int, ratio: float) -> None:
    assert StoreSettings(disk_max_used_percent=percent).disk_max_used_ratio == ratio


@pytest.mark.parametrize(("percent", "ratio"), [(0, 0.30), (50, 0.50), (86, 0.85)])
def test_the_forced_level_is_clamped_as_in_java(percent: int, ratio: float) -> None:
    assert StoreSettings(disk_clean_forcibly_percent=percent).disk_clean_forcibly_ratio == ratio


@pytest.mark.parametrize(("percent", "ratio"), [(0, 0.35), (50, 0.50), (100, 0.90)])
def test_the_warning_level_is_clamped_as_in_java(percent: int, ratio: float) -> None:
    settings = StoreSettings(disk_warning_percent=percent, disk_clean_forcibly_percent=30)
    assert settings.disk_warning_ratio == ratio


@pytest.mark.parametrize(("text", "hours"), [("04", {4}), ("4", {4}), ("04;16", {4, 16}), ("0; 23", {0, 23})])
def test_hours_of_deletion(text: str, hours: set[int]) -> None:
    assert StoreSettings(delete_when=text).delete_hours == hours


@pytest.mark.parametrize("text", ["", "24", "-1", "4,16", "04;", "four", "٤"])
def test_hours_that_no_day_has_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="deleteWhen"):
        StoreSettings(delete_when=text)


def test_delay_levels_in_milliseconds() -> None:
    levels = StoreSettings().delay_levels_ms
    assert len(levels) == 18
    assert levels[0] == 1_000 and levels[4] == 60_000 and levels[17] == 7_200_000
    assert StoreSettings(delay_levels="2d").delay_levels_ms == (172_800_000,)


@pytest.mark.parametrize("text", ["", "1", "1s,2s", "1s 2x", "s"])
def test_delay_levels_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="messageDelayLevel"):
        StoreSettings(delay_levels=text)


def test_a_record_may_be_as_large_as_a_body_with_head_room() -> None:
    assert StoreSettings().record_size_max == 4 * 1024 * 1024 + 65536


def test_a_record_is_never_larger_than_its_file_with_room_for_the_blank() -> None:
    settings = StoreSettings(commitlog_file_size=65536, message_size_max=4096)
    assert settings.record_size_max == 65536 - layout.BLANK_SIZE


def test_the_largest_message_just_fits_in_a_file() -> None:
    size = 65536 - layout.FIXED_SIZE - 1 - layout.BLANK_SIZE
    StoreSettings(commitlog_file_size=65536, message_size_max=size)
    with pytest.raises(ConfigError, match=f"maxMessageSize={size + 1}.*mappedFileSizeCommitLog=65536"):
        StoreSettings(commitlog_file_size=65536, message_size_max=size + 1)


def test_a_slave_has_no_use_for_the_buffer_pool() -> None:
    assert StoreSettings(pool_enabled=True).pool_used
    assert not StoreSettings(pool_enabled=True, role=BrokerRole.SLAVE).pool_used
    assert not StoreSettings().pool_used


def test_a_slave_may_demand_the_crc_that_its_master_writes() -> None:
    StoreSettings(force_record_crc=True, role=BrokerRole.SLAVE)
    StoreSettings(force_record_crc=True, append_crc=True)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"commitlog_file_size": 0}, "mappedFileSizeCommitLog"),
    ({"commitlog_file_size": 4095, "message_size_max": 1}, "mappedFileSizeCommitLog"),
    ({"commitlog_file_size": 1 << 31}, "mappedFileSizeCommitLog"),
    ({"consumequeue_file_size": 0}, "mappedFileSizeConsumeQueue"),
    ({"batch_queue_file_size": 47}, "mapperFileSizeBatchConsumeQueue=47 .* 46"),
    ({"ext_file_size": 31}, "mappedFileSizeConsumeQueueExt=31 .* 32"),
    ({"index_entries": 1}, "maxIndexNum"),
    ({"index_slots": 1 << 29}, "maxHashSlotNum=536870912 .* 2147483647"),
    ({"disk_clean_forcibly_percent": 60, "disk_warning_percent": 50}, "ForciblyRatio=60 .*LevelRatio=50"),
    ({"force_record_crc": True}, "forceVerifyPropCRC=true .*enabledAppendPropCRC=false"),
    ({"commitlog_paths": ("/a", "/a")}, "storePathCommitLog=/a,/a .* twice"),
    ({"commitlog_paths": ("/a",), "read_only_commitlog_paths": ("/a",)}, "no folder to write to"),
    ({"clean_interval_ms": 0}, "cleanResourceInterval"),
    ({"logical_disk_threshold": 0.0}, "logicalDiskSpaceCleanForciblyThreshold"),
    ({"in_memory_percent": 101}, "accessMessageInMemoryMaxRatio"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "complaint"), REFUSED)
def test_what_cannot_be_is_refused_by_its_java_name(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        StoreSettings(**given)


OPTIONS_PAGE = Path(__file__).parents[2] / "docs" / "options.md"


def documented() -> dict[str, str]:
    """Rows of the page that speak of one option: its default as it is written there."""
    rows = [line.split(" | ") for line in OPTIONS_PAGE.read_text().splitlines() if line.startswith("| ")]
    return {row[0].removeprefix("| "): row[1].strip("`*") for row in rows if len(row) == 3}


def test_the_page_of_options_has_every_option_of_the_java_store() -> None:
    words = set(re.findall(r"[A-Za-z0-9]+", OPTIONS_PAGE.read_text()))
    missing = [name for name in all_names() if find(name, "MessageStoreConfig") and name not in words]
    assert missing == []


def test_the_page_of_options_tells_our_defaults() -> None:
    page = documented()
    for name, text in dump(StoreSettings()):
        wanted = text.replace(str(Path.home()), "~") or "empty"
        assert page[name] == wanted, name
