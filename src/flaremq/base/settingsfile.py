"""The file in which a server keeps settings that were changed while it ran.

It is the file that the server was started with, or a default one that the next start reads anyway. Only the
lines of changed settings are touched; the previous file is kept as .bak.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from flaremq.base.errors import FlareError
from flaremq.base.files import BackedFile, Files
from flaremq.base.logs import fields, logger
from flaremq.base.propertiesfile import with_values

log = logger("base.settingsfile")


class SettingsFile:
    def __init__(self, path: Path | None, files: Files | None = None) -> None:
        """Without a path nothing is kept. If it is a link, its target is changed."""
        self._file = None if path is None else BackedFile(path.resolve(), files)

    def keep(self, changes: Mapping[str, str]) -> str | None:
        """Save these; return why that failed, in one sentence, or None. Blocks.

        The change takes effect all the same: a full disk may be the very reason for it.
        """
        if self._file is None:
            return "the change is lost at the next restart: this server has no settings file"
        path = self._file.path
        try:
            text = self._file.files.read(path).decode("utf-8-sig") if path.exists() else ""
            self._file.save(with_values(text, changes).encode("utf-8"))
        except (OSError, UnicodeDecodeError, FlareError) as error:
            log.error(
                "changed settings are not saved and will be lost at the next restart", extra=fields(why=error)
            )
            return f"the change is not saved and will be lost at the next restart: {error}"
        log.info("changed settings are saved", extra=fields(file=path, names=",".join(changes)))
        return None
