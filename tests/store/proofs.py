"""Messages that prove themselves, and what must hold of a store after it was hit.

The body of each message ends in a hash of its queue, its name and its filling, and its name is its
key. So whatever a store serves can be judged without knowing what was put.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from flaremq.model.record import decode_many
from flaremq.model.tags import java_hash
from flaremq.store.api import ExtUnit, GetStatus
from flaremq.store.drafts import NewMessage
from flaremq.store.store import MessageStore
from flaremq.testing.fakes.builders import a_message

FOREVER: Final = 1 << 62
TAG: Final = "proof"

Queue = tuple[bytes, int]


def a_proof(queue: Queue, name: str, size: int = 0) -> NewMessage:
    """A message of this queue, filled up with so many bytes."""
    content = name.encode() + b"|" + Random(name).randbytes(size)
    properties = b"KEYS\x01%s\x02TAGS\x01%s\x02" % (name.encode(), TAG.encode())
    body = content + _hash(queue, content)
    return a_message(body, topic=queue[0], queue_id=queue[1], properties=properties)


def name_in(queue: Queue, body: bytes) -> str:
    """The name of a message of this queue; an AssertionError if its body is not what was put there."""
    content, proof = body[:-32], body[-32:]
    assert proof == _hash(queue, content), f"a torn body in {queue}: {body[:40]!r}"
    return content.partition(b"|")[0].decode()


def _hash(queue: Queue, content: bytes) -> bytes:
    return hashlib.sha256(b"%s/%d/" % queue + content).digest()


class ByTag:
    """Wants the tag of all proofs: an entry that has lost its tags code hides a message from it."""

    codes: Final = array("q", [java_hash(TAG)])

    def matches_entry(self, tags_code: int, unit: ExtUnit | None) -> bool:
        return tags_code in self.codes and (unit is None or unit.tags_code == tags_code)

    def matches_record(self, record: memoryview) -> bool:
        return len(record) > 0


def served(store: MessageStore) -> dict[Queue, list[str]]:
    """Names of all messages by queue, as a consumer gets them; queues are dense and bodies whole."""
    store.dispatch()
    return {queue: _served(store, queue) for queue, _ in store.queues.items()}


def _served(store: MessageStore, queue: Queue) -> list[str]:
    names: list[str] = []
    end = store.max_offset(*queue)
    assert store.min_offset(*queue) == 0
    while len(names) < end:
        result = store.get(*queue, len(names), selector=ByTag())
        assert result.status is GetStatus.FOUND, f"{queue} at {len(names)} of {end}: {result.status}"
        for message in decode_many(result.gathered()):
            assert message.queue_offset == len(names), f"{queue} has a hole at {len(names)}"
            names.append(name_in(queue, message.body))
        assert result.next_offset == len(names)
    assert store.offsets.get(*queue) == end, "the next message would not get the next offset"
    return names


def has_key(store: MessageStore, queue: Queue, name: str) -> bool:
    found = store.query(queue[0], name.encode(), 64, 0, FOREVER)
    return any(name_in(queue, m.body) == name for m in decode_many(b"".join(found)))


@dataclass
class Promises:
    """What nobody may lose any more: names by queue and offset."""

    kept: dict[Queue, dict[int, str]] = field(default_factory=dict)

    def add(self, queue: Queue, offset: int, name: str) -> None:
        known = self.kept.setdefault(queue, {}).setdefault(offset, name)
        assert known == name, f"{queue} has two messages at {offset}: {known} and {name}"

    @property
    def count(self) -> int:
        return sum(len(names) for names in self.kept.values())

    def check(self, store: MessageStore, *, keys: Iterable[str] | None = None) -> dict[Queue, list[str]]:
        """All of it is there. Whatever else is served was seen by a consumer, and is promised from now on."""
        there = served(store)
        for queue, names in self.kept.items():
            found = dict(enumerate(there.get(queue, [])))
            lost = {offset: name for offset, name in names.items() if found.get(offset) != name}
            assert not lost, f"{queue} has {len(found)} messages and lost {len(lost)}: {lost}"
            for name in names.values() if keys is None else set(keys) & set(names.values()):
                assert has_key(store, queue, name), f"key {name} of {queue} is not found"
        for queue, found_names in there.items():
            for offset, name in enumerate(found_names):
                self.add(queue, offset, name)
        return there
