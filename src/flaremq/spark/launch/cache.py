"""The cache folder: a launcher for Java, class archives and logs, all of which can be made again.

Several processes use it at once, so files in it appear whole. If it cannot be made, as in a container without
a home, a temporary folder is used and removed when the process ends.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from pathlib import Path

from flaremq.base.errors import StoreError
from flaremq.base.files import replace_whole


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/flaremq or ~/.cache/flaremq; a temporary folder if that cannot be written."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    try:
        # The XDG specification says to ignore a relative path.
        root = Path(given) if Path(given).is_absolute() else Path.home() / ".cache"
        folder = root / "flaremq"
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except (OSError, RuntimeError):  # RuntimeError: the home folder is unknown.
        return temporary_cache()


@functools.cache
def temporary_cache() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="flaremq-cache-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def keep_file(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file unless it already has this content and these permissions."""
    data = text.encode()
    try:
        if path.is_file() and path.read_bytes() == data and path.stat().st_mode & 0o777 == mode:
            return
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error
    replace_whole(path, data, mode)
