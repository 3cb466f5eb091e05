"""Pulls: answered with records just as they lie in the log, or parked until there are more.

    frames > [parse: columns] > permit and filter > reader > header + records, in one write

Record bytes are copied once, from the map to the answer; large records not at all.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Final

from flaremq.base.errors import Busy, FlareError, Forbidden
from flaremq.base.lifecycle import Owned
from flaremq.base.live import Live
from flaremq.broker.offload import Offload
from flaremq.broker.overload import late_remark
from flaremq.broker.pull.longpoll import LongPoll
from flaremq.broker.pull.permits import Permit, PullPermits
from flaremq.broker.pull.request import PullRequest, RequestSource, asked_of
from flaremq.broker.role import Role
from flaremq.broker.settings import BrokerSettings, FamilySettings
from flaremq.broker.stats.stats import Stats
from flaremq.broker.tables.broadcast import BroadcastPull
from flaremq.broker.tables.tables import Tables
from flaremq.model.columns import Bytes
from flaremq.protocol.bodies.route import MASTER_ID
from flaremq.protocol.bulk.answers import encode_pull_header
from flaremq.protocol.bulk.columns import Frame, Plain, Pull, PullAnswer
from flaremq.protocol.bulk.pulls import parse_pulls
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command, response_to
from flaremq.protocol.frame import encode_frame
from flaremq.remoting.gate import Gate, Right
from flaremq.remoting.turn import Batch, PlainRow
from flaremq.store.api import GetStatus, ReadResult
from flaremq.store.store import MessageStore

CODES: Final = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})

_CODE_OF: Final = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.NO_MATCHED_LOGIC_QUEUE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.NO_MESSAGE_IN_QUEUE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}
_AT_THE_END: Final = frozenset(
    {
        *(GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE),
        *(GetStatus.OFFSET_OVERFLOW_ONE, GetStatus.OFFSET_OVERFLOW_BADLY),
    }
)
"""There may be more once the queues have caught up with the log."""
_REMARKS: Final = {status: status.value.encode() for status in GetStatus}
_FOUND: Final = GetStatus.FOUND  # Enums are slow as keys, and this is the usual status.
_EMPTY: Final = (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE)
_BEYOND: Final = frozenset({*_EMPTY, GetStatus.OFFSET_OVERFLOW_BADLY})
_RESET: Final = b"OFFSET_RESET"
_OUTSIDE: Final = _BEYOND | {GetStatus.OFFSET_TOO_SMALL}
"""There is nothing at this offset here, but perhaps there is at the master."""
_ELSEWHERE_MS: Final = 1000
"""For how long such a pull is held in a slave whose master could serve it."""
_NO_AGE: Final = 1 << 40  # In milliseconds: no request is ever that old.


class PullLane:
    """All pulls of a broker."""

    def __init__(
        self,
        settings: Live[BrokerSettings],
        store: MessageStore,
        tables: Tables,
        stats: Stats,
        aside: Offload,
        families: FamilySettings,
        now_s: Callable[[], float] = perf_counter,
        *,
        role: Role,
        has_slaves: Callable[[], bool],
        has_master: Callable[[], bool],
    ) -> None:
        """`has_slaves` tells whether a consumer could read from a slave of ours now; `has_master`, in a
        slave, whether it could from our master."""
        self._role = role
        self._has_slaves = has_slaves
        self._has_master = has_master
        self._live = settings
        self._store = store
        self._tables = tables
        self._stats = stats
        self._aside = aside
        self._families = families
        self._now_s = now_s
        self._tasks = Owned()
        self._pulls: array[int] = array("q")
        self._permits = PullPermits(settings, tables)
        self.parked: LongPoll[PullRequest] = LongPoll(self._again, families.pull_max, now_s)

    @property
    def codes(self) -> frozenset[int]:
        return CODES

    @property
    def age_max_ms(self) -> int:
        families = self._families
        return min(families.pull_age_ms, families.lite_pull_age_ms) if families.fast_failure else _NO_AGE

    def parse(self, batch: Batch) -> int:
        pulls = parse_pulls(batch.data, batch.chunks, batch.frames, batch.pairs)
        self._pulls = pulls if batch.gate is None else _admitted(batch, batch.gate, pulls)
        return len(self._pulls) // Pull.WIDTH

    def run(self, batch: Batch, plain: Sequence[PlainRow]) -> None:
        pulls, self._pulls = self._pulls, array("q")
        waited_ms = batch.waited_ms
        for p in range(0, len(pulls), Pull.WIDTH):
            row = pulls[p : p + Pull.WIDTH]
            asked = PullRequest.of_row(row, batch)
            if waited_ms is None or not self._refused_as_late(asked, waited_ms[row[Pull.CHUNK]]):
                self._take(asked)
        for each in plain:
            try:
                asked = asked_of(each.command, each.source)
            except FlareError as error:
                if each.command.wants_answer:
                    answer = response_to(each.command, error.response_code, str(error))
                    each.source.send_bytes(encode_frame(answer))
                continue
            if waited_ms is None or not self._refused_as_late(asked, waited_ms[each.chunk]):
                self._take(asked)

    def _refused_as_late(self, asked: PullRequest, waited_ms: int) -> bool:
        """Refuse a pull that waited too long to be read: its client has given up on it."""
        families = self._families
        lite = asked.code == RequestCode.LITE_PULL_MESSAGE
        limit_ms = families.lite_pull_age_ms if lite else families.pull_age_ms
        if not families.fast_failure or waited_ms <= limit_ms:
            return False
        self._refuse(asked, Busy(late_remark(waited_ms, len(self.parked))))
        return True

    def _take(self, asked: PullRequest) -> None:
        """Serve a new pull, now or later. The offset that it brings counts now: by the time a late one is
        served, its consumer may have committed a newer one."""
        try:
            if self._role.is_slave and not self._live.now.slave_read:
                raise self._role.refusal("serves no pulls (slaveReadEnable=false)", ResponseCode.SYSTEM_BUSY)
            allowed = self._permits.of(asked)
        except FlareError as error:
            _when_writable(asked, partial(self._refuse, asked, error))
            return
        if asked.commits:
            self._tables.offsets.commit(asked.group, asked.topic, asked.queue_id, asked.commit_offset)
        if asked.source.is_full:
            _when_writable(asked, partial(self._serve, asked, allowed))
        else:
            self._serve(asked, allowed)

    def _serve(self, asked: PullRequest, allowed: Permit) -> None:
        try:
            if allowed.is_slow:
                asked.source.begun()
                self._tasks.spawn("pull", self._serve_aside(asked, allowed))
                return
            result = self._read(asked, allowed)
            if result.status is not _FOUND and result.status in _AT_THE_END and self._store.dispatcher.behind:
                # Another thread is still creating this queue: wait for it.
                asked.source.begun()
                self._tasks.spawn("pull", self._serve_aside(asked, allowed))
                return
            self._answer_first(asked, allowed, result)
        except FlareError as error:
            self._refuse(asked, error)

    async def _serve_aside(self, asked: PullRequest, allowed: Permit) -> None:
        """Serve a slow pull in a thread: expressions over many records, new queues."""

        def read() -> ReadResult:
            self._store.show()
            return self._read(asked, allowed)

        try:
            result = await self._aside.run(read)
            self._answer_first(asked, allowed, result)
            # What came while the thread was reading has woken nobody: the pull was not parked yet.
            topic, queue_id = asked.topic_bytes, asked.queue_id
            if (end := self._store.max_offset(topic, queue_id)) != result.max_offset:
                self.parked.arrived(topic, queue_id, end)
        except FlareError as error:
            self._refuse(asked, error)
        finally:
            asked.source.ended()

    # Reading and answering.

    def _read(self, asked: PullRequest, allowed: Permit) -> ReadResult:
        began_s = asked.began_s = self._now_s()
        result = self._get(asked, allowed)
        if result.status in _BEYOND and asked.scan_from > 0:
            self._store.show(wait=False)  # It may lie in the log. What stays there is not to be denied.
            result = self._get(asked, allowed)
        took_ms = (self._now_s() - began_s) * 1000
        if took_ms > self._stats.longest_get_ms:
            self._stats.got_took(took_ms)
        return result

    def _get(self, asked: PullRequest, allowed: Permit) -> ReadResult:
        return self._store.get(
            asked.topic_bytes, asked.queue_id, asked.scan_from, asked.count_max, selector=allowed.selector
        )

    def _answer_first(self, asked: PullRequest, allowed: Permit, result: ReadResult) -> None:
        """Answer a new pull, or park it."""
        reset = self._moved(asked) if self._may_be_moved(asked) else None
        if reset is not None:
            answer = self._header(asked, allowed, result, ResponseCode.PULL_OFFSET_MOVED)
            answer[PullAnswer.NEXT_BEGIN_OFFSET], answer[PullAnswer.BODY_SIZE] = reset, 0
            asked.source.send_bytes(encode_pull_header(answer, _RESET))
            return
        code = self._code(asked, result)
        if code == ResponseCode.PULL_NOT_FOUND and asked.may_wait:
            long = self._live.now.long_polling
            hold_ms = asked.suspend_ms if long else self._live.now.short_polling_ms
            if self._role.is_slave and result.status in _OUTSIDE and self._has_master():
                hold_ms = min(hold_ms, _ELSEWHERE_MS)
            if self.parked.park(asked.topic_bytes, asked.queue_id, asked, max(0, hold_ms) / 1000):
                return
        self._answer(asked, allowed, result, code)

    def _may_be_moved(self, asked: PullRequest) -> bool:
        """Whether `_moved` has to look: rarely, after a reset, for a proxy or a broadcasting group."""
        if self._tables.offsets.any_resets or asked.request_source is not RequestSource.SDK:
            return True
        group = self._tables.groups.get(asked.group)
        return group is not None and group.is_broadcasting

    def _moved(self, asked: PullRequest) -> int | None:
        """The offset at which the consumer must go on instead, if its offset was reset."""
        tables = self._tables
        reset = tables.offsets.take_reset(asked.group, asked.topic, asked.queue_id)
        if reset is not None and self._live.now.server_side_reset:
            return reset
        pull = self._broadcast_pull(asked) if self._live.now.broadcast_offsets else None
        if pull is None:
            return None
        first = tables.broadcast.first(pull)
        if first is None and pull.offset >= 0:
            tables.broadcast.update(pull)
        return first

    def _broadcast_pull(self, asked: PullRequest) -> BroadcastPull | None:
        """The pull of a broadcasting consumer, to be recorded; None for all others."""
        from_proxy = asked.request_source is RequestSource.PROXY_FOR_BROADCAST
        group = self._tables.groups.get(asked.group)
        if not from_proxy and (group is None or not group.is_broadcasting):
            return None
        client_id = asked.client_id
        if not client_id and group is not None:
            client_id = group.client_of(asked.source)
        if not client_id:
            return None
        return BroadcastPull(
            topic=asked.topic,
            group=asked.group,
            client_id=client_id,
            queue_id=asked.queue_id,
            offset=asked.offset,
            from_proxy=from_proxy,
        )

    def _code(self, asked: PullRequest, result: ReadResult) -> ResponseCode:
        if result.status is _FOUND:
            return ResponseCode.SUCCESS
        code = _CODE_OF[result.status]
        if result.status in _EMPTY and asked.offset != 0:
            code = ResponseCode.PULL_OFFSET_MOVED
        if code == ResponseCode.PULL_OFFSET_MOVED and not self._store.reader.corrects(result.status):
            # Asked to try again, a consumer would do so in a tight loop: it waits, as for any message that
            # is not there yet.
            return ResponseCode.PULL_NOT_FOUND
        return code

    def _again(self, asked: PullRequest, last: bool) -> bool | Awaitable[bool]:
        """Read again for a parked pull; True if it was answered. Expressions are evaluated in a thread."""
        try:
            allowed = self._permits.of(asked)
            if not last and self._store.max_offset(asked.topic_bytes, asked.queue_id) == asked.scan_from:
                return False  # Nothing new, as in most cases.
            if allowed.is_slow and not self.parked.closed:
                return self._again_aside(asked, allowed, last)
            return self._looked(asked, allowed, self._read(asked, allowed), last)
        except FlareError as error:
            self._refuse(asked, error)
        return True

    async def _again_aside(self, asked: PullRequest, allowed: Permit, last: bool) -> bool:
        try:
            result = await self._aside.run(lambda: self._read(asked, allowed))
            if not asked.is_open:
                return True
            return self._looked(asked, allowed, result, last)
        except FlareError as error:
            self._refuse(asked, error)
        return True

    def _looked(self, asked: PullRequest, allowed: Permit, result: ReadResult, last: bool) -> bool:
        code = self._code(asked, result)
        if not last and code != ResponseCode.SUCCESS:
            if result.status is GetStatus.NO_MATCHED_MESSAGE:
                asked.scan_from = result.next_offset  # The new messages do not match: wait on, from there.
            if code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY):
                return False
        if code == ResponseCode.PULL_NOT_FOUND and asked.scan_from != asked.offset:
            code = ResponseCode.PULL_RETRY_IMMEDIATELY  # So that it skips those next time.
        self._answer(asked, allowed, result, code)
        return True

    def _answer(self, asked: PullRequest, allowed: Permit, result: ReadResult, code: ResponseCode) -> None:
        answer = self._header(asked, allowed, result, code)
        if code is ResponseCode.SUCCESS:
            parts: list[Bytes] = [encode_pull_header(answer), *result.records]
            took_ms = (self._now_s() - asked.began_s) * 1000
            self._stats.got(asked.group, asked.topic, result.count, result.size, took_ms)
            if result.suggest_slave:
                self._stats.got_from_disk(asked.group, asked.topic, result.count, result.size)
            self._tables.offsets.pulled(asked.group, asked.topic, asked.queue_id, result.next_offset)
        else:
            parts = [encode_pull_header(answer, _REMARKS[result.status])]
            self._stats.missed()
        asked.source.send_parts(parts)

    def _header(
        self, asked: PullRequest, allowed: Permit, result: ReadResult, code: ResponseCode
    ) -> array[int]:
        group = allowed.group
        found = code is ResponseCode.SUCCESS
        return array(
            "q",
            (
                asked.serialize,
                asked.opaque,
                code,
                self._suggested(allowed, result),
                result.next_offset,
                result.min_offset,
                result.max_offset,
                allowed.topic.topic_sys_flag,
                group.group_sys_flag,
                result.size if found else 0,
            ),
        )

    def _suggested(self, allowed: Permit, result: ReadResult) -> int:
        """The id of the broker that the next pull should go to.

        What lies far behind the end of the log is read from the disk: better from that of a slave, as long as
        there is one. A slave sends back all others, while there is a master.
        """
        settings, group = allowed.settings, allowed.group
        if not settings.slave_read:
            return MASTER_ID
        if not self._role.is_slave:
            goes = result.suggest_slave and self._has_slaves()
            return group.which_broker_when_consume_slowly if goes else group.broker_id
        stays = result.suggest_slave or not self._has_master()
        return settings.broker_id if stays else MASTER_ID

    def _refuse(self, asked: PullRequest, error: FlareError) -> None:
        if asked.one_way:
            return
        request = Command(code=asked.code, opaque=asked.opaque, serialize_type=asked.serialize)
        ext_fields = {"forbiddenType": str(error.kind)} if isinstance(error, Forbidden) else None
        answer = response_to(request, error.response_code, str(error), ext_fields=ext_fields)
        asked.source.send_bytes(encode_frame(answer))

    async def close(self) -> None:
        await self.parked.aclose()
        if len(self._tasks):
            await asyncio.sleep(0)
        await self._tasks.aclose(timeout_s=5)


def _when_writable(asked: PullRequest, work: Callable[[], None]) -> None:
    """A small request can ask for a lot: a client that does not read has to wait, and takes no memory."""
    if not asked.source.is_full:
        work()
        return
    asked.source.when_writable(lambda: _when_writable(asked, work) if asked.is_open else None)


def _admitted(batch: Batch, gate: Gate, pulls: array[int]) -> array[int]:
    """The pulls that the gate admits by topic; all others are left to the plain lane."""
    asked: dict[tuple[int, bytes], bool] = {}
    kept = array("q")
    for p in range(0, len(pulls), Pull.WIDTH):
        at, chunk = pulls[p + Pull.TOPIC_AT], pulls[p + Pull.CHUNK]
        pair = chunk, bytes(batch.data[at : at + pulls[p + Pull.TOPIC_SIZE]])
        if pair not in asked:
            asked[pair] = gate.admits(batch.sources[chunk], pair[1], Right.PULL)
        if asked[pair]:
            kept += pulls[p : p + Pull.WIDTH]
        else:
            batch.frames[pulls[p + Pull.FRAME] * Frame.WIDTH + Frame.PLAIN] = Plain.FIELDS
    return kept
