"""Whether a broker's file of committed offsets is ahead of its log when it starts.

A group whose offset is ahead would never see what comes in the place of the messages that were lost:

    the log      0 1 2 3 | power fails, 2 and 3 were not synced
    the file     group: 4
    afterwards   0 1 A B   the group goes on at 4: A and B are hidden from it

So the file is compared with the log at every start. Two things are no fault of the file. A client that has
consumed 2 and 3 commits 4 also at the broker that has lost them, which takes it as RocketMQ's does: such
commits are noted as they come. And they may come while the broker still starts, so the file is read before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from flaremq.broker.tables.offsets import key_of
from flaremq.protocol import beans, configfiles
from flaremq.protocol.bodies.group import ConsumerOffsetSerializeWrapper
from flaremq.testing.sim.checks import Violated
from flaremq.testing.sim.workload import TOPICS
from flaremq.testing.sim.world import Machine, Simulation

_Queue: TypeAlias = tuple[str, str, int]
"""Of a group: its name, topic and queue number."""


class OffsetFiles:
    """The files of all masters, from start to start."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._saved: dict[Machine, Mapping[str, Mapping[int, int]]] = {}
        self._beyond: dict[Machine, set[_Queue]] = {}
        """Whose last commit was beyond the end of the queue, and is for that reason, if it is in the file."""

    def made(self, machine: Machine) -> None:
        """A broker is about to start on this machine."""
        file = machine.folder / configfiles.FOLDER / "consumerOffset.json"
        kept = configfiles.load(file, lambda text: beans.decode(ConsumerOffsetSerializeWrapper, text))
        self._saved[machine] = kept.offset_table if kept is not None else {}
        self._listen(machine)

    def started(self, machine: Machine) -> None:
        """Groups read offsets from slaves too, but these may run ahead of the log that is copied beside them,
        so this is asked of masters alone."""
        store, beyond = self._sim.running[machine.name].store, self._beyond[machine]
        for name, queues in self._saved[machine].items():
            topic, group = key_of(name)
            for queue_id, offset in queues.items():
                end = store.max_offset(topic.encode(), queue_id)
                if offset > end and topic in TOPICS and (group, topic, queue_id) not in beyond:
                    raise Violated(
                        "offset ahead",
                        f"{machine.name} starts with {group} at {topic}:{queue_id}:{offset} of {end}",
                    )

    def _listen(self, machine: Machine) -> None:
        broker, beyond = self._sim.running[machine.name], self._beyond.setdefault(machine, set())
        plain = broker.tables.offsets.commit

        def commit(group: str, topic: str, queue_id: int, offset: int) -> None:
            plain(group, topic, queue_id, offset)
            is_beyond = offset > broker.store.max_offset(topic.encode(), queue_id)
            (beyond.add if is_beyond else beyond.discard)((group, topic, queue_id))

        broker.tables.offsets.commit = commit  # type: ignore[method-assign]
