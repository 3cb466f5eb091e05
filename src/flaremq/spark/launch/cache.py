"""A folder for what is dear to make and cheap to make again: a Java's front door, class archives, logs.

Several processes use it at once, so whatever lies in it is written under another name and renamed.
Where no such folder can be had, as in a container without a home, one that dies with this process serves.
"""

import atexit
import functools
import os
import shutil
import tempfile
from pathlib import Path

from flaremq.base.errors import StoreError


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


def write_whole(path: Path, text: str, mode: int = 0o644) -> None:
    """Nobody ever sees half a file, whoever writes the same one meanwhile."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file() and path.read_text() == text and path.stat().st_mode & 0o777 == mode:
            return
        handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        try:
            with os.fdopen(handle, "w") as file:
                file.write(text)
            Path(name).chmod(mode)
            Path(name).replace(path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror or error}") from error
