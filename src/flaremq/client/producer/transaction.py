"""Messages that are delivered only if a transaction of your own succeeds.

    async with TransactionProducer("orders", namesrv, checker=is_paid) as producer:
        async with producer.transaction(Message("Orders", b"...", keys=["o-17"])) as transaction:
            ...  # Your own database: commit there.

    prepare > your own step > end: commit or roll back
                            > no end, because this process died > the broker asks any producer of the group,
                                                                  and the checker answers

The checker is the truth: it looks whether your own transaction was committed, in your own database.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

from flaremq.base.errors import FlareError, Malformed, SendFailed, UsageError
from flaremq.client.client import Client
from flaremq.client.hooks import EndContext, SendHook
from flaremq.client.message import Decision, Receipt, ReceivedMessage, Reply, SendStatus, received
from flaremq.client.producer import requests
from flaremq.client.producer.packing import NOTHING, traced_region
from flaremq.client.producer.producer import Producer
from flaremq.client.settings import ClientSettings, ProducerSettings, Trace
from flaremq.model.message import Message, MessageQueue
from flaremq.model.msgid import decode_offset_id
from flaremq.protocol import fields
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.command import Command, oneway
from flaremq.protocol.headers.transaction import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from flaremq.remoting.router import Peer

log = logging.getLogger(__name__)


Told: TypeAlias = Decision | bool | None
"""What a step or a checker returns. True: commit; False: roll back; None: not known yet."""
Checker: TypeAlias = Callable[[ReceivedMessage], Told | Awaitable[Told]]
"""Says how the transaction of a message has ended. A plain function runs in a thread."""
Step: TypeAlias = Callable[["Transaction"], Told | Awaitable[Told]]
"""Your own part of a transaction."""
BatchStep: TypeAlias = "Callable[[list[Transaction]], Told | Awaitable[Told]]"


@dataclass(slots=True)
class Transaction:
    """A transaction in progress."""

    message: Message
    receipt: Receipt
    """Of the prepared message."""
    decision: Decision = Decision.COMMIT
    """What becomes of it at the end of the block."""

    @property
    def id(self) -> str:
        """The id of the message, also for the checker (`message.message_id`)."""
        return self.receipt.message_id

    def roll_back(self) -> None:
        """End it without delivering the message."""
        self.decision = Decision.ROLLBACK


class TransactionProducer:
    """Sends transactional messages of one producer group, and answers brokers that ask about them."""

    def __init__(
        self,
        group: str,
        namesrv: str | None = None,
        *,
        checker: Checker,
        settings: ProducerSettings | None = None,
        client: Client | ClientSettings | None = None,
        hooks: Sequence[SendHook] = (),
        producer_id: str | None = None,
        trace: bool | Trace = False,
    ) -> None:
        """`checker` may be asked about transactions of other producers of the group, also of dead ones.
        With a `producer_id`, each message is prepared once, as by a Producer with an id."""
        self.group = group
        self.producer = Producer(
            group,
            namesrv,
            settings=settings,
            client=client,
            hooks=hooks,
            producer_id=producer_id,
            trace=trace,
        )
        self._checker = checker
        self._running: set[str] = set()  # Ids of transactions in progress, and of checks.

    # Life.

    async def start(self) -> None:
        self.producer.client.members.add_checker(self)
        await self.producer.start()

    async def stop(self) -> None:
        self.producer.client.members.remove_checker(self.group)
        await self.producer.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # Transactions.

    async def send(
        self, message: Message, step: Step, *, to: MessageQueue | None = None, timeout_s: float | None = None
    ) -> Decision:
        """Prepare a message, run your own step, and end the transaction as the step says.

        If the step raises, it may have succeeded all the same: the broker asks the checker, seconds later.
        """
        return await self._run(await self.prepare(message, to=to, timeout_s=timeout_s), step)

    async def send_batch(
        self, messages: Sequence[Message], step: BatchStep, *, timeout_s: float | None = None
    ) -> Decision:
        """Prepare several messages, run your own step once, and end all of them as it says.

        They may be for several topics. To brokers each is a transaction of its own: consumers may see one a
        little before another, and after a crash the checker is asked about each.
        """
        transactions: list[Transaction] = []
        decision = Decision.ROLLBACK
        try:
            for message in messages:
                prepared = await self.prepare(message, timeout_s=timeout_s)
                transactions.append(prepared)  # Also if the next one fails.
            decision = Decision.UNKNOWN
            decision = decision_of(await _result(step, transactions))
        finally:
            for transaction in transactions:
                transaction.decision = decision
                await self.end(transaction)
        return decision

    async def request(self, message: Message, step: Step, timeout_s: float = 3.0) -> Reply | None:
        """Prepare a request, run your own step, and wait for the reply of the consumer that gets it.

        A plain step runs in a thread. Returns None if the step did not commit. The time is for all of it;
        NoReply is raised when it is up, and if the step was not over by then, the broker asks the checker.
        """

        async def send(known: Mapping[str, str]) -> bool:
            transaction = await self.prepare(message, timeout_s=timeout_s, more=known)
            return await self._run(transaction, step) is Decision.COMMIT

        return await requests.request(self.producer, message, timeout_s, send)

    async def _run(self, transaction: Transaction, step: Step) -> Decision:
        transaction.decision = Decision.UNKNOWN
        try:
            transaction.decision = decision_of(await _result(step, transaction))
        finally:
            await self.end(transaction)
        return transaction.decision

    @asynccontextmanager
    async def transaction(
        self, message: Message, *, to: MessageQueue | None = None, timeout_s: float | None = None
    ) -> AsyncGenerator[Transaction, None]:
        """The same as a block: its end commits, unless `roll_back` was called in it.

        If it raises, your own part may have succeeded all the same: the broker asks the checker.
        """
        transaction = await self.prepare(message, to=to, timeout_s=timeout_s)
        try:
            yield transaction
        except BaseException:
            transaction.decision = Decision.UNKNOWN
            raise
        finally:
            await self.end(transaction)

    async def prepare(
        self,
        message: Message,
        *,
        to: MessageQueue | None = None,
        timeout_s: float | None = None,
        more: Mapping[str, str] = NOTHING,
    ) -> Transaction:
        """Send a message that nobody sees until the transaction is committed. For `end`."""
        if not isinstance(message, Message):
            raise UsageError(
                f"a transaction is about one message, and got {type(message).__name__}: for several, "
                "use send_batch"
            )
        receipt = await self.producer.send_half(message, to, timeout_s, more)
        self._running.add(receipt.message_id)
        self.producer.client.beat_soon()  # A broker asks only producers that it knows.
        transaction = Transaction(message, receipt)
        if receipt.status is not SendStatus.OK:
            transaction.decision = Decision.ROLLBACK
            await self.end(transaction)
            raise SendFailed(
                f"message {receipt.message_id} to {message.topic!r} was not stored safely "
                f"({receipt.status.name}), so the transaction was not begun",
                (),
            )
        return transaction

    async def end(self, transaction: Transaction) -> None:
        """Tell the broker how a transaction has ended. If that fails, the broker asks for it."""
        receipt = transaction.receipt
        self._running.discard(receipt.message_id)
        address = self.producer.client.routes.master(receipt.queue.broker_name)
        message = transaction.message
        self._observe(transaction.decision, message, receipt.message_id, address, receipt.region)
        if transaction.decision is Decision.UNKNOWN:
            return
        header = EndTransactionRequestHeader(
            topic=message.topic,
            producer_group=self.group,
            tran_state_table_offset=receipt.queue_offset,
            commit_log_offset=decode_offset_id(receipt.offset_id).physical_offset,
            commit_or_rollback=transaction.decision.value,
            msg_id=receipt.message_id,
            transaction_id=receipt.message_id,
            bname=receipt.queue.broker_name,
        )
        try:
            if address is None:
                raise FlareError(f"broker {receipt.queue.broker_name!r} has no master at the moment")
            await self.producer.client.api.ask(address, RequestCode.END_TRANSACTION, header)
        except FlareError as error:
            log.warning(
                "the broker was not told of the end of %s and will ask: %s", receipt.message_id, error
            )

    def _observe(
        self,
        decision: Decision,
        message: Message | ReceivedMessage,
        message_id: str,
        address: str | None,
        region: str | None,
        *,
        from_check: bool = False,
    ) -> None:
        if self.producer.hooks is not None:
            self.producer.hooks.ended(
                EndContext(
                    *(self.group, message.topic, message.tags, message.keys, message_id),
                    *(decision, from_check, address, region),
                )
            )

    # Answering brokers.

    async def check(self, peer: Peer, header: CheckTransactionStateRequestHeader, record: bytes) -> None:
        """A broker asks how a transaction has ended."""
        queue = MessageQueue("", header.bname or "", 0)
        try:
            (message,) = received(record, queue)
        except (Malformed, ValueError) as error:
            log.warning("a broker asked about a message that cannot be read: %s", error)
            return
        message.queue = MessageQueue(message.stored.topic, header.bname or "", message.stored.queue_id)
        key = message.message_id
        if key in self._running:  # Its step is not over, or a check of it.
            return
        self._running.add(key)
        try:
            decision = await self._asked(message)
        finally:
            self._running.discard(key)
        address = self.producer.client.routes.master(header.bname or "")
        region = traced_region(message.properties)
        self._observe(decision, message, key, address, region, from_check=True)
        answer = EndTransactionRequestHeader(
            topic=header.topic,
            producer_group=self.group,
            tran_state_table_offset=header.tran_state_table_offset,
            commit_log_offset=header.commit_log_offset,
            commit_or_rollback=decision.value,
            from_transaction_check=True,
            msg_id=key,
            transaction_id=header.transaction_id,
            bname=header.bname,
        )
        request = Command(code=RequestCode.END_TRANSACTION, ext_fields=fields.encode(answer))
        peer.send(oneway(request))

    async def _asked(self, message: ReceivedMessage) -> Decision:
        try:
            return decision_of(await _result(self._checker, message))
        except Exception:
            log.exception("the checker failed for %s: the broker will ask again", message)
            return Decision.UNKNOWN


def decision_of(told: Told) -> Decision:
    """Raises UsageError."""
    if isinstance(told, Decision):
        return told
    if told is None or isinstance(told, bool):
        return {True: Decision.COMMIT, False: Decision.ROLLBACK, None: Decision.UNKNOWN}[told]
    raise UsageError(f"{told!r}: expected True to commit, False to roll back, or None for not known yet")


async def _result(work: Callable[[Any], Told | Awaitable[Told]], given: object) -> Told:
    """What a function returns. A plain one may block, so it runs in a thread."""
    told = work(given) if inspect.iscoroutinefunction(work) else await asyncio.to_thread(work, given)
    return await told if inspect.isawaitable(told) else told
