"""Repairs from other members, some of which cannot be trusted: nothing wrong is ever written."""

from __future__ import annotations

import asyncio
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.dledger.membertools import LoneMember
from tests.dledger.scrubtools import (
    COMMITTED,
    FILE_SIZE,
    HEAD,
    IN_BODY,
    Menders,
    RottingMember,
    Wire,
    a_ledger,
    mend,
    repaired,
    write,
)

from flaremq.base.errors import Malformed
from flaremq.dledger.scrub import repairs
from flaremq.dledger.scrub.patch import Patcher
from flaremq.dledger.types import EntriesAnswer, EntriesRequest, EntryRun, RepairMessage
from flaremq.model._record_py import crc31
from flaremq.testing.cluster import eventually

Lie = Callable[[EntryRun], EntryRun | None]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return a_ledger(tmp_path_factory.mktemp("stopped") / "member")


@pytest.fixture
def member(stopped: Path, tmp_path: Path) -> Iterator[RottingMember]:
    with RottingMember(shutil.copytree(stopped, tmp_path / "member")) as opened:
        assert isinstance(opened, RottingMember)
        yield opened.commit_some()


@pytest.fixture
def other(stopped: Path, tmp_path: Path) -> Iterator[RottingMember]:
    with RottingMember(shutil.copytree(stopped, tmp_path / "other")) as opened:
        assert isinstance(opened, RottingMember)
        yield opened.commit_some()


def a_liar(other: LoneMember, lie: Lie) -> Callable[[EntriesRequest], RepairMessage | None]:
    """Answers with a run that is not quite what was asked for."""

    def answer(asked: EntriesRequest) -> RepairMessage | None:
        unit, last = other.log.unit(asked.first), other.log.unit(asked.last)
        assert unit is not None and last is not None
        file = other.log.files.find(unit.position)
        assert file is not None
        end = min(last.end, file.end)
        data = bytes(file.view[unit.position - file.offset : end - file.offset])
        run = EntryRun(asked.first, unit.position, ((unit.term, asked.last - asked.first + 1),), data)
        told = lie(run)
        return None if told is None else EntriesAnswer(asked.number, told)

    return answer


def changed(run: EntryRun, at: int, data: bytes) -> EntryRun:
    old = bytes(run.data)
    return replace(run, data=old[:at] + data + old[at + len(data) :])


def resealed(run: EntryRun) -> EntryRun:
    """Another message in the same place, in an entry of its own size with the right CRC."""
    body = bytearray(run.data)
    body[IN_BODY] ^= 1
    body[40:44] = struct.pack(">i", crc31(body[HEAD:]))
    return replace(run, data=bytes(body))


