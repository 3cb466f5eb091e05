"""Messages as users send them and as the log stores them, and the queues they go through."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from flaremq.base.errors import MessageIllegal, PropertiesTooLong
from flaremq.model import properties as names
from flaremq.model.host import Host
from flaremq.model.layout import PROPERTIES_SIZE_MAX
from flaremq.model.msgid import encode_offset_id
from flaremq.model.properties import decode_properties, decode_text, encode_properties, find_property

__all__ = ["Host", "Message", "MessageQueue", "StoredMessage"]

_INT32: Final = range(-(2**31), 2**31)
_SECONDS_MAX: Final = 1e12  # Some 30,000 years.
_NO_KEYS: Final = ()
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Message:
    """A message to send. It validates itself, so that no broker has to refuse it for its form."""

    topic: str
    body: bytes
    _: KW_ONLY
    tags: str | None = None
    """One tag, which consumers can filter by."""
    keys: Sequence[str] = _NO_KEYS
    """Keys by which the message can be looked up later."""
    properties: Mapping[str, str] = field(default_factory=lambda: _NOTHING, hash=False)
    """User properties, kept as a read-only copy."""
    flag: int = 0
    """A number for your own use; RocketMQ ignores it."""
    delay_s: float | None = None
    """Deliver it so many seconds after it was stored."""
    deliver_at: datetime | float | None = None
    """Deliver it at this moment: a datetime with a time zone, or seconds since 1970 as of time.time()."""
    delay_level: int = 0
    """The older way, with the broker's few spans of time: 1 to 18 by default; 0 delivers at once."""
    wait_store: bool = True
    """Wait for the flush and the replicas that the broker is configured for."""
    sharding_key: str | None = None
    """Messages of one sharding key stay in order."""
    sequence: int | None = None
    """Your own number for it, for example its row: a producer with an id stores it once, however often it is
    sent. Default: the producer numbers its messages itself."""

    def __post_init__(self) -> None:
        # Made by the million: absent fields are not checked twice.
        topic, keys, properties = self.topic, self.keys, self.properties
        if keys is not _NO_KEYS:
            if isinstance(keys, str):
                raise MessageIllegal(
                    f"keys is a string, {keys!r}: expected a list, for example keys=[{keys!r}]"
                )
            if type(keys) is not tuple:
                object.__setattr__(self, "keys", tuple(keys))
        if properties is not _NOTHING:
            object.__setattr__(self, "properties", MappingProxyType(dict(properties)))
        if type(topic) is not str or not topic.strip() or type(self.body) is not bytes:
            _check_content(self)
        elif self.flag or self.delay_level or self.delay_s is not None or self.deliver_at is not None:
            _check_numbers(self)
        if self.sequence is not None:
            _check_sequence(self.sequence)
        if keys or properties or self.sharding_key:
            _check_words(self)
        elif self.tags:
            check_word("tags", self.tags)

    @property
    def waits(self) -> tuple[str, str] | None:
        """The property that asks for a later delivery, and its value."""
        if self.delay_level:
            return names.DELAY, str(self.delay_level)
        if self.delay_s is not None:
            return names.TIMER_DELAY_MS, str(math.ceil(self.delay_s * 1000))
        if self.deliver_at is not None:
            at = self.deliver_at
            at_s = at.timestamp() if isinstance(at, datetime) else at
            return names.TIMER_DELIVER_MS, str(math.ceil(round(at_s * 1000, 3)))
        return None

    def property_map(self) -> dict[str, str]:
        """All properties: the user's, and those of the other fields."""
        found = dict(self.properties)
        if self.keys:
            found[names.KEYS] = names.KEY_SEPARATOR.join(self.keys)
        if self.tags:
            found[names.TAGS] = self.tags
        if self.waits:
            name, value = self.waits
            found[name] = value
        if self.sharding_key:
            found[names.SHARDING_KEY] = self.sharding_key
        found[names.WAIT] = "true" if self.wait_store else "false"
        return found

    def encoded_properties(self) -> bytes:
        encoded = encode_properties(self.property_map())
        if len(encoded) > PROPERTIES_SIZE_MAX:
            raise PropertiesTooLong(len(encoded), PROPERTIES_SIZE_MAX)
        return encoded

    def __reduce__(self) -> tuple[Any, ...]:
        # The read-only view of the properties cannot be pickled; the message can.
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return _rebuilt, ({**values, "properties": dict(self.properties)},)


def _rebuilt(values: dict[str, Any]) -> Message:
    return Message(**values)


