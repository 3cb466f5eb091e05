"""An archive of Spark's classes, ready to be mapped: it halves the start of a session.

    first start     -XX:ArchiveClassesAtExit=X.new      the JVM writes it when it ends, perhaps long after us
    later starts    X.new > X-SIZE.jsa, -XX:SharedArchiveFile=X-SIZE.jsa

The process that makes the archive holds a lock, which its JVM inherits and keeps until it ends. So two first
starts do not write the same file, and if the lock is free, `X.new` will not change any more. The JVM writes
the header last: a file without one is unfinished. A JVM crashes on an archive that was truncated later, hence
the size in the name; it finds other damage by checksums.

Nothing here may stop a start: without an archive Spark only starts more slowly.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import re
import struct
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flaremq.spark.launch.java import Java

log = logging.getLogger(__name__)

_MAGICS: Final = frozenset({0xF00BABA2, 0xF00BABA8})
"""First bytes of an archive of Java's own classes, and of one on top of it."""
_TRIES_MAX: Final = 3
"""A JVM that is killed writes nothing; one that cannot write would try at the end of every session."""
_UNUSED_S: Final = 30 * 86_400
"""An archive takes 150 MB, so those of a Java or Spark that is no longer used are deleted."""
_DUMP_LIMIT_S: Final = 120.0
# By default the JVM logs to stdout, where the user's results go.
_TO_STDERR: Final = ("-Xlog:disable", "-Xlog:all=error:stderr")


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """JVM options that use or make an archive."""

    options: tuple[str, ...] = ()
    lock: int | None = None
    """A file descriptor that the JVM must inherit, if it is to write the archive."""

    @property
    def is_made_now(self) -> bool:
        return self.lock is not None

    def handed_over(self) -> None:
        """Close our copy of the lock: the JVM has it, or did not start."""
        if self.lock is not None:
            os.close(self.lock)


def archive_for(java: Java, spark_home: Path, folder: Path) -> ClassArchive:
    """Options to use the archive of this Java and this Spark, or to make it in `folder`."""
    if re.search(r"[\s:]", str(folder)):
        return ClassArchive()  # The JVM separates two archives by a colon.
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return _Shelf(folder, f"spark-{_key(java, spark_home)}").archive(java)
    except OSError as error:
        log.debug("no class archive in %s: %s", folder, error)
        return ClassArchive()


def discard(archive: ClassArchive) -> None:
    """Delete an archive with which a JVM did not start: the next one makes another."""
    for option in archive.options:
        name, _, paths = option.partition("=")
        for path in paths.split(":") if name == "-XX:SharedArchiveFile" else ():
            with contextlib.suppress(OSError):
                Path(path).unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class _Shelf:
    """The files of one Java and one Spark."""

    folder: Path
    stem: str

    @property
    def new(self) -> Path:
        return self.folder / f"{self.stem}.new"

    @property
    def ground(self) -> Path:
        """An archive of Java's own classes, for a Java that came without one."""
        return self.folder / f"{self.stem}.ground"

    def whole(self) -> Path | None:
        for path in self.folder.glob(f"{self.stem}-*.jsa"):
            if _is_archive(path) and path.name == f"{self.stem}-{path.stat().st_size}.jsa":
                return path
        return None

    def archive(self, java: Java) -> ClassArchive:
        if found := self.whole():
            return self._use(java, found)
        lock = os.open(self.folder / f"{self.stem}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        made = ClassArchive()
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            made = self._take_or_make(java, lock)
            self._remove_unused()
        except BlockingIOError:
            log.debug("another process is making %s", self.stem)
        finally:
            if not made.is_made_now:
                os.close(lock)
        return made

    def _take_or_make(self, java: Java, lock: int) -> ClassArchive:
        if _is_archive(self.new):
            self.new.replace(self.folder / f"{self.stem}-{self.new.stat().st_size}.jsa")
            os.truncate(lock, 0)
        if found := self.whole():  # Perhaps made by another process meanwhile.
            return self._use(java, found)
        for useless in (self.new, *self.folder.glob(f"{self.stem}-*.jsa")):
            useless.unlink(missing_ok=True)
        tries = os.fstat(lock).st_size  # One byte per attempt.
        if tries >= _TRIES_MAX:
            return ClassArchive()
        os.pwrite(lock, b"+", tries)
        if java.has_class_archive:
            below: tuple[str, ...] = ()
        elif _is_archive(self.ground) or _made_ground(java, self.ground):
            below = (f"-XX:SharedArchiveFile={self.ground}",)
        else:
            return ClassArchive()
        return ClassArchive((*below, f"-XX:ArchiveClassesAtExit={self.new}", *_TO_STDERR), lock)

    def _use(self, java: Java, whole: Path) -> ClassArchive:
        os.utime(whole)
        paths = f"{whole}"
        if not java.has_class_archive:
            os.utime(self.ground)
            paths = f"{self.ground}:{whole}"
        # auto: Spark starts without an archive that does not fit.
        verified = ("-Xshare:auto", "-XX:+VerifySharedSpaces")
        return ClassArchive((*verified, f"-XX:SharedArchiveFile={paths}", *_TO_STDERR))

    def _remove_unused(self) -> None:
        oldest_s = time.time() - _UNUSED_S
        for path in self.folder.glob("spark-*"):
            if not path.name.startswith(self.stem) and path.stat().st_mtime < oldest_s:
                path.unlink(missing_ok=True)


def _made_ground(java: Java, path: Path) -> bool:
    unfinished = path.with_name(f"{path.name}-new")
    command = [str(java.home / "bin" / "java"), "-Xshare:dump", f"-XX:SharedArchiveFile={unfinished}"]
    try:
        subprocess.run(command, capture_output=True, timeout=_DUMP_LIMIT_S, check=True)
    except (subprocess.SubprocessError, OSError) as error:
        log.debug("%s cannot make a class archive: %s", java.home, error)
        return False
    unfinished.replace(path)
    return True


def _is_archive(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            head = file.read(4)
    except OSError:
        return False
    return len(head) == 4 and struct.unpack("=I", head)[0] in _MAGICS


def _key(java: Java, spark_home: Path) -> str:
    """Identifies Java and the jars of Spark: the JVM rejects an archive of others."""
    jars = sorted((jar.name, jar.stat().st_mtime_ns) for jar in (spark_home / "jars").glob("*.jar"))
    library = java.real_home / "lib" / "modules"
    built = library.stat().st_mtime_ns if library.exists() else 0
    whole = repr((str(java.real_home.resolve()), built, str(spark_home.resolve()), jars))
    return f"{java.version}-{hashlib.sha256(whole.encode()).hexdigest()[:12]}"
