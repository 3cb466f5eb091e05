"""How far a conversion is, on the disk, so that it can go on after an interruption."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from flaremq.base.errors import InvalidParameter
from flaremq.base.files import replace_whole
from flaremq.dledger.carry import Relocations

_NOTE: Final = "conversion.json"
_LINKS: Final = "conversion.links"
_LINK_SIZE: Final = 16


@dataclass(frozen=True, slots=True)
class ConversionProgress:
    """Everything before these places is in the target, on the disk."""

    read_to: int = 0
    """Offset in the source."""
    end: int = 0
    """Where the next file of the target begins."""
    records: int = 0
    bytes: int = 0
    deleted: Mapping[str, int] = field(default_factory=dict)
    links: int = 0


class ConversionNote:
    """In the folder that is being made. Removed when all is done and proven."""

    def __init__(self, target: Path, identity: Mapping[str, object]) -> None:
        """Raises InvalidParameter if another conversion is under way there."""
        self._path = target / _NOTE
        self._links_path = target / _LINKS
        self._identity = dict(identity)
        self._saved_links = 0
        self.progress = ConversionProgress(read_to=int(str(identity["sourceBegin"])))
        if self._path.exists():
            self._load()
        else:
            replace_whole(self._path, self._packed(self.progress))

    @staticmethod
    def is_there(target: Path) -> bool:
        return (target / _NOTE).exists()

    def _load(self) -> None:
        found: dict[str, Any] = orjson.loads(self._path.read_bytes())
        differing = [name for name, value in self._identity.items() if found.get(name) != value]
        if differing:
            name = differing[0]
            raise InvalidParameter(
                f"{self._path}: another conversion is under way here, with {name}={found.get(name)} and not "
                f"{self._identity[name]}: remove {self._path.parent}, or name another folder"
            )
        self.progress = ConversionProgress(**found["progress"])
        self._saved_links = self.progress.links

    def links(self) -> bytes:
        """The pairs that belong to the progress."""
        if not self._saved_links:
            return b""
        return self._links_path.read_bytes()[: self._saved_links * _LINK_SIZE]

    def save(self, progress: ConversionProgress, links: Relocations) -> None:
        """All of this is on the disk."""
        with self._links_path.open("r+b" if self._links_path.exists() else "w+b") as file:
            file.seek(self._saved_links * _LINK_SIZE)
            file.write(links.pairs(self._saved_links))
            file.flush()
            os.fsync(file.fileno())
        self._saved_links = len(links)
        kept = ConversionProgress(**{**asdict(progress), "links": len(links)})
        replace_whole(self._path, self._packed(kept))

    def finish(self) -> None:
        self._links_path.unlink(missing_ok=True)
        self._path.unlink(missing_ok=True)

    def _packed(self, progress: ConversionProgress) -> bytes:
        return orjson.dumps({**self._identity, "progress": asdict(progress)}, option=orjson.OPT_INDENT_2)
