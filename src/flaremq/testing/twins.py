"""Both twins of a module, so that one suite can test each."""

import importlib.util
import os
from importlib import import_module
from types import ModuleType


def twins(room: str) -> list[ModuleType]:
    """The Python twin, and the compiled one if it is built: `twins("flaremq.model._record")`.

    With FLAREMQ_COMPILED=1 it must exist, so that a silently failed build does not pass.
    """
    found = [import_module(f"{room}_py")]
    compiled = f"{room}_c"
    if importlib.util.find_spec(compiled):
        found.append(import_module(compiled))
    elif os.environ.get("FLAREMQ_COMPILED"):
        raise ModuleNotFoundError(f"{compiled} was expected but is not built: run make build")
    return found


def twin_name(module: ModuleType) -> str:
    return module.__name__.rpartition("_")[2]
