"""Clients that are not there, and the tables of a broker around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flaremq.base.errors import CallTimeout
from flaremq.base.live import Live
from flaremq.broker.offload import Offload
from flaremq.broker.settings import BrokerSettings
from flaremq.broker.stats.stats import Stats
from flaremq.broker.tables.consumers import Consumers
from flaremq.broker.tables.filters import Filters
from flaremq.broker.tables.offsets import Offsets
from flaremq.broker.tables.producers import ClientMember, Producers
from flaremq.broker.tables.queuelocks import QueueLocks
from flaremq.broker.tables.subscriptiongroups import SubscriptionGroups
from flaremq.broker.tables.tables import Tables
from flaremq.broker.tables.topics import TopicConfigs
from flaremq.protocol import beans, fields
from flaremq.protocol.bodies.group import ConsumerData, SubscriptionData
from flaremq.protocol.codes import CURRENT_VERSION, LanguageCode, RequestCode
from flaremq.protocol.command import Command
from flaremq.remoting.router import Family, Handler, Router
from flaremq.store.store import MessageStore
from flaremq.testing.clock import ManualClock
from flaremq.testing.fakes.builders import small_settings

BROKER = "broker-a"
CLUSTER = "DefaultCluster"


class FakePeer:
    """The other end of a connection: it notes what it is sent, and answers as it was told to."""

    def __init__(self, port: int = 5000) -> None:
        self.address = ("10.0.0.9", port)
        self.is_open = True
        self.sent: list[Command] = []
        self.answer: Callable[[Command], Command] | None = None

    def send(self, command: Command) -> None:
        self.sent.append(command)

    async def call(self, request: Command, timeout_s: float) -> Command:
        self.sent.append(request)
        if self.answer is None:
            raise CallTimeout(f"no answer within {timeout_s:g} s")
        return self.answer(request)

    def close(self) -> None:
        self.is_open = False

    def asked(self) -> list[Command]:
        """All it was sent, but for the news that its group has changed."""
        return [each for each in self.sent if each.code != RequestCode.NOTIFY_CONSUMER_IDS_CHANGED]

    def codes(self) -> list[int]:
        return [command.code for command in self.sent]


def a_member(client_id: str = "c1", peer: FakePeer | None = None, **other: Any) -> ClientMember:
    given: dict[str, Any] = {"language": LanguageCode.JAVA, "version": CURRENT_VERSION}
    return ClientMember(peer=peer or FakePeer(), client_id=client_id, **{**given, **other})


def wants(group: str, *topics: str, **other: Any) -> ConsumerData:
    wanted = tuple(SubscriptionData.of(topic, sub_version=1) for topic in topics)
    return ConsumerData(group_name=group, subscription_data_set=wanted, **other)


def settings_of(**other: Any) -> BrokerSettings:
    given: dict[str, Any] = {"broker_name": BROKER, "cluster_name": CLUSTER, "ip1": "10.0.0.1"}
    return BrokerSettings(**{**given, "ip2": "10.0.0.1", **other})


@dataclass
class Desk:
    """All tables of a broker, and a router in front of whatever a test has handlers for."""

    live: Live[BrokerSettings]
    clock: ManualClock
    offload: Offload
    store: MessageStore
    tables: Tables
    stats: Stats
    router: Router = field(default_factory=Router)
    peer: FakePeer = field(default_factory=FakePeer)

    @property
    def settings(self) -> BrokerSettings:
        return self.live.now

    @property
    def topics(self) -> TopicConfigs:
        return self.tables.topics

    @property
    def subscriptions(self) -> SubscriptionGroups:
        return self.tables.subscriptions

    @property
    def offsets(self) -> Offsets:
        return self.tables.offsets

    @property
    def filters(self) -> Filters:
        return self.tables.filters

    @property
    def groups(self) -> Consumers:
        return self.tables.groups

    @property
    def producers(self) -> Producers:
        return self.tables.producers

    @property
    def locks(self) -> QueueLocks:
        return self.tables.locks

    def serve(self, handlers: dict[int, Handler]) -> None:
        self.router.serve(Family("test", 1000), handlers)

    async def ask(
        self,
        code: RequestCode,
        header: fields.Header | Mapping[str, str] | None = None,
        body: object = None,
        **other: Any,
    ) -> Command:
        given = fields.encode(header) if isinstance(header, fields.Header) else header
        raw = body if body is None or isinstance(body, bytes) else beans.encode(body)
        request = Command(code=code, ext_fields=given, body=raw, **{"language": LanguageCode.JAVA, **other})
        answer = await self.router.answer(self.peer, request)
        assert answer is not None
        return answer


@contextmanager
def desk(root: Path, *, store: Mapping[str, Any] | None = None, **other: Any) -> Iterator[Desk]:
    """Tables on a folder; the store is made and not opened, unless a test does so."""
    clock, live, offload = ManualClock(), Live(settings_of(**other)), Offload(2)
    made = Desk(
        live=live,
        clock=clock,
        offload=offload,
        store=MessageStore(small_settings(root / "store", **(store or {})), clock=clock),
        tables=Tables(live, root / "config", offload, clock),
        stats=Stats(live, clock),
    )
    made.tables.attach(made.store)
    made.topics.load()
    made.subscriptions.load()
    try:
        yield made
    finally:
        offload.close()
        made.store.close()
