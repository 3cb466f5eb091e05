"""A member of a consumer group: its client, its settings and what it has subscribed to."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from flaremq.base.errors import FlareError, NoRoute, UsageError
from flaremq.client.client import Client
from flaremq.client.consumer.stats import Figures
from flaremq.client.settings import ConsumerSettings
from flaremq.model.message import MessageQueue
from flaremq.model.names import check_topic
from flaremq.protocol.bodies.group import (
    ALL,
    SQL92,
    TAG,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)


@dataclass(slots=True)
class GroupMember:
    """Shared by all parts of a consumer."""

    client: Client
    group: str
    settings: ConsumerSettings
    kind: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    started_ms: int = 0
    figures: Figures = field(init=False)

    def __post_init__(self) -> None:
        self.figures = Figures(self.client.clock)

    @property
    def is_clustering(self) -> bool:
        """Whether members share the queues, and brokers keep the offsets."""
        return not self.settings.broadcasting

    def subscribe(self, topic: str, tags: str | None = None, sql: str | None = None) -> None:
        """Subscribe, or replace the expression of an existing subscription."""
        check_topic(topic)
        if tags is not None and sql is not None:
            raise UsageError(
                f"a subscription to {topic!r} has both tags and SQL: brokers accept only one of them"
            )
        expression, kind = (sql, SQL92) if sql is not None else (tags or ALL, TAG)
        if not expression.strip():
            raise UsageError(
                f"a subscription to {topic!r} has an empty expression: leave it out to get all messages"
            )
        version = self.client.clock.now_ms()
        before = self.subscriptions.get(topic)
        if before is not None:  # Brokers accept only a newer version.
            version = max(version, before.sub_version + 1)
        self.subscriptions[topic] = SubscriptionData.of(topic, expression, kind, version)

    def unsubscribe(self, topic: str) -> None:
        self.subscriptions.pop(topic, None)

    def heartbeat(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            consume_type=self.kind,
            message_model=MessageModel.CLUSTERING if self.is_clustering else MessageModel.BROADCASTING,
            consume_from_where=self.settings.start_from,
            subscription_data_set=tuple(self.subscriptions.values()),
        )

    def address(self, queue: MessageQueue) -> str:
        """The broker that keeps the offsets of a queue: the master, or a slave in its absence."""
        found = self.client.routes.address(queue.broker_name)
        if found is None:
            self.client.refresh_soon()
            raise NoRoute(
                f"broker {queue.broker_name!r} is not known at the moment: check that it is running"
            )
        return found


log = logging.getLogger(__name__)


class Warnings:
    """Repeated failures of brokers and topics, each logged once."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._known: dict[str, set[type[FlareError]]] = {}

    def note(self, where: str, what: str, error: FlareError) -> None:
        """Something failed there. Only the first failure of each kind is logged."""
        kinds = self._known.setdefault(where, set())
        if type(error) not in kinds:
            kinds.add(type(error))
            log.warning("group %s: %s at %s failed and will be retried: %s", self._group, what, where, error)

    def over(self, where: str) -> None:
        """It works there again."""
        if where in self._known:
            del self._known[where]
            log.info("group %s: %s works again", self._group, where)
