"""The committed offsets of groups, kept in consumerOffset.json.

Commits are the most frequent request after sends and pulls: one for every queue of every consumer, every few
seconds. So a commit is a few dictionary operations, and the file is written later.

The file is never ahead of the log on the disk. If it were, a group would skip messages after a power failure:
those that come to the offsets of the messages that were lost.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeAlias

from flaremq.base.clock import Clock
from flaremq.base.live import Live
from flaremq.base.logs import fields, logger
from flaremq.broker.offload import Offload
from flaremq.broker.settings import BrokerSettings
from flaremq.broker.tables.configfile import ConfigFile, Saving
from flaremq.model.topic import DataVersion
from flaremq.protocol import beans, fastjson
from flaremq.protocol.bodies.group import ConsumerOffsetSerializeWrapper
from flaremq.store.store import MessageStore

log = logger("broker.offsets")

_Key: TypeAlias = tuple[str, str]
"""Topic and group."""
_Table: TypeAlias = dict[_Key, dict[int, int]]
_NONE: Final = -1
_SEPARATOR: Final = "@"


class Offsets:
    """The next offset to consume, by topic, group and queue.

    A reset is an offset that the consumers do not know yet: until the next pull of that queue is answered
    with it, it is what queries return, and commits are dropped.
    """

    def __init__(
        self, settings: Live[BrokerSettings], file: ConfigFile, offload: Offload, clock: Clock
    ) -> None:
        self._clock = clock
        self._offload = offload
        self._step = settings.now.offset_version_step
        self.may_go_back = True
        """Whether a commit may take a group back. Not at a follower of a Raft group: an old one that comes
        there late would hold when it leads."""
        self._saving = Saving(file, offload, self._take)
        self._table: _Table = {}
        self._resets: _Table = {}
        self._pulled: _Table = {}
        self._store: MessageStore | None = None
        self.version = DataVersion()

    def attach(self, store: MessageStore) -> None:
        """The offsets are those of messages of this store."""
        self._store = store

    def load(self) -> None:
        """Load the file. Blocks."""
        kept = self._saving.file.load_as(lambda text: beans.decode(ConsumerOffsetSerializeWrapper, text))
        if kept is None:
            return
        self._table = {key_of(name): dict(queues) for name, queues in kept.offset_table.items()}
        self.version = kept.data_version or DataVersion()
        log.info("offsets are loaded", extra=fields(count=len(self._table), file=self._saving.file.path))

    @property
    def dirty(self) -> bool:
        return self._saving.dirty

    async def save(self) -> None:
        """Once a sync of the log has failed, what was saved before is the newest that can be vouched for."""
        if self._store is None or self._store.flags.failure is None:
            await self._saving.save()

    async def settle(self) -> None:
        """See Saving.settle."""
        await self._saving.settle()

    def share(self, shared: Callable[[], Awaitable[None]], term: int) -> None:
        """This table is a leader's from now on: see Saving.shared. Its version differs from all of others."""
        self._saving.shared = shared
        self.version = DataVersion(term, self.version.counter + 1, self._clock.now_ms())
        self._saving.changes += 1

    def get(self, group: str, topic: str, queue_id: int) -> int:
        """The next offset of this group; -1 if none was ever committed."""
        key = (topic, group)
        if self._resets:
            reset = self._resets.get(key, {}).get(queue_id)
            if reset is not None:
                return reset
        queues = self._table.get(key)
        return _NONE if queues is None else queues.get(queue_id, _NONE)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Commit an offset, even one that is less than before: consumers may go back."""
        key = (topic, group)
        if offset < 0 or (self._resets and queue_id in self._resets.get(key, ())):
            return
        queues = self._table.get(key)
        if queues is None:
            queues = self._table[key] = {}
        if not self.may_go_back and offset < queues.get(queue_id, _NONE):
            return
        queues[queue_id] = offset
        saving = self._saving
        saving.changes += 1
        if not saving.changes % self._step:
            self.version = self.version.next(self._clock.now_ms())

    def pulled(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Record how far a group has pulled, which may be farther than it has consumed. Not kept on disk."""
        key = (topic, group)
        queues = self._pulled.get(key)
        if queues is None:
            queues = self._pulled[key] = {}
        queues[queue_id] = offset

    def pulled_to(self, group: str, topic: str) -> Mapping[int, int]:
        """By queue, as far as known."""
        return dict(self._pulled.get((topic, group), {}))

    # Resets by an administrator.

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set an offset that the next pull of this queue is answered with."""
        key = (topic, group)
        self._resets.setdefault(key, {})[queue_id] = offset
        self._table.setdefault(key, {})[queue_id] = offset
        self._pulled.pop(key, None)
        self._changed()

    @property
    def any_resets(self) -> bool:
        return bool(self._resets)

    def has_reset(self, group: str, topic: str, queue_id: int) -> bool:
        return bool(self._resets) and queue_id in self._resets.get((topic, group), ())

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The reset to answer the current pull with; once taken, commits count again."""
        if not self._resets:
            return None
        key = (topic, group)
        queues = self._resets.get(key)
        found = None if queues is None else queues.pop(queue_id, None)
        if queues is not None and not queues:
            del self._resets[key]
        return found

    # Whole topics and groups.

    def groups_of_topic(self, topic: str) -> set[str]:
        return {group for each, group in self._table if each == topic}

    def topics_of_group(self, group: str) -> set[str]:
        return {topic for topic, each in self._table if each == group}

    def topics_by_group(self) -> dict[str, list[str]]:
        """All groups at once: asking group by group would take quadratic time."""
        found: dict[str, list[str]] = {}
        for topic, group in self._table:
            found.setdefault(group, []).append(topic)
        return found

    def queues(self, group: str, topic: str) -> Mapping[int, int]:
        return dict(self._table.get((topic, group), {}))

    def remove_topic(self, topic: str) -> None:
        self._remove(lambda key: key[0] == topic)

    def remove_group(self, group: str) -> None:
        self._remove(lambda key: key[1] == group)

    def _remove(self, unwanted: Callable[[_Key], bool]) -> None:
        for table in (self._table, self._resets, self._pulled):
            for key in [key for key in table if unwanted(key)]:
                del table[key]
                self._saving.changes += 1
        self._changed()

    def clone(self, src: str, dest: str, topic: str) -> None:
        """Copy the offsets of one group to another; does nothing if there are none."""
        found = self._table.get((topic, src))
        if found is not None:
            self._table[topic, dest] = dict(found)
            self._changed()

    def all(self) -> Mapping[tuple[str, str], Mapping[int, int]]:
        """The table as it is now, by topic and group."""
        return self._table

    def adopt(self, offsets: Mapping[tuple[str, str], Mapping[int, int]], version: DataVersion) -> None:
        """Take over these offsets, by topic and group, from a slave's master, and its version."""
        if not offsets and version == self.version:
            return
        for key, queues in offsets.items():
            self._table.setdefault(key, {}).update(queues)
        self.version = version
        self._saving.changes += 1

    def forget(self, keys: Iterable[tuple[str, str]]) -> None:
        """The master of this slave has no offsets of these topics and groups any more."""
        for key in keys:
            if self._table.pop(key, None) is not None:
                self._saving.changes += 1

    async def body(self) -> bytes:
        """The whole table, encoded for slaves. It may be large, so it is encoded in a thread."""
        wrapper = self.wrapper()
        return await self._offload.run(lambda: beans.encode(wrapper))

    def wrapper(self) -> ConsumerOffsetSerializeWrapper:
        """A copy of the whole table."""
        table = {_name_of(key): dict(queues) for key, queues in self._table.items()}
        return ConsumerOffsetSerializeWrapper(offset_table=table, data_version=self.version)

    def _changed(self) -> None:
        self.version = self.version.next(self._clock.now_ms())
        self._saving.changes += 1

    def _take(self) -> Callable[[], bytes]:
        version, store = self.version, self._store
        copied = [(key, dict(queues)) for key, queues in self._table.items()]
        end = 0 if store is None else store.log.confirmed  # No consumer has seen more.

        def text() -> bytes:
            if store is not None:
                store.sync(end)
            head = fastjson.dumps({"dataVersion": version.to_dict()})[1:-1].decode()
            entries = ",\n".join(_entry(key, queues) for key, queues in copied)
            return f'{{\n{head},\n"offsetTable":{{\n{entries}\n}}\n}}\n'.encode("utf-8", "replace")

        return text


def _entry(key: _Key, queues: Mapping[int, int]) -> str:
    numbers = ",".join(f"{queue}:{offset}" for queue, offset in queues.items())
    return f"\t{fastjson.quote(_name_of(key))}:{{{numbers}}}"


def _name_of(key: _Key) -> str:
    return f"{key[0]}{_SEPARATOR}{key[1]}"


def key_of(name: str) -> _Key:
    """Topic and group. A topic has no @ in its name; the name kept for a broadcasting group has one."""
    topic, _, group = name.partition(_SEPARATOR)
    return topic, group
