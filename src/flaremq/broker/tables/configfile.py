"""Tables that outlive the broker: one JSON file each, with the one before it as .bak.

They are RocketMQ's files, in its folder and with its members: a broker of Java's opens what we wrote,
and we open what it wrote.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
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
_SOON_S: Final = 0.1  # Groups often start together; one write then serves all of them.


class ConfigFile(BackedFile):
    """One table in RocketMQ's JSON."""

    def load(self) -> bytes | None:
        """The content, that of the .bak if need be; None if there is neither."""

        def whole(text: bytes) -> bytes:
            fastjson.load_object(text)
            return text

        return self.load_as(whole)


class Saving:
    """When a table is written, and how often: what changes meanwhile is in the next write.

    `take` copies the table, in the loop; what it returns makes the text of the copy, aside.
    """

    def __init__(self, file: ConfigFile, aside: Offload, take: Callable[[], Callable[[], bytes]]) -> None:
        self.file = file
        self._aside = aside
        self._take = take
        self._lock = asyncio.Lock()
        self.changes = 0
        """Count one up for every change."""
        self._written = 0
        self._writing = threading.Lock()
        self._on_disk = 0

    @property
    def dirty(self) -> bool:
        return self.changes != self._written

    async def save(self) -> None:
        """Return when what the table holds now is on the disk. Who waits together is served together."""
        wanted = self.changes
        async with self._lock:
            if self._written >= wanted:
                return
            number, text = self.changes, self._take()
            await self._aside.run(lambda: self._write(number, text))
            self._written = number

    def _write(self, number: int, text: Callable[[], bytes]) -> None:
        """A save that was given up goes on in its thread: it may not come behind a newer one."""
        with self._writing:
            if number > self._on_disk:
                self.file.save(text())
                self._on_disk = number


class Table(Protocol):
    """What can be saved."""

    @property
    def dirty(self) -> bool: ...
    async def save(self) -> None: ...


class Autosave:
    """Saves a table shortly after it has changed, in one write with what changes meanwhile.

    Nobody waits for it. A table that could not be written stays dirty: it is tried again with the next
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
        """Whoever stops the broker saves what is left."""
        self._stopped = True

    async def _save(self) -> None:
        try:
            await asyncio.sleep(_SOON_S)
        finally:
            self._scheduled = False  # A change from here on needs a save of its own.
        try:
            await self._table.save()
        except FlareError as error:
            log.error("%s are not saved yet, trying again", self._name, extra=fields(why=error))


async def save_all(tables: Iterable[Table]) -> None:
    """Save those that have changed. One that fails hinders no other; the first error is raised at the end."""
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
    """An object as JSON, with a line for each entry of its tables: people read and compare these files."""
    return b"{\n" + b",\n".join(_line(name, value) for name, value in members) + b"\n}\n"


def _line(name: str, value: object) -> bytes:
    head = fastjson.dumps(name) + b":"
    if not isinstance(value, Mapping) or not value:
        return head + fastjson.dumps(value)
    entries = (b"\t" + fastjson.dumps({key: entry})[1:-1] for key, entry in value.items())
    return head + b"{\n" + b",\n".join(entries) + b"\n}"
