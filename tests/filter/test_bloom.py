"""Bits of groups, exactly those that Java draws."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.base.errors import ConfigError, Malformed
from flaremq.filter.bloom import BIT_COUNT_MAX, BloomBits, BloomFilter, is_hit, murmur3_64


@pytest.mark.parametrize(
    ("percent", "expected", "hash_count", "bit_count"),
    [(20, 32, 3, 112), (20, 64, 3, 216), (10, 128, 4, 616), (1, 1, 7, 16), (50, 8, 1, 16), (98, 1000, 1, 48)],
)
def test_k_and_m_follow_from_the_share_of_errors(
    percent: int, expected: int, hash_count: int, bit_count: int
) -> None:
    bloom = BloomFilter(percent, expected)
    assert (bloom.hash_count, bloom.bit_count) == (hash_count, bit_count)


@pytest.mark.parametrize(
    ("key", "positions"),
    [
        ("", (0, 0, 0)),
        ("a", (94, 99, 7)),
        ("GroupB#TopicTest", (20, 108, 93)),
        ("0123456789abcde", (87, 93, 12)),
        ("0123456789abcdef", (11, 47, 60)),
        ("0123456789abcdef0", (60, 67, 74)),
        ("please_rename_unique_group_name_4#TopicTest", (63, 14, 51)),
        ("组#主题", (38, 9, 19)),
        ("😀#x", (110, 70, 4)),
        ("%RETRY%g#%RETRY%g", (24, 0, 88)),
    ],
)
def test_a_key_has_the_bits_that_java_gives_it(key: str, positions: tuple[int, ...]) -> None:
    assert BloomFilter().positions(key) == positions


def test_a_bit_lies_where_java_puts_it() -> None:
    bits = BloomFilter().bits_of("GroupA", "TopicTest")
    assert bits.positions == (105, 17, 70)
    assert bits.mask.to_bytes(14, "little").hex() == "0000020000000000400000000002"


@given(st.sets(st.integers(0, 111)), st.lists(st.integers(0, 111), min_size=3, max_size=3))
def test_a_hit_is_a_map_with_all_bits_set(there: set[int], wanted: list[int]) -> None:
    bit_map = BloomBits(tuple(there), 112).mask.to_bytes(14, "little")
    assert is_hit(bit_map, BloomBits(tuple(wanted), 112).mask) == (set(wanted) <= there)


@given(st.text(), st.integers(1, 99), st.integers(1, 1000))
def test_every_position_lies_in_the_map(key: str, percent: int, expected: int) -> None:
    bloom = BloomFilter(percent, expected)
    bits = BloomBits(bloom.positions(key), bloom.bit_count)
    assert bloom.owns(bits)
    assert bloom.bit_count % 8 == 0


def test_bits_of_another_size_are_known() -> None:
    bloom = BloomFilter()
    assert not bloom.owns(BloomFilter(20, 64).bits_of("GroupA", "TopicTest"))
    assert not bloom.owns(BloomBits((1, 2), 112))


@pytest.mark.parametrize(
    ("positions", "bit_count"), [((112,), 112), ((-1,), 112), ((), 0), ((1 << 40,), 1 << 41)]
)
def test_bits_outside_of_a_map_are_refused(positions: tuple[int, ...], bit_count: int) -> None:
    with pytest.raises(Malformed, match="bit"):
        BloomBits(positions, bit_count)


@pytest.mark.parametrize(("percent", "expected"), [(0, 32), (100, 32), (20, 0), (1, BIT_COUNT_MAX)])
def test_impossible_settings_are_refused(percent: int, expected: int) -> None:
    with pytest.raises(ConfigError, match=r"expected|the limit is"):
        BloomFilter(percent, expected)


def test_the_hash_is_that_of_guava() -> None:
    assert murmur3_64(b"") == 0
    assert murmur3_64(b"hello") == 0xCBD8A7B341BD9B02
