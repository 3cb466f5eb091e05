"""What a returning master takes over from the slaves that acted for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.desks import DeskBench, a_desk
from tests.broker.replicas.wires import Wires

from flaremq.base.errors import FlareError, Malformed
from flaremq.broker.offload import Offload
from flaremq.broker.replicas.copyback import CopyBack
from flaremq.broker.replicas.exchange import MemberCalls
from flaremq.model.topic import DataVersion
from flaremq.protocol import beans
from flaremq.protocol.bodies.group import ConsumerOffsetSerializeWrapper, DelayOffsetSerializeWrapper
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command, response_to
from flaremq.store.timer.timercheck import Progress, progress_of

SLAVE = "10.0.0.2:10911"
OFFSETS, DELAYS = RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_DELAY_OFFSET
TIMER = RequestCode.GET_TIMER_CHECK_POINT


class Wheel:
    """The timers of the master: how far they are, and what they were told."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.told: list[Progress] = []

    def adopt(self, told: Progress) -> None:
        self.told.append(told)


class Scene:
    def __init__(self, desk: DeskBench) -> None:
        self.tables = desk.tables
        self.wires = Wires()
        self.wheel = Wheel(Progress(5_000, 0, 7, 7, 0, 900, 0))
        self._offload = Offload(1)
        self._slave: dict[int, Any] = {}
        self.wires.peers[SLAVE] = self._slave

    def has(self, code: RequestCode, body: object) -> None:
        """What the slave answers."""
        encoded = body if isinstance(body, bytes) else beans.encode(body)
        self._slave[code] = lambda request: response_to(request, body=encoded)

    def offsets(self, version: DataVersion, **queues: int) -> None:
        table = {f"T@{group}": {0: offset} for group, offset in queues.items()}
        self.has(OFFSETS, ConsumerOffsetSerializeWrapper(offset_table=table, data_version=version))

    def delays(self, version: DataVersion, **levels: int) -> None:
        table = {int(level[1:]): offset for level, offset in levels.items()}
        self.has(DELAYS, DelayOffsetSerializeWrapper(offset_table=table, data_version=version))

    def refuses(self, code: RequestCode, answer: ResponseCode) -> None:
        def reply(request: Command) -> Command:
            return response_to(request, answer, "none")

        self._slave[code] = reply

    async def copy(self) -> None:
        calls = MemberCalls(self.wires)
        await CopyBack(calls, self.tables, self.wheel, self._offload).copy_from(SLAVE)

    def close(self) -> None:
        self._offload.close()


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with a_desk(tmp_path) as desk:
        scene = Scene(desk)
        yield scene
        scene.close()


async def test_what_consumers_committed_at_the_slave_counts(scene: Scene, tmp_path: Path) -> None:
    ours = scene.tables.offsets
    for group, offset in (("ahead", 50), ("behind", 20)):
        ours.commit(group, "T", 0, offset)
    newer = DataVersion(0, ours.version.counter + 1, 0)
    scene.offsets(newer, ahead=40, behind=30, new=5)
    await scene.copy()
    assert [ours.get(group, "T", 0) for group in ("ahead", "behind", "new")] == [50, 30, 5]
    assert ours.version == newer
    assert b'"T@behind":{0:30}' in (tmp_path / "config" / "consumerOffset.json").read_bytes()


async def test_offsets_that_are_older_than_ours_are_left(scene: Scene) -> None:
    scene.tables.offsets.adopt({("T", "g"): {0: 20}}, DataVersion(0, 9, 0))
    scene.offsets(DataVersion(0, 8, 99), g=30)
    await scene.copy()
    assert scene.tables.offsets.get("g", "T", 0) == 20
    scene.offsets(DataVersion(0, 9, 0), g=30)
    await scene.copy()
    assert scene.tables.offsets.get("g", "T", 0) == 30


async def test_delayed_messages_that_the_slave_has_delivered_are_not_delivered_again(
    scene: Scene, tmp_path: Path
) -> None:
    scene.tables.delays.replace({1: 10, 2: 30}, DataVersion(0, 4, 0))
    scene.delays(DataVersion(0, 3, 0), L1=99)
    await scene.copy()
    assert scene.tables.delays.get(1) == 10
    scene.delays(DataVersion(0, 5, 0), L1=12, L2=25, L3=4)
    await scene.copy()
    assert dict(scene.tables.delays.wrapper().offset_table) == {1: 12, 2: 30, 3: 4}
    assert b"1:12" in (tmp_path / "config" / "delayOffset.json").read_bytes()


async def test_timers_are_told_how_far_the_slave_was(scene: Scene) -> None:
    told = Progress(9_000, 1, 8, 8, 0, 901, 0)
    scene.has(TIMER, told.packed())
    await scene.copy()
    scene.has(TIMER, Progress(9_000, 1, 8, 8, 0, 899, 0).packed())
    await scene.copy()
    assert scene.wheel.told == [told]


async def test_a_slave_that_has_nothing_or_does_not_know_what_is_asked_gives_nothing(scene: Scene) -> None:
    scene.refuses(OFFSETS, ResponseCode.SYSTEM_ERROR)
    await scene.copy()
    assert len(scene.wires.asked) == 3 and not scene.wheel.told


async def test_a_slave_that_is_gone_or_too_busy_has_to_be_asked_again(scene: Scene) -> None:
    scene.refuses(DELAYS, ResponseCode.SYSTEM_BUSY)
    with pytest.raises(FlareError, match="GET_ALL_DELAY_OFFSET"):
        await scene.copy()
    scene.wires.peers.clear()
    with pytest.raises(FlareError, match="cannot be reached"):
        await scene.copy()


@pytest.mark.parametrize("body", [b"", b"\0" * 24, b"\0" * 33])
def test_a_progress_of_another_size_is_none(body: bytes) -> None:
    with pytest.raises(Malformed, match="expected 56"):
        progress_of(body)


def test_older_members_send_no_version_with_their_progress() -> None:
    assert progress_of(Progress(1, 2, 3, 4).packed()[:32]) == Progress(1, 2, 3, 4)
