"""`flaremq group`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.admin.member import Member
from tests.cli.conftest import Ask

from flaremq.model.message import MessageQueue
from flaremq.testing.embedded import EmbeddedThread


@pytest.fixture
def topic(ask: Ask, request: pytest.FixtureRequest) -> str:
    """A topic of a test's own, with four messages."""
    name: str = request.node.name.removeprefix("test_")[:60]
    assert ask("topic", "create", name, "-q", 1).status == 0
    for broker in ("broker-a", "broker-b"):
        assert ask("send", name, "x", "--count", 2, "--queue", f"{broker}:0").status == 0
    return name


@pytest.fixture
def member(servers: EmbeddedThread) -> Iterator[Member]:
    """A consumer that lives in the loop of the servers."""

    async def made() -> Member:
        return Member()

    found = servers.run(made())
    yield found
    servers.run(found.__aexit__())


def test_a_group_is_made_shown_changed_and_deleted(ask: Ask) -> None:
    assert ask("group", "create", "billing", "--retries", 3, "--orderly").status == 0
    shown = ask("group", "show", "billing", "--json").document["brokers"]["broker-b"]
    assert (shown["retryMaxTimes"], shown["consumeMessageOrderly"]) == (3, True)
    assert ask("group", "update", "billing", "--no-consume").status == 0
    shown = ask("group", "show", "billing", "--json").document["brokers"]["broker-a"]
    assert (shown["retryMaxTimes"], shown["consumeEnable"]) == (3, False)
    assert "billing" in ask("group", "list").out
    assert "billing" in [g["group"] for g in ask("group", "list", "--names", "--json").document["groups"]]
    assert "flaremq group update" in ask("group", "create", "billing").complaint
    assert "would delete group billing" in ask("group", "delete", "billing", "--dry-run").out
    assert "--yes" in ask("group", "delete", "billing").complaint
    assert ask("group", "delete", "billing", "--yes").status == 0
    assert "'billing'" in ask("group", "show", "billing").complaint


def test_how_long_failed_messages_wait_is_set_and_shown(ask: Ask) -> None:
    ask("group", "create", "patient", "--retry-after", "1s,5s,1m")
    assert "1s,5s,1m" in ask("group", "show", "patient").out
    (config, *_) = ask("group", "show", "patient", "--json").document["brokers"].values()
    assert config["groupRetryPolicy"]["customizedRetryPolicy"] == {"next": [1000, 1000, 1000, 5000, 60_000]}
    ask("group", "update", "patient", "--retry-exponential", "500ms,10m,3")
    assert "500ms x3 to 10m" in ask("group", "show", "patient").out
    ask("group", "update", "patient", "--retries", "3")
    assert "500ms x3 to 10m" in ask("group", "show", "patient").out, "what is not given stays"
    ask("group", "update", "patient", "--retry-after", "default")
    assert "default" in ask("group", "show", "patient").out


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("--retry-after", "1s,soon"), "--retry-after: 'soon' is not a span of time such as"),
        (("--retry-after", "1s", "--retry-exponential", "1s,2s"), "give only one of them"),
        (("--retry-exponential", "1s"), "expected FIRST,MAX or FIRST,MAX,FACTOR"),
        (("--retry-exponential", "1s,2s,x"), "expected FIRST,MAX or FIRST,MAX,FACTOR"),
        (("--retry-exponential", "2s,1s"), "expected the shorter delay first"),
        (("--retry-exponential", "1s,2s,0"), "factor 0: expected a whole number from 1"),
        (("--retry-after", "9999d"), "which is a year"),
    ],
)
def test_a_wait_that_cannot_be_is_wrong_usage(ask: Ask, words: tuple[str, ...], hint: str) -> None:
    assert hint in ask("group", "update", "patient", *words).misuse


