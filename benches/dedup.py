"""What deduplication costs a send, in CPU time of whole turns without sockets, and what a start costs.

    python -m benches dedup [TURNS]

Three kinds of sends, in turn: as they are without a number, with a property of the same size that means
nothing, and numbered. The second shows what the longer message costs, the third what the comparison costs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from pathlib import Path

from benches.measure import folder
from benches.turns import Listener

from flaremq.base.clock import SystemClock
from flaremq.broker.app import Broker
from flaremq.broker.config import BrokerConfig
from flaremq.broker.send.deduplication import MARKER, Deduplication
from flaremq.broker.settings import BrokerServerSettings, BrokerSettings
from flaremq.remoting.turn import Turn
from flaremq.store.settings import StoreSettings

KINDS = {"plain": "", "same_size": "PRODUCER_NUM", "numbered": "PRODUCER_SEQ"}
CONNECTIONS, MESSAGES, ROUNDS = 4, 16, 8
_HEADER = (
    '{"code":310,"extFields":{"a":"benchgroup","b":"BenchmarkTest","c":"TBW102","d":"4","e":"%d","f":"0",'
    '"g":"1763164800000","h":"0","i":"UNIQ_KEY\\u00017F00000100002A9F%016X\\u0002WAIT\\u0001true\\u0002'
    'TAGS\\u0001tag1\\u0002%s","j":"0","k":"false","m":"false"},"flag":0,"language":"JAVA","opaque":%d,'
    '"serializeTypeCurrentRPC":"JSON","version":435}'
)


def frame(name: str, producer: int, number: int) -> bytes:
    more = f"{name}\\u0001producer-{producer}:{(1 << 60) + number}\\u0002" if name else ""
    header = (_HEADER % (number % 4, number, more, number % 1000)).encode()
    return (4 + len(header) + 128).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + b"x" * 128


class Numbers:
    """Frames of all connections, each a producer, turn after turn: no number comes twice."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._next = 0

    def turn(self) -> list[bytes]:
        first, self._next = self._next, self._next + MESSAGES
        return [
            b"".join(frame(self._name, producer, number) for number in range(first, self._next))
            for producer in range(CONNECTIONS)
        ]


def served_s(turn: Turn, numbers: Numbers, count: int) -> float:
    """CPU seconds of the turns, without the making of their frames."""
    sources = [Listener() for _ in range(CONNECTIONS)]
    for source in sources:
        source.inlet = turn.inlet(source)
    made = [numbers.turn() for _ in range(count)]
    began = time.thread_time()
    for delivered in made:
        for source, data in zip(sources, delivered, strict=True):
            turn.deliver(source, data)
        turn.run()
    return time.thread_time() - began


def broker_in(root: Path) -> Broker:
    return Broker(
        BrokerConfig(
            broker=BrokerSettings(ip1="127.0.0.1", broker_name="bench"),
            server=BrokerServerSettings(listen_port=0, bind_address="127.0.0.1"),
            store=StoreSettings(root=root),
        ),
        SystemClock(),
    )


async def measure(count: int) -> dict[str, float]:
    """Microseconds of each message, by kind, and how a start reads the numbered ones from the log."""
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with folder() as root:
        broker = broker_in(root)
        await broker.start()
        try:
            assert broker.composition is not None
            sends = broker.composition.sends
            turn = Turn((sends, broker.composition.pulls))
            made = {kind: Numbers(name) for kind, name in KINDS.items()}
            for _ in range(ROUNDS):
                for kind, numbers in made.items():
                    took_s = served_s(turn, numbers, count)
                    times[kind].append(took_s / (count * CONNECTIONS * MESSAGES) * 1e6)
                    sends.dispatch()
        finally:
            await broker.stop()
        started = await _started(root)
    found = {kind: statistics.median(each[1:] or each) for kind, each in times.items()}
    return {
        **{f"{kind}_us": round(value, 3) for kind, value in found.items()},
        "comparison_percent": round((found["numbered"] / found["same_size"] - 1) * 100, 1),
        "in_all_percent": round((found["numbered"] / found["plain"] - 1) * 100, 1),
        **started,
    }


async def _started(root: Path) -> dict[str, float]:
    """What a start reads of the log without the file that says where to begin."""
    broker = broker_in(root)
    await broker.start()
    try:
        assert broker.composition is not None
        (once,) = (each for each in broker.composition.inner if isinstance(each, Deduplication))
        (root / "config" / MARKER).unlink()
        began = time.perf_counter()
        once.rebuild()
        took_s = time.perf_counter() - began
    finally:
        await broker.stop()
    return {"rebuild_records": once.walked, "rebuild_records_per_s": round(once.walked / took_s)}


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benches dedup", description=__doc__)
    parser.add_argument("turns", type=int, nargs="?", default=500, help="of each kind and round")
    print(json.dumps(asyncio.run(measure(parser.parse_args(words).turns))))
