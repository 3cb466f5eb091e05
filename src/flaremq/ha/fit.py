"""Whether the log of a slave is the beginning of its master's, asked before anything is copied.

    our tail's checksum > COMPARE_LOG at the master > same: follow
                                                    > not the same: where do they part? cut there, or refuse

The problem
-----------
A position says nothing about what lies below it. Logs part when a master loses its tail with the power, is
restored from a backup, or was another master all along; when a slave was promoted and comes back; when one
side was given other files.

How it works
------------
A FlareMQ master returns checksums of any part of its log. One of our last bytes is enough to know that the
logs are the same: a record holds its own position, its moment and its sender. If it differs, or our log is
longer, checksums of pieces are compared from the newest file backwards, until the logs agree, then in ever
smaller pieces, and the last whole record before the first difference is the point where they part.

What lies behind that point the master does not have. Where producers do not rely on slaves (ASYNC_MASTER) it
is cut, after a copy was put aside, and counted. Under SYNC_MASTER it may have been acknowledged because *we*
have it: then nothing is cut, and an operator decides which side is right.

A master of RocketMQ knows no checksums. It tells where its log begins and ends, and shows the record at our
last one's position. If that is not ours, nothing is cut either.

An example
----------
Ours ends at 5000; the master lost its power, has up to 4000 of the same and went on differently to 4600.

    checksum of ours up to 5000     the master's ends at 4600: not the same
    pieces below 4600               equal up to 3072, different from there
    smaller ones                    equal up to 4000
    last whole record before it     ends at 3960: cut 1040 bytes, follow from 3960
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Protocol, TypeVar
from zlib import crc32

from flaremq.base.errors import InvalidParameter, Malformed, PeerError
from flaremq.base.logs import fields as logged
from flaremq.base.logs import logger
from flaremq.base.settings import parse_properties
from flaremq.base.units import KiB, MiB
from flaremq.protocol import beans, fields
from flaremq.protocol.bodies.cluster import KVTable
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command
from flaremq.protocol.headers import replicas as headers

log = logger("ha.fit")

T = TypeVar("T")

TAIL_SIZE: Final = MiB  # One checksum of our last bytes.
_PIECE_SIZES: Final = (MiB, 16 * KiB, 512, 1)
"""Pieces that are compared where the logs differ: each finds the one in which the next looks."""
PIECES_MAX: Final = 1 << 16
_CALL_S: Final = 20.0
_SUM: Final = struct.Struct(">I")


class Misfit(PeerError):
    """The two logs are not one, and were not mixed."""


class PeerCalls(Protocol):
    """PeerCalls servers by address: remoting's Caller."""

    async def call(self, address: str, request: Command, timeout_s: float) -> Command: ...


class Epochs(Protocol):
    """How often slaves of one name were promoted. A master of fewer was replaced."""

    @property
    def newest(self) -> int: ...
    def follows(self, epoch: int) -> None:
        """Note durably which master is followed. Blocks."""


