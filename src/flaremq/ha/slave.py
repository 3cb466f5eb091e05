"""A slave: connects to its master, and appends what comes as it is.

    [ALONE] > master known > [LOOKING] do the logs fit? > [CONNECTING] > [FOLLOWING] > lost > [WAITING]
                                         └ no > [REFUSED] until something changes

The problem
-----------
The master sends whatever lies behind the position that it was told. If the two logs differ below it, both go
on without a word, and the slave holds a history that never was. A TCP connection may also stay open for hours
with nobody at its other end.

How it works
------------
Before each connection the two logs are compared (`LogFit`). If they do not fit, nothing is copied: the slave
says why, in its log and status, and looks again every few seconds, because an operator may cure either side.

Every chunk names its offset. One that does not begin where our log ends closes the connection, and the next
one begins with another comparison. Chunks need not end with a record: consumers see whole records only.

A report says how far our log is as safe as we promise: in memory under ASYNC_FLUSH, on the disk under
SYNC_FLUSH. It goes out when that has grown, and at least with every heartbeat.

An example
----------
Our log ends at 1000; the master has three records of 100 bytes behind it, in two chunks.

    us      report 1000
    master  chunk 1000, 150 bytes       appended; one record is whole, consumers see it
    us      report 1150
    master  chunk 1150, 150 bytes       the other two are whole
    us      report 1300
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol, cast

from flaremq.base.clock import Clock
from flaremq.base.errors import ConnectFailed, FlareError, ResourceShort
from flaremq.base.lifecycle import Owned, Sleep
from flaremq.base.logs import Seldom, fields
from flaremq.ha.fit import LogFit, Misfit, Start, broker_beside
from flaremq.ha.settings import HaSettings
from flaremq.ha.states import FollowState, SlaveStatus
from flaremq.ha.wire import ChunkBuffer, encode_report
from flaremq.remoting.network import Network

log = logging.getLogger(__name__)

_CONNECT_S: Final = 5.0
_FIT_S: Final = 60.0  # A comparison may read much on both sides.
_PAUSES_S: Final = (0.2, 5.0)
"""Between attempts: each pause is twice the one before, up to the second."""
_REFUSED_S: Final = 5.0
_SHORT_S: Final = 0.05  # An append that found no room is tried again after this.
_TOLD_S: Final = 60.0


class Copy(Protocol):
    """The log that follows, as a slave needs it."""

    @property
    def end(self) -> int: ...
    @property
    def safe_end(self) -> int:
        """How far it is as safe as it is promised to be."""

    def append(self, physical_offset: int, data: memoryview) -> None:
        """Append bytes that belong there. Raises ResourceShort if there is no room just now, and
        Malformed if they do not belong to the end."""

    async def settled(self) -> None:
        """Wait until all of it is as safe as it is promised to be."""

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back, in any thread, when `safe_end` has grown. Returns what ends that."""


