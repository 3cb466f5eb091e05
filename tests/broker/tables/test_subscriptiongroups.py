"""Settings of groups: made on first use or by hand, forbidden topics, and the file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.clients import desk

from flaremq.base.errors import InvalidName, InvalidParameter
from flaremq.broker.tables.subscriptiongroups import SubscriptionGroups, check_config
from flaremq.model.topic import GroupConfig


@pytest.fixture
def subscriptions(tmp_path: Path) -> Iterator[SubscriptionGroups]:
    with desk(tmp_path) as made:
        yield made.subscriptions


def test_new_broker_has_the_groups_that_javas_has(subscriptions: SubscriptionGroups) -> None:
    assert set(subscriptions.all()) == {
        *("TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONSAPI_OWNER"),
        *("CID_ONSAPI_PERMISSION", "CID_ONSAPI_PULL", "CID_ONS-HTTP-PROXY", "CID_RMQ_SYS_TRANS"),
    }


def test_group_is_made_on_first_use(subscriptions: SubscriptionGroups) -> None:
    before = subscriptions.version
    assert not subscriptions.contains("g")
    assert subscriptions.get("g") == GroupConfig("g")
    assert subscriptions.contains("g")
    assert subscriptions.version.counter == before.counter + 1


@pytest.mark.parametrize("name", ["", "a/b", "x" * 121])
def test_group_with_a_name_that_cannot_be_is_not_made(subscriptions: SubscriptionGroups, name: str) -> None:
    assert subscriptions.get(name) is None
    with pytest.raises(InvalidName):
        check_config(GroupConfig(name))


def test_only_system_groups_are_made_where_groups_are_made_by_hand(tmp_path: Path) -> None:
    with desk(tmp_path, auto_create_groups=False) as made:
        assert made.subscriptions.get("g") is None
        assert made.subscriptions.get("CID_RMQ_SYS_x") is not None
    with desk(tmp_path, auto_create_groups=False, create_system_groups=False) as made:
        assert made.subscriptions.get("CID_RMQ_SYS_x") is None


def test_group_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="retryQueueNums is -1"):
        check_config(GroupConfig("g", retry_queue_nums=-1))


def test_disabled_group_stays_and_consumes_nothing(subscriptions: SubscriptionGroups) -> None:
    subscriptions.get("g")
    subscriptions.disable("g")
    subscriptions.disable("nobody")
    assert subscriptions.get("g") == GroupConfig("g", consume_enable=False)
    assert not subscriptions.contains("nobody")


def test_group_may_be_kept_from_one_topic(subscriptions: SubscriptionGroups) -> None:
    assert not subscriptions.is_forbidden("g", "A")
    subscriptions.set_forbidden("g", "A", True)
    subscriptions.set_forbidden("g", "B", True)
    subscriptions.set_forbidden("g", "A", False)
    assert not subscriptions.is_forbidden("g", "A")
    assert subscriptions.is_forbidden("g", "B")
    assert not subscriptions.is_forbidden("h", "B")
    assert subscriptions.forbidden() == {"g": {"B": 4}}


def test_group_that_is_removed_takes_what_was_forbidden_with_it(subscriptions: SubscriptionGroups) -> None:
    subscriptions.get("g")
    subscriptions.set_forbidden("g", "A", True)
    assert subscriptions.remove("g") is not None
    assert subscriptions.remove("g") is None
    assert not subscriptions.is_forbidden("g", "A")


async def test_groups_outlive_the_broker(tmp_path: Path) -> None:
    config = GroupConfig("g", retry_max_times=3, consume_message_orderly=True)
    with desk(tmp_path) as made:
        made.subscriptions.put(config)
        made.subscriptions.set_forbidden("g", "A", True)
        await made.subscriptions.save()
        version = made.subscriptions.version
    data = json.loads((tmp_path / "config" / "subscriptionGroup.json").read_bytes())
    assert data.keys() == {"dataVersion", "forbiddenTable", "subscriptionGroupTable"}
    with desk(tmp_path) as made:
        assert made.subscriptions.get("g") == config
        assert made.subscriptions.is_forbidden("g", "A")
        assert made.subscriptions.version == version


def test_file_of_javas_older_broker_is_read(tmp_path: Path) -> None:
    """Version 4.9 knows neither retry policies nor forbidden topics, nor several other members."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "subscriptionGroup.json").write_text(
        """{
	"dataVersion":{"counter":2,"timestamp":1700000000000},
	"subscriptionGroupTable":{
		"g":{"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,
			"groupName":"g","notifyConsumerIdsChangedEnable":true,"retryMaxTimes":5,"retryQueueNums":1,
			"whichBrokerWhenConsumeSlowly":1}
	}
}"""
    )
    with desk(tmp_path) as made:
        assert made.subscriptions.get("g") == GroupConfig("g", retry_max_times=5)
