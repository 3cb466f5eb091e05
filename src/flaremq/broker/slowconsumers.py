"""Disables groups that are too far behind, so that they do not slow down the broker.

Reading far back evicts new messages from the page cache, and then every consumer reads from the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Protocol

from flaremq.base.live import Live
from flaremq.base.logs import fields, logger
from flaremq.broker.features import Feature
from flaremq.broker.offload import Offload
from flaremq.broker.settings import BrokerSettings
from flaremq.broker.tasks import MINUTE_S, Task
from flaremq.model.topic import GroupConfig
from flaremq.store import status
from flaremq.store.store import MessageStore

log = logger("broker.guard")


class Positions(Protocol):
    """The offsets of groups."""

    def topics_by_group(self) -> Mapping[str, list[str]]: ...
    def queues(self, group: str, topic: str) -> Mapping[int, int]: ...


class GroupSettings(Protocol):
    """The settings of groups."""

    def all(self) -> Mapping[str, GroupConfig]: ...
    def disable(self, group: str) -> None: ...


class SlowConsumers(Feature):
    """Checks all groups every three minutes."""

    def __init__(
        self,
        settings: Live[BrokerSettings],
        store: MessageStore,
        positions: Positions,
        groups: GroupSettings,
        offload: Offload,
        *,
        is_online: Callable[[str], bool] = lambda _group: True,
    ) -> None:
        """`is_online` says whether a group has consumers; a group without any is left alone."""
        self._live = settings
        self._store = store
        self._positions = positions
        self._groups = groups
        self._offload = offload
        self._is_online = is_online

    def tasks(self) -> Iterable[Task]:
        yield Task("disable-slow-consumers", 3 * MINUTE_S, 3 * MINUTE_S, self.run)

    async def run(self) -> None:
        """Disable every group that is too many bytes behind in one of its queues. An operator may enable it
        again; if it is still too far behind, it is disabled again."""
        if not self._live.now.disable_slow_consumers:
            return
        limit = self._live.now.fall_behind_max
        for group, topics in self._positions.topics_by_group().items():
            config = self._groups.all().get(group)
            if config is None or not config.consume_enable or not self._is_online(group):
                continue
            queues = [
                (topic, *place) for topic in topics for place in self._positions.queues(group, topic).items()
            ]
            behind = await self._offload.run(partial(self._behind, queues))
            if behind > limit:
                log.warning(
                    "a group is too far behind and is disabled: consumerFallbehindThreshold",
                    extra=fields(group=group, behind=behind, limit=limit),
                )
                self._groups.disable(group)

    def _behind(self, queues: list[tuple[str, int, int]]) -> int:
        """How many bytes a group is behind in the queue where it is farthest behind."""
        return max(
            (
                status.bytes_behind(self._store, topic.encode("utf-8", "replace"), queue_id, offset)
                for topic, queue_id, offset in queues
            ),
            default=0,
        )
