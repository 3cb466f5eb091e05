"""`flaremq tail`: the messages of a topic as they arrive.

It is nobody's consumer: it reads for the group that brokers keep for tools, says from which offset on,
and stores none.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from flaremq.base.errors import FlareError, InvalidParameter, NoRoute, TopicNotFound, Unreachable
from flaremq.cli.connect import client_settings
from flaremq.cli.documents import line_of, message_document
from flaremq.cli.options import Namesrv, Profile, TopicName
from flaremq.cli.render import dumps, note
from flaremq.cli.times import parse_time_ms
from flaremq.client.instance import Client
from flaremq.client.message import ReceivedMessage, received
from flaremq.client.settings import ClientSettings
from flaremq.model.message import MessageQueue
from flaremq.model.names import check_topic
from flaremq.protocol.bodies.group import ALL, SQL92, TAG, SubscriptionData
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.headers import pull as headers

_READER: Final = "TOOLS_CONSUMER"
_HOLD_MS: Final = 15_000
_TIMEOUT_S: Final = 30.0
_PULL_MAX: Final = 32
_REST_S: Final = 1.0  # After something has failed.
_QUICK_S: Final = 0.1  # A broker that says so soon that there is nothing new does not hold pulls.
_LOOK_S: Final = 5.0  # How often new queues are looked for.
_READY_MAX: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which messages, from where on, and when to stop."""

    topic: str
    begin: str = "end"
    """begin, end, or a time."""
    tags: str | None = None
    sql: str | None = None
    follow: bool = True
    limit: int | None = None

    def __post_init__(self) -> None:
        check_topic(self.topic)
        if self.tags is not None and self.sql is not None:
            raise InvalidParameter("--tags and --sql: give one of them")
        if not self.follow and self.begin == "end":
            raise InvalidParameter(
                "--no-follow ends where the topic ends now, so say where to begin: --from begin"
            )
        if self.begin not in ("begin", "end"):
            parse_time_ms(self.begin)

    @property
    def expression(self) -> str:
        return self.tags or ALL if self.sql is None else self.sql


