"""Which of two masters of one name serves: how often the slaves of a name were promoted, kept with the store.

The problem
-----------
A slave is promoted, and the old master starts again. Both have brokerId 0 and one name, so clients are sent
to whichever registered last, and both logs grow from where they parted. RocketMQ lets them.

How it works
------------
Each promotion begins an *epoch*, a number in `config/mastership.json` that is on the disk before the new
master takes its first message. Slaves take over the epoch of the master that they follow. Of two masters,
the one with the lower epoch yields, and notes by which epoch it was outranked, so that it does not serve
again when the other one is away for a while. Equal epochs are an error of configuration: then the one that
began later yields. A master of RocketMQ has no epoch, never yields, and counts as equal.

A broker that was a slave and starts as a master is promoted by that, unless another master serves.

An example
----------
            a, the old master     b, its slave          what happens
            epoch 0               epoch 0, a slave      b follows a
            (its machine dies)    epoch 1               b was promoted
            epoch 0 outranked: 1  epoch 1               a starts as a master, and refuses
            epoch 1, a slave      epoch 1               a starts as a slave, and follows b
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from flaremq.base.errors import Malformed
from flaremq.base.files import BackedFile, Files
from flaremq.broker.tables.configfile import CONFIG_FOLDER, lines
from flaremq.protocol import fastjson

_FILE: Final = "mastership.json"


@dataclass(frozen=True, slots=True)
class MastershipNote:
    """The content of the file. Without one, the store has never been a slave's or a promoted master's."""

    epoch: int = 0
    outranked: int = 0
    """The epoch of a newer master that it has met; 0 for none."""
    slave: bool = False
    """Whether it was a slave when it ran last."""


class Mastership:
    """The note of one store, and its changes. All of them block, and are on the disk when they return."""

    def __init__(self, store_root: Path, files: Files | None = None) -> None:
        self._file = BackedFile(store_root / CONFIG_FOLDER / _FILE, files)
        self._note = MastershipNote()

    def load(self) -> None:
        self._note = self._file.load_as(_parsed) or MastershipNote()

    @property
    def epoch(self) -> int:
        return self._note.epoch

    @property
    def newest(self) -> int:
        """The newest epoch of this name that is known here."""
        return max(self._note.epoch, self._note.outranked)

    @property
    def is_outranked(self) -> bool:
        return self._note.outranked > self._note.epoch

    @property
    def was_slave(self) -> bool:
        return self._note.slave

    def begins_as_slave(self) -> None:
        self._keep(replace(self._note, slave=True))

    def follows(self, epoch: int) -> None:
        """The log of a master of this epoch is copied from now on."""
        self._keep(replace(self._note, epoch=epoch))

    def promote(self) -> None:
        """Begin an epoch that is newer than all others."""
        self._keep(MastershipNote(self.newest + 1))

    def yields_to(self, epoch: int) -> None:
        self._keep(replace(self._note, outranked=max(epoch, self._note.outranked)))

    def _keep(self, note: MastershipNote) -> None:
        if note != self._note:
            self._file.save(lines(asdict(note).items()))
            self._note = note


def _parsed(text: bytes) -> MastershipNote:
    found = fastjson.load_object(text)
    epoch, outranked, slave = found.get("epoch", 0), found.get("outranked", 0), found.get("slave", False)
    if type(epoch) is not int or type(outranked) is not int or type(slave) is not bool:
        raise Malformed("expected epoch and outranked as numbers, and slave as true or false")
    return MastershipNote(epoch, outranked, slave)


class Claim(NamedTuple):
    """What a broker says of its being the master of its name."""

    address: str
    epoch: int
    started_ms: int
    start_id: int
    """Drawn at random by each process: it recognises itself under another address."""
    serves: bool
    is_flare: bool = True

    @property
    def began(self) -> tuple[int, int]:
        return self.started_ms, self.start_id


def yields(own: Claim, other: Claim) -> bool:
    """Whether we must not serve, because another master does or should."""
    if own.start_id == other.start_id and other.is_flare:
        return False
    if own.epoch != other.epoch and other.is_flare:
        return other.epoch > own.epoch
    if not other.serves:
        return False
    return not own.serves or other.began < own.began
