"""Both twins of a room, so that one suite can hold for each."""

import importlib.util
import os
from importlib import import_module
from types import ModuleType


def twins(room: str) -> list[ModuleType]:
    """The Python twin, and the compiled one where it is built: `twins("flaremq.model._record")`.

    FLAREMQ_COMPILED=1 says that it must be there: a build that failed silently is then no pass.
    """
    found = [import_module(f"{room}_py")]
    compiled = f"{room}_c"
    if importlib.util.find_spec(compiled):
        found.append(import_module(compiled))
    elif os.environ.get("FLAREMQ_COMPILED"):
        raise ModuleNotFoundError(f"{compiled} was expected and is not built: run make build")
    return found


def twin_name(module: ModuleType) -> str:
    return module.__name__.rpartition("_")[2]
