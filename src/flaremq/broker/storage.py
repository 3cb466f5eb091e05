"""The message store as a feature: opened after the tables are loaded, closed after they are saved."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from flaremq.base.logs import fields, logger
from flaremq.broker.configuration import Configuration
from flaremq.broker.features import Feature
from flaremq.broker.offload import Offload
from flaremq.broker.send.acks import Mark
from flaremq.broker.tables.tables import Tables
from flaremq.broker.tasks import MINUTE_S, Task
from flaremq.protocol.codes import ResponseCode
from flaremq.store.api import ArrivalListener
from flaremq.store.settings import FlushDisk, StoreSettings
from flaremq.store.store import MessageStore

log = logger("broker.storage")


def disk_marks(store: MessageStore) -> Iterable[Mark]:
    """What the answer to a producer waits for at its own disk."""
    if store.settings.flush_disk is FlushDisk.SYNC_FLUSH:
        timeout_s = store.settings.sync_flush_timeout_ms / 1000
        yield Mark(store.flushed, late=ResponseCode.FLUSH_DISK_TIMEOUT, timeout_s=timeout_s)


class Storage(Feature):
    """Opens and closes the store. Whatever may wait for the disk runs in `offload`."""

    def __init__(
        self, store: MessageStore, tables: Tables, offload: Offload, on_step: Callable[[str], None]
    ) -> None:
        self._store = store
        self._tables = tables
        self._offload = offload
        self._on_step = on_step
        self.listener: ArrivalListener | None = None
        """Called when messages arrive."""

    async def start(self) -> None:
        await self._offload.run(self._tables.load)
        self._on_step("config files")
        try:
            await self._offload.run(self._open)
        except BaseException:
            await self._offload.run(self._store.close)
            raise

    def _open(self) -> None:
        self._store.load()
        self._tables.deleted.apply(self._store, self._tables.topics)
        self._store.start()
        if self.listener is not None:
            self._store.listen(self.listener)

    async def stop(self) -> None:
        await self._offload.run(self._store.close)

    def tasks(self) -> Iterable[Task]:
        yield Task("print-dispatch-lag", 10, MINUTE_S, self._print_dispatch_lag)

    def changed(self, configuration: Configuration) -> None:
        """Settings have changed, perhaps some of the store's."""
        self._store.change(configuration.get(StoreSettings))

    def _print_dispatch_lag(self) -> None:
        behind = self._store.dispatcher.behind
        if behind:
            log.info("queues are behind the log", extra=fields(bytes=behind))
