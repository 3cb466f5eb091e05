"""What the group itself says in its log: records of a topic of the system that belong to no queue.

Each is the record of a transaction that was rolled back, so dispatch passes over it, Java's too. The channel
of its entry is not 0, so members find it without a look at the record.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Final

import orjson

from flaremq.base.errors import Malformed
from flaremq.model import sysflag
from flaremq.model.columns import Bytes, Drafts
from flaremq.model.names import RAFT_TOPIC
from flaremq.model.record import decode

CHANNEL: Final = 1
_TERM: Final = "term"
_MEMBERS: Final = "members"
_HOST: Final = bytes(8)
_TOPIC: Final = RAFT_TOPIC.encode()


def term_begins(term: int, now_ms: int) -> Drafts:
    """The record with which a leader's term begins."""
    return _drafts({_TERM: term}, now_ms)


def members_are(term: int, addresses: Mapping[str, str], now_ms: int) -> Drafts:
    """The record that says who the members are from now on."""
    return _drafts({_TERM: term, _MEMBERS: dict(sorted(addresses.items()))}, now_ms)


def members_in(record: Bytes) -> dict[str, str] | None:
    """Who the members are by this record; None if it says something else. Raises Malformed."""
    try:
        said = orjson.loads(decode(record).body)
    except orjson.JSONDecodeError as error:
        raise Malformed(f"a record of {RAFT_TOPIC} holds no JSON: {error}") from error
    members = said.get(_MEMBERS) if isinstance(said, dict) else None
    return {str(member): str(address) for member, address in members.items()} if members else None


def _drafts(body: Mapping[str, object], now_ms: int) -> Drafts:
    text, topic = orjson.dumps(body), len(_TOPIC)
    row = (
        *(0, topic, topic, 0, 0, len(text), topic, len(_HOST), 0, -1, 1, 1),
        *(0, sysflag.TRANSACTION_ROLLBACK, now_ms, 0, 0, 0, 0, 0),
    )
    return Drafts(array("q", row), _TOPIC + _HOST, text)
