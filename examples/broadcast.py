"""Broadcasting: every consumer gets every message, for example caches that must all learn of a change."""

import asyncio
from pathlib import Path

from flaremq import (
    ClientSettings,
    ConsumeFromWhere,
    ConsumerSettings,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
)
from flaremq.client.settings import namesrv_or_usual


async def main(namesrv: str, folder: Path = Path("offsets")) -> dict[str, list[bytes]]:
    heard: dict[str, list[bytes]] = {"one": [], "two": [], "three": []}
    all_heard = asyncio.Event()

    def cache(name: str) -> PushConsumer:
        settings = ConsumerSettings(
            broadcasting=True,
            start_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            offsets_folder=folder,  # Each keeps its own offsets, under its instance name.
        )
        client = ClientSettings(namesrv=namesrv, instance_name=name)
        consumer = PushConsumer("caches", settings=settings, client=client)

        @consumer.subscribe("Changes")
        async def handle(message: ReceivedMessage) -> None:
            heard[name].append(message.body)
            if all(len(each) >= 10 for each in heard.values()):
                all_heard.set()

        return consumer

    async with Producer("prices", namesrv) as producer:
        await producer.send_many([Message("Changes", b"%d" % number) for number in range(10)])
    async with cache("one"), cache("two"), cache("three"):
        await all_heard.wait()
    for name, bodies in heard.items():
        print(f"{name} heard {len(bodies)} changes")
    return heard


if __name__ == "__main__":
    asyncio.run(main(namesrv_or_usual()))