class ComparedLog(Protocol):
    """A log that is compared with another, and may be cut."""

    @property
    def begin(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def file_size(self) -> int: ...
    def slice(self, physical_offset: int, size: int) -> memoryview | None: ...
    def whole_before(self, physical_offset: int) -> int:
        """Behind the last whole record that ends there or before; `begin` if there is none."""

    def last_record(self) -> tuple[int, bytes] | None:
        """The newest whole record and where it lies."""

    def cut(self, end: int) -> None:
        """Give up everything from `end` on, after a copy was put aside."""


class Aside(Protocol):
    """Runs in a thread what would hold up the event loop."""

    def __call__(self, work: Callable[[], T]) -> Awaitable[T]: ...


@dataclass(frozen=True, slots=True)
class Start:
    """The logs fit: follow from `position`."""

    position: int
    cut_bytes: int = 0


@dataclass(frozen=True, slots=True)
class MasterLog:
    """What a FlareMQ master says of its log."""

    begin: int
    end: int
    file_size: int
    vouches: bool
    """Whether its producers rely on slaves: what a slave has may have been acknowledged for that."""
    sums: tuple[int, ...]
    epoch: int | None


def checksums(source: ComparedLog, offset: int, end: int, piece: int) -> bytes:
    """The checksum of each piece of [offset, end), as far as that is there; four bytes each.

    Pieces are cut at the ends of files. Reads much: not for an event loop.
    """
    limit = max(source.file_size, TAIL_SIZE)
    if piece < 1 or offset < 0 or end - offset > limit or (end - offset) // piece > PIECES_MAX:
        raise InvalidParameter(
            f"checksums of [{offset}, {end}) in pieces of {piece}: expected at most {limit} bytes and "
            f"at most {PIECES_MAX} pieces"
        )
    sums = bytearray()
    for begin, size in _pieces(offset, min(end, source.end), piece, source.file_size):
        data = source.slice(begin, size)
        if data is None:
            break
        sums += _SUM.pack(crc32(data))
    return bytes(sums)


def _pieces(offset: int, end: int, piece: int, file_size: int) -> list[tuple[int, int]]:
    found = []
    while offset < end:
        file_end = (offset // file_size + 1) * file_size
        size = min(piece, end - offset, file_end - offset)
        found.append((offset, size))
        offset += size
    return found


class LogFit:
    """Compares our log with that of a master."""

    def __init__(
        self, calls: PeerCalls, own: ComparedLog, broker_id: int, aside: Aside, epochs: Epochs
    ) -> None:
        self._calls = calls
        self._own = own
        self._broker_id = broker_id
        self._aside = aside
        self._epochs = epochs
        self.master_end = 0
        """Where the log of the master ended when it was last compared."""

    async def check(self, ha_address: str, address: str) -> Start:
        """Where to follow from. Raises Misfit if the logs do not fit, Unreachable if that cannot be known."""
        address = address or broker_beside(ha_address)
        own = self._own
        try:
            master = await self._compared(address, max(own.begin, own.end - TAIL_SIZE), own.end, TAIL_SIZE)
        except _Unknown:
            return await self._check_java(address)
        self.master_end = master.end
        self._not_replaced(master, address)
        self._same_shape(master.file_size, address)
        start = await self._start(master, address)
        if master.epoch is not None:
            epoch = master.epoch
            await self._aside(lambda: self._epochs.follows(epoch))
        return start

    async def _start(self, master: MasterLog, address: str) -> Start:
        own = self._own
        if own.end == own.begin == 0:
            return Start(0)
        if own.end < master.begin:
            raise _too_old(own.end, master.begin, address)
        mine = await self._sums(max(own.begin, own.end - TAIL_SIZE), own.end, TAIL_SIZE)
        if own.end <= master.end and mine == master.sums:
            return Start(own.end)
        return await self._part(address, master)

    def _not_replaced(self, master: MasterLog, address: str) -> None:
        if master.epoch is not None and master.epoch < self._epochs.newest:
            raise Misfit(
                f"{address} is a master of epoch {master.epoch}, and this store has seen epoch "
                f"{self._epochs.newest}: a slave was promoted in its place. Follow that one; to give up what "
                "came after the promotion, empty the store of this slave"
            )

    def _same_shape(self, file_size: int, address: str) -> None:
        if file_size != self._own.file_size:
            raise Misfit(
                f"the log files of {address} have {file_size} bytes, ours {self._own.file_size}: set "
                f"mappedFileSizeCommitLog={file_size} here, and begin with an empty store"
            )

    async def _part(self, address: str, master: MasterLog) -> Start:
        """The logs are not the same: go on from where they part, if that may be."""
        own, end = self._own, self._own.end
        common = await self._common(address, master)
        point = await self._aside(lambda: own.whole_before(common))
        if point <= own.begin:
            raise Misfit(
                f"our log and that of {address} have nothing in common: it is another broker's, or one of "
                "them was replaced; see which, and begin with an empty store here"
            )
        if master.vouches:
            raise Misfit(
                f"our log has {end - point} bytes from {point} on that {address} does not have, and its "
                "producers rely on slaves (SYNC_MASTER): it may have lost messages that we still have. "
                "Promote this slave to keep them, or empty its store to give them up"
            )
        await self._aside(lambda: own.cut(point))
        log.error(
            "the log was cut: its master does not have what lay behind",
            extra=logged(master=address, offset=point, bytes=end - point),
        )
        return Start(point, end - point)

    async def _common(self, address: str, master: MasterLog) -> int:
        """Up to where the logs are certainly the same."""
        size = self._own.file_size
        limit = min(self._own.end, master.end)
        least = max(self._own.begin, master.begin)
        first = max(least, (limit - 1) // size * size)
        found = await self._first_difference(address, first, limit, _PIECE_SIZES[0])
        while found == first > least and found is not None:  # The whole file differs: look at the one before.
            limit, first = first, max(least, first - size)
            found = await self._first_difference(address, first, limit, _PIECE_SIZES[0])
        if found is None:
            return limit
        for larger, piece in pairwise(_PIECE_SIZES):
            inner = await self._first_difference(address, found, min(found + larger, limit), piece)
            found = found if inner is None else inner
        return found

    async def _first_difference(self, address: str, begin: int, end: int, piece: int) -> int | None:
        if begin >= end:
            return None
        theirs = (await self._compared(address, begin, end, piece)).sums
        mine = await self._sums(begin, end, piece)
        pieces = _pieces(begin, end, piece, self._own.file_size)
        for number, (offset, _) in enumerate(pieces):
            if number >= len(theirs) or number >= len(mine) or theirs[number] != mine[number]:
                return offset
        return None

    async def _sums(self, begin: int, end: int, piece: int) -> tuple[int, ...]:
        return _unpacked(await self._aside(lambda: checksums(self._own, begin, end, piece)))

    async def _compared(self, address: str, begin: int, end: int, piece: int) -> MasterLog:
        header = headers.CompareLogRequestHeader(begin=begin, end=end, piece=piece, broker_id=self._broker_id)
        answer = await self._call(address, RequestCode.FLAREMQ_COMPARE_LOG, fields.encode(header))
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise _Unknown
        _expect_success(answer, address)
        said = fields.decode(headers.CompareLogResponseHeader, answer.fields)
        sums = _unpacked(bytes(answer.body or b""))
        return MasterLog(said.begin, said.end, said.file_size, said.vouches, sums, said.epoch)

    async def _call(self, address: str, code: RequestCode, ext_fields: dict[str, str]) -> Command:
        return await self._calls.call(address, Command(code=code, ext_fields=ext_fields), _CALL_S)

    # Masters of RocketMQ.

    async def _check_java(self, address: str) -> Start:
        own = self._own
        begin, end = await self._java_range(address)
        self.master_end = end
        self._same_shape(await self._java_file_size(address), address)
        if own.end == own.begin == 0:
            return Start(self._java_start(begin, end, address))
        if own.end < begin:
            raise _too_old(own.end, begin, address)
        if own.end > end:
            raise Misfit(
                f"our log ends at {own.end}, that of {address} at {end}: it has lost its tail, or is another "
                "broker's. Promote this slave to keep what it has, or empty its store to follow"
            )
        await self._java_same_record(address)
        return Start(own.end)

    def _java_start(self, begin: int, end: int, address: str) -> int:
        """Asked for 0, it sends its newest file alone; asked for anything else, all from there on."""
        if begin or end <= self._own.file_size:
            return begin
        log.warning(
            "the first file of the master's log is not copied: RocketMQ sends an empty slave no more than "
            "its newest file, unless it asks for another position than 0",
            extra=logged(master=address, begins_at=self._own.file_size),
        )
        return self._own.file_size

    async def _java_range(self, address: str) -> tuple[int, int]:
        answer = await self._call(address, RequestCode.GET_BROKER_RUNTIME_INFO, {})
        _expect_success(answer, address)
        table = beans.decode(KVTable, bytes(answer.body or b"")).table
        try:
            return int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"])
        except (KeyError, ValueError) as error:
            raise Malformed(f"{address} does not say where its log begins and ends: {error}") from None

    async def _java_file_size(self, address: str) -> int:
        answer = await self._call(address, RequestCode.GET_BROKER_CONFIG, {})
        _expect_success(answer, address)
        given = parse_properties(bytes(answer.body or b"").decode("utf-8", "replace"))
        text = given.get("mappedFileSizeCommitLog") or given.get("mapedFileSizeCommitLog") or ""
        if not text.isdigit():
            raise Malformed(f"{address} does not say how large its log files are: {text!r}")
        return int(text)

    async def _java_same_record(self, address: str) -> None:
        last = await self._aside(self._own.last_record)
        if last is None:
            return
        offset, record = last
        answer = await self._call(address, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(offset)})
        if answer.code == ResponseCode.SUCCESS and bytes(answer.body or b"") == record:
            return
        raise Misfit(
            f"the record at {offset}, our last one, is not the same at {address}: the logs have parted, and "
            "a master of RocketMQ cannot say where. See which one is right, and empty the store of this slave"
        )


class _Unknown(Exception):
    """The master does not know how to compare logs: it is not FlareMQ."""


def _expect_success(answer: Command, address: str) -> None:
    if answer.code != ResponseCode.SUCCESS:
        raise PeerError(f"{address} refused to compare the logs: code {answer.code}, {answer.remark}")


def _unpacked(sums: bytes) -> tuple[int, ...]:
    return tuple(value for (value,) in _SUM.iter_unpack(sums[: len(sums) // _SUM.size * _SUM.size]))


def broker_beside(ha_address: str) -> str:
    """The address of a broker whose HA port is the usual one."""
    host, _, port = ha_address.rpartition(":")
    return f"{host}:{int(port) - 1}" if port.isdigit() else ha_address


def _too_old(end: int, begin: int, address: str) -> Misfit:
    return Misfit(
        f"our log ends at {end}, and the oldest file of {address} begins at {begin}: what lies between is "
        "gone; begin with an empty store here"
    )
