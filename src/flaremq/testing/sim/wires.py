"""Wires in memory: TCP between nodes, with latency, split and joined chunks, cuts, resets and full buffers.

A connection is two pipes. A pipe keeps its bytes in order, as TCP does: what is late holds up all behind it.
A link that is down is silent: bytes and attempts to connect wait until it is up again. A port without a
listener refuses; one of a paused node accepts, and answers when the node goes on.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, cast
from zlib import crc32

from flaremq.base.errors import ConfigError
from flaremq.base.units import KiB
from flaremq.remoting.network import Listening, Network, P
from flaremq.remoting.settings import ServerSettings
from flaremq.testing.sim.events import EventStream
from flaremq.testing.sim.loop import HERE, SimHandle, SimLoop, SimNode

_IN_KERNEL: Final = 64 * KiB  # Bytes on their way that do not count as waiting to be written.
_AGAIN_S: Final = 0.5  # Between two attempts to reach a host that does not answer.
_FIN: Final = b""


@dataclass(frozen=True, slots=True)
class LinkQuality:
    """How bytes travel, for all links of a simulation."""

    latency_s: float = 0.0005
    """The mean; each chunk draws its own, unless it is `steady`."""
    spike: float = 0.0
    """The share of chunks that take a second or more."""
    split: float = 0.0
    """The share of writes that arrive in pieces."""
    steady: bool = False


class SimWires:
    """All links of a simulation."""

    def __init__(
        self, loop: SimLoop, events: EventStream, rng: random.Random, quality: LinkQuality | None = None
    ) -> None:
        self.loop = loop
        self.events = events
        self.rng = rng
        self.quality = quality or LinkQuality()
        self.folder = b""
        """Where this run has its files. Errors name it, and it is another one in the next run of a seed."""
        self.ports: dict[tuple[str, int], SimPort] = {}
        self.hosts: dict[str, SimNode] = {}
        """The running node of each address."""
        self._down: dict[tuple[str, str], None] = {}
        self.pipes: dict[SimPipe, None] = {}
        self._next_port = 40_000

    def latency_s(self) -> float:
        quality, rng = self.quality, self.rng
        if quality.steady:
            return quality.latency_s
        if quality.spike and rng.random() < quality.spike:
            self.events.faults["latency spike"] += 1
            return 1 + 4 * rng.random()
        return quality.latency_s * (0.5 + rng.expovariate(2.0))

    # Faults.

    def is_down(self, source: str, target: str) -> bool:
        return (source, target) in self._down

    def cut(self, sources: Iterable[str], targets: Iterable[str], *, one_way: bool = False) -> None:
        """Let bytes from any of these addresses to any of those wait; also back, unless it is `one_way`."""
        targets = list(targets)
        for source in sources:
            for target in targets:
                if source != target:
                    self._down[source, target] = None
                    if not one_way:
                        self._down[target, source] = None

    def heal(self, pairs: Iterable[tuple[str, str]] | None = None) -> None:
        """Let bytes through again, on these links or on all."""
        for pair in list(self._down) if pairs is None else pairs:
            self._down.pop(pair, None)
        for pipe in list(self.pipes):
            pipe.kick()

    def reset(self, ip: str, peer: str | None = None) -> int:
        """Reset the connections of a host, all or those with one peer. Returns how many."""
        ends = [pipe.source for pipe in self.pipes if pipe.source.ip == ip and peer in (None, pipe.target.ip)]
        for end in ends:
            end.lose(ConnectionResetError(104, "Connection reset by peer"))
        return len(ends)

    def left(self, node: SimNode, ip: str, *, silently: bool) -> None:
        """A node is dead. Its kernel resets its connections, unless it lost its power too."""
        if self.hosts.get(ip) is node:
            del self.hosts[ip]
        for address in [address for address, port in self.ports.items() if port.node is node]:
            del self.ports[address]
        for pipe in [pipe for pipe in self.pipes if pipe.source.node is node]:
            end, peer = pipe.source, pipe.target
            end.closed = True
            del self.pipes[pipe]
            if not silently:
                peer.later(peer.lose, ConnectionResetError(104, "Connection reset by peer"))

    def next_port(self) -> int:
        self._next_port += 1
        return self._next_port


class SimNetwork(Network):
    """The network as one host sees it."""

    turn_size = 256 * KiB

    def __init__(self, wires: SimWires, ip: str) -> None:
        self._wires = wires
        self.ip = ip

    async def listen(self, settings: ServerSettings, accept: Callable[[], asyncio.BaseProtocol]) -> Listening:
        wires, port = self._wires, settings.listen_port or self._wires.next_port()
        if (self.ip, port) in wires.ports:
            raise OSError(98, "Address already in use")
        found = wires.ports[self.ip, port] = SimPort(wires, HERE.get(), self.ip, port, accept)
        return found

    async def connect(self, host: str, port: int, protocol: Callable[[], P], tls: ssl.SSLContext | None) -> P:
        if tls is not None:
            raise ConfigError("TLS between simulated nodes: expected none; leave tls.enable off")
        wires, node = self._wires, HERE.get()
        await asyncio.sleep(wires.latency_s())
        while wires.is_down(self.ip, host) or wires.is_down(host, self.ip) or host not in wires.hosts:
            await asyncio.sleep(_AGAIN_S)  # Until the caller's time is over.
        await asyncio.sleep(wires.latency_s())
        listening = wires.ports.get((host, port))
        if listening is None or listening.node.dead:
            raise ConnectionRefusedError(111, f"Connect call failed ('{host}', {port})")
        near = SimTransport(wires, node, (self.ip, wires.next_port()), (host, port))
        far = SimTransport(wires, listening.node, (host, port), near.own)
        near.join(far)
        far.join(near)
        made = protocol()
        near.protocol = cast(asyncio.BufferedProtocol, made)
        near.protocol.connection_made(near)
        far.later(far.accepted, listening)
        return made

    def own_ip(self, towards: str) -> str:  # noqa: ARG002
        return self.ip


class SimPort:
    def __init__(
        self, wires: SimWires, node: SimNode, ip: str, port: int, accept: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        self._wires = wires
        self.node = node
        self.ip = ip
        self.port = port
        self.accept = accept
        self.is_open = True

    async def let_in(self) -> None:
        """Nobody is accepted without a protocol."""

    def close(self) -> None:
        self.is_open = False
        if self._wires.ports.get((self.ip, self.port)) is self:
            del self._wires.ports[self.ip, self.port]


class SimPipe:
    """One direction of a connection."""

    def __init__(self, wires: SimWires, source: SimTransport, target: SimTransport) -> None:
        self._wires = wires
        self.source = source
        self.target = target
        self._chunks: deque[tuple[float, bytes]] = deque()
        self._last_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.size = 0
        """Bytes that are on their way."""

    def put(self, data: bytes) -> None:
        wires = self._wires
        quality, rng = wires.quality, wires.rng
        parts = [data]
        if quality.split and len(data) > 1 and rng.random() < quality.split:
            at = 1 + int(rng.random() * (len(data) - 1))
            parts = [data[:at], data[at:]]
        for part in parts:
            self._last_s = max(self._last_s, wires.loop.now_s + wires.latency_s())
            self._chunks.append((self._last_s, part))
            self.size += len(part)
        self._schedule()

    def kick(self) -> None:
        """Something has changed: look again."""
        self._schedule()

    def _schedule(self) -> None:
        if self._timer is None and self._chunks:
            loop = self._wires.loop
            when_s = max(self._chunks[0][0], loop.now_s)
            self._timer = loop.call_at_true(when_s, loop.root, self._arrive)

    def _arrive(self) -> None:
        """In no node: hand the bytes to the node of the target, if it can be reached."""
        self._timer = None
        wires, target = self._wires, self.target
        if not self._chunks or wires.is_down(self.source.ip, target.ip):
            return
        if target.node.dead:
            self._unreachable()
            return
        if target.reads_paused or not target.is_accepted:
            return  # `resume_reading` and `accepted` look again.
        _, data = self._chunks.popleft()
        self.size -= len(data)
        target.later(target.receive, data)
        self.source.written()
        self._schedule()

    def _unreachable(self) -> None:
        wires = self._wires
        if (
            self.target.ip in wires.hosts
        ):  # Another process is there now, and knows nothing of this connection.
            self._chunks.clear()
            self.source.later(self.source.lose, ConnectionResetError(104, "Connection reset by peer"))
        else:
            loop = wires.loop
            self._timer = loop.call_at_true(loop.now_s + _AGAIN_S, loop.root, self._arrive)


class SimTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, wires: SimWires, node: SimNode, own: tuple[str, int], peer: tuple[str, int]) -> None:
        super().__init__({"peername": peer, "sockname": own})
        self._wires = wires
        self.node = node
        self.own = own
        self.ip = own[0]
        self._peer_ip = peer[0]
        self._context = contextvars.copy_context()
        self._context.run(HERE.set, node)
        self.protocol: asyncio.BufferedProtocol | None = None
        self._out: SimPipe | None = None
        self._limits = (64 * KiB, 16 * KiB)
        self._full = self._ending = False
        self.closed = self.reads_paused = False

    def join(self, other: SimTransport) -> None:
        self._out = SimPipe(self._wires, self, other)
        self._wires.pipes[self._out] = None

    @property
    def is_accepted(self) -> bool:
        return self.protocol is not None

    def later(self, work: Callable[..., None], *args: Any) -> None:
        """Do something in the node of this end."""
        handle = SimHandle(0.0, work, args, self._wires.loop, self._context)
        self._wires.loop.enqueue(self.node, handle)

    def accepted(self, port: SimPort) -> None:
        if self.closed:
            return
        if not port.is_open:
            self.abort()
            return
        self.protocol = cast(asyncio.BufferedProtocol, port.accept())
        self.protocol.connection_made(self)
        self._look_again()

    def _look_again(self) -> None:
        for pipe in self._wires.pipes:
            if pipe.target is self:
                pipe.kick()
                return

    # Reading.

    def receive(self, data: bytes) -> None:
        protocol = self.protocol
        if self.closed or protocol is None:
            return
        same = crc32(data.replace(self._wires.folder, b""))
        self._wires.events.add(self.node.name, f"got {len(data)} from {self._peer_ip}", same)
        if data == _FIN:
            protocol.eof_received()
            self.close()
            return
        view = memoryview(data)
        while view and not self.closed:
            buffer = memoryview(protocol.get_buffer(-1))
            size = min(len(buffer), len(view))
            buffer[:size] = view[:size]
            view = view[size:]
            protocol.buffer_updated(size)

    def pause_reading(self) -> None:
        self.reads_paused = True

    def resume_reading(self) -> None:
        self.reads_paused = False
        self._look_again()

    def is_reading(self) -> bool:
        return not self.reads_paused and not self.closed

    # Writing.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.closed or self._ending or self._out is None or not len(data):
            return
        self._out.put(bytes(data))
        if not self._full and self.get_write_buffer_size() > self._limits[0]:
            self._full = True
            self._wires.events.faults["full buffer"] += 1
            if self.protocol is not None:
                self.protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return 0 if self._out is None else max(0, self._out.size - _IN_KERNEL)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        high = 64 * KiB if high is None else high
        self._limits = (high, high // 4 if low is None else low)

    def written(self) -> None:
        """Some bytes have arrived."""
        if self._full and self.get_write_buffer_size() <= self._limits[1]:
            self._full = False
            self.later(self._resume_writing)
        if self._ending and self._out is not None and not self._out.size:
            self.later(self.lose, None)

    def _resume_writing(self) -> None:
        if self.protocol is not None and not self.closed:
            self.protocol.resume_writing()

    # Closing.

    def is_closing(self) -> bool:
        return self.closed or self._ending

    def close(self) -> None:
        if self.closed or self._ending or self._out is None:
            return
        self._ending = True
        self._out.put(_FIN)
        if self._out.size == 0:
            self.later(self.lose, None)

    def abort(self) -> None:
        if not self.closed:
            self.later(self.lose, ConnectionAbortedError(103, "Connection aborted"))

    def lose(self, error: Exception | None) -> None:
        """This end is over; the other hears of it, unless it was told in the usual way."""
        if self.closed:
            return
        self.closed = True
        protocol, self.protocol = self.protocol, None
        out = self._out
        if out is not None and error is not None:
            self._wires.pipes.pop(out, None)
            if not self._wires.is_down(self.ip, self._peer_ip):
                out.target.later(out.target.lose, ConnectionResetError(104, "Connection reset by peer"))
        if protocol is not None:
            protocol.connection_lost(error if not isinstance(error, ConnectionAbortedError) else None)
