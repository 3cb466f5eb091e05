"""One measurement of the store in a process of its own: `python -m benches.measure NAME key=value ...`.

Prints one line of JSON. A process of its own because the choice of twins is made at import, and because
nobody's garbage or page tables shall slow down the next one.
"""

from __future__ import annotations

import gc
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flaremq.model.columns import Check, Drafts, facts_table
from flaremq.model.encode import Encoder
from flaremq.model.record import walk
from flaremq.store.drafts import NewMessage
from flaremq.store.index.indexfile import file_size, put_many
from flaremq.store.queue.entries import group
from flaremq.store.queue.nextoffsets import QueueOffsets
from flaremq.store.settings import FlushDisk, StoreSettings
from flaremq.store.store import MessageStore
from flaremq.testing.fakes.builders import STORE_HOST, drafts_of

TOPIC = b"BenchTopic"
QUEUES = 4
NO_LIMIT = 1 << 40


def a_message(number: int, body_size: int) -> NewMessage:
    """As a Java client would send it: a tag, a unique key, the wait flag."""
    properties = b"TAGS\x01TagA\x02UNIQ_KEY\x017F0000010001000000000000%08X\x02WAIT\x01true\x02" % number
    return NewMessage(topic=TOPIC, body=b"x" * body_size, queue_id=number % QUEUES, properties=properties)


@contextmanager
def folder() -> Iterator[Path]:
    """On the disk of the working folder: /tmp may be memory."""
    root = Path(tempfile.mkdtemp(prefix="flaremq-bench-", dir=os.environ.get("BENCH_FOLDER", ".")))
    try:
        yield root
    finally:
        shutil.rmtree(root)


def store_in(root: Path, **options: Any) -> MessageStore:
    store = MessageStore(StoreSettings(root=root, dispatch_lag_max=NO_LIMIT, **options))
    store.open()
    gc.freeze()
    return store


