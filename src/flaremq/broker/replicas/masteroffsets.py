"""Which of the master's consumer offsets replace ours.

A slave takes over what its master tells, and takes commits itself while the master is away. When that is
back, its table may be older than ours: consumers have gone on here, and a crash has lost the commits of its
last seconds. RocketMQ's slaves take all of it, and messages of that time are consumed again. Here, an offset
of the master replaces ours only if the master itself has changed it since it told us last:

    the master did not change it            ours stays
    it did, and is not behind ours          the master's is taken
    it did, and is behind ours              the master's is taken, for someone has moved the group back there;
                                            but not from the first table after the master was away, if
                                            consumers have committed here meanwhile and the version of the
                                            table is no newer: that is a master that has forgotten, not one
                                            that has moved on

Example, one queue of a group:

    the master told  consumers here  the master tells   ours
    100              -               120                120      it goes on
    120              -               50 (a reset)       50       a reset is followed
    50               80              (it is away)       80       committed here
    50               80              48 (crashed)       80       its commits of the last seconds are lost
    48               80              60                 60       consumers are back there, and it moves again
    60               -               60                 60

What a master told is kept in memory only. After a start of the slave, each offset that is behind ours counts
as one of the first table after the master was away.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from flaremq.broker.tables.offsets import key_of
from flaremq.model.topic import DataVersion
from flaremq.protocol.bodies.group import ConsumerOffsetSerializeWrapper

_Key: TypeAlias = tuple[str, str]
"""Topic and group."""
_NO_QUEUES: Mapping[int, int] = {}


class MasterOffsets:
    """What the master told last."""

    def __init__(self) -> None:
        self._told: Mapping[str, Mapping[int, int]] = {}
        self._version: DataVersion | None = None
        self._was_away = True

    def away(self) -> None:
        """The master cannot be reached, or has begun anew: the next table is the first one after that."""
        self._was_away = True

    def forget(self) -> None:
        """Another broker is the master."""
        self._told, self._version, self._was_away = {}, None, True

    def news(
        self,
        told: ConsumerOffsetSerializeWrapper,
        ours: Mapping[_Key, Mapping[int, int]],
        our_version: DataVersion,
    ) -> dict[_Key, dict[int, int]]:
        """The offsets of a new table that replace ours."""
        known_version = self._version or our_version
        version = told.data_version or DataVersion()
        is_newer = (version.state_version, version.counter) > (
            known_version.state_version,
            known_version.counter,
        )
        guards = self._was_away and not is_newer
        found: dict[_Key, dict[int, int]] = {}
        for name, queues in told.offset_table.items():
            before = self._told.get(name, _NO_QUEUES)
            if queues == before:  # Nearly all of them.
                continue
            key = key_of(name)
            known = ours.get(key, _NO_QUEUES)
            changed = {
                queue_id: offset
                for queue_id, offset in queues.items()
                if offset != before.get(queue_id) and offset != known.get(queue_id)
            }
            taken = {
                queue_id: offset
                for queue_id, offset in changed.items()
                if not guards or not _is_kept(known.get(queue_id), before.get(queue_id), offset)
            }
            if taken:
                found[key] = taken
        self._told, self._version, self._was_away = told.offset_table, version, False
        return found


def _is_kept(ours: int | None, before: int | None, offset: int) -> bool:
    """Whether an offset that consumers have committed here is ahead of the master's."""
    return ours is not None and ours > offset and ours != before
