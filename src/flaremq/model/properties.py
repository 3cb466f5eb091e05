r"""Message properties: `name \x01 value \x02`, repeated, in UTF-8.

Reading follows Java (MessageDecoder.string2messageProperties): pairs end at \x02, a name ends at the first
\x01, a pair without name or value is dropped, of equal names the last one counts, and the final \x02 may be
missing. Java also drops pairs of less than three characters; a name, the \x01 and a value are three already,
so that rule needs no code.
"""

import codecs
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from flaremq.model.layout import PROPERTIES_SIZE_MAX

NAME_END: Final = "\x01"
PAIR_END: Final = "\x02"
KEY_SEPARATOR: Final = " "

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
RETRY_TOPIC: Final = "RETRY_TOPIC"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
TRANSACTION_PREPARED: Final = "TRAN_MSG"
PRODUCER_GROUP: Final = "PGROUP"
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"
BUYER_ID: Final = "BUYER_ID"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
TRANSFER_FLAG: Final = "TRANSFER_FLAG"
CORRECTION_FLAG: Final = "CORRECTION_FLAG"
MQ2_FLAG: Final = "MQ2_FLAG"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
MSG_REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
UNIQ_KEY: Final = "UNIQ_KEY"
EXTEND_UNIQ_INFO: Final = "EXTEND_UNIQ_INFO"
CONSUME_START_TIME: Final = "CONSUME_START_TIME"
INNER_NUM: Final = "INNER_NUM"
INNER_BASE: Final = "INNER_BASE"
DUP_INFO: Final = "DUP_INFO"
CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
TRANSACTION_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_ID: Final = "__transactionId__"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
INSTANCE_ID: Final = "INSTANCE_ID"
CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
TTL: Final = "TTL"
ARRIVE_TIME: Final = "ARRIVE_TIME"
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
CLUSTER: Final = "CLUSTER"
MSG_TYPE: Final = "MSG_TYPE"
POP_CK: Final = "POP_CK"
POP_CK_OFFSET: Final = "POP_CK_OFFSET"
FIRST_POP_TIME: Final = "1ST_POP_TIME"
SHARDING_KEY: Final = "__SHARDINGKEY"
FORWARD_QUEUE_ID: Final = "PROPERTY_FORWARD_QUEUE_ID"
REDIRECT: Final = "REDIRECT"
INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
TRACE_CONTEXT: Final = "TRACE_CONTEXT"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
TIMER_DELAY_LEVEL: Final = "TIMER_DELAY_LEVEL"
TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
BORN_HOST: Final = "__BORNHOST"
BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
CRC32: Final = "__CRC32#"
DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
START_DELIVER_TIME: Final = "__STARTDELIVERTIME"
FAILURE_REASON: Final = "FAILURE_REASON"
"""Why the last attempt to consume a message failed. RocketMQ has no such property."""
FAILURE_TIME: Final = "FAILURE_TIME"
RESENT_FROM: Final = "RESENT_FROM"
"""Offset id of the dead letter that a message was sent again from. RocketMQ has no such property."""
PRODUCER_SEQ: Final = "PRODUCER_SEQ"
"""Ours: <producer id>:<sequence>. A broker stores a message with it once (broker/send/deduplication.py)."""
TRANSIENT_PREFIX: Final = "__RMQ.TRANSIENT."
"""Names with this prefix are never stored."""
TRANSIENT_TOPIC_SYS_FLAG: Final = TRANSIENT_PREFIX + "TOPIC_SYS_FLAG"
TRANSIENT_GROUP_SYS_FLAG: Final = TRANSIENT_PREFIX + "GROUP_SYS_FLAG"

# Exactly Java's MessageConst.STRING_HASH_SET: some meaningful names are not in it.
RESERVED: Final = frozenset(
    {
        *(KEYS, TAGS, WAIT, DELAY, RETRY_TOPIC, REAL_TOPIC, REAL_QUEUE_ID, TRANSACTION_PREPARED),
        *(PRODUCER_GROUP, MIN_OFFSET, MAX_OFFSET, BUYER_ID, ORIGIN_MESSAGE_ID, TRANSFER_FLAG),
        *(CORRECTION_FLAG, MQ2_FLAG, RECONSUME_TIME, MAX_RECONSUME_TIMES, MSG_REGION, TRACE_ON),
        *(UNIQ_KEY, EXTEND_UNIQ_INFO, CONSUME_START_TIME, DUP_INFO, INSTANCE_ID),
        *(TRANSACTION_PREPARED_QUEUE_OFFSET, CORRELATION_ID, REPLY_TO_CLIENT, TTL, ARRIVE_TIME),
        *(PUSH_REPLY_TIME, CLUSTER, MSG_TYPE, POP_CK, POP_CK_OFFSET, FIRST_POP_TIME),
        *(INNER_MULTI_QUEUE_OFFSET, TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS, TIMER_OUT_MS),
        *(TIMER_ENQUEUE_MS, TIMER_DEQUEUE_MS, TIMER_ROLL_TIMES, TIMER_DELAY_LEVEL, TIMER_DEL_UNIQKEY),
        *(BORN_HOST, BORN_TIMESTAMP, CRC32, DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID),
    }
)
"""Names that a user may not set."""

