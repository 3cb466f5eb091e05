"""Tables that are kept on disk: one JSON file each, with the previous version as .bak.

They are RocketMQ's files, in its folder and with its members: a Java broker opens what we wrote, and we
open what it wrote.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, Protocol

from flaremq.base.errors import FlareError
from flaremq.base.files import BackedFile
from flaremq.base.lifecycle import Owned
from flaremq.base.logs import fields, logger
from flaremq.broker.offload import Offload
from flaremq.protocol import configfiles, fastjson

log = logger("broker.persist")

CONFIG_FOLDER: Final = configfiles.FOLDER
"""Below the store's root."""
_SOON_S: Final = 0.1  # Groups often start together: one write serves all of them.


class ConfigFile(BackedFile):
    """One table in RocketMQ's JSON."""

    def load(self) -> bytes | None:
        """The content, from the .bak if necessary; None if there is neither file."""

        def whole(text: bytes) -> bytes:
            fastjson.load_object(text)
            return text

        return self.load_as(whole)


class Saving:
    """Writes a table, one write at a time: changes made during a write are in the next one.

    `take` copies the table in the loop; the function that it returns encodes the copy in a thread.
    """

    def __init__(self, file: ConfigFile, offload: Offload, take: Callable[[], Callable[[], bytes]]) -> None:
        self.file = file
        self._offload = offload
        self._take = take
        self._lock = asyncio.Lock()
        self.changes = 0
        """Add one for every change."""
        self.shared: Callable[[], Awaitable[None]] | None = None
        """Returns when other members of a group have the table too. Raises a FlareError if that fails."""
        self._written = 0
        self._writing = threading.Lock()
        self._on_disk = 0

    @property
    def dirty(self) -> bool:
        return self.changes != self._written

    async def save(self) -> None:
        """Return when the table as it is now is on the disk. Callers that wait together share one write."""
        wanted = self.changes
        async with self._lock:
            if self._written < wanted:
                number, text = self.changes, self._take()
                await self._offload.run(lambda: self._write(number, text))
                self._written = number

    async def settle(self) -> None:
        """Return when the table as it is now is on the disk, and shared: what a request waits for."""
        await self.save()
        if self.shared is not None:
            await self.shared()

    def _write(self, number: int, text: Callable[[], bytes]) -> None:
        """A cancelled save goes on in its thread: it must not overwrite a newer one."""
        with self._writing:
            if number > self._on_disk:
                self.file.save(text())
                self._on_disk = number


class Table(Protocol):
    """A table that can be saved."""

    @property
    def dirty(self) -> bool: ...
    async def save(self) -> None: ...


class Autosave:
    """Saves a table shortly after a change, together with further changes made until then.

    No request waits for it. A table that could not be written stays dirty: it is tried again with the next
    change, and with the periodic save of all tables.
    """

    def __init__(self, name: str, table: Table, tasks: Owned) -> None:
        self._name = name
        self._table = table
        self._tasks = tasks
        self._scheduled = False
        self._stopped = False

    def changed(self) -> None:
        if not self._scheduled and not self._stopped:
            self._scheduled = True
            self._tasks.spawn(f"save-{self._name}", self._save())

    def stop(self) -> None:
        """Schedule no more saves: stopping the broker saves what is left."""
        self._stopped = True

    async def _save(self) -> None:
        try:
            await asyncio.sleep(_SOON_S)
        finally:
            self._scheduled = False  # A change from here on needs another save.
        try:
            await self._table.save()
        except FlareError as error:
            log.error("%s are not saved yet, trying again", self._name, extra=fields(why=error))


async def save_all(tables: Iterable[Table]) -> None:
    """Save the tables that have changed. If one fails, the others are saved before its error is raised."""
    failed: FlareError | None = None
    for table in tables:
        try:
            if table.dirty:
                await table.save()
        except FlareError as error:
            failed = failed or error
    if failed is not None:
        raise failed


def lines(members: Iterable[tuple[str, object]]) -> bytes:
    """An object as JSON, with a line for each entry of its tables, so that people can read and compare it."""
    return b"{\n" + b",\n".join(_line(name, value) for name, value in members) + b"\n}\n"


def _line(name: str, value: object) -> bytes:
    head = fastjson.dumps(name) + b":"
    if not isinstance(value, Mapping) or not value:
        return head + fastjson.dumps(value)
    entries = (b"\t" + fastjson.dumps({key: entry})[1:-1] for key, entry in value.items())
    return head + b"{\n" + b",\n".join(entries) + b"\n}"
