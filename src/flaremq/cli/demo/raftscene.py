"""A Raft group that loses its leader under load, for the demo."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Final

from flaremq.admin.admin import Admin
from flaremq.admin.values.topics import TopicSettings
from flaremq.base.errors import FlareError
from flaremq.client.client import Client
from flaremq.client.consumer.litepull import LitePullConsumer
from flaremq.client.message import SendStatus
from flaremq.client.producer.producer import Producer
from flaremq.client.settings import ClientSettings, ConsumerSettings
from flaremq.model.message import Message
from flaremq.protocol.bodies.group import ConsumeFromWhere
from flaremq.servers.membership import member_settings

BROKER: Final = "broker-c"
TOPIC: Final = "Receipts"
_MEMBERS: Final = 3
_PACE_S: Final = 0.005
_BEFORE_S: Final = 1.5
_AFTER_S: Final = 2.0
_LIMIT_S: Final = 30.0

Serve = Callable[[str, Mapping[str, object]], Awaitable[None]]
"""Starts a broker process of this name, with these options."""
Kill = Callable[[str], Awaitable[None]]


@dataclass(slots=True)
class RaftScene:
    """What happened."""

    acknowledged: int = 0
    lost: int = 0
    pause_s: float = 0.0
    """The longest time between two acknowledgements: that of the election, and of clients noticing it."""
    _acknowledged: set[str] = field(default_factory=set)

    async def run(
        self, settings: ClientSettings, say: Callable[[str], None], serve: Serve, kill: Kill
    ) -> None:
        members = member_settings(_MEMBERS, "127.0.0.1")
        await asyncio.gather(
            *(serve(f"{BROKER}-{own['dLegerSelfId']}", {"brokerName": BROKER, **own}) for own in members)
        )
        async with Admin(settings=settings) as admin, Client(settings=settings) as client:
            await self._leader(admin, {""})
            await admin.topics.create(TOPIC, TopicSettings(read_queues=1, write_queues=1), broker=BROKER)
            async with Producer("tills", client=client) as producer:
                selling = asyncio.create_task(self._sell(producer))
                try:
                    await asyncio.sleep(_BEFORE_S)
                    leader = await self._leader(admin, {""})
                    await kill(f"{BROKER}-{leader}")
                    heir = await self._leader(admin, {"", leader})
                    await asyncio.sleep(_AFTER_S)
                finally:
                    selling.cancel()
            self.lost = len(self._acknowledged - await self._read(client))
        self.acknowledged = len(self._acknowledged)
        say(f"  [green]✓[/] a Raft group loses its leader {leader} (kill -9), and {heir} takes over")
        say(
            f"    [dim]{self.acknowledged:,} receipts acknowledged, {self.lost} lost, no answer for "
            f"{self.pause_s:.1f} s[/]"
        )

    async def _leader(self, admin: Admin, but: set[str]) -> str:
        deadline_s = perf_counter() + _LIMIT_S
        while perf_counter() < deadline_s:
            for member in await admin.raft.members(broker=BROKER):
                if member.answers and member.member not in but:
                    return member.member
            await asyncio.sleep(0.05)
        raise FlareError(f"the group has elected no leader within {_LIMIT_S:g} s: this is a bug")

    async def _sell(self, producer: Producer) -> None:
        last_s = perf_counter()
        for number in range(1 << 30):
            receipt = f"receipt-{number}"
            try:
                sent = await producer.send(Message(TOPIC, receipt.encode()))
            except FlareError:
                continue  # It may be stored or not: only what was acknowledged is promised.
            if sent.status is SendStatus.OK:
                self._acknowledged.add(receipt)
                now_s = perf_counter()
                self.pause_s, last_s = max(self.pause_s, now_s - last_s), now_s
            await asyncio.sleep(_PACE_S)

    async def _read(self, client: Client) -> set[str]:
        first = ConsumerSettings(start_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        found: set[str] = set()
        deadline_s = perf_counter() + _LIMIT_S
        async with LitePullConsumer("receipts", settings=first, client=client) as consumer:
            consumer.subscribe(TOPIC)
            while not self._acknowledged <= found and perf_counter() < deadline_s:
                found |= {message.body.decode() for message in await consumer.poll(timeout_s=1)}
        return found
