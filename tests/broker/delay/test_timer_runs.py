"""Timer messages, many at once: what they leave behind is what each would leave alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path

import pytest
from tests.broker.delay.timerscenes import SECOND, TOPIC, WHEEL, a_scene, handle_of, spoil
from tests.protocol.samples import a_send

from flaremq.base.units import KiB, MiB
from flaremq.broker.delay.copies import Copies
from flaremq.broker.delay.entering import Entering
from flaremq.model import names
from flaremq.model.record import decode_many
from flaremq.model.topic import TopicConfig
from flaremq.protocol.codes import ResponseCode
from flaremq.testing.fakes.builders import a_message


async def a_mixed_life(folder: Path) -> tuple[bytes, bytes, bytes]:
    """The log, the timer log and the wheel's counts after messages of all kinds have come."""
    async with a_scene(folder, timer_roll_slots=20, consumequeue_file_size=20_000) as scene:
        for topic in ("Other", "Gone"):
            scene.desk.tables.topics.put(TopicConfig(topic, 4, 4))
        # All queues have their files: no dispatch has to wait for a thread.
        for topic, queue_id in (
            (WHEEL, 0),
            (TOPIC, 2),
            (TOPIC, 0),
            ("Other", 2),
            (names.UNDELIVERED_TOPIC, 0),
        ):
            scene.desk.store.put(a_message(b"x", topic=topic.encode(), queue_id=queue_id))
        await scene.desk.run()
        handles = []
        for number in range(45):
            topic = {3: "Gone", 5: "Other", 40: "Other"}.get(number, TOPIC)
            span = {7: 31, 30: 25}.get(number, 3 + number % 3)
            more = {"OTHER": "v" * 32_500} if number == 11 else {"NOTE": "\u00e9"} if number == 12 else {}
            handles.append(handle_of(await scene.send(number, topic=topic, DELAY_SEC=span, **more)))
        await scene.after(SECOND)
        for number in (4, 20, 30):
            await scene.recall(handles[number])
        await scene.desk.delete("Gone")
        spoil(scene, b"REAL_QID\x012\x02", b"REAL_QID\x01?\x02")
        for _ in range(32):
            await scene.after(SECOND)
        assert len(scene.of(TOPIC)) == 2 + 45 - 3 - 3
        counts = scene.timers.counts.wrapper().timing_count
        assert scene.timers.counts.total == 0
        units = b"".join(path.read_bytes() for path in sorted((folder / "timerlog").iterdir()))
        return scene.desk.log(), units, repr(sorted((t, m.count) for t, m in counts.items())).encode()


@pytest.mark.parametrize("alone", ["entered", "delivered"])
async def test_messages_that_go_alone_leave_the_same_bytes_as_many_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: str
) -> None:
    together = await a_mixed_life(tmp_path / "together")
    if alone == "entered":
        monkeypatch.setattr(Entering, "_enter_many", lambda *_: 0)
    else:
        monkeypatch.setattr(Copies, "put_some", lambda *_: {})
    assert await a_mixed_life(tmp_path / "alone") == together


async def test_sends_are_served_while_a_second_of_thousands_is_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_scene(tmp_path, commitlog_file_size=4 * MiB, consumequeue_file_size=200_000) as scene:
        text = "UNIQ_KEY\x01U\x02TIMER_DELAY_SEC\x015\x02"
        sends = [replace(a_send(b=TOPIC, e="2", i=text), body=b"%d" % n, opaque=n) for n in range(4000)]
        for first in range(0, 4000, 200):
            await scene.desk.ask(*sends[first : first + 200])
        await scene.after(SECOND)
        ticks, come = count(), [0]
        served: list[int] = []

        async def between(_delay_s: float) -> None:
            come.append(scene.desk.store.max_offset(TOPIC.encode(), 2))
            answer = await scene.send(len(served))
            served.append(answer.code)

        monkeypatch.setattr(scene.timers, "_now_s", lambda: next(ticks) / 2000)  # Each look takes 0.5 ms.
        monkeypatch.setattr(scene.timers, "_sleep", between)
        await scene.after(5 * SECOND)
        assert scene.desk.store.max_offset(TOPIC.encode(), 2) == 4000 + len(served)
    assert len(served) >= 4 and set(served) == {ResponseCode.SUCCESS}
    assert max(after - before for before, after in pairwise(come)) <= 1100


async def test_a_second_of_many_files_and_more_than_one_run_comes_in_order(tmp_path: Path) -> None:
    async with a_scene(tmp_path, commitlog_file_size=64 * KiB, consumequeue_file_size=20_000) as scene:
        text = "UNIQ_KEY\x01U\x02TIMER_DELAY_SEC\x0160\x02"
        sends = [replace(a_send(b=TOPIC, e="2", i=text), body=b"%d" % n, opaque=n) for n in range(700)]
        for first in range(0, 700, 100):
            await scene.desk.ask(*sends[first : first + 100])
        await scene.after(61 * SECOND)
        assert len(scene.desk.store.log.starts()) > 3
        assert len(list((tmp_path / "timerlog").iterdir())) > 20
        found = scene.desk.store.get(TOPIC.encode(), 2, 0, 4096)
        came = [each.body for each in decode_many(b"".join(bytes(part) for part in found.records))]
    assert came == [b"%d" % n for n in range(700)][: len(came)]
    assert found.max_offset == 700
