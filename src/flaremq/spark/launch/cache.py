"""A folder for files that take long to make and can be made again: a launcher for Java, class archives, logs.

Several processes use it at once, so files in it appear whole. Where there is no such folder, as in a
container without a home, a temporary one is used and removed when the process ends.
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
    """$XDG_CACHE_HOME/flaremq or ~/.cache/flaremq; a temporary folder where that cannot be written."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    try:
        # The specification of these folders says that a relative path is to be ignored.
        root = Path(given) if Path(given).is_absolute() else Path.home() / ".cache"
        folder = root / "flaremq"
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except (OSError, RuntimeError):  # RuntimeError: nobody knows where our home is.
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
