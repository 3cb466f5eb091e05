"""`flaremq tail`: the messages of a topic as they arrive.

It does not join a consumer group: it pulls with the group that brokers keep for tools, at any offset, and
stores none.
"""

from __future__ import annotations

import asyncio
import heapq
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from flaremq.admin.documents import message_document
from flaremq.base.errors import FlareError, Hint, NoRoute, TopicNotFound, Unreachable
from flaremq.cli.connect import client_settings
from flaremq.cli.messages.lines import line_of
from flaremq.cli.options import Namesrv, Profile, TopicName
from flaremq.cli.render import BadValue, dumps, note
from flaremq.cli.times import BEGIN, END, parse_time_ms, place_of
from flaremq.client.client import Client
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
_REST_S: Final = 1.0  # Pause after a failure.
_QUICK_S: Final = 0.1  # A broker that finds nothing this quickly does not hold pulls.
_LOOK_S: Final = 5.0  # How often new queues are looked for.
_READY_MAX: Final = 64


Came = list[ReceivedMessage] | FlareError | None
"""From the reader of a queue: messages, the error that ended it, or None at the end of the backlog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TailFilter:
    """Which messages, where to start, and when to stop."""

    topic: str
    begin: str = END
    """The beginning, the end, or a time."""
    tags: str | None = None
    sql: str | None = None
    follow: bool = True
    limit: int | None = None

    def __post_init__(self) -> None:
        check_topic(self.topic)
        if self.tags is not None and self.sql is not None:
            raise BadValue("--tags and --sql exclude each other: give one of them")
        if not self.follow and self.place == END:
            raise BadValue("--no-follow stops at the current end, so say where to start: --from beginning")
        if self.place is None:
            parse_time_ms(self.begin)

    @property
    def place(self) -> str | None:
        """BEGIN or END; None if it starts at a time."""
        return place_of(self.begin)

    @property
    def expression(self) -> str:
        return self.tags or ALL if self.sql is None else self.sql


class Tail:
    """Reads all queues at once. Messages that existed at the start are merged by store time; later ones are
    shown as they arrive."""

    def __init__(self, client: Client, wanted: TailFilter) -> None:
        self._client = client
        self._wanted = wanted
        # Once, at the start: "10m" means ten minutes before that, for every queue.
        self._begin_ms = 0 if wanted.place is not None else parse_time_ms(wanted.begin)
        self._tags = SubscriptionData.of(wanted.topic, wanted.tags or ALL).tags_set
        self._backlogs: list[asyncio.Queue[Came]] = []
        self._ready: asyncio.Queue[Came] = asyncio.Queue(_READY_MAX)
        self._readers: dict[MessageQueue, asyncio.Task[None]] = {}
        self._complained: set[str] = set()

    async def messages(self) -> AsyncIterator[ReceivedMessage]:
        """The messages of all queues, those of each queue in order."""
        await self._begin()
        watching = self._client.spawn("watch-queues", self._watch()) if self._wanted.follow else None
        shown = 0
        try:
            async for message in self._all():
                yield message
                shown += 1
                if shown == self._wanted.limit:
                    return
        finally:
            for task in (*self._readers.values(), *([watching] if watching else [])):
                task.cancel()

    async def _all(self) -> AsyncIterator[ReceivedMessage]:
        async for message in merged([_messages(each) for each in self._backlogs]):
            yield message
        while self._wanted.follow:
            came = _checked(await self._ready.get()) or []
            while not self._ready.empty():  # Arrived at the same moment from several queues: by time, too.
                came = came + (_checked(self._ready.get_nowait()) or [])
            for message in sorted(came, key=_stored_ms):
                yield message

    async def _begin(self) -> None:
        """Start to read all queues."""
        queues = await self._queues(wait=self._wanted.follow)
        if not queues:
            raise NoRoute(f"topic {self._wanted.topic!r} has no queue to read: see `flaremq topic show`")
        # Messages that arrived while we waited for the topic are new, too.
        begin = BEGIN if "topic" in self._complained else self._wanted.place
        for queue in queues:
            backlog: asyncio.Queue[Came] = asyncio.Queue(_READY_MAX)
            self._backlogs.append(backlog)
            self._read(queue, begin, backlog)

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
                missing = f"topic {self._wanted.topic!r} does not exist"
                raise TopicNotFound(missing).with_hint(Hint.LIST_TOPICS)
            if "topic" not in self._complained:
                self._complained.add("topic")
                note(f"topic {self._wanted.topic} does not exist yet: waiting for it")
            await asyncio.sleep(_REST_S)

    async def _watch(self) -> None:
        """Look for new queues of the topic, and read them from their beginning."""
        while True:
            await asyncio.sleep(_LOOK_S)
            for queue in await self._queues(wait=True):
                if queue not in self._readers:
                    self._read(queue, BEGIN, None)

    def _read(self, queue: MessageQueue, begin: str | None, backlog: asyncio.Queue[Came] | None) -> None:
        reader = self._reader(queue, begin, backlog)
        self._readers[queue] = self._client.spawn(f"tail-{queue}", reader)

    async def _reader(
        self, queue: MessageQueue, begin: str | None, backlog: asyncio.Queue[Came] | None
    ) -> None:
        """Read to the end of the queue, or forever. Waits for a broker that is away; when following, it does
        not hold up the backlogs of others."""
        offset: int | None = None
        end = 0
        while True:
            try:
                address = self._address(queue)
                if offset is None:
                    offset, end = await self._range(address, queue, begin)
                if backlog is not None and offset >= end:
                    await backlog.put(None)
                    backlog = None
                    if not self._wanted.follow:
                        return
                found, offset = await self._pulled(address, queue, offset)
                self._complained.discard(queue.broker_name)
                if backlog is not None:
                    await _put(backlog, [each for each in found if each.queue_offset < end])
                    found = [each for each in found if each.queue_offset >= end]
                await _put(self._ready if self._wanted.follow else None, found)
            except (Unreachable, NoRoute) as error:
                self._complain(queue.broker_name, error)
                if backlog is not None and self._wanted.follow:
                    await backlog.put(None)
                    backlog = None
                self._client.refresh_soon()
                await asyncio.sleep(_REST_S)
            except FlareError as error:
                await (backlog or self._ready).put(error)
                return

    def _address(self, queue: MessageQueue) -> str:
        address = self._client.routes.address(queue.broker_name)
        if address is None:
            raise NoRoute(f"broker {queue.broker_name} is not known any more")
        return address

    async def _range(self, address: str, queue: MessageQueue, begin: str | None) -> tuple[int, int]:
        api = self._client.api
        end = await api.max_offset(address, queue)
        if begin == END:
            return end, end
        first = await api.min_offset(address, queue)
        if begin is None:
            first = max(first, await api.offset_by_time(address, queue, self._begin_ms))
        return max(0, first), end

    async def _pulled(
        self, address: str, queue: MessageQueue, offset: int
    ) -> tuple[list[ReceivedMessage], int]:
        """Pull, waiting a while for new messages. Returns the offset to continue at, too."""
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
        found: list[ReceivedMessage] = []
        if pulled.code == ResponseCode.SUCCESS:
            found = [each for each in received(pulled.body, queue) if self._is_wanted(each, offset)]
        elif pulled.next_offset == offset and time.monotonic() - began_s < _QUICK_S:
            await asyncio.sleep(_REST_S)
        return found, pulled.next_offset

    def _is_wanted(self, message: ReceivedMessage, offset: int) -> bool:
        """Check again: brokers compare hashes of tags, and a batch may begin before the offset."""
        in_tags = self._wanted.sql is not None or not self._tags or message.tags in self._tags
        return in_tags and message.queue_offset >= offset

    def _complain(self, who: str, error: FlareError) -> None:
        if who not in self._complained:
            self._complained.add(who)
            note(f"{error.fact}; trying again")


async def merged(lines: Sequence[AsyncIterator[ReceivedMessage]]) -> AsyncIterator[ReceivedMessage]:
    """The messages of several queues by store time; those of one queue stay in their order."""
    heads: list[tuple[int, int, ReceivedMessage]] = []

    async def take(number: int) -> None:
        message = await anext(lines[number], None)
        if message is not None:
            heapq.heappush(heads, (_stored_ms(message), number, message))

    for number in range(len(lines)):
        await take(number)
    while heads:
        _, number, message = heapq.heappop(heads)
        yield message
        await take(number)


async def _messages(backlog: asyncio.Queue[Came]) -> AsyncIterator[ReceivedMessage]:
    while (came := _checked(await backlog.get())) is not None:
        for message in came:
            yield message


async def _put(to: asyncio.Queue[Came] | None, found: list[ReceivedMessage]) -> None:
    if found and to is not None:
        await to.put(found)


def _checked(came: Came) -> list[ReceivedMessage] | None:
    if isinstance(came, FlareError):
        raise came
    return came


def _stored_ms(message: ReceivedMessage) -> int:
    return message.store_timestamp_ms


async def run(wanted: TailFilter, settings: ClientSettings, *, json: bool) -> int:
    """Print messages. Returns how many."""
    shown = 0
    async with Client(settings=settings) as client:
        async for message in Tail(client, wanted).messages():
            if json:
                document = message_document(message.stored, message.broker_name)
                sys.stdout.write(dumps(document) + "\n")
            else:
                sys.stdout.write(line_of(message.stored, message.broker_name) + "\n")
            sys.stdout.flush()
            shown += 1
    return shown


def command(
    topic: TopicName,
    namesrv: Namesrv = None,
    profile: Profile = None,
    begin: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="end|beginning|TIME",
            help="Where to start: the end, the beginning, or a time such as 10m (ago) or 12:30.",
        ),
    ] = END,
    tags: Annotated[
        str | None, typer.Option("--tags", metavar="TAGS", help="Only these tags: TagA || TagB.")
    ] = None,
    sql: Annotated[
        str | None,
        typer.Option("--sql", metavar="EXPRESSION", help="Only messages that match: price > 10."),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow/--no-follow", help="Wait for new messages, or stop at the current end."),
    ] = True,
    limit: Annotated[
        int | None, typer.Option("-c", "--limit", metavar="N", min=1, help="Stop after N messages.")
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document per message, one per line.")
    ] = False,
) -> None:
    """Print the messages of a topic as they arrive, until Ctrl-C.

    Existing messages are merged by store time. No consumer group is involved and no offset is stored.
    """
    wanted = TailFilter(topic=topic, begin=begin, tags=tags, sql=sql, follow=follow, limit=limit)
    shown = asyncio.run(run(wanted, client_settings(namesrv, profile), json=json))
    if not shown and not json:
        typer.echo("No messages found.")
