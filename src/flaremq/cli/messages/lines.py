"""A message on one line for people, with all control characters escaped.

Bytes of a body that are not UTF-8 are shown as \\xff.
"""

from __future__ import annotations

from flaremq.admin.documents import plain_body
from flaremq.base.text import count
from flaremq.cli.render import safe
from flaremq.cli.times import local
from flaremq.model.message import StoredMessage


def shown_body(message: StoredMessage) -> str:
    """The body on one line, safe for a terminal."""
    return safe(plain_body(message)[0].decode("utf-8", "backslashreplace"))


def line_of(message: StoredMessage, broker_name: str, *, body: bool = True) -> str:
    """The message on one line."""
    where = f"{broker_name}:{message.queue_id}/{message.queue_offset}"
    words = [each for each in (message.tags, *message.keys) if each]
    about = f"  [{' '.join(words)}]" if words else ""
    text = shown_body(message) if body else count(len(message.body), "byte")
    return f"{local(message.store_timestamp_ms)}  {safe(f'{where}{about}')}  {text}"
