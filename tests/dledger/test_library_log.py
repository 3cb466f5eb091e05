"""The log of a member whose group members of the DLedger library belong to: it lies as theirs does."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.dledger.membertools import LoneMember

from flaremq.base.errors import MessageIllegal
from flaremq.base.units import MiB
from flaremq.dledger.library.messages import LibraryEntry, entries_in
from flaremq.model import layout
from flaremq.testing.fakes.builders import a_message, batch_of

FILE = 8192


def entries(member: LoneMember) -> list[LibraryEntry]:
    found: list[LibraryEntry] = []
    while (run := member.ledger.run(len(found), FILE)) is not None:
        found += entries_in(run)
    return found


@pytest.mark.parametrize("as_library", [True, False])
def test_a_file_ends_where_the_next_entry_does_not_fit_also_within_a_batch(
    tmp_path: Path, as_library: bool
) -> None:
    with LoneMember(
        tmp_path, as_library=as_library, commitlog_file_size=FILE, message_size_max=4096
    ) as member:
        member.lead()
        for _ in range(12):
            member.store.put_batch(batch_of([a_message(b"x" * 700) for _ in range(5)]), wait=False)
        lie = entries(member)
    assert len(lie) == 61
    ended_early = []
    for before, after in pairwise(lie):
        if before.end != after.position:
            assert after.position % FILE == 0
            room = FILE - before.end % FILE
            ended_early.append(len(after.data) + layout.BLANK_SIZE <= room)
    assert len(ended_early) > 3
    assert any(ended_early) is not as_library


def test_a_message_that_no_member_of_the_library_could_hold_is_refused(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"commitlog_file_size": 16 * MiB, "message_size_max": 8 * MiB}
    head = layout.DLEDGER_HEADER_SIZE
    with LoneMember(tmp_path / "ours", **sizes) as member:
        member.lead()
        member.put(b"x" * (4 * MiB))
    with LoneMember(tmp_path / "theirs", as_library=True, **sizes) as member:
        member.lead()
        member.put(b"x" * (4 * MiB - 1000))
        assert len(entries_in_last(member)) <= layout.DLEDGER_ENTRY_MAX
        with pytest.raises(MessageIllegal, match=str(layout.DLEDGER_ENTRY_MAX - head)):
            member.put(b"x" * (4 * MiB))


def entries_in_last(member: LoneMember) -> bytes:
    run = member.ledger.run(member.ledger.last_index, 1)
    assert run is not None
    return bytes(run.data)
