"""Values as JSON documents: one form for `--json` and for web pages.

A UTF-8 body is text, any other is base64; `body_encoding` says which.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeAlias

from flaremq.admin.values.groups import (
    GroupDetails,
    GroupInfo,
    GroupMembers,
    GroupProgress,
    GroupSummary,
    OffsetReset,
)
from flaremq.admin.values.messages import DirectResult, FoundMessage, Track, WaitingMessages
from flaremq.admin.values.outcome import Answers, Failed
from flaremq.admin.values.topics import (
    ConnectedClient,
    TopicDetails,
    TopicInfo,
    TopicRoute,
    TopicSettings,
    TopicStats,
    TopicTraffic,
)
from flaremq.base.errors import FlareError
from flaremq.base.text import both
from flaremq.base.units import MiB
from flaremq.model.compression import decompress
from flaremq.model.message import MessageQueue, StoredMessage
from flaremq.protocol.bodies.running import ConsumerRunningInfo

if TYPE_CHECKING:  # Reading store folders needs no client.
    from flaremq.client.message import Receipt

Document: TypeAlias = dict[str, object]
BODY_MAX: Final = 64 * MiB
"""The most that a body is decompressed to."""


def failures_document(failed: Failed) -> dict[str, str]:
    """Why each of these servers did not answer, by name."""
    return {name: str(error) for name, error in sorted(failed.items())}


# Topics.


def topics_document(found: Iterable[TopicInfo]) -> list[Document]:
    return [{"topic": each.name, "kind": each.kind.value, "clusters": list(each.clusters)} for each in found]


def settings_document(settings: TopicSettings) -> Document:
    return {
        "read_queues": settings.read_queues,
        "write_queues": settings.write_queues,
        "perm": int(settings.perm),
        "order": settings.order,
        "attributes": dict(settings.attributes),
    }


def topic_document(details: TopicDetails, groups: Answers[str], messages: int) -> Document:
    """A topic with its settings on each broker, its consumer groups and its number of messages."""
    return {
        "topic": details.name,
        "kind": details.kind.value,
        "messages": messages,
        "groups": list(groups),
        "order_conf": details.order_conf,
        "brokers": {name: settings_document(each) for name, each in sorted(details.brokers.items())},
        "failed": failures_document({**details.failed, **groups.failed}),
    }


def stats_document(topic: str, stats: TopicStats) -> Document:
    return {
        "topic": topic,
        "messages": stats.count,
        "put_tps": stats.put_tps,
        "queues": [
            {
                "broker": q.queue.broker_name,
                "queue_id": q.queue.queue_id,
                "min_offset": q.min_offset,
                "max_offset": q.max_offset,
                "messages": q.count,
                **both("newest", q.last_update_ms or 0),
            }
            for q in stats.queues
        ],
        "failed": failures_document(stats.failed),
    }


def route_document(topic: str, route: TopicRoute) -> Document:
    return {
        "topic": topic,
        "queues": [
            {
                "broker": each.broker,
                "read_queues": each.read_queues,
                "write_queues": each.write_queues,
                "perm": int(each.perm),
            }
            for each in route.queues
        ],
        "brokers": {
            each.name: {
                "cluster": each.cluster,
                "addresses": {str(n): address for n, address in each.addresses.items()},
            }
            for each in route.brokers
        },
        "order_conf": route.order_conf,
    }


def traffic_document(found: Iterable[TopicTraffic]) -> list[Document]:
    return [
        {
            "topic": each.topic,
            "group": each.group,
            "lag": each.lag,
            "in_tps": each.in_tps,
            "out_tps": each.out_tps,
            "in_today": each.in_today,
            "out_today": each.out_today,
        }
        for each in found
    ]


def topic_producers_document(topic: str, group: str, found: Answers[ConnectedClient]) -> Document:
    return {
        "topic": topic,
        "group": group,
        "clients": [connection_document(each) for each in found],
        "failed": failures_document(found.failed),
    }


def connection_document(each: ConnectedClient) -> Document:
    """A connected client."""
    return {
        "client_id": each.client_id,
        "address": each.address,
        "language": each.language,
        "version": each.version_name,
        "brokers": list(each.brokers),
    }


def shares_document(shares: Mapping[str, Sequence[MessageQueue]]) -> Document:
    """The queues of each client."""
    return {
        client: [{"broker": q.broker_name, "queue_id": q.queue_id} for q in share]
        for client, share in shares.items()
    }


# Consumer groups.


def names_document(found: Answers[GroupInfo]) -> Document:
    return {
        "groups": [{"group": g.name, "system": g.is_system, "brokers": list(g.brokers)} for g in found],
        "failed": failures_document(found.failed),
    }


def summaries_document(found: Answers[GroupSummary]) -> Document:
    return {
        "groups": [
            {
                "group": g.name,
                "members": g.members,
                "version": g.version_name,
                "type": name_of(g.consume_type),
                "model": name_of(g.message_model),
                "tps": g.tps,
                "lag": g.lag,
            }
            for g in found
        ],
        "failed": failures_document(found.failed),
    }


def group_document(group: str, details: GroupDetails) -> Document:
    """The settings of a group on each broker."""
    return {
        "group": group,
        "brokers": {name: config.to_dict() for name, config in sorted(details.brokers.items())},
        "failed": failures_document(details.failed),
    }


def members_document(group: str, found: GroupMembers) -> Document:
    return {
        "group": group,
        "type": name_of(found.consume_type),
        "model": name_of(found.message_model),
        "from": name_of(found.consume_from_where),
        "clients": [connection_document(each) for each in found.members],
        "subscriptions": [
            {"topic": s.topic, "kind": s.kind, "expression": s.expression} for s in found.subscriptions
        ],
        "failed": failures_document(found.failed),
    }


def progress_document(found: GroupProgress) -> Document:
    return {
        "group": found.group,
        "lag": found.lag,
        "retry_lag": found.retry_lag,
        "dead_letters": found.dead_letters,
        "inflight": found.inflight,
        "tps": found.tps,
        "members": found.members,
        "topics": dict(found.topics),
        "queues": [
            {
                "topic": q.queue.topic,
                "broker": q.queue.broker_name,
                "queue_id": q.queue.queue_id,
                "broker_offset": q.broker_offset,
                "consumer_offset": q.consumer_offset,
                "lag": q.lag,
                "inflight": q.inflight,
                "owner": q.owner,
                **both("last_consumed", q.last_consumed_ms or 0),
            }
            for q in found.queues
        ],
        "failed": failures_document(found.failed),
    }


def reset_document(found: OffsetReset) -> Document:
    return {
        "group": found.group,
        "topic": found.topic,
        "done": found.applied,
        "dry_run": not found.applied,
        "moves": [
            {"broker": m.queue.broker_name, "queue_id": m.queue.queue_id, "old": m.old, "new": m.new}
            for m in found.moves
        ],
    }


def running_document(group: str, found: Mapping[str, ConsumerRunningInfo]) -> Document:
    """The state that members report, by client id."""
    return {"group": group, "clients": {each: _member_document(info) for each, info in found.items()}}


def _member_document(info: ConsumerRunningInfo) -> Document:
    return {
        "properties": dict(info.properties),
        "subscriptions": [
            {"topic": each.topic, "expression": each.sub_string} for each in info.subscription_set
        ],
        "queues": [
            {
                "topic": queue.topic,
                "broker": queue.broker_name,
                "queue_id": queue.queue_id,
                "offset": state.commit_offset,
                "cached_messages": state.cached_msg_count,
                "cached_mib": state.cached_msg_size_in_mib,
                "locked": state.locked,
                **both("last_pull", state.last_pull_timestamp),
                **both("last_consumed", state.last_consume_timestamp),
            }
            for queue, state in sorted(info.mq_table.items())
        ],
        "rates": {
            topic: {
                "pull_ms": s.pull_rt,
                "pull_tps": s.pull_tps,
                "consume_ms": s.consume_rt,
                "ok_tps": s.consume_ok_tps,
                "failed_tps": s.consume_failed_tps,
                "failed_in_an_hour": s.consume_failed_msgs,
            }
            for topic, s in sorted(info.status_table.items())
        },
        "stacks": info.jstack,
    }


def name_of(value: Enum | None) -> str | None:
    """RocketMQ's word, if the value is known."""
    return None if value is None else value.name


