"""Committed offsets of consumer groups: from brokers, or from the file that a broker keeps in its store."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from flaremq.base.errors import ConfigError, FlareError, UsageError
from flaremq.client.api import body_of
from flaremq.client.client import Client
from flaremq.model.message import MessageQueue
from flaremq.model.names import check_group
from flaremq.model.queuekey import key_of
from flaremq.protocol import beans, configfiles
from flaremq.protocol.bodies.group import ConsumerOffsetSerializeWrapper, GroupList
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.headers.topic import QueryTopicConsumeByWhoRequestHeader
from flaremq.spark.clients import cluster_client
from flaremq.spark.read.offsetreader import OffsetReader
from flaremq.spark.read.options import Selection

Offsets = dict[str, dict[str, int]]
"""By group and topic@broker:queueId."""

_FILE: Final = Path("config", "consumerOffset.json")
_TIMEOUT_S: Final = 60.0


def offsets_of_brokers(namesrv: str, selection: Selection, groups: Sequence[str] = ()) -> Offsets:
    """Offsets of these groups, or of all groups that consume the topics, as far as brokers know."""
    for group in groups:
        check_group(group)
    cluster = cluster_client(namesrv)
    return cluster.run(_asked(cluster.client, selection, groups))


async def _asked(client: Client, selection: Selection, groups: Sequence[str]) -> Offsets:
    reader = OffsetReader(client, _TIMEOUT_S)
    queues = await reader.queues(selection, _TIMEOUT_S, strict=True)
    found: Offsets = {}
    for group in groups or sorted(await _groups(client, queues)):
        committed = await reader.committed(queues, group)
        known = {key: offset for key, offset in committed.items() if offset is not None and offset >= 0}
        if known:
            found[group] = known
    missing = [group for group in groups if group not in found]
    if missing:
        raise UsageError(
            f"brokers have no offsets of {', '.join(missing)} in {selection}: `flaremq group list` shows all "
            "groups"
        )
    return found


async def _groups(client: Client, queues: Sequence[MessageQueue]) -> set[str]:
    async def ask(topic: str, broker: str) -> tuple[str, ...]:
        address = client.routes.address(broker)
        if address is None:
            return ()
        header = QueryTopicConsumeByWhoRequestHeader(topic=topic)
        try:
            answer = await client.api.ask(address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)
        except FlareError:
            return ()  # The user has named no group, so none is missing.
        return tuple(body_of(GroupList, answer).group_list)

    places = sorted({(queue.topic, queue.broker_name) for queue in queues})
    return {group for each in await asyncio.gather(*(ask(*place) for place in places)) for group in each}


def offsets_of_store(root: Path, broker_name: str = "", groups: Sequence[str] = ()) -> Offsets:
    """The offsets in a store folder; empty if there is no such file. ConfigError if it cannot be read.

    `broker_name` must equal the option brokerName with which the rows are read; empty if it is not set.
    """
    for group in groups:
        check_group(group)
    path = root / _FILE
    table = configfiles.load(path, _table)
    if table is None:
        if groups:
            raise ConfigError(
                f"{path} does not exist, so there are no offsets of {', '.join(groups)}: expected the folder "
                "that its broker has as storePathRootDir; give that one, or name no groups"
            )
        return {}
    found: Offsets = {}
    for name, queues in table.items():
        topic, at, group = name.partition("@")
        if at and (not groups or group in groups):
            own = found.setdefault(group, {})
            own |= {key_of(MessageQueue(topic, broker_name, q)): offset for q, offset in queues.items()}
    missing = [group for group in groups if group not in found]
    if missing:
        there = ", ".join(sorted({name.partition("@")[2] for name in table})[:8]) or "none"
        raise UsageError(f"{path} has no offsets of {', '.join(missing)}: its groups are {there}")
    return found


def _table(text: bytes) -> Mapping[str, Mapping[int, int]]:
    return beans.decode(ConsumerOffsetSerializeWrapper, text).offset_table
