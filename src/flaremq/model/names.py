"""Names of topics and groups: valid ones, the system's own, and derived ones."""

import re
from typing import Final

from flaremq.base.errors import InvalidName

TOPIC_LENGTH_MAX: Final = 127
"""A V1 record has one signed byte for the length."""
DERIVED_TOPIC_LENGTH_MAX: Final = 255
"""For %RETRY% and %DLQ% topics."""
GROUP_LENGTH_MAX: Final = 120
"""So that %RETRY% and the group fit into TOPIC_LENGTH_MAX."""

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
LMQ_PREFIX: Final = "%LMQ%"
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"

AUTO_CREATE_TOPIC: Final = "TBW102"
"""The template for topics that are created by a first send."""
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
TRANS_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT_TOPIC: Final = "OFFSET_MOVED_EVENT"
ROCKSDB_OFFSET_TOPIC: Final = "CHECKPOINT_TOPIC"
TIMER_TOPIC: Final = SYSTEM_TOPIC_PREFIX + "wheel_timer"
DLQ_MARKS_TOPIC: Final = "FLAREMQ_DLQ_MARKS"
"""Notes which dead letters were resent or purged. An ordinary topic, which any broker can have."""
MEMBER_GROUP_PREFIX: Final = SYSTEM_TOPIC_PREFIX + "SYNC_BROKER_MEMBER_"
"""Followed by the name of a broker: a topic whose route is the members of its group."""
TABLES_TOPIC: Final = SYSTEM_TOPIC_PREFIX + "flaremq_tables"
"""What changes in the tables of a Raft group's leader, for the other members."""
RAFT_TOPIC: Final = SYSTEM_TOPIC_PREFIX + "raft"
"""What a Raft group says in its own log. Its records are in no queue."""
UNDELIVERED_TOPIC: Final = SYSTEM_TOPIC_PREFIX + "undelivered"
"""Delayed messages that could not be delivered to their own topic. RocketMQ would drop them."""

SYSTEM_TOPICS: Final = frozenset(
    {
        *(AUTO_CREATE_TOPIC, SCHEDULE_TOPIC, BENCHMARK_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC),
        *(TRANS_CHECK_MAX_TIME_TOPIC, TRACE_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_EVENT_TOPIC),
        ROCKSDB_OFFSET_TOPIC,
    }
)
NO_SEND_TOPICS: Final = frozenset(
    {
        *(SCHEDULE_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC),
        *(SELF_TEST_TOPIC, OFFSET_MOVED_EVENT_TOPIC, TIMER_TOPIC, TABLES_TOPIC, RAFT_TOPIC),
    }
)
"""Clients may not send to them."""

_PRODUCER_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_WRONG: Final = re.compile(r"[^%|a-zA-Z0-9_-]")


def check_topic(name: str) -> None:
    """Raises InvalidName unless it is a valid topic name. System topics are valid here."""
    derived = name.startswith((RETRY_PREFIX, DLQ_PREFIX))
    _check("topic", name, DERIVED_TOPIC_LENGTH_MAX if derived else TOPIC_LENGTH_MAX)


def check_group(name: str) -> None:
    _check("group", name, GROUP_LENGTH_MAX)


def check_producer_id(name: object) -> None:
    """Raises InvalidName unless messages can be numbered under it (PRODUCER_SEQ)."""
    if not isinstance(name, str) or not _PRODUCER_ID.fullmatch(name):
        raise InvalidName(
            f"producer id {name!r}: expected 1 to 64 letters, digits, dots, hyphens or underscores"
        )


def _check(what: str, name: str, length_max: int) -> None:
    if not name:
        raise InvalidName(f"the {what} name is empty: use letters, digits, %, |, _ or -")
    wrong = _WRONG.search(name)
    if wrong:
        raise InvalidName(
            f"invalid {what} name {name!r}: {wrong[0]!r} is not allowed; use letters, digits, %, |, _ or -"
        )
    if len(name) > length_max:
        raise InvalidName(
            f"{what} {name!r} has {len(name)} characters, the limit is {length_max}: shorten it"
        )


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    return DLQ_PREFIX + group


def reply_topic(cluster: str) -> str:
    return f"{cluster}_REPLY_TOPIC"


def revive_topic(cluster: str) -> str:
    return f"{SYSTEM_TOPIC_PREFIX}REVIVE_LOG_{cluster}"


def sync_member_topic(broker_name: str) -> str:
    return MEMBER_GROUP_PREFIX + broker_name


def is_retry(topic: str) -> bool:
    return topic.startswith(RETRY_PREFIX)


def is_dlq(topic: str) -> bool:
    return topic.startswith(DLQ_PREFIX)


def is_lmq(topic: str) -> bool:
    return topic.startswith(LMQ_PREFIX)


def is_system(topic: str) -> bool:
    """By name alone. A broker adds topics named after its cluster and itself."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_system_group(group: str) -> bool:
    return group.startswith(SYSTEM_GROUP_PREFIX)