MARKS: Final = frozenset(
    {
        *(REAL_TOPIC, REAL_QUEUE_ID, INNER_NUM, INNER_BASE, INNER_MULTI_QUEUE_OFFSET),
        *(TRANSACTION_CHECK_TIMES, TRANSACTION_PREPARED_QUEUE_OFFSET, POP_CK, POP_CK_OFFSET, FIRST_POP_TIME),
    }
)
"""Notes that brokers make for themselves. From a client they would mislead its services, or Java's."""

SEQUENCE_MAX: Final = 2**63 - 1
_SEQUENCE: Final = re.compile(rb"([A-Za-z0-9._-]{1,64}):(0|[1-9][0-9]{0,18})")
_PAIR_END_BYTE: Final = 0x02
_LIKE_JAVA: Final = "flaremq-like-java"
_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def encode_properties(properties: Mapping[str, str | None]) -> bytes:
    """As Java writes them: None is skipped, every pair ends with a separator."""
    pairs = [f"{name}\x01{value}\x02" for name, value in properties.items() if value is not None]
    return "".join(pairs).encode("utf-8", "replace")


def decode_properties(raw: bytes) -> dict[str, str]:
    """Never raises: invalid UTF-8 becomes U+FFFD, incomplete pairs are dropped."""
    found: dict[str, str] = {}
    for pair in decode_text(raw).split(PAIR_END):
        name, _, value = pair.partition(NAME_END)
        if name and value:
            found[name] = value
    return found


def find_property(raw: bytes, name: bytes) -> bytes | None:
    """One value from the encoded properties, without decoding the others."""
    needle = name + b"\x01"
    end = len(raw)
    # From the end, as the last of equal names counts; an empty value does not count.
    while (at := raw.rfind(needle, 0, end)) >= 0:
        if at == 0 or raw[at - 1] == _PAIR_END_BYTE:
            start = at + len(needle)
            stop = raw.find(_PAIR_END_BYTE, start)
            value = raw[start:] if stop < 0 else raw[start:stop]
            if value:
                return value
        end = at + len(needle) - 1
    return None


def parse_sequence(value: bytes) -> tuple[bytes, int] | None:
    """The producer id and the sequence in a value of PRODUCER_SEQ; None if it has another form."""
    found = _SEQUENCE.fullmatch(value)
    if found is None or int(found[2]) > SEQUENCE_MAX:
        return None
    return found[1], int(found[2])


def decode_text(raw: bytes) -> str:
    """Decode UTF-8 as Java's `new String` does, with the same number of U+FFFD for invalid bytes."""
    return raw.decode("utf-8", _LIKE_JAVA)


def _replace_like_java(error: UnicodeError) -> tuple[str, int]:
    """Python replaces each byte of an encoded surrogate, Java all of them by one character."""
    assert isinstance(error, UnicodeDecodeError)
    surrogate = _SURROGATE.match(error.object, error.start)
    return "\ufffd", surrogate.end() if surrogate else error.end


codecs.register_error(_LIKE_JAVA, _replace_like_java)


# Why a message failed: two properties of the copy that is retried or becomes a dead letter.

REASON_SIZE_MAX: Final = 1000
"""Of a reason, in bytes."""
_ROOM: Final = 1024  # For properties that brokers add on the way: where it waits, when, and from where.
_REASON_SIZE_MIN: Final = 16  # Less would not be worth reading.
_BREAKS: Final = re.compile(r"[\x00-\x20\x7f-\xa0\u2028\u2029]+")
_CUT: Final = "..."


class Failure(NamedTuple):
    """The last failed attempt to consume a message."""

    reason: str
    """The exception, or the text of a `Later`, on one line."""
    at_ms: int
    """When it failed; 0 if that is unknown."""


def one_line(text: str, size_max: int = REASON_SIZE_MAX) -> str:
    """A text as a reason: on one line, without control characters, and cut to this number of bytes."""
    line = _BREAKS.sub(" ", text).strip()
    raw = line.encode("utf-8", "replace")
    if len(raw) > size_max:
        raw = raw[: size_max - len(_CUT)] + _CUT.encode()
    return raw.decode("utf-8", "ignore")


def add_failure(known: dict[str, str], reason: str | None, at_ms: int) -> bool:
    """Note a failure in the properties of a copy, instead of an earlier one. Returns whether it is there.

    The message is worth more than the reason: that is cut, or left out, if the properties are nearly full.
    """
    forget_failure(known)
    if not reason:
        return False
    time = str(at_ms)
    taken = len(encode_properties(known | {FAILURE_REASON: "", FAILURE_TIME: time}))
    room = PROPERTIES_SIZE_MAX - _ROOM - taken
    line = one_line(reason, min(room, REASON_SIZE_MAX)) if room >= _REASON_SIZE_MIN else ""
    if line:
        known[FAILURE_REASON], known[FAILURE_TIME] = line, time
    return bool(line)


def forget_failure(known: dict[str, str]) -> None:
    known.pop(FAILURE_REASON, None)
    known.pop(FAILURE_TIME, None)


def failure_in(get: Callable[[str], str | None]) -> Failure | None:
    """The failure that the properties of a retry or a dead letter tell of, if they do."""
    reason = get(FAILURE_REASON)
    if reason is None:
        return None
    time = get(FAILURE_TIME) or ""
    return Failure(reason, int(time) if time.isascii() and time.isdigit() else 0)
