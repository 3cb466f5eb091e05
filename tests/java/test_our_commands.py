"""The same commands at the real RocketMQ, 5.x and 4.x."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import Ended, flaremq
from tests.java.peers import Apache, Peers
from tests.java.toolchain import Toolchain

from flaremq.testing.cluster import eventually

REGISTERED_LIMIT_S = 60.0

pytestmark = pytest.mark.java


class Site:
    def __init__(self, namesrv: str, broker: str, folder: Path) -> None:
        self._namesrv = namesrv
        self.broker = broker
        self.folder = folder

    def ask(self, *words: object, given: str | None = None) -> Ended:
        ended = flaremq(*words, "-n", self._namesrv, given=given)
        assert "this is a bug" not in ended.err, ended.err
        return ended

    async def is_known(self) -> bool:
        ended = await asyncio.to_thread(self.ask, "cluster", "list", "--json")
        return bool(ended.document)


@pytest.fixture(scope="module", params=["5.3.3", "5.5.0", "4.9.7"])
def site(
    request: pytest.FixtureRequest, java_toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    kind = Apache(java_toolchain, version=request.param)
    with Peers(tmp_path_factory.mktemp("apache")) as peers:
        namesrv = peers.namesrv(kind)
        broker = peers.broker(kind, namesrv.address)
        found = Site(namesrv.address, broker.address, broker.folder)
        # 5.x says that it is ready although its first registration may be lost: the next comes after 10 s.
        asyncio.run(eventually("the NameServer knows the broker", found.is_known, REGISTERED_LIMIT_S))
        yield found


def documents(ended: Ended) -> list[dict[str, Any]]:
    assert ended.status == 0, ended.err
    return [json.loads(line) for line in ended.lines]


def test_topics_and_messages(site: Site) -> None:
    ask = site.ask
    assert ask("topic", "create", "orders", "-q", 2).status == 0
    assert "orders" in [each["topic"] for each in ask("topic", "list", "--json").document]
    words = ("--tags", "TagA", "-k", "needle", "-p", "n=7")
    (receipt,) = documents(ask("send", "orders", "hello", *words, "--json"))
    documents(ask("send", "orders", "--json", given="one\ntwo\n"))
    read = ("tail", "orders", "--from", "begin", "--no-follow", "--json")
    assert sorted(each["body"] for each in documents(ask(*read))) == ["hello", "one", "two"]
    assert [each["body"] for each in documents(ask(*read, "--tags", "TagA"))] == ["hello"]
    assert ask("message", "get", receipt["offset_id"], "--json").document["body"] == "hello"
    found = ask("message", "get", receipt["message_id"], "-t", "orders", "--track", "--json").document
    assert found["keys"] == ["needle"]
    assert len(ask("message", "key", "orders", "needle", "--json").document["messages"]) == 1
    assert len(ask("message", "query", "orders", "--json").document["messages"]) == 3
    assert ask("topic", "stats", "orders", "--json").document["messages"] == 3
    assert ask("topic", "update", "orders", "--perm", "r").status == 0
    shown = ask("topic", "show", "orders", "--json").document["brokers"]
    assert [each["perm"] for each in shown.values()] == [4]
    assert ask("topic", "rates").status == 0
    assert ask("topic", "delete", "orders", "--yes").status == 0
    assert "'orders'" in ask("topic", "route", "orders").complaint


def test_groups(site: Site) -> None:
    ask = site.ask
    ask("topic", "create", "read", "-q", 1)
    ask("send", "read", "x", "--count", 3)
    assert ask("group", "create", "billing", "--retries", 5).status == 0
    (shown,) = ask("group", "show", "billing", "--json").document["brokers"].values()
    assert shown["retryMaxTimes"] == 5
    ended = ask("group", "reset", "billing", "read", "--to", "begin", "--yes", "--json")
    assert ended.document["done"], ended.err
    assert ask("group", "progress", "billing", "--json").document["lag"] == 3
    assert "billing" in ask("group", "list").out
    assert "billing" in ask("group", "clients", "billing").complaint
    assert ask("group", "delete", "billing", "--yes").status == 0


def test_brokers_and_name_servers(site: Site) -> None:
    ask = site.ask
    (broker,) = ask("cluster", "brokers", "--json").document["brokers"]
    assert broker["address"] == site.broker
    assert broker["runtime"]["version"].startswith("V")
    assert ask("cluster", "status", broker["broker"]).status == 0
    assert "fileReservedTime" in ask("cluster", "config", "get").out
    assert ask("cluster", "config", "set", "fileReservedTime=71", "--yes").status == 0
    assert ask("cluster", "config", "get", "fileReservedTime").out == "fileReservedTime=71\n"
    assert ask("cluster", "namesrv", "get").status == 0
    assert ask("cluster", "kv", "set", "space", "key", "value").status == 0
    assert ask("cluster", "kv", "get", "space", "key").out == "value\n"
    assert ask("cluster", "kv", "delete", "space", "key", "--yes").status == 0
    assert ask("cluster", "write-perm", broker["broker"], "--off", "--yes").status == 0
    ended = ask("cluster", "write-perm", broker["broker"], "--on")
    assert ended.status == 0 or "not" in ended.complaint  # Old NameServers cannot take it back.
    for what in ("queues", "topics"):
        assert ask("cluster", "clean", what, "--yes").status == 0
    ended = ask("cluster", "producers")
    assert ended.status == 0 or "not" in ended.complaint  # Since 4.9.


def test_its_store_is_sound_and_can_be_read_beside_it(site: Site) -> None:
    site.ask("topic", "create", "stored", "-q", 1)
    site.ask("send", "stored", "x", "-k", "needle", "--count", 50)
    (root,) = (path.parent for path in site.folder.rglob("commitlog"))
    found = flaremq("store", "verify", root, "--json").document
    assert found["sound"], found["problems"]
    assert flaremq("store", "inspect", root, "--json").document["abort_file"]
    exported = flaremq("store", "export", root, "--topic", "stored")
    assert len(exported.lines) == 50