class HaSlave:
    """Follows whichever master it is told of, as long as it runs."""

    def __init__(
        self,
        settings: HaSettings,
        copy: Copy,
        fit: LogFit,
        *,
        network: Network,
        clock: Clock,
        sleep: Sleep = asyncio.sleep,
        introduce: Callable[[str, str], None] = lambda _master, _own: None,
        was_cut: Callable[[], None] = lambda: None,
    ) -> None:
        """`introduce` is called with the master's address and that of our end of a new connection; `was_cut`
        when a part of our log was given up, before anything is appended."""
        self.settings = settings
        self.copy = copy
        self.clock = clock
        self._fit = fit
        self._network = network
        self._sleep = sleep
        self._introduce = introduce
        self._was_cut = was_cut
        self._ha_address = self._address = ""
        self._changed = asyncio.Event()
        self._tasks = Owned()
        self._state, self._why = FollowState.ALONE, ""
        self._connection: MasterConnection | None = None
        self._told, self._short = Seldom(_TOLD_S), Seldom(_TOLD_S)
        self._told_why = ""
        self.cut_bytes = self.resyncs = 0
        """How much of the log was given up, and how often."""
        self.bytes_total = self.caught_up_ms = self._refusals = 0

    def start(self) -> None:
        self._tasks.spawn("follow-master", self._run())

    async def stop(self) -> None:
        if self._connection is not None:
            self._connection.close("we stop")
        await self._tasks.aclose(timeout_s=5)

    def follow(self, ha_address: str, address: str) -> None:
        """Follow this master from now on: its HA address, and the one that clients connect to. Empty: none
        is known; a connection that works is kept."""
        if (ha_address, address) == (self._ha_address, self._address):
            return
        other = bool(ha_address) and ha_address != self._ha_address
        self._ha_address, self._address = ha_address, address
        log.info("the master has changed", extra=fields(ha_address=ha_address, address=address))
        if other and self._connection is not None:
            self._connection.close(f"the master is at {ha_address} now")
        self._changed.set()

    @property
    def is_following(self) -> bool:
        return self._state is FollowState.FOLLOWING

    def status(self) -> SlaveStatus:
        """The state of now."""
        connection = self._connection
        return SlaveStatus(
            state=self._state,
            master_address=self._ha_address,
            why=self._why,
            end=self.copy.end,
            master_end=max(self._fit.master_end, connection.position if connection else 0),
            read_ms=connection.read_ms if connection else 0,
            written_ms=connection.written_ms if connection else 0,
            bytes_per_s=connection.rate() if connection else 0,
            bytes_total=self.bytes_total,
            caught_up_ms=self.caught_up_ms,
            refusals=self._refusals,
            resyncs=self.resyncs,
            cut_bytes=self.cut_bytes,
        )

    def short_of(self, error: ResourceShort) -> None:
        """The log cannot grow just now."""
        if self._short.due() is not None:
            log.warning("the copy of the log waits: %s", error)

    async def _run(self) -> None:
        pause_s = _PAUSES_S[0]
        while True:
            self._changed.clear()
            try:
                ended_well = await self._once()
                pause_s = _PAUSES_S[0] if ended_well else min(2 * pause_s, _PAUSES_S[1])
                rest_s = pause_s
            except Misfit as error:
                self._refusals += 1
                self._now(FollowState.REFUSED, str(error))
                rest_s = _REFUSED_S
            except FlareError as error:
                self._now(FollowState.WAITING, str(error))
                pause_s = rest_s = min(2 * pause_s, _PAUSES_S[1])
            except Exception as error:
                log.exception("following the master failed and will be tried again")
                self._now(FollowState.WAITING, str(error))
                pause_s = rest_s = _PAUSES_S[1]
            await self._rest(rest_s)

    async def _once(self) -> bool:
        """Compare, connect, follow until the connection ends. Whether it has followed at all."""
        if not self._ha_address:
            self._now(FollowState.ALONE)
            await self._changed.wait()
            return True
        ha_address, address = self._ha_address, self._address
        self._now(FollowState.LOOKING)
        start = await self._compare(ha_address, address)
        self._now(FollowState.CONNECTING)
        connection = await self._connect(ha_address, start.position)
        if (ha_address, address) != (self._ha_address, self._address):
            connection.close("the master has changed meanwhile")
        self._connection = connection
        self._now(FollowState.FOLLOWING)
        self._introduce(address or broker_beside(ha_address), connection.own_address)
        try:
            why = await connection.ended
        finally:
            self._connection = None
            connection.close("")
        self._now(FollowState.WAITING, why)
        return connection.has_read

    async def _compare(self, ha_address: str, address: str) -> Start:
        try:
            async with asyncio.timeout(_FIT_S):
                start = await self._fit.check(ha_address, address)
                await self.copy.settled()
        except TimeoutError:
            raise ConnectFailed(
                f"the logs could not be compared with {address} within {_FIT_S:g} s: it is slow, or a disk is"
            ) from None
        if start.cut_bytes:
            self.cut_bytes += start.cut_bytes
            self.resyncs += 1
            self._was_cut()
        return start

    async def _connect(self, ha_address: str, position: int) -> MasterConnection:
        host, _, port = ha_address.rpartition(":")
        try:
            async with asyncio.timeout(_CONNECT_S):
                return await self._network.connect(
                    host.strip("[]"), int(port), lambda: MasterConnection(self, position), None
                )
        except (OSError, ValueError) as error:  # TimeoutError is an OSError.
            why = error if str(error) else f"no answer within {_CONNECT_S:g} s"
            raise ConnectFailed(f"the HA port {ha_address} of the master cannot be reached: {why}") from None

    async def _rest(self, rest_s: float) -> None:
        """Pause, or until another master is known."""
        waiting = [asyncio.ensure_future(self._sleep(rest_s)), asyncio.ensure_future(self._changed.wait())]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()

    def _now(self, state: FollowState, why: str = "") -> None:
        before, self._state, self._why = self._state, state, why
        if state is FollowState.FOLLOWING:
            log.info("following the master", extra=fields(ha_address=self._ha_address, end=self.copy.end))
            self._told.reset()
        elif why and (why != self._told_why or self._told.due() is not None):
            self._told_why = why
            level = logging.ERROR if state is FollowState.REFUSED else logging.WARNING
            log.log(level, "not following the master: %s", why, extra=fields(before=before.value))


