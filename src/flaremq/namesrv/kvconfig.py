"""Small settings by namespace and key, kept in a JSON file: what mqadmin puts and gets."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from flaremq.base.logs import fields, logger

log = logger("namesrv.kvconfig")

_TABLE = "configTable"


class KVConfig:
    """Read at start, written whole at every change: the new file takes the place of the old at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._table: dict[str, dict[str, str]] = {}

    def load(self) -> None:
        """A missing file is an empty table; a broken one too, but it is told and left as it is."""
        try:
            data = json.loads(self._path.read_text(encoding="utf-8"))
            table = data[_TABLE]
            self._table = {str(n): {str(k): str(v) for k, v in keys.items()} for n, keys in table.items()}
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            log.error(
                "the KV file cannot be read and is passed over", extra=fields(file=self._path, why=error)
            )

    def put(self, namespace: str, key: str, value: str) -> None:
        self._table.setdefault(namespace, {})[key] = value
        self._save()

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> None:
        if self._table.get(namespace, {}).pop(key, None) is not None:
            self._save()

    def namespace(self, name: str) -> Mapping[str, str] | None:
        """All keys of a namespace; None if it has none."""
        return dict(self._table[name]) if self._table.get(name) else None

    def _save(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_name(self._path.name + ".new")
        with fresh.open("w", encoding="utf-8") as file:
            json.dump({_TABLE: self._table}, file, indent=1, ensure_ascii=False)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
