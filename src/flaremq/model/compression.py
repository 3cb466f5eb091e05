"""Compression of bodies with zlib, LZ4 or zstd, as given by bits 8 to 10 of the sysFlag.

Decompression needs a limit, because a small body may expand to a huge one.
"""

import zlib
from collections.abc import Callable, Mapping
from typing import Final

import lz4.frame
import zstandard

from flaremq.base.errors import BodyTooLarge, Malformed
from flaremq.base.units import MiB
from flaremq.model import sysflag

LEVEL: Final = 5
"""Java's level. LZ4 has none there."""
BODY_SIZE_MAX: Final = 256 * MiB
"""The limit on decompressed bodies for readers."""


def compress(body: bytes, kind: int = sysflag.COMPRESSION_ZLIB, level: int = LEVEL) -> bytes:
    """`kind` is one of sysflag.COMPRESSION_*; it goes into the sysFlag together with COMPRESSED."""
    if kind == sysflag.COMPRESSION_LZ4:
        # The Java library cannot read blocks that depend on earlier ones.
        packed: bytes = lz4.frame.compress(body, block_linked=False)
        return packed
    if kind == sysflag.COMPRESSION_ZSTD:
        return zstandard.ZstdCompressor(level=level).compress(body)
    assert kind in (sysflag.COMPRESSION_ZLIB, sysflag.COMPRESSION_LEGACY), f"no compression {kind:#x}"
    return zlib.compress(body, level)


def decompress(body: bytes, sys_flag: int, size_max: int) -> bytes:
    """The body of a message with this sysFlag, unchanged if COMPRESSED is not set.

    Raises Malformed for a body that does not match the flag, and BodyTooLarge, before more than
    `size_max` bytes are in memory, for one that would become larger.
    """
    if not sysflag.is_compressed(sys_flag) or not body:  # Java does not touch an empty body either.
        return body
    kind = sysflag.compression_type(sys_flag)
    unpack = _UNPACKERS.get(kind)
    if unpack is None:
        raise Malformed(f"unknown compression type {kind >> 8}: expected 0 or 3 (zlib), 1 (LZ4) or 2 (zstd)")
    unpacked = unpack(body, size_max)
    if len(unpacked) > size_max:
        raise BodyTooLarge(len(unpacked), size_max)
    return unpacked


def _unzlib(body: bytes, size_max: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        unpacked = stream.decompress(body, size_max + 1)
    except zlib.error as error:
        raise Malformed(f"body is not zlib: {error}") from None
    if not stream.eof and len(unpacked) <= size_max:
        raise Malformed(f"zlib body ends too early, after {len(body)} bytes", len(body))
    return unpacked


def _unlz4(body: bytes, size_max: int) -> bytes:
    stream = lz4.frame.LZ4FrameDecompressor()
    try:
        unpacked: bytes = stream.decompress(body, max_length=size_max + 1)
    except RuntimeError as error:
        raise Malformed(f"body is not an LZ4 frame: {error}") from None
    if not stream.eof and len(unpacked) <= size_max:
        raise Malformed(f"LZ4 body ends too early, after {len(body)} bytes", len(body))
    return unpacked


def _unzstd(body: bytes, size_max: int) -> bytes:
    try:
        claimed = zstandard.get_frame_parameters(body).content_size
        if size_max < claimed != zstandard.CONTENTSIZE_UNKNOWN:
            raise BodyTooLarge(claimed, size_max)
        return zstandard.ZstdDecompressor().decompress(
            body, max_output_size=size_max + 1, allow_extra_data=False
        )
    except zstandard.ZstdError as error:
        # The error means "cut off" or "does not fit": the stream shows which.
        if _zstd_exceeds(body, size_max):
            raise BodyTooLarge(size_max + 1, size_max) from None
        raise Malformed(f"body is not one zstd frame: {error}") from None


def _zstd_exceeds(body: bytes, size_max: int) -> bool:
    try:
        return len(zstandard.ZstdDecompressor().stream_reader(body).read(size_max + 1)) > size_max
    except zstandard.ZstdError:
        return False


_UNPACKERS: Final[Mapping[int, Callable[[bytes, int], bytes]]] = {
    sysflag.COMPRESSION_LEGACY: _unzlib,
    sysflag.COMPRESSION_ZLIB: _unzlib,
    sysflag.COMPRESSION_LZ4: _unlz4,
    sysflag.COMPRESSION_ZSTD: _unzstd,
}
