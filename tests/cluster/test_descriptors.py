"""Servers that run out of descriptors: peers that only sit there keep nobody from sending."""

from __future__ import annotations

import resource
import socket
from contextlib import ExitStack
from pathlib import Path

from flaremq.servers.processes import Process
from flaremq.testing.cluster import Cluster, eventually
from flaremq.testing.fakes.wireclient import Want, WireClient

FEW = 256
IDLE = 400


def crowd(process: Process, stack: ExitStack) -> list[socket.socket]:
    """Connections that say nothing."""
    found = [stack.enter_context(socket.socket()) for _ in range(IDLE)]
    for sock in found:
        sock.settimeout(10)
        sock.connect(("127.0.0.1", process.port))
    return found


def is_closed(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


async def have(client: WireClient, broker: Process, count: int) -> bool:
    """Whether each new topic has so many messages."""
    wants = [Want(topic=f"New{number}", queue_id=0, offset=0) for number in range(20)]
    return [len((await client.pull(broker.address, want)).messages) for want in wants] == [count] * 20


async def test_idle_connections_beyond_the_limit_are_closed_and_sends_go_on(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster, ExitStack() as stack:
        broker = cluster.broker(descriptors=FEW)
        async with WireClient() as client:
            await client.send(broker.address, "Before", 0, b"connected before the crowd")
            idle = crowd(broker, stack)

            async def are_turned_away() -> bool:
                return sum(map(is_closed, idle)) > IDLE - FEW

            await eventually("connections beyond the limit are closed", are_turned_away)
            for number in range(20):
                await client.send(broker.address, f"New{number}", 0, b"while they sit there")
            await eventually("consumers see them", lambda: have(client, broker, 1))
            stack.close()
            for number in range(20):
                await client.send(broker.address, f"New{number}", 0, b"when they are gone")
            await eventually("consumers see those too", lambda: have(client, broker, 2))
        assert broker.stop() == 0
        assert not (broker.store / "abort").exists()
        topics = (broker.store / "config" / "topics.json").read_text()
        assert all(f"New{number}" in topics for number in range(20))
        told = [line for line in broker.lines if "too many connections" in line]
        assert len(told) == 1, "told, and only once in a while"
        assert not [line for line in broker.lines if "Traceback" in line]


def test_a_server_takes_all_descriptors_that_it_may_have(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    ours = max(
        int(path.name) for path in Path("/proc/self/fd").iterdir()
    )  # This process must get by with it as well.
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(ours + FEW, hard), hard))
    try:
        with Cluster(tmp_path) as cluster:
            for process in (cluster.namesrv(), cluster.broker()):
                limits = Path(f"/proc/{process.pid}/limits").read_text()
                (line,) = (line for line in limits.splitlines() if line.startswith("Max open files"))
                assert line.split()[3:5] == [str(hard), str(hard)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
