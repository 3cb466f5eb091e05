"""How far a slave has come while it acted for the master, copied back when the master returns.

Consumers committed at the slave, and it delivered delayed messages and timers. Nothing goes back by this:
where the master is further, it stays there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

from flaremq.base.logs import fields, logger
from flaremq.broker.offload import Offload
from flaremq.broker.replicas.exchange import MemberCalls
from flaremq.broker.tables.offsets import key_of
from flaremq.broker.tables.tables import Tables
from flaremq.model.topic import DataVersion
from flaremq.protocol import beans
from flaremq.protocol.bodies.group import ConsumerOffsetSerializeWrapper, DelayOffsetSerializeWrapper
from flaremq.protocol.codes import RequestCode
from flaremq.store.timer.timercheck import Progress, progress_of

log = logger("broker.copyback")

T = TypeVar("T")


class TimerProgress(Protocol):
    """The timers of this broker."""

    @property
    def progress(self) -> Progress: ...
    def adopt(self, told: Progress) -> None:
        """Deliver nothing that another member has delivered."""


class CopyBack:
    def __init__(self, calls: MemberCalls, tables: Tables, timers: TimerProgress, offload: Offload) -> None:
        self._calls = calls
        self._tables = tables
        self._timers = timers
        self._offload = offload

    async def copy_from(self, slave: str) -> None:
        """Take over what this slave has done. Raises FlareError if it cannot be asked."""
        await self._offsets(slave)
        await self._delays(slave)
        await self._timer(slave)

    async def _offsets(self, slave: str) -> None:
        told = await self._told(slave, RequestCode.GET_ALL_CONSUMER_OFFSET, ConsumerOffsetSerializeWrapper)
        ours = self._tables.offsets
        if told is None or not _is_news(told.data_version, ours.version):
            return
        theirs = {key_of(name): queues for name, queues in told.offset_table.items()}
        further = {key: _further(queues, ours.all().get(key, {})) for key, queues in theirs.items()}
        further = {key: queues for key, queues in further.items() if queues}
        ours.adopt(further, told.data_version or ours.version)
        await ours.save()
        log.info("consumer offsets were copied back", extra=fields(slave=slave, changed=len(further)))

    async def _delays(self, slave: str) -> None:
        told = await self._told(slave, RequestCode.GET_ALL_DELAY_OFFSET, DelayOffsetSerializeWrapper)
        ours = self._tables.delays
        if told is None or not _is_news(told.data_version, ours.version):
            return
        table = ours.wrapper().offset_table
        further = _further(told.offset_table, table)
        ours.replace({**table, **further}, told.data_version or ours.version)
        await ours.save()
        log.info("delay offsets were copied back", extra=fields(slave=slave, levels=len(further)))

    async def _timer(self, slave: str) -> None:
        body = await self._calls.body(slave, RequestCode.GET_TIMER_CHECK_POINT)
        if body is None:
            return
        told, ours = progress_of(body), self._timers.progress
        if _version_of(told) >= _version_of(ours):
            self._timers.adopt(told)
            log.info("the progress of timers was copied back", extra=fields(slave=slave, ms=told.read_ms))

    async def _told(self, slave: str, code: RequestCode, kind: type[T]) -> T | None:
        body = await self._calls.body(slave, code)
        # A large table: it is decoded in a thread.
        return None if not body else await self._offload.run(lambda: beans.decode(kind, body))


def _is_news(told: DataVersion | None, ours: DataVersion) -> bool:
    """Whether a table is not older than ours."""
    return told is None or not _order(told) < _order(ours)


def _order(version: DataVersion) -> tuple[int, int, int]:
    return version.state_version, version.counter, version.timestamp_ms


def _version_of(progress: Progress) -> tuple[int, ...]:
    return progress.state_version, progress.counter, progress.changed_ms


def _further(theirs: Mapping[int, int], ours: Mapping[int, int]) -> dict[int, int]:
    return {key: offset for key, offset in theirs.items() if offset > ours.get(key, -1)}
