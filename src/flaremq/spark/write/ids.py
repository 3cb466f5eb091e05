"""Message ids that come out the same when a batch is written again, so that a repeat can be recognised.

They have the form of all ids that senders make, because others take them apart:

    ip 4          F...    of a class that no host has: no client ever makes the same id
    pid 2, salt 4         a digest of what is written, by blocks of 65,536 rows
    time 4        0       since the month began
    counter 2             row within the block

The time cannot be that of the sending, which is another one the second time. Tools of RocketMQ 4 look for a
message from the time in its id on, counted from the beginning of the present month: with 0 they find all that
came this month. Those of RocketMQ 5 do not look at it.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

_BLOCK: Final = 1 << 16
_NO_TIME: Final = "0" * 8
HEAD_DIGITS: Final = 19
"""Of the digest, behind the F."""


def derived_ids(scope: str, first: int, count: int) -> list[str]:
    """Of rows `first` and following. `scope` says what is written: the query, its batch, the partition."""
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
    """A Spark SQL expression: the id for what another id names, in this scope. The counter is of the digest.

    `scope` is taken literally, whatever it holds.
    """
    literal = scope.encode().hex()
    digest = f"upper(sha2(concat(X'{literal}', X'2F', cast({column} AS BINARY)), 256))"
    head, tail = f"substr({digest}, 1, {HEAD_DIGITS})", f"substr({digest}, {HEAD_DIGITS + 1}, 4)"
    return f"concat('F', {head}, '{_NO_TIME}', {tail})"


def derived_id(scope: str, name: str) -> str:
    """What `derived_id_sql` gives for a row, made here."""
    digest = sha256(f"{scope}/{name}".encode()).hexdigest().upper()
    return f"F{digest[:HEAD_DIGITS]}{_NO_TIME}{digest[HEAD_DIGITS : HEAD_DIGITS + 4]}"
