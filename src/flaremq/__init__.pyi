# What the lazy names of the package are, for type checkers. At run time `__init__.py` finds them.
from flaremq.admin.admin import Admin as Admin
from flaremq.base.errors import FlareError as FlareError
from flaremq.client.client import Client as Client
from flaremq.client.consumer.litepull import LitePullConsumer as LitePullConsumer
from flaremq.client.consumer.litepull import PullConsumer as PullConsumer
from flaremq.client.consumer.outcome import Later as Later
from flaremq.client.consumer.outcome import reject as reject
from flaremq.client.consumer.push import PushConsumer as PushConsumer
from flaremq.client.hooks import ConsumeContext as ConsumeContext
from flaremq.client.hooks import ConsumeHook as ConsumeHook
from flaremq.client.hooks import SendContext as SendContext
from flaremq.client.hooks import SendHook as SendHook
from flaremq.client.message import Decision as Decision
from flaremq.client.message import Recall as Recall
from flaremq.client.message import Receipt as Receipt
from flaremq.client.message import ReceivedMessage as ReceivedMessage
from flaremq.client.message import SendStatus as SendStatus
from flaremq.client.producer.balance import by_hash as by_hash
from flaremq.client.producer.packing import split_batches as split_batches
from flaremq.client.producer.producer import Producer as Producer
from flaremq.client.producer.transaction import Transaction as Transaction
from flaremq.client.producer.transaction import TransactionProducer as TransactionProducer
from flaremq.client.settings import ClientSettings as ClientSettings
from flaremq.client.settings import ConsumerSettings as ConsumerSettings
from flaremq.client.settings import ProducerSettings as ProducerSettings
from flaremq.client.settings import Trace as Trace
from flaremq.model.message import Message as Message
from flaremq.model.message import MessageQueue as MessageQueue
from flaremq.protocol.bodies.group import ConsumeFromWhere as ConsumeFromWhere

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
