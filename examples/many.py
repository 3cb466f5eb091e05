"""From an event loop: many messages in flight at a time, batches, and one-way messages."""

import asyncio

from flaremq import Message, Producer, split_batches
from flaremq.client.settings import namesrv_or_usual


async def main(namesrv: str) -> int:
    async with Producer("sensors", namesrv) as producer:
        readings = [Message("Readings", b"%d" % number, tags="t") for number in range(2000)]
        receipts = await producer.send_many(readings)  # In the order of the messages.
        print(f"{len(receipts)} stored, the last one at {receipts[-1].queue_offset}")

        batches = split_batches(readings, size_max=64 * 1024)
        for batch in batches:
            await producer.send_batch(batch)  # Each in one request, to one queue.
        print(f"the same again in {len(batches)} batches")

        await producer.send_oneway(Message("Readings", b"one-way: no receipt"))
    return 2 * len(readings) + 1


if __name__ == "__main__":
    asyncio.run(main(namesrv_or_usual()))
