"""The state that a running consumer reports to operators, and consumption on demand."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from typing import Any

from flaremq.client.consumer.assignment import Assignment
from flaremq.client.consumer.delivery import Delivery
from flaremq.client.consumer.member import GroupMember
from flaremq.client.consumer.outcome import Later
from flaremq.client.consumer.processqueue import ProcessQueue
from flaremq.client.message import received
from flaremq.model.message import MessageQueue
from flaremq.model.record import decode
from flaremq.protocol.bodies import running as names
from flaremq.protocol.bodies.group import CMResult, ConsumeMessageDirectlyResult
from flaremq.protocol.bodies.running import ConsumerRunningInfo, ProcessQueueInfo
from flaremq.protocol.codes import CURRENT_VERSION

_MIB = 1024 * 1024


def running_info(member: GroupMember, assignment: Assignment, *, stacks: bool) -> ConsumerRunningInfo:
    settings = member.settings
    return ConsumerRunningInfo(
        properties={
            names.PROP_NAMESERVER_ADDR: ";".join(member.client.settings.addresses),
            names.PROP_THREADPOOL_CORE_SIZE: str(settings.concurrency),
            names.PROP_CONSUME_ORDERLY: str(settings.orderly).lower(),
            names.PROP_CONSUME_TYPE: member.kind.name,
            names.PROP_CLIENT_VERSION: str(CURRENT_VERSION),
            names.PROP_CONSUMER_START_TIMESTAMP: str(member.started_ms),
        },
        subscription_set=tuple(member.subscriptions.values()),
        mq_table={queue: _info(held) for queue, held in assignment.queues.items()},
        status_table=member.figures.statuses(),
        jstack=python_stacks() if stacks else None,
    )


def _info(held: ProcessQueue) -> ProcessQueueInfo:
    first = held.first_offset
    return ProcessQueueInfo(
        commit_offset=held.commit_offset,
        cached_msg_min_offset=0 if first is None else first,
        cached_msg_max_offset=0 if first is None else held.last_offset,
        cached_msg_count=held.count,
        cached_msg_size_in_mib=held.size // _MIB,
        locked=held.locked,
        last_lock_timestamp=held.locked_ms,
        droped=held.dropped,
        last_pull_timestamp=held.pulled_ms,
        last_consume_timestamp=held.consumed_ms,
    )


def python_stacks() -> str:
    """The stacks of all threads of this process and all tasks of this event loop."""
    called = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = [
        f'"{called.get(ident, "?")}" id={ident}\n{"".join(traceback.format_stack(frame))}'
        for ident, frame in sys._current_frames().items()
    ]
    parts += [f'task "{task.get_name()}"\n{"".join(_waits(task))}' for task in asyncio.all_tasks()]
    return "\n".join(parts)


def _waits(task: asyncio.Task[Any]) -> list[str]:
    """The chain of awaits of a task, outermost first; `Task.get_stack` shows only the first of them."""
    lines: list[str] = []
    at: Any = task.get_coro()
    while at is not None:
        frame = getattr(at, "cr_frame", None)
        if frame is not None:
            lines += traceback.format_stack(frame, 1)
        at = getattr(at, "cr_await", None)
    return lines


async def directly(
    member: GroupMember, delivery: Delivery, record: bytes, broker_name: str
) -> ConsumeMessageDirectlyResult:
    """Consume one message now, whatever its offset, and report the outcome. No offset is stored."""
    stored = decode(record)
    (message,) = received(record, MessageQueue(stored.topic, broker_name, stored.queue_id))[:1]
    now_s = member.client.clock.monotonic_s
    began_s = now_s()
    failure = await delivery.call_once(message)
    spent_ms = round((now_s() - began_s) * 1000)
    order = member.settings.orderly
    if failure is None:
        return ConsumeMessageDirectlyResult(
            order=order, consume_result=CMResult.CR_SUCCESS, spent_time_mills=spent_ms
        )
    kind = CMResult.CR_LATER if isinstance(failure, Later) else CMResult.CR_THROW_EXCEPTION
    remark = f"{type(failure).__name__}: {failure}"
    return ConsumeMessageDirectlyResult(
        order=order, consume_result=kind, remark=remark, spent_time_mills=spent_ms
    )