# Messages.


def message_document(message: StoredMessage, broker_name: str | None = None) -> Document:
    """Everything about a stored message."""
    body, is_plain = plain_body(message)
    text, encoding = text_or_base64(body)
    return {
        "topic": message.topic,
        **({"broker_name": broker_name} if broker_name is not None else {}),
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "message_id": message.unique_key or message.message_id,
        "offset_id": message.message_id,
        "physical_offset": message.physical_offset,
        "size": message.size,
        "tags": message.tags,
        "keys": list(message.keys),
        "properties": message.properties,
        **both("born_at", message.born_timestamp_ms),
        **both("stored_at", message.store_timestamp_ms),
        "born_host": str(message.born_host),
        "store_host": str(message.store_host),
        "reconsume_times": message.reconsume_times,
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "body": text,
        "body_encoding": encoding if is_plain else f"{encoding}, still compressed",
    }


def messages_document(found: Iterable[FoundMessage], failed: Failed) -> Document:
    return {
        "messages": [message_document(each.stored, each.broker) for each in found],
        "failed": failures_document(failed),
    }


def waiting_document(found: WaitingMessages) -> Document:
    """Messages that are not delivered yet, in the order in which they are due."""
    return {
        "waiting": [
            {
                "topic": each.topic,
                "due_ms": each.due_ms,
                "why": each.why,
                "message_id": each.message.message_id,
                "keys": list(each.message.keys),
                "tags": each.message.tags,
                "broker": each.message.broker,
                "stored_ms": each.message.stored_ms,
                "recall_handle": each.recall_handle,
            }
            for each in found
        ],
        "failed": failures_document(found.failed),
        "partial": dict(found.partial),
    }


def tracks_document(tracks: Answers[Track]) -> Document:
    """What groups did with a message: two more keys of its document."""
    return {
        "groups": [
            {"group": t.group, "state": t.state.value, "online": t.online, "why": t.why} for t in tracks
        ],
        "failed": failures_document(tracks.failed),
    }


def direct_result_document(result: DirectResult) -> Document:
    return {
        "group": result.group,
        "client_id": result.client_id,
        "result": None if result.result is None else result.result.name,
        "remark": result.remark,
        "spent_ms": result.spent_ms,
    }


def receipt_document(receipt: Receipt) -> Document:
    return {
        "message_id": receipt.message_id,
        "offset_id": receipt.offset_id,
        "topic": receipt.queue.topic,
        "broker": receipt.queue.broker_name,
        "queue_id": receipt.queue.queue_id,
        "queue_offset": receipt.queue_offset,
        "status": receipt.status.name,
        **({} if receipt.recall_handle is None else {"recall_handle": receipt.recall_handle}),
    }


def text_or_base64(body: bytes) -> tuple[str, str]:
    """The body and its encoding: text if it is UTF-8."""
    try:
        return body.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(body).decode(), "base64"


def plain_body(message: StoredMessage) -> tuple[bytes, bool]:
    """The decompressed body and True; if that fails, the body as it is and False."""
    try:
        return decompress(message.body, message.sys_flag, BODY_MAX), True
    except FlareError:
        return message.body, False
