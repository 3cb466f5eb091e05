"""Whether a pull may be served, and with which filter: decided once for many pulls of one kind."""

from __future__ import annotations

from typing import Final, NamedTuple

from flaremq.base.errors import (
    Forbidden,
    GroupNotFound,
    InvalidParameter,
    SubscriptionMissing,
    SubscriptionOld,
    TopicNotFound,
)
from flaremq.base.live import Live
from flaremq.broker.pull.request import PullRequest, Wish
from flaremq.broker.settings import BrokerSettings
from flaremq.broker.tables.tables import Tables
from flaremq.model.topic import PERM_READ, GroupConfig, TopicConfig
from flaremq.protocol.bodies.group import ConsumeType, MessageModel, SubscriptionData
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.headers.pull import SUBSCRIPTION
from flaremq.store.api import Selector

_KEPT_MAX: Final = 10_000


class Permit(NamedTuple):
    """What a pull that may be served was decided on: settings, topic, group and filter. Valid as long as
    they are the same objects."""

    settings: BrokerSettings
    topic: TopicConfig
    group: GroupConfig
    subscription: SubscriptionData | None
    """From the group's heartbeats; None if the pull brings its own."""
    selector: Selector | None
    is_slow: bool
    """Its messages are filtered by an expression, one by one."""


class PullPermits:
    """A cache of permits, each kept while everything that it depends on stays the same."""

    def __init__(self, settings: Live[BrokerSettings], tables: Tables) -> None:
        self._live = settings
        self._tables = tables
        self._found: dict[Wish, Permit] = {}

    def of(self, asked: PullRequest) -> Permit:
        """The permit of a pull. Raises if it must be refused."""
        return self._known(asked) or self._allowed(asked)

    def _known(self, asked: PullRequest) -> Permit | None:
        """The permit of the last pull of this kind, if nothing has changed since."""
        known = self._found.get(asked.wish)
        if known is None or known.settings is not self._live.now:
            return None
        tables = self._tables
        same = (
            tables.topics.get(asked.topic) is known.topic
            and tables.subscriptions.get(asked.group) is known.group
            and 0 <= asked.queue_id < known.topic.read_queue_nums
        )
        if not same or known.subscription is None:
            return known if same and asked.sys_flag & SUBSCRIPTION else None
        group = tables.groups.get(asked.group)
        if group is None or group.subscriptions.get(asked.topic) is not known.subscription:
            return None
        forbidden = tables.subscriptions.is_forbidden(asked.group, asked.topic)
        return None if group.is_broadcasting or forbidden else known

    def _allowed(self, asked: PullRequest) -> Permit:
        """Check a pull, in RocketMQ's order."""
        settings, tables = self._live.now, self._tables
        if not settings.permission & PERM_READ:
            raise Forbidden(f"the broker[{settings.ip1}] pulling message is forbidden", 1)
        if asked.code == RequestCode.LITE_PULL_MESSAGE and not settings.lite_pull:
            raise Forbidden(f"the broker[{settings.ip1}] for lite pull consumer is forbidden", 1)
        group = tables.subscriptions.get(asked.group)
        if group is None:
            raise GroupNotFound(f"subscription group [{asked.group}] does not exist: create it first")
        if not group.consume_enable:
            raise Forbidden(f"subscription group no permission, {asked.group}", 2)
        topic = tables.topics.get(asked.topic)
        if topic is None:
            raise TopicNotFound(
                f"topic[{asked.topic}] not exist, apply first please: create it, or send to it"
            )
        if not topic.readable:
            raise Forbidden(f"the topic[{asked.topic}] pulling message is forbidden", 3)
        if not 0 <= asked.queue_id < topic.read_queue_nums:
            raise InvalidParameter(
                f"queueId[{asked.queue_id}] is illegal, topic:[{asked.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}]"
            )
        subscription = None
        if asked.has_subscription:
            selector: Selector | None = tables.filters.of_request(
                asked.expression_type, asked.subscription, asked.topic
            )
        else:
            subscription = self._of_heartbeat(asked, group)
            selector = tables.filters.of_subscription(asked.group, asked.topic, subscription)
        self._check_pull_consumer(asked)
        is_slow = selector is not None and selector.codes is None
        allowed = Permit(settings, topic, group, subscription, selector, is_slow)
        # Expressions and retries may change their meaning without any of these changing.
        if not is_slow and not settings.reject_pull_consumers:
            if len(self._found) >= _KEPT_MAX:
                self._found.clear()
            self._found[asked.wish] = allowed
        return allowed

    def _of_heartbeat(self, asked: PullRequest, config: GroupConfig) -> SubscriptionData:
        tables = self._tables
        group = tables.groups.get(asked.group)
        if group is None:
            raise SubscriptionMissing(
                f"the consumer's group info not exist: nobody of {asked.group} has sent a heartbeat yet"
            )
        if group.message_model is MessageModel.BROADCASTING and not config.consume_broadcast_enable:
            raise Forbidden(f"the consumer group[{asked.group}] can not consume by broadcast way", 4)
        if tables.subscriptions.is_forbidden(asked.group, asked.topic):
            raise Forbidden(f"the consumer group[{asked.group}] is forbidden for topic[{asked.topic}]", 5)
        subscription = group.subscriptions.get(asked.topic)
        if subscription is None:
            raise SubscriptionMissing(
                f"the consumer's subscription not exist: {asked.group} has not subscribed to {asked.topic}"
            )
        if subscription.sub_version < asked.sub_version:
            raise SubscriptionOld(
                f"the consumer's subscription not latest: known is {subscription.sub_version}, "
                f"asked for is {asked.sub_version}"
            )
        return subscription

    def _check_pull_consumer(self, asked: PullRequest) -> None:
        if not self._live.now.reject_pull_consumers or asked.group.startswith("CID_RMQ_SYS_"):
            return
        group = self._tables.groups.get(asked.group)
        if group is None or group.consume_type is ConsumeType.CONSUME_ACTIVELY:
            raise SubscriptionMissing(
                "the consumer's group info not exist, or the pull consumer is rejected by server: "
                "rejectPullConsumerEnable is on"
            )
