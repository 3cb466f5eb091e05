"""A real process is really killed, again and again in the same folder, and nothing acknowledged is lost.

The page cache survives a kill, so under ASYNC_FLUSH, too, all that was acknowledged must be there. Only
what waits in a buffer of the transient pool may go.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from tests.store.crash_child import settings_of
from tests.store.proofs import Promises, Queue, served

from flaremq.store.store import MessageStore

ROOT: Final = Path(__file__).parents[2]
CHILD: Final = ROOT / "tests" / "store" / "crash_child.py"
Ack = tuple[Queue, int, str]

VARIANTS: Final[dict[str, dict[str, Any]]] = {
    "sync flush": {},
    "async flush": {"flush_disk": "ASYNC_FLUSH"},
    "extensions": {"ext_enabled": True},
    "small index files": {"index_entries": 20},
    "sync flush through the pool": {"pool_enabled": True, "pool_size": 2},
}


def child(root: Path, life: int, options: dict[str, Any], *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(CHILD), str(root), f"life{life}", json.dumps(options), *more]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path})


def acks_until_killed(process: subprocess.Popen[bytes], count: int) -> list[Ack]:
    """Kill after so many acknowledgements. What it managed to say meanwhile counts as well."""
    assert process.stdout is not None
    acks: list[Ack] = []
    with process.stdout as lines:
        for line in lines:
            topic, queue_id, offset, name = line.decode().split()
            acks.append(((topic.encode(), int(queue_id)), int(offset), name))
            if len(acks) == count:
                process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "the child ended by itself; see above why"
    return acks


def lives(root: Path, seed: int, options: dict[str, Any], count: int) -> None:
    """So many rounds of: a child fills and dies, and what it left is looked at."""
    random, promises = Random(seed), Promises()
    for life in range(count):
        acks = acks_until_killed(child(root, life, options), random.choice([1, 10, 50, 200]))
        for ack in acks:
            promises.add(*ack)
        with MessageStore(settings_of(root, options)) as store:
            assert store.report is not None
            assert not store.report.clean
            promises.check(store, keys={name for _, _, name in acks})


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_killed_process_loses_nothing_that_it_acknowledged(tmp_path: Path, variant: str) -> None:
    lives(tmp_path, 1, VARIANTS[variant], 2)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(2, 6))
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_process_killed_many_times_loses_nothing(tmp_path: Path, variant: str, seed: int) -> None:
    lives(tmp_path, seed, VARIANTS[variant], 12)


def test_what_was_not_yet_committed_from_the_pool_is_lost_from_the_end_only(tmp_path: Path) -> None:
    """Acknowledged under ASYNC_FLUSH, but in memory alone: queues keep a part without holes."""
    options = {"flush_disk": "ASYNC_FLUSH", "pool_enabled": True, "pool_size": 2}
    seen: dict[Queue, list[str]] = {}
    for life in range(2):
        told = {(queue, offset): name for queue, offset, name in
                acks_until_killed(child(tmp_path, life, options), 150)}  # fmt: skip
        with MessageStore(settings_of(tmp_path, options)) as store:
            there = served(store)
        for queue, names in there.items():
            assert all(told.get((queue, offset), name) == name for offset, name in enumerate(names))
        for queue, names in seen.items():
            assert there[queue][: len(names)] == names
        seen = there


def die_while_starting(root: Path, random: Random, rounds: int) -> None:
    """Each child dies at one of its first operations on the disk: in recovery, or not much later."""
    promises = Promises()
    for ack in acks_until_killed(child(root, 0, {}), 60):
        promises.add(*ack)
    for life in range(1, rounds + 1):
        process = child(root, life, {}, str(random.randrange(1, 60)))
        for ack in acks_until_killed(process, 1 << 30):
            promises.add(*ack)
    with MessageStore(settings_of(root, {})) as store:
        promises.check(store)


def test_a_process_killed_while_it_starts_loses_nothing(tmp_path: Path) -> None:
    die_while_starting(tmp_path, Random(1), 3)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(2, 8))
def test_a_process_killed_while_it_starts_many_times_loses_nothing(tmp_path: Path, seed: int) -> None:
    die_while_starting(tmp_path, Random(seed), 15)
