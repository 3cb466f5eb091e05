"""The file in which a server keeps settings that were changed while it ran.

It is the file that the server was started with, or a usual one that the next start reads by itself. Only
lines of changed settings are touched; the file before the change stays beside it as .bak.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from flaremq.base.errors import FlareError
from flaremq.base.files import BackedFile
from flaremq.base.logs import fields, logger
from flaremq.base.propertiesfile import with_values

log = logger("base.settingsfile")


class SettingsFile:
    def __init__(self, path: Path | None) -> None:
        """Without a path nothing is kept. Where it is a link, the file is changed that it leads to."""
        self._file = None if path is None else BackedFile(path.resolve())

    def keep(self, changes: Mapping[str, str]) -> str | None:
        """Write these down; why that could not be, in one sentence. Blocks.

        A change holds all the same: a disk that is full may be the very reason for it.
        """
        if self._file is None:
            return "the change holds until the stop: this server has no file of settings"
        path = self._file.path
        try:
            text = path.read_bytes().decode("utf-8-sig") if path.exists() else ""
            self._file.save(with_values(text, changes).encode("utf-8"))
        except (OSError, UnicodeDecodeError, FlareError) as error:
            log.error("changed settings hold until the stop: they are not kept", extra=fields(why=error))
            return f"the change holds until the stop, and is not kept: {error}"
        log.info("changed settings are kept", extra=fields(file=path, names=",".join(changes)))
        return None
