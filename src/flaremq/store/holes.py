"""The first hole in a log that is a copy: what lies behind it is given up, because others have it.

    0000 1000 [2000 is missing] 3000 4000  >  0000 1000 in the log; 3000 4000 in the folder `cut`

A log is only what can be read without a gap from its begin. A master with a hole does not start: only an
operator can know where the rest is. A slave need not ask, as all of its log is its master's, nor a member of
a group; it goes on from the hole, and keeps what lay behind.

A file is there if it has its full length. A file of another length is a hole too, unless all have it: then
the setting is wrong, and not the log. A log that lacks its first files is one from which old files were
deleted.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from flaremq.base.clock import Clock
from flaremq.base.logs import fields, logger
from flaremq.store.files.disk import Disk, make_way
from flaremq.store.settings import StoreSettings

CUT_FOLDER = "cut"
"""Below the root: what was given up, in files that are named by its offset."""
log = logger("store.holes")


class LogHole(NamedTuple):
    """Where the log cannot be read, and the files from there on."""

    path: Path
    why: str
    behind: tuple[Path, ...]


def find_hole(disk: Disk, settings: StoreSettings) -> LogHole | None:
    """The first one. Names that are no numbers are left to whoever loads the log."""
    folders = *settings.commitlog_folders, *settings.read_only_commitlog_folders
    files = {name: folder / name for folder in folders for name in disk.names(folder) if name.isdigit()}
    names, size = sorted(files), settings.commitlog_file_size
    sizes = {name: disk.size(files[name]) for name in names}
    if size not in sizes.values():
        return None
    expected = int(names[0])
    for number, name in enumerate(names):
        behind = tuple(files[each] for each in names[number:])
        if int(name) != expected:
            missing = files[name].with_name(f"{expected:020d}")
            return LogHole(missing, "the file is missing", behind)
        if sizes[name] != size and (sizes[name] or name != names[-1]):  # The last may just have been created.
            return LogHole(files[name], f"the file has {sizes[name]} bytes instead of {size}", behind)
        expected += size
    return None


def give_up_behind(hole: LogHole, disk: Disk, settings: StoreSettings, clock: Clock) -> int:
    """Move the files from the hole on to the folder of what was cut. Returns how many bytes they have."""
    folder, now_ms = settings.root / CUT_FOLDER, clock.now_ms()
    make_way(disk, folder)
    moved = 0
    for path in reversed(hole.behind):  # The newest first: a crash in between leaves the same hole.
        moved += disk.size(path)
        disk.move(path, folder / f"{path.name}-{now_ms}")
    log.error(
        "a part of the log cannot be read: %s. From there on it is copied again from others, and what lay "
        "behind is kept in %s",
        *(hole.why, folder),
        extra=fields(file=hole.path, bytes=moved),
    )
    return moved
