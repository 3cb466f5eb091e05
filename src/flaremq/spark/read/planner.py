"""The planner of a stream: which queues it reads, where they end, and how much the next batch takes."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping
from typing import Final

from flaremq.base.errors import DataLost, FlareError
from flaremq.client.client import Client
from flaremq.model.message import MessageQueue
from flaremq.model.queuekey import queue_of
from flaremq.spark.clients import ClusterClient, cluster_client
from flaremq.spark.read import offsets
from flaremq.spark.read.bounds import Bound, BoundKind
from flaremq.spark.read.offsetreader import OffsetReader, QueueSpans, await_more, peek
from flaremq.spark.read.offsets import OffsetSpan
from flaremq.spark.read.options import BatchLimits, ReadOptions
from flaremq.spark.read.resolve import Resolver

log = logging.getLogger(__name__)

_LIST_S = 5.0
"""How often to look for new topics and queues."""
_SIZES_S = 10.0
"""How often to measure the size of messages again."""
_USUAL_SIZE = 1024.0


class StreamPlanner:
    """Plans micro-batches. It blocks its caller; the work is done in the cluster client's event loop."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._cluster: ClusterClient = cluster_client(options.name_server)
        self._reader = OffsetReader(self._cluster.client, options.broker_timeout_s)
        self._watch = Watch(self._cluster.client)
        self._queues: tuple[MessageQueue, ...] = ()
        self._listed_s = -math.inf
        self._sizes: dict[str, tuple[float, float]] = {}
        self._target: dict[str, OffsetSpan] | None = None
        self._triggered_s = -math.inf
        self._warned: set[str] = set()
        self.ends: dict[str, int] = {}
        """The last known end of each queue."""

    def begin(self, place: Bound) -> dict[str, int]:
        """Where the query begins: resolved once, and pinned by batch 0."""
        return self._cluster.run(self._begin(place))

    def freeze(self) -> None:
        """Read up to the current ends, and no further. Raises if a topic that is named is missing.

        Its broker may be down, and a run that has read nothing would look like one that has read everything.
        """
        self._target = self._cluster.run(self._all(strict=True))

    def next(self, known: Mapping[str, int], limits: BatchLimits, poll_s: float) -> dict[str, int]:
        """Where the next batch ends. Equals `known` if nothing new has come within `poll_s`."""
        takes = (self._options.selection.takes(queue_of(key)) for key in known)
        offsets.check_same_query(known, takes, str(self._options.selection))
        return self._cluster.run(self._next(known, limits, poll_s))

    def close(self) -> None:
        self._cluster.run(self._watch.close())

    # In the loop.

    async def _begin(self, place: Bound) -> dict[str, int]:
        spans = await self._all(strict=True)
        resolver = Resolver(self._reader, self._queues, self._options.group)
        found = await resolver.offsets(place, spans, BoundKind.LATEST)
        if place.kind is BoundKind.OFFSETS:
            self._check_lost(found, spans)
        return found

    async def _all(self, *, strict: bool = False) -> dict[str, OffsetSpan]:
        await self._list(strict=strict)
        spans = await self._reader.all_spans(self._queues)
        self.ends = {key: span.end for key, span in spans.items()}
        return spans

    async def _list(self, *, strict: bool = False) -> None:
        """Find the queues to read. Once some are known, the NameServer may be away for a while."""
        known = self._queues
        timeout_s = 0.0 if known and not strict else self._options.broker_timeout_s
        try:
            self._queues = await self._reader.queues(self._options.selection, timeout_s, strict=strict)
        except FlareError as error:
            if not known or strict or not error.retriable:
                raise
            log.warning("cannot look for new queues now: %s", error)
        if not known and self._queues and self._options.filter.sql is not None:
            await self._reader.check_sql(self._queues, self._options.filter.sql, self._options.reading_group)
        self._listed_s = asyncio.get_running_loop().time()

    async def _next(self, known: Mapping[str, int], limits: BatchLimits, poll_s: float) -> dict[str, int]:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + poll_s
        while True:
            spans = await self._spans()
            self._check_lost(known, spans)
            backlog = offsets.backlog(known, spans)
            total, new = sum(backlog.values()), any(key not in known for key in spans)
            held = total < limits.offsets_min and loop.time() - self._triggered_s < limits.delay_s
            if new or self._target is not None or (total and not held):
                taken = {} if held and self._target is None else await self._taken(known, spans, limits)
                if taken:
                    self._triggered_s = loop.time()
                return offsets.advanced(known, spans, taken)
            left_s = deadline_s - loop.time()
            if left_s <= 0:
                return dict(known)
            if total:  # Held back, but only until the delay is over.
                left_s = min(left_s, max(0.0, self._triggered_s + limits.delay_s - loop.time()))
            await self._wait(spans, left_s)

    async def _wait(self, spans: Mapping[str, OffsetSpan], left_s: float) -> None:
        """Wait for new messages, but not longer than until the next look for new queues."""
        loop = asyncio.get_running_loop()
        list_s = max(0.0, self._listed_s + _LIST_S - loop.time())
        await self._watch.wait({key: span.end for key, span in spans.items()}, min(left_s, list_s))

    async def _spans(self) -> dict[str, OffsetSpan]:
        """Offsets of all queues as of now; if frozen, of the frozen queues that still exist.

        If frozen, it does not look for queues again: a broker that has gone would not be noticed, and its
        messages would be left out silently.
        """
        if self._target is None:
            if asyncio.get_running_loop().time() - self._listed_s >= _LIST_S:
                await self._list()
            found = await self._reader.spans(self._queues)
            self.ends |= {key: span.end for key, span in found.spans.items()}
            return found.spans
        found = QueueSpans(await self._reader.all_spans(self._queues))
        self.ends |= {key: span.end for key, span in found.spans.items()}
        return {
            key: OffsetSpan(found.spans[key].begin, min(target.end, found.spans[key].end))
            for key, target in self._target.items()
            if key in found.spans
        }

    def _check_lost(self, known: Mapping[str, int], spans: Mapping[str, OffsetSpan]) -> None:
        lost = offsets.gaps(known, spans)
        if lost and self._options.fail_on_data_loss:
            raise DataLost(
                f"messages were gone before they were read: {', '.join(map(str, lost[:5]))}. Set "
                "failOnDataLoss=false to continue without them, or start again with another "
                "checkpointLocation"
            )
        for gap in lost:
            if str(gap) not in self._warned:
                self._warned.add(str(gap))
                log.warning("messages were gone before they were read, and were skipped: %s", gap)
        for key, offset in known.items():
            if self._target is None and key in spans and spans[key].end < offset and key not in self._warned:
                self._warned.add(key)
                log.warning(
                    "%s ends at %d, but was read up to %d before: waiting until it is past that",
                    *(key, spans[key].end, offset),
                )

    # How much.

    async def _taken(
        self, known: Mapping[str, int], spans: Mapping[str, OffsetSpan], limits: BatchLimits
    ) -> dict[str, int]:
        taken = offsets.backlog(known, spans)
        if limits.offsets_max is not None:
            taken = offsets.fair_share(taken, limits.offsets_max)
        if limits.bytes_max is not None:
            sizes = await self._sizes_of(known, spans, taken)
            taken = offsets.fair_bytes(taken, sizes, limits.bytes_max)
        return {key: count for key, count in taken.items() if count > 0}

    async def _sizes_of(
        self, known: Mapping[str, int], spans: Mapping[str, OffsetSpan], taken: Mapping[str, int]
    ) -> dict[str, float]:
        """The approximate size of a message of each queue: the average of the next ones, of one pull."""
        now_s = asyncio.get_running_loop().time()
        wanted = [
            key
            for key, count in taken.items()
            if count and now_s - self._sizes.get(key, (-math.inf, 0.0))[0] > _SIZES_S
        ]
        found = await asyncio.gather(*(self._size(key, max(known[key], spans[key].begin)) for key in wanted))
        self._sizes |= {key: (now_s, size) for key, size in zip(wanted, found, strict=True)}
        return {key: self._sizes[key][1] for key in taken if key in self._sizes}

    async def _size(self, key: str, offset: int) -> float:
        try:
            pulled = await peek(self._cluster.client, queue_of(key), offset)
            if len(pulled.body) and pulled.next_offset > offset:
                return max(1.0, len(pulled.body) / (pulled.next_offset - offset))
        except FlareError as error:
            log.debug("the size of messages of %s is unknown: %s", key, error)
        return self._sizes.get(key, (0.0, _USUAL_SIZE))[1]


