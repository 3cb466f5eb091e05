"""The timer wheel on a disk that has no room."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store.smalldisk import small_disk

from flaremq.base.units import MiB
from flaremq.store.files.disk import Disk
from flaremq.store.timer.wheel import Slot, Wheel

SECOND = 1_000
READS_ALL = """
import sys
from pathlib import Path
from flaremq.store.files.disk import Disk
from flaremq.store.timer.wheel import Slot, Wheel
folder = Path(sys.argv[1])
wheel = Wheel(Disk(), folder / "timerwheel", 1000)
wheel.open()
wheel.put(5_000, Slot(1, 2, 3))
with (folder / "filler").open("wb", buffering=0) as filler:
    try:
        while filler.write(bytes(4096)):
            pass
    except OSError:
        pass
assert wheel.get(100_000_000) is None
assert wheel.next_occupied(6_000, wheel.window_ms) is None
assert wheel.next_occupied(1_000, wheel.window_ms) == 5_000
print(wheel.checksum())
"""


def test_reading_the_wheel_needs_no_space(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 4 * MiB) as disk:
        read = subprocess.run([sys.executable, "-c", READS_ALL, str(disk)], capture_output=True, text=True)
        assert (read.returncode, read.stderr) == (0, "")
        (disk / "filler").unlink()
        wheel = Wheel(Disk(), disk / "timerwheel", SECOND)
        assert wheel.open()
        assert wheel.checksum() == int(read.stdout)
        wheel.close()


@given(
    st.dictionaries(st.integers(1, 999).map(lambda n: n * SECOND), st.integers(0, 9), max_size=6),
    st.integers(1, 2_500),
    st.integers(0, 1_000),
)
def test_the_next_time_with_messages_is_found_wherever_it_lies(
    tmp_path_factory: pytest.TempPathFactory, counts: dict[int, int], begin: int, span: int
) -> None:
    folder = tmp_path_factory.mktemp("wheel")
    wheel = Wheel(Disk(), folder / "timerwheel", SECOND, slots=1_000)
    assert not wheel.open()
    for at_ms, count in counts.items():
        wheel.put(at_ms, Slot(1, 2, count))
    times = [at_ms for at_ms in sorted(counts) if begin * SECOND <= at_ms < (begin + span) * SECOND]
    assert wheel.next_occupied(begin * SECOND, (begin + span) * SECOND) == (times[0] if times else None)
    before = wheel.checksum()
    wheel.close()
    again = Wheel(Disk(), folder / "timerwheel", SECOND, slots=1_000)
    assert again.open()
    assert again.checksum() == before
    assert {at_ms: again.get(at_ms) for at_ms in counts} == {
        at_ms: Slot(1, 2, count) for at_ms, count in counts.items()
    }
    again.close()
