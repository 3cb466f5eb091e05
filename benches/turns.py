"""What a turn costs without sockets: Python per turn, per connection and per message, in CPU time.

    python -m benches.turns [TURNS] [profile]

Sends as a Java client writes them go through the turn, the lane and the store of a broker; answers are
thrown away. Three shapes of turns give three equations for the three costs.
"""

from __future__ import annotations

import asyncio
import cProfile
import json
import pstats
import sys
import time
from collections.abc import Callable, Sequence

from benches.measure import folder

from flaremq.base.clock import SystemClock
from flaremq.base.errors import Malformed
from flaremq.broker.app import Broker
from flaremq.broker.config import BrokerConfig
from flaremq.broker.settings import BrokerServerSettings, BrokerSettings
from flaremq.model.columns import Bytes
from flaremq.protocol.command import Command
from flaremq.remoting.inlet import Inlet
from flaremq.remoting.turn import Turn
from flaremq.store.settings import StoreSettings

SHAPES = ((1, 1), (64, 1), (4, 64))
_HEADER = (
    '{"code":310,"extFields":{"a":"benchgroup","b":"%s","c":"TBW102","d":"4","e":"%d","f":"0","g":"1763164800000",'
    '"h":"0","i":"UNIQ_KEY\\u00017F00000100002A9F%016X\\u0002WAIT\\u0001true\\u0002TAGS\\u0001tag1\\u0002","j":"0",'
    '"k":"false","m":"false"},"flag":0,"language":"JAVA","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":435}'
)


class Listener:
    """A connection that keeps nothing."""

    is_open, is_full = True, False

    def __init__(self) -> None:
        self.inlet: Inlet | None = None
        self.host = bytes((127, 0, 0, 1)) + (50000).to_bytes(4, "big")
        self.got = 0

    def send_bytes(self, data: Bytes) -> None:
        self.got += len(data)

    def send_parts(self, parts: Sequence[Bytes]) -> None:
        self.got += sum(map(len, parts))

    def received(self, command: Command) -> None: ...
    def broken(self, error: Malformed) -> None:
        raise error

    def when_writable(self, work: Callable[[], None]) -> None: ...
    def waited_ms(self) -> int:
        return 0

    def begun(self) -> None: ...
    def ended(self) -> None: ...


def frame(number: int, topic: str = "BenchmarkTest", body_size: int = 128) -> bytes:
    header = (_HEADER % (topic, number % 4, number, number)).encode()
    size = 4 + len(header) + body_size
    return size.to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + b"x" * body_size


def turns(
    turn: Turn, dispatch: Callable[[], None], shape: tuple[int, int], count: int
) -> tuple[float, float]:
    """CPU seconds of one turn in which so many connections send so many messages each, and of the
    dispatch of what it has stored; a broker does the second every two milliseconds unless it is awaited."""
    connections, messages = shape
    sources = [Listener() for _ in range(connections)]
    for source in sources:
        source.inlet = turn.inlet(source)
    data = b"".join(frame(number) for number in range(messages))
    served = dispatched = 0.0
    for _ in range(count):
        began = time.thread_time()
        for source in sources:
            turn.deliver(source, data)
        turn.run()
        stored = time.thread_time()
        dispatch()
        served += stored - began
        dispatched += time.thread_time() - stored
    assert all(source.got for source in sources)
    return served / count, dispatched / count


async def measure(count: int, profile: bool) -> dict[str, float]:
    with folder() as root:
        broker = Broker(
            BrokerConfig(
                broker=BrokerSettings(ip1="127.0.0.1", broker_name="bench"),
                server=BrokerServerSettings(listen_port=0, bind_address="127.0.0.1"),
                store=StoreSettings(root=root),
            ),
            SystemClock(),
        )
        await broker.start()
        try:
            assert broker.composition is not None
            sends = broker.composition.sends
            turn, dispatch = Turn((sends, broker.composition.pulls)), sends.dispatch
            turns(turn, dispatch, (4, 64), 200)
            profiler = cProfile.Profile()
            if profile:
                profiler.enable()
            best = {shape: min(turns(turn, dispatch, shape, count) for _ in range(3)) for shape in SHAPES}
            if profile:
                profiler.disable()
                pstats.Stats(profiler).sort_stats("tottime").print_stats(35)
        finally:
            await broker.stop()
    one, many, deep = (best[shape][0] * 1e6 for shape in SHAPES)
    per_message = (deep - one - 3 * (many - one) / 63) / (256 - 4)
    per_connection = (many - one) / 63 - per_message
    return {
        **{f"turn_{c}x{m}_us": round(best[c, m][0] * 1e6, 1) for c, m in SHAPES},
        **{f"dispatch_{c}x{m}_us": round(best[c, m][1] * 1e6, 1) for c, m in SHAPES},
        "per_message_us": round(per_message, 2),
        "per_connection_us": round(per_connection, 2),
        "per_turn_us": round(one - per_connection - per_message, 1),
    }


if __name__ == "__main__":
    counts = [int(arg) for arg in sys.argv[1:] if arg.isdigit()]
    print(json.dumps(asyncio.run(measure(counts[0] if counts else 2000, "profile" in sys.argv))))
