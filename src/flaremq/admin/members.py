"""Connected members of a group, and what they report when brokers ask them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from flaremq.admin.servers import ServerAddress, ServerCalls
from flaremq.admin.values.groups import GroupMembers, MemberOffsets, Subscription
from flaremq.admin.values.outcome import Answers, Gathered
from flaremq.admin.values.topics import ConnectedClient
from flaremq.admin.wording import version_name
from flaremq.base.errors import ConsumerOffline, FlareError, InvalidParameter
from flaremq.client.api import body_of
from flaremq.model.message import MessageQueue
from flaremq.model.names import retry_topic
from flaremq.protocol.bodies import running
from flaremq.protocol.bodies.group import GetConsumerStatusBody
from flaremq.protocol.bodies.running import ConsumerConnection, ConsumerRunningInfo
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.headers import group as headers

MEMBER_TIMEOUT_S: Final = 15.0
"""A broker waits 10 s for a member before it answers."""


class Rosters:
    def __init__(self, servers: ServerCalls) -> None:
        self._servers = servers

    async def homes(self, group: str) -> tuple[ServerAddress, ...]:
        """All brokers that may know of a group: every master, and slaves of its retry topic without one."""
        found = {each.name: each for each in await self._servers.all() if not each.id}
        for each in await self._servers.of_topic_or_none(retry_topic(group)) or ():
            found.setdefault(each.name, each)
        return tuple(found[name] for name in sorted(found))

    async def online(self, group: str) -> Gathered[ConsumerConnection]:
        """Connected members by broker; brokers without any are left out."""
        asked = await self._servers.try_each(
            await self.homes(group), lambda server: self.connections(server, group)
        )
        found = {broker: each for broker, each in asked.found.items() if each is not None}
        return Gathered(found, asked.failed)

    async def connections(self, server: ServerAddress, group: str) -> ConsumerConnection | None:
        """The members connected to a broker; None if there are none."""
        header = headers.GetConsumerConnectionListRequestHeader(consumer_group=group)
        code = RequestCode.GET_CONSUMER_CONNECTION_LIST
        try:
            answer = await self._servers.api.ask(server.address, code, header)
        except ConsumerOffline:
            return None
        found = body_of(ConsumerConnection, answer)
        return found if found.connection_set else None

    async def members(self, group: str) -> GroupMembers:
        answers = await self.online(group)
        if not answers.found:
            asked = f" ({', '.join(answers.failed)} did not answer)" if answers.failed else ""
            raise ConsumerOffline(f"no member of group {group!r} is connected{asked}: start a consumer")
        return members_of(group, answers)

    async def running(self, group: str, client_id: str, *, stacks: bool) -> ConsumerRunningInfo:
        members = await self.members(group)
        member = next((each for each in members.members if each.client_id == client_id), None)
        if member is None:
            known = ", ".join(each.client_id for each in members.members)
            raise InvalidParameter(f"group {group!r} has no member {client_id!r}: expected one of {known}")
        return await self.running_at(group, client_id, member.brokers, stacks=stacks)

    async def running_at(
        self, group: str, client_id: str, brokers: tuple[str, ...], *, stacks: bool = False
    ) -> ConsumerRunningInfo:
        """Ask a member through any broker that knows it; if one fails, through the next."""
        header = headers.GetConsumerRunningInfoRequestHeader(
            consumer_group=group, client_id=client_id, jstack_enable=stacks
        )
        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        failure: FlareError | None = None
        for server in await self.homes(group):
            if server.title not in brokers:
                continue
            try:
                answer = await self._servers.api.ask(server.address, code, header, None, MEMBER_TIMEOUT_S)
                return body_of(ConsumerRunningInfo, answer)
            except FlareError as error:
                failure = error
        raise failure or ConsumerOffline(
            f"member {client_id!r} of group {group!r} has disconnected: list the members again"
        )

    async def positions(self, group: str, topic: str, client_id: str | None) -> Answers[MemberOffsets]:
        header = headers.GetConsumerStatusRequestHeader(topic=topic, group=group, client_addr=client_id)

        async def ask(server: ServerAddress) -> GetConsumerStatusBody:
            code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
            try:
                answer = await self._servers.api.ask(server.address, code, header, None, MEMBER_TIMEOUT_S)
            except ConsumerOffline:
                return GetConsumerStatusBody()
            return body_of(GetConsumerStatusBody, answer)

        servers = await self._servers.of_topic(topic)
        asked = await self._servers.each(servers, ask, f"offsets of members of {group}")
        found: dict[str, dict[MessageQueue, int]] = {}
        for each in asked.found.values():
            for member, offsets in each.consumer_table.items():
                found.setdefault(member, {}).update(offsets)
        if not found and not asked.failed:
            raise ConsumerOffline(f"no member of group {group!r} is connected: start a consumer")
        reported = (MemberOffsets(member, dict(sorted(found[member].items()))) for member in sorted(found))
        return Answers(tuple(reported), asked.failed)


def members_of(group: str, answers: Gathered[ConsumerConnection]) -> GroupMembers:
    """Merge the answers of all brokers. If subscriptions differ, the newer one counts."""
    wanted: dict[str, Subscription] = {}
    for each in answers.found.values():
        for topic, said in each.subscription_table.items():
            known = wanted.get(topic)
            if known is None or said.sub_version > known.version:
                wanted[topic] = Subscription(topic, said.sub_string, said.expression_type, said.sub_version)
    first = next(iter(answers.found.values()))
    return GroupMembers(
        group,
        joined({broker: each.connection_set for broker, each in answers.found.items()}),
        tuple(wanted[topic] for topic in sorted(wanted)),
        first.consume_type,
        first.message_model,
        first.consume_from_where,
        answers.failed,
    )


def joined(by_broker: Mapping[str, Iterable[running.ClientConnection]]) -> tuple[ConnectedClient, ...]:
    """One entry per client id, sorted, with all brokers that know it."""
    known: dict[str, running.ClientConnection] = {}
    brokers: dict[str, list[str]] = {}
    for broker, connections in by_broker.items():
        for each in connections:
            known.setdefault(each.client_id, each)
            brokers.setdefault(each.client_id, []).append(broker)
    return tuple(
        ConnectedClient(
            client_id,
            each.client_addr or "",
            each.language.name if each.language is not None else "OTHER",
            each.version,
            version_name(each.version),
            tuple(brokers[client_id]),
        )
        for client_id, each in sorted(known.items())
    )
