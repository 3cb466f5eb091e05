"""Compiled subscriptions: from the text of a pull, or from the heartbeats of its group.

Groups that filter by expression are kept in consumerFilter.json until a day after their last consumer has
left, with the time from which the bit maps of queue entries are valid for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from flaremq.base.clock import Clock
from flaremq.base.errors import FilterDataMissing, FilterDataOld, FlareError, InvalidExpression, UsageError
from flaremq.base.live import Live
from flaremq.base.logs import fields, logger
from flaremq.broker.offload import Offload
from flaremq.broker.settings import BrokerSettings
from flaremq.broker.tables.configfile import ConfigFile, Saving, lines
from flaremq.filter.bloom import BloomFilter
from flaremq.filter.groupfilter import BitMapCalculator, GroupFilter
from flaremq.filter.predicate import compile_predicate
from flaremq.filter.selector import AnySelector, compile_selector, group_selector, retry_selector
from flaremq.model.jsonfields import Fields
from flaremq.protocol import fastjson
from flaremq.protocol.bodies.group import ALL as TAG_ALL
from flaremq.protocol.bodies.group import TAG, SubscriptionData
from flaremq.store.api import BitMapper

log = logger("broker.filters")

_CACHED_MAX: Final = 4096
_TEXT_MAX: Final = 64 * 1024
_AWAY_MS: Final = 30_000  # A group that was alive when the broker stopped counts as gone for this long.


class Filters:
    """Selectors, each compiled once and kept while its source stays the same."""

    def __init__(
        self, settings: Live[BrokerSettings], file: ConfigFile, offload: Offload, clock: Clock
    ) -> None:
        self._live = settings
        self._clock = clock
        self._saving = Saving(file, offload, self._take)
        self._bloom = BloomFilter(settings.now.bloom_error_rate, settings.now.bloom_consumers)
        self._kept: dict[str, dict[str, GroupFilter]] = {}  # By topic and group.
        self._topics_of: dict[str, set[str]] = {}  # By group.
        self._to_map: dict[bytes, tuple[GroupFilter, ...]] = {}  # By topic; read by the dispatching thread.
        self._requests: dict[tuple[str | None, str | None], AnySelector | None] = {}
        self._tags: dict[
            str, dict[str, tuple[SubscriptionData, AnySelector | None]]
        ] = {}  # By group and topic.
        self._sql: dict[tuple[str, str], tuple[GroupFilter, AnySelector | None]] = {}

    # For pulls.

    def of_request(
        self, expression_type: str | None, text: str | None, topic: str | None = None
    ) -> AnySelector | None:
        """The selector of a subscription that is part of the request; None if it selects everything.

        `topic` matters for retry topics alone, and only with filterSupportRetry.
        """
        key = expression_type or TAG, text
        if key in self._requests:
            return self._retrying(self._requests[key], topic)
        self._check_type(expression_type)
        if text is not None and len(text) > _TEXT_MAX:
            raise InvalidExpression(
                f"the expression has {len(text)} characters: expected {_TEXT_MAX} or fewer"
            )
        if len(self._requests) >= _CACHED_MAX:
            del self._requests[next(iter(self._requests))]
        found = self._requests[key] = compile_selector(expression_type, text)
        return self._retrying(found, topic)

    def of_subscription(self, group: str, topic: str, subscription: SubscriptionData) -> AnySelector | None:
        """The selector of a subscription from the group's heartbeats; None if it selects everything."""
        if subscription.expression_type != TAG and subscription.expression_type:
            return self._of_group((group, topic), subscription)
        topics = self._tags.get(group)
        known = None if topics is None else topics.get(topic)
        if known is not None and known[0] is subscription:
            return known[1]
        text = subscription.sub_string or (TAG_ALL if not subscription.code_set else "")
        found = compile_selector(TAG, text, subscription.code_set)
        self._tags.setdefault(group, {})[topic] = subscription, found
        return found

    def _of_group(self, key: tuple[str, str], subscription: SubscriptionData) -> AnySelector | None:
        self._check_type(subscription.expression_type)
        group, topic = key
        kept = self.get(topic, group)
        if kept is None:
            raise FilterDataMissing(
                f"the expression of group {group} for topic {topic} is not known; its next heartbeat has it"
            )
        if kept.client_version < subscription.sub_version:
            raise FilterDataOld(
                f"the expression of group {group} for topic {topic} is of version {kept.client_version}, "
                f"expected {subscription.sub_version}: its next heartbeat brings it"
            )
        known = self._sql.get(key)
        if known is None or known[0] is not kept:
            known = self._sql[key] = kept, self._retrying(group_selector(kept, self._bloom), topic)
        return known[1]

    def _retrying(self, own: AnySelector | None, topic: str | None) -> AnySelector | None:
        if topic is None or not self._live.now.filter_retries:
            return own
        return retry_selector(own, topic, self.get)

    def _check_type(self, expression_type: str | None) -> None:
        if expression_type and expression_type != TAG and not self._live.now.property_filter:
            raise UsageError(
                f"this broker does not support filtering by {expression_type[:60]}: "
                "set enablePropertyFilter=true, or subscribe by tags"
            )

    def check(self, subscription: SubscriptionData) -> None:
        """Raises if a subscription cannot be used."""
        self.of_request(subscription.expression_type, subscription.sub_string)

    # For heartbeats.

    def get(self, topic: str, group: str) -> GroupFilter | None:
        return self._kept.get(topic, {}).get(group)

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """Keep the expressions of a group; those that it no longer has are dead from now on."""
        wanted = {each.topic: each for each in subscriptions if each.is_sql and each.sub_string}
        if not wanted and group not in self._topics_of:
            return
        for subscription in wanted.values():
            self._register(group, subscription)
        for topic in self._topics_of.get(group, set()) - wanted.keys():
            self._kill(topic, group)

    def _register(self, group: str, said: SubscriptionData) -> None:
        old = self.get(said.topic, group)
        bits = self._bloom.bits_of(group, said.topic)
        if old is not None and old.predicate.text == said.sub_string and old.bits == bits:
            newest = max(old.client_version, said.sub_version)
            if old.is_dead or newest != old.client_version:
                self._put(replace(old, dead_ms=0, client_version=newest))
            return
        if old is not None and said.sub_version <= old.client_version:
            return  # An older member still sends what the group had before.
        try:
            predicate = compile_predicate(said.sub_string)
        except InvalidExpression as error:
            log.warning(
                "an expression cannot be compiled: its group gets no messages of the topic",
                extra=fields(group=group, topic=said.topic, why=error),
            )
            self._drop(said.topic, group)
            return
        made = GroupFilter(
            topic=said.topic,
            group=group,
            predicate=predicate,
            bits=bits,
            born_ms=self._clock.now_ms(),
            client_version=said.sub_version,
        )
        self._put(made)
        log.info("a group's expression has changed", extra=fields(group=group, topic=said.topic))

    def unregister(self, group: str) -> None:
        """The last consumer of a group has left. Bit maps are calculated for it for some more time."""
        for topic in self._topics_of.get(group, ()):
            self._kill(topic, group)
        self._tags.pop(group, None)

    def expire(self, now_ms: int) -> None:
        """Forget groups that have been gone for filterDataCleanTimeSpan."""
        long_ago_ms = now_ms - self._live.now.filter_data_kept_ms
        gone = [
            kept
            for groups in self._kept.values()
            for kept in groups.values()
            if kept.is_dead and kept.dead_ms <= long_ago_ms
        ]
        for kept in gone:
            self._drop(kept.topic, kept.group)

    # Bit maps.

    @property
    def bit_map_length(self) -> int:
        """In bits: the room that a queue extension needs for a bit map."""
        return self._bloom.bit_count

    def bit_mapper(self, filters: Callable[[], Filters]) -> BitMapper | None:
        """`filters` gives those of the moment: a store may outlive its tables."""
        if not self._live.now.calculate_bit_maps:
            return None
        return BitMapCalculator(self._bloom, lambda topic: filters()._to_map.get(topic, ()))

    # The table.

    def _put(self, made: GroupFilter) -> None:
        self._kept.setdefault(made.topic, {})[made.group] = made
        self._topics_of.setdefault(made.group, set()).add(made.topic)
        self._changed(made.topic)

    def _kill(self, topic: str, group: str) -> None:
        kept = self.get(topic, group)
        if kept is not None and not kept.is_dead:
            self._put(replace(kept, dead_ms=max(self._clock.now_ms(), kept.born_ms)))

    def _drop(self, topic: str, group: str) -> None:
        groups, topics = self._kept.get(topic, {}), self._topics_of.get(group, set())
        if groups.pop(group, None) is None:
            return
        topics.discard(topic)
        if not groups:
            del self._kept[topic]
        if not topics:
            del self._topics_of[group]
        self._sql.pop((group, topic), None)
        self._changed(topic)

    def _changed(self, topic: str) -> None:
        self._to_map[topic.encode("utf-8", "replace")] = tuple(self._kept.get(topic, {}).values())
        self._saving.changes += 1

    # The file.

    def load(self) -> None:
        """Load the file. Blocks."""
        kept = self._saving.file.load_as(_parse) or []
        now_ms = self._clock.now_ms()
        for each in kept:
            if self._bloom.owns(each.bits):  # Else its maps are of another shape, and useless.
                dead_ms = each.dead_ms or max(now_ms - _AWAY_MS, each.born_ms)
                self._put(replace(each, dead_ms=dead_ms))

    @property
    def dirty(self) -> bool:
        return self._saving.dirty

    async def save(self) -> None:
        await self._saving.save()

    def _take(self) -> Callable[[], bytes]:
        kept = {topic: dict(groups) for topic, groups in self._kept.items()}

        def text() -> bytes:
            table = {
                topic: {
                    "groupFilterData": {group: one.to_dict() for group, one in groups.items()},
                    "topic": topic,
                }
                for topic, groups in kept.items()
            }
            return lines([("filterDataByTopic", table)])

        return text


def _parse(text: bytes) -> list[GroupFilter]:
    """A filter that cannot be read is skipped: its group's next heartbeat brings it again."""
    found: list[GroupFilter] = []
    table = fastjson.load_object(text).get("filterDataByTopic")
    for topic in table.values() if isinstance(table, Mapping) else ():
        groups = topic.get("groupFilterData") if isinstance(topic, Mapping) else None
        for data in groups.values() if isinstance(groups, Mapping) else ():
            try:
                found.append(GroupFilter.of(Fields("a filter", data if isinstance(data, Mapping) else {})))
            except FlareError as error:
                log.warning("a filter cannot be read and is skipped", extra=fields(why=error))
    return found
