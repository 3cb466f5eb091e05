"""Free ports: what one search has found, no other finds."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from flaremq.base.errors import NotWritable
from flaremq.remoting import ports

SEARCH = """
import random
from flaremq.remoting.ports import free_port
print(free_port(steps=(0, 1), rng=random.Random(7)), flush=True)
input()
"""


def test_two_searches_in_one_process_find_different_ports() -> None:
    first, second = (ports.free_port(rng=random.Random(1)) for _ in range(2))
    assert first != second


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no names that end with a process")
def test_what_another_process_has_found_is_not_found_while_it_lives() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SEARCH], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        theirs = int(other.stdout.readline())
        ours = ports.free_port(steps=(0, 1), rng=random.Random(7))
        other.stdin.write("\n")
    assert ours != theirs
    assert ports.free_port(steps=(0, 1), rng=random.Random(7)) == theirs


def test_a_process_keeps_a_few_finds_to_itself_and_not_all() -> None:
    first = ports.free_port(rng=random.Random(3))
    for _ in range(100):
        ports.free_port()
    assert ports.free_port(rng=random.Random(3)) == first


def test_a_machine_without_a_free_port_is_told_of_with_the_option_to_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ports, "are_free", lambda _host, _ports: False)
    with pytest.raises(NotWritable, match=r"no free port between 20000 and 32000 .*set one yourself"):
        ports.free_port()
