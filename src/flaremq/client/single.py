"""One send and its answer, without a Command for either: what most programs do most of the time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from flaremq.base.errors import CallTimeout
from flaremq.protocol.command import Command
from flaremq.remoting.connection import Connection

Place: TypeAlias = tuple[int, int, str]
"""Where a message was stored: queue, offset, and the id that says so."""


class Single:
    """Takes the answer, whichever way it comes."""

    __slots__ = ("answer",)

    def __init__(self) -> None:
        self.answer: asyncio.Future[Place | Command] = asyncio.get_running_loop().create_future()

    def stored(self, _opaque: int, queue_id: int, queue_offset: int, offset_id: str) -> None:
        if not self.answer.done():
            self.answer.set_result((queue_id, queue_offset, offset_id))

    def answered(self, _opaque: int, response: Command) -> None:
        if not self.answer.done():
            self.answer.set_result(response)

    def lost(self, _opaque: int, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


async def ask(connection: Connection, frame: Callable[[int], bytes], limit_s: float) -> Place | Command:
    """Write the frame that is made for an opaque, and wait. Raises ConnectionLost or CallTimeout.

    The time is for both, as a peer that does not read lets nobody write. A connection whose peer lets a send
    time out is aborted: what else waits there would wait in vain, and can be sent elsewhere.
    """
    pending, single = connection.pending, Single()
    opaque = pending.next_opaque()
    pending.taken_by[opaque] = single
    timer = asyncio.get_running_loop().call_later(max(0.0, limit_s), _expire, connection, single, limit_s)
    try:
        if connection.is_full:
            await connection.writable()
        if not single.answer.done():  # It is, where the connection was lost or the time was up meanwhile.
            connection.send_bytes(frame(opaque))
        return await single.answer
    finally:
        timer.cancel()
        pending.forget(opaque)


def _expire(connection: Connection, single: Single, limit_s: float) -> None:
    host, port = connection.address
    late = CallTimeout(
        f"{host}:{port} did not answer a send within {limit_s:.2g} s: it may be stored all the same"
    )
    single.lost(0, late)
    connection.abort()
