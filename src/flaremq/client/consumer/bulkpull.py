"""Many pulls in flight on one connection: frames from a template, all answers to one taker.

A pull by `Api.pull` costs a task, a future, a timer and two dataclasses. Reading a whole queue takes
thousands of pulls that differ in two numbers: here each costs a frame and an answer. The caller decides what
the answers mean and what to request again.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Final, Generic, Protocol, TypeVar

from flaremq.base.errors import FlareError, Malformed
from flaremq.client.api import PULLED, PullResult
from flaremq.client.errors import error_for
from flaremq.protocol import fields
from flaremq.protocol.codes import CURRENT_VERSION, LanguageCode, RequestCode
from flaremq.protocol.command import Command
from flaremq.protocol.fastjson import quote
from flaremq.protocol.headers.pull import PullMessageRequestHeader
from flaremq.remoting.connection import Connection

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

_PREFIX: Final = struct.Struct(">ii")
_CODE: Final = RequestCode.PULL_MESSAGE
_NUMBERS: Final = ("queueOffset", "maxMsgNums")


class PullFrames:
    """Frames of pulls that differ only in where they begin and how much they ask for."""

    def __init__(self, header: PullMessageRequestHeader) -> None:
        same = ",".join(
            f"{quote(name)}:{quote(value)}"
            for name, value in fields.encode(header).items()
            if name not in _NUMBERS
        )
        before = f'{{"code":{int(_CODE)},"extFields":{{{same},"queueOffset":"'.replace("%", "%%")
        behind = (
            f'"}},"flag":0,"language":"{LanguageCode.PYTHON.name}","opaque":%d,'
            f'"serializeTypeCurrentRPC":"JSON","version":{int(CURRENT_VERSION)}}}'
        )
        self._form = f'{before}%d","maxMsgNums":"%d{behind}'.encode()

    def frame(self, offset: int, count: int, opaque: int) -> bytes:
        header = self._form % (offset, count, opaque)
        return _PREFIX.pack(len(header) + 4, len(header)) + header


class PullTaker(Protocol[T_contra]):
    """Takes the answers, in whatever order they arrive."""

    def pulled(self, what: T_contra, pulled: PullResult) -> None: ...
    def failed(self, what: T_contra, error: FlareError) -> None: ...


class PullLine(Generic[T]):
    """The pulls that one taker has in flight on one connection."""

    def __init__(self, connection: Connection, address: str, taker: PullTaker[T]) -> None:
        self.connection = connection
        self.address = address
        self._taker = taker
        self._under: dict[int, T] = {}
        self._frames: list[bytes] = []
        self._time = asyncio.get_running_loop().time
        self.quiet_since_s = self._time()
        """When the last answer arrived, or else when the first pull in flight was written."""

    def __len__(self) -> int:
        """How many pulls are not answered yet."""
        return len(self._under)

    def ask(self, what: T, frames: PullFrames, offset: int, count: int) -> None:
        """Add a pull, which is sent by the next `write`."""
        pending = self.connection.pending
        opaque = pending.next_opaque()
        if not self._under:
            self.quiet_since_s = self._time()
        self._under[opaque] = what
        pending.taken_by[opaque] = self
        self._frames.append(frames.frame(offset, count, opaque))

    def write(self) -> None:
        if self._frames:
            self.connection.send_bytes(b"".join(self._frames))
            self._frames.clear()

    def forget(self) -> None:
        """The answers are no longer needed."""
        for opaque in self._under:
            self.connection.pending.forget(opaque)
        self._under.clear()
        self._frames.clear()

    def give_up(self, error: FlareError) -> None:
        """No answer for too long: close the connection, and fail all its pulls with this error."""
        under = list(self._under.values())
        self.forget()
        self.connection.close()
        for what in under:
            self._taker.failed(what, error)

    # What the connection calls.

    def answered(self, opaque: int, response: Command) -> None:
        if opaque not in self._under:
            return
        what, self.quiet_since_s = self._under.pop(opaque), self._time()
        if response.code not in PULLED:
            self._taker.failed(what, error_for(self.address, _CODE, response))
            return
        found = response.fields
        try:
            pulled = PullResult(
                response.code,
                int(found["nextBeginOffset"]),
                int(found["minOffset"]),
                int(found["maxOffset"]),
                int(found["suggestWhichBrokerId"]),
                b"" if response.body is None else response.body,
            )
        except (KeyError, ValueError):
            self._taker.failed(what, Malformed(f"{self.address} answers a pull without offsets: {response}"))
            return
        self._taker.pulled(what, pulled)

    def stored(
        self, opaque: int, _queue_id: int, _queue_offset: int, _offset_id: str, _region: str | None
    ) -> None:
        """An answer to a send, which is never expected here."""
        if opaque in self._under:
            self._taker.failed(self._under.pop(opaque), Malformed(f"{self.address} answers a pull as a send"))

    def lost(self, opaque: int, error: Exception) -> None:
        if opaque in self._under:
            assert isinstance(error, FlareError)
            self._taker.failed(self._under.pop(opaque), error)