class Tail:
    def __init__(self, client: Client, wanted: Wanted) -> None:
        self._client = client
        self._wanted = wanted
        # Once, at the start: "10m" means ten minutes before that, for every queue.
        self._begin_ms = 0 if wanted.begin in ("begin", "end") else parse_time_ms(wanted.begin)
        self._tags = SubscriptionData.of(wanted.topic, wanted.tags or ALL).tags_set
        self._ready: asyncio.Queue[list[ReceivedMessage] | FlareError | None] = asyncio.Queue(_READY_MAX)
        self._readers: dict[MessageQueue, asyncio.Task[None]] = {}
        self._complained: set[str] = set()

    async def messages(self) -> AsyncIterator[ReceivedMessage]:
        """Of all queues, each in its order."""
        left, open_queues = self._wanted.limit, await self._begin()
        watching = self._client.spawn("watch-queues", self._watch()) if self._wanted.follow else None
        try:
            while open_queues:
                came = await self._ready.get()
                if isinstance(came, FlareError):
                    raise came
                open_queues -= came is None
                for message in came or ():
                    yield message
                    if left is not None:
                        left -= 1
                        if not left:
                            return
        finally:
            for task in (*self._readers.values(), *([watching] if watching else [])):
                task.cancel()

    async def _begin(self) -> int:
        """Start to read all queues; how many there are."""
        queues = await self._queues(wait=self._wanted.follow)
        if not queues:
            raise NoRoute(f"topic {self._wanted.topic!r} has no queue to read: see `flaremq topic show`")
        # What a topic got while we waited for it came after we had begun to look.
        begin = "begin" if "topic" in self._complained else self._wanted.begin
        for queue in queues:
            self._read(queue, begin)
        return len(queues)

    async def _queues(self, *, wait: bool) -> tuple[MessageQueue, ...]:
        while True:
            try:
                route = await self._client.routes.refresh(self._wanted.topic)
            except Unreachable as error:
                if not self._readers:
                    raise
                self._complain("NameServers", error)
                return ()
            if route is not None:
                return route.readable
            if not wait:
                raise TopicNotFound(f"topic {self._wanted.topic!r} is unknown: see `flaremq topic list`")
            if "topic" not in self._complained:
                self._complained.add("topic")
                note(f"topic {self._wanted.topic} is not there yet: waiting for it")
            await asyncio.sleep(_REST_S)

    async def _watch(self) -> None:
        """Queues that a topic gets later are read from their begin."""
        while True:
            await asyncio.sleep(_LOOK_S)
            for queue in await self._queues(wait=True):
                if queue not in self._readers:
                    self._read(queue, "begin")

    def _read(self, queue: MessageQueue, begin: str) -> None:
        self._readers[queue] = self._client.spawn(f"tail-{queue}", self._reader(queue, begin))

    async def _reader(self, queue: MessageQueue, begin: str) -> None:
        """Until the end of the queue, or for ever. A broker that is away is waited for."""
        offset: int | None = None
        end: int | None = None
        while True:
            try:
                address = self._address(queue)
                if offset is None:
                    offset, end = await self._range(address, queue, begin)
                if not self._wanted.follow and end is not None and offset >= end:
                    await self._ready.put(None)
                    return
                offset = await self._pulled(address, queue, offset)
                self._complained.discard(queue.broker_name)
            except (Unreachable, NoRoute) as error:
                self._complain(queue.broker_name, error)
                self._client.refresh_soon()
                await asyncio.sleep(_REST_S)
            except FlareError as error:
                await self._ready.put(error)
                return

    def _address(self, queue: MessageQueue) -> str:
        address = self._client.routes.address(queue.broker_name)
        if address is None:
            raise NoRoute(f"broker {queue.broker_name} is not known any more")
        return address

    async def _range(self, address: str, queue: MessageQueue, begin: str) -> tuple[int, int]:
        api = self._client.api
        end = await api.max_offset(address, queue)
        if begin == "end":
            return end, end
        first = await api.min_offset(address, queue)
        if begin != "begin":
            first = max(first, await api.offset_by_time(address, queue, self._begin_ms))
        return max(0, first), end

    async def _pulled(self, address: str, queue: MessageQueue, offset: int) -> int:
        """Read on, or wait a while for what comes; where to go on."""
        began_s = time.monotonic()
        header = headers.PullMessageRequestHeader(
            consumer_group=_READER,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=_PULL_MAX,
            sys_flag=headers.SUBSCRIPTION | (headers.SUSPEND if self._wanted.follow else 0),
            commit_offset=0,
            suspend_timeout_millis=_HOLD_MS,
            subscription=self._wanted.expression,
            sub_version=0,
            expression_type=TAG if self._wanted.sql is None else SQL92,
            bname=queue.broker_name,
        )
        pulled = await self._client.api.pull(address, RequestCode.PULL_MESSAGE, header, _TIMEOUT_S)
        if pulled.code == ResponseCode.SUCCESS:
            found = [each for each in received(pulled.body, queue) if self._is_wanted(each, offset)]
            if found:
                await self._ready.put(found)
        elif pulled.next_offset == offset and time.monotonic() - began_s < _QUICK_S:
            await asyncio.sleep(_REST_S)
        return pulled.next_offset

    def _is_wanted(self, message: ReceivedMessage, offset: int) -> bool:
        """Brokers choose by a hash of tags, which two may share; batches may begin before the offset."""
        in_tags = self._wanted.sql is not None or not self._tags or message.tags in self._tags
        return in_tags and message.queue_offset >= offset

    def _complain(self, who: str, error: FlareError) -> None:
        if who not in self._complained:
            self._complained.add(who)
            note(f"{error}; trying again")


async def run(wanted: Wanted, settings: ClientSettings, *, json: bool) -> None:
    async with Client(settings=settings) as client:
        async for message in Tail(client, wanted).messages():
            if json:
                document = message_document(message.stored, message.broker_name)
                sys.stdout.write(dumps(document) + "\n")
            else:
                sys.stdout.write(line_of(message.stored, message.broker_name) + "\n")
            sys.stdout.flush()


def command(
    topic: TopicName,
    namesrv: Namesrv = None,
    profile: Profile = None,
    begin: Annotated[
        str, typer.Option("--from", metavar="end|begin|TIME", help="Where it begins: end, begin, 10m, 12:30")
    ] = "end",
    tags: Annotated[str | None, typer.Option("--tags", help="Only these: TagA || TagB.")] = None,
    sql: Annotated[str | None, typer.Option("--sql", help="Only what this holds for: price > 10.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Wait for more, or end where the topic ends now.")
    ] = True,
    limit: Annotated[int | None, typer.Option("-c", "--limit", min=1, help="End after so many.")] = None,
    json: Annotated[
        bool, typer.Option("--json", help="A JSON document for each message, one a line.")
    ] = False,
) -> None:
    """Show the messages of a topic as they arrive, until Ctrl-C.

    No group is touched, and no offset is stored: whoever consumes the topic does not notice.
    """
    wanted = Wanted(topic=topic, begin=begin, tags=tags, sql=sql, follow=follow, limit=limit)
    asyncio.run(run(wanted, client_settings(namesrv, profile), json=json))
