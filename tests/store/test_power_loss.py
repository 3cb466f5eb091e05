"""The power fails: what was synced is there, what is served is whole, and queues and keys follow."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
from tests.store.lives import Lives

from flaremq.store.settings import FlushDisk

SHAPES: Final[dict[str, dict[str, Any]]] = {
    "sync flush": {"flush_disk": FlushDisk.SYNC_FLUSH},
    "async flush": {},
    "queue files of several pages": {"consumequeue_file_size": 3 * 4096, "ext_enabled": True},
    "pool": {"pool_enabled": True, "pool_size": 2},
}


def run(folder: Path, shape: str, seed: int, events: int) -> None:
    lives = Lives(folder, seed, **SHAPES[shape])
    try:
        lives.live(events)
        lives.lose_power()
    finally:
        lives.end()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(10))
def test_nothing_that_was_promised_is_lost(tmp_path: Path, shape: str, seed: int) -> None:
    run(tmp_path, shape, seed, 30)
