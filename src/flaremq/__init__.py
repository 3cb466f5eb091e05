"""FlareMQ: a RocketMQ-compatible messaging system in Python.

    from flaremq import Message, Producer, PushConsumer

The names here are those of the async clients. `flaremq.client.sync` has the same for programs that
block. Each is loaded when it is asked for, so a broker never loads a client.
"""

from importlib import import_module
from typing import Any

__all__ = [
    "Admin",
    "Client",
    "ClientSettings",
    "ConsumeContext",
    "ConsumeFromWhere",
    "ConsumeHook",
    "ConsumerSettings",
    "Decision",
    "FlareError",
    "Later",
    "LitePullConsumer",
    "Message",
    "MessageQueue",
    "Producer",
    "ProducerSettings",
    "PullConsumer",
    "PushConsumer",
    "Recall",
    "Receipt",
    "ReceivedMessage",
    "SendContext",
    "SendHook",
    "SendStatus",
    "Trace",
    "Transaction",
    "TransactionProducer",
    "by_hash",
    "reject",
    "split_batches",
]

_PLACES = {
    "Admin": "admin.admin",
    "Client": "client.client",
    "ClientSettings": "client.settings",
    "ConsumeContext": "client.hooks",
    "ConsumeFromWhere": "protocol.bodies.group",
    "ConsumeHook": "client.hooks",
    "ConsumerSettings": "client.settings",
    "FlareError": "base.errors",
    "Later": "client.consumer.outcome",
    "LitePullConsumer": "client.consumer.litepull",
    "Message": "model.message",
    "MessageQueue": "model.message",
    "Decision": "client.message",
    "Producer": "client.producer.producer",
    "ProducerSettings": "client.settings",
    "PullConsumer": "client.consumer.litepull",
    "PushConsumer": "client.consumer.push",
    "Recall": "client.message",
    "Receipt": "client.message",
    "ReceivedMessage": "client.message",
    "SendContext": "client.hooks",
    "SendHook": "client.hooks",
    "SendStatus": "client.message",
    "Trace": "client.settings",
    "Transaction": "client.producer.transaction",
    "TransactionProducer": "client.producer.transaction",
    "by_hash": "client.producer.balance",
    "reject": "client.consumer.outcome",
    "split_batches": "client.producer.packing",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("flaremq")
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module 'flaremq' has no attribute {name!r}")
    return getattr(import_module(f"flaremq.{place}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
