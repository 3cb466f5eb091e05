"""Settings of consumer groups, and topics that a group may not read, kept in subscriptionGroup.json."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from flaremq.base.clock import Clock
from flaremq.base.errors import InvalidName, InvalidParameter
from flaremq.base.live import Live
from flaremq.base.logs import fields, logger
from flaremq.broker.offload import Offload
from flaremq.broker.settings import BrokerSettings
from flaremq.broker.tables.configfile import ConfigFile, Saving, lines
from flaremq.broker.tables.topics import QUEUES_MAX
from flaremq.model.topic import DataVersion, GroupConfig, check_group, is_system_group
from flaremq.protocol import beans
from flaremq.protocol.bodies.group import SubscriptionGroupWrapper

log = logger("broker.subscriptions")

_NO_READ: Final = 1 << 2
"""The bit in the forbidden table that forbids reading."""
_PRESETS: Final = (
    *("TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY"),
    *("CID_ONSAPI_PULL", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_RMQ_SYS_TRANS"),
)


def check_config(config: GroupConfig) -> None:
    """Raises InvalidName or InvalidParameter if a group cannot have this config."""
    check_group(config.group_name)
    for name, value, least, most in (
        ("retryQueueNums", config.retry_queue_nums, 0, QUEUES_MAX),
        ("retryMaxTimes", config.retry_max_times, -1, (1 << 31) - 1),
        ("consumeTimeoutMinute", config.consume_timeout_minute, 0, (1 << 31) - 1),
    ):
        if not least <= value <= most:
            raise InvalidParameter(
                f"group {config.group_name}: {name} is {value}, expected {least} to {most}"
            )
    config.group_retry_policy.check()


class SubscriptionGroups:
    """All groups by name, connected or not."""

    def __init__(
        self, settings: Live[BrokerSettings], file: ConfigFile, offload: Offload, clock: Clock
    ) -> None:
        self._live = settings
        self._clock = clock
        self._saving = Saving(file, offload, self._take)
        self._groups: dict[str, GroupConfig] = {}
        self._view = MappingProxyType(self._groups)
        self._forbidden: dict[str, dict[str, int]] = {}
        self.version = DataVersion()
        self.listeners: list[Callable[[], None]] = []
        """Called in the loop after every change."""

    def load(self) -> None:
        """Load the file, and add the groups that a broker always has. Blocks."""
        kept = self._saving.file.load_as(lambda text: beans.decode(SubscriptionGroupWrapper, text))
        if kept is not None:
            self._groups.update(kept.subscription_group_table)
            self._forbidden = {group: dict(topics) for group, topics in kept.forbidden_table.items()}
            self.version = kept.data_version
        for name in _PRESETS:
            if name not in self._groups:
                self._groups[name] = GroupConfig(name)
                self._saving.changes += 1
        log.info("groups are loaded", extra=fields(count=len(self._groups), file=self._saving.file.path))

    @property
    def dirty(self) -> bool:
        return self._saving.dirty

    @property
    def changes(self) -> int:
        """How many there were. Who waits for something can tell by it whether the table is still the same."""
        return self._saving.changes

    async def save(self) -> None:
        await self._saving.save()

    async def settle(self) -> None:
        """See Saving.settle."""
        await self._saving.settle()

    def share(self, shared: Callable[[], Awaitable[None]], term: int) -> None:
        """This table is a leader's from now on: see Saving.shared. Its version differs from all of others."""
        self._saving.shared = shared
        self.version = DataVersion(term, self.version.counter + 1, self._clock.now_ms())
        self._saving.changes += 1

    def get(self, group: str) -> GroupConfig | None:
        """The settings of a group, created if it is new; None if it may not be created."""
        found = self._groups.get(group)
        return found if found is not None else self._made(group)

    def _made(self, group: str) -> GroupConfig | None:
        system = self._live.now.create_system_groups and is_system_group(group)
        if not (self._live.now.auto_create_groups or system):
            return None
        try:
            check_group(group)
        except InvalidName as error:
            log.warning("a group is not created", extra=fields(why=error))
            return None
        made = GroupConfig(group)
        self.put(made)
        return made

    def contains(self, group: str) -> bool:
        """Whether it exists; does not create it."""
        return group in self._groups

    def all(self) -> Mapping[str, GroupConfig]:
        """A read-only view of the current state."""
        return self._view

    def forbidden(self) -> Mapping[str, Mapping[str, int]]:
        """By group and topic, the bits of what is forbidden."""
        return self._forbidden

    def put(self, config: GroupConfig) -> None:
        self.put_many([config])

    def put_many(self, configs: Sequence[GroupConfig]) -> None:
        changed = [config for config in configs if self._groups.get(config.group_name) != config]
        for config in changed:
            self._groups[config.group_name] = config
            log.info("a group was created or changed", extra=fields(group=config.group_name))
        if changed:
            self._changed()

    def remove(self, group: str) -> GroupConfig | None:
        found, forbidden = self._groups.pop(group, None), self._forbidden.pop(group, None)
        if found is not None or forbidden is not None:
            log.info("a group was removed", extra=fields(group=group))
            self._changed()
        return found

    def replace_all(self, told: SubscriptionGroupWrapper) -> None:
        """Take over the table of a slave's master, and its version."""
        self.adopt(told, [name for name in self._groups if name not in told.subscription_group_table])

    def adopt(self, told: SubscriptionGroupWrapper, gone: Collection[str]) -> None:
        """Take over what is new and what is gone in the table of a slave's master, all that is forbidden,
        and its version."""
        table = told.subscription_group_table
        for name in gone:
            self._groups.pop(name, None)
        # Equal ones stay the same objects: pulls look whether their group has changed.
        self._groups.update(
            {name: config for name, config in table.items() if self._groups.get(name) != config}
        )
        self._forbidden = {group: dict(topics) for group, topics in told.forbidden_table.items()}
        log.info("groups are taken over from the master", extra=fields(count=len(table), gone=list(gone)))
        self._saving.changes += 1
        self.version = told.data_version
        for listener in self.listeners:
            listener()

    def disable(self, group: str) -> None:
        """Stop delivery to its consumers until an operator enables it again."""
        found = self._groups.get(group)
        if found is not None:
            self.put(replace(found, consume_enable=False))

    def is_forbidden(self, group: str, topic: str) -> bool:
        """Whether this group may not read this topic."""
        if not self._forbidden:
            return False
        return bool(self._forbidden.get(group, {}).get(topic, 0) & _NO_READ)

    def set_forbidden(self, group: str, topic: str, forbidden: bool) -> None:
        topics = self._forbidden.setdefault(group, {})
        before = topics.get(topic, 0)
        after = before | _NO_READ if forbidden else before & ~_NO_READ
        if after:
            topics[topic] = after
        else:
            topics.pop(topic, None)
        if not topics:
            del self._forbidden[group]
        if after != before:
            self._changed()

    def _changed(self) -> None:
        self.version = self.version.next(self._clock.now_ms())
        self._saving.changes += 1
        for listener in self.listeners:
            listener()

    def _take(self) -> Callable[[], bytes]:
        version, groups = self.version, dict(self._groups)
        forbidden = {group: dict(topics) for group, topics in self._forbidden.items()}

        def text() -> bytes:
            table = {name: config.to_dict() for name, config in groups.items()}
            return lines(
                [
                    ("dataVersion", version.to_dict()),
                    ("forbiddenTable", forbidden),
                    ("subscriptionGroupTable", table),
                ]
            )

        return text
