"""Asks other members for what is damaged here, and gives them what is damaged there.

    damage > EntriesRequest to each member, the leader first > judged > written, synced, and read again
    EntriesRequest > [decided on, and the neighbours of the same terms?] > read from the disk > EntriesAnswer

Any member may have what is lost here, whether it leads or not, and whether there is a leader or not. Each is
asked for a part at a time and has some seconds to answer. What no member can give is asked for again, at
longer and longer intervals, and told once in a period. Meanwhile a leader lets another member lead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, Final, Protocol

from flaremq.base.errors import CorruptStore, FlareError
from flaremq.base.lifecycle import Owned, Sleep
from flaremq.base.logs import Seldom, fields, logger
from flaremq.dledger.ledger.damage import LedgerDamage
from flaremq.dledger.ledger.entryindex import EntryUnit
from flaremq.dledger.ledger.raftlog import RaftLog
from flaremq.dledger.scrub.coldledger import ColdLedger
from flaremq.dledger.scrub.patch import Patcher
from flaremq.dledger.types import EntriesAnswer, EntriesRequest, EntryRun, MemberId, RepairMessage
from flaremq.store.files.disk import Disk

log = logger("dledger.scrub")

_ANSWER_S: Final = 5.0
_PAUSES_S: Final = (1.0, 60.0)


class Courier(Protocol):
    """The node, as far as repairs need it."""

    def helpers(self) -> Sequence[MemberId]:
        """Who may be asked, the leader first."""

    def say(self, to: MemberId, message: RepairMessage) -> None:
        """It may be lost."""

    def yield_lead(self) -> None:
        """If this member leads, let another one that could."""


class Repairs:
    """Of one member. All but what `offload` runs happens in the event loop."""

    def __init__(
        self,
        courier: Courier,
        raft_log: RaftLog,
        disk: Disk,
        *,
        offload: Callable[[Callable[[], Any]], Awaitable[Any]],
        part_size: int,
        told_s: float,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """`offload` runs what waits for the disk; `part_size` is asked for, or given, at once; what cannot be
        repaired is told once in `told_s`."""
        self._courier = courier
        self._log = raft_log
        self._disk = disk
        self._offload = offload
        self._part_size = part_size
        self._told = Seldom(told_s)
        self._sleep = sleep
        self._patcher = Patcher(raft_log, disk)
        self._tasks = Owned()
        self._numbers = count(1)
        self._asked: tuple[MemberId, int, asyncio.Future[EntryRun]] | None = None
        self._answering: set[MemberId] = set()
        self._woken = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._unwatch: Callable[[], None] = lambda: None
        self.why_not = ""
        """Why the last attempt did not repair everything; empty if it did."""

    def start(self) -> None:
        self._unwatch = self._log.known_damage.watch(self._wake)
        self._tasks.spawn("repair-ledger", self._run())

    async def stop(self) -> None:
        self._unwatch()
        await self._tasks.aclose(timeout_s=10)

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._woken.set)
        except RuntimeError:  # The loop has ended, and this member with it.
            return

    def heard(self, sender: MemberId, message: RepairMessage) -> None:
        """Another member has said this. Entries in it are copied before this returns."""
        if isinstance(message, EntriesAnswer):
            self._answered(sender, message)
        elif sender not in self._answering:  # One at a time: a member that floods us gets no more than that.
            self._answering.add(sender)
            self._tasks.spawn(f"give-entries-{sender}", self._give(sender, message))

    # What is damaged here.

    async def _run(self) -> None:
        pause_s = _PAUSES_S[0]
        while True:
            known = self._log.known_damage
            if not known.found:
                self.why_not, pause_s = "", _PAUSES_S[0]
                self._told.reset()
                await self._woken.wait()
            self._woken.clear()
            before = known.repaired
            try:
                await self._repair_all()
            except Exception as error:
                self.why_not = str(error)
                log.exception("a repair of the log failed, and is tried again")
            if known.found:
                self._tell()
                self._courier.yield_lead()
                pause_s = _PAUSES_S[0] if known.repaired > before else min(2 * pause_s, _PAUSES_S[1])
                await self._sleep(pause_s)

    async def _repair_all(self) -> None:
        reasons: list[str] = []
        for damage in self._log.known_damage.found:
            why = await self._repair(damage)
            if why:
                reasons.append(why)
        self.why_not = reasons[0] if reasons else ""

    def _tell(self) -> None:
        known = self._log.known_damage
        if known.found and self._told.due() is not None:
            log.error(
                "a part of the log is damaged and could not be repaired (%s): readers of it get an error, "
                "and this member leaves the lead to others. Start members that are missing; if all run, look "
                "after the disk, and start this member with an empty folder: it copies everything",
                self.why_not,
                extra=fields(folder=self._log.folder, entries=known.entries, damage=str(known)),
            )

    async def _repair(self, damage: LedgerDamage) -> str:
        """Why it could not be repaired; empty if it was."""
        known = self._log.known_damage
        reasons, rest = [], damage
        for member in self._courier.helpers():
            try:
                while rest in known.found:
                    rest = await self._patched(member, rest)
            except (FlareError, OSError) as error:
                reasons.append(f"{member}: {error or f'no answer within {_ANSWER_S:g} s'}")
            if rest.first > rest.last:
                log.warning(
                    "a damaged part of the log was repaired from another member",
                    extra=fields(
                        member=member, position=damage.position, first=damage.first, last=damage.last
                    ),
                )
            if rest not in known.found:
                return ""
        return "; ".join(reasons) or "no other member can be asked"

    async def _patched(self, member: MemberId, damage: LedgerDamage) -> LedgerDamage:
        """What is left of it when one part more has been written."""
        run = await self._ask(member, damage)

        def patch() -> LedgerDamage | None:
            found = self._patcher.judge(damage, run)
            if damage not in self._log.known_damage.found:
                return None  # Deleted, or given up, meanwhile.
            self._patcher.write(damage, found)
            return damage.behind(run.last + 1, found.end, run.last_term)

        rest = await self._offload(patch)
        if rest is None:
            return damage
        self._log.known_damage.repair(damage, rest if rest.first <= rest.last else None, run.count)
        return rest  # type: ignore[no-any-return]

    async def _ask(self, member: MemberId, damage: LedgerDamage) -> EntryRun:
        number, answer = next(self._numbers), self._new_answer()
        self._asked = member, number, answer
        try:
            terms = damage.previous_term, damage.next_term
            self._courier.say(member, EntriesRequest(number, damage.first, damage.last, *terms))
            async with asyncio.timeout(_ANSWER_S):
                return await answer
        finally:
            self._asked = None

    def _new_answer(self) -> asyncio.Future[EntryRun]:
        return self._loop.create_future()

    def _answered(self, sender: MemberId, message: EntriesAnswer) -> None:
        if self._asked is None or self._asked[:2] != (sender, message.number):
            return  # Too late, or never asked for.
        answer, run = self._asked[2], message.run
        if answer.done():
            return
        known = self._log.known_damage
        known.deleted_before = max(known.deleted_before, message.begins)
        if run is None:
            answer.set_exception(CorruptStore(message.why))
        else:
            answer.set_result(replace(run, data=bytes(run.data)))

    # What is damaged there.

    async def _give(self, sender: MemberId, asked: EntriesRequest) -> None:
        try:
            run = await self._offload(lambda: self._read(asked))
            answer = EntriesAnswer(asked.number, run, self._log.first_index)
        except (FlareError, OSError) as error:
            answer = EntriesAnswer(asked.number, None, self._log.first_index, str(error))
        finally:
            self._answering.discard(sender)
        self._courier.say(sender, answer)

    def _read(self, asked: EntriesRequest) -> EntryRun:
        """From the disk, as memory may be better than what it will give back after a start."""
        raft_log = self._log
        self._check(asked)
        begin = raft_log.unit(asked.first)
        if begin is None:
            raise CorruptStore(f"entry {asked.first} is not in the index here")
        with ColdLedger(raft_log, self._disk) as cold:
            size = self._size(begin, asked)
            found = cold.data(begin.position, size)
            term = max(0, raft_log.term_at(asked.first - 1))
            rows = asked.last - asked.first + 1
            examined = cold.examine(found.view[: found.readable], begin.position, asked.first, term, rows)
            if not examined.entries:
                raise CorruptStore(f"entry {asked.first} is damaged here, too")
            data = bytes(found.view[: examined.size])
        return EntryRun(asked.first, begin.position, _terms(examined.units), data)

    def _check(self, asked: EntriesRequest) -> None:
        """What is decided on here is the same in all members. So is what lies before an entry that both logs
        have, of one index and one term, whether this member has heard that it is decided on or not: after a
        start of all it may not have, and hears of it only when there is a leader."""
        raft_log = self._log
        first, last = raft_log.first_index, min(raft_log.last_index, raft_log.synced_index)
        if not first <= asked.first <= asked.last <= last:
            raise CorruptStore(
                f"entries {asked.first} to {asked.last} were asked for, and here are those from {first} to "
                f"{last}"
            )
        for index, term in ((asked.first - 1, asked.previous_term), (asked.last + 1, asked.next_term)):
            own = raft_log.term_at(index)
            if -1 not in (term, own) and term != own:
                raise CorruptStore(f"entry {index} is of term {own} here, and not of {term}: the logs differ")
        is_same = 0 <= asked.next_term == raft_log.term_at(asked.last + 1)
        if asked.last > raft_log.committed_index and not is_same:
            raise CorruptStore(
                f"entry {asked.last} is not known to be decided on here: those up to "
                f"{raft_log.committed_index} are"
            )

    def _size(self, begin: EntryUnit, asked: EntriesRequest) -> int:
        """Of what is read: up to the last entry, the end of the file or that of a part; the first entry is
        always a whole one."""
        file_size = self._log.file_size
        file_end = (begin.position // file_size + 1) * file_size
        last = self._log.unit(asked.last)
        end = file_end if last is None else min(last.end, file_end)
        return min(max(self._part_size, begin.size), end - begin.position)


def _terms(units: memoryview) -> tuple[tuple[int, int], ...]:
    """Terms of entries, each with how many have it."""
    terms: list[tuple[int, int]] = []
    for unit in EntryUnit.iter_unpack(units):
        if terms and terms[-1][0] == unit.term:
            terms[-1] = unit.term, terms[-1][1] + 1
        else:
            terms.append((unit.term, 1))
    return tuple(terms)
