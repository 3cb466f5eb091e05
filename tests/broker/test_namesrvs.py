"""The list of NameServers: named, looked up, changed."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from flaremq.base.errors import ConfigError
from flaremq.broker.namesrvs import NameServers, look_up, parse
from flaremq.broker.settings import BrokerSettings


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("", ()),
        (" a:1 ; b:2;;a:1", ("a:1", "b:2")),
        ("[::1]:9876", ("[::1]:9876",)),
    ],
)
def test_addresses_are_read(text: str, addresses: tuple[str, ...]) -> None:
    assert parse(text) == addresses


@pytest.mark.parametrize("text", ["a", "a:", ":1", "a:b", "a:0", "a:65536", "a:1;b", "a:²"])
def test_what_is_no_address_is_told(text: str) -> None:
    with pytest.raises(ConfigError, match="namesrvAddr"):
        NameServers(text)
    with pytest.raises(ConfigError, match="namesrvAddr"):
        BrokerSettings(broker_name="b", ip1="a", ip2="a", namesrv=text)


async def test_a_change_is_told_once() -> None:
    namesrvs = NameServers("a:1")
    told: list[tuple[str, ...]] = []
    namesrvs.listeners.append(told.append)
    await namesrvs.refresh()
    namesrvs.set("a:1;b:2")
    namesrvs.set("a:1;b:2")
    with pytest.raises(ConfigError):
        namesrvs.set("nonsense")
    assert told == [("a:1", "b:2")]
    assert namesrvs.addresses == ("a:1", "b:2") and namesrvs.text == "a:1;b:2"


class Dns:
    """Answers with these, or not at all."""

    def __init__(self, *answers: str) -> None:
        self.answers: Iterable[str] | None = answers
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int) -> Iterable[str]:
        self.asked.append((host, port))
        if self.answers is None:
            raise OSError("no such name")
        return self.answers


async def test_a_dns_name_stands_for_all_its_addresses() -> None:
    dns = Dns("10.0.0.1", "10.0.0.2", "fe80::1")
    namesrvs = NameServers("mq.example.org", by_dns=True, lookup=dns)
    assert not namesrvs.addresses
    await namesrvs.refresh()
    assert dns.asked == [("mq.example.org", 9876)]
    assert namesrvs.addresses == ("10.0.0.1:9876", "10.0.0.2:9876", "[fe80::1]:9876")


@pytest.mark.parametrize("answers", [None, ()])
async def test_a_dns_that_knows_nothing_changes_nothing(answers: tuple[str, ...] | None) -> None:
    dns = Dns("10.0.0.1")
    namesrvs = NameServers("mq:1", by_dns=True, lookup=dns)
    await namesrvs.refresh()
    dns.answers = answers
    await namesrvs.refresh()
    assert namesrvs.addresses == ("10.0.0.1:1",)


async def test_an_address_is_looked_up_without_a_dns_server() -> None:
    assert list(await look_up("127.0.0.1", 1)) == ["127.0.0.1"]
