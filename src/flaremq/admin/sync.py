"""The blocking Admin.

with Admin("127.0.0.1:9876") as admin:
    admin.topics.create("orders")
    for message in admin.messages.scan(Scan(topic="orders")):
        ...
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import Generic, TypeVar, cast

from flaremq.admin import admin as core
from flaremq.admin.brokers import Brokers as AsyncBrokers
from flaremq.admin.groups import Groups as AsyncGroups
from flaremq.admin.health import Checkups as AsyncCheckups
from flaremq.admin.messages.deadletters import DeadLetterQueues as AsyncDeadLetterQueues
from flaremq.admin.messages.messages import Messages as AsyncMessages
from flaremq.admin.messages.transactions import Halves as AsyncHalves
from flaremq.admin.namesrvs import Namesrvs as AsyncNamesrvs
from flaremq.admin.raft import RaftGroups as AsyncRaftGroups
from flaremq.admin.topics import Topics as AsyncTopics
from flaremq.admin.values.deadletters import DeadLetter, LetterFilter
from flaremq.admin.values.messages import FoundMessage, Scan
from flaremq.client.blocking import Blocking, LoopThread, blocking, inside
from flaremq.client.client import settings_of
from flaremq.client.settings import ClientSettings

T = TypeVar("T")
U = TypeVar("U")


class Admin(Blocking[core.Admin]):
    """Connects on first use, or with `with`. Threads may share it."""

    def __init__(self, namesrv: str | None = None, *, settings: ClientSettings | None = None) -> None:
        self.settings = settings_of(namesrv, settings)
        super().__init__(lambda: core.Admin(settings=self.settings), "flaremq-admin")
        self.topics = Topics(self, "topics")
        self.groups = Groups(self, "groups")
        self.brokers = Brokers(self, "brokers")
        self.messages = Messages(self, "messages")
        self.dead_letters = DeadLetterQueues(self, "dead_letters")
        self.transactions = Halves(self, "transactions")
        self.namesrvs = Namesrvs(self, "namesrvs")
        self.health = Checkups(self, "health")
        self.raft = RaftGroups(self, "raft")

    def is_at(self, thread: LoopThread) -> bool:
        """Whether its calls still run in this thread."""
        return self._thread is thread


class BlockingPart(Generic[T]):
    """A part of the core for `blocking`: it knows the thread in which its calls run."""

    def __init__(self, admin: Admin, name: str) -> None:
        self._admin = admin
        self._name = name

    def _inside(self) -> tuple[LoopThread, T]:
        thread, admin = inside(self._admin)
        return thread, cast(T, getattr(admin, self._name))

    def _each(self, thread: LoopThread, found: AsyncGenerator[U, None]) -> Generator[U, None, None]:
        """What an async generator of the core yields."""
        try:
            while (each := thread.run(_next(found))) is not None:
                yield each
        finally:
            if self._admin.is_at(thread):  # Else it ended with its loop.
                thread.run(found.aclose())


async def _next(found: AsyncGenerator[U, None]) -> U | None:
    return await anext(found, None)


class Topics(BlockingPart[AsyncTopics]):
    list = blocking(AsyncTopics.list)
    route = blocking(AsyncTopics.route)
    get = blocking(AsyncTopics.get)
    create = blocking(AsyncTopics.create)
    update = blocking(AsyncTopics.update)
    set_perm = blocking(AsyncTopics.set_perm)
    set_order_conf = blocking(AsyncTopics.set_order_conf)
    delete = blocking(AsyncTopics.delete)
    stats = blocking(AsyncTopics.stats)
    consumers = blocking(AsyncTopics.consumers)
    producers = blocking(AsyncTopics.producers)


class Groups(BlockingPart[AsyncGroups]):
    list = blocking(AsyncGroups.list)
    summaries = blocking(AsyncGroups.summaries)
    get = blocking(AsyncGroups.get)
    create = blocking(AsyncGroups.create)
    update = blocking(AsyncGroups.update)
    delete = blocking(AsyncGroups.delete)
    members = blocking(AsyncGroups.members)
    running = blocking(AsyncGroups.running)
    positions = blocking(AsyncGroups.positions)
    progress = blocking(AsyncGroups.progress)
    topics = blocking(AsyncGroups.topics)
    spans = blocking(AsyncGroups.spans)
    reset = blocking(AsyncGroups.reset)
    skip = blocking(AsyncGroups.skip)
    clone = blocking(AsyncGroups.clone)
    forbid = blocking(AsyncGroups.forbid)
    allow = blocking(AsyncGroups.allow)
    forbidden = blocking(AsyncGroups.forbidden)
    set_mode = blocking(AsyncGroups.set_mode)


class Brokers(BlockingPart[AsyncBrokers]):
    clusters = blocking(AsyncBrokers.clusters)
    list = blocking(AsyncBrokers.list)
    runtime = blocking(AsyncBrokers.runtime)
    config = blocking(AsyncBrokers.config)
    update_config = blocking(AsyncBrokers.update_config)
    consume_stats = blocking(AsyncBrokers.consume_stats)
    rates = blocking(AsyncBrokers.rates)
    producers = blocking(AsyncBrokers.producers)
    clean_expired_queues = blocking(AsyncBrokers.clean_expired_queues)
    clean_unused_topics = blocking(AsyncBrokers.clean_unused_topics)
    delete_expired_files = blocking(AsyncBrokers.delete_expired_files)
    wipe_write_perm = blocking(AsyncBrokers.wipe_write_perm)
    add_write_perm = blocking(AsyncBrokers.add_write_perm)
    ha_status = blocking(AsyncBrokers.ha_status)
    ha = blocking(AsyncBrokers.ha)


class RaftGroups(BlockingPart[AsyncRaftGroups]):
    members = blocking(AsyncRaftGroups.members)
    transfer = blocking(AsyncRaftGroups.transfer)
    add = blocking(AsyncRaftGroups.add)
    remove = blocking(AsyncRaftGroups.remove)


class Messages(BlockingPart[AsyncMessages]):
    get = blocking(AsyncMessages.get)
    by_unique_key = blocking(AsyncMessages.by_unique_key)
    by_key = blocking(AsyncMessages.by_key)
    by_offset = blocking(AsyncMessages.by_offset)
    waiting = blocking(AsyncMessages.waiting)
    recall = blocking(AsyncMessages.recall)
    trace = blocking(AsyncMessages.trace)
    track = blocking(AsyncMessages.track)
    consume_directly = blocking(AsyncMessages.consume_directly)
    resend = blocking(AsyncMessages.resend)

    def scan(self, wanted: Scan) -> Generator[FoundMessage, None, None]:
        """Messages of a topic, queue by queue and in order; at most `count_max` of them."""
        thread, messages = self._inside()
        yield from self._each(thread, messages.scan(wanted))


class DeadLetterQueues(BlockingPart[AsyncDeadLetterQueues]):
    list = blocking(AsyncDeadLetterQueues.list)
    resend = blocking(AsyncDeadLetterQueues.resend)
    purge = blocking(AsyncDeadLetterQueues.purge)

    def scan(self, chosen: LetterFilter) -> Generator[DeadLetter, None, None]:
        """Such dead letters, group by group and oldest first."""
        thread, letters = self._inside()
        yield from self._each(thread, letters.scan(chosen))


class Halves(BlockingPart[AsyncHalves]):
    list = blocking(AsyncHalves.list)
    get = blocking(AsyncHalves.get)
    resume = blocking(AsyncHalves.resume)
    commit = blocking(AsyncHalves.commit)
    roll_back = blocking(AsyncHalves.roll_back)


class Namesrvs(BlockingPart[AsyncNamesrvs]):
    addresses = blocking(AsyncNamesrvs.addresses)
    config = blocking(AsyncNamesrvs.config)
    update_config = blocking(AsyncNamesrvs.update_config)
    kv_put = blocking(AsyncNamesrvs.kv_put)
    kv_get = blocking(AsyncNamesrvs.kv_get)
    kv_delete = blocking(AsyncNamesrvs.kv_delete)
    kv_list = blocking(AsyncNamesrvs.kv_list)


class Checkups(BlockingPart[AsyncCheckups]):
    check = blocking(AsyncCheckups.check)
