"""Requests that are not served are answered with the reason."""

from __future__ import annotations

import pytest
from tests.broker.nobody import Nobody

from flaremq.broker.handlers.unsupported import REFUSED, UnsupportedHandlers
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command, oneway
from flaremq.remoting.router import Family, Router


@pytest.fixture
def router() -> Router:
    router = Router()
    router.serve(Family("refused", 100), UnsupportedHandlers().table())
    return router


@pytest.mark.parametrize("code", sorted(REFUSED), ids=lambda code: RequestCode(code).name)
async def test_the_answer_names_the_request_and_says_why_not(router: Router, code: RequestCode) -> None:
    answer = await router.answer(Nobody(), Command(code=code))
    assert answer is not None
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert answer.remark == f" request type {int(code)} not supported: {code.name}, {REFUSED[code]}"


async def test_a_oneway_request_is_refused_in_silence(router: Router) -> None:
    assert await router.answer(Nobody(), oneway(Command(code=RequestCode.ACK_MESSAGE))) is None
