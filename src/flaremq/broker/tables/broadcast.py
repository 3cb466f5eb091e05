"""Offsets of broadcasting consumers, kept while they are connected.

Each of them consumes everything and keeps its offsets itself. A consumer behind a proxy cannot, and one that
moves between proxy and broker must go on where it was, so pulls are recorded here. What all members have
consumed is committed for the group, under a separate name.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from flaremq.base.clock import Clock
from flaremq.base.live import Live
from flaremq.broker.settings import BrokerSettings
from flaremq.broker.tables.consumers import Consumers
from flaremq.broker.tables.offsets import Offsets
from flaremq.store.store import MessageStore


def group_of_all(group: str) -> str:
    """The name under which the offsets of a broadcasting group as a whole are kept."""
    return f"{group}@broadcast"


@dataclass(frozen=True, slots=True, kw_only=True)
class BroadcastPull:
    """One pull of one broadcasting consumer."""

    topic: str
    group: str
    client_id: str
    queue_id: int
    offset: int
    """Negative: a proxy asks where to begin."""
    from_proxy: bool = False


@dataclass(slots=True)
class _Client:
    from_proxy: bool
    seen_ms: int
    offsets: dict[int, int] = field(default_factory=dict)


class BroadcastOffsets:
    """Offsets by topic and group, client, and queue. In memory only."""

    def __init__(
        self,
        settings: Live[BrokerSettings],
        offsets: Offsets,
        groups: Consumers,
        store: MessageStore,
        clock: Clock,
    ) -> None:
        self._live = settings
        self._offsets = offsets
        self._groups = groups
        self._store = store
        self._clock = clock
        self._clients: dict[tuple[str, str], dict[str, _Client]] = {}

    def update(self, pull: BroadcastPull) -> None:
        """Record that a client has pulled everything before this offset. Offsets only grow."""
        clients = self._clients.setdefault((pull.topic, pull.group), {})
        now_ms = self._clock.now_ms()
        client = clients.get(pull.client_id)
        if client is None:
            client = clients[pull.client_id] = _Client(pull.from_proxy, now_ms)
        client.seen_ms, client.from_proxy = now_ms, pull.from_proxy
        client.offsets[pull.queue_id] = max(pull.offset, client.offsets.get(pull.queue_id, 0))

    def first(self, pull: BroadcastPull) -> int | None:
        """The offset to begin at instead of the one that the pull names; None if that is right.

        There is one for a proxy that asks, and for a client that switched between proxy and broker.
        """
        client = self._clients.get((pull.topic, pull.group), {}).get(pull.client_id)
        came_from_proxy = pull.from_proxy if client is None else client.from_proxy
        if came_from_proxy == pull.from_proxy and not (came_from_proxy and pull.offset < 0):
            return None
        known = None if client is None else client.offsets.get(pull.queue_id)
        if known is not None:
            return known
        committed = self._offsets.get(group_of_all(pull.group), pull.topic, pull.queue_id)
        return (
            committed if committed >= 0 else self._begin(pull.topic.encode("utf-8", "replace"), pull.queue_id)
        )

    def _begin(self, topic: bytes, queue_id: int) -> int:
        """Where an unknown group begins: at the first message of a young queue, else at the end."""
        if self._store.reader.is_near(topic, queue_id, 0):
            return 0
        return self._store.max_offset(topic, queue_id)

    def expire(self) -> None:
        """Forget clients that are gone, and commit what all others have consumed. Called periodically."""
        now_ms = self._clock.now_ms()
        for (topic, group), clients in list(self._clients.items()):
            least: dict[int, int] = {}
            online = self._groups.get(group)
            ids = {member.client_id for member in online.members.values()} if online is not None else set()
            for client_id, client in list(clients.items()):
                here, silent_ms = client_id in ids, now_ms - client.seen_ms
                if here or silent_ms < self._live.now.broadcast_offset_expire_s * 1000:
                    for queue_id, offset in client.offsets.items():
                        least[queue_id] = min(least.get(queue_id, offset), offset)
                if silent_ms >= self._kept_ms(here):
                    del clients[client_id]
            if not clients:
                del self._clients[topic, group]
            for queue_id, offset in least.items():
                self._offsets.commit(group_of_all(group), topic, queue_id, offset)

    def _kept_ms(self, is_online: bool) -> int:
        settings = self._live.now
        kept_s = settings.broadcast_offset_expire_max_s if is_online else settings.broadcast_offset_expire_s
        return kept_s * 1000
