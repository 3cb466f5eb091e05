"""The tables that brokers and NameServers keep beside their data, as Java and as we write them."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from flaremq.base.errors import ConfigError
from flaremq.protocol import beans, configfiles
from flaremq.protocol.bodies.group import ConsumerOffsetSerializeWrapper, DelayOffsetSerializeWrapper

JAVA_OFFSETS = b"""{
\t"offsetTable":{
\t\t"Orders@billing":{0:3,1:10000
\t\t},
\t\t"%RETRY%billing@billing":{0:7
\t\t}
\t}
}"""
JAVA_DELAYS = b'{\n\t"offsetTable":{12:0,3:41\n\t}\n}'


def _offsets(text: bytes) -> dict[str, dict[int, int]]:
    found = beans.decode(ConsumerOffsetSerializeWrapper, text).offset_table
    return {name: dict(queues) for name, queues in found.items()}


def test_offsets_are_read_with_the_bare_integer_keys_that_java_writes(tmp_path: Path) -> None:
    path = tmp_path / "consumerOffset.json"
    path.write_bytes(JAVA_OFFSETS)
    assert configfiles.load(path, _offsets) == {
        "Orders@billing": {0: 3, 1: 10_000},
        "%RETRY%billing@billing": {0: 7},
    }
    path.write_bytes(JAVA_DELAYS)
    found = configfiles.load(path, lambda text: beans.decode(DelayOffsetSerializeWrapper, text))
    assert found is not None and dict(found.offset_table) == {12: 0, 3: 41}


def test_a_missing_table_is_none_and_a_missing_or_broken_one_is_read_from_its_backup(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, backup = tmp_path / "consumerOffset.json", tmp_path / "consumerOffset.json.bak"
    assert configfiles.load(path, _offsets) is None
    backup.write_bytes(JAVA_OFFSETS)
    assert configfiles.load(path, _offsets) is not None  # As between the two renames of a broker that saves.
    path.write_bytes(JAVA_OFFSETS[:-20])
    with caplog.at_level(logging.WARNING, "flaremq"):
        assert configfiles.load(path, _offsets) is not None
    assert "backup" in caplog.text


def test_two_broken_files_are_an_error_that_names_both(tmp_path: Path) -> None:
    path, backup = tmp_path / "topics.json", tmp_path / "topics.json.bak"
    path.write_bytes(b"{")
    backup.write_bytes(b"[]")
    with pytest.raises(ConfigError, match=r"topics\.json: .*topics\.json\.bak: .*Restore one of the two"):
        configfiles.load(path, _offsets)


def test_deleted_topics_are_names_and_ends_of_the_log(tmp_path: Path) -> None:
    path = tmp_path / "config" / "deletedTopics.json"
    path.parent.mkdir()
    assert configfiles.deleted_topics(tmp_path) == {}
    path.write_bytes(b'{\n"deletedTopics":{\n\t"Orders":4096,\n\t"Bills":9\n}\n}\n')
    assert configfiles.deleted_topics(tmp_path) == {"Orders": 4096, "Bills": 9}
    path.write_bytes(b'{"deletedTopics":{"Orders":"far"}}')
    with pytest.raises(ConfigError, match=r"deletedTopics\.json: .*expected a table of topics and offsets"):
        configfiles.deleted_topics(tmp_path)