log = logging.getLogger(__name__)
_QUEUES_MAX: Final = 256
_LOOK_S: Final = 0.1
_HOLD_S: Final = 10.0


class Watch:
    """Long polls that end when a queue gets messages. Lives in its client's event loop."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._held: dict[str, tuple[int, asyncio.Task[bool]]] = {}

    async def wait(self, ends: Mapping[str, int], limit_s: float) -> None:
        """Wait until a queue may have grown beyond its known end, for at most `limit_s`."""
        if len(ends) > _QUEUES_MAX or not ends:
            await asyncio.sleep(min(limit_s, _LOOK_S))
            return
        for key in [key for key, (offset, _) in self._held.items() if ends.get(key) != offset]:
            self._held.pop(key)[1].cancel()
        for key, offset in ends.items():
            if key not in self._held:
                self._held[key] = offset, asyncio.create_task(self._more(key, offset), name=f"watch-{key}")
        tasks = [task for _, task in self._held.values()]
        done, _ = await asyncio.wait(tasks, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        self._held = {key: each for key, each in self._held.items() if each[1] not in done}
        if done and not any(task.result() for task in done):
            # A broker does not hold pulls, or does not answer: look again, but not at once.
            await asyncio.sleep(min(limit_s, _LOOK_S))

    async def _more(self, key: str, offset: int) -> bool:
        """Whether the broker says that there is more."""
        try:
            return await await_more(self._client, queue_of(key), offset, _HOLD_S)
        except FlareError as error:
            log.debug("cannot watch %s now: %s", key, error)
            return False

    async def close(self) -> None:
        for _, task in self._held.values():
            task.cancel()
        if self._held:
            await asyncio.wait([task for _, task in self._held.values()])
        self._held.clear()
