"""Turns for tests: what connections delivered, split and parsed by one twin."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from tests.golden.samples import samples

from flaremq.protocol.bulk.columns import Chunk, Frame, chunks_table

HOST = bytes((10, 0, 0, 1, 0, 0, 0x13, 0x88))


@dataclass(slots=True)
class Turn:
    data: bytes
    chunks: array[int]
    frames: array[int]
    pairs: array[int]

    def frame(self, row: int) -> list[int]:
        return list(self.frames[row * Frame.WIDTH : (row + 1) * Frame.WIDTH])

    def chunk(self, row: int) -> list[int]:
        return list(self.chunks[row * Chunk.WIDTH : (row + 1) * Chunk.WIDTH])

    @property
    def count(self) -> int:
        return len(self.frames) // Frame.WIDTH


def a_turn(burst: Any, *delivered: bytes) -> Turn:
    """All chunks split at once; the peer's address lies at the beginning of `heads`."""
    ends: list[int] = []
    for each in delivered:
        ends.append((ends[-1] if ends else 0) + len(each))
    data = b"".join(delivered)
    chunks = chunks_table(ends, [(0, len(HOST))] * len(ends))
    frames, pairs = burst.split(data, chunks)
    return Turn(data, chunks, frames, pairs)


_FRAMES = [sample.frame for sample in samples() if len(sample.frame) < 700]
_SENDS = [sample.frame for sample in samples() if sample.name == "SEND_MESSAGE_V2"]
_PULLS = [sample.frame for sample in samples() if sample.name in ("PULL_MESSAGE", "LITE_PULL_MESSAGE")]
_LIKELY = b'"\\{}:,0 \n-u\x00\x01\x02\x80\xff'  # Bytes that mean something here or there.


@st.composite
def spoiled(draw: st.DrawFn, frames: st.SearchStrategy[bytes]) -> bytes:
    """Frames with a few bytes changed, put in or taken out."""
    data = bytearray(b"".join(draw(st.lists(frames, max_size=3))))
    for _ in range(draw(st.integers(0, 3))):
        if not data:
            break
        place = draw(st.integers(0, len(data) - 1))
        what = draw(st.integers(0, 4))
        if what == 0:
            data[place] = draw(st.integers(0, 255))
        elif what == 1:
            data[place] = draw(st.sampled_from(list(_LIKELY)))
        elif what == 2:
            data.insert(place, draw(st.sampled_from(list(_LIKELY))))
        elif what == 3:
            del data[place]
        else:
            del data[place:]
    return bytes(data)


real = st.sampled_from(_FRAMES) | st.sampled_from(_SENDS) | st.sampled_from(_PULLS)
deliveries = st.lists(spoiled(real) | st.binary(max_size=40), max_size=4)
