"""Members whose cold files rot, and the others that have them whole: without a group around them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.dledger.membertools import LoneMember

from flaremq.base.lifecycle import Worker
from flaremq.dledger.frames import decode, encode
from flaremq.dledger.scrub.repairs import Repairs
from flaremq.dledger.scrub.scrubber import Scrubber
from flaremq.dledger.types import EntriesAnswer, EntriesRequest, MemberId, RepairMessage
from flaremq.store.files.disk import Disk
from flaremq.testing.cluster import eventually

HEAD = 48
CRC_AT = 40
IN_BODY = HEAD + 95
"""A byte of an entry that is in the body of its message."""
FILE_SIZE = 64 * 1024
INTERVAL_S = 7 * 86400.0
COMMITTED = 340
COUNT = 400
BODIES = [b"%d" % n + b"." * (300 + n * 7 % 900) for n in range(COUNT)]


def a_ledger(folder: Path) -> Path:
    """The folder of a member that has stopped: several files, and entries behind what is committed."""
    with LoneMember(folder) as member:
        for term, bodies in ((2, BODIES[:150]), (3, BODIES[150:300]), (7, BODIES[300:])):
            member.lead(term)
            member.put(*bodies)
        member.synced()
    return folder


def without_crcs(folder: Path) -> None:
    """As Java writes its entries: no CRC in their heads."""
    for path in sorted((folder / "dledger-n0" / "index").iterdir()):
        raw = path.read_bytes()
        for at in range(0, len(raw), 32):
            if any(raw[at : at + 32]):
                write(
                    data_file(folder, position := int.from_bytes(raw[at + 4 : at + 12], "big")),
                    position % FILE_SIZE + CRC_AT,
                    bytes(4),
                )


def data_file(folder: Path, position: int) -> Path:
    return folder / "dledger-n0" / "data" / f"{position // FILE_SIZE * FILE_SIZE:020d}"


def write(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


class RottingMember(LoneMember):
    """A member with a scrub, whose files may be damaged while it runs."""

    def __init__(self, root: Path, *, disk: Disk | None = None, interval_s: float = INTERVAL_S) -> None:
        super().__init__(root, disk=disk)
        self.disk = disk or Disk()
        self.interval_s = interval_s
        self.scrubber = self.a_scrubber()

    def a_scrubber(self) -> Scrubber:
        """As after another start."""
        return Scrubber(*(self.log, self.disk, self.clock), interval_s=self.interval_s, bytes_per_s=1 << 24)

    def commit_some(self, to: int = COMMITTED) -> RottingMember:
        self.ledger.commit_to(to)
        return self

    def scrub(self) -> None:
        """A whole pass."""
        self.clock.advance_ms(int(self.interval_s * 1000))
        passes, worker = self.scrubber.passes, Worker("a test's", lambda _worker: None)
        for _ in range(10_000):
            self.scrubber.step(worker)
            if self.scrubber.passes > passes:
                return
        raise AssertionError("the pass did not end")

    @property
    def damage(self) -> list[tuple[int, int]]:
        return [(each.first, each.last) for each in self.log.known_damage.found]

    def place(self, index: int) -> int:
        """Where an entry begins."""
        unit = self.log.unit(index)
        assert unit is not None
        return unit.position

    # Its files.

    def data(self, position: int) -> tuple[Path, int]:
        file = self.log.files.find(position)
        assert file is not None
        return file.path, position - file.offset

    def unit(self, index: int) -> tuple[Path, int]:
        file = self.log.index.files.find(32 * index)
        assert file is not None
        return file.path, 32 * index - file.offset

    def flip(self, place: tuple[Path, int], bits: int = 1) -> None:
        path, at = place
        write(path, at, bytes([path.read_bytes()[at] ^ bits]))

    def cold_bytes(self) -> dict[str, bytes]:
        """All that the group has decided on, as it lies in the files."""
        end = self.log.committed.value
        found = {
            f"data/{file.offset}": file.path.read_bytes()[: max(0, end - file.offset)]
            for file in self.log.files.files
        }
        units_end = 32 * (self.log.committed_index + 1)
        for file in self.log.index.files.files:
            found[f"index/{file.offset}"] = file.path.read_bytes()[: max(0, units_end - file.offset)]
        return found


async def inline(work: Callable[[], Any]) -> Any:
    await asyncio.sleep(0)
    return work()


class Wire:
    """Between members without a node. What is said goes through frames, as on a connection."""

    def __init__(self) -> None:
        self.repairs: dict[MemberId, Repairs] = {}
        self.liars: dict[MemberId, Callable[[EntriesRequest], RepairMessage | None]] = {}
        """Members that answer as a test wants, or not at all."""
        self.asked: list[tuple[MemberId, EntriesRequest]] = []
        self.given: list[EntriesAnswer] = []
        self.yielded = 0

    def end(self, me: MemberId) -> WireEnd:
        return WireEnd(self, me)


class WireEnd:
    """A courier."""

    def __init__(self, wire: Wire, me: MemberId) -> None:
        self._wire = wire
        self._me = me

    def helpers(self) -> Sequence[MemberId]:
        others = self._wire.repairs.keys() | self._wire.liars.keys()
        return sorted(others - {self._me})

    def say(self, to: MemberId, message: RepairMessage) -> None:
        wire = self._wire
        if isinstance(message, EntriesRequest):
            wire.asked.append((to, message))
            if to in wire.liars:
                answer = wire.liars[to](message)
                if answer is not None:
                    self._deliver(to, self._me, answer)
                return
        else:
            wire.given.append(message)
        self._deliver(self._me, to, message)

    def _deliver(self, sender: MemberId, to: MemberId, message: RepairMessage) -> None:
        frame = b"".join(bytes(piece) for piece in encode(message))[4:]
        buffer = memoryview(bytearray(frame))
        said = decode(buffer)
        assert isinstance(said, EntriesRequest | EntriesAnswer)

        def arrive() -> None:
            self._wire.repairs[to].heard(sender, said)
            buffer[:] = bytes(len(buffer))  # Its bytes are valid until then only.

        asyncio.get_running_loop().call_soon(arrive)

    def yield_lead(self) -> None:
        self._wire.yielded += 1


class Menders:
    """The repairs of some members, at work for as long as the block lasts."""

    def __init__(self, wire: Wire, members: dict[MemberId, LoneMember], part_size: int = 1 << 20) -> None:
        self._wire = wire
        self._members = members
        self._part_size = part_size

    async def __aenter__(self) -> Menders:
        for name, member in self._members.items():
            disk = member.disk if isinstance(member, RottingMember) else Disk()
            self._wire.repairs[name] = Repairs(
                *(self._wire.end(name), member.log, disk),
                offload=inline,
                part_size=self._part_size,
                told_s=3600.0,
                sleep=_no_pause,
            )
        for repairs in self._wire.repairs.values():
            repairs.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for repairs in self._wire.repairs.values():
            await repairs.stop()


async def _no_pause(_seconds: float) -> None:
    await asyncio.sleep(0)


async def repaired(member: RottingMember) -> None:
    async def is_sound() -> bool:
        return not member.damage

    await eventually("all damage is repaired", is_sound)


def mend(member: RottingMember, *others: LoneMember, part_size: int = 1 << 20) -> Wire:
    """Let the others, n1 and so on, repair it."""
    wire = Wire()
    named: dict[MemberId, LoneMember] = {"n0": member}
    named |= {f"n{number}": other for number, other in enumerate(others, 1)}

    async def run() -> None:
        async with Menders(wire, named, part_size):
            await repaired(member)

    asyncio.run(run())
    return wire
