"""`flaremq up --replicas N`: the members of a Raft group, each in a process of its own.

Each has a folder `nX` below the data folder, with its settings, its store, and what it prints.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from flaremq.base.errors import ConfigError
from flaremq.base.propertiesfile import parse_properties
from flaremq.cli.render import note
from flaremq.servers.membership import member_settings
from flaremq.servers.processes import Process, ProcessFailed, properties_file

REPLICAS_MAX: Final = 7
_LOOK_S: Final = 0.5


def start_members(
    usual: Mapping[str, object], data: Path, host: str, replicas: int, options: Sequence[str]
) -> list[Process]:
    """Start all members, and return when all serve. `usual` is for each of them."""
    _check_count(data, replicas)
    members = []
    for own in member_settings(replicas, host, _peers_of_last_time(data)):
        name, port = str(own["dLegerSelfId"]), own["listenPort"]
        assert isinstance(port, int)
        folder = data / name
        folder.mkdir(parents=True, exist_ok=True)
        store = {"storePathRootDir": folder / "store"}
        properties_file(folder, {**usual, **parse_properties("\n".join(options)), **store, **own})
        members.append(Process("broker", name, port, folder))
    try:
        with ThreadPoolExecutor(replicas) as threads:
            list(threads.map(Process.wait_ready, members))
    except ProcessFailed as error:
        stop_members(members)
        raise ConfigError(str(error)) from None
    return members


async def watch_members(members: Sequence[Process]) -> None:
    """Say when a member ends that nobody has stopped, until this is cancelled."""
    running = list(members)
    while running:
        await asyncio.sleep(_LOOK_S)
        for each in [member for member in running if not member.is_running]:
            running.remove(each)
            again = f"flaremq broker -c {each.folder / 'conf.properties'}"
            note(
                f"member {each.name}, process {each.pid}, has ended; its last words are in "
                f"{each.folder / 'printed'}: start it again with `{again}`"
            )


def stop_members(members: Sequence[Process]) -> None:
    """Stop them one after another: each hands over to those that still run."""
    for member in members:
        member.end()


def _peers_of_last_time(data: Path) -> str:
    """They stay: a group that has changed its members remembers the addresses of all."""
    kept = data / "n0" / "conf.properties"
    return parse_properties(kept.read_text()).get("dLegerPeers", "") if kept.is_file() else ""


def _check_count(data: Path, replicas: int) -> None:
    there = sum((data / f"n{number}" / "store").is_dir() for number in range(REPLICAS_MAX))
    if there not in (0, replicas):
        raise ConfigError(
            f"{data} holds a group of {there} members: use --replicas {there}, or another folder with --data"
        )
