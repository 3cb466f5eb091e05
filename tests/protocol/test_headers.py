"""Header classes, all of them: what they write they read, and their names are those of the wire."""

from __future__ import annotations

import inspect
from dataclasses import MISSING
from dataclasses import fields as fields_of
from types import ModuleType
from typing import Any, get_type_hints

import pytest

from flaremq.base.errors import PeerError
from flaremq.protocol import fields
from flaremq.protocol.fields import Header
from flaremq.protocol.headers import broker, group, namesrv, pop, pull, send, topic, transaction

MODULES: tuple[ModuleType, ...] = (broker, group, namesrv, pop, pull, send, topic, transaction)
HEADERS = [
    header
    for module in MODULES
    for _, header in inspect.getmembers(module, inspect.isclass)
    if issubclass(header, Header) and header.__module__ == module.__name__
]


def a_header(cls: type[Header]) -> Header:
    """One with a value in every field."""
    values: dict[str, Any] = {}
    hints = get_type_hints(cls)
    for number, each in enumerate(fields_of(cls)):
        kind = str(hints[each.name])
        if "BoundaryType" in kind:
            values[each.name] = pull.BoundaryType.UPPER
        elif "str" in kind:
            values[each.name] = f"text {number}"
        else:
            values[each.name] = True if "bool" in kind else number
    return cls(**values)


@pytest.mark.parametrize("cls", HEADERS, ids=lambda cls: str(cls.__name__))
def test_what_a_header_writes_it_reads(cls: type[Header]) -> None:
    header = a_header(cls)
    written = fields.encode(header)
    assert len(written) == len(fields_of(cls)), "every field has a name of its own"
    assert fields.decode(cls, written) == header


@pytest.mark.parametrize("cls", HEADERS, ids=lambda cls: str(cls.__name__))
def test_a_header_without_fields_is_read_or_says_what_is_missing(cls: type[Header]) -> None:
    needed = [each for each in fields_of(cls) if each.default is MISSING]
    if needed:
        with pytest.raises(PeerError, match="is missing"):
            fields.decode(cls, {})
    else:
        assert fields.decode(cls, {}) == cls()


@pytest.mark.parametrize(
    ("cls", "names"),
    [
        (pull.PullMessageRequestHeader, {"suspendTimeoutMillis", "subVersion", "proxyFrowardClientId"}),
        (pull.QueryMessageRequestHeader, {"_UNIQUE_KEY_QUERY", "beginTimestamp"}),
        (pull.QueryMessageResponseHeader, {"indexLastUpdatePhyoffset"}),
        (group.UnregisterClientRequestHeader, {"clientID", "producerGroup"}),
        (group.HeartbeatResponseHeader, {"IS_SUPPORT_HEART_BEAT_V2", "IS_SUB_CHANGE"}),
        (group.ResetOffsetRequestHeader, {"isForce"}),
        (namesrv.RegisterBrokerRequestHeader, {"haServerAddr", "bodyCrc32", "heartbeatTimeoutMillis"}),
        (namesrv.BrokerHeartbeatRequestHeader, {"heartbeatTimeoutMills"}),
        (namesrv.GetRouteInfoRequestHeader, {"acceptStandardJsonOnly"}),
        (transaction.EndTransactionRequestHeader, {"tranStateTableOffset", "commitOrRollback"}),
        (pop.PopMessageResponseHeader, {"reviveQid", "msgOffsetInfo"}),
        (broker.GetBrokerConsumeStatsRequestHeader, {"isOrder"}),
        (broker.ExchangeHAInfoRequestHeader, {"masterHaAddress"}),
        (topic.CreateTopicRequestHeader, {"topicFilterType", "readQueueNums"}),
        (send.SendMessageResponseHeader, {"batchUniqId", "recallHandle"}),
    ],
)
def test_names_that_are_easily_misspelled_are_javas(cls: type[Header], names: set[str]) -> None:
    assert names <= fields.encode(a_header(cls)).keys()


def test_bits_of_a_pull_are_javas() -> None:
    bits = (pull.COMMIT_OFFSET, pull.SUSPEND, pull.SUBSCRIPTION, pull.CLASS_FILTER, pull.LITE_PULL)
    assert bits == (1, 2, 4, 8, 16)
