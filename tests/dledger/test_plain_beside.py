"""Members on folders that have a plain log, too: it would not be served, so they refuse to start."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.replicas.groupmembers import made, running
from tests.dledger.dividedtools import divide_store
from tests.dledger.membertools import LoneMember
from tests.dledger.test_convert import bytes_of, converted, fill

from flaremq.base.errors import CorruptStore
from flaremq.dledger.convert import StoreKind
from flaremq.servers.groupbroker import GroupBroker
from flaremq.servers.membership import member_settings
from flaremq.store.store import MessageStore
from flaremq.testing.fakes.builders import a_message, small_settings

HOST = "127.0.0.1"
COUNT = 40


def as_member(root: Path, **options: object) -> GroupBroker:
    (own,) = member_settings(1, HOST)
    member = made(root, **{**own, **options})
    assert isinstance(member, GroupBroker)
    return member


def test_a_plain_log_beside_an_empty_ledger_is_not_passed_over(tmp_path: Path) -> None:
    with MessageStore(small_settings(tmp_path / "a")) as store:
        store.put(a_message(b"plain"))
    with pytest.raises(CorruptStore, match="flaremq store convert"):
        LoneMember(tmp_path / "a").store.open()


def test_a_member_refuses_a_divided_store_and_changes_nothing(tmp_path: Path) -> None:
    fill(tmp_path / "a", COUNT)
    divide_store(tmp_path / "a", COUNT // 2)
    before = bytes_of(tmp_path / "a")
    with pytest.raises(CorruptStore) as caught:
        LoneMember(tmp_path / "a").store.open()
    told = str(caught.value)
    assert told.startswith(f"{tmp_path / 'a' / 'commitlog'} has 1 file of a plain log")
    assert "would not serve" in told
    assert f"`flaremq store convert {tmp_path / 'a'} --to dledger --self-id n0`" in told
    after = bytes_of(tmp_path / "a")
    assert {name: after[name] for name in before} == before


async def test_what_the_refusal_says_to_do_helps(tmp_path: Path) -> None:
    fill(tmp_path / "a", COUNT)
    divide_store(tmp_path / "a", COUNT // 2)
    with pytest.raises(CorruptStore, match="--to dledger --self-id n0"):
        await as_member(tmp_path / "a").start()
    converted(tmp_path / "a", tmp_path / "new", StoreKind.DLEDGER)
    with LoneMember(tmp_path / "new") as member:
        member.lead()
        found = [body for q in range(3) for t in (b"T0", b"T1") for body in member.bodies(t, q)]
    assert sorted(int(body.rstrip(b".")) for body in found) == list(range(COUNT))


async def test_a_plain_log_in_a_folder_of_its_own_is_found_too(tmp_path: Path) -> None:
    fill(tmp_path / "a", COUNT)
    divide_store(tmp_path / "a", COUNT // 2)
    (tmp_path / "a" / "commitlog").rename(tmp_path / "old")
    usual = tmp_path / "a" / "commitlog"
    told = f"{tmp_path / 'old'} has 1 file of a plain log.* move them to {usual}, and then"
    with pytest.raises(CorruptStore, match=told):
        await as_member(tmp_path / "a", storePathCommitLog=tmp_path / "old").start()


async def test_folders_and_files_without_a_plain_record_do_no_harm(tmp_path: Path) -> None:
    """What an earlier plain broker may leave, and what belongs to the member itself."""
    folder = tmp_path / "n0" / "commitlog"
    folder.mkdir(parents=True)
    (folder / f"{0:020}").write_bytes(bytes(4096))  # Made ahead, and never written to.
    (folder / f"{4096:020}").touch()
    (folder / ".DS_Store").write_bytes(b"no log file")
    (tmp_path / "n0" / "checkpoint").write_bytes(bytes(4096))
    async with running(tmp_path) as (member,):
        assert member.takes_part


async def test_a_ledger_may_lie_where_the_plain_log_would(tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    for _ in range(2):
        async with running(tmp_path, storePathCommitLog=log, storePathDLedgerCommitLog=log) as (member,):
            assert member.takes_part


async def test_entries_of_a_ledger_are_not_taken_for_a_plain_log(tmp_path: Path) -> None:
    with LoneMember(tmp_path / "other") as other:
        other.lead()
        other.put(b"an entry")
        other.synced()
    entries = tmp_path / "other" / "dledger-n0" / "data"
    async with running(tmp_path, storePathCommitLog=entries) as (member,):
        assert member.takes_part
    async with running(tmp_path, readOnlyCommitLogStorePaths=entries) as (member,):
        assert member.takes_part