LIES: dict[str, Lie] = {
    "other bytes": lambda run: changed(run, IN_BODY, b"?"),
    "another index": lambda run: changed(replace(run, first=58), 8, struct.pack(">q", 58)),
    "another place": lambda run: changed(replace(run, position=run.position + 8), 24, bytes(8)),
    "a higher term": lambda run: changed(replace(run, terms=((3, 1),)), 16, struct.pack(">q", 3)),
    "a lower term": lambda run: changed(replace(run, terms=((1, 1),)), 16, struct.pack(">q", 1)),
    "too many": lambda run: replace(run, terms=((2, 2),), data=bytes(run.data) * 2),
    "too many bytes": lambda run: replace(run, data=bytes(run.data) + bytes(8)),
    "too few bytes": lambda run: replace(run, data=bytes(run.data)[:-1]),
    "nothing": lambda run: replace(run, data=b""),
    "another count": lambda run: replace(run, terms=((2, 5),)),
    "no count": lambda run: replace(run, terms=((2, 0),)),
    "another channel": lambda run: changed(run, 32, struct.pack(">i", 7)),
    "a megabyte": lambda run: replace(run, data=bytes(1 << 20)),
    "silence": lambda _run: None,
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
async def test_what_a_member_lies_is_not_written_and_the_next_one_is_asked(
    member: RottingMember, other: RottingMember, lie: Lie, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repairs, "_ANSWER_S", 0.2)
    whole = member.cold_bytes()
    member.flip(member.data(member.place(57) + IN_BODY))
    rotten = member.cold_bytes()
    member.scrub()
    wire = Wire()
    wire.liars["n1"] = a_liar(other, lie)
    async with Menders(wire, {"n0": member}):

        async def was_asked_again() -> bool:
            return len(wire.asked) >= 2

        await eventually("it was asked again", was_asked_again)
        assert member.damage == [(57, 57)]
        assert member.cold_bytes() == rotten
        assert wire.repairs["n0"].why_not.startswith("n1: ")
        assert wire.yielded
    async with Menders(wire, {"n0": member, "n2": other}):
        await repaired(member)
        assert wire.repairs["n0"].why_not == ""
    assert member.cold_bytes() == whole


async def test_an_answer_that_nobody_has_asked_for_is_nothing(
    member: RottingMember, other: RottingMember
) -> None:
    member.flip(member.data(member.place(57) + IN_BODY))
    rotten = member.cold_bytes()
    member.scrub()
    wire = Wire()
    answers: list[RepairMessage] = []
    honest = a_liar(other, lambda run: run)

    def late(asked: EntriesRequest) -> RepairMessage | None:
        answer = honest(asked)
        assert isinstance(answer, EntriesAnswer)
        answers.append(replace(answer, number=answer.number + 7))
        return answers[-1]

    wire.liars["n1"] = late
    async with Menders(wire, {"n0": member}):

        async def is_asked() -> bool:
            return bool(answers)

        await eventually("it is asked", is_asked)
        wire.repairs["n0"].heard("n9", answers[0])
        await asyncio.sleep(0)
        assert member.cold_bytes() == rotten


def test_a_member_that_has_the_same_damage_says_so_and_another_one_is_asked(
    member: RottingMember, other: RottingMember, stopped: Path, tmp_path: Path
) -> None:
    whole = member.cold_bytes()
    for each in (member, other):
        each.flip(each.data(each.place(57) + IN_BODY))
    member.scrub()
    with LoneMember(shutil.copytree(stopped, tmp_path / "third")) as third:
        third.ledger.commit_to(COMMITTED)
        wire = mend(member, other, third)
    assert "damaged here, too" in wire.given[0].why
    assert member.cold_bytes() == whole


def test_members_with_different_damage_repair_each_other(member: RottingMember, other: RottingMember) -> None:
    whole = member.cold_bytes()
    member.flip(member.data(member.place(57) + IN_BODY))
    other.flip(other.data(other.place(190) + IN_BODY))
    member.scrub()
    other.scrub()

    async def run() -> None:
        async with Menders(Wire(), {"n0": member, "n1": other}):
            await repaired(member)
            await repaired(other)

    asyncio.run(run())
    assert member.cold_bytes() == other.cold_bytes() == whole


async def test_what_is_not_known_to_be_decided_on_is_given_only_if_what_follows_is_the_same(
    member: RottingMember, stopped: Path, tmp_path: Path
) -> None:
    wire = Wire()
    with LoneMember(shutil.copytree(stopped, tmp_path / "behind")) as behind:
        assert behind.log.committed_index < 330
        async with Menders(wire, {"n0": member, "n1": behind}):
            for next_term, is_there in ((-1, False), (3, False), (7, True)):
                wire.repairs["n1"].heard("n0", EntriesRequest(1, 330, 330, 7, next_term))

                async def is_given() -> bool:
                    return bool(wire.given)

                await eventually("it is answered", is_given)
                assert (wire.given.pop().run is not None) == is_there


def test_what_other_members_have_deleted_does_not_keep_a_member_from_leading(
    member: RottingMember, other: RottingMember
) -> None:
    member.flip(member.data(member.place(57) + IN_BODY))
    member.scrub()
    assert member.ledger.is_damaged
    for _ in range(2):
        file = other.log.files.files[0]
        file.delete()
        other.log.files.drop_first(file)
    wire = Wire()

    async def run() -> None:
        async with Menders(wire, {"n0": member, "n1": other}):

            async def may_lead() -> bool:
                return not member.ledger.is_damaged

            await eventually("it may lead", may_lead)

    asyncio.run(run())
    assert member.damage == [(57, 57)]


async def test_terms_of_the_neighbours_must_agree(member: RottingMember, other: RottingMember) -> None:
    wire = Wire()
    async with Menders(wire, {"n0": member, "n1": other}):
        asked = EntriesRequest(1, 57, 57, 1, 2)
        for each in (asked, replace(asked, previous_term=2, next_term=3)):
            wire.repairs["n1"].heard("n0", each)

            async def is_given() -> bool:
                return bool(wire.given)

            await eventually("it is answered", is_given)
            answer = wire.given.pop()
            assert answer.run is None and "the logs differ" in answer.why
        wire.repairs["n1"].heard("n0", replace(asked, previous_term=-1, next_term=-1))
        await eventually("it is answered", is_given)
        assert wire.given[0].run is not None


@pytest.mark.parametrize(
    ("first", "last"), [(-5, 3), (5, 3), (0, 1 << 60), (1 << 60, 1 << 61), (COMMITTED, COMMITTED + 1)]
)
async def test_what_cannot_be_asked_for_is_refused(
    member: RottingMember, other: RottingMember, first: int, last: int
) -> None:
    wire = Wire()
    async with Menders(wire, {"n0": member, "n1": other}):
        wire.repairs["n1"].heard("n0", EntriesRequest(1, first, last, -1, -1))

        async def is_given() -> bool:
            return bool(wire.given)

        await eventually("it is answered", is_given)
        assert wire.given[0].run is None


async def test_a_member_that_floods_with_requests_gets_one_answer_at_a_time(
    member: RottingMember, other: RottingMember
) -> None:
    wire = Wire()
    async with Menders(wire, {"n0": member, "n1": other}):
        for number in range(1000):
            wire.repairs["n1"].heard("n0", EntriesRequest(number, 3, 3, -1, -1))

        async def is_given() -> bool:
            return bool(wire.given)

        await eventually("it is answered", is_given)
        assert [each.number for each in wire.given] == [0]


def test_a_large_hole_is_filled_by_parts(member: RottingMember, other: RottingMember) -> None:
    whole = member.cold_bytes()
    write(*member.data(FILE_SIZE), bytes(FILE_SIZE))
    member.scrub()
    wire = mend(member, other, part_size=4096)
    assert len(wire.asked) > 10
    assert member.cold_bytes() == whole


# One of two terms.


def test_another_member_says_which_of_two_terms_is_right(member: RottingMember, other: RottingMember) -> None:
    whole, unit = member.cold_bytes(), member.unit(150)
    member.flip((unit[0], unit[1] + 31), 0x20)
    member.flip(member.data(member.place(302) + 23), 0x08)
    member.scrub()
    assert len(member.damage) == 2
    mend(member, other)
    assert member.cold_bytes() == whole


def test_a_third_term_is_not_believed(member: RottingMember, other: RottingMember) -> None:
    path, at = member.unit(57)
    member.flip((path, at + 31), 0x01)  # The index says 3, the entry 2.
    member.scrub()
    (damage,) = member.log.known_damage.found
    assert damage.terms == (2, 3)
    judged = a_liar(other, LIES["a lower term"])(EntriesRequest(1, 57, 57, -1, -1))
    assert isinstance(judged, EntriesAnswer) and judged.run is not None
    lenient = replace(damage, previous_term=-1, next_term=-1)
    with pytest.raises(Malformed, match="term 1 there"):
        Patcher(member.log, member.disk).judge(lenient, judged.run)


def test_a_member_is_believed_as_far_as_crcs_go(member: RottingMember, other: RottingMember) -> None:
    """They are no signatures: who is let into a group is trusted with its log, as its leader is."""
    member.flip(member.data(member.place(57) + IN_BODY))
    member.scrub()
    wire = Wire()
    wire.liars["n1"] = a_liar(other, resealed)

    async def run() -> None:
        async with Menders(wire, {"n0": member}):
            await repaired(member)

    asyncio.run(run())
    assert len(wire.asked) == 1
