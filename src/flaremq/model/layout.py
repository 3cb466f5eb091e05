"""Byte layouts of everything on disk. All integers are big-endian.

A record of the commit log, which is also a record on the wire (bh, sh: 8 or 20 bytes of host;
tl: 1 byte of topic length in V1, 2 in V2):

    0  total size   4    28  physical offset   8    48+bh     store timestamp     8
    4  magic        4    36  sys flag          4    56+bh     store host          sh
    8  body CRC     4    40  born timestamp    8    56+bh+sh  reconsume times     4
    12 queue id     4    48  born host         bh   60+bh+sh  prepared offset     8
    16 flag         4                               68+bh+sh  body length         4
    20 queue offset 8                               72+bh+sh  body, topic length (tl), topic,
                                                              properties length (2), properties

A blank record ends a log file: its size (the bytes left in the file), then its magic.

    queue entry   0 physical offset 8 · 8 size 4 · 12 tags code 8
    batch entry   0 physical offset 8 · 8 size 4 · 12 tags code 8 · 20 store timestamp 8 ·
                  28 base offset 8 · 36 count 2 · 38 compacted offset 4 · 42 reserved 4
    ext unit      0 size 2 · 2 tags code 8 · 10 store timestamp 8 · 18 bit map size 2 · 20 bit map
    index header  0 begin time 8 · 8 end time 8 · 16 begin offset 8 · 24 end offset 8 ·
                  32 used slots 4 · 36 next entry 4
    index entry   0 key hash 4 · 4 physical offset 8 · 12 seconds since begin 4 · 16 previous 4
    checkpoint    five longs: log time, queue time, index time, master flushed, confirmed offset
    DLedger unit  0 magic 4 · 4 position 8 · 12 size 4 · 16 index 8 · 24 term 8, at 32 * index of its files
    DLedger entry 0 magic 4 · 4 size 4 · 8 index 8 · 16 term 8 · 24 position 8 · 32 channel 4 ·
                  36 chain CRC 4 · 40 body CRC 4 · 44 body size 4 · 48 a record
"""

from typing import Final

PAGE: Final = 4096  # RocketMQ's constant in page counts, whatever the machine's page size is.

# A record.
MAGIC_V1: Final = -626843481  # 0xDAA320A7
MAGIC_V2: Final = -626843477  # 0xDAA320AB
MAGIC_AT: Final = 4
BODY_CRC_AT: Final = 8
QUEUE_ID_AT: Final = 12
FLAG_AT: Final = 16
QUEUE_OFFSET_AT: Final = 20
PHYSICAL_OFFSET_AT: Final = 28
SYS_FLAG_AT: Final = 36
BORN_TIMESTAMP_AT: Final = 40
BORN_HOST_AT: Final = 48
FIXED_SIZE: Final = 91  # V1, both hosts IPv4: everything except body, topic and properties.
BODY_AT_LEAST: Final = 88  # Where the body begins when both hosts are IPv4.
HOST_SIZE_V4: Final = 8
HOST_SIZE_V6: Final = 20
TOPIC_SIZE_MAX_V1: Final = 127  # The length byte is signed.
TOPIC_SIZE_MAX_V2: Final = 32767
PROPERTIES_SIZE_MAX: Final = 32767

# The end of a log file.
BLANK_MAGIC: Final = -875286124  # 0xCBD43194
BLANK_SIZE: Final = 8

# The optional CRC of a whole record: the last property, ten digits, least significant first.
CRC_PROPERTY: Final = b"__CRC32#"
CRC_DIGITS: Final = 10
CRC_TAIL_SIZE: Final = len(CRC_PROPERTY) + 1 + CRC_DIGITS + 1

# A property string: name \x01 value \x02, repeated.
NAME_END: Final = 1
PROPERTY_END: Final = 2

# A queue entry.
ENTRY_SIZE: Final = 20
ENTRY_FORMAT: Final = ">qiq"
FILLER_SIZE: Final = 0x7FFF_FFFF  # The size that marks an entry before the first real one.

# A batch queue entry.
BATCH_ENTRY_SIZE: Final = 46
BATCH_ENTRY_FORMAT: Final = ">qiqqqhii"

# A unit of the queue extension. Its address, as a tags code, is below every hash.
EXT_UNIT_FIXED_SIZE: Final = 20
EXT_UNIT_FORMAT: Final = ">hqqh"
EXT_UNIT_SIZE_MAX: Final = 32767
EXT_FILE_TAIL: Final = 4  # Kept free for the end mark.
EXT_END_MARK: Final = -1
EXT_ADDRESS_BASE: Final = -(1 << 63)
EXT_ADDRESS_MAX: Final = -(1 << 31) - 1

# An index file.
INDEX_HEADER_SIZE: Final = 40
INDEX_HEADER_FORMAT: Final = ">qqqqii"
INDEX_SLOT_SIZE: Final = 4
INDEX_ENTRY_SIZE: Final = 20
INDEX_ENTRY_FORMAT: Final = ">iqii"

# The checkpoint.
CHECKPOINT_SIZE: Final = 4096
CHECKPOINT_FORMAT: Final = ">qqqqq"

# The timer wheel: slots of time / precision, first and last position in the timer log, count, magic.
WHEEL_SLOTS: Final = 2 * 7 * 24 * 3600
WHEEL_SLOT_SIZE: Final = 32
WHEEL_SLOT_FORMAT: Final = ">qqqii"

# A unit of the timer log: size, position of the unit before it in its slot, magic, write time, delay,
# physical offset, size of the record, hash of the topic, reserved.
TIMER_UNIT_SIZE: Final = 52
TIMER_UNIT_FORMAT: Final = ">iqiqiqiiq"
TIMER_NORMAL: Final = 1
TIMER_ROLL: Final = 2
TIMER_DELETE: Final = 4
TIMER_MAGIC_MAX: Final = 15
TIMER_BLANK_SIZE: Final = 16  # The end of a timer log file: bytes left, 0, BLANK_MAGIC.
TIMER_BLANK_FORMAT: Final = ">iqi"

# The timer checkpoint: read time, flushed position, queue offset, the master's, state version, time, counter.
TIMER_CHECK_SIZE: Final = 4096
TIMER_CHECK_FORMAT: Final = ">qqqqqqq"

# A DLedger entry around a record.
DLEDGER_MAGIC: Final = 1
DLEDGER_BLANK_MAGIC: Final = -1
DLEDGER_HEADER_SIZE: Final = 48
DLEDGER_HEADER_FORMAT: Final = ">iiqqqiiii"
DLEDGER_ENTRY_MAX: Final = 4 << 20
"""Head included: a member of the DLedger library has a buffer of this size for an entry."""
DLEDGER_UNIT_SIZE: Final = 32  # Of the index of a ledger: a unit for each entry.
DLEDGER_UNIT_FORMAT: Final = ">iqiqq"
DLEDGER_INDEX_FILE_SIZE: Final = DLEDGER_UNIT_SIZE * 5 * 1024 * 1024


def index_slots(size: int) -> int | None:
    """maxHashSlotNum of an index file of this size, assuming four entries per slot, the default.

    The file itself does not say how it is divided.
    """
    slots, rest = divmod(size - INDEX_HEADER_SIZE, INDEX_SLOT_SIZE + 4 * INDEX_ENTRY_SIZE)
    return slots if rest == 0 and slots > 0 else None
