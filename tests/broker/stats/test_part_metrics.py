"""Figures of parts of a broker, on its page of metrics."""

from __future__ import annotations

from pathlib import Path

from tests.broker.delay.timerscenes import SECOND
from tests.broker.delay.timerscenes import a_scene as timers
from tests.broker.desks import DeskBench
from tests.broker.transactions.scenes import a_scene as transactions

from flaremq.broker.offload import Offload
from flaremq.broker.stats.metrics import BrokerMetrics


async def figures(desk: DeskBench, *names: str) -> list[str]:
    """Their lines on the page, without the labels of the broker."""
    offload = Offload(1)
    try:
        page = await BrokerMetrics(
            desk.broker._settings,
            store=desk.store,
            stats=desk.broker.stats,
            tables=desk.tables,
            families={},
            parts=[each.metrics for each in desk.made.inner],
            offload=offload,
            clock=desk.clock,
        ).page()
    finally:
        offload.close()
    found = [line for line in page.body.splitlines() if line.startswith(tuple(f"{name}{{" for name in names))]
    return [f"{line.partition('{')[0]} {line.rpartition(' ')[2]}" for line in sorted(found)]


async def test_timers_tell_what_waits_and_how_late_they_are(tmp_path: Path) -> None:
    names = ("rocketmq_timing_messages", "rocketmq_timer_enqueue_lag", "rocketmq_timer_dequeue_latency")
    async with timers(tmp_path) as scene:
        for number in range(3):
            await scene.send(number, DELAY_SEC=20)
        await scene.after(SECOND)
        await scene.send(3, DELAY_SEC=20)
        assert await figures(scene.desk, *names) == [
            "rocketmq_timer_dequeue_latency 0",
            "rocketmq_timer_enqueue_lag 1",
            "rocketmq_timing_messages 3",
        ]
        scene.clock.advance_ms(30 * SECOND)
        late = (await figures(scene.desk, *names))[0]
        assert int(late.rpartition(" ")[2]) >= 29 * SECOND
        assert len(await scene.after()) == 4
        assert "rocketmq_timing_messages 0" in await figures(scene.desk, *names)


async def test_transactions_tell_how_many_are_open_and_since_when(tmp_path: Path) -> None:
    names = ("rocketmq_half_messages", "rocketmq_half_oldest_seconds")
    async with transactions(tmp_path) as scene:
        await scene.prepare(0)
        scene.clock.advance_ms(4_000)
        await scene.prepare(1)
        scene.transactions.notice()
        assert await figures(scene.desk, *names) == [
            "rocketmq_half_messages 2",
            "rocketmq_half_oldest_seconds 4.0",
        ]
