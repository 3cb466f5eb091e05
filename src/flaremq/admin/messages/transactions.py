"""Transactions that have not ended: listed, and decided if they are parked.

    prepared > half topic > asked about > parked topic     stays there, whatever becomes of it
                   ^                          |
                   +-------- resume ----------+             a new record of the half topic

A broker parks a prepared message when it has asked its producers too often. To decide one, it is resumed,
which makes a new record in the half topic, and that is ended at once. So the new record says that a parked
message is dealt with: it is undecided if no prepared message with its id lies behind it in the log. Nothing
else needs to be remembered, and a crash between the two steps leaves an open transaction, to decide again.

RocketMQ's brokers note an end up to three seconds late, and make a copy of an open message whenever they ask
about it. A copy made in those seconds would stay open, so it is rolled back too, which delivers nothing.

Only requests that RocketMQ has are used. An end that named the parked record itself would be accepted by
RocketMQ's brokers, but also end whichever transaction has the same number in the half topic.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from flaremq.admin.messages import scans
from flaremq.admin.servers import ServerAddress, ServerCalls
from flaremq.admin.values.messages import FoundMessage, found_in
from flaremq.admin.values.outcome import Answers
from flaremq.admin.values.transactions import HalfMessage, HalfState
from flaremq.base.errors import (
    CallTimeout,
    IllegalOperation,
    Incomplete,
    InvalidParameter,
    MessageNotFound,
    Refused,
    TopicNotFound,
)
from flaremq.model import names, properties, sysflag
from flaremq.model.message import MessageQueue
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.headers.pull import QueryMessageRequestHeader
from flaremq.protocol.headers.transaction import (
    EndTransactionRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
)

_CHECKER: Final = "CID_RMQ_SYS_TRANS"  # The group under which brokers keep how far they are.
_COPIES_MAX: Final = 64
_TIME_MAX: Final = (1 << 63) - 1
_LOOK_AGAIN_S: Final = 0.05
_SETTLED_S: Final = 10.0  # RocketMQ's brokers note ends every three seconds.


@dataclass(slots=True)
class _Halves:
    """What one broker has."""

    server: ServerAddress
    open: dict[str, FoundMessage] = field(default_factory=dict)
    """By id, the newest copy of each."""
    parked: dict[str, FoundMessage] = field(default_factory=dict)
    """By id, the newest record of each, decided or not."""
    are_ends_known: bool = True
    """RocketMQ 4.9 notes ends at once, where no client can read them: a half is open until the next check."""


class Halves:
    """A transaction is listed as open until its broker has noted its end: FlareMQ's do so at once, RocketMQ's
    every three seconds, those of 4.9 with the next check."""

    def __init__(self, servers: ServerCalls) -> None:
        self._servers = servers

    async def list(self, state: HalfState | None = None) -> Answers[HalfMessage]:
        """All that have not ended, or those in this state; the oldest first."""
        answers = await self._servers.each(await self._servers.masters(), self._of, "transactions")
        found = deque[HalfMessage]()
        for halves in answers.found.values():
            found += [self._opened(halves, key) for key in halves.open]
            if state is not HalfState.OPEN:
                found += [each for key in halves.parked if (each := await self._parked(halves, key))]
        chosen = (each for each in found if state is None or each.state is state)
        return Answers(tuple(sorted(chosen, key=lambda each: each.message.born_ms)), answers.failed)

    async def get(self, message_id: str) -> HalfMessage:
        """The one with this message id, or with this offset id. Raises MessageNotFound if it has ended."""
        halves, key = await self._find(message_id)
        found = self._opened(halves, key) if key in halves.open else await self._parked(halves, key)
        if found is None:
            raise MessageNotFound(f"transaction {message_id} was parked, and has been decided since")
        return found

    async def resume(self, message_id: str) -> None:
        """Have its producers asked again about a parked one, from the first time on."""
        halves, key = await self._find(message_id)
        parked = await self._parked(halves, key)
        if key in halves.open or parked is None:
            raise IllegalOperation(
                f"transaction {message_id} is not parked: "
                + ("its producers are being asked" if key in halves.open else "it has been decided since")
            )
        await self._resume(halves.server, parked.message)

    async def commit(self, message_id: str) -> bool:
        """Deliver the message of a parked transaction. False if that was done before: it comes only once."""
        return await self._decide(message_id, committed=True)

    async def roll_back(self, message_id: str) -> bool:
        """Withdraw the message of a parked transaction. False if that was done before."""
        return await self._decide(message_id, committed=False)

    # Deciding.

    async def _decide(self, message_id: str, *, committed: bool) -> bool:
        halves, key = await self._find(message_id)
        if key not in halves.parked:
            raise IllegalOperation(
                f"transaction {message_id} is not parked: its producers are being asked, and decide it"
            )
        record = halves.parked[key]
        half = halves.open.get(key)
        if await self._was_committed(halves.server, record):
            if not committed:
                raise IllegalOperation(
                    f"transaction {message_id} was committed before: its message is delivered"
                )
            if half is not None:
                await self._settle(halves.server, half)
            return False
        if half is None:
            if await self._parked(halves, key) is None:
                if committed:
                    raise IllegalOperation(
                        f"transaction {message_id} was rolled back before: no message of it is in topic "
                        f"{record.get(properties.REAL_TOPIC)!r}"
                    )
                return False
            half = await self._resume(halves.server, record)
        await self._end(halves.server, half, committed=committed)
        await self._settle(halves.server, half)
        return True

    async def _resume(self, server: ServerAddress, parked: FoundMessage) -> FoundMessage:
        """Resume it, and return the new prepared message."""
        api, queue = self._servers.api, MessageQueue(names.TRANS_HALF_TOPIC, server.name, 0)
        begin = await api.max_offset(server.address, queue)
        header = ResumeCheckHalfMessageRequestHeader(
            topic=names.TRANS_CHECK_MAX_TIME_TOPIC, msg_id=parked.offset_id
        )
        await api.ask(server.address, RequestCode.RESUME_CHECK_HALF_MESSAGE, header)
        try:
            async with asyncio.timeout(api.timeout_s):
                while True:
                    end = await api.max_offset(server.address, queue)
                    async for message in scans.between(self._servers, server, queue, begin, end):
                        if _is_same(message, parked):
                            return message
                    await asyncio.sleep(_LOOK_AGAIN_S)
        except TimeoutError:
            raise CallTimeout(
                f"transaction {parked.message_id} was resumed at {server.name}, but its prepared message did "
                f"not appear within {api.timeout_s:g} s: try again"
            ) from None

    async def _end(self, server: ServerAddress, half: FoundMessage, *, committed: bool) -> None:
        header = EndTransactionRequestHeader(
            topic=half.get(properties.REAL_TOPIC),
            producer_group=half.get(properties.PRODUCER_GROUP) or "",
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.stored.physical_offset,
            commit_or_rollback=sysflag.TRANSACTION_COMMIT if committed else sysflag.TRANSACTION_ROLLBACK,
            # As the answer to a check: RocketMQ refuses others if the message asks for a longer patience.
            from_transaction_check=True,
            msg_id=half.message_id,
            transaction_id=half.message_id,
            bname=server.name,
        )
        await self._servers.api.ask(server.address, RequestCode.END_TRANSACTION, header)

    async def _settle(self, server: ServerAddress, half: FoundMessage) -> None:
        """Wait until the broker has noted the end of a transaction, and end copies that it made meanwhile."""
        ended = {half.queue_offset}
        with suppress(TimeoutError):  # The decision stands: what is left is listed.
            async with asyncio.timeout(_SETTLED_S):
                while (halves := await self._of(server)).are_ends_known:
                    left = halves.open.get(half.message_id)
                    if left is None:
                        return
                    if left.queue_offset not in ended and _is_same(left, half):
                        ended.add(left.queue_offset)
                        await self._end(server, left, committed=False)
                    await asyncio.sleep(_LOOK_AGAIN_S)

    async def _was_committed(self, server: ServerAddress, parked: FoundMessage) -> bool:
        topic = parked.get(properties.REAL_TOPIC) or ""
        return any(
            sysflag.transaction_type(each.stored.sys_flag) == sysflag.TRANSACTION_COMMIT
            and each.get(properties.PRODUCER_GROUP) == parked.get(properties.PRODUCER_GROUP)
            for each in await self._by_key(server, topic, parked.message_id)
        )

    # Finding.

    async def _find(self, message_id: str) -> tuple[_Halves, str]:
        if not message_id.strip():
            raise InvalidParameter("the message id is empty: expected one as `list` shows it")
        answers = await self._servers.each(await self._servers.masters(), self._of, "transactions")
        for halves in answers.found.values():
            for key, message in (*halves.parked.items(), *halves.open.items()):
                if message_id in (key, message.offset_id):
                    return halves, key
        if answers.failed:
            raise Incomplete(f"transaction {message_id}", tuple(answers.found), answers.failed)
        raise MessageNotFound(f"no broker has a parked or open transaction {message_id}")

    def _opened(self, halves: _Halves, key: str) -> HalfMessage:
        return HalfMessage(HalfState.OPEN, halves.open[key], key in halves.parked)

    async def _parked(self, halves: _Halves, key: str) -> HalfMessage | None:
        """The parked message, unless it is dealt with: then a prepared one with its id lies behind it."""
        record = halves.parked.get(key)
        if record is None or key in halves.open:
            return None
        copies = await self._by_key(halves.server, names.TRANS_HALF_TOPIC, key)
        if not copies:  # No index, or one that is no longer complete.
            copies = await self._since(halves.server, record)
        place = record.stored.physical_offset
        if any(each.stored.physical_offset > place and _is_same(each, record) for each in copies):
            return None
        if await self._was_committed(halves.server, record):
            return None  # A copy that RocketMQ made while it had not noted the end.
        return HalfMessage(HalfState.PARKED, record, True)

    async def _since(self, server: ServerAddress, parked: FoundMessage) -> Sequence[FoundMessage]:
        """All prepared messages that were stored since a message was parked."""
        queue, api = MessageQueue(names.TRANS_HALF_TOPIC, server.name, 0), self._servers.api
        begin = max(0, await api.offset_by_time(server.address, queue, parked.stored_ms))
        end = await api.max_offset(server.address, queue)
        return [each async for each in scans.between(self._servers, server, queue, begin, end)]

    async def _by_key(self, server: ServerAddress, topic: str, key: str) -> Sequence[FoundMessage]:
        """The newest messages of a topic with this id, by the index of the broker."""
        header = QueryMessageRequestHeader(
            topic=topic,
            key=key,
            max_num=_COPIES_MAX,
            begin_timestamp=0,
            end_timestamp=_TIME_MAX,
            unique_key_query=True,
        )
        try:
            answer = await self._servers.api.ask(server.address, RequestCode.QUERY_MESSAGE, header)
        except Refused as error:
            if error.response_code == ResponseCode.QUERY_NOT_FOUND:
                return []
            raise
        found = found_in(answer.body or b"", server.name)
        return [each for each in found if each.topic == topic and each.stored.unique_key == key]

    # Reading.

    async def _of(self, server: ServerAddress) -> _Halves:
        halves = _Halves(server)
        ended: set[int] = set()
        ops = await self._read(server, names.TRANS_OP_HALF_TOPIC, _CHECKER)
        halves.are_ends_known = ops is not None
        for message in ops or ():
            text = message.body.decode("ascii", "replace")
            ended.update(int(each) for each in text.split(",") if each.isascii() and each.isdigit())
        for message in await self._read(server, names.TRANS_HALF_TOPIC, _CHECKER) or ():
            # A copy that RocketMQ makes at each check stands for the ones before it.
            if message.queue_offset in ended:
                halves.open.pop(message.message_id, None)
            else:
                halves.open[message.message_id] = message
        for message in await self._read(server, names.TRANS_CHECK_MAX_TIME_TOPIC) or ():
            halves.parked[message.message_id] = message
        for key, parked in halves.parked.items():
            half = halves.open.get(key)
            if half is not None and half.stored.physical_offset < parked.stored.physical_offset:
                del halves.open[key]  # It was parked a moment ago.
        return halves

    async def _read(
        self, server: ServerAddress, topic: str, group: str | None = None
    ) -> Sequence[FoundMessage] | None:
        """The messages of a topic, from the offset of a group on if it has one; None if it cannot be read."""
        queue, api = MessageQueue(topic, server.name, 0), self._servers.api
        try:
            end = await api.max_offset(server.address, queue)
            begin = max(0, await api.min_offset(server.address, queue))
            if group is not None:
                begin = max(begin, await api.committed(server.address, group, queue) or 0)
            return [each async for each in scans.between(self._servers, server, queue, begin, end)]
        except TopicNotFound:
            return None


def _is_same(half: FoundMessage, parked: FoundMessage) -> bool:
    """Whether both are of the same transaction."""
    return half.stored.unique_key == parked.stored.unique_key and half.get(
        properties.PRODUCER_GROUP
    ) == parked.get(properties.PRODUCER_GROUP)
