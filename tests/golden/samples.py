"""The frames in `frames/`, as values."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from flaremq.protocol.command import Command
from flaremq.protocol.frame import decode_frame

FRAMES = Path(__file__).parent / "frames"


@dataclass(frozen=True, slots=True)
class Sample:
    conversation: str
    side: str
    kind: str
    code: int
    name: str
    frame: bytes

    @property
    def is_java(self) -> bool:
        """Whether Java wrote it: the servers are always Java."""
        return self.side == "s2c" or not self.conversation.startswith("npm-")

    @property
    def command(self) -> Command:
        return decode_frame(self.frame)

    def __str__(self) -> str:
        return f"{self.conversation}-{self.name}-{self.code}"


@cache
def samples() -> tuple[Sample, ...]:
    found = []
    for path in sorted(FRAMES.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            frame = bytes.fromhex(row["hex"])
            found.append(Sample(path.stem, row["side"], row["kind"], row["code"], row["name"], frame))
    return tuple(found)


def requests(*names: str) -> list[Sample]:
    return [each for each in samples() if each.name in names]


def answers_to(*names: str) -> list[Sample]:
    return [each for each in samples() if each.name.partition("_")[2].partition("_")[2] in names]
