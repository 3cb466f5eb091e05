"""How often a body is copied within the broker's process: `python -m benches.copies`.

A broker runs with memcpy and memmove counted (copies.c); messages of several sizes are sent to it and
pulled from it over real sockets, by this process. The copies that the kernel makes between socket and
process come on top, one each way, as everywhere.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benches.turns import frame

from flaremq.broker.app import Broker
from flaremq.broker.config import BrokerConfig
from flaremq.broker.settings import BrokerServerSettings, BrokerSettings
from flaremq.protocol.command import Command
from flaremq.protocol.frame import FrameDecoder, encode_frame
from flaremq.store.settings import StoreSettings

SIZES = (16 << 10, 60 << 10, 100 << 10, 1 << 20)
MESSAGES = 50


def built(folder: Path) -> Path:
    """The counting library, made now."""
    library = folder / "copies.so"
    source = Path(__file__).with_name("copies.c")
    # No built-ins: the compiler would make a call of memcpy out of a loop that copies.
    subprocess.run(
        ["gcc", "-O2", "-shared", "-fPIC", "-fno-builtin", "-fno-tree-loop-distribute-patterns", "-o",
         str(library), str(source)],
        check=True,
    )  # fmt: skip
    return library


# The broker's process: a line on its input names a size, a line on its output tells the copies since.


async def serve(root: Path) -> None:
    counts = ctypes.CDLL(None)
    seen, least = ctypes.c_long.in_dll(counts, "copies_seen"), ctypes.c_size_t.in_dll(counts, "copies_from")
    broker = Broker(
        BrokerConfig(
            broker=BrokerSettings(ip1="127.0.0.1", broker_name="bench"),
            server=BrokerServerSettings(listen_port=0, bind_address="127.0.0.1"),
            store=StoreSettings(root=root),
        )
    )
    await broker.start()
    print(broker.port, flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        least.value = int(line) or ctypes.c_size_t(-1).value
        print(seen.value, flush=True)
        seen.value = 0
    await broker.stop()


# The other side.


class Peer:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._in, self._out = process.stdin, process.stdout
        self.port = int(self._out.readline())

    def count_from(self, size: int) -> int:
        """The copies since the last call; from now on those of at least this size count."""
        self._in.write(f"{size}\n")
        self._in.flush()
        return int(self._out.readline())


async def asked(port: int, requests: list[bytes]) -> list[Command]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    decoder, answers = FrameDecoder(), list[Command]()
    for request in requests:
        writer.write(request)
        await writer.drain()
        while not (got := decoder.feed(await reader.read(1 << 20))):
            pass
        answers += got
    writer.close()
    assert all(answer.code == 0 for answer in answers), answers[0]
    return answers


def pull(offset: int) -> bytes:
    fields = {
        "consumerGroup": "bench", "topic": "BenchmarkTest", "queueId": "0", "queueOffset": str(offset),
        "maxMsgNums": "1", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
        "subscription": "*", "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip
    return encode_frame(Command(code=11, ext_fields=fields))


async def measure(peer: Peer) -> list[dict[str, float]]:
    rows, offset = [], 0
    for size in SIZES:
        await asked(peer.port, [frame(0, body_size=size)])  # The first one may meet a new file.
        peer.count_from(size)
        await asked(peer.port, [frame(4 * n, body_size=size) for n in range(MESSAGES)])
        sent = peer.count_from(size)
        answers = await asked(peer.port, [pull(offset + n) for n in range(1, MESSAGES + 1)])
        pulled = peer.count_from(0)
        assert all(len(answer.body or b"") > size for answer in answers)
        offset += MESSAGES + 1
        rows.append({"body": size, "per_send": sent / MESSAGES, "per_pull": pulled / MESSAGES})
    return rows


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(Path(sys.argv[2])))
        return
    if shutil.which("gcc") is None:
        raise SystemExit("copies are counted by a small C library: install gcc")
    with tempfile.TemporaryDirectory(prefix="flaremq-copies-") as folder:
        environment = {**os.environ, "LD_PRELOAD": str(built(Path(folder))), "FLAREMQ_LOG_LEVEL": "ERROR"}
        command = [sys.executable, "-m", "benches.copies", "serve", f"{folder}/store"]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
            for row in asyncio.run(measure(Peer(process))):
                print(json.dumps(row))
            assert process.stdin is not None
            process.stdin.close()


if __name__ == "__main__":
    main()
