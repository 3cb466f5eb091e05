"""Requests of administrators about consumer groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from flaremq.base.errors import GroupNotFound
from flaremq.base.logs import fields as logged
from flaremq.base.logs import logger
from flaremq.broker.handlers.paging import page
from flaremq.broker.offload import Offload
from flaremq.broker.stats.stats import Stats
from flaremq.broker.tables.attributes import altered
from flaremq.broker.tables.offsets import Offsets
from flaremq.broker.tables.subscriptiongroups import SubscriptionGroups, check_config
from flaremq.model.topic import GroupConfig, check_group, check_topic
from flaremq.protocol import beans, fields
from flaremq.protocol.bodies.group import SubscriptionGroupList, SubscriptionGroupWrapper
from flaremq.protocol.bodies.stats import GroupForbidden
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.command import Command, response_to
from flaremq.protocol.headers import group as headers
from flaremq.remoting.router import Handler, Peer

log = logger("broker.admin")


class AdminGroupHandlers:
    def __init__(
        self, subscriptions: SubscriptionGroups, offsets: Offsets, stats: Stats, offload: Offload
    ) -> None:
        self._subscriptions = subscriptions
        self._offsets = offsets
        self._stats = stats
        self._offload = offload

    def table(self) -> dict[int, Handler]:
        code = RequestCode
        return {
            code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update,
            code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.update_list,
            code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.get_all,
            code.GET_SUBSCRIPTIONGROUP_CONFIG: self.get_one,
            code.DELETE_SUBSCRIPTIONGROUP: self.delete,
            code.UPDATE_AND_GET_GROUP_FORBIDDEN: self.update_forbidden,
        }

    async def update(self, peer: Peer, request: Command) -> Command:
        await self._update([beans.decode(GroupConfig, request.body)], peer)
        return response_to(request)

    async def update_list(self, peer: Peer, request: Command) -> Command:
        said = beans.decode(SubscriptionGroupList, request.body)
        await self._update(said.group_config_list, peer)
        return response_to(request)

    async def _update(self, said: Sequence[GroupConfig], peer: Peer) -> None:
        """Update all or none: the whole list is checked first."""
        made = [self._checked(config) for config in said]
        log.info("request to create or change groups", extra=logged(count=len(made), by=peer.address))
        self._subscriptions.put_many(made)
        await self._subscriptions.settle()

    def _checked(self, said: GroupConfig) -> GroupConfig:
        """The group as it will be. Groups have no attributes so far, except those loaded from a file."""
        check_config(said)
        known = self._subscriptions.all().get(said.group_name)
        attributes = altered(known.attributes if known else None, said.attributes, known={})
        return replace(said, attributes=attributes)

    async def get_all(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.GetAllSubscriptionGroupRequestHeader, request.fields)
        table, version = self._subscriptions.all(), self._subscriptions.version
        shown: Mapping[str, GroupConfig] = table
        if not (header.group_seq is None and header.data_version is None and header.max_group_num is None):
            shown = page(table, version, header.data_version, header.group_seq or 0, header.max_group_num)
        forbidden = self._subscriptions.forbidden()
        wrapper = SubscriptionGroupWrapper(
            subscription_group_table=dict(shown),
            forbidden_table={group: dict(forbidden[group]) for group in shown if group in forbidden},
            data_version=version,
        )
        total = headers.GetAllSubscriptionGroupResponseHeader(total_group_num=len(table))
        body = await self._offload.run(lambda: beans.encode(wrapper))
        return response_to(request, ext_fields=fields.encode(total), body=body)

    async def get_one(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.GetSubscriptionGroupConfigRequestHeader, request.fields)
        found = self._subscriptions.get(header.group)
        if found is None:
            raise GroupNotFound(f"No group in this broker. group: {header.group}")
        return response_to(request, body=beans.encode(found))

    async def delete(self, peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.DeleteSubscriptionGroupRequestHeader, request.fields)
        log.info("request to delete a group", extra=logged(group=header.group_name, by=peer.address))
        self._subscriptions.remove(header.group_name)
        self._stats.group_deleted(header.group_name)
        if header.clean_offset:
            self._offsets.remove_group(header.group_name)
            await self._offsets.settle()
        await self._subscriptions.settle()
        return response_to(request)

    async def update_forbidden(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.UpdateGroupForbiddenRequestHeader, request.fields)
        check_group(header.group)
        check_topic(header.topic)
        if header.readable is not None:
            self._subscriptions.set_forbidden(header.group, header.topic, not header.readable)
            await self._subscriptions.settle()
        readable = not self._subscriptions.is_forbidden(header.group, header.topic)
        answer = GroupForbidden(topic=header.topic, group=header.group, readable=readable)
        return response_to(request, remark="", body=beans.encode(answer))
