"""How programs that are there all the time find a new leader."""

from __future__ import annotations

from contextlib import suppress

from tests.testing.sim.groups import TOPIC, Group, play

from flaremq.base.errors import FlareError
from flaremq.client.producer.producer import Producer
from flaremq.client.settings import ProducerSettings
from flaremq.model.message import Message

REFRESH_S = 5.0


def test_fault_47_a_producer_ends_at_the_new_leader_within_two_refreshes_of_its_route() -> None:
    """One NameServer hears of the old leader only, which other members cannot reach, and clients can."""

    async def scenario(group: Group) -> None:
        sim, found = group.sim, list[str]()

        async def sell() -> float:
            settings = ProducerSettings(timeout_s=2.0)
            async with (
                sim.client(group.client, refresh_s=REFRESH_S) as client,
                Producer("p", settings=settings, client=client) as producer,
            ):
                await producer.send(Message(TOPIC, b"before".ljust(300)))
                while client.namesrvs.chosen != sim.namesrv.split(";")[1]:
                    client.namesrvs.doubt()
                group.cut_off(old)
                sim.wires.cut([sim.namesrvs[1].ip], [each.ip for each in group.others(old)])
                await group.led(but_not_by=old)
                led_s = sim.loop.now_s
                while not found and sim.loop.now_s < led_s + 3 * REFRESH_S:
                    with suppress(FlareError):
                        await producer.send(Message(TOPIC, b"after".ljust(300)))
                        found.append("after")
                return sim.loop.now_s - led_s

        old = await group.led()
        assert await group.client.do(sell()) <= 2 * REFRESH_S
        assert not group.of(old).node.may_answer()
        assert found and set(found) <= set(await group.agree())

    play(scenario, namesrvs=2)
