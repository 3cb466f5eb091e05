"""Settings of groups, as requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.clients import Desk, desk

from flaremq.broker.handlers.admin_group import AdminGroupHandlers
from flaremq.model.topic import GroupConfig
from flaremq.protocol import beans, fastjson
from flaremq.protocol.bodies.group import SubscriptionGroupList, SubscriptionGroupWrapper
from flaremq.protocol.bodies.stats import GroupForbidden
from flaremq.protocol.codes import RequestCode, ResponseCode

CODE = RequestCode
INVALID = ResponseCode.INVALID_PARAMETER


def serving(made: Desk) -> None:
    made.serve(AdminGroupHandlers(made.subscriptions, made.offsets, made.stats, made.offload).table())


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Desk]:
    with desk(tmp_path) as made:
        serving(made)
        yield made


async def test_group_is_made_changed_and_kept(made: Desk, tmp_path: Path) -> None:
    config = GroupConfig("g", retry_max_times=3)
    assert (await made.ask(CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config)).code == 0
    assert made.subscriptions.get("g") == config
    changed = GroupConfig("g", consume_enable=False)
    assert (await made.ask(CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=changed)).code == 0
    assert made.subscriptions.get("g") == changed
    assert b'"consumeEnable":false' in (tmp_path / "config" / "subscriptionGroup.json").read_bytes()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (None, ResponseCode.MESSAGE_ILLEGAL),
        (b"{}", ResponseCode.MESSAGE_ILLEGAL),
        (b'{"groupName":"a/b"}', INVALID),
        (b'{"groupName":"g","retryQueueNums":-1}', INVALID),
        (b'{"groupName":"g","attributes":{"+a":"1"}}', 1),
    ],
)
async def test_group_that_cannot_be_is_refused(made: Desk, body: bytes | None, code: int) -> None:
    before = dict(made.subscriptions.all())
    answer = await made.ask(CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
    assert answer.code == code and answer.remark
    assert made.subscriptions.all() == before


async def test_list_of_groups_is_taken_as_a_whole_or_not_at_all(made: Desk) -> None:
    bad = SubscriptionGroupList(group_config_list=(GroupConfig("a"), GroupConfig("b/c")))
    assert (await made.ask(CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=bad)).code == INVALID
    assert not made.subscriptions.contains("a")
    good = SubscriptionGroupList(group_config_list=(GroupConfig("a"), GroupConfig("b")))
    assert (await made.ask(CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=good)).code == 0
    assert made.subscriptions.contains("a") and made.subscriptions.contains("b")


async def test_all_groups_are_shown_at_once_or_by_the_page(made: Desk) -> None:
    made.subscriptions.get("g")
    made.subscriptions.set_forbidden("g", "T", True)
    answer = await made.ask(CODE.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    whole = beans.decode(SubscriptionGroupWrapper, answer.body)
    assert whole.subscription_group_table == made.subscriptions.all()
    assert whole.forbidden_table == {"g": {"T": 4}}
    known = fastjson.dumps(made.subscriptions.version.to_dict()).decode()
    paged = {"groupSeq": "8", "dataVersion": known, "maxGroupNum": "3"}
    answer = await made.ask(CODE.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, paged)
    assert answer.fields == {"totalGroupNum": "9"}
    last = beans.decode(SubscriptionGroupWrapper, answer.body)
    assert list(last.subscription_group_table) == ["g"]
    assert last.forbidden_table == {"g": {"T": 4}}


async def test_one_group_is_shown_and_made_by_asking_where_that_is_allowed(
    tmp_path: Path, made: Desk
) -> None:
    answer = await made.ask(CODE.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g"})
    assert beans.decode(GroupConfig, answer.body) == GroupConfig("g")
    with desk(tmp_path / "other", auto_create_groups=False) as strict:
        serving(strict)
        answer = await strict.ask(CODE.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g"})
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


@pytest.mark.parametrize("clean", ["true", "false"])
async def test_deleted_group_leaves_its_offsets_unless_told_otherwise(made: Desk, clean: str) -> None:
    made.subscriptions.get("g")
    made.offsets.commit("g", "T", 0, 5)
    answer = await made.ask(CODE.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g", "cleanOffset": clean})
    assert answer.code == 0
    assert not made.subscriptions.contains("g")
    assert made.offsets.get("g", "T", 0) == (-1 if clean == "true" else 5)


async def test_group_is_kept_from_a_topic_and_let_back(made: Desk) -> None:
    async def readable(**said: str) -> bool | None:
        answer = await made.ask(CODE.UPDATE_AND_GET_GROUP_FORBIDDEN, {"group": "g", "topic": "T", **said})
        assert answer.code == 0
        return beans.decode(GroupForbidden, answer.body).readable

    assert await readable() is True
    assert await readable(readable="false") is False
    assert made.subscriptions.is_forbidden("g", "T")
    assert await readable() is False
    assert await readable(readable="true") is True
    answer = await made.ask(CODE.UPDATE_AND_GET_GROUP_FORBIDDEN, {"group": "g", "topic": "a/b"})
    assert answer.code == INVALID
