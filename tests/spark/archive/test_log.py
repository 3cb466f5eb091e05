"""The commit log: however commits, repeats, crashes and merges follow each other, every row is there once."""

from __future__ import annotations

import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from flaremq.base.errors import CorruptStore
from flaremq.base.files import create_whole
from flaremq.spark.archive.log import ArchiveCommit, ArchiveLog, ArchiveState, CommitVerdict, QueryBatch
from flaremq.spark.archive.partitions import DataFile
from flaremq.spark.archive.publish import HIDDEN_SUFFIX, SHOWN_SUFFIX, PublishedFiles

PARTS = tuple(f"topic=T/day=2026-05-01/hour={hour}" for hour in range(3))


class Died(Exception):
    """A process ends at this point."""


class DyingShown(PublishedFiles):
    """Ends after so many steps."""

    steps = 0

    def _fill(self, into: Path, paths: object) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise Died
        super()._fill(into, paths)  # type: ignore[arg-type]


class Archive(RuleBasedStateMachine):
    """Files hold numbers of rows as text. What a batch adds is in the model as soon as its commit is made."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="manifest-"))
        self.data, self.own = self.root / "_data", self.root / "_flaremq"
        self.log = ArchiveLog(self.own / "log", every=3)
        self.names = 0
        self.batch = 0
        self.rows = 0
        self.wanted: list[int] = []
        self.last: dict[str, list[int]] = {}
        self.merges: list[tuple[list[DataFile], DataFile]] = []

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    def file(self, part: str, rows: list[int]) -> DataFile:
        self.names += 1
        path = f"{part}/part-{self.names}{HIDDEN_SUFFIX}"
        (self.data / path).parent.mkdir(parents=True, exist_ok=True)
        (self.data / path).write_text(" ".join(map(str, rows)))
        return DataFile(path, len(rows), (self.data / path).stat().st_size)

    def files(self, rows: dict[str, list[int]]) -> tuple[DataFile, ...]:
        return tuple(self.file(part, numbers) for part, numbers in rows.items())

    def show(self, steps: int) -> None:
        shown = DyingShown(self.root, self.data, self.own, self.log)
        shown.steps = steps
        try:
            shown.catch_up()
        except Died:
            return

    @rule(
        counts=st.lists(st.integers(0, 3), min_size=3, max_size=3),
        commits=st.booleans(),
        steps=st.integers(0, 9),
    )
    def a_batch_is_run(self, counts: list[int], commits: bool, steps: int) -> None:
        """And its process dies before the commit, at any step of showing it, or not at all."""
        rows: dict[str, list[int]] = {}
        for part, count in zip(PARTS, counts, strict=True):
            if count:
                rows[part] = list(range(self.rows, self.rows + count))
                self.rows += count
        files = self.files(rows)
        if not commits:
            self.rows -= sum(counts)  # The batch comes again, with the same rows.
            return
        assert self.log.commit(ArchiveCommit(files, batch=QueryBatch("q", self.batch))) is CommitVerdict.FITS
        self.wanted += [number for numbers in rows.values() for number in numbers]
        self.last, self.batch = rows, self.batch + 1
        self.show(steps)

    @precondition(lambda self: self.batch)
    @rule()
    def the_last_batch_is_run_again(self) -> None:
        commit = ArchiveCommit(self.files(self.last), batch=QueryBatch("q", self.batch - 1))
        assert self.log.commit(commit) is CommitVerdict.REPEATED

    @rule(part=st.sampled_from(PARTS), count=st.integers(1, 4))
    def a_merge_is_prepared(self, part: str, count: int) -> None:
        files = [file for file in self.log.state().files.values() if file.path.startswith(f"{part}/")][:count]
        if files:
            rows = [int(each) for file in files for each in (self.data / file.path).read_text().split()]
            self.merges.append((files, self.file(part, rows)))

    @precondition(lambda self: self.merges)
    @rule(steps=st.integers(0, 9), data=st.data())
    def a_merge_is_committed(self, steps: int, data: st.DataObject) -> None:
        """Perhaps long after it was prepared, when others have merged the same files."""
        files, merged = self.merges.pop(data.draw(st.integers(0, len(self.merges) - 1)))
        live = self.log.state().files
        is_possible = all(file.path in live for file in files)
        commit = ArchiveCommit((merged,), tuple(file.path for file in files))
        assert (self.log.commit(commit) is CommitVerdict.FITS) is is_possible
        self.show(steps)

    @rule()
    def what_was_removed_is_deleted(self) -> None:
        self.show(99)
        gone = tuple(self.log.state().removed)
        for path in gone:
            (self.data / path).unlink()
        if gone:
            self.log.commit(ArchiveCommit(forgotten=gone))

    @rule()
    def all_is_shown(self) -> None:
        self.show(99)
        assert sorted(self.seen()) == sorted(self.wanted)

    @invariant()
    def readers_see_every_row_once(self) -> None:
        state = ArchiveLog(self.own / "log").state()
        found = [each for path in state.files for each in (self.data / path).read_text().split()]
        assert sorted(map(int, found)) == sorted(self.wanted)

    @invariant()
    def who_lists_folders_sees_no_row_twice(self) -> None:
        seen = self.seen()
        assert len(seen) == len(set(seen))
        assert set(seen) <= set(self.wanted)

    def seen(self) -> list[int]:
        files = self.root.glob(f"topic=*/day=*/hour=*/*{SHOWN_SUFFIX}")
        return [int(each) for path in files for each in path.read_text().split()]


TestArchive = Archive.TestCase
TestArchive.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def a_file(number: int) -> DataFile:
    return DataFile(f"{PARTS[0]}/part-{number}{HIDDEN_SUFFIX}", 1, 1)


def test_of_many_who_commit_at_once_each_gets_a_version_and_each_batch_is_taken_once(tmp_path: Path) -> None:
    def commit(number: int) -> CommitVerdict:
        return ArchiveLog(tmp_path, every=5).commit(
            ArchiveCommit((a_file(number),), batch=QueryBatch(f"q{number % 10}", number // 20))
        )

    with ThreadPoolExecutor(8) as pool:
        verdicts = list(pool.map(commit, range(200)))
    state = ArchiveLog(tmp_path).state()
    assert verdicts.count(CommitVerdict.FITS) == state.version == len(state.files)
    assert set(state.batches.values()) == {9} and len(state.batches) == 10


def test_a_state_is_written_down_now_and_then_and_what_lies_before_it_is_removed(tmp_path: Path) -> None:
    log = ArchiveLog(tmp_path, every=10, now_s=lambda: 5.0)
    for number in range(47):
        log.commit(ArchiveCommit((a_file(number),), batch=QueryBatch("q", number)))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names[0].startswith("00000000000000000030") and len(names) == 2 + 17
    assert len(log.state().files) == 47 and log.state().version == 47
    assert log.between(10, 47) is None
    recent = log.between(45, 47)
    assert recent is not None and [commit.batch for commit in recent] == [
        QueryBatch("q", 45),
        QueryBatch("q", 46),
    ]
    assert recent[0].time_ms == 5000


def test_a_writer_that_slept_while_the_log_went_on_does_not_believe_that_it_has_committed(
    tmp_path: Path,
) -> None:
    class Sleepy(ArchiveLog):
        slept = False

        def _read(self, known: ArchiveState) -> ArchiveState:
            found = super()._read(known)
            if not self.slept:
                self.slept = True
                for number in range(1, 40):
                    ArchiveLog(tmp_path, every=5).commit(ArchiveCommit((a_file(number),)))
            return found

    assert Sleepy(tmp_path, every=5).commit(ArchiveCommit((a_file(0),))) is CommitVerdict.FITS
    state = ArchiveLog(tmp_path).state()
    assert len(state.files) == 40 and a_file(0).path in state.files
    assert not (tmp_path / f"{1:020}.json").exists()


def test_an_empty_log_is_an_empty_archive(tmp_path: Path) -> None:
    assert ArchiveLog(tmp_path / "none").state() == ArchiveState()


def test_a_damaged_log_is_told_and_not_guessed_at(tmp_path: Path) -> None:
    create_whole(tmp_path / f"{1:020}.json", b'{"add": 7}')
    with pytest.raises(CorruptStore, match="restore it from a copy"):
        ArchiveLog(tmp_path).state()


def test_a_file_appears_whole_and_only_once(tmp_path: Path) -> None:
    assert create_whole(tmp_path / "a", b"one")
    assert not create_whole(tmp_path / "a", b"two")
    assert (tmp_path / "a").read_bytes() == b"one"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
