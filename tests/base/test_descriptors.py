import resource

import pytest

from flaremq.base import descriptors


@pytest.mark.parametrize(
    ("granted", "files", "sockets"),
    [(256, 64, 144), (1024, 256, 672), (65_536, 4096, 57_312), (1_048_576, 4096, 1_040_352), (64, 64, 16)],
)
def test_sockets_leave_room_for_files(granted: int, files: int, sockets: int) -> None:
    assert descriptors.queue_files(granted) == files
    assert descriptors.for_sockets(granted) == sockets


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard - 1, hard))
    try:
        assert descriptors.limit() == hard - 1
        assert descriptors.raise_limit() == hard == descriptors.limit()
        assert descriptors.raise_limit() == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
