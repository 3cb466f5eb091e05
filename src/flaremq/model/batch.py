"""Several messages in one body: what SEND_BATCH_MESSAGE carries and what an inner batch stores.

    size 4 · magic 4 · CRC 4 · flag 4 · body size 4 · body · properties size 2 · properties

repeated. Size includes itself; magic and CRC are 0 and never read.

Takes the compiled twin where it is built; FLAREMQ_PURE=1 forces the Python one.
"""

import os
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

from flaremq.base.errors import Malformed
from flaremq.model import sysflag
from flaremq.model._batch_py import FIXED_SIZE, BatchPart, check_stays, split_batch
from flaremq.model.message import StoredMessage

if TYPE_CHECKING or os.environ.get("FLAREMQ_PURE"):
    from flaremq.model._batch_py import batch_rows, join_batch
else:
    try:
        from flaremq.model._batch_c import batch_rows, join_batch
    except ImportError:
        from flaremq.model._batch_py import batch_rows, join_batch

__all__ = ["FIXED_SIZE", "BatchPart", "batch_rows", "check_stays", "join_batch", "split_batch", "unwrap"]


def unwrap(message: StoredMessage) -> list[StoredMessage]:
    """The messages in an inner batch; any other message alone.

    Element k is at queue_offset + k; it has its own flag, body and properties, and everything else from the
    batch, without the batch bits in its sys_flag.
    """
    if not sysflag.is_inner_batch(message.sys_flag):
        return [message]
    if sysflag.is_compressed(message.sys_flag):
        raise Malformed("this inner batch is still compressed: decompress its body before unwrapping it")
    sys_flag = message.sys_flag & ~(sysflag.NEED_UNWRAP | sysflag.INNER_BATCH)
    return [
        replace(
            message,
            queue_offset=message.queue_offset + k,
            sys_flag=sys_flag,
            flag=part.flag,
            body=part.body,
            raw_properties=part.raw_properties,
            body_crc=zlib.crc32(part.body) & 0x7FFF_FFFF,
            size=part.size,
        )
        for k, part in enumerate(split_batch(message.body))
    ]
