"""Java, Maven and the built driver, or the one line that says what is missing.

The driver is built once for each version of RocketMQ and again only when a source or a pom changes; what was
built is remembered in `target/stamp`. A file lock keeps two test runs from building at the same time.
"""

import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

HOME = Path(__file__).parent
MODULES: Mapping[str, str] = MappingProxyType({"5.3.3": "v5", "5.5.0": "v55", "4.9.8": "v4"})
"""The versions of RocketMQ that can be driven, and the Maven module of each."""
SINCE_5 = tuple(version for version in MODULES if version.startswith("5."))
SERVERS: Mapping[str, str] = MappingProxyType({"4.9.7": "v4servers"})
"""Versions of which only the servers are there. Those of 5.x come with its driver."""
ERAS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {"5.3": ("5.3.3", "5.3.3"), "5.5": ("5.5.0", "5.5.0"), "4.9": ("4.9.7", "4.9.8")}
)
"""A version of servers, and one of clients to go with it: 5.x's mqadmin asks what no 4.x broker knows."""
BUILT = (*MODULES.values(), *SERVERS.values())
JAVA_MAJOR_MIN = 17
BUILD_LIMIT_S = 600.0
REASON_LENGTH_MAX = 300


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A Java and a built driver for each version: all that a driver process needs."""

    java: Path
    class_paths: Mapping[str, str]


class MissingError(Exception):
    """Something outside the repository is not there; the message is the whole story, in one line."""


@functools.cache
def find_toolchain() -> Toolchain | str:
    """Build what is not built yet; say, once per process, what to start or why that cannot be."""
    try:
        java = _find_java()
        with _locked():
            if not _is_built():
                _build()
        modules = {**MODULES, **SERVERS}
        return Toolchain(java, {version: _class_path(module) for version, module in modules.items()})
    except MissingError as missing:
        return str(missing)


def _find_java() -> Path:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home, "bin"))) if home else shutil.which("java")
    if found is None:
        raise MissingError(f"no java in JAVA_HOME ({home})" if home else "no java on the PATH")
    printed = subprocess.run([found, "-version"], capture_output=True, text=True, check=False, timeout=60)
    version = re.search(r'version "(\d+)', printed.stderr)
    if version is None or int(version[1]) < JAVA_MAJOR_MIN:
        first = (printed.stderr.splitlines() or ["nothing"])[0]
        raise MissingError(f"Java {JAVA_MAJOR_MIN} or later is needed, but {found} says {first}")
    return Path(found)


@contextmanager
def _locked() -> Iterator[None]:
    target = HOME / "target"
    target.mkdir(exist_ok=True)
    with (target / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _is_built() -> bool:
    stamp = HOME / "target" / "stamp"
    if not stamp.exists() or stamp.read_text() != _digest_of_sources():
        return False
    jars = [Path(jar) for module in BUILT for jar in _class_path(module).split(os.pathsep)]
    return all(jar.exists() for jar in jars)


def _build() -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise MissingError("no Maven (mvn) on the PATH")
    digest = _digest_of_sources()
    command = [maven, "-q", "-B", "-Dstyle.color=never", "process-classes"]
    try:
        printed = subprocess.run(
            command, cwd=HOME, capture_output=True, text=True, check=False, timeout=BUILD_LIMIT_S
        )
    except subprocess.TimeoutExpired:
        raise MissingError(
            f"Maven did not finish within {BUILD_LIMIT_S:.0f} s: can it reach its repositories?"
        ) from None
    if printed.returncode != 0:
        raise MissingError(f"Maven cannot build the driver: {_main_error(printed.stdout + printed.stderr)}")
    (HOME / "target" / "stamp").write_text(digest)


def _main_error(output: str) -> str:
    """The line that tells most. Maven's last ones only point to its manual; the cause comes first."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output)
    lines = [line.removeprefix("[ERROR]").strip() for line in plain.splitlines()]
    error = next((line for line in lines if line), "it printed nothing")
    if len(error) <= REASON_LENGTH_MAX:
        return error
    half = REASON_LENGTH_MAX // 2  # What failed stands at the beginning, why at the end.
    return f"{error[:half]} ... {error[-half:]}"


def _digest_of_sources() -> str:
    digest = hashlib.sha256()
    roots = [HOME / "shared", *(HOME / module / "src" for module in BUILT)]
    poms = [HOME / "pom.xml", *(HOME / module / "pom.xml" for module in BUILT)]
    sources = sorted(path for root in roots for path in root.rglob("*") if path.is_file())
    for path in poms + sources:
        digest.update(f"{path.relative_to(HOME)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _class_path(module: str) -> str:
    target = HOME / module / "target"
    return os.pathsep.join([str(target / "classes"), (target / "classpath.txt").read_text().strip()])
