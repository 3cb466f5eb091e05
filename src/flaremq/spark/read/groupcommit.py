"""A group's offsets committed to brokers: best effort, and a failure never ends a query.

A broker accepts offsets only of groups that it knows, and creates a group when it pulls. So if the group is
missing, a pull comes first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final

from flaremq.base.errors import FlareError, GroupNotFound
from flaremq.client.client import Client
from flaremq.model.queuekey import queue_of
from flaremq.protocol.codes import RequestCode
from flaremq.spark.clients import ClusterClient, cluster_client
from flaremq.spark.read.options import NO_FILTER
from flaremq.spark.read.partitions import QueueRange
from flaremq.spark.read.pullranges import pull_header

log = logging.getLogger(__name__)

_AT_ONCE: Final = 64


def commit(name_server: str, group: str, offsets: Mapping[str, int]) -> None:
    """Commit offsets by queue key. A failure is logged as a warning; the next batch commits again."""
    try:
        cluster = cluster_client(name_server)
        new = {key: offset for key, offset in offsets.items() if cluster.told.get((group, key)) != offset}
        if new:
            cluster.run(_Commit(cluster, group, new).run())
    except Exception as error:  # noqa: BLE001 - A progress report must not end a query.
        log.warning("cannot commit the offsets of %s: %s", group, error)


class _Commit:
    def __init__(self, cluster: ClusterClient, group: str, offsets: Mapping[str, int]) -> None:
        self._cluster = cluster
        self._client: Client = cluster.client
        self._group = group
        self._offsets = offsets
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def run(self) -> None:
        for topic in sorted({queue_of(key).topic for key in self._offsets}):
            if self._client.routes.known(topic) is None:
                await self._client.routes.refresh(topic)
        by_broker: dict[str, list[str]] = {}
        for key in self._offsets:
            by_broker.setdefault(queue_of(key).broker_name, []).append(key)
        await asyncio.gather(*(self._tell(*each) for each in by_broker.items()))

    async def _tell(self, broker: str, keys: Sequence[str]) -> None:
        address = self._client.routes.master(broker)
        if address is None:
            return  # A slave takes no offsets; a master that is down gets the next commit after its return.
        try:
            await self._one(address, keys[0])  # If this fails, the others need not be tried.
            await asyncio.gather(*(self._one(address, key) for key in keys[1:]))
        except FlareError as error:
            log.warning("cannot commit the offsets of %s to %s: %s", self._group, broker, error)

    async def _one(self, address: str, key: str) -> None:
        api, queue, offset = self._client.api, queue_of(key), self._offsets[key]
        async with self._slots:
            try:
                await api.commit(address, self._group, queue, offset, oneway=False)
            except GroupNotFound:
                of = QueueRange(queue.topic, queue.broker_name, queue.queue_id, offset, offset + 1)
                header = pull_header(of, self._group, NO_FILTER)
                await api.pull(address, RequestCode.PULL_MESSAGE, header, api.timeout_s)
                await api.commit(address, self._group, queue, offset, oneway=False)
        self._cluster.told[self._group, key] = offset
