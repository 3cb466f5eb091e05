"""The log of a member: appended as a leader, copied as a follower, given up, and opened again."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.dledger.membertools import LoneMember, group_of

from flaremq.base.errors import FlareError, FlushFailed, Malformed, NotWritable
from flaremq.dledger.convert import Conversion, StoreKind
from flaremq.dledger.types import Ballot, EntryRun, Membership
from flaremq.model import layout
from flaremq.model.record import decode_many
from flaremq.store.api import GetStatus
from flaremq.store.offline.folder import OfflineStore
from flaremq.store.offline.verify import Verifier
from flaremq.store.store import MessageStore
from flaremq.testing.fakes.builders import small_settings
from flaremq.testing.fakes.disk import FaultyDisk


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[LoneMember]:
    with LoneMember(tmp_path / "leader") as member:
        yield member


@pytest.fixture
def follower(tmp_path: Path) -> Iterator[LoneMember]:
    with LoneMember(tmp_path / "follower") as member:
        yield member


def numbered(count: int, size: int = 1200) -> list[bytes]:
    return [b"%d" % n + b"." * size for n in range(count)]


def data_of(member: LoneMember) -> dict[str, bytes]:
    """Files of entries, without those made ahead."""
    folder = member.log.folder / "data"
    found = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    return {name: data for name, data in found.items() if any(data)}


def test_a_new_ledger_is_empty(leader: LoneMember) -> None:
    ledger = leader.ledger
    assert (ledger.first_index, ledger.last_index, ledger.last_term, ledger.synced_index) == (0, -1, -1, -1)
    assert ledger.run(0, 1000) is None
    assert ledger.membership == group_of().membership
    assert ledger.damage == ""


def test_a_term_begins_with_an_entry_that_is_in_no_queue(leader: LoneMember) -> None:
    leader.lead(term=3)
    assert (leader.ledger.last_index, leader.ledger.last_term) == (0, 3)
    assert list(leader.store.queues.items()) == []
    leader.put(b"one")
    assert leader.ledger.last_index == 1
    assert leader.ledger.term_at(1) == 3


def test_what_is_not_committed_is_not_seen(leader: LoneMember) -> None:
    leader.lead()
    leader.put(b"one", b"two")
    assert leader.bodies() == []
    leader.ledger.commit_to(1)
    assert leader.bodies() == [b"one"]
    leader.commit()
    assert leader.bodies() == [b"one", b"two"]


def test_puts_are_refused_before_the_member_leads_and_after(leader: LoneMember) -> None:
    with pytest.raises(NotWritable, match="send to its leader"):
        leader.put(b"too early")
    assert leader.follows()
    leader.lead()
    assert not leader.follows()
    leader.put(b"one")
    leader.ledger.allow(False)
    with pytest.raises(NotWritable):
        leader.put(b"handing over")
    leader.ledger.allow(True)
    leader.put(b"two")
    leader.ledger.follow()
    with pytest.raises(NotWritable):
        leader.put(b"too late")


def test_copied_entries_are_equal_in_every_byte(leader: LoneMember, follower: LoneMember) -> None:
    leader.lead()
    leader.put(*numbered(200))
    assert len(leader.log.files.files) > 3
    assert follower.copy(leader) > 3
    leader.synced()
    follower.synced()
    assert data_of(follower) == data_of(leader)
    follower.commit()
    leader.commit()
    assert follower.bodies() == leader.bodies() == numbered(200)


def test_small_runs_hold_one_entry_at_least(leader: LoneMember, follower: LoneMember) -> None:
    leader.lead()
    leader.put(*numbered(20))
    assert follower.copy(leader, bytes_max=1) == 21
    assert data_of(follower) == data_of(leader)


def test_a_follower_opened_again_goes_on(leader: LoneMember, tmp_path: Path) -> None:
    leader.lead()
    leader.put(*numbered(100))
    with LoneMember(tmp_path / "other") as other:
        other.copy(leader)
        other.ledger.commit_to(60)
        other.synced()
    with LoneMember(tmp_path / "other") as other:
        assert other.ledger.last_index == 100
        assert other.log.committed_index == 60
        assert other.ledger.damage == ""
        assert other.bodies() == numbered(60)
        leader.put(b"more")
        other.copy(leader)
        other.commit()
        assert other.bodies() == [*numbered(100), b"more"]


def test_runs_tell_the_terms_of_their_entries(leader: LoneMember, follower: LoneMember) -> None:
    for term in (1, 4, 9):
        leader.lead(term)
        leader.put(b"a", b"b")
    run = leader.ledger.run(1, 1 << 20)
    assert run is not None
    assert run.terms == ((1, 2), (4, 3), (9, 3))
    assert (run.first, run.last, run.last_term) == (1, 8, 9)
    follower.copy(leader)
    assert [follower.ledger.term_at(n) for n in range(-1, 10)] == [-1, 1, 1, 1, 4, 4, 4, 9, 9, 9, -1]


def test_given_up_entries_are_replaced(leader: LoneMember, follower: LoneMember, tmp_path: Path) -> None:
    leader.lead()
    leader.put(*numbered(10))
    follower.copy(leader)
    with LoneMember(tmp_path / "third") as third:
        third.copy(leader)
        leader.put(*numbered(100, 900))
        follower.copy(leader)  # The leader of term 1 is gone, and these were never decided on.
        third.lead(2)
        third.put(*numbered(100, 1100))
        follower.ledger.truncate_from(11)
        assert (follower.ledger.last_index, follower.ledger.last_term) == (10, 1)
        follower.copy(third)
        assert data_of(follower) == data_of(third)
        follower.commit()
        assert follower.bodies() == [*numbered(10), *numbered(100, 1100)]


def test_what_is_committed_is_never_given_up(leader: LoneMember) -> None:
    leader.lead()
    leader.put(*numbered(5))
    leader.commit()
    with pytest.raises(FlareError, match="decided on"):
        leader.ledger.truncate_from(3)
    assert leader.ledger.last_index == 5


def test_a_leader_that_ended_a_file_for_nothing_follows_on_in_it(
    leader: LoneMember, follower: LoneMember
) -> None:
    leader.lead()
    leader.put(*numbered(40))
    follower.copy(leader)
    follower.log._roll()
    assert follower.log.has_blank
    leader.put(b"fits still")
    follower.copy(leader)
    follower.synced()
    leader.synced()
    assert data_of(follower) == data_of(leader)


@pytest.mark.parametrize("flip", [4, 16, 24, 44, 60, 200])
def test_damaged_entries_are_refused(leader: LoneMember, follower: LoneMember, flip: int) -> None:
    leader.lead()
    leader.put(*numbered(3))
    run = leader.ledger.run(0, 1 << 20)
    assert run is not None
    data = bytearray(run.data)
    data[len(data) // 2 + flip - 300] ^= 1
    with pytest.raises(Malformed):
        follower.ledger.append_run(EntryRun(run.first, run.position, run.terms, data))
    assert follower.ledger.last_index == -1
    follower.copy(leader)
    assert follower.ledger.last_index == 3


def test_entries_that_do_not_follow_are_refused(leader: LoneMember, follower: LoneMember) -> None:
    leader.lead()
    leader.put(*numbered(3))
    run = leader.ledger.run(1, 1 << 20)
    assert run is not None
    with pytest.raises(Malformed, match="goes on with 0"):
        follower.ledger.append_run(run)
    with pytest.raises(Malformed, match="not the same"):
        follower.ledger.append_run(EntryRun(0, run.position, run.terms, run.data))


def test_queue_offsets_go_on_behind_what_the_last_leader_has_stored(
    leader: LoneMember, follower: LoneMember
) -> None:
    leader.lead()
    leader.put(b"one", b"two")
    leader.put(b"elsewhere", topic=b"Other", queue_id=3)
    follower.copy(leader)
    follower.lead(2)
    follower.put(b"three")
    follower.put(b"there too", topic=b"Other", queue_id=3)
    follower.commit()
    assert follower.bodies() == [b"one", b"two", b"three"]
    assert follower.bodies(b"Other", 3) == [b"elsewhere", b"there too"]


def test_a_deposed_leader_takes_no_puts_though_it_was_just_about_to(leader: LoneMember) -> None:
    leader.ledger.lead(1)
    leader.ledger.allow(True)
    leader.commit()
    leader.ledger.follow()
    with pytest.raises(NotWritable, match="does not lead in term 1"):
        leader.store.lead(1)
    assert leader.store.follows


def test_members_are_those_that_the_log_says(leader: LoneMember, follower: LoneMember) -> None:
    leader.lead()
    leader.put(b"one")
    more = Membership({**group_of().addresses, "n3": "10.0.0.4:1"})
    leader.ledger.change(more)
    assert leader.ledger.membership == Membership(more.addresses, 2)
    follower.copy(leader)
    assert follower.ledger.membership == Membership(more.addresses, 2)
    follower.ledger.truncate_from(2)
    assert follower.ledger.membership == group_of().membership


def test_members_are_known_after_a_restart(tmp_path: Path) -> None:
    more = Membership({**group_of().addresses, "n3": "10.0.0.4:1"})
    with LoneMember(tmp_path / "a") as member:
        member.lead()
        member.ledger.change(more)
        member.put(*numbered(20))
        member.commit()
        member.synced()
    with LoneMember(tmp_path / "a") as member:
        assert member.ledger.membership == Membership(more.addresses, 1)


def test_a_log_begins_anew_where_the_leader_says(leader: LoneMember, tmp_path: Path) -> None:
    leader.lead()
    leader.put(*numbered(200))
    leader.commit()
    leader.synced()
    for file in leader.log.files.files[:2]:
        leader.log.files.drop_first(file)
    first = leader.ledger.first_index
    assert first > 50
    position = leader.log.begin
    with LoneMember(tmp_path / "late") as late:
        late.ledger.empty(first, position, leader.ledger.term_at(first - 1))
        assert (late.ledger.first_index, late.ledger.last_index) == (first, first - 1)
        late.synced()
    with LoneMember(tmp_path / "late") as late:
        assert (late.ledger.first_index, late.ledger.last_index, late.ledger.last_term) == (
            first,
            first - 1,
            1,
        )
        late.copy(leader)
        late.commit()
        assert late.ledger.last_index == 200
        assert late.ledger.damage == ""
        late.store.show()
        begin = late.store.min_offset(b"TopicTest", 0)
        found = late.store.get(b"TopicTest", 0, 199, 1)
        assert found.status is GetStatus.FOUND
        assert begin <= 199
    with LoneMember(tmp_path / "late") as late:
        assert (late.ledger.first_index, late.ledger.last_index) == (first, 200)


# Old files.


def age(member: LoneMember) -> None:
    """Let everything be old enough to go, and nothing be left to dispatch: files that are read stay."""
    member.store.dispatch()
    for file in member.log.files.files:
        os.utime(file.path, (0, 0))
    member.store.retention.request()


def test_old_files_go_as_far_as_the_group_has_decided(leader: LoneMember, follower: LoneMember) -> None:
    leader.lead()
    leader.put(*numbered(200))
    follower.copy(leader)
    follower.ledger.commit_to(60)
    follower.synced()
    age(follower)
    assert follower.store.retention.run_once() == 1
    first = follower.ledger.first_index
    assert 0 < first <= 60
    assert follower.ledger.term_at(first - 1) == 1
    assert follower.ledger.term_at(first - 2) == -1
    assert follower.ledger.run(first - 1, 1) is None
    run = follower.ledger.run(first, 1)
    assert run is not None and run.position == follower.log.begin
    del run  # As long as somebody holds a part of a file, it stays.
    follower.commit()
    age(follower)
    assert follower.store.retention.run_once() > 1
    assert len(follower.log.files.files) == 1


def test_units_of_entries_that_are_gone_go_too(tmp_path: Path) -> None:
    with LoneMember(tmp_path / "a") as member:
        member.lead()
        member.put(*numbered(600))
        member.commit()
        member.store.show()
        member.synced()
        member.log.save()
        before = len(list((member.log.folder / "index").iterdir()))
        for _ in range(5):
            age(member)
            member.store.retention.run_once()
        member.log.save()
        first = member.ledger.first_index
        assert first > 500
        assert len(list((member.log.folder / "index").iterdir())) < before
    with LoneMember(tmp_path / "a") as member:
        assert (member.ledger.first_index, member.ledger.last_index) == (first, 600)
        assert member.ledger.term_at(first - 1) == 1
        assert member.ledger.damage == ""


def test_who_the_members_are_outlives_the_file_that_said_it(leader: LoneMember) -> None:
    leader.lead()
    more = Membership({**group_of().addresses, "n3": "10.0.0.4:1"})
    leader.ledger.change(more)
    leader.commit()
    leader.put(*numbered(200))
    assert leader.ledger.membership.index == 1
    leader.ledger.commit_to(150)
    assert (leader.ledger.membership.addresses, leader.ledger.membership.index) == (more.addresses, 202)
    age(leader)
    assert leader.store.retention.run_once() == 0
    leader.commit()
    leader.synced()  # A sync behind it would make the files young again.
    age(leader)
    assert leader.store.retention.run_once() > 1
    assert leader.ledger.first_index > 1


# The store below.


def test_what_a_broker_has_registered_goes_with_it(leader: LoneMember) -> None:
    class Heard:
        def __init__(self) -> None:
            self.topics: list[bytes] = []

        def arrived(self, topic: bytes, queue_id: int, max_offset: int) -> None:
            self.topics.append(topic)

    heard = Heard()
    leader.store.listen(heard)
    leader.store.retention.needed.append(lambda: 0)
    leader.lead()
    leader.put(b"one")
    leader.commit()
    leader.store.dispatch()
    leader.store.forget_owners()
    leader.put(b"two")
    leader.commit()
    leader.store.dispatch()
    assert heard.topics == [b"TopicTest"]
    assert leader.store.retention.needed == []


def test_progress_is_safe_where_the_group_has_decided(leader: LoneMember) -> None:
    leader.lead()
    leader.put(b"one")
    leader.synced()
    before, end = leader.store.flushed.value, leader.log.end
    leader.commit()
    assert before < end == leader.store.flushed.value


def test_every_append_is_synced_at_once(leader: LoneMember) -> None:
    leader.lead()
    seen: list[int] = []
    unwatch = leader.ledger.watch(lambda: None, lambda: seen.append(leader.ledger.synced_index))
    leader.put(b"one")
    leader.synced()
    unwatch()
    assert seen[-1] == 1
    assert leader.ledger.stalled_s() == 0


def test_a_disk_that_syncs_nothing_is_noticed(tmp_path: Path) -> None:
    disk = FaultyDisk()
    member = LoneMember(tmp_path / "a", disk=disk)
    member.store.open()
    member.lead()
    member.synced()
    with member.store.workers.log_flusher.paused():
        member.put(b"one")
        assert member.ledger.stalled_s() == 0
        member.clock.advance_ms(1500)
        assert member.ledger.stalled_s() == 1.5
        assert member.ledger.synced_index == 0
        before = member.ledger.failure
        disk.fail_all_syncs()
    with pytest.raises(FlushFailed):
        member.store.close()
    assert (before, member.ledger.synced_index) == (None, 0)
    assert "fails every sync" in str(member.ledger.failure)


@pytest.mark.parametrize("kind", [StoreKind.PLAIN, StoreKind.DLEDGER], ids=["to plain", "and back"])
def test_the_store_of_a_member_is_converted(tmp_path: Path, kind: StoreKind) -> None:
    with LoneMember(tmp_path / "a") as member:
        member.lead()
        member.put(*numbered(100))
        member.commit()
        member.synced()
    plain = Conversion(
        tmp_path / "a", tmp_path / "plain", StoreKind.PLAIN, small_settings(tmp_path / "a")
    ).run()
    assert plain.records == 101
    if kind is StoreKind.PLAIN:
        with MessageStore(small_settings(tmp_path / "plain")) as store:
            result = store.get(b"TopicTest", 0, 0, 1000)
            assert [message.body for message in decode_many(result.gathered())] == numbered(100)[
                : result.count
            ]
            assert store.max_offset(b"TopicTest", 0) == 100
        return
    Conversion(
        *(tmp_path / "plain", tmp_path / "b", StoreKind.DLEDGER, small_settings(tmp_path / "plain")),
        self_id="n2",
    ).run()
    with LoneMember(tmp_path / "b", "n2", unit_file_size=layout.DLEDGER_INDEX_FILE_SIZE) as member:
        assert (member.ledger.last_index, member.log.committed_index, member.ledger.damage) == (100, 100, "")
        assert member.ledger.ballots.load() == Ballot(0)
        assert member.bodies() == numbered(100)
        member.lead(1)
        member.put(b"more")
        member.commit()
        assert member.bodies()[-1] == b"more"


def test_a_ledger_is_sound_though_the_group_has_not_decided_on_its_end(tmp_path: Path) -> None:
    with LoneMember(tmp_path / "a") as member:
        member.lead()
        member.put(*numbered(100))
        member.ledger.commit_to(80)
        member.store.show()
        member.synced()
    report = Verifier(OfflineStore(tmp_path / "a")).run()
    assert (report.problems, report.records, report.entries) == ([], 101, 80)


def test_a_follower_copies_while_the_leader_takes_puts(leader: LoneMember, follower: LoneMember) -> None:
    leader.lead()
    bodies = numbered(600, 200)

    def put_all() -> None:
        for body in bodies:
            leader.put(body)

    putting = threading.Thread(target=put_all)
    putting.start()
    while putting.is_alive() or follower.ledger.last_index < leader.ledger.last_index:
        follower.copy(leader, bytes_max=4000)
        for member in (leader, follower):
            member.ledger.commit_to(min(leader.ledger.synced_index, follower.ledger.synced_index))
            member.store.show()
    putting.join()
    leader.synced()
    follower.synced()
    assert data_of(follower) == data_of(leader)
    for member in (leader, follower):
        member.commit()
        assert member.bodies() == bodies


def test_a_killed_member_is_sound_though_its_queues_know_more_than_its_checkpoint(tmp_path: Path) -> None:
    with LoneMember(tmp_path / "a") as member:
        member.lead()
        member.put(*numbered(50))
        member.ledger.commit_to(20)
        member.log.save()
        member.ledger.commit_to(40)
        member.store.show()
        left = member.as_killed(tmp_path / "killed")
    report = Verifier(OfflineStore(left)).run()
    assert (report.problems, report.records, report.entries) == ([], 51, 40)
