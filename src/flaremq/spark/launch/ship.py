"""FlareMQ on the executors of other machines: a zip of our modules, or a whole Python environment.

Executors on this machine run our own interpreter. For other machines there are three ways:

    installed    flaremq is in the Python of the executors: nothing is sent
    ship         a zip of our modules is sent; the packages they need (lz4, orjson, zstandard, pyarrow) are
                 compiled, cannot be loaded from a zip, and must be installed there
    python_env   a packed environment (venv-pack, conda-pack) is sent, with everything in it

The zip has the Python twins only: compiled ones cannot be loaded from it.
"""

from __future__ import annotations

import importlib.util
import shlex
import sys
import zipfile
from pathlib import Path
from typing import Final

from flaremq.base.errors import ConfigError
from flaremq.spark.launch.cache import keep_file

_PACKAGES: Final = ("flaremq", "pyspark_rocketmq", "pyspark_rocketmq_store")
"""The last two hold only the names by which Spark finds our formats."""
_SUFFIXES: Final = frozenset({".py", ".tsv"})
_ARCHIVES: Final = (".tar.gz", ".tgz", ".zip", ".tar")
ENV_NAME: Final = "env"
ENV_PYTHON: Final = f"./{ENV_NAME}/bin/python"


def zip_of_ourselves(folder: Path) -> Path:
    """A zip of our packages that executors can import from."""
    path = folder / "flaremq.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as into:
        for name in _PACKAGES:
            found = importlib.util.find_spec(name)
            if found is None or found.origin is None:
                continue
            origin = Path(found.origin)
            if origin.name != "__init__.py":
                into.write(origin, origin.name)
                continue
            for file in sorted(origin.parent.rglob("*")):
                if file.suffix in _SUFFIXES:
                    into.write(file, file.relative_to(origin.parent.parent).as_posix())
    return path


def archive_setting(env: Path) -> str:
    """The value of spark.archives that unpacks `env` where ENV_PYTHON looks for it."""
    if not env.is_file():
        raise ConfigError(
            f"{env} does not exist: expected a packed environment for the executors (venv-pack -o env.tar.gz)"
        )
    if not env.name.endswith(_ARCHIVES):
        raise ConfigError(f"{env} is not a packed environment: expected {', '.join(_ARCHIVES)}")
    return f"{env.resolve()}#{ENV_NAME}"


def stand_in_env(folder: Path) -> None:
    """Make ENV_PYTHON run our own interpreter below `folder` on the driver.

    Spark plans Python data sources on the driver with the interpreter of the executors, under the same
    relative path. The environment is not unpacked on the driver.
    """
    text = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n'
    keep_file(folder / ENV_NAME / "bin" / "python", text, mode=0o755)
