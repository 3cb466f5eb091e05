import struct
import zlib
from contextlib import suppress

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from flaremq.base.errors import BodyTooLarge, Malformed
from flaremq.base.units import KiB, MiB
from flaremq.model import sysflag
from flaremq.model.compression import compress, decompress

KINDS = [
    sysflag.COMPRESSION_LEGACY,
    sysflag.COMPRESSION_ZLIB,
    sysflag.COMPRESSION_LZ4,
    sysflag.COMPRESSION_ZSTD,
]
kinds = pytest.mark.parametrize("kind", KINDS, ids=["legacy", "zlib", "lz4", "zstd"])


@kinds
@given(body=st.binary(max_size=2000))
def test_what_was_compressed_is_decompressed(kind: int, body: bytes) -> None:
    assert decompress(compress(body, kind), sysflag.COMPRESSED | kind, size_max=2000) == body


@kinds
def test_compressing_makes_a_regular_body_smaller(kind: int) -> None:
    assert len(compress(b"ab" * 5_000, kind)) < 500


def test_each_kind_has_its_own_format() -> None:
    body = b"hello" * 100
    assert zlib.decompress(compress(body)) == body
    assert compress(body, sysflag.COMPRESSION_LZ4)[:4] == b"\x04\x22\x4d\x18"
    assert compress(body, sysflag.COMPRESSION_ZSTD)[:4] == b"\x28\xb5\x2f\xfd"


def test_lz4_blocks_stand_alone_as_the_java_library_demands() -> None:
    flags = compress(b"hello" * 100, sysflag.COMPRESSION_LZ4)[4]
    assert flags & 0b0010_0000


@kinds
def test_the_kind_of_the_flag_decides_and_not_the_looks(kind: int) -> None:
    others = {sysflag.COMPRESSION_ZLIB, sysflag.COMPRESSION_LZ4, sysflag.COMPRESSION_ZSTD} - {kind or 0x300}
    for other in others:
        with pytest.raises(Malformed):
            decompress(compress(b"hello", kind), sysflag.COMPRESSED | other, size_max=100)


@kinds
def test_a_body_that_is_not_compressed_is_left_alone(kind: int) -> None:
    assert decompress(b"plain", kind, size_max=0) == b"plain"


@kinds
def test_an_empty_body_is_left_alone(kind: int) -> None:
    assert decompress(b"", sysflag.COMPRESSED | kind, size_max=0) == b""


@pytest.mark.parametrize("kind", [0x400, 0x500, 0x600, 0x700])
def test_an_unknown_kind_is_malformed(kind: int) -> None:
    with pytest.raises(Malformed, match=f"compression type {kind >> 8}"):
        decompress(b"x", sysflag.COMPRESSED | kind, size_max=100)


@kinds
@pytest.mark.parametrize("size", [1, 1000, 200_000])
def test_the_limit_is_exact(kind: int, size: int) -> None:
    packed = compress(b"x" * size, kind)
    assert len(decompress(packed, sysflag.COMPRESSED | kind, size_max=size)) == size
    with pytest.raises(BodyTooLarge, match=f"limit is {size - 1}"):
        decompress(packed, sysflag.COMPRESSED | kind, size_max=size - 1)


@kinds
def test_a_bomb_is_refused_long_before_it_is_unpacked(kind: int) -> None:
    bomb = compress(bytes(16 * MiB), kind)
    with pytest.raises(BodyTooLarge) as caught:
        decompress(bomb, sysflag.COMPRESSED | kind, size_max=64 * KiB)
    assert caught.value.size_max == 64 * KiB


def test_a_zstd_bomb_that_hides_its_size_is_refused_too() -> None:
    bomb = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(16 * MiB))
    with pytest.raises(BodyTooLarge):
        decompress(bomb, sysflag.COMPRESSED | sysflag.COMPRESSION_ZSTD, size_max=1 * MiB)
    small = zstandard.ZstdCompressor(write_content_size=False).compress(b"small")
    assert decompress(small, sysflag.COMPRESSED | sysflag.COMPRESSION_ZSTD, size_max=5) == b"small"


def test_a_zstd_frame_that_lies_about_its_size_is_refused() -> None:
    packed = bytearray(compress(bytes(1000), sysflag.COMPRESSION_ZSTD))
    at = packed.index(struct.pack("<H", 1000 - 256))
    packed[at : at + 2] = struct.pack("<H", 100)
    with pytest.raises((Malformed, BodyTooLarge)):
        decompress(bytes(packed), sysflag.COMPRESSED | sysflag.COMPRESSION_ZSTD, size_max=500)


def test_a_linked_lz4_frame_of_another_client_is_read() -> None:
    packed = lz4.frame.compress(b"hello" * 100_000, block_linked=True, block_size=lz4.frame.BLOCKSIZE_MAX64KB)
    unpacked = decompress(packed, sysflag.COMPRESSED | sysflag.COMPRESSION_LZ4, size_max=MiB)
    assert unpacked == b"hello" * 100_000


@kinds
@given(data=st.data())
def test_a_body_cut_short_is_malformed(kind: int, data: st.DataObject) -> None:
    packed = compress(bytes(range(256)) * 4, kind)
    cut = data.draw(st.integers(1, len(packed) - 1))
    with pytest.raises(Malformed):
        decompress(packed[:cut], sysflag.COMPRESSED | kind, size_max=2000)


@kinds
@given(body=st.binary(min_size=1), head=st.booleans())
def test_any_bytes_are_a_body_or_an_error_of_ours(kind: int, body: bytes, head: bool) -> None:
    if head:  # Past the magic number, where a decoder can go wrong more deeply.
        body = compress(b"hello", kind)[:7] + body
    with suppress(Malformed, BodyTooLarge):
        assert len(decompress(body, sysflag.COMPRESSED | kind, size_max=100)) <= 100
