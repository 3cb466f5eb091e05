"""Families: how many requests of a kind may be there, how many are served at once, how long one may wait."""

from __future__ import annotations

import asyncio

import pytest
from tests.broker.nobody import Nobody

from flaremq.base.errors import Busy
from flaremq.protocol.codes import ONE_WAY, ResponseCode
from flaremq.protocol.command import Command, response_to
from flaremq.remoting.router import Family, Peer, Router
from flaremq.testing.clock import settle

CODE = 7


class Gate:
    """A handler that serves when it is told to."""

    def __init__(self, family: Family) -> None:
        self.open = asyncio.Event()
        self.begun: list[int] = []
        self.router = Router()
        self.router.serve(family, {CODE: self.serve})

    async def serve(self, _peer: Peer, request: Command) -> Command:
        self.begun.append(request.opaque)
        await self.open.wait()
        return response_to(request)

    def ask(self, opaque: int, flag: int = 0) -> asyncio.Task[Command | None]:
        request = Command(code=CODE, opaque=opaque, flag=flag)
        return asyncio.create_task(self.router.answer(Nobody(), request))


async def test_so_many_are_served_at_once_and_the_others_stand_in_line() -> None:
    family = Family("query", limit=10, at_once=2)
    gate = Gate(family)
    tasks = [gate.ask(opaque) for opaque in range(4)]
    await settle()
    assert (gate.begun, family.under_way, family.waiting) == ([0, 1], 4, 2)
    gate.open.set()
    answers = await asyncio.gather(*tasks)
    assert gate.begun == [0, 1, 2, 3]
    assert all(answer is not None and answer.code == ResponseCode.SUCCESS for answer in answers)
    assert (family.under_way, family.waiting, family.head_wait_ms()) == (0, 0, 0)


async def test_who_has_stood_in_line_for_too_long_is_refused_and_nothing_was_done() -> None:
    family = Family("query", limit=10, at_once=1, age_max_ms=30)
    gate = Gate(family)
    first, second = gate.ask(1), gate.ask(2)
    answer = await second
    assert answer is not None
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert (answer.remark or "").startswith("[TIMEOUT_CLEAN_QUEUE]broker busy")
    assert "30ms" in (answer.remark or "")
    assert gate.begun == [1]
    gate.open.set()
    await first
    third = await gate.ask(3)
    assert third is not None
    assert (third.code, family.under_way, family.waiting) == (ResponseCode.SUCCESS, 0, 0)


async def test_when_the_line_is_full_the_next_is_refused_at_once() -> None:
    gate = Gate(Family("query", limit=2, at_once=1))
    tasks = [gate.ask(1), gate.ask(2)]
    await settle()
    answer = await gate.ask(3)
    assert answer is not None
    assert answer.code == ResponseCode.SYSTEM_BUSY
    for part in ("[OVERLOAD]system busy", "2 query requests", "limit is 2"):
        assert part in (answer.remark or "")
    gate.open.set()
    await asyncio.gather(*tasks)


async def test_a_refusal_of_a_one_way_request_is_not_told() -> None:
    gate = Gate(Family("query", limit=1))
    task = gate.ask(1)
    await settle()
    assert await gate.ask(2, ONE_WAY) is None
    gate.open.set()
    await task


async def test_a_place_in_line_that_is_given_up_goes_to_the_next() -> None:
    family = Family("query", limit=10, at_once=1)
    gate = Gate(family)
    first, second, third = gate.ask(1), gate.ask(2), gate.ask(3)
    await settle()
    second.cancel()
    await settle()
    gate.open.set()
    await asyncio.gather(first, third)
    assert (gate.begun, family.under_way) == ([1, 3], 0)


async def test_a_family_without_a_bound_at_once_lets_everyone_wait_for_something_else() -> None:
    gate = Gate(Family("pull", limit=1000))
    tasks = [gate.ask(opaque) for opaque in range(500)]
    await settle()
    assert len(gate.begun) == 500
    gate.open.set()
    await asyncio.gather(*tasks)


async def test_the_first_in_line_says_how_long_it_has_waited() -> None:
    family = Family("query", limit=10, at_once=1)
    gate = Gate(family)
    tasks = [gate.ask(1), gate.ask(2)]
    await settle()
    place, since_s = family._line[0]
    family._line[0] = place, since_s - 2
    assert family.head_wait_ms() >= 2000
    gate.open.set()
    await asyncio.gather(*tasks)


async def test_busy_is_what_a_full_family_raises() -> None:
    family = Family("send", limit=0)
    with pytest.raises(Busy, match=r"\[OVERLOAD\]"):
        await family.enter()