def _check_content(message: Message) -> None:
    topic: object = message.topic  # Not every caller has a type checker.
    body: object = message.body
    if not isinstance(topic, str) or not topic.strip():
        raise MessageIllegal(f"topic {topic!r}: expected the name of a topic")
    if not isinstance(body, bytes):
        kind = type(body).__name__
        raise MessageIllegal(f"body is {kind}, expected bytes: use text.encode() or bytes(buffer)")
    _check_numbers(message)


def _check_numbers(message: Message) -> None:
    if message.flag not in _INT32:
        raise MessageIllegal(f"flag {message.flag}: expected a 32-bit number")
    if not 0 <= message.delay_level < 2**31:
        raise MessageIllegal(
            f"delay_level {message.delay_level}: expected 0 for no delay, or a level of at least 1"
        )
    _check_moment(message)


def _check_moment(message: Message) -> None:
    given = [name for name in ("delay_level", "delay_s", "deliver_at") if getattr(message, name)]
    if len(given) > 1:
        raise MessageIllegal(f"{' and '.join(given)} are both given: expected one of them")
    at, delay_s = message.deliver_at, message.delay_s
    if isinstance(at, datetime) and at.tzinfo is None:
        raise MessageIllegal(
            f"deliver_at {at} has no time zone: for local time use deliver_at.astimezone(), "
            "for UTC deliver_at.replace(tzinfo=UTC)"
        )
    if at is not None and not isinstance(at, datetime):
        check_span("deliver_at", at, "seconds since 1970, or a datetime")
    if delay_s is not None:
        check_span("delay_s", delay_s, "a number of seconds, 0 or more")


def check_span(what: str, value: object, expected: str) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= _SECONDS_MAX:  # type: ignore[operator]
        raise MessageIllegal(f"{what} {value!r}: expected {expected}")


def _check_sequence(sequence: object) -> None:
    if type(sequence) is not int or not 0 <= sequence <= names.SEQUENCE_MAX:
        raise MessageIllegal(f"sequence {sequence!r}: expected a number from 0 to {names.SEQUENCE_MAX}")


def _check_words(message: Message) -> None:
    for key in message.keys:
        check_word("key", key)
        if key.split() != [key]:
            raise MessageIllegal(f"key {key!r} contains whitespace, which separates keys: replace it")
    if message.tags:
        check_word("tags", message.tags)
    if message.sharding_key:
        check_word("sharding_key", message.sharding_key)
    if not message.properties:
        return
    for name, value in message.properties.items():
        check_word("property name", name)
        check_word(f"value of property {name!r}", value)
        if name in names.RESERVED:
            raise MessageIllegal(f"property {name!r} is reserved: choose another name")
        if name == names.PRODUCER_SEQ:
            raise MessageIllegal(f"property {name!r}: use Message(sequence=...), and a producer with an id")
    other = message.properties.get(names.SHARDING_KEY)
    if message.sharding_key and other not in (None, message.sharding_key):
        raise MessageIllegal(
            f"sharding_key {message.sharding_key!r} differs from property {other!r}: give only one of them"
        )


def check_word(what: str, word: object) -> None:
    if not isinstance(word, str) or not word.strip():
        raise MessageIllegal(f"{what} {word!r}: expected a non-blank string")
    if names.NAME_END in word or names.PAIR_END in word:
        raise MessageIllegal(
            f"{what} {word!r} contains \\x01 or \\x02, which separate properties: remove them"
        )


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One decoded record. Body and properties are as in the log."""

    topic: str
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: Host
    store_timestamp_ms: int
    store_host: Host
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    """Still compressed if sys_flag says so."""
    raw_properties: bytes
    body_crc: int
    size: int
    """The size of the whole record in bytes."""

    @property
    def properties(self) -> dict[str, str]:
        """Decoded on each access: keep the result, or use `get` for a single one."""
        return decode_properties(self.raw_properties)

    def get(self, name: str) -> str | None:
        found = find_property(self.raw_properties, name.encode())
        return None if found is None else decode_text(found)

    @property
    def tags(self) -> str | None:
        return self.get(names.TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple((self.get(names.KEYS) or "").split())

    @property
    def unique_key(self) -> str | None:
        """The id that the sender gave it."""
        return self.get(names.UNIQ_KEY)

    @property
    def message_id(self) -> str:
        """The id that encodes its place in the log."""
        return encode_offset_id(self.store_host, self.physical_offset)


@dataclass(frozen=True, slots=True, order=True)
class MessageQueue:
    """One queue of a topic on one broker. Ordered by topic, broker, number."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        """Exactly Java's text: consistent hashing depends on it."""
        return f"MessageQueue [topic={self.topic}, brokerName={self.broker_name}, queueId={self.queue_id}]"
