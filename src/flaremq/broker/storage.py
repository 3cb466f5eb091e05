"""The message store as a feature: opened after the tables are loaded, closed after they are saved."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from flaremq.base.clock import Clock
from flaremq.base.lifecycle import WorkerFactory
from flaremq.base.logs import fields, logger
from flaremq.broker.configuration import Configuration
from flaremq.broker.features import Feature
from flaremq.broker.offload import Offload
from flaremq.broker.tables.tables import Tables
from flaremq.broker.tasks import MINUTE_S, Task
from flaremq.store.api import ArrivalListener
from flaremq.store.commitlog import CommitLog, LogFactory
from flaremq.store.files.disk import Disk
from flaremq.store.settings import StoreSettings
from flaremq.store.store import MessageStore

log = logger("broker.storage")


def make_store(
    settings: StoreSettings,
    tables: Callable[[], Tables],
    clock: Clock,
    *,
    host: bytes,
    disk: Disk,
    workers: WorkerFactory,
    on_step: Callable[[str], None],
    make_log: LogFactory = CommitLog,
) -> MessageStore:
    """A store that knows topics and groups by the tables of the moment. `host` is the address that its
    records name."""

    def is_batch(topic: str) -> bool:
        found = tables().topics.get(topic)
        return found is not None and found.is_batch_queue

    filters = tables().filters
    mapper = filters.bit_mapper(lambda: tables().filters)
    if mapper is not None:
        # As in RocketMQ: a truncated bit map would hide messages, so the store makes room for all of it.
        settings = replace(settings, ext_bit_map_length=filters.bit_map_length)
    return MessageStore(
        settings,
        store_host=host,
        clock=clock,
        disk=disk,
        is_batch=is_batch,
        bit_mapper=mapper,
        owner_dispatches=True,
        on_step=on_step,
        workers=workers,
        make_log=make_log,
    )


class Storage(Feature):
    """Opens and closes the store. Whatever may wait for the disk runs in `offload`."""

    def __init__(
        self,
        store: MessageStore,
        tables: Tables,
        offload: Offload,
        on_step: Callable[[str], None],
        *,
        is_open: bool = False,
    ) -> None:
        """`is_open`: the store is open already, and stays so. It knows these tables, which are loaded."""
        self._is_open = is_open
        self._store = store
        self._tables = tables
        self._offload = offload
        self._on_step = on_step
        self.listener: ArrivalListener | None = None
        """Called when messages arrive."""

    async def start(self) -> None:
        if not self._is_open:
            await self._offload.run(self._tables.load)
            self._on_step("config files")
        try:
            await self._offload.run(self._open)
        except BaseException:
            await self.stop()
            raise

    def _open(self) -> None:
        if not self._is_open:
            self._store.load()
        self._tables.deleted.apply(self._store, self._tables.topics)
        if not self._is_open:
            self._store.start()
        if self.listener is not None:
            self._store.listen(self.listener)

    async def stop(self) -> None:
        if self._is_open:
            self._store.forget_owners()
        else:
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
