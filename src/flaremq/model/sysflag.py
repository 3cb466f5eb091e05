"""The bits of a record's sysFlag.

    10 9 8 │  7   │  6   │  5   │  4   │ 3   2 │ 1    │ 0
    kind of│inner │to be │store │born  │trans- │many  │body is
    compr. │batch │opened│host 6│host 6│action │tags  │compressed

A client may send bits 0 to 3 and 8 to 10. Bits 4 and 5 give the widths of the two hosts; the store sets them
from the addresses and never trusts a client's. Bits 6 and 7 are set together.
"""

from typing import Final

from flaremq.model.layout import HOST_SIZE_V4, HOST_SIZE_V6

COMPRESSED: Final = 0x1
MULTI_TAGS: Final = 0x2

TRANSACTION_MASK: Final = 0xC
TRANSACTION_NONE: Final = 0x0
TRANSACTION_PREPARED: Final = 0x4
TRANSACTION_COMMIT: Final = 0x8
TRANSACTION_ROLLBACK: Final = 0xC

BORN_HOST_V6: Final = 0x10
STORE_HOST_V6: Final = 0x20

NEED_UNWRAP: Final = 0x40
INNER_BATCH: Final = 0x80

COMPRESSION_MASK: Final = 0x700
COMPRESSION_LEGACY: Final = 0x000
"""Before 4.9.3 there was only zlib, and no bits for the kind."""
COMPRESSION_LZ4: Final = 0x100
COMPRESSION_ZSTD: Final = 0x200
COMPRESSION_ZLIB: Final = 0x300


def is_compressed(sys_flag: int) -> bool:
    return bool(sys_flag & COMPRESSED)


def compression_type(sys_flag: int) -> int:
    """One of COMPRESSION_*, or an unknown value (0x400 to 0x700)."""
    return sys_flag & COMPRESSION_MASK


def without_compression(sys_flag: int) -> int:
    """The flag after decompression. The kind stays readable, as in Java."""
    return sys_flag & ~COMPRESSED


def transaction_type(sys_flag: int) -> int:
    """One of TRANSACTION_*."""
    return sys_flag & TRANSACTION_MASK


def with_transaction_type(sys_flag: int, kind: int) -> int:
    assert kind & ~TRANSACTION_MASK == 0, f"{kind:#x} is no transaction type"
    return sys_flag & ~TRANSACTION_MASK | kind


def has_queue_offset(sys_flag: int) -> bool:
    """Prepared and rolled-back messages enter no queue, so they take no queue offset."""
    return transaction_type(sys_flag) in (TRANSACTION_NONE, TRANSACTION_COMMIT)


def is_inner_batch(sys_flag: int) -> bool:
    """Whether the body contains several messages. Java's consumers check both bits."""
    both = NEED_UNWRAP | INNER_BATCH
    return sys_flag & both == both


def born_host_size(sys_flag: int) -> int:
    return HOST_SIZE_V6 if sys_flag & BORN_HOST_V6 else HOST_SIZE_V4


def store_host_size(sys_flag: int) -> int:
    return HOST_SIZE_V6 if sys_flag & STORE_HOST_V6 else HOST_SIZE_V4


def with_hosts(sys_flag: int, *, born_v6: bool, store_v6: bool) -> int:
    """Set bits 4 and 5 from the addresses, whatever a client sent."""
    sys_flag &= ~(BORN_HOST_V6 | STORE_HOST_V6)
    return sys_flag | (BORN_HOST_V6 if born_v6 else 0) | (STORE_HOST_V6 if store_v6 else 0)
