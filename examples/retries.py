"""A message that fails is redelivered; one that can never succeed goes to the dead-letter queue."""

import asyncio

from flaremq import (
    ConsumeFromWhere,
    ConsumerSettings,
    LitePullConsumer,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    reject,
)
from flaremq.client.settings import namesrv_or_usual

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


async def main(namesrv: str) -> tuple[int, list[bytes]]:
    async with Producer("payments", namesrv) as producer:
        await producer.send(Message("Payments", b"hard"))
        await producer.send(Message("Payments", b"nonsense"))

    attempts = 0
    settled = asyncio.Event()
    consumer = PushConsumer("bank", namesrv, settings=ConsumerSettings(start_from=FIRST))

    @consumer.subscribe("Payments")
    async def handle(message: ReceivedMessage) -> None:
        nonlocal attempts
        if message.body == b"nonsense":
            raise reject("not a payment")  # To the dead-letter queue at once.
        attempts += 1
        if attempts < 2:
            raise ConnectionError("the bank does not answer")  # Redelivered later, as after any exception.
        settled.set()

    async with consumer:
        await settled.wait()
    print(f"the hard one took {attempts} attempts")

    letters: list[bytes] = []
    async with LitePullConsumer("morgue", namesrv, settings=ConsumerSettings(start_from=FIRST)) as reader:
        reader.subscribe("%DLQ%bank")
        while not letters:
            letters += [message.body for message in await reader.poll(timeout_s=5)]
    print(f"dead letters: {letters}")
    return attempts, letters


if __name__ == "__main__":
    asyncio.run(main(namesrv_or_usual()))
