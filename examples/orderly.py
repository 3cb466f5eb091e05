"""The steps of one order stay in order: one key, one queue, one message at a time."""

import asyncio
from collections import defaultdict

from flaremq import ConsumeFromWhere, ConsumerSettings, Message, Producer, PushConsumer, ReceivedMessage
from flaremq.client.settings import namesrv_or_usual

STEPS = (b"created", b"paid", b"packed", b"shipped")
ORDERS = 20


async def main(namesrv: str) -> dict[str, list[bytes]]:
    async with Producer("shop", namesrv) as producer:
        for step in STEPS:
            for number in range(ORDERS):
                await producer.send(Message("Steps", step, sharding_key=f"order-{number}"))

    seen: dict[str, list[bytes]] = defaultdict(list)
    done = asyncio.Event()
    settings = ConsumerSettings(orderly=True, start_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer = PushConsumer("warehouse", namesrv, settings=settings)

    @consumer.subscribe("Steps")
    async def handle(message: ReceivedMessage) -> None:
        seen[message.sharding_key or ""].append(message.body)
        if sum(map(len, seen.values())) >= ORDERS * len(STEPS):
            done.set()

    async with consumer:
        await done.wait()
    for order, steps in sorted(seen.items()):
        print(order, b" > ".join(steps).decode())
    return seen


if __name__ == "__main__":
    asyncio.run(main(namesrv_or_usual()))
