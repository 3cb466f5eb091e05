"""Offsets of a group: kept by brokers, or in a local file for broadcasting consumers."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from flaremq.base.errors import FlareError, Malformed, StoreError, Unreachable
from flaremq.base.files import BackedFile, Files
from flaremq.client.consumer.member import GroupMember
from flaremq.model.message import MessageQueue
from flaremq.model.names import is_retry
from flaremq.protocol import beans
from flaremq.protocol.bodies.group import ConsumeFromWhere

log = logging.getLogger(__name__)

_HALF_AN_HOUR_MS = 30 * 60 * 1000


class OffsetStore(Protocol):
    async def start(self, queue: MessageQueue) -> int:
        """The offset at which a newly assigned queue begins."""

    async def committed(self, queue: MessageQueue) -> int | None:
        """The stored offset; None if there is none."""

    async def store(self, positions: Mapping[MessageQueue, int], *, sure: bool = False) -> None:
        """Store these offsets; `sure` waits for it. Failures are logged, and left to the next call."""

    def forget(self, queue: MessageQueue) -> None:
        """The queue is no longer assigned to us."""


async def first_offset(member: GroupMember, queue: MessageQueue) -> int:
    """The offset at which a group without one begins. Retries are never skipped."""
    api, settings, address = member.client.api, member.settings, member.address(queue)
    if settings.start_from is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
        return 0  # A pull from there is moved to the first message that still exists.
    if settings.start_from is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
        if is_retry(queue.topic):
            return await api.max_offset(address, queue)
        timestamp_ms = settings.start_timestamp_ms or member.started_ms - _HALF_AN_HOUR_MS
        return await api.offset_by_time(address, queue, timestamp_ms)
    return 0 if is_retry(queue.topic) else await api.max_offset(address, queue)


class RemoteBrokerOffsetStore:
    """Offsets kept by brokers, for groups whose members share the queues."""

    def __init__(self, member: GroupMember) -> None:
        self._member = member
        self._stored: dict[MessageQueue, int] = {}

    async def start(self, queue: MessageQueue) -> int:
        found = await self.committed(queue)
        return await first_offset(self._member, queue) if found is None else found

    async def committed(self, queue: MessageQueue) -> int | None:
        member = self._member
        found = await member.client.api.committed(member.address(queue), member.group, queue)
        return None if found is None or found < 0 else found

    async def store(self, positions: Mapping[MessageQueue, int], *, sure: bool = False) -> None:
        by_broker: dict[str, dict[MessageQueue, int]] = {}
        for queue, offset in positions.items():
            if sure or self._stored.get(queue) != offset:
                by_broker.setdefault(queue.broker_name, {})[queue] = offset
        await asyncio.gather(*(self._store(each, sure) for each in by_broker.values()))

    async def _store(self, positions: Mapping[MessageQueue, int], sure: bool) -> None:
        """Store those of one broker: if it is away, one call finds out."""
        member = self._member
        for queue, offset in positions.items():
            try:
                address = member.address(queue)
                await member.client.api.commit(address, member.group, queue, offset, oneway=not sure)
                self._stored[queue] = offset
            except FlareError as error:
                level = logging.WARNING if sure else logging.DEBUG
                log.log(
                    level, "group %s: offset %d of %s was not stored: %s", member.group, offset, queue, error
                )
                if isinstance(error, Unreachable):
                    return

    def forget(self, queue: MessageQueue) -> None:
        self._stored.pop(queue, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetSerializeWrapper:
    """The content of the file; Java's name."""

    offset_table: Mapping[MessageQueue, int] = field(default_factory=dict)


class LocalFileOffsetStore:
    """Offsets in a local file, `<folder>/<client id>/<group>/offsets.json`; the previous version is the .bak.

    The client id is part of the path, as in Java: `ip@DEFAULT` unless ClientSettings has an `instance_name`.
    Two consumers of one group on one machine need such names, or they write to the same file.
    """

    def __init__(self, member: GroupMember) -> None:
        self._member = member
        folder = member.settings.offsets_folder
        self.path = folder / member.client.client_id / member.group / "offsets.json"
        self._table: dict[MessageQueue, int] | None = None
        self._writing = asyncio.Lock()
        self._changes = self._written = 0

    async def start(self, queue: MessageQueue) -> int:
        found = await self.committed(queue)
        return await first_offset(self._member, queue) if found is None else found

    async def committed(self, queue: MessageQueue) -> int | None:
        return (await self._read()).get(queue)

    async def store(self, positions: Mapping[MessageQueue, int], *, sure: bool = False) -> None:  # noqa: ARG002
        table = await self._read()
        if any(table.get(queue) != offset for queue, offset in positions.items()):
            table.update(positions)
            self._changes += 1
        async with self._writing:  # Who has nothing new to say returns no earlier: it may be the last to ask.
            changes = self._changes
            if changes == self._written:
                return
            text = beans.encode(OffsetSerializeWrapper(offset_table=table))
            try:
                await asyncio.to_thread(BackedFile(self.path, self._member.client.files).save, text)
            except StoreError as error:
                log.warning("group %s: offsets were not stored: %s", self._member.group, error)
                return
            self._written = changes

    def forget(self, queue: MessageQueue) -> None:
        """The file keeps it: the queue may come back."""

    async def _read(self) -> dict[MessageQueue, int]:
        if self._table is None:
            found = await asyncio.to_thread(_load, self.path, self._member.client.files)
            self._table = found if self._table is None else self._table
        return self._table


def _load(path: Path, files: Files) -> dict[MessageQueue, int]:
    """The offsets in the file, or in its .bak if it cannot be read; empty if there is neither."""
    for each in (path, path.with_name(path.name + ".bak")):
        try:
            text = files.read(each)
            if text.strip():
                return dict(beans.decode(OffsetSerializeWrapper, text).offset_table)
        except FileNotFoundError:
            continue
        except (OSError, Malformed, json.JSONDecodeError) as error:
            log.warning("offsets in %s cannot be read: %s", each, error)
    return {}
