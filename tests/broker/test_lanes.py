"""Both lanes give the same bytes: on disk and on the wire, for anything that a peer may send."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.broker.desks import DeskBench, Line, a_desk, deliver
from tests.protocol.samples import a_pull, a_send

from flaremq.model.topic import TopicConfig
from flaremq.protocol.codes import ONE_WAY, RequestCode, SerializeType
from flaremq.protocol.command import Command
from flaremq.protocol.frame import encode_frame
from flaremq.remoting.gate import Origin, Right
from flaremq.remoting.turn import Batch
from flaremq.store.settings import FlushDisk
from flaremq.store.store import MessageStore
from flaremq.testing.clock import ManualClock

PROPERTIES = (
    "UNIQ_KEY\x01U1\x02WAIT\x01true\x02TAGS\x01TagA\x02",
    "UNIQ_KEY\x01U2\x02",
    "UNIQ_KEY\x01U2",
    "KEYS\x01k1 k2\x02UNIQ_KEY\x01ü\x02",
    'UNIQ_KEY\x01a"b\\c\x02',
    "UNIQ_KEY\x01U\x02DELAY\x013\x02",
    "UNIQ_KEY\x01U\x02DELAY\x0119\x02",
    "UNIQ_KEY\x01U\x02DELAY\x013\x02TIMER_DELAY_SEC\x015\x02",
    "UNIQ_KEY\x01U\x02DELAY\x013\x02REAL_TOPIC\x01x\x02",
    "UNIQ_KEY\x01U\x02TIMER_DELAY_SEC\x015\x02TAGS\x01t\x02",
    "UNIQ_KEY\x01U\x02TIMER_DELAY_MS\x010500\x02",
    "UNIQ_KEY\x01U\x02TIMER_DELAY_MS\x010\x02",
    "UNIQ_KEY\x01U\x02TIMER_DELIVER_MS\x01999999999999999\x02",
    "UNIQ_KEY\x01U\x02TIMER_DELIVER_MS\x011\x02",
    "TRAN_MSG\x01true\x02PGROUP\x01pg\x02UNIQ_KEY\x01U\x02",
    "TRAN_MSG\x01true\x02UNIQ_KEY\x01U\x02",
    "TRAN_MSG\x01true\x02PGROUP\x01pg\x02UNIQ_KEY\x01U\x02DELAY\x012\x02",
    "UNIQ_KEY\x01U\x02CLUSTER\x01other\x02",
    "UNIQ_KEY\x01U\x02UNIQ_KEY\x01V\x02",
    "UNIQ_KEY\x01U\x02__RMQ.TRANSIENT.x\x01y\x02",
    "\x01\x02UNIQ_KEY\x01U\x02\x02",
    *(f"UNIQ_KEY\x01U3\x02PRODUCER_SEQ\x01{value}\x02" for value in ("p:1", "p:2", "p:70", "q:1", "p:x")),
    "PRODUCER_SEQ\x01p:3\x02UNIQ_KEY\x01U4\x02DELAY\x013\x02",
    "PRODUCER_SEQ\x01p:4\x02UNIQ_KEY\x01U5\x02REAL_TOPIC\x01Other\x02",
    "",
)
FIELDS = {
    "b": st.sampled_from(["Known", "Other", "Made", "a/b", "%RETRY%g", "TBW102", ""]),
    "d": st.sampled_from(["4", "0", "-1", "x"]),
    "e": st.sampled_from(["0", "1", "3", "99", "-1", "", "007", "+1", "9999999999"]).filter(
        lambda e: e != "-1"
    ),
    "f": st.sampled_from(["0", "1", "769", "2", "4", "48", "192"]),
    "g": st.sampled_from(["1700000000000", "-1", "x"]),
    "h": st.sampled_from(["0", "5", "-2147483648"]),
    "i": st.sampled_from(PROPERTIES).filter(lambda text: "UNIQ_KEY" in text),
    "j": st.sampled_from(["0", "3", "17"]),
    "m": st.sampled_from(["false", "true", "1"]),
    "n": st.sampled_from(["broker-a", ""]),
}


@st.composite
def sends(draw: st.DrawFn) -> Command:
    changed = draw(st.sets(st.sampled_from(sorted(FIELDS)), max_size=3))
    given_fields: dict[str, str | None] = {"b": "Known", "e": "1"}
    given_fields |= {name: draw(FIELDS[name]) for name in changed}
    gone = draw(st.sets(st.sampled_from(["a", "c", "i", "k", "j"]), max_size=1)) if not changed else set()
    command = a_send(**{**given_fields, **dict.fromkeys(gone - {"i"})})
    return replace(
        command,
        opaque=draw(st.integers(0, 5)),
        flag=draw(st.sampled_from([0, 0, 0, ONE_WAY])),
        body=draw(st.sampled_from([b"hello", b"x" * 3000, b"x" * 5000, None])),
        code=draw(st.sampled_from([RequestCode.SEND_MESSAGE_V2] * 4 + [RequestCode.SEND_BATCH_MESSAGE])),
        serialize_type=draw(st.sampled_from(SerializeType)),
    )


@st.composite
def pulls(draw: st.DrawFn) -> Command:
    changes: dict[str, str | None] = {
        "topic": draw(st.sampled_from(["Known", "Other", "Gone"])),
        "queueId": draw(st.sampled_from(["0", "1", "7", "-1"])),
        "queueOffset": draw(st.sampled_from(["0", "1", "3", "-1", "1000000"])),
        "maxMsgNums": draw(st.sampled_from(["1", "2", "32", "0", "-5"])),
        "sysFlag": draw(st.sampled_from(["4", "5", "12", "20", "0"])),
        "suspendTimeoutMillis": "0",
        "subscription": draw(st.sampled_from(["*", "TagA", "TagA || TagB", None])),
        "expressionType": draw(st.sampled_from(["TAG", None])),
    }
    return replace(
        a_pull(**changes), opaque=draw(st.integers(0, 5)), serialize_type=draw(st.sampled_from(SerializeType))
    )


TURN = st.lists(st.lists(sends() | pulls(), min_size=1, max_size=5), min_size=1, max_size=3)


class Curious:
    """A gate that lets everything pass, and wants to see each request."""

    def check(self, source: Origin, request: Command) -> None: ...

    def admits(self, source: Origin, topic: bytes, right: Right) -> bool:
        return False


class Pair:
    """The same broker twice: one with its fast lane, one whose gate leaves everything to the plain lane."""

    def __init__(self, fast: DeskBench, plain: DeskBench, clock: ManualClock) -> None:
        self.fast = fast
        self.plain = plain
        self.clock = clock
        self.taken = {"fast": 0, "plain": 0}
        self._count("fast", fast)
        self._count("plain", plain)

    def _count(self, name: str, desk: DeskBench) -> None:
        """How many frames the fast lane of a desk takes."""
        parse = desk.sends.parse

        def counted(batch: Batch) -> int:
            taken = parse(batch)
            self.taken[name] += taken
            return taken

        desk.sends.parse = counted  # type: ignore[method-assign]

    async def make_topics(self) -> None:
        for desk in (self.fast, self.plain):
            for topic in ("Known", "Other"):
                desk.tables.topics.put(TopicConfig(topic, 4, 4))
            _dispatch_at_once(desk.store)

    async def serve(self, desk: DeskBench, turn: list[list[Command]]) -> list[bytes]:
        lines = [Line(5000 + n) for n in range(len(turn))]
        for line, commands in zip(lines, turn, strict=True):
            deliver(desk.turn, line, b"".join(map(encode_frame, commands)))
        with desk.store.workers.log_flusher.paused():  # A pull may not see what its own turn has sent.
            await desk.run()
        desk.store.workers.log_flusher.put()
        await asyncio.wait_for(desk.acks.drain(), 60)
        if desk.store.settings.flush_disk is FlushDisk.SYNC_FLUSH:
            desk.store.dispatch()
        assert not any(line.errors for line in lines)
        return [_by_opaque(line) for line in lines]

    async def check(self, turn: list[list[Command]]) -> None:
        answers = await self.serve(self.fast, turn), await self.serve(self.plain, turn)
        assert answers[0] == answers[1]
        assert self.fast.log() == self.plain.log()
        self.clock.advance_ms(1)


def _dispatch_at_once(store: MessageStore) -> None:
    """A queue gets its files in a thread, and what a pull sees meanwhile cannot be compared."""
    store.workers.dispatch.stop()

    def show(**_how: bool) -> None:
        store.dispatcher.catch_up()

    store.show = show  # type: ignore[method-assign]


def _by_opaque(line: Line) -> bytes:
    """Answers to sends and to pulls may overtake each other."""
    frames = [encode_frame(answer) for answer in line.read()]
    return b"".join(sorted(frames))


def _compare(folder: Path, flush: FlushDisk) -> None:
    clock = ManualClock()
    options = {
        "clock": clock,
        "message_size_max": 4096,
        "flush_disk": flush,
        "commitlog_file_size": 1 << 26,
        "consumequeue_file_size": 1 << 20,
        "index_entries": 1 << 20,
    }
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        made = [
            runner.run(stack.enter_async_context(a_desk(folder / name, gate=gate, **options)))  # type: ignore[arg-type]
            for name, gate in (("fast", None), ("plain", Curious()))
        ]
        pair = Pair(made[0], made[1], clock)
        runner.run(pair.make_topics())

        @settings(suppress_health_check=list(HealthCheck))
        @given(TURN)
        def check(turn: list[list[Command]]) -> None:
            runner.run(pair.check(turn))

        try:
            check()
            assert pair.taken["fast"] > 25
            assert pair.taken["plain"] == 0
        finally:
            runner.run(stack.aclose())


def test_both_lanes_give_the_same_bytes(tmp_path: Path) -> None:
    _compare(tmp_path, FlushDisk.ASYNC_FLUSH)


def test_both_lanes_give_the_same_bytes_under_sync_flush(tmp_path: Path) -> None:
    _compare(tmp_path, FlushDisk.SYNC_FLUSH)