class MasterConnection(asyncio.BufferedProtocol):
    """Our end of a connection to the master."""

    def __init__(self, slave: HaSlave, position: int) -> None:
        self._slave = slave
        self._settings = slave.settings
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._chunks = ChunkBuffer()
        self._heard_s = self._spoke_s = self._began_s = self._loop.time()
        self._reported, self._first = -1, position
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._again: asyncio.TimerHandle | None = None
        self._unwatch: Callable[[], None] = lambda: None
        self.own_address = ""
        self.position = 0
        """How far the master's log reaches, as its chunks tell."""
        self.has_read = False
        self.read_ms = self.written_ms = 0
        self.ended: asyncio.Future[str] = self._loop.create_future()
        """Why it has ended."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        host, port = (transport.get_extra_info("sockname") or ("", 0))[:2]
        self.own_address = f"{host}:{port}"
        self._report(self._first)
        self._unwatch = self._slave.copy.watch(self._grown)
        self._tick()

    def get_buffer(self, _hint: int) -> memoryview:
        return self._chunks.room()

    def buffer_updated(self, size: int) -> None:
        self._chunks.filled(size)
        self._heard_s, self.read_ms = self._loop.time(), self._slave.clock.now_ms()
        self._bytes += size
        self._slave.bytes_total += size
        self.has_read = True
        if self._again is None:
            self._append()

    def _append(self) -> None:
        """Append the chunks that are whole. One for which there is no room just now stops reading, and is
        tried again."""
        self._again = None
        copy = self._slave.copy
        try:
            while (chunk := self._chunks.peek()) is not None:
                self.position = max(self.position, chunk.offset + len(chunk.data))
                copy.append(chunk.offset, chunk.data)
                self._chunks.drop(chunk)
            if copy.end >= self.position:
                self._slave.caught_up_ms = self.read_ms
        except ResourceShort as error:
            self._hold(error)
        except FlareError as error:
            self.close(str(error))
        else:
            if self._transport is not None:
                self._transport.resume_reading()
        self._report_grown()

    def _hold(self, error: ResourceShort) -> None:
        if self._transport is not None:
            self._transport.pause_reading()
            self._again = self._loop.call_later(_SHORT_S, self._append)
            self._slave.short_of(error)

    def _grown(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._report_grown)
        except RuntimeError:  # The loop has ended.
            return

    def _report_grown(self) -> None:
        safe = self._slave.copy.safe_end
        if safe > self._reported:
            self._report(safe)

    def _report(self, position: int) -> None:
        if self._transport is None:
            return
        self._transport.write(encode_report(position))
        self._reported = position
        self._spoke_s, self.written_ms = self._loop.time(), self._slave.clock.now_ms()

    def _tick(self) -> None:
        """Speak after each span of silence of our own; end after a longer one of the master."""
        now_s = self._loop.time()
        silent_s = now_s - self._heard_s
        if silent_s > self._settings.silence_ms / 1000:
            self.close(f"the master has said nothing for {silent_s:.0f} s")
            return
        if now_s - self._spoke_s >= self._settings.heartbeat_ms / 1000:
            self._report(self._reported)
        self._timer = self._loop.call_later(min(1.0, self._settings.heartbeat_ms / 2000), self._tick)

    def rate(self) -> int:
        """Bytes a second since the connection began."""
        return int(self._bytes / max(1.0, self._loop.time() - self._began_s))

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._end(
            f"the connection to the master is lost: {error}"
            if error
            else "the master has closed the connection"
        )

    def close(self, why: str) -> None:
        transport = self._transport
        self._end(why)
        if transport is not None:
            transport.abort()

    def _end(self, why: str) -> None:
        self._transport = None
        self._unwatch()
        for timer in (self._timer, self._again):
            if timer is not None:
                timer.cancel()
        if not self.ended.done():
            self.ended.set_result(why)
