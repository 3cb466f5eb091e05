"""Single messages: found, scanned, tracked, consumed on demand and redelivered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from typing import Final

from flaremq.admin import progress
from flaremq.admin.members import MEMBER_TIMEOUT_S, Rosters, members_of
from flaremq.admin.messages import resend as resends
from flaremq.admin.messages import scans, traces
from flaremq.admin.messages import waiting as waitings
from flaremq.admin.messages.scans import READER
from flaremq.admin.messages.traces import TRACES_MAX
from flaremq.admin.messages.waiting import WAITING_MAX
from flaremq.admin.servers import ServerAddress, ServerCalls
from flaremq.admin.topics import Topics
from flaremq.admin.values.groups import GroupMembers
from flaremq.admin.values.messages import (
    FOUND_MAX,
    DirectResult,
    FoundMessage,
    Resent,
    Scan,
    TimeRange,
    Track,
    TrackState,
    WaitingMessages,
    found_in,
)
from flaremq.admin.values.outcome import Answers
from flaremq.admin.values.topics import TopicKind
from flaremq.admin.values.trace import Journey
from flaremq.base.errors import (
    ConsumerOffline,
    FlareError,
    Hint,
    InvalidParameter,
    Malformed,
    MessageNotFound,
    Refused,
    TopicNotFound,
)
from flaremq.client.api import body_of
from flaremq.client.message import Recall
from flaremq.model.message import MessageQueue
from flaremq.model.msgid import OffsetId, decode_offset_id
from flaremq.model.names import TRACE_TOPIC, check_group, check_topic
from flaremq.model.timers import Handle
from flaremq.protocol.bodies.group import (
    TAG,
    ConsumeMessageDirectlyResult,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.headers import pull as headers
from flaremq.protocol.headers.group import ConsumeMessageDirectlyResultRequestHeader

SEARCHED_MAX: Final = 1000
"""How many topics are searched for a message of unknown topic: about 3 requests each."""
_SEARCHED_AT_ONCE: Final = 16


class Messages:
    def __init__(self, servers: ServerCalls) -> None:
        self._servers = servers
        self._topics = Topics(servers)
        self._rosters = Rosters(servers)

    # Finding.

    async def get(self, message_id: str, topic: str | None = None) -> FoundMessage:
        """Find a message by its unique id, which the sender gave it, or its offset id, which is its place.

        The two look alike, so the place is tried first. A unique id is then looked up in the index of the
        topic or, without a topic, of one topic after the other, up to SEARCHED_MAX. MessageNotFound says
        what was searched.
        """
        place = _place_of(message_id)
        if topic is not None:
            check_topic(topic)
        address = str(place.host)
        server = next((each for each in await self._servers.all() if each.address == address), None)
        found = await self._at(server, place.physical_offset, topic) if server is not None else None
        if found is not None:
            return found
        if topic is None:
            return await self._search(message_id)
        copies = await self.by_unique_key(topic, message_id)
        if not copies:
            asked = f"; {', '.join(copies.failed)} did not answer" if copies.failed else ""
            raise MessageNotFound(f"message {message_id} is not in topic {topic!r}, or was deleted{asked}")
        return copies[0]

    async def _search(self, unique_key: str) -> FoundMessage:
        """Search all topics, ordinary ones before retries and dead letters."""
        kinds = (TopicKind.NORMAL, TopicKind.RETRY, TopicKind.DLQ)
        listed = [each for each in await self._topics.list() if each.kind in kinds]
        topics = [each.name for each in sorted(listed, key=lambda each: kinds.index(each.kind))]
        searched, failed = topics[:SEARCHED_MAX], dict[str, FlareError]()
        for begin in range(0, len(searched), _SEARCHED_AT_ONCE):
            part = searched[begin : begin + _SEARCHED_AT_ONCE]
            for copies in await asyncio.gather(*(self._searched(each, unique_key) for each in part)):
                if copies:
                    return copies[0]
                failed.update(copies.failed)
        of = f" of {len(topics):,}" if len(searched) < len(topics) else ""
        asked = f"; {', '.join(sorted(failed))} did not answer" if failed else ""
        raise MessageNotFound(
            f"message {unique_key} was not found: no broker has it at that place, and no index has the id "
            f"(topics searched: {len(searched):,}{of}){asked}"
        ).with_hint(Hint.NAME_OTHER_TOPIC if of else None)

    async def _searched(self, topic: str, unique_key: str) -> Answers[FoundMessage]:
        try:
            return await self.by_unique_key(topic, unique_key)
        except TopicNotFound:
            return Answers(())  # Deleted meanwhile.
        except FlareError as error:
            return Answers((), {topic: error})

    async def _at(
        self, server: ServerAddress, physical_offset: int, topic: str | None
    ) -> FoundMessage | None:
        """The message at that place, if there is one: a unique id may look like an offset id."""
        header = headers.ViewMessageRequestHeader(offset=physical_offset, topic=topic)
        try:
            answer = await self._servers.api.ask(server.address, RequestCode.VIEW_MESSAGE_BY_ID, header)
            return next(iter(found_in(answer.body or b"", server.name)), None)
        except Refused as error:
            if error.response_code == ResponseCode.SYSTEM_ERROR:
                return None
            raise
        except Malformed:
            return None

    async def by_unique_key(self, topic: str, unique_key: str) -> Answers[FoundMessage]:
        """All copies with this unique id, oldest first: a send may have been repeated."""
        answers = await self._query(topic, unique_key, TimeRange(), 32, unique=True)
        found = [each for each in answers if each.stored.unique_key == unique_key]
        return Answers(tuple(sorted(found, key=lambda each: each.stored_ms)), answers.failed)

    async def by_key(
        self, topic: str, key: str, within: TimeRange | None = None, *, count_max: int = FOUND_MAX
    ) -> Answers[FoundMessage]:
        """Messages with this key, newest first; at most count_max per broker."""
        if count_max < 1:
            raise InvalidParameter(f"count_max={count_max}: expected at least 1")
        answers = await self._query(topic, key, within or TimeRange(), count_max, unique=False)
        # Brokers search by hash, which another key may share.
        found = [each for each in answers if key in each.keys or key == each.stored.unique_key]
        found.sort(key=lambda each: (-each.stored_ms, each.queue, each.queue_offset))
        return Answers(tuple(found), answers.failed)

    async def _query(
        self, topic: str, key: str, within: TimeRange, count_max: int, *, unique: bool
    ) -> Answers[FoundMessage]:
        check_topic(topic)
        if not key.strip():
            raise InvalidParameter("the key is empty: expected a key that the sender set")
        header = headers.QueryMessageRequestHeader(
            topic=topic,
            key=key,
            max_num=count_max,
            begin_timestamp=within.begin_ms,
            end_timestamp=within.end_ms,
            unique_key_query=unique,
        )

        async def ask(server: ServerAddress) -> tuple[FoundMessage, ...]:
            try:
                answer = await self._servers.api.ask(server.address, RequestCode.QUERY_MESSAGE, header)
            except Refused as error:
                if error.response_code == ResponseCode.QUERY_NOT_FOUND:
                    return ()
                raise
            return tuple(found_in(answer.body or b"", server.name))

        answers = await self._servers.each(await self._servers.of_topic(topic), ask, f"messages of {key}")
        every: Iterable[FoundMessage] = (each for some in answers.found.values() for each in some)
        return Answers(tuple(each for each in every if each.topic == topic), answers.failed)

    async def by_offset(self, queue: MessageQueue, offset: int) -> FoundMessage:
        """The message at an offset. Raises MessageNotFound if there is none."""
        check_topic(queue.topic)
        if offset < 0:
            raise InvalidParameter(f"offset {offset}: expected 0 or more")
        server = await self._servers.one(queue.broker_name)
        return await scans.at(self._servers, server, queue, offset)

    def scan(self, wanted: Scan) -> AsyncGenerator[FoundMessage, None]:
        """Messages of a topic, queue by queue and in order; at most `count_max` of them.

        Messages stored after the start are left out. If a broker fails, the queues of the others are read,
        and then Incomplete is raised.
        """
        check_topic(wanted.topic)
        return scans.scan(self._servers, wanted)

    async def waiting(self, topic: str | None = None, count_max: int = WAITING_MAX) -> WaitingMessages:
        """Messages that are stored but not delivered yet, retries included, in the order in which they are
        due; of one topic, or of all. Reads on until `count_max` are found of a broker's timers, or of a delay
        level, or a million records were read. Then `partial` says so."""
        return await waitings.waiting(self._servers, topic, count_max)

    async def recall(self, handle: str) -> Recall:
        """Cancel a message that waits for its moment, by its recall handle."""
        parsed = Handle.parse(handle)
        server = await self._servers.one(parsed.broker_name)
        api = self._servers.api
        outcome, _ = await api.recall(server.address, handle, READER, api.timeout_s)
        return outcome

    async def trace(
        self,
        message_id: str,
        topic: str | None = None,
        trace_topic: str = TRACE_TOPIC,
        within: TimeRange | None = None,
        *,
        count_max: int = TRACES_MAX,
    ) -> Journey:
        """What happened to a message, as producers and consumers that trace have recorded it.

        `topic` keeps only records about messages of that topic; `within` is when records were stored. Reads
        at most `count_max` trace messages of each broker. Raises MessageNotFound if there is no record.
        """
        try:
            found = await self.by_key(trace_topic, message_id, within, count_max=count_max)
        except TopicNotFound:
            raise MessageNotFound(
                f"message {message_id} has no trace: topic {trace_topic!r} does not exist; producers and "
                "consumers with trace=True create it, if brokers allow that"
            ) from None
        return await traces.journey_of(message_id, topic, found, self.by_unique_key, trace_topic)

    # Consumption.

    async def track(self, message: FoundMessage) -> Answers[Track]:
        """The state of a message in each group that consumes its topic, or did."""
        groups = await self._topics.consumers(message.topic)
        found = await asyncio.gather(
            *(track(self._servers, self._rosters, message, group) for group in groups)
        )
        return Answers(tuple(found), groups.failed)

    async def consume_directly(
        self, message: FoundMessage, group: str, client_id: str | None = None
    ) -> DirectResult:
        """Have any member of a group, or this one, consume a message now, whatever its offset."""
        check_group(group)
        server = await self._servers.one(message.broker)
        online = await self._rosters.connections(server, group)
        known = sorted(each.client_id for each in online.connection_set) if online is not None else []
        if not known:
            raise ConsumerOffline(
                f"no member of group {group!r} is connected to {message.broker}, which has the message: "
                "start a consumer"
            )
        if client_id is not None and client_id not in known:
            raise InvalidParameter(
                f"group {group!r} has no member {client_id!r}: expected one of {', '.join(known)}"
            )
        chosen = client_id if client_id is not None else known[0]
        header = ConsumeMessageDirectlyResultRequestHeader(
            consumer_group=group,
            client_id=chosen,
            msg_id=message.offset_id,
            broker_name=message.broker,
            topic=message.topic,
        )
        code = RequestCode.CONSUME_MESSAGE_DIRECTLY
        answer = await self._servers.api.ask(server.address, code, header, None, MEMBER_TIMEOUT_S)
        said = body_of(ConsumeMessageDirectlyResult, answer)
        return DirectResult(
            group,
            chosen,
            said.consume_result,
            said.order,
            said.auto_commit,
            said.remark,
            said.spent_time_mills,
        )

    async def resend(self, letter: FoundMessage) -> Resent:
        """Send a dead letter to its group again, through its retry topic. The letter itself stays."""
        return await resends.resend(self._servers, letter)


def _place_of(message_id: str) -> OffsetId:
    try:
        return decode_offset_id(message_id)
    except Malformed as error:
        raise InvalidParameter(f"{error}: expected a message id; you can also search by key") from None


async def track(servers: ServerCalls, rosters: Rosters, message: FoundMessage, group: str) -> Track:
    try:
        online, answers = await asyncio.gather(
            rosters.online(group), progress.stats(servers, rosters, group, message.topic)
        )
    except FlareError as error:
        return Track(group, TrackState.UNKNOWN, False, str(error))
    members = members_of(group, online) if online.found else None
    if members is not None and members.consume_type is ConsumeType.CONSUME_ACTIVELY:
        return Track(group, TrackState.PULLS, True)
    if members is not None and members.message_model is MessageModel.BROADCASTING:
        return Track(group, TrackState.BROADCASTS, True)
    failure = answers.failed.get(message.broker)
    if failure is not None:
        return Track(group, TrackState.UNKNOWN, members is not None, str(failure))
    rows = {queue: row for each in answers.found.values() for queue, row in each.offset_table.items()}
    row = rows.get(message.queue)
    if row is None:
        state = TrackState.OFFLINE if members is None else TrackState.UNKNOWN
        return Track(group, state, members is not None, "the group has no offset in its queue")
    if row.consumer_offset <= message.queue_offset:
        return Track(group, TrackState.NOT_YET, members is not None)
    filtered = members is not None and not _wants(members, message)
    return Track(group, TrackState.FILTERED if filtered else TrackState.CONSUMED, members is not None)


def _wants(members: GroupMembers, message: FoundMessage) -> bool:
    """Whether the subscription matches its tag. Only the broker could evaluate an SQL expression."""
    said = next((each for each in members.subscriptions if each.topic == message.topic), None)
    if said is None or said.kind != TAG:
        return True
    tags = SubscriptionData.of(said.topic, said.expression).tags_set
    return not tags or message.tags in tags
