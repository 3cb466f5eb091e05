"""Ends of transactions, many at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.broker.desks import Line
from tests.broker.transactions.scenes import COMMIT, OP, ROLLBACK, TOPIC, UNKNOWN, a_scene

from flaremq.broker.stats.stats import Name
from flaremq.model.columns import Drafts
from flaremq.protocol.codes import ONE_WAY, ResponseCode
from flaremq.store.flags import Flag


async def test_the_ends_of_a_turn_are_stored_in_one_append(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        for number in range(20):
            await scene.prepare(number)
        ends = [scene.an_end(n, COMMIT if n % 4 else ROLLBACK, opaque=n) for n in range(20)]
        line, appends = Line(), list[int]()
        put_many = scene.desk.store.put_many

        def noted(drafts: Drafts) -> int:
            appends.append(len(drafts))
            return put_many(drafts)

        scene.desk.store.put_many = noted  # type: ignore[method-assign]
        answers = await scene.desk.ask(*ends, line=line)
        assert [(answer.opaque, answer.code) for answer in answers] == [(n, 0) for n in range(20)]
        assert (appends, line.commands) == ([35], [])
        assert scene.bodies() == [b"%d" % n for n in range(20) if n % 4]
        assert scene.bodies(OP) == [b"%d" % n for n in range(20)]
        assert not len(scene.transactions.ledger)


@pytest.mark.parametrize("by_lane", [True, False])
async def test_a_committed_message_counts_with_the_bytes_of_its_own_record(
    tmp_path: Path, by_lane: bool
) -> None:
    """Those of the op that is stored with it count for nothing that a user knows."""
    async with a_scene(tmp_path) as scene:
        scene.by_lane = by_lane
        for number in range(3):
            await scene.prepare(number)
        for number, how in enumerate((COMMIT, ROLLBACK, COMMIT)):
            await scene.end(number, how)
        counted = dict(scene.desk.broker.stats.totals(Name.TOPIC_PUT_SIZE))
        assert counted[TOPIC] == sum(message.size for message in scene.of(TOPIC))


async def test_ends_that_are_not_ordinary_are_left_to_be_served_alone(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        await scene.prepare(0)
        await scene.prepare(1, DELAY=3)
        await scene.prepare(2)
        ends = [
            scene.an_end(0, COMMIT, opaque=0),
            scene.an_end(0, COMMIT, opaque=1),  # Once more, in the same turn.
            scene.an_end(0, ROLLBACK, opaque=2),
            scene.an_end(1, COMMIT, opaque=3),  # It still has to wait.
            scene.an_end(2, COMMIT, opaque=4, producerGroup="others"),
            scene.an_end(2, COMMIT, opaque=5, tranStateTableOffset="77"),
            scene.an_end(2, UNKNOWN, opaque=6),
            scene.an_end(2, COMMIT, opaque=7, commitLogOffset="-1"),
            scene.an_end(2, COMMIT, opaque=8, AccessKey="key"),
        ]
        line = Line()
        (answer,) = await scene.desk.ask(*ends, line=line)
        assert (answer.opaque, answer.code) == (0, ResponseCode.SUCCESS)
        assert sorted(command.opaque for command in line.commands) == [*range(1, 9)]
        assert scene.bodies() == [b"0"]


async def test_an_end_that_the_store_refuses_is_left_to_be_served_alone(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        await scene.prepare(0)
        end, line = scene.an_end(0, COMMIT), Line()
        scene.desk.store.flags.set(Flag.DISK_FULL, "no space")
        assert await scene.desk.ask(end, line=line) == []
        assert len(line.commands) == 1
        assert len(scene.bodies()) == 0


async def test_a_one_way_end_has_no_answer(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        await scene.prepare(0)
        line = Line()
        assert await scene.desk.ask(replace(scene.an_end(0, COMMIT), flag=ONE_WAY), line=line) == []
        assert (scene.bodies(), line.commands) == ([b"0"], [])


@pytest.mark.parametrize("digits", [19, 5_000])
@pytest.mark.parametrize("name", ["tranStateTableOffset", "commitLogOffset"])
async def test_a_number_that_is_too_long_harms_no_other_end(tmp_path: Path, name: str, digits: int) -> None:
    async with a_scene(tmp_path) as scene:
        await scene.prepare(0)
        await scene.prepare(1)
        line, strange = Line(), Line(6000)
        scene.desk.deliver(strange, scene.an_end(1, COMMIT, 1, **{name: "9" * digits}))
        (answer,) = await scene.desk.ask(scene.an_end(0, COMMIT), line=line)
        assert (answer.code, line.errors, strange.errors) == (ResponseCode.SUCCESS, [], [])
        assert [command.opaque for command in strange.commands] == [1]


@pytest.mark.parametrize("part", [b"UNIQ_KEY\x01", b"REAL_TOPIC\x01"])
async def test_a_prepared_message_that_is_damaged_harms_no_other_end(tmp_path: Path, part: bytes) -> None:
    async with a_scene(tmp_path) as scene:
        await scene.prepare(0)
        await scene.prepare(1)
        ends = [scene.an_end(number, COMMIT, number) for number in (0, 1)]
        view = scene.desk.store.log.files.files[0].view
        at = bytes(view).index(part) + len(part)
        view[at : at + 1] = b"\xff"
        line = Line()
        answers = await scene.desk.ask(*ends, line=line)
        assert (1, ResponseCode.SUCCESS) in [(answer.opaque, answer.code) for answer in answers]
        assert line.errors == []