def batches(store: MessageStore, body_size: int, batch: int) -> list[Drafts]:
    """A ring of prepared batches, so that keys differ and building them is not measured."""
    ring = max(1, 4096 // batch)
    return [
        drafts_of([a_message(i * batch + j, body_size) for j in range(batch)], store.offsets)
        for i in range(ring)
    ]


def fill(store: MessageStore, messages: int, body_size: int = 128, batch: int = 64) -> float:
    """Append so many messages and say how long that took."""
    ring = batches(store, body_size, batch)
    rounds, put_many, size = messages // batch, store.put_many, len(ring)
    began = time.perf_counter()
    for i in range(rounds):
        put_many(ring[i % size])
    return time.perf_counter() - began


def rate(messages: int, seconds: float, **more: Any) -> dict[str, Any]:
    return {"messages": messages, "seconds": round(seconds, 4), "rate": round(messages / seconds), **more}


def append(messages: int, body_size: int, batch: int) -> dict[str, Any]:
    """What Java's bench does: puts in one thread, dispatch and flush in theirs; a first run is discarded."""
    with folder() as root:
        store = store_in(root)
        fill(store, messages // 4, body_size, batch)
        store.dispatch()
        cpu = time.process_time()
        seconds = fill(store, messages, body_size, batch)
        cpu = time.process_time() - cpu
        store.close()
    return rate(messages // batch * batch, seconds, cpu_us=round(cpu / messages * 1e6, 3))


def turn(messages: int, body_size: int, batch: int) -> dict[str, Any]:
    """Append and dispatch in one thread, as a broker's turn does: the whole cost of a message."""
    with folder() as root:
        store = store_in(root)
        store.workers.dispatch.stop()
        ring = batches(store, body_size, batch)
        for _ in range(2):
            cpu, began = time.thread_time(), time.perf_counter()
            for i in range(messages // batch):
                store.put_many(ring[i % len(ring)])
                store.dispatch()
            cpu, seconds = time.thread_time() - cpu, time.perf_counter() - began
        store.close()
    return rate(messages // batch * batch, seconds, cpu_us=round(cpu / messages * 1e6, 3))


def compiled(messages: int, body_size: int) -> dict[str, Any]:
    """The four calls alone that store and dispatch a message, in memory that is there already: no page
    fault, no Python between them. The best of many rounds over a thousand messages."""
    count, slots, offsets = 1024, 50_000, QueueOffsets()
    drafts = drafts_of([a_message(i, body_size) for i in range(count)], offsets)
    out, facts, encoder = bytearray(count * (body_size + 512)), facts_table(count), Encoder(STORE_HOST)
    best = float("inf")
    for _ in range(max(1, messages // count)):
        index = bytearray(file_size(slots, 4 * count))
        began = time.thread_time()
        encoder.encode_many(drafts, 0, out, 0, 0, offsets.next, 1)
        end = drafts.rows[-3] + drafts.rows[-2]
        walk(out, 0, end, 0, facts, Check.NOTHING)
        group(facts, count, out)
        put_many(index, slots, facts, count, (0, 0), out, 0)
        best = min(best, time.thread_time() - began)
    return {"messages": count, "rate": round(count / best), "cpu_us": round(best / count * 1e6, 3)}


def dispatch(messages: int, body_size: int) -> dict[str, Any]:
    """Queues and index are gone; recovery builds them again from the log."""
    with folder() as root:
        store = store_in(root)
        fill(store, messages, body_size)
        store.close()
        for name in ("consumequeue", "index"):
            shutil.rmtree(root / name)
        began = time.perf_counter()
        store = store_in(root)
        seconds = time.perf_counter() - began
        store.close()
    return rate(messages // 64 * 64, seconds)


def recovery(messages: int, body_size: int) -> dict[str, Any]:
    """After a crash, with queues and index as they were: everything is verified again."""
    with folder() as root:
        store = store_in(root)
        fill(store, messages, body_size)
        store.close()
        (root / "abort").touch()
        (root / "checkpoint").unlink()
        began = time.perf_counter()
        store = store_in(root)
        seconds = time.perf_counter() - began
        assert store.report is not None
        records = store.report.records
        store.close()
    return rate(records, seconds)


def open_clean(messages: int, body_size: int) -> dict[str, Any]:
    """Start after a clean stop."""
    with folder() as root:
        store = store_in(root)
        fill(store, messages, body_size)
        store.dispatch()
        store.close()
        cpu, began = time.process_time(), time.perf_counter()
        store = store_in(root)
        cpu, seconds = time.process_time() - cpu, time.perf_counter() - began
        store.close()
    return rate(messages, seconds, cpu_s=round(cpu, 3))


def read(messages: int, body_size: int, order: str) -> dict[str, Any]:
    """Pull all queues from begin to end, or from random offsets, 32 messages at a time."""
    with folder() as root:
        store = store_in(root)
        fill(store, messages, body_size)
        store.dispatch()
        spots = [(q, at) for q in range(QUEUES) for at in range(0, store.max_offset(TOPIC, q), 32)]
        if order == "random":
            random.Random(7).shuffle(spots)
        began, found = time.perf_counter(), 0
        for queue_id, at in spots:
            result = store.get(TOPIC, queue_id, at, 32)
            assert len(result.gathered()) == result.size
            found += result.count
        seconds = time.perf_counter() - began
        store.close()
    return rate(found, seconds)


def sync_flush(messages: int, writers: int) -> dict[str, Any]:
    """Puts that each wait for the disk, from so many threads: they share their fdatasyncs."""
    with folder() as root:
        store = store_in(root, flush_disk=FlushDisk.SYNC_FLUSH, sync_flush_timeout_ms=60_000)
        each = max(1, messages // writers)

        def write(first: int) -> None:
            for i in range(each):
                store.put(a_message(first + i, 128))

        threads = [threading.Thread(target=write, args=(i * each,)) for i in range(writers)]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - began
        store.close()
    return rate(each * writers, seconds)


def many_queues(queues: int, messages_each: int) -> dict[str, Any]:
    """Memory and descriptors with so many queues in use."""
    with folder() as root:
        store = store_in(root)
        before_kib = _resident_kib()
        for _ in range(messages_each):
            for start in range(0, queues, 1000):
                numbers = range(start, min(queues, start + 1000))
                drafts = [NewMessage(topic=b"T%d" % (n // 100), body=b"x", queue_id=n % 100) for n in numbers]
                store.put_many(drafts_of(drafts, store.offsets))
            store.dispatch()
        grown_kib, descriptors = _resident_kib() - before_kib, len(list(Path("/proc/self/fd").iterdir()))
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        store.close()
        cpu, began = time.process_time(), time.perf_counter()
        store = store_in(root)
        cpu, seconds = time.process_time() - cpu, time.perf_counter() - began
        found = len(store.queues)
        store.close()
    return rate(
        found, seconds, resident_kib=grown_kib, descriptors=descriptors, limit=limit, open_cpu_s=round(cpu, 2)
    )


def _resident_kib() -> int:
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon"))


BENCHES: dict[str, Callable[..., dict[str, Any]]] = {
    function.__name__: function
    for function in (append, turn, compiled, dispatch, recovery, open_clean, read, sync_flush, many_queues)
}

if __name__ == "__main__":
    given = dict(argument.split("=", 1) for argument in sys.argv[2:])
    numbers = {key: int(value) if value.isdigit() else value for key, value in given.items()}
    print(json.dumps(BENCHES[sys.argv[1]](**numbers)))
