"""`flaremq version`: which FlareMQ this is, and whether its compiled modules are in use.

Every hot loop has a compiled twin. Without them everything works at about a tenth of the speed, and nothing
else would show why a broker is slow.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import typer


@dataclass(frozen=True, slots=True)
class Compiled:
    """The compiled modules: how many there could be, and which of them cannot be loaded."""

    total: int
    missing: tuple[str, ...] = ()
    is_forbidden: bool = False
    """Whether FLAREMQ_PURE is set."""

    @property
    def all_in_use(self) -> bool:
        return not self.missing and not self.is_forbidden

    def __str__(self) -> str:
        if self.is_forbidden:
            return "running without compiled modules, because FLAREMQ_PURE is set: about a tenth of the speed"
        if not self.missing:
            return f"compiled modules: all {self.total}"
        advice = "install a C compiler and reinstall FlareMQ"
        if len(self.missing) == self.total:
            return f"running without compiled modules: about a tenth of the speed; {advice}"
        return (
            f"compiled modules: {self.total - len(self.missing)} of {self.total}, "
            f"without {', '.join(self.missing)}: slower than it could be; {advice}"
        )


def compiled() -> Compiled:
    """The compiled modules of this process. A module that exists but cannot be loaded counts as missing."""
    root = Path(__file__).parents[1]
    twins = sorted(root.rglob("_*_py.py"))
    names = [".".join(("flaremq", *path.relative_to(root).with_suffix("").parts)) for path in twins]
    modules = [name.removesuffix("_py") + "_c" for name in names]
    if os.environ.get("FLAREMQ_PURE"):
        return Compiled(len(modules), is_forbidden=True)
    return Compiled(len(modules), tuple(name for name in modules if not _loads(name)))


def _loads(module: str) -> bool:
    try:
        import_module(module)
    except ImportError:
        return False
    return True


def command() -> None:
    """Print the version, and whether the compiled modules are in use."""
    typer.echo(f"flaremq {version('flaremq')}")
    typer.echo(str(compiled()))
