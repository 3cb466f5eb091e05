"""Requests about transactions: their end, and parked ones brought back."""

from __future__ import annotations

from collections.abc import Iterable

from flaremq.base.errors import FlareError, IllegalOperation, InvalidParameter, Malformed
from flaremq.base.logs import fields as logged
from flaremq.base.logs import logger
from flaremq.broker.features import Feature, Requests
from flaremq.broker.send.acks import Acks
from flaremq.broker.transactions.transactions import Transactions
from flaremq.model import properties, sysflag
from flaremq.model.message import StoredMessage
from flaremq.model.msgid import decode_offset_id
from flaremq.protocol import fields
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command, response_to
from flaremq.protocol.headers.transaction import (
    EndTransactionRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
)
from flaremq.remoting.router import Peer

log = logger("broker.transactions")


class TransactionRequests(Feature):
    def __init__(self, transactions: Transactions, acks: Acks) -> None:
        self._transactions = transactions
        self._acks = acks

    def handlers(self) -> Iterable[Requests]:
        yield "endTransaction", {RequestCode.END_TRANSACTION: self.end}
        yield "adminBroker", {RequestCode.RESUME_CHECK_HALF_MESSAGE: self.resume}

    async def end(self, peer: Peer, request: Command) -> Command | None:
        """Commit or roll back. An answer of "not known yet" to a check changes nothing and has no answer."""
        header = fields.decode(EndTransactionRequestHeader, request.fields)
        kind = header.commit_or_rollback
        if kind not in (sysflag.TRANSACTION_COMMIT, sysflag.TRANSACTION_ROLLBACK):
            return None
        committed = kind == sysflag.TRANSACTION_COMMIT
        try:
            await self._end(header, committed)
        except FlareError as error:
            log.warning(
                "a transaction could not be ended",
                extra=logged(by=peer.address, group=header.producer_group, key=header.msg_id, why=error),
            )
            raise
        return response_to(request)

    async def _end(self, header: EndTransactionRequestHeader, committed: bool) -> None:
        half = self._checked(header)
        ledger, key = self._transactions.ledger, half.unique_key or ""
        if not ledger.is_open(half.queue_offset, key):
            outcome = ledger.outcome(key)
            if outcome is not None and outcome != committed:
                raise IllegalOperation(
                    f"transaction {key} was {'committed' if outcome else 'rolled back or parked'} before"
                )
            return
        work = self._transactions.commit if committed else self._transactions.roll_back
        if await self._acks.safe(work(half).end) == ResponseCode.SYSTEM_ERROR:
            raise FlareError("the transaction has ended, but the disk failed: its end may be lost")

    def _checked(self, header: EndTransactionRequestHeader) -> StoredMessage:
        half = self._transactions.prepared(header.commit_log_offset)
        if half is None:
            raise FlareError(
                "Find prepared transaction message failed: "
                f"no prepared message lies at {header.commit_log_offset}"
            )
        group = half.properties.get(properties.PRODUCER_GROUP)
        if group != header.producer_group:
            raise FlareError(
                f"The producer group wrong: the message is of {group!r}, not of {header.producer_group!r}"
            )
        if half.queue_offset != header.tran_state_table_offset:
            raise FlareError(
                f"The transaction state table offset wrong: expected {half.queue_offset}, "
                f"not {header.tran_state_table_offset}"
            )
        return half

    async def resume(self, _peer: Peer, request: Command) -> Command:
        """Begin to ask again about a parked message."""
        header = fields.decode(ResumeCheckHalfMessageRequestHeader, request.fields)
        try:
            place = decode_offset_id(header.msg_id or "")
        except Malformed as error:
            raise InvalidParameter(f"{error}: expected the offset id of a parked message") from None
        if self._transactions.resume(place.physical_offset) is None:
            raise FlareError(
                "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed: "
                f"no parked message is at {header.msg_id}"
            )
        return response_to(request)
