"""Choosing messages in the broker: by tags, and by an SQL expression over properties."""

import asyncio

from flaremq import ConsumeFromWhere, ConsumerSettings, Message, Producer, PushConsumer, ReceivedMessage
from flaremq.client.settings import namesrv_or_usual

FIRST = ConsumerSettings(start_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)


async def main(namesrv: str) -> dict[str, int]:
    async with Producer("shop", namesrv) as producer:
        for number in range(30):
            tag = ("paid", "shipped", "refunded")[number % 3]
            properties = {"region": "eu" if number % 2 else "us", "price": str(number)}
            await producer.send(Message("Sales", b"x", tags=tag, properties=properties))

    counts = {"tags": 0, "sql": 0}
    both = asyncio.Event()

    def counting(name: str) -> PushConsumer:
        async def handle(_message: ReceivedMessage) -> None:
            counts[name] += 1
            if counts["tags"] >= 20 and counts["sql"] >= 10:
                both.set()

        consumer = PushConsumer(f"by_{name}", namesrv, settings=FIRST)
        if name == "tags":
            consumer.subscribe("Sales", handle, tags="paid || refunded")
        else:
            consumer.subscribe("Sales", handle, sql="region = 'eu' AND price >= 10")
        return consumer

    async with counting("tags"), counting("sql"):
        await both.wait()
    print(f"of 30 sales {counts['tags']} were paid or refunded, {counts['sql']} large ones came from Europe")
    return counts


if __name__ == "__main__":
    asyncio.run(main(namesrv_or_usual()))
