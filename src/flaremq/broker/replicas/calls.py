"""What a slave asks its master for: whole tables, page by page where the master can, and small bodies.

RocketMQ's slaves ask some of it at the VIP port, which no pulls slow down. A master of any version serves the
same at its main port, so that one is asked where the VIP port does not answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeAlias, TypeVar

from flaremq.base.clock import Clock
from flaremq.base.errors import Malformed, MessageNotFound, NotServed, Refused, Unreachable
from flaremq.broker.offload import Offload
from flaremq.model.topic import DataVersion, GroupConfig, TopicConfig
from flaremq.protocol import beans, fields
from flaremq.protocol.bodies.cluster import KVTable
from flaremq.protocol.bodies.group import SubscriptionGroupWrapper
from flaremq.protocol.bodies.route import TopicConfigSerializeWrapper
from flaremq.protocol.codes import RequestCode, ResponseCode, response_name
from flaremq.protocol.command import Command
from flaremq.protocol.fields import Header
from flaremq.protocol.headers import group as groups
from flaremq.protocol.headers import topic as topics
from flaremq.remoting.ports import VIP

B = TypeVar("B")
V = TypeVar("V")

Ask: TypeAlias = Callable[[str, Command, float], Awaitable[Command]]
"""Asks an address within a time: `Caller.call`."""

_PAGE: Final = 2000
_NO_VIP_S: Final = 60.0
"""For how long the main port is asked once the VIP port did not answer."""
_CONNECT_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class MasterTable(Generic[V]):
    """A table of the master, or a page of it."""

    version: DataVersion
    entries: Mapping[str, V]
    forbidden: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Of groups only."""
    total: int | None = None
    """How many entries the table has; None from a master that knows no pages, which tells all of them."""


_Fetch: TypeAlias = Callable[[int, DataVersion, int], Awaitable[MasterTable[V]]]
"""A page: the number of its first entry, the version of those before, how many entries."""


class MasterCalls:
    """Requests to whichever address is the master's at the moment."""

    def __init__(self, ask: Ask, offload: Offload, clock: Clock) -> None:
        self._ask = ask
        self._offload = offload
        self._clock = clock
        self._no_vip_until_s = 0.0

    async def body(
        self, address: str, code: RequestCode, limit_s: float, header: Header | None = None
    ) -> Command:
        """The answer. Raises NotServed for a code that the master does not know, MessageNotFound if it has
        nothing of the kind, Refused or Unreachable."""
        request = Command(code=code, ext_fields=None if header is None else fields.encode(header))
        answer = await self._ask(address, request, limit_s)
        if answer.code == ResponseCode.SUCCESS and answer.body is not None:
            return answer
        text = f"{address} answers {code.name} with {response_name(answer.code)}, {answer.remark}"
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise NotServed(text)
        if answer.code in (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR):
            raise MessageNotFound(text)
        raise Refused(text)

    async def at_vip(
        self, address: str, code: RequestCode, limit_s: float, header: Header | None = None
    ) -> Command:
        """The same from the VIP port if it answers."""
        vip = _vip(address)
        if vip is not None and self._clock.monotonic_s() >= self._no_vip_until_s:
            try:
                return await self.body(vip, code, min(limit_s / 2, limit_s - _CONNECT_S), header)
            except Unreachable:
                self._no_vip_until_s = self._clock.monotonic_s() + _NO_VIP_S
        return await self.body(address, code, limit_s, header)

    async def bean(self, cls: type[B], answer: Command) -> B:
        """The body of an answer. It may be large, so it is decoded in a thread."""
        return await self._offload.run(lambda: beans.decode(cls, answer.body))

    async def runtime(self, address: str, limit_s: float) -> Mapping[str, str]:
        """The figures of the master."""
        answer = await self.body(address, RequestCode.GET_BROKER_RUNTIME_INFO, limit_s)
        return (await self.bean(KVTable, answer)).table

    # Tables.

    async def topics(
        self, address: str, known: DataVersion, limit_s: float
    ) -> MasterTable[TopicConfig] | None:
        """All topics; None if the master's version is the one that is known."""

        async def fetch(begin: int, version: DataVersion, count: int) -> MasterTable[TopicConfig]:
            header = topics.GetAllTopicConfigRequestHeader(
                topic_seq=begin, data_version=beans.encode(version).decode(), max_topic_num=count
            )
            answer = await self.at_vip(address, RequestCode.GET_ALL_TOPIC_CONFIG, limit_s, header)
            told = await self.bean(TopicConfigSerializeWrapper, answer)
            total = fields.decode(topics.GetAllTopicConfigResponseHeader, answer.fields).total_topic_num
            return MasterTable(told.data_version, told.topic_config_table, total=total)

        return await _whole(fetch, known)

    async def groups(
        self, address: str, known: DataVersion, limit_s: float
    ) -> MasterTable[GroupConfig] | None:
        """All groups, and what is forbidden to them; None if the master's version is the known one."""

        async def fetch(begin: int, version: DataVersion, count: int) -> MasterTable[GroupConfig]:
            header = groups.GetAllSubscriptionGroupRequestHeader(
                group_seq=begin, data_version=beans.encode(version).decode(), max_group_num=count
            )
            answer = await self.body(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, limit_s, header)
            told = await self.bean(SubscriptionGroupWrapper, answer)
            header_told = fields.decode(groups.GetAllSubscriptionGroupResponseHeader, answer.fields)
            total = header_told.total_group_num
            return MasterTable(told.data_version, told.subscription_group_table, told.forbidden_table, total)

        return await _whole(fetch, known)


async def _whole(fetch: _Fetch[V], known: DataVersion) -> MasterTable[V] | None:
    """A table page by page, from its begin again whenever it changes in between.

    The first page is of one entry: nearly always, its version is all that is needed.
    """
    page = await fetch(0, known, 1)
    if page.version == known:
        return None
    version, entries, forbidden = page.version, dict(page.entries), dict(page.forbidden)
    while page.total is not None and len(entries) < page.total:
        page = await fetch(len(entries), version, _PAGE)
        if page.version != version:
            version, entries, forbidden = page.version, {}, {}
        if not page.entries and page.total is not None:
            if len(entries) < page.total - 1:
                raise Malformed(f"the master told {len(entries)} of {page.total} entries, and then no more")
            break
        entries.update(page.entries)
        forbidden.update(page.forbidden)
    return MasterTable(version, entries, forbidden)


def _vip(address: str) -> str | None:
    host, _, port = address.rpartition(":")
    number = int(port) + VIP if port.isascii() and port.isdigit() else 0
    return f"{host}:{number}" if number > 0 else None
