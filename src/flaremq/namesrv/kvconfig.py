"""Key-value settings by namespace, kept in a JSON file: what mqadmin puts and gets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

from flaremq.base.errors import Malformed
from flaremq.base.files import BackedFile, Files
from flaremq.protocol import fastjson

_TABLE = "configTable"


class KVConfig:
    """Loaded at start, written as a whole at every change; the previous file is kept as .bak.

    A change takes effect once it is on disk; one that cannot be written is refused and never visible.
    """

    def __init__(self, path: Path, files: Files | None = None) -> None:
        self._file = BackedFile(path, files)
        self._table: dict[str, dict[str, str]] = {}
        self._changing = asyncio.Lock()

    def load(self) -> None:
        """Load the file. Blocks. Raises ConfigError if it exists, and neither it nor its .bak is readable."""
        self._table = self._file.load_as(_parsed) or {}

    async def put(self, namespace: str, key: str, value: str) -> None:
        async with self._changing:
            await self._replace({**self._table, namespace: {**self._table.get(namespace, {}), key: value}})

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    async def delete(self, namespace: str, key: str) -> None:
        async with self._changing:
            keys = dict(self._table.get(namespace, {}))
            if keys.pop(key, None) is not None:
                await self._replace({**self._table, namespace: keys})

    def namespace(self, name: str) -> Mapping[str, str] | None:
        """All keys of a namespace; None if it has none."""
        return dict(self._table[name]) if self._table.get(name) else None

    async def _replace(self, table: dict[str, dict[str, str]]) -> None:
        text = json.dumps({_TABLE: table}, indent=1, ensure_ascii=False)
        await asyncio.to_thread(self._file.save, text.encode("utf-8", "replace"))
        self._table = table


def _parsed(text: bytes) -> dict[str, dict[str, str]]:
    """Parse a file written by Java's NameServer or ours."""
    table = fastjson.load_object(text).get(_TABLE)
    if not isinstance(table, Mapping) or not all(isinstance(keys, Mapping) for keys in table.values()):
        raise Malformed(f'no table of namespaces: expected {{"{_TABLE}": {{namespace: {{key: value}}}}}}')
    return {str(name): {str(k): str(v) for k, v in keys.items()} for name, keys in table.items()}
