"""What can happen to one of our consumers, seen from its group."""

from __future__ import annotations

from flaremq.client.consumer.push import PushConsumer


async def die(consumer: PushConsumer) -> None:
    """As if its process were killed: nothing more is sent, not even good-bye, and its connections break.

    For consumers with async handlers and a client of their own.
    """
    client = consumer.client
    for tasks in (consumer._tasks, consumer._delivery._tasks, consumer._assignment._tasks, client._tasks):
        await tasks.aclose(timeout_s=5)
    for timer in consumer._delivery._timers:
        timer.cancel()
    cut(consumer)
    client._stopped = True
    await client.caller.aclose()


def cut(consumer: PushConsumer) -> None:
    """Its connections break, and it may make others."""
    for connection in list(consumer.client.caller._connections.values()):
        connection.abort()
