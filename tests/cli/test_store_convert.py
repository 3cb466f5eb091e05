"""`flaremq store convert`, as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.commands import flaremq

from flaremq.store.store import MessageStore
from flaremq.testing.fakes.builders import a_message, small_settings


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with MessageStore(small_settings(tmp_path / "store")) as opened:
        for n in range(200):
            opened.put(a_message(b"%d" % n + b"." * 500, properties=b"KEYS\x01k%d\x02" % n))
    return tmp_path / "store"


def test_a_store_there_and_back(store: Path, tmp_path: Path) -> None:
    ended = flaremq("store", "convert", store, "--to", "dledger")
    assert ended.status == 0, ended.err
    assert ended.out.startswith(f"{store}.dledger holds 200 records (")
    assert "each compared with the original." in ended.out.replace("\n", " ")
    ended = flaremq(
        "store", "convert", f"{store}.dledger", "--to", "plain", "--into", tmp_path / "again", "--json"
    )
    found = json.loads(ended.out)
    assert (found["target"], found["kind"], found["records"]) == (str(tmp_path / "again"), "plain", 200)
    for folder in (f"{store}.dledger", tmp_path / "again"):
        assert flaremq("store", "verify", folder).status == 0
        assert len(flaremq("store", "export", folder).out.splitlines()) == 200
    assert "dledger-n0" in flaremq("store", "inspect", f"{store}.dledger").out


def test_the_brokers_own_settings_say_how_queues_are_made(store: Path, tmp_path: Path) -> None:
    config = tmp_path / "broker.properties"
    config.write_text(
        "mappedFileSizeConsumeQueue=2000\nmappedFileSizeCommitLog=65536\nmaxMessageSize=16384\n"
        "maxHashSlotNum=60\nmaxIndexNum=240\n"
    )
    ended = flaremq("store", "convert", store, "--to", "dledger", "--config", config)
    assert ended.status == 0, ended.err
    sizes = {path.stat().st_size for path in Path(f"{store}.dledger", "consumequeue").glob("*/*/*")}
    assert sizes == {2000}


def test_what_cannot_be_done_is_said_in_one_line(store: Path, tmp_path: Path) -> None:
    ended = flaremq("store", "convert", store, "--to", "plain")
    assert (ended.status, ended.err.count("\n")) == (1, 1)
    assert f"{store} is a store of this kind already: plain" in ended.err
    ended = flaremq("store", "convert", store, "--to", "rocksdb")
    assert ended.status == 2
    assert "dledger" in ended.err
    ended = flaremq("store", "convert", tmp_path / "nowhere", "--to", "dledger")
    assert (ended.status, "does not exist" in ended.err) == (1, True)
