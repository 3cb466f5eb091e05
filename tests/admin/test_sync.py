"""What is the blocking admin's own. All else is tested with the async one."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from flaremq.admin import brokers, groups, health, namesrvs, sync, topics
from flaremq.admin.messages import deadletters, messages, transactions
from flaremq.admin.values.messages import Scan
from flaremq.admin.values.topics import TopicSettings
from flaremq.base.errors import ConfigError, NoNameServer
from flaremq.client.settings import ClientSettings
from flaremq.remoting.ports import free_port
from flaremq.testing.embedded import EmbeddedThread
from flaremq.testing.fakes.wireclient import WireClient


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[EmbeddedThread]:
    with EmbeddedThread(tmp_path) as found:
        yield found


PARTS = [
    (topics.Topics, sync.Topics),
    (groups.Groups, sync.Groups),
    (brokers.Brokers, sync.Brokers),
    (messages.Messages, sync.Messages),
    (deadletters.DeadLetterQueues, sync.DeadLetterQueues),
    (transactions.Halves, sync.Halves),
    (namesrvs.Namesrvs, sync.Namesrvs),
    (health.Checkups, sync.Checkups),
]


@pytest.mark.parametrize(("core", "blocking"), PARTS)
def test_no_method_of_the_core_is_missing(core: type, blocking: type) -> None:
    def methods(of: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(each).parameters)
            for name, each in inspect.getmembers(of, inspect.isfunction)
            if not name.startswith("_")
        }

    assert methods(core) == methods(blocking)


def test_it_connects_on_first_use_and_again_after_a_stop(servers: EmbeddedThread) -> None:
    admin = sync.Admin(servers.namesrv)
    assert admin.topics.create("orders", TopicSettings(read_queues=1, write_queues=1)) == ("broker-a",)
    admin.stop()
    assert admin.topics.stats("orders").count == 0
    admin.stop()
    admin.stop()


def test_a_scan_may_be_left_before_its_end(servers: EmbeddedThread) -> None:
    async def send() -> None:
        async with WireClient() as client:
            for n in range(3):
                await client.send(servers.addresses[0], "orders", 0, f"{n}".encode())

    with sync.Admin(servers.namesrv) as admin:
        admin.topics.create("orders", TopicSettings(read_queues=1, write_queues=1))
        servers.run(send())
        for message in admin.messages.scan(Scan(topic="orders")):
            assert message.body == b"0"
            break
        left_over = admin.messages.scan(Scan(topic="orders"))
        assert next(left_over).body == b"0"
    left_over.close()  # Its admin has stopped meanwhile.


def test_nobody_is_there_is_one_clear_error() -> None:
    address = f"127.0.0.1:{free_port()}"
    with sync.Admin(address) as admin, pytest.raises(NoNameServer, match=address):
        admin.topics.list()


def test_what_cannot_be_an_address_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="host:port"):
        sync.Admin("nonsense")
    monkeypatch.setenv("FLAREMQ_NAMESRV", "127.0.0.1:1")
    assert sync.Admin(settings=ClientSettings(timeout_s=1)).settings.addresses == ("127.0.0.1:1",)
