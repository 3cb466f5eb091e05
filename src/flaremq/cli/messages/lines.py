"""A message as a JSON document and as a line, the same wherever a command shows one.

A body that is UTF-8 is shown as text, others in JSON as base64 (`body_encoding` says which) and for people
with \\xff in place of each byte that is not text. No control character is ever shown as it is.
"""

from __future__ import annotations

import base64

from flaremq.base.errors import FlareError
from flaremq.base.units import MiB
from flaremq.cli.render import safe
from flaremq.cli.times import both, local
from flaremq.model.compression import decompress
from flaremq.model.message import StoredMessage

BODY_MAX = 64 * MiB
"""No body is unpacked to more."""


def text_or_base64(body: bytes) -> tuple[str, str]:
    """The body and how it is written: as text if it is UTF-8."""
    try:
        return body.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(body).decode(), "base64"


def shown_body(message: StoredMessage) -> str:
    """For people: on one line, and safe for a terminal."""
    return safe(plain_body(message)[0].decode("utf-8", "backslashreplace"))


def plain_body(message: StoredMessage) -> tuple[bytes, bool]:
    """The body without its compression, and whether it could be had so."""
    try:
        return decompress(message.body, message.sys_flag, BODY_MAX), True
    except FlareError:
        return message.body, False


def message_document(message: StoredMessage, broker_name: str | None = None) -> dict[str, object]:
    """All that is known of a stored message."""
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


def line_of(message: StoredMessage, broker_name: str, *, body: bool = True) -> str:
    """For people, in one line."""
    where = f"{broker_name}:{message.queue_id}/{message.queue_offset}"
    words = [each for each in (message.tags, *message.keys) if each]
    about = f"  [{' '.join(words)}]" if words else ""
    text = shown_body(message) if body else f"{len(message.body)} bytes"
    return f"{local(message.store_timestamp_ms)}  {safe(f'{where}{about}')}  {text}"
