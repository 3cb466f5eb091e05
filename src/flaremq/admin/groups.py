"""Consumer groups: settings, members, progress and offset resets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from flaremq.admin import progress as progresses
from flaremq.admin import resets
from flaremq.admin.members import Rosters
from flaremq.admin.servers import ServerAddress, ServerCalls
from flaremq.admin.topics import Topics
from flaremq.admin.values.groups import (
    GroupChange,
    GroupDetails,
    GroupInfo,
    GroupMembers,
    GroupProgress,
    GroupSummary,
    MemberOffsets,
    OffsetReset,
    Position,
    QueueSpan,
    is_own,
)
from flaremq.admin.values.outcome import Answers
from flaremq.base.errors import FlareError, GroupNotFound, Hint, Incomplete, InvalidParameter
from flaremq.client.api import body_of
from flaremq.model.names import check_group, check_topic, dlq_topic, is_system_group, retry_topic
from flaremq.model.topic import GroupConfig
from flaremq.protocol import beans
from flaremq.protocol.bodies.group import SubscriptionGroupWrapper
from flaremq.protocol.bodies.pop import MessageRequestMode, SetMessageRequestModeRequestBody
from flaremq.protocol.bodies.running import ConsumerRunningInfo
from flaremq.protocol.bodies.stats import GroupForbidden
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.headers import group as headers

_SYSTEM: Final = frozenset(
    {
        *("TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY"),
        *("CID_ONSAPI_PULL", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_SYS_RMQ_TRANS"),
    }
)
"""Groups that every broker creates itself, apart from those with the system prefix."""
_SUMMARIES_AT_ONCE: Final = 8


class Groups:
    """`broker` is a name or host:port. Without it and without a cluster, all masters are meant.

    Changes return the names of the brokers that made them, and raise Incomplete if not all did.
    """

    def __init__(self, servers: ServerCalls) -> None:
        self._servers = servers
        self._topics = Topics(servers)
        self._rosters = Rosters(servers)

    # Settings.

    async def list(self, *, cluster: str | None = None) -> Answers[GroupInfo]:
        """All groups with settings on a master, sorted."""
        asked = await self._servers.each(await self._servers.masters(cluster), self._table, "groups")
        brokers: dict[str, list[str]] = {}
        for broker, table in asked.found.items():
            for group in table:
                brokers.setdefault(group, []).append(broker)
        found = (
            GroupInfo(group, group in _SYSTEM or is_system_group(group), tuple(where))
            for group, where in sorted(brokers.items())
        )
        return Answers(tuple(found), asked.failed)

    async def summaries(self, *, cluster: str | None = None) -> Answers[GroupSummary]:
        """All groups except the system's: members, rate and lag of each."""
        listed = await self.list(cluster=cluster)
        slots = asyncio.Semaphore(_SUMMARIES_AT_ONCE)
        found: dict[str, GroupSummary] = {}
        failed: dict[str, FlareError] = dict(listed.failed)

        async def one(group: str) -> None:
            async with slots:
                try:
                    found[group] = await progresses.summary(self._servers, self._rosters, group)
                except FlareError as error:
                    failed[group] = error

        await asyncio.gather(*(one(each.name) for each in listed if not each.is_system))
        return Answers(tuple(found[group] for group in sorted(found)), failed)

    async def get(self, group: str, *, cluster: str | None = None) -> GroupDetails:
        """Its settings on each broker that has it. Raises GroupNotFound if none has."""
        check_group(group)
        masters = await self._servers.masters(cluster)
        asked = await self._servers.each(masters, self._table, f"settings of {group}")
        found = {broker: table[group] for broker, table in asked.found.items() if group in table}
        if not found:
            raise _not_found(group, asked.failed)
        return GroupDetails(group, found, asked.failed)

    async def _table(self, server: ServerAddress) -> Mapping[str, GroupConfig]:
        """All groups of a broker. Asking for a single one might create it (autoCreateSubscriptionGroup)."""
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        answer = await self._servers.api.ask(server.address, code)
        return body_of(SubscriptionGroupWrapper, answer).subscription_group_table

    async def create(
        self, config: GroupConfig, *, cluster: str | None = None, broker: str | None = None
    ) -> tuple[str, ...]:
        """Create a group, or change it to this if it exists."""
        check_group(config.group_name)
        signed = replace(config, attributes={f"+{key}": value for key, value in config.attributes.items()})
        servers = await self._servers.masters(cluster, broker)
        what = f"create {config.group_name}"
        return tuple(await self._servers.every(servers, lambda server: self._put(server, signed), what))

    async def update(
        self, group: str, change: GroupChange, *, cluster: str | None = None, broker: str | None = None
    ) -> tuple[str, ...]:
        """Change the given settings and keep the others, on the brokers that have the group."""
        check_group(group)
        servers = await self._servers.masters(cluster, broker)
        tables = await self._servers.every(servers, self._table, f"settings of {group}")
        having = [each for each in servers if group in tables[each.title]]
        if not having:
            raise _not_found(group, {})

        async def tell(server: ServerAddress) -> None:
            wanted = replace(change.applied(tables[server.title][group]), attributes={})
            await self._put(server, wanted)

        return tuple(await self._servers.every(having, tell, f"change {group}"))

    async def _put(self, server: ServerAddress, config: GroupConfig) -> None:
        """Attributes of `config` are changes, with a sign before each name; others stay."""
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        await self._servers.api.ask(server.address, code, None, beans.encode(config))

    async def delete(
        self, group: str, *, cluster: str | None = None, broker: str | None = None, offsets: bool = True
    ) -> tuple[str, ...]:
        """Delete a group with its offsets; from a whole cluster, also its retry topic and dead letters."""
        check_group(group)
        servers = await self._servers.masters(cluster, broker)
        own = [topic for topic in (retry_topic(group), dlq_topic(group)) if await self._is_there(topic)]
        tables = await self._servers.every(servers, self._table, f"delete {group}")
        if not own and not any(group in table for table in tables.values()):
            raise _not_found(group, {})
        header = headers.DeleteSubscriptionGroupRequestHeader(group_name=group, clean_offset=offsets)

        async def tell(server: ServerAddress) -> None:
            await self._servers.api.ask(server.address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

        done = await self._servers.every(servers, tell, f"delete {group}")
        if broker is None:
            for topic in own:
                await self._topics.delete(topic, cluster=cluster)
        return tuple(done)

    async def _is_there(self, topic: str) -> bool:
        return await self._servers.api.route(topic) is not None

    # Members.

    async def members(self, group: str) -> GroupMembers:
        """Connected members and their subscriptions. Raises ConsumerOffline if there are none."""
        check_group(group)
        return await self._rosters.members(group)

    async def running(self, group: str, client_id: str, *, stacks: bool = False) -> ConsumerRunningInfo:
        """The state of one member; with `stacks` also the stacks of its threads."""
        check_group(group)
        return await self._rosters.running(group, client_id, stacks=stacks)

    async def positions(self, group: str, topic: str, client_id: str | None = None) -> Answers[MemberOffsets]:
        """The offsets that each member, or this one, reports for its queues."""
        check_group(group)
        check_topic(topic)
        return await self._rosters.positions(group, topic, client_id)

    # Progress.

    async def progress(self, group: str, topic: str | None = None, *, owners: bool = True) -> GroupProgress:
        """Offsets and lag of each queue; with `owners` its members are asked which queues they have.

        Works for groups without connected members too. Raises GroupNotFound if no broker knows the group.
        """
        check_group(group)
        if topic is not None:
            check_topic(topic)
        found = await progresses.progress(self._servers, self._rosters, group, topic, owners=owners)
        if not found.queues and not found.members:
            await self.get(group)  # A group without offsets is not the same as an unknown group.
        return found

    async def topics(self, group: str) -> Answers[str]:
        """Topics for which the group has offsets."""
        check_group(group)
        return await progresses.topics(self._servers, group)

    async def spans(self, group: str, topic: str) -> Answers[QueueSpan]:
        """The progress of a group with each queue, in time."""
        check_group(group)
        check_topic(topic)
        return await progresses.spans(self._servers, group, topic)

    # Offsets.

    async def reset(self, group: str, topic: str, to: Position, *, dry_run: bool = False) -> OffsetReset:
        """Move a group to another position, with or without connected members. A dry run only reports it."""
        check_group(group)
        check_topic(topic)
        await self.get(group)  # Else brokers that do not check would store offsets for a wrong name.
        return await resets.reset(self._servers, resets.Wish(group, topic, to), dry_run=dry_run)

    async def skip(self, group: str, topic: str, *, dry_run: bool = False) -> OffsetReset:
        """Skip to the end: messages that wait now are never consumed."""
        return await self.reset(group, topic, Position.end(), dry_run=dry_run)

    async def clone(self, source: str, target: str, topic: str | None = None) -> tuple[str, ...]:
        """Copy the offsets of the source to the target, for this topic or for all its topics.

        If the target does not exist, it is created with the settings of the source.
        """
        check_group(source)
        check_group(target)
        if source == target:
            raise InvalidParameter(f"source and target are both {source!r}: expected two groups")
        if topic is not None:
            check_topic(topic)
            topics: tuple[str, ...] = (topic,)
        else:
            answers = await self.topics(source)
            if answers.failed:
                raise Incomplete(f"topics of {source}", (), answers.failed)
            topics = tuple([each for each in answers if not is_own(each) and await self._is_there(each)])
        await self._make_alike(source, target)
        done: set[str] = set()
        for each in topics:
            done |= set(await resets.clone(self._servers, source, target, each))
        return tuple(sorted(done))

    async def _make_alike(self, source: str, target: str) -> None:
        masters = await self._servers.masters()
        tables = await self._servers.every(masters, self._table, f"settings of {source}")
        if not any(source in table for table in tables.values()):
            raise _not_found(source, {})
        missing = [
            each for each in masters if source in tables[each.title] and target not in tables[each.title]
        ]

        async def tell(server: ServerAddress) -> None:
            await self._put(server, replace(tables[server.title][source], group_name=target, attributes={}))

        await self._servers.every(missing, tell, f"create {target}")

    # Permissions.

    async def forbid(self, group: str, topic: str, *, cluster: str | None = None) -> tuple[str, ...]:
        """Forbid a group to read a topic. 5.0 and newer."""
        return tuple(await self._forbidden(group, topic, cluster, readable=False))

    async def allow(self, group: str, topic: str, *, cluster: str | None = None) -> tuple[str, ...]:
        return tuple(await self._forbidden(group, topic, cluster, readable=True))

    async def forbidden(self, group: str, topic: str, *, cluster: str | None = None) -> tuple[str, ...]:
        """Names of the brokers on which it is forbidden."""
        answers = await self._forbidden(group, topic, cluster, readable=None)
        return tuple(broker for broker, each in answers.items() if each.readable is False)

    async def _forbidden(
        self, group: str, topic: str, cluster: str | None, *, readable: bool | None
    ) -> Mapping[str, GroupForbidden]:
        check_group(group)
        check_topic(topic)
        header = headers.UpdateGroupForbiddenRequestHeader(group=group, topic=topic, readable=readable)

        async def tell(server: ServerAddress) -> GroupForbidden:
            code = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN
            return body_of(GroupForbidden, await self._servers.api.ask(server.address, code, header))

        masters = await self._servers.masters(cluster)
        return await self._servers.every(masters, tell, f"what {group} may read of {topic}")

    async def set_mode(
        self, group: str, topic: str, mode: MessageRequestMode, *, pop_share_queues: int = 0
    ) -> tuple[str, ...]:
        """Whether members pull or pop; with pop, how many members may share a queue. 5.0 and newer."""
        check_group(group)
        check_topic(topic)
        body = SetMessageRequestModeRequestBody(
            topic=topic, consumer_group=group, mode=mode, pop_share_queue_num=pop_share_queues
        )

        async def tell(server: ServerAddress) -> None:
            code = RequestCode.SET_MESSAGE_REQUEST_MODE
            await self._servers.api.ask(server.address, code, None, beans.encode(body))

        servers = await self._servers.of_topic(topic)
        return tuple(await self._servers.every(servers, tell, f"mode of {group} with {topic}"))


def _not_found(group: str, failed: Mapping[str, FlareError]) -> GroupNotFound:
    asked = f"; {', '.join(failed)} did not answer" if failed else ""
    return GroupNotFound(f"no master knows group {group!r}{asked}").with_hint(Hint.LIST_GROUPS)
