"""Message ids that are the same when a batch is written again, so that a repeat can be recognised.

They have the form of all ids that producers make, because tools parse them:

    ip 4          F...    of a class that no host has: no client ever makes the same id
    pid 2, salt 4         a digest of what is written, by blocks of 65,536 rows
    time 4        0       since the month began
    counter 2             row within the block

The time cannot be that of sending, which differs in a repeat. Tools of RocketMQ 4 search for a message from
the time in its id on, counted from the beginning of the current month: with 0 they find all messages of this
month. Those of RocketMQ 5 ignore it.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

_BLOCK: Final = 1 << 16
_NO_TIME: Final = "0" * 8
HEAD_DIGITS: Final = 19
"""Digits of the digest after the F."""


def derived_ids(scope: str, first: int, count: int) -> list[str]:
    """The ids of `count` rows from `first` on. `scope` names what is written: query, batch, partition."""
    found: list[str] = []
    row, end = first, first + count
    while row < end:
        block, begin = divmod(row, _BLOCK)
        stop = min(_BLOCK, begin + end - row)
        head = _head(f"{scope}/{block}")
        found += [f"{head}{number:04X}" for number in range(begin, stop)]
        row += stop - begin
    return found


def _head(text: str) -> str:
    return f"F{sha256(text.encode()).hexdigest()[:HEAD_DIGITS].upper()}{_NO_TIME}"


def derived_id_sql(scope: str, column: str) -> str:
    """A Spark SQL expression for the id derived from another id, in this scope.

    The counter is part of the digest. `scope` is taken literally: any text is allowed.
    """
    literal = scope.encode().hex()
    digest = f"upper(sha2(concat(X'{literal}', X'2F', cast({column} AS BINARY)), 256))"
    head, tail = f"substr({digest}, 1, {HEAD_DIGITS})", f"substr({digest}, {HEAD_DIGITS + 1}, 4)"
    return f"concat('F', {head}, '{_NO_TIME}', {tail})"


def derived_id(scope: str, name: str) -> str:
    """The same as `derived_id_sql` gives for a row, without Spark."""
    digest = sha256(f"{scope}/{name}".encode()).hexdigest().upper()
    return f"F{digest[:HEAD_DIGITS]}{_NO_TIME}{digest[HEAD_DIGITS : HEAD_DIGITS + 4]}"
