"""What a member finds of its ledger after a stop, a crash, or damage."""

from __future__ import annotations

import shutil
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.dledger.membertools import LoneMember, group_of

from flaremq.dledger.ledger.ballots import BallotFile
from flaremq.dledger.ledger.checkpoint import FROM_ZERO, Beginning, LedgerSafety, parse
from flaremq.dledger.types import Ballot, Membership
from flaremq.model import layout
from flaremq.store.files.disk import Disk

COUNT = 160
BODIES = [b"%d" % n + b"." * (600 + n * 7 % 900) for n in range(COUNT)]
COMMITTED = 120


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a member that was killed: all entries are on the disk, not all are committed."""
    root = tmp_path_factory.mktemp("killed")
    with LoneMember(root / "alive") as member:
        member.lead(2)
        member.put(*BODIES)
        member.ledger.commit_to(COMMITTED)
        member.store.show()
        member.synced()
        member.log.save()
        return member.as_killed(root / "dead")


@pytest.fixture
def folder(killed: Path, tmp_path: Path) -> Path:
    return shutil.copytree(killed, tmp_path / "member")


def data_path(folder: Path, position: int) -> tuple[Path, int]:
    """The file that holds this byte of the log, and its place there."""
    size = 64 * 1024
    return folder / "dledger-n0" / "data" / f"{position // size * size:020d}", position % size


def flip(folder: Path, position: int, bits: int = 1) -> None:
    path, at = data_path(folder, position)
    with path.open("r+b") as file:
        file.seek(at)
        old = file.read(1)[0]
        file.seek(at)
        file.write(bytes([old ^ bits]))


def place_of(folder: Path, index: int) -> int:
    """Where an entry begins, by the index."""
    per_file = 128
    path = folder / "dledger-n0" / "index" / f"{index // per_file * per_file * 32:020d}"
    return int.from_bytes(path.read_bytes()[index % per_file * 32 + 4 :][:8], "big")


def test_after_a_kill_everything_is_there(folder: Path) -> None:
    with LoneMember(folder) as member:
        assert (member.ledger.last_index, member.ledger.last_term) == (COUNT, 2)
        assert member.ledger.synced_index == COUNT
        assert member.ledger.damage == ""
        assert member.bodies() == BODIES[:COMMITTED]
        member.commit()
        assert member.bodies() == BODIES


def test_a_clean_stop_leaves_a_ledger_that_says_how_far_it_is(folder: Path) -> None:
    with LoneMember(folder) as member:
        member.ledger.commit_to(COMMITTED + 5)
    found = parse((folder / "dledger-n0" / "checkpoint").read_bytes())
    assert (found.committed, found.end) == (COMMITTED + 5, COUNT)
    with LoneMember(folder) as member:
        assert member.store.report is not None and member.store.report.clean
        assert member.bodies() == BODIES[: COMMITTED + 5]


def test_a_torn_end_that_was_not_known_to_be_safe_is_cut_off(folder: Path) -> None:
    (folder / "dledger-n0" / "checkpoint").write_bytes(LedgerSafety(COMMITTED, 140).packed())
    flip(folder, place_of(folder, 150) + 100)
    with LoneMember(folder) as member:
        assert member.ledger.last_index == 149
        assert member.ledger.damage == ""
        member.lead(3)
        member.put(b"on it goes")
        member.commit()
        assert member.bodies() == [*BODIES[:149], b"on it goes"]


def test_damage_where_all_was_safe_is_reported(folder: Path) -> None:
    flip(folder, place_of(folder, 150) + 100)
    with LoneMember(folder) as member:
        assert member.ledger.last_index == 149
        assert "entries 150 to 160 were on the disk" in member.ledger.damage
        assert member.bodies() == BODIES[:COMMITTED]


def test_a_damaged_member_may_not_vote_though_it_starts_once_more(folder: Path) -> None:
    BallotFile(Disk(), folder / "dledger-n0").save(Ballot(9, "n2"))
    flip(folder, place_of(folder, 150) + 100)
    for damage in (True, False):
        with LoneMember(folder) as member:
            assert bool(member.ledger.damage) == damage
            assert member.ledger.ballots.load() == Ballot(9, "n2", is_voter=False)


def test_damage_below_what_was_committed_is_reported_and_leaves_what_is_good(folder: Path) -> None:
    (folder / "dledger-n0" / "checkpoint").write_bytes(LedgerSafety(COMMITTED, -1).packed())
    flip(folder, place_of(folder, 60) + 100)
    with LoneMember(folder) as member:
        assert (member.ledger.last_index, member.log.committed_index) == (59, 59)
        assert member.bodies() == BODIES[:59]


def test_lost_files_are_damage(folder: Path) -> None:
    shutil.rmtree(folder / "dledger-n0" / "data")
    with LoneMember(folder) as member:
        assert (member.ledger.first_index, member.ledger.last_index) == (0, -1)
        assert member.ledger.damage
        assert member.bodies() == []


def test_a_lost_checkpoint_is_damage_and_loses_nothing(folder: Path) -> None:
    (folder / "dledger-n0" / "checkpoint").unlink()
    with LoneMember(folder) as member:
        assert member.ledger.last_index == COUNT
        assert "checkpoint is missing" in member.ledger.damage
        assert member.bodies() == []
        member.commit()
        assert member.bodies() == BODIES


def test_a_checkpoint_that_cannot_be_read_is_a_lost_one(folder: Path) -> None:
    (folder / "dledger-n0" / "checkpoint").write_bytes(b"\0\xff")
    with LoneMember(folder) as member:
        assert member.ledger.last_index == COUNT
        assert member.ledger.damage


@pytest.mark.parametrize("which", ["all", "first", "last"])
def test_a_lost_index_is_made_again(folder: Path, which: str) -> None:
    files = sorted((folder / "dledger-n0" / "index").iterdir())
    for path in {"all": files, "first": files[:1], "last": files[-1:]}[which]:
        path.unlink()
    (folder / "dledger-n0" / "checkpoint").unlink()
    with LoneMember(folder) as member:
        assert member.ledger.last_index == COUNT
        for index in range(COUNT + 1):
            run = member.ledger.run(index, 1)
            assert run is not None and (run.first, run.count) == (index, 1)


def test_an_index_that_cannot_be_is_made_again(folder: Path) -> None:
    (folder / "dledger-n0" / "index" / f"{0:020d}").write_bytes(b"no units")
    with LoneMember(folder) as member:
        assert (member.ledger.last_index, member.ledger.damage) == (COUNT, "")
        assert member.ledger.term_at(3) == 2


def test_entries_whose_units_were_never_written_are_found(folder: Path) -> None:
    path = folder / "dledger-n0" / "index" / f"{128 * 32:020d}"
    path.write_bytes(path.read_bytes()[:320].ljust(128 * 32, b"\0"))
    (folder / "dledger-n0" / "checkpoint").write_bytes(LedgerSafety(COMMITTED, 137).packed())
    with LoneMember(folder) as member:
        assert (member.ledger.last_index, member.ledger.damage) == (COUNT, "")
        assert member.ledger.term_at(COUNT - 1) == 2


def test_queues_that_are_ahead_of_what_is_committed_are_cut(folder: Path) -> None:
    with LoneMember(folder) as member:
        member.commit()
        assert member.bodies() == BODIES
    (folder / "dledger-n0" / "checkpoint").write_bytes(LedgerSafety(50, COUNT).packed())
    with LoneMember(folder) as member:
        assert member.bodies() == BODIES[:50]
        member.ledger.truncate_from(60)
        member.commit()
        assert member.bodies() == BODIES[:59]


def test_given_up_entries_are_not_missed_after_a_kill(folder: Path, tmp_path: Path) -> None:
    with LoneMember(folder) as member:
        member.ledger.truncate_from(130)
        left = member.as_killed(tmp_path / "again")
    with LoneMember(left) as member:
        assert (member.ledger.last_index, member.ledger.damage) == (129, "")


def test_a_log_that_was_to_begin_anew_does_so_after_a_kill(folder: Path) -> None:
    position = 64 * 1024 * 9
    beginning = Beginning(500, position, 7)
    (folder / "dledger-n0" / "checkpoint").write_bytes(LedgerSafety(499, 499, beginning).packed())
    with LoneMember(folder) as member:
        assert (member.ledger.first_index, member.ledger.last_index) == (500, 499)
        assert (member.ledger.last_term, member.ledger.term_at(499)) == (7, 7)
        assert member.ledger.damage == ""
        assert member.log.end == position
        member.lead(8)
        assert member.ledger.run(500, 1) is not None


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    place=st.floats(0, 1),
    bits=st.integers(1, 255),
    safe=st.integers(-1, COUNT),
    lost_index=st.booleans(),
)
def test_whatever_byte_is_damaged_what_is_before_it_stays_and_safe_loss_is_told(
    killed: Path,
    tmp_path_factory: pytest.TempPathFactory,
    place: float,
    bits: int,
    safe: int,
    lost_index: bool,
) -> None:
    folder = shutil.copytree(killed, tmp_path_factory.mktemp("flipped") / "member")
    ends = [place_of(folder, index) for index in range(COUNT + 1)]
    position = int(place * ends[-1])
    hit = max(index for index in range(COUNT + 1) if ends[index] <= position)
    flip(folder, position, bits)
    (folder / "dledger-n0" / "checkpoint").write_bytes(LedgerSafety(min(safe, COMMITTED), safe).packed())
    if lost_index:
        shutil.rmtree(folder / "dledger-n0" / "index")
    with LoneMember(folder) as member:
        last = member.ledger.last_index
        assert last >= hit - 1
        assert bool(member.ledger.damage) == (last < safe)
        member.commit()
        found = member.bodies()
        assert found == BODIES[: len(found)]
        assert len(found) >= hit - 1
    shutil.rmtree(folder.parent)


def test_the_checkpoint_reads_what_it_has_written() -> None:
    rosters = {3: {"n0": "10.0.0.1:1", "n1": "h=st:2"}}
    safety = LedgerSafety(4, 9, Beginning(2, 65536, 1), rosters)
    assert parse(safety.packed()) == safety
    assert parse(b"endIndex=3\ncommittedIndex=-1\n") == LedgerSafety(-1, 3, FROM_ZERO, {})


def test_ballots_are_javas_file_with_lines_that_java_passes_over(tmp_path: Path) -> None:
    ballots = BallotFile(Disk(), tmp_path)
    assert ballots.load() is None
    for ballot in (Ballot(3, "n1"), Ballot(4, "", is_voter=False), Ballot(5, "n2")):
        ballots.save(ballot)
        assert ballots.load() == ballot
    said = b"voteLeader=n2\ncurrTerm=5\n"
    assert ballots.path.read_bytes() == b"checksum=%08x\n" % crc32(said) + said


@pytest.mark.parametrize(
    ("text", "ballot"),
    [
        (b"currTerm=8\nvoteLeader=\n", Ballot(8, "")),
        (b"voteLeader=n1\ncurrTerm=8\n", Ballot(8, "n1")),
        (b"#comment\ncurrTerm=8\nvoteLeader=\n", Ballot(8, "")),
    ],
)
def test_ballots_that_java_wrote_are_believed(tmp_path: Path, text: bytes, ballot: Ballot) -> None:
    (tmp_path / "currterm").write_bytes(text)
    assert BallotFile(Disk(), tmp_path).load() == ballot


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"voteLeader=n0\n",
        b"currTerm=x\n",
        b"voteLeader=n0\ncurrTerm=x\n",
        b"voteLeader=n0\ncurrTerm=1",  # Of 12, perhaps.
        b"voteLeader=\ncurrTerm=4\nisVoter=false\n",
    ],
)
def test_a_ballot_that_cannot_be_believed_is_forgotten(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "currterm").write_bytes(text)
    assert BallotFile(Disk(), tmp_path).load() is None


@pytest.mark.parametrize("ballot", [Ballot(12, "n2"), Ballot(12, "", is_voter=False)], ids=["voter", "none"])
def test_fault_42_a_ballot_is_what_was_written_or_forgotten_whatever_bits_flip(
    tmp_path: Path, ballot: Ballot
) -> None:
    ballots = BallotFile(Disk(), tmp_path)
    ballots.save(ballot)
    text = ballots.path.read_bytes()
    forgotten = 0
    for bit in range(8 * len(text)):
        flipped = bytearray(text)
        flipped[bit // 8] ^= 1 << bit % 8
        ballots.path.write_bytes(flipped)
        forgotten += ballots.load() is None
        assert ballots.load() in (None, ballot)
    assert forgotten > 7 * len(text)


@pytest.mark.parametrize("ballot", [Ballot(12, "n2"), Ballot(12, "", is_voter=False)], ids=["voter", "none"])
def test_fault_42_a_ballot_that_was_torn_is_forgotten(tmp_path: Path, ballot: Ballot) -> None:
    ballots = BallotFile(Disk(), tmp_path)
    ballots.save(ballot)
    text = ballots.path.read_bytes()
    for size in range(len(text)):
        for torn in (text[:size], text[:size].ljust(len(text), b"\0"), text[size:] * (size > 0)):
            ballots.path.write_bytes(torn)
            assert ballots.load() is None or torn == text.partition(b"\n")[2]


def test_members_said_before_the_walk_are_kept_and_those_cut_off_are_not(folder: Path) -> None:
    def more(n: int) -> Membership:
        return Membership({**group_of().addresses, f"n{n}": f"10.0.0.{n}:1"})

    with LoneMember(folder) as member:
        member.lead(3)
        for number in (4, 5):
            member.ledger.change(more(number))
            member.put(*BODIES)
            member.commit()
        member.synced()
    with LoneMember(folder) as member:
        newest = member.ledger.membership
        assert newest.addresses == more(5).addresses
    place = place_of(folder, newest.index)
    flip(folder, place + layout.DLEDGER_HEADER_SIZE + 100)
    (folder / "dledger-n0" / "checkpoint").unlink()
    with LoneMember(folder) as member:
        assert member.ledger.membership.addresses == more(4).addresses
