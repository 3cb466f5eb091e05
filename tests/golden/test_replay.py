"""What real clients said to Apache's servers, said to ours: each request is answered, as Java answered it.

Differences are named one by one, with their reasons; one that is gone must leave the table.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.golden.replay import CONVERSATIONS, Asked, Replay, conversation

from flaremq.base.units import MiB
from flaremq.broker.app import Broker
from flaremq.broker.config import BrokerConfig
from flaremq.broker.settings import BrokerServerSettings, BrokerSettings, FamilySettings
from flaremq.namesrv.app import NameServer
from flaremq.namesrv.settings import NamesrvServerSettings, NamesrvSettings
from flaremq.protocol.codes import ResponseCode
from flaremq.testing.fakes.builders import small_settings
from flaremq.testing.fakes.wireclient import WireClient

NAMES = sorted(path.stem for path in CONVERSATIONS.glob("*.jsonl"))
TOPICS = ("TopicTest", "OrderTopic", "ReqTopic", "AdmTopic", "PopTopic", "BenchTopic")
QUEUES = 4
MESSAGES = 40

LATER = "this broker does not serve it yet"
OTHER_RECORD = "the request names a place in the log, where another record begins, or none"
NO_HEARTBEAT = "repeated heartbeats are left out of the conversation, so the group is not known"
IN_ORDER = "Java served the pull before the heartbeat that came before it; here they keep their order"
FILLED = "the queue was empty there and has messages here"
EMPTY = "a new group on an empty queue starts at 0 here, as with RocketMQ 4.9 (docs/differences.md)"
FIXED = "maxMessageSize can only be changed by a restart"

Difference = tuple[str, int, int]
"""Name of the request, response code there and here."""

CONSUMING: dict[Difference, str] = {
    ("GET_CONSUMER_LIST_BY_GROUP", 0, 1): NO_HEARTBEAT,
    ("PULL_MESSAGE", 19, 24): NO_HEARTBEAT,
    ("CONSUMER_SEND_MSG_BACK", 0, 1): OTHER_RECORD,
}
REPLYING: dict[Difference, str] = {
    ("QUERY_CONSUMER_OFFSET", 22, 0): FILLED,
}
EXPLAINED: dict[str, dict[Difference, str]] = {
    "java-json-consume": CONSUMING,
    "java-binary-consume": CONSUMING,
    "java-json-request-reply": REPLYING,
    "java-binary-request-reply": REPLYING,
    "java-4.9.8-consume": {
        ("PULL_MESSAGE", 25, 0): IN_ORDER,
        ("PULL_MESSAGE", 25, 24): NO_HEARTBEAT,
    },
    "java-json-admin": {
        ("GET_ROUTEINFO_BY_TOPIC", 0, 17): "the retry topic of GP was made before the conversation began",
        ("VIEW_MESSAGE_BY_ID", 0, 1): OTHER_RECORD,
    },
    "java-json-pop": {
        ("SET_MESSAGE_REQUEST_MODE", 0, 3): LATER,
        ("QUERY_ASSIGNMENT", 0, 3): LATER,
        ("QUERY_CONSUMER_OFFSET", 22, 0): EMPTY,
        ("POP_MESSAGE", 0, 3): LATER,
        ("ACK_MESSAGE", 0, 3): LATER,
        ("CHANGE_MESSAGE_INVISIBLETIME", 0, 3): LATER,
        ("PULL_MESSAGE", 19, 24): NO_HEARTBEAT,
    },
    "mqadmin": {
        ("UPDATE_BROKER_CONFIG", 0, 1): FIXED,
        ("SET_MESSAGE_REQUEST_MODE", 0, 3): LATER,
    },
}


@asynccontextmanager
async def servers(folder: Path) -> AsyncIterator[tuple[NameServer, Broker]]:
    """As they were when the conversations were held: of these names, without slaves."""
    sockets: dict[str, Any] = {"listen_port": 0, "bind_address": "127.0.0.1", "drain_s": 1}
    namesrv = NameServer(NamesrvSettings(kv_config_path=folder / "kv"), NamesrvServerSettings(**sockets))
    await namesrv.start()
    broker = Broker(
        BrokerConfig(
            broker=BrokerSettings(
                ip1="127.0.0.1",
                ip2="127.0.0.1",
                broker_name="broker-a",
                namesrv=f"127.0.0.1:{namesrv.port}",
            ),
            server=BrokerServerSettings(**sockets),
            families=FamilySettings(send_age_ms=30_000),  # A busy machine is no reason to refuse.
            store=small_settings(
                folder / "store",
                message_size_max=4 * MiB,
                commitlog_file_size=8 * MiB,
                page_cache_busy_ms=60_000,
            ),
        )
    )
    await broker.start()
    try:
        yield namesrv, broker
    finally:
        await broker.stop()  # Which answers the pulls that still wait.
        await namesrv.stop()


async def filled(broker: Broker) -> None:
    """Topics with messages, as there were."""
    address = f"127.0.0.1:{broker.port}"
    async with WireClient() as client:
        for topic in TOPICS:
            await client.create_topic(address, topic, QUEUES)
            sends = [client.send(address, topic, n % QUEUES, bytes(400)) for n in range(QUEUES * MESSAGES)]
            await asyncio.gather(*sends)


def difference(asked: Asked) -> str | None:
    """What differs besides the code, if both have the same."""
    theirs, ours = asked.theirs, asked.ours
    assert theirs is not None and ours is not None
    missing, added = theirs.fields.keys() - ours.fields.keys(), ours.fields.keys() - theirs.fields.keys()
    missing.discard("recallHandle")  # The moment of that message is long past, so it does not wait here.
    if missing or added:
        return f"{asked.name}: fields {sorted(missing)} are missing, {sorted(added)} are too many"
    if theirs.code == ResponseCode.SUCCESS and bool(theirs.body) != bool(ours.body):
        return (
            f"{asked.name}: a body of {len(theirs.body or b'')} bytes there, of {len(ours.body or b'')} here"
        )
    return None


@pytest.mark.parametrize("name", NAMES)
async def test_a_conversation_goes_as_it_went_with_java(tmp_path: Path, name: str) -> None:
    async with servers(tmp_path) as (namesrv, broker):
        if not name.startswith("00-"):  # There the broker and its topics are just being made.
            await filled(broker)
        replay = Replay(conversation(name), {"namesrv": namesrv.port, "broker": broker.port})
        await replay.run()
    await replay.close()
    asked = list(replay.asked())
    assert not [each.name for each in asked if each.ours is None]
    assert all(each.ours is not None and each.ours.opaque == each.request.opaque for each in asked)
    compared = [each for each in asked if each.theirs is not None]
    found = {
        (each.name, each.theirs.code, each.ours.code)
        for each in compared
        if each.theirs is not None and each.ours is not None and each.theirs.code != each.ours.code
    }
    assert found == EXPLAINED.get(name, {}).keys()
    same = [each for each in compared if each.theirs and each.ours and each.theirs.code == each.ours.code]
    assert not [why for why in map(difference, same) if why is not None]
    assert len(same) > len(compared) / 3
