"""What a scrub finds in the cold files of a member, and what of it is repaired from another one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.dledger.membertools import LoneMember
from tests.dledger.scrubtools import (
    BODIES,
    COMMITTED,
    COUNT,
    FILE_SIZE,
    HEAD,
    IN_BODY,
    INTERVAL_S,
    Menders,
    RottingMember,
    Wire,
    a_ledger,
    mend,
    repaired,
    without_crcs,
    write,
)

from flaremq.base.errors import CorruptStore, FlushFailed
from flaremq.model import layout
from flaremq.store.api import GetStatus
from flaremq.testing.cluster import eventually
from flaremq.testing.fakes.disk import FaultyDisk, TroubledDisk


def sometimes(*places: int) -> list[Any]:
    """Every third one is enough for every day."""
    return [pytest.param(at, marks=pytest.mark.slow if n % 3 else ()) for n, at in enumerate(places)]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return a_ledger(tmp_path_factory.mktemp("stopped") / "member")


@pytest.fixture(scope="module")
def of_java(stopped: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = shutil.copytree(stopped, tmp_path_factory.mktemp("java") / "member")
    without_crcs(folder)
    return folder


@pytest.fixture(params=["ours", "java"])
def folder(request: pytest.FixtureRequest, stopped: Path, of_java: Path) -> Path:
    return {"ours": stopped, "java": of_java}[request.param]


@pytest.fixture
def member(folder: Path, tmp_path: Path) -> Iterator[RottingMember]:
    with RottingMember(shutil.copytree(folder, tmp_path / "member")) as opened:
        assert isinstance(opened, RottingMember)
        yield opened.commit_some()


@pytest.fixture
def other(folder: Path, tmp_path: Path) -> Iterator[LoneMember]:
    with LoneMember(shutil.copytree(folder, tmp_path / "other")) as opened:
        opened.ledger.commit_to(COMMITTED)
        yield opened


def test_a_sound_ledger_is_read_from_its_first_byte_to_the_last_that_is_decided_on(
    member: RottingMember,
) -> None:
    before = member.cold_bytes()
    member.scrub()
    assert member.damage == []
    assert member.scrubber.mended == 0
    assert member.scrubber.scrubbed_bytes >= sum(map(len, before.values()))
    assert member.cold_bytes() == before


@pytest.mark.parametrize("at", sometimes(*range(HEAD), HEAD + 4, HEAD + 300))
def test_a_bit_that_flips_in_an_entry_is_found_and_repaired(
    member: RottingMember, other: LoneMember, at: int, folder: Path, of_java: Path
) -> None:
    if folder == of_java and at >= HEAD:
        at = IN_BODY  # Java has no CRC for what stands around the body.
    whole = member.cold_bytes()
    member.flip(member.data(member.place(57) + at), 0x10)
    member.scrub()
    assert member.damage == [(57, 57)]
    mend(member, other)
    assert member.cold_bytes() == whole
    member.scrub()
    assert member.damage == []


@pytest.mark.parametrize("at", sometimes(*range(32)))
def test_what_the_index_says_is_made_anew_from_the_entries(
    member: RottingMember, other: LoneMember, at: int
) -> None:
    whole = member.cold_bytes()
    member.flip(member.unit(130 + at), 0x04) if at < 0 else member.flip(
        (member.unit(57)[0], member.unit(57)[1] + at), 0x04
    )
    member.scrub()
    assert member.damage == ([(57, 57)] if at >= 24 else [])  # A term that only the index has.
    if member.damage:
        mend(member, other)
    assert member.cold_bytes() == whole


def blank_of(member: RottingMember) -> int:
    """Where the first file ends."""
    last = max(index for index in range(COUNT) if member.place(index) < FILE_SIZE)
    unit = member.log.unit(last)
    assert unit is not None
    return unit.end


@pytest.mark.parametrize("at", [0, 3, 4, 7, 8, -1])
def test_the_blank_at_the_end_of_a_file_is_made_anew(member: RottingMember, at: int) -> None:
    whole, begin = member.cold_bytes(), blank_of(member)
    member.flip(member.data(begin + at if at >= 0 else FILE_SIZE - 1))
    member.scrub()
    assert member.damage == []
    assert member.scrubber.mended == 1
    assert member.cold_bytes() == whole


@pytest.mark.parametrize(
    ("begin", "size"),
    [
        (100, 4096),
        (20_000, 30_000),
        (0, FILE_SIZE),
        (FILE_SIZE - 9000, 9000),
        (FILE_SIZE - 5000, 10_000),
        (FILE_SIZE, 3 * FILE_SIZE),
    ],
    ids=["page", "middle", "file", "end", "two-files", "many-files"],
)
@pytest.mark.parametrize("part_size", [1, 5000, 1 << 20])
def test_a_hole_of_zeros_is_filled_byte_by_byte(
    member: RottingMember, other: LoneMember, begin: int, size: int, part_size: int
) -> None:
    whole = member.cold_bytes()
    for at in range(begin, begin + size, FILE_SIZE):
        piece = min(size - (at - begin), FILE_SIZE - at % FILE_SIZE)
        write(*member.data(at), bytes(piece))
        if at % FILE_SIZE + min(size, FILE_SIZE) > FILE_SIZE:
            rest = size - piece
            write(*member.data(at + piece), bytes(min(rest, FILE_SIZE)))
    member.scrub()
    assert member.damage
    mend(member, other, part_size=part_size)
    assert member.cold_bytes() == whole


@pytest.mark.parametrize("left", [0, 10_000, FILE_SIZE - 1])
def test_a_cold_file_that_was_cut_short_gets_its_length_and_its_bytes_back(
    member: RottingMember, other: LoneMember, left: int
) -> None:
    whole = member.cold_bytes()
    path, _ = member.data(FILE_SIZE)
    os.truncate(path, left)
    member.scrub()
    mend(member, other)
    assert path.stat().st_size == FILE_SIZE
    assert member.cold_bytes() == whole


def test_a_rotten_index_and_a_rotten_entry_are_both_repaired(
    member: RottingMember, other: LoneMember
) -> None:
    whole = member.cold_bytes()
    first = member.place(57)
    write(*member.data(first + 10), b"\xff" * 3000)
    path, at = member.unit(57)
    write(path, at, bytes(32 * 4))
    member.scrub()
    mend(member, other)
    member.scrub()
    assert member.damage == []
    assert member.cold_bytes() == whole


def test_what_is_not_decided_on_is_not_looked_at(member: RottingMember) -> None:
    write(*member.data(member.place(COMMITTED + 1)), b"\xff" * 5000)
    member.scrub()
    assert member.damage == []


def test_what_is_behind_the_end_of_the_pass_belongs_to_the_next_one(member: RottingMember) -> None:
    member.flip(member.data(member.place(COMMITTED + 5) + IN_BODY))
    member.scrub()
    member.commit()
    assert member.damage == []
    member.scrub()
    assert member.damage == [(COMMITTED + 5, COMMITTED + 5)]


def test_files_that_retention_deletes_are_not_missed(member: RottingMember) -> None:
    member.flip(member.data(member.place(3) + IN_BODY))
    member.scrub()
    assert member.damage == [(3, 3)]
    file = member.log.files.files[0]
    file.delete()
    member.log.files.drop_first(file)
    member.scrub()
    assert member.damage == []


def test_a_pass_goes_on_behind_what_retention_has_deleted(member: RottingMember) -> None:
    member.scrubber.step(None)  # type: ignore[arg-type]
    for _ in range(2):
        file = member.log.files.files[0]
        file.delete()
        member.log.files.drop_first(file)
    member.flip(member.data(member.place(200) + IN_BODY))
    for _ in range(50):
        member.scrubber.step(None)  # type: ignore[arg-type]
    assert member.damage == [(200, 200)]


def test_a_file_that_is_gone_without_having_been_deleted_is_told(member: RottingMember) -> None:
    path, _ = member.data(FILE_SIZE)
    path.unlink()
    member.scrub()
    (damage,) = member.log.known_damage.found
    assert f"{path} is gone" in str(damage)
    assert (damage.position, damage.end) == (FILE_SIZE, 2 * FILE_SIZE)


def test_a_restart_goes_on_where_the_pass_was_and_remembers_what_is_damaged(
    member: RottingMember,
) -> None:
    member.flip(member.data(member.place(57) + IN_BODY))
    member.scrub()
    member.scrubber = member.a_scrubber()
    member.log.known_damage.forget_outside(0, -1)
    assert member.damage == []
    member.scrubber.step(None)  # type: ignore[arg-type]
    assert member.damage == [(57, 57)]
    member.scrubber.step(None)  # type: ignore[arg-type]
    assert member.scrubber.passes == 0  # The last one is over, and the next one is not due.


def test_a_restart_in_the_middle_of_a_pass_goes_on_there(member: RottingMember) -> None:
    member.flip(member.data(member.place(200) + IN_BODY))
    while not member.damage:
        member.scrubber.step(None)  # type: ignore[arg-type]
    member.scrubber = member.a_scrubber()
    member.flip(member.data(member.place(57) + IN_BODY))
    member.scrubber.step(None)  # type: ignore[arg-type]
    while not member.scrubber.passes:
        member.scrubber.step(None)  # type: ignore[arg-type]
    assert member.damage == [(200, 200)]
    member.scrub()
    assert member.damage == [(57, 57), (200, 200)]


def test_damage_that_was_repaired_just_before_the_end_is_not_remembered(member: RottingMember) -> None:
    place = member.data(member.place(57) + IN_BODY)
    member.flip(place)
    member.scrub()
    member.flip(place)
    member.log.known_damage.forget_outside(0, -1)
    member.scrubber = member.a_scrubber()
    member.scrubber.step(None)  # type: ignore[arg-type]
    assert member.damage == []


def test_a_note_that_cannot_be_read_costs_a_pass(member: RottingMember) -> None:
    (member.log.folder / "scrub").write_bytes(b"{}")
    member.scrub()
    assert member.damage == []


def test_a_note_about_another_log_is_not_believed(member: RottingMember) -> None:
    member.flip(member.data(member.place(57) + IN_BODY))
    member.scrub()
    note = member.log.folder / "scrub"
    note.write_bytes(note.read_bytes().replace(b'"first": 57', b'"first": 58'))
    member.log.known_damage.forget_outside(0, -1)
    member.scrubber = member.a_scrubber()
    member.scrubber.step(None)  # type: ignore[arg-type]
    assert member.damage == []


def test_a_pass_is_due_once_in_a_period_and_once_more_when_the_clock_goes_back(
    member: RottingMember,
) -> None:
    def looked() -> int:
        for _ in range(100):
            member.scrubber.step(None)  # type: ignore[arg-type]
        return member.scrubber.passes

    assert looked() == 1
    member.clock.advance_ms(int(INTERVAL_S * 1000) - 1)
    assert looked() == 1
    member.clock.advance_ms(1)
    assert looked() == 2
    member.clock.step_wall_ms(-2000 * 3_600_000)
    assert looked() == 3
    member.clock.advance_ms(3_600_000)
    assert looked() == 3


def test_a_slice_is_followed_by_a_pause_that_keeps_to_the_rate(member: RottingMember) -> None:
    member.clock.advance_ms(int(INTERVAL_S * 1000))
    rest_s = member.scrubber.step(None)  # type: ignore[arg-type]
    assert rest_s == member.scrubber.scrubbed_bytes / (1 << 24)


# Readers.


def test_readers_get_what_is_before_known_damage_then_an_error_and_all_when_it_is_repaired(
    member: RottingMember, other: LoneMember
) -> None:
    member.store.show()
    member.flip(member.data(member.place(57) + IN_BODY))
    member.scrub()
    found, at = 0, 0
    result = member.store.get(b"TopicTest", 0, 0, 32)
    while at < 56:
        assert result.status is GetStatus.FOUND
        found, at = found + result.count, result.next_offset
        result = member.store.get(b"TopicTest", 0, at, 32) if at < 56 else result
    assert found == at == 56
    with pytest.raises(CorruptStore, match="entry 57"):
        member.store.get(b"TopicTest", 0, 56, 32)
    behind = member.store.get(b"TopicTest", 0, at + 1, 32)
    assert behind.status is GetStatus.FOUND and behind.count > 1
    mend(member, other)
    assert member.bodies() == BODIES[: len(member.bodies())]


def test_damage_is_not_pushed_to_other_members(member: RottingMember) -> None:
    member.flip(member.data(member.place(57) + IN_BODY))
    member.scrub()
    run = member.ledger.run(50, 1 << 20)
    assert run is not None and run.last == 56
    assert member.ledger.run(57, 1 << 20) is None
    assert member.ledger.run(58, 1) is not None


# Disks that cannot be read.


def test_a_block_that_the_disk_cannot_read_is_repaired(
    folder: Path, tmp_path: Path, other: LoneMember
) -> None:
    disk = FaultyDisk()
    with RottingMember(shutil.copytree(folder, tmp_path / "worn"), disk=disk) as member:
        assert isinstance(member, RottingMember)
        member.commit_some()
        whole = member.cold_bytes()
        path, at = member.data(member.place(57) + 50)
        disk.wear_out(path, at)
        member.scrub()
        ((first, last),) = member.damage
        assert first <= 57 <= last
        assert "cannot read" in str(member.log.known_damage)
        mend(member, other)
        assert member.cold_bytes() == whole
        member.scrub()
        assert member.damage == []


@pytest.mark.parametrize("operation", ["reserve", "sync"])
async def test_a_file_that_cannot_be_written_leaves_the_damage_known_and_the_rest_served(
    folder: Path, tmp_path: Path, other: LoneMember, operation: str
) -> None:
    disk, wire = TroubledDisk(), Wire()
    with RottingMember(shutil.copytree(folder, tmp_path / "worn"), disk=disk) as member:
        assert isinstance(member, RottingMember)
        member.commit_some()
        member.flip(member.data(member.place(57) + IN_BODY))
        member.scrub()
        disk.trouble(FlushFailed("the disk of this test is read-only"), "data", operation)
        async with Menders(wire, {"n0": member, "n1": other}):

            async def was_tried() -> bool:
                return disk.raised > 2

            await eventually("a repair was tried more than once", was_tried)
            assert member.damage == [(57, 57)]
            assert member.ledger.is_damaged
            assert member.ledger.failure is None
            assert "read-only" in wire.repairs["n0"].why_not
            disk.heal()
            await repaired(member)


# Any damage.

FLIPS = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 7)), min_size=1, max_size=4)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(flips=FLIPS, zeros=st.none() | st.tuples(st.floats(0, 1), st.integers(1, 70_000)))
def test_whatever_rots_in_the_entries_is_found_and_repaired(
    stopped: Path,
    tmp_path_factory: pytest.TempPathFactory,
    flips: list[tuple[float, int]],
    zeros: tuple[float, int] | None,
) -> None:
    root = tmp_path_factory.mktemp("rotten")
    copies = [shutil.copytree(stopped, root / name) for name in ("member", "other")]
    with RottingMember(copies[0]) as member, LoneMember(copies[1]) as other:
        assert isinstance(member, RottingMember)
        member.commit_some()
        other.ledger.commit_to(COMMITTED)
        whole, end = member.cold_bytes(), member.log.committed.value
        for part, bit in flips:
            member.flip(member.data(int(part * end)), 1 << bit)
        if zeros is not None:
            begin = int(zeros[0] * (end - 1))
            path, at = member.data(begin)
            write(path, at, bytes(min(zeros[1], FILE_SIZE - at, end - begin)))
        member.scrub()
        mend(member, other)
        member.scrub()
        assert member.damage == []
        assert member.cold_bytes() == whole
    shutil.rmtree(root)


def test_the_fixture_has_blanks_and_several_index_files(member: RottingMember) -> None:
    assert len(member.log.files.files) > 5
    assert len(member.log.index.files.files) > 2
    assert blank_of(member) + layout.BLANK_SIZE <= FILE_SIZE
