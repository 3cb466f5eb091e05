"""`flaremq cluster health`, and what other commands say of a broker that died."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import Ended, flaremq

from flaremq.cli.sightings import Sightings
from flaremq.remoting.ports import free_port
from flaremq.testing.cluster import Cluster
from flaremq.testing.patience import load_factor


def told(ended: Ended, status: int) -> Any:
    assert ended.status == status, ended.err
    return json.loads(ended.out)


def test_a_broker_that_was_killed_is_missed_by_all_who_sum_up(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        namesrv = cluster.namesrv()
        cluster.broker("broker-a", namesrv.address)
        doomed = cluster.broker("broker-b", namesrv.address)

        def ask(*words: object) -> Ended:
            return flaremq(*words, "-n", namesrv.address)

        deadline_s = time.monotonic() + 30 * load_factor()
        while len(ask("cluster", "brokers", "--json").document["brokers"]) < 2:
            assert time.monotonic() < deadline_s, "the brokers do not register"
        assert ask("topic", "create", "orders", "-q", 2).status == 0
        ask("send", "orders", "x", "--count", 100, "--quiet")
        ask("group", "create", "billing")
        ask("topic", "create", "alone", "-q", 1, "-b", "broker-b")
        ask("topic", "stats", "alone")
        healthy = told(ask("cluster", "health", "--json"), 0)
        assert (healthy["verdict"], healthy["problems"]) == ("healthy", [])
        assert ask("topic", "stats", "orders").out.splitlines()[-1].startswith("100 messages in 4 queues")
        doomed.kill()

        deadline_s = time.monotonic() + 30 * load_factor()
        while "broker-b" in ask("cluster", "brokers").out:
            assert time.monotonic() < deadline_s, "the NameServer does not forget the broker"
        degraded = told(ask("cluster", "health", "--json"), 1)
        assert degraded["verdict"] == "degraded"
        (problem,) = degraded["problems"]
        assert (problem["kind"], problem["subject"]) == ("missing", "broker-b")
        shown = ask("cluster", "health")
        assert (shown.status, shown.lines[0]) == (1, "The cluster is degraded.")
        assert doomed.address in shown.out

        stats = ask("topic", "stats", "orders")
        assert "not counting broker-b." in stats.lines[-1]
        assert "it held 2 queues of this topic" in stats.err
        (missing,) = ask("topic", "stats", "orders", "--json").document["missing"]
        assert (missing["broker"], missing["queues"]) == ("broker-b", 2)
        alone = ask("topic", "stats", "alone").complaint
        assert "on no broker that is registered now" in alone and doomed.address in alone
        for words in (
            ("topic", "show", "orders"),
            ("topic", "rates", "orders"),
            ("group", "list"),
            ("cluster", "brokers"),
        ):
            assert "incomplete: broker-b is not registered now" in ask(*words).err

        assert told(ask("cluster", "health", "--forget", "broker-b", "--json"), 0)["verdict"] == "healthy"
        assert "incomplete" not in ask("topic", "stats", "orders").err
        assert "nowhere" in ask("cluster", "health", "--forget", "nowhere").misuse


def test_without_servers_it_is_down() -> None:
    ended = flaremq("cluster", "health", "-n", f"127.0.0.1:{free_port()}")
    assert (ended.status, ended.lines[0]) == (1, "The cluster is down.")


@pytest.mark.parametrize("size", ["many", "-1"])
def test_a_size_that_is_none_is_wrong_usage(size: str) -> None:
    assert "expected a size" in flaremq("cluster", "health", f"--behind={size}").misuse


# What is remembered.


def test_sightings_are_kept_for_each_cluster(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "sightings.json"
    first = Sightings(("ns1:1", "ns2:1"), path)
    first.note_brokers({"broker-a": "1.1.1.1:1", "broker-b": "1.1.1.2:1"})
    first.note_topic("orders", {"broker-b": 4})
    first.save()
    again = Sightings(("ns2:1", "ns1:1"), path)
    assert [each.broker for each in again.missing(["broker-a"])] == ["broker-b"]
    assert [each.queues for each in again.missing([], "orders")] == [4]
    assert [each.queues for each in again.missing([], "unknown")] == [None, None]
    assert Sightings(("ns3:1",), path).missing([]) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 1}', '{"a": {"brokers": {"b": {}}, "topics": {}}}'])
def test_a_file_that_cannot_be_read_is_as_good_as_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "sightings.json"
    path.write_text(text)
    sightings = Sightings(("ns1:1",), path)
    assert sightings.missing([]) == []
    sightings.note_brokers({"broker-a": "1.1.1.1:1"})
    sightings.save()
    assert [each.broker for each in Sightings(("ns1:1",), path).missing([])] == ["broker-a"]


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    sightings = Sightings(("ns1:1",), tmp_path / "file" / "sightings.json")
    sightings.note_brokers({"broker-a": "1.1.1.1:1"})
    sightings.save()


def test_topics_are_not_remembered_without_end(tmp_path: Path) -> None:
    path = tmp_path / "sightings.json"
    sightings = Sightings(("ns1:1",), path)
    sightings.note_brokers({"broker-a": "1.1.1.1:1"})
    for number in range(600):
        sightings.note_topic(f"topic-{number}", {"broker-a": 1})
    sightings.save()
    kept = json.loads(path.read_text())["ns1:1"]["topics"]
    assert len(kept) == 500 and "topic-599" in kept and "topic-0" not in kept


def test_a_slave_is_remembered_by_its_id(tmp_path: Path) -> None:
    path = tmp_path / "sightings.json"
    sightings = Sightings(("ns1:1",), path)
    sightings.note_brokers({"broker-a": "1.1.1.1:1", "broker-a:1": "1.1.1.2:1"})
    assert [each.broker for each in sightings.missing(["broker-a"])] == ["broker-a:1"]
    assert sightings.forget("broker-a:1") and not sightings.missing(["broker-a"])
