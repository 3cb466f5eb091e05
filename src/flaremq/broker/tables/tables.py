"""What a broker knows besides its messages: topics, groups, offsets, filters, who is connected."""

from __future__ import annotations

from pathlib import Path

from flaremq.base.clock import Clock
from flaremq.broker.offload import Aside
from flaremq.broker.settings import BrokerSettings
from flaremq.broker.tables.broadcast import BroadcastOffsets
from flaremq.broker.tables.configfile import ConfigFile, save_all
from flaremq.broker.tables.consumers import GroupHooks, Groups
from flaremq.broker.tables.deletedtopics import DeletedTopics
from flaremq.broker.tables.filters import Filters
from flaremq.broker.tables.offsets import Offsets
from flaremq.broker.tables.producers import Producers
from flaremq.broker.tables.queuelocks import Locks
from flaremq.broker.tables.subscriptiongroups import Subscriptions
from flaremq.broker.tables.topics import Topics
from flaremq.remoting.router import Peer
from flaremq.store.store import MessageStore


class State:
    """All tables, in the folder `config` beside the messages."""

    def __init__(self, settings: BrokerSettings, folder: Path, aside: Aside, clock: Clock) -> None:
        def file(name: str) -> ConfigFile:
            return ConfigFile(folder / name)

        self._clock = clock
        self.topics = Topics(settings, file("topics.json"), aside, clock)
        self.subscriptions = Subscriptions(settings, file("subscriptionGroup.json"), aside, clock)
        self.offsets = Offsets(settings, file("consumerOffset.json"), aside, clock)
        self.deleted = DeletedTopics(file("deletedTopics.json"), aside)
        self.filters = Filters(settings, file("consumerFilter.json"), aside, clock)
        self.groups = Groups(
            settings, clock, GroupHooks(registered=self.filters.register, gone=self.filters.unregister)
        )
        self.producers = Producers(settings)
        self.locks = Locks(clock)
        self._settings = settings
        self._broadcast: BroadcastOffsets | None = None

    @property
    def broadcast(self) -> BroadcastOffsets:
        assert self._broadcast is not None, "the store is not there yet"
        return self._broadcast

    def attach(self, store: MessageStore) -> None:
        """The store is there: what needs both can be made."""
        self._broadcast = BroadcastOffsets(self._settings, self.offsets, self.groups, store, self._clock)

    def load(self) -> None:
        for table in (self.topics, self.subscriptions, self.offsets, self.filters, self.deleted):
            table.load()

    async def save(self) -> None:
        """Whatever has changed since the last time."""
        await save_all((self.topics, self.subscriptions, self.offsets, self.filters, self.deleted))

    def closed(self, peer: Peer) -> None:
        """A connection is gone, and all that its heartbeats have said."""
        self.groups.closed(peer)
        self.producers.closed(peer)

    def expire(self) -> None:
        now_ms = self._clock.now_ms()
        self.groups.expire(now_ms)
        self.producers.expire(now_ms)
        self.locks.expire()
        self.broadcast.expire()

    def change(self, settings: BrokerSettings) -> None:
        """Go on with other settings."""
        for table in (
            self.topics,
            self.subscriptions,
            self.filters,
            self.groups,
            self.producers,
            self.broadcast,
        ):
            table.settings = settings
