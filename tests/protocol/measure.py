"""What a frame costs in the fast lane: `python -m tests.protocol.measure [frames a turn]`.

Prints the best of many rounds, in microseconds a frame. FLAREMQ_PURE=1 measures the Python twins.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from tests.protocol.samples import a_pull, a_send

from flaremq.protocol.bulk.answers import SendAnswers
from flaremq.protocol.bulk.burst import split
from flaremq.protocol.bulk.columns import Send, chunks_table
from flaremq.protocol.bulk.pulls import parse_pulls
from flaremq.protocol.bulk.sends import parse_sends
from flaremq.protocol.codes import SerializeType
from flaremq.protocol.command import Command
from flaremq.protocol.frame import encode_frame

HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
TAIL = b"MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01DefaultCluster\x02"
PROPERTIES = "UNIQ_KEY\x01C000020270D530946E0948D873CF0000\x02WAIT\x01true\x02TAGS\x01TagA\x02"
ROUNDS = 1000


def best_of(action: Callable[[], object], rounds: int = ROUNDS) -> float:
    best = float("inf")
    for _ in range(rounds):
        began = time.perf_counter()
        action()
        best = min(best, time.perf_counter() - began)
    return best * 1e6


def measure(name: str, command: Command, serialize: SerializeType, count: int) -> None:
    given = Command(
        code=command.code,
        opaque=20311,
        ext_fields=command.fields,
        body=command.body,
        language=command.language,
        serialize_type=serialize,
    )
    frame = encode_frame(given)
    data, chunks = frame * count, chunks_table([len(frame) * count], [(0, len(HOST))])
    frames, pairs = split(data, chunks)
    costs = {"split": best_of(lambda: split(data, chunks))}
    if command.code == 11:
        costs["parse"] = best_of(lambda: parse_pulls(data, chunks, frames, pairs))
    else:
        costs["parse"] = best_of(lambda: parse_sends(data, chunks, frames, pairs, bytearray(HOST), TAIL))
        heads, answers = bytearray(HOST), SendAnswers(HOST)
        drafts, sends, _ = parse_sends(data, chunks, frames, pairs, heads, TAIL)
        assert len(sends) == count * Send.WIDTH
        costs["answer"] = best_of(lambda: answers.encode(drafts, sends, heads))
    told = "  ".join(f"{what} {cost / count:.3f}" for what, cost in costs.items())
    print(f"{name:5} {serialize.name:8} {len(frame)} bytes, {count} a turn: {told} us a frame")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 128
    send = a_send(a="benchmark_producer", b="BenchmarkTest", e="317", i=PROPERTIES)
    send = Command(code=310, ext_fields=send.fields, body=bytes(128), language=send.language)
    for serialize in SerializeType:
        measure("send", send, serialize, count)
        measure("pull", a_pull(), serialize, count)


if __name__ == "__main__":
    main()