def test_a_reset_shows_old_and_new_offsets_and_the_lag_follows(ask: Ask, topic: str) -> None:
    ask("group", "create", "mover")
    dry = ask("group", "reset", "mover", topic, "--to", "begin", "--dry-run", "--json").document
    assert (dry["done"], len(dry["moves"])) == (False, 2)
    assert ask("group", "progress", "mover", "--json").document["lag"] == 0
    assert "--yes" in ask("group", "reset", "mover", topic, "--to", "begin").complaint
    done = ask("group", "reset", "mover", topic, "--to", "begin", "--yes", "--json").document
    assert done["done"] and {move["new"] for move in done["moves"]} == {0}
    progress = ask("group", "progress", "mover", "--json").document
    assert (progress["lag"], progress["topics"][topic], progress["members"]) == (4, 4, 0)
    assert "Lag 4;" in ask("group", "progress", "mover", "--topic", topic).out

    ended = ask("group", "reset", "mover", topic, "--offset", "broker-a:0=1", "--yes")
    assert ended.status == 0, ended.err
    queues = ask("group", "progress", "mover", "--topic", topic, "--json").document["queues"]
    assert {q["broker"]: q["consumer_offset"] for q in queues} == {"broker-a": 1, "broker-b": 0}
    shown = ask("group", "reset", "mover", topic, "--to", "end", "--dry-run").out
    assert "would be reset" in shown and "+1" in shown
    assert ask("group", "reset", "mover", topic, "--to", "now", "--yes").status == 0
    assert ask("group", "progress", "mover", "--json").document["lag"] == 0


def test_a_group_begins_where_another_is(ask: Ask, topic: str) -> None:
    for name in ("first", "second"):
        ask("group", "create", name)
    ask("group", "reset", "first", topic, "--offset", "broker-a:0=1", "--yes")
    assert "--yes" in ask("group", "clone", "first", "second", "--topic", topic).complaint
    assert ask("group", "clone", "first", "second", "--topic", topic, "--yes").status == 0
    queues = ask("group", "progress", "second", "--topic", topic, "--json").document["queues"]
    assert {q["broker"]: q["consumer_offset"] for q in queues}["broker-a"] == 1


def test_members_their_queues_and_their_state_are_told(
    ask: Ask, topic: str, servers: EmbeddedThread, member: Member
) -> None:
    servers.run(member.join(servers.addresses, "crowd", topic))
    member.queues = {MessageQueue(topic, "broker-a", 0): 1}
    ask("group", "reset", "crowd", topic, "--to", "begin", "--yes")
    found = ask("group", "clients", "crowd", "--json").document
    assert [each["client_id"] for each in found["clients"]] == [member.client_id]
    assert {"topic": topic, "kind": "TAG", "expression": "*"} in found["subscriptions"]
    assert member.client_id in ask("group", "clients", "crowd").out

    queues = ask("group", "progress", "crowd", "--topic", topic, "--json").document["queues"]
    assert {q["broker"]: q["owner"] for q in queues} == {"broker-a": member.client_id, "broker-b": None}

    running = ask("group", "running", "crowd", "--json").document["clients"][member.client_id]
    assert (running["queues"][0]["broker"], running["queues"][0]["offset"]) == ("broker-a", 1)
    assert running["stacks"] is None
    assert "a stack" in ask("group", "running", "crowd", member.client_id, "--stacks").out
    assert [
        g["members"] for g in ask("group", "list", "--json").document["groups"] if g["group"] == "crowd"
    ] == [1]


@pytest.mark.parametrize(
    ("status", "words", "hint"),
    [
        (2, ("create", "a b"), "' '"),
        (2, ("update", "g"), "at least one setting"),
        (1, ("update", "nowhere", "--retries", "1"), "'nowhere'"),
        (1, ("progress", "nowhere"), "'nowhere'"),
        (1, ("clients", "nowhere"), "'nowhere'"),
        (1, ("running", "nowhere"), "'nowhere'"),
        (2, ("reset", "g", "t"), "--to beginning"),
        (2, ("reset", "g", "t", "--to", "end", "--offset", "b:1=2"), "--to beginning"),
        (2, ("reset", "g", "t", "--to", "soon"), "'soon'"),
        (2, ("reset", "g", "t", "--offset", "b:x=2"), "BROKER:QUEUE=OFFSET"),
        (1, ("reset", "nowhere", "t", "--to", "end", "--yes"), "'nowhere'"),
    ],
)
def test_what_cannot_be_is_one_line(ask: Ask, status: int, words: tuple[str, ...], hint: str) -> None:
    assert hint in ask("group", *words).complaint_with(status)


def test_without_a_broker_the_rest_is_shown_and_told_to_be_a_part(ask: Ask, servers: EmbeddedThread) -> None:
    ask("group", "create", "partly")
    servers.stop("broker-b")
    try:
        assert list(ask("group", "show", "partly", "--json").document["brokers"]) == ["broker-a"]
    finally:
        servers.start("broker-b")
