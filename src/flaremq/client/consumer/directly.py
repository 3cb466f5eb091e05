"""A message that an operator makes a consumer consume, to see what comes of it."""

from __future__ import annotations

from time import monotonic

from flaremq.client.consumer.delivery import Delivery
from flaremq.client.consumer.member import Member
from flaremq.client.consumer.outcome import Later
from flaremq.client.message import received
from flaremq.model.message import MessageQueue
from flaremq.model.record import decode
from flaremq.protocol.bodies.group import CMResult, ConsumeMessageDirectlyResult


async def directly(
    member: Member, delivery: Delivery, record: bytes, broker_name: str
) -> ConsumeMessageDirectlyResult:
    """Consume one message now, whatever its offset, and tell what came of it. Nothing is stored of it."""
    stored = decode(record)
    (message,) = received(record, MessageQueue(stored.topic, broker_name, stored.queue_id))[:1]
    began_s = monotonic()
    failure = await delivery.call_once(message)
    spent_ms = round((monotonic() - began_s) * 1000)
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
