"""Messages that both stores can be given, with whatever makes them unlike one another."""

from collections.abc import Iterable, Iterator

from tests.java.values import Draft, Element

from flaremq.base.units import KiB

BODY_MAX = 16 * KiB
"""maxMessageSize of every folder here. 4.x means the whole record by it, 5.x the body alone."""
STORE_HOST = "10.0.0.2:10911"
BORN_MS = 1_700_000_000_000
UNIQUE_SIZE = 32  # Of UNIQ_KEY, as clients make it.

_TOPICS = ("Orders", "Clicks", "%RETRY%billing", "a|b-c_d")
_TAGS = ("", "TagA", "TagB", "中文", "😀", "TagA || TagB")


def mixed(count: int, first: int = 0) -> list[Draft]:
    """Of several topics and queues; each number is the same message whenever it is asked for."""
    return [a_message(number) for number in range(first, first + count)]


def a_message(number: int) -> Draft:
    return Draft(
        topic=_TOPICS[number % 4],
        queue_id=number // 4 % 3,
        body=_body(number),
        properties=_properties(number),
        flag=number - 50,
        sys_flag=0x1 if number % 13 == 5 else 0,
        born_timestamp=BORN_MS + number,
        born_host=f"[2001:db8::{number:x}]:5000" if number % 11 == 3 else f"10.0.0.{number % 250}:5000",
        store_host=STORE_HOST,
        reconsume_times=number % 17,
    )


def _body(number: int) -> bytes:
    if number % 19 == 7:
        return b""
    if number % 97 == 20:  # As large as 4.x takes it with the properties of this number.
        return bytes(range(256)) * 62
    return f"Nr. {number}, grüße 你好 🎉 ".encode() * (1 + number % 30)


def _properties(number: int) -> bytes:
    """From none at all to several keys; sometimes with blanks too many, or without the last separator."""
    if number % 23 == 9:
        return b""
    pairs = {"TAGS": _TAGS[number % len(_TAGS)], "KEYS": _keys(number)}
    if number % 5:
        pairs["UNIQ_KEY"] = f"7F0000010001{number:0{UNIQUE_SIZE - 12}X}"
    pairs["colour"] = "bläu" * (number % 3)
    text = "".join(f"{name}\x01{value}\x02" for name, value in pairs.items() if value)
    return (text[:-1] if number % 3 == 1 else text).encode()


def _keys(number: int) -> str:
    choices = (
        "",
        f"order-{number}",
        f"user-{number % 9} order-{number}",
        f"  schlüssel-{number % 7}  键{number} ",
    )
    return choices[number % 7 % 4]


def keys_of(topic: str, properties: bytes) -> Iterator[tuple[str, str]]:
    """Every (topic, key) by which a message with these properties can be found."""
    known = dict(pair.split("\x01", 1) for pair in properties.decode().split("\x02") if "\x01" in pair)
    for key in (known.get("UNIQ_KEY", ""), *known.get("KEYS", "").split(" ")):
        if key:
            yield topic, key


def all_keys(drafts: Iterable[Draft]) -> list[tuple[str, str]]:
    return sorted({pair for draft in drafts for pair in keys_of(draft.topic, draft.properties)})


def batch_elements(number: int, count: int = 5) -> list[Element]:
    """Elements as a producer sends them: each property string ends with its separator."""
    return [
        Element(
            f"element {number}.{each}".encode() * (each % 7 * 3),
            f"KEYS\x01batch-{number} part-{number}-{each}\x02TAGS\x01TagB\x02".encode(),
            flag=each,
        )
        for each in range(count)
    ]
