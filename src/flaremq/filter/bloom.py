"""Bloom filters over `group#topic`: which groups a message matches, in a few bits.

Every group has k of m bits. The bits of the groups whose filter a message matches are set in the map next to
its queue entry. If a group's bits are not all set, the message does not match; if they are, it must be
checked, as other groups may have set them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from flaremq.base.errors import ConfigError, Malformed
from flaremq.model.layout import EXT_UNIT_FIXED_SIZE, EXT_UNIT_SIZE_MAX

BIT_COUNT_MAX: Final = 8 * (EXT_UNIT_SIZE_MAX - EXT_UNIT_FIXED_SIZE)
"""The room in a queue extension."""

_MASK_64: Final = 0xFFFF_FFFF_FFFF_FFFF
_MASK_32: Final = 0xFFFF_FFFF
_C1: Final = 0x87C3_7B91_1142_53D5
_C2: Final = 0x4CF5_AD43_2745_937F


@dataclass(frozen=True, slots=True)
class BloomBits:
    """The bits of one group, and the size of the map that they belong to."""

    positions: tuple[int, ...]
    bit_count: int
    mask: int = field(init=False, repr=False, compare=False)
    """As a number whose bit b is position b: byte b/8 of a map, bit b%8."""

    def __post_init__(self) -> None:
        if not 0 < self.bit_count <= BIT_COUNT_MAX:
            raise Malformed(f"a bit map of {self.bit_count} bits, expected 1 to {BIT_COUNT_MAX}")
        mask = 0
        for position in self.positions:
            if not 0 <= position < self.bit_count:
                raise Malformed(f"bit {position} of a map of {self.bit_count} bits")
            mask |= 1 << position
        object.__setattr__(self, "mask", mask)


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """k and m for a false-positive rate in percent and a number of groups."""

    error_percent: int = 20
    """maxErrorRateOfBloomFilter."""
    expected: int = 32
    """expectConsumerNumUseFilter."""
    hash_count: int = field(init=False)
    """k: bits of one group."""
    bit_count: int = field(init=False)
    """m: bits of a map, a multiple of 8. Replaces bitMapLengthConsumeQueueExt."""

    def __post_init__(self) -> None:
        if not 1 <= self.error_percent <= 99:
            raise ConfigError(f"maxErrorRateOfBloomFilter is {self.error_percent}, expected 1 to 99")
        if self.expected < 1:
            raise ConfigError(f"expectConsumerNumUseFilter is {self.expected}, expected 1 or more")
        rate = self.error_percent / 100
        # In the order of BloomFilter.java: another one may round differently.
        hash_count = math.ceil(math.log(rate) / math.log(0.5))
        bits = math.ceil(self.expected * (math.log(1 / rate) / math.log(2)) * (1 / math.log(2)))
        bit_count = 8 * math.ceil(bits / 8)
        if bit_count > BIT_COUNT_MAX:
            raise ConfigError(
                f"expectConsumerNumUseFilter is {self.expected}, which takes {bit_count} bits a message, "
                f"the limit is {BIT_COUNT_MAX}: expect fewer groups, or raise maxErrorRateOfBloomFilter"
            )
        object.__setattr__(self, "hash_count", hash_count)
        object.__setattr__(self, "bit_count", bit_count)

    def bits_of(self, group: str, topic: str) -> BloomBits:
        return BloomBits(self.positions(f"{group}#{topic}"), self.bit_count)

    def positions(self, key: str) -> tuple[int, ...]:
        """Two halves of one hash make k hashes (Kirsch and Mitzenmacher)."""
        hash64 = murmur3_64(key.encode("utf-8", "replace"))
        low, high = hash64 & _MASK_32, hash64 >> 32
        found = []
        for i in range(1, self.hash_count + 1):
            combined = (low + i * high) & _MASK_32
            if combined >> 31:  # Negative in Java, which then inverts all bits.
                combined ^= _MASK_32
            found.append(combined % self.bit_count)
        return tuple(found)

    def owns(self, bits: BloomBits) -> bool:
        """Whether these bits belong to a filter of this size; others have no meaning here."""
        return bits.bit_count == self.bit_count and len(bits.positions) == self.hash_count


def is_hit(bit_map: bytes, mask: int) -> bool:
    """Whether every bit of the mask is set in a map."""
    return int.from_bytes(bit_map, "little") & mask == mask


def murmur3_64(data: bytes) -> int:
    """The first half of MurmurHash3_x64_128 with seed 0: Guava's asLong, unsigned."""
    h1 = h2 = 0
    tail_at = len(data) & ~15
    for at in range(0, tail_at, 16):
        h1 ^= _mixed_1(int.from_bytes(data[at : at + 8], "little"))
        h1 = (_rotated(h1, 27) + h2) * 5 + 0x52DC_E729 & _MASK_64
        h2 ^= _mixed_2(int.from_bytes(data[at + 8 : at + 16], "little"))
        h2 = (_rotated(h2, 31) + h1) * 5 + 0x3849_5AB5 & _MASK_64
    h1 ^= _mixed_1(int.from_bytes(data[tail_at : tail_at + 8], "little"))
    h2 ^= _mixed_2(int.from_bytes(data[tail_at + 8 :], "little"))
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = h1 + h2 & _MASK_64
    h2 = h2 + h1 & _MASK_64
    return _finished(h1) + _finished(h2) & _MASK_64


def _rotated(word: int, by: int) -> int:
    return (word << by | word >> 64 - by) & _MASK_64


def _mixed_1(word: int) -> int:
    return _rotated(word * _C1 & _MASK_64, 31) * _C2 & _MASK_64


def _mixed_2(word: int) -> int:
    return _rotated(word * _C2 & _MASK_64, 33) * _C1 & _MASK_64


def _finished(word: int) -> int:
    word ^= word >> 33
    word = word * 0xFF51_AFD7_ED55_8CCD & _MASK_64
    word ^= word >> 33
    word = word * 0xC4CE_B9FE_1A85_EC53 & _MASK_64
    return word ^ word >> 33
