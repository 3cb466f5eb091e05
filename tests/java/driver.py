"""The real RocketMQ store from Python: `with JavaStore(toolchain, "5.3.3") as java: java.open(folder)`.

One JVM serves many folders, one at a time: open, put, read, close, open the next. Everything is bytes and
plain values here; see `values`. An error comes as JavaStoreError with the Java trace and the store's log.
"""

from base64 import b64decode
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, Self

from tests.java.jvm import QUICK, Jvm, Machine
from tests.java.toolchain import Toolchain
from tests.java.values import (
    LONG_MAX,
    BenchResult,
    BenchRun,
    Decoded,
    Draft,
    GetResult,
    KeyResult,
    Opened,
    PutResult,
    ScannedQueue,
    State,
)

LIMIT_S = 60.0
BULK_LIMIT_S = 300.0
BENCH_LIMIT_S = 1800.0
CRASH_STATUS = 137


class JavaStore:
    """A JVM with at most one open DefaultMessageStore."""

    def __init__(self, toolchain: Toolchain, version: str, machine: Machine = QUICK) -> None:
        self.version = version
        self._jvm = Jvm(toolchain, version, machine)
        self.start_s = self._jvm.start_s

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def open(
        self,
        directory: Path,
        *,
        options: Mapping[str, object] | None = None,
        broker: Mapping[str, object] | None = None,
        topics: Mapping[str, Mapping[str, str]] | None = None,
    ) -> Opened:
        """Load, recover and start the store in a folder.

        `options` and `broker` set MessageStoreConfig and BrokerConfig by the names of their setters, and an
        unknown one is an error; `topics` gives attributes by topic (5.x only). What is not given stays as
        RocketMQ has it, but for the paths, haListenPort 0 and diskMaxUsedSpaceRatio 99.
        """
        answer = self._jvm.ask(
            "open",
            BULK_LIMIT_S,
            dir=str(directory),
            options=dict(options or {}),
            broker=dict(broker or {}),
            topics={name: dict(attributes) for name, attributes in (topics or {}).items()},
        )
        return Opened(
            answer["lastExitOk"], answer["minPhysicalOffset"], answer["maxPhysicalOffset"], answer["loadMs"]
        )

    def close(self, *, patient: bool = False) -> bool:
        """Shut down; True if the store calls that a clean exit and has removed `abort`.

        RocketMQ first sleeps 3 s (5.x) or 1 s (4.x) for its scheduled tasks; only if `patient` here too.
        """
        clean: bool = self._jvm.ask("close", BULK_LIMIT_S, patient=patient)
        return clean

    def halt(self) -> None:
        """Crash: the JVM ends without any shutdown, and this JavaStore with it."""
        self._jvm.ask("halt", LIMIT_S)
        status = self._jvm.wait_exit(LIMIT_S)
        self._jvm.kill()
        assert status == CRASH_STATUS, f"the JVM ended with status {status}"

    def kill(self) -> None:
        """End the JVM from outside, whatever it is doing. Harmless when it has ended already."""
        self._jvm.kill()

    def put(self, messages: Iterable[Draft]) -> list[PutResult]:
        """Put messages one by one, in order; a refused one does not stop those behind it."""
        answer = self._jvm.ask("put", BULK_LIMIT_S, messages=[message.to_json() for message in messages])
        return [PutResult.from_json(result) for result in answer]

    def put_batch(self, batch: Draft, *, inner: bool = False) -> PutResult:
        """Put a batch whose body is that of `batch_body`: as many records, or (inner, 5.x only) as one."""
        fields = batch.to_json()
        del fields["preparedTransactionOffset"]
        return PutResult.from_json(self._jvm.ask("putBatch", BULK_LIMIT_S, **fields, inner=inner))

    def get(self, topic: str, queue_id: int, offset: int, max_count: int = 32) -> GetResult:
        """Pull. RocketMQ gives 32 messages or 256 KiB at most, unless options say otherwise."""
        answer = self._jvm.ask("get", LIMIT_S, topic=topic, queueId=queue_id, offset=offset, max=max_count)
        return GetResult(
            answer["status"],
            answer["nextOffset"],
            answer["minOffset"],
            answer["maxOffset"],
            tuple(b64decode(record) for record in answer["records"]),
        )

    def scan(
        self, queues: Iterable[tuple[str, int]] | None = None, *, digest: bool = False
    ) -> list[ScannedQueue]:
        """Read the named queues, or all that ever held a message, from end to end.

        With `digest` each message carries the SHA-1 of its body in place of the body.
        """
        named = None if queues is None else [{"topic": topic, "queueId": queue} for topic, queue in queues]
        answer = self._jvm.ask("scan", BULK_LIMIT_S, queues=named, digest=digest)
        return [ScannedQueue.from_json(found) for found in answer]

    def by_key(
        self, topic: str, key: str, *, max_count: int = 64, begin: int = 0, end: int = LONG_MAX
    ) -> KeyResult:
        """Look a key up in the index, as far as store times from `begin` to `end` go."""
        answer = self._jvm.ask("byKey", LIMIT_S, topic=topic, key=key, max=max_count, begin=begin, end=end)
        records = tuple(b64decode(record) for record in answer["records"])
        return KeyResult(records, answer["indexTimestamp"], answer["indexPhysicalOffset"])

    def by_time(
        self, topic: str, queue_id: int, timestamp: int, boundary: Literal["LOWER", "UPPER"] | None = None
    ) -> int:
        """The queue offset for a store time. Only 5.x knows a boundary."""
        offset: int = self._jvm.ask(
            "byTime", LIMIT_S, topic=topic, queueId=queue_id, timestamp=timestamp, boundary=boundary
        )
        return offset

    def record(self, physical_offset: int) -> Decoded | None:
        """The message at a physical offset, by RocketMQ's decoder."""
        answer = self._jvm.ask("record", LIMIT_S, physicalOffset=physical_offset)
        return None if answer is None else Decoded.from_json(answer)

    def min_max(self, topic: str, queue_id: int) -> tuple[int, int]:
        answer = self._jvm.ask("minMax", LIMIT_S, topic=topic, queueId=queue_id)
        return answer["minOffset"], answer["maxOffset"]

    def flush(self) -> int:
        """Force the log to disk; gives the physical offset up to which it is."""
        flushed_to: int = self._jvm.ask("flush", LIMIT_S)
        return flushed_to

    def wait_dispatched(self, timeout_ms: int = 30_000) -> int:
        """Wait until queues and index cover all that was put; gives the physical offset they cover."""
        limit_s = LIMIT_S + timeout_ms / 1000
        dispatched_to: int = self._jvm.ask("waitDispatched", limit_s, timeoutMs=timeout_ms)
        return dispatched_to

    def state(self) -> State:
        return State.from_json(self._jvm.ask("state", LIMIT_S))

    def bench(self, run: BenchRun) -> BenchResult:
        """Measure; needs no open store. Take a JVM with the machine FAST for it."""
        answer = self._jvm.ask(
            "bench",
            BENCH_LIMIT_S,
            what=run.what,
            dir=str(run.directory),
            messages=run.messages,
            bodySize=run.body_size,
            batch=run.batch,
            options=dict(run.options),
            **({} if run.warmup is None else {"warmup": run.warmup}),
        )
        return BenchResult(
            answer["messages"],
            answer["seconds"],
            answer["rate"],
            answer["bytes"],
            answer.get("dispatchedSeconds"),
            answer["heapUsedBytes"],
            answer["heapMaxBytes"],
        )


class JavaStores:
    """Starts JVMs of one version and ends whatever still runs in the end."""

    def __init__(self, toolchain: Toolchain, version: str) -> None:
        self.version = version
        self._toolchain = toolchain
        self._started: list[JavaStore] = []

    def __call__(self, machine: Machine = QUICK) -> JavaStore:
        java = JavaStore(self._toolchain, self.version, machine)
        self._started.append(java)
        return java

    def kill_all(self) -> None:
        for java in self._started:
            java.kill()
        self._started.clear()
