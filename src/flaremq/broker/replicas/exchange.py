"""What members of a group ask each other: where to follow a master, and how far an acting one has come."""

from __future__ import annotations

from typing import Final, NamedTuple

from flaremq.base.errors import FlareError
from flaremq.broker.replicas.members import OneWayCalls
from flaremq.protocol import fields
from flaremq.protocol.codes import RequestCode, ResponseCode, response_name
from flaremq.protocol.command import Command
from flaremq.protocol.headers.broker import ExchangeHAInfoRequestHeader, ExchangeHAInfoResponseHeader

_TIMEOUT_S: Final = 3.0


class HaInfo(NamedTuple):
    """A master, as its slaves must know it."""

    address: str
    ha_address: str
    """Empty if it takes no slaves."""
    end_at_start: int = 0
    """Where its log ended when it started."""


class MemberCalls:
    """Requests to other members, by their addresses. Raises FlareError if one does not answer, or refuses."""

    def __init__(self, caller: OneWayCalls) -> None:
        self._caller = caller

    async def ha_info(self, master: str) -> HaInfo:
        """Where slaves connect to a master."""
        answer = await self._ask(master, ExchangeHAInfoRequestHeader())
        found = fields.decode(ExchangeHAInfoResponseHeader, answer.fields)
        return HaInfo(
            found.master_address or master, found.master_ha_address or "", found.master_flush_offset or 0
        )

    async def follow(self, slave: str, own: HaInfo) -> None:
        """Ask a slave to follow this master."""
        header = ExchangeHAInfoRequestHeader(
            master_ha_address=own.ha_address,
            master_flush_offset=own.end_at_start,
            master_address=own.address,
        )
        await self._ask(slave, header)

    async def _ask(self, member: str, header: ExchangeHAInfoRequestHeader) -> Command:
        request = Command(code=RequestCode.EXCHANGE_BROKER_HA_INFO, ext_fields=fields.encode(header))
        answer = await self._caller.call(member, request, _TIMEOUT_S)
        if answer.code != ResponseCode.SUCCESS:
            raise FlareError(
                f"{member} did not exchange addresses: {response_name(answer.code)}, {answer.remark}"
            )
        return answer

    async def body(self, member: str, code: RequestCode) -> bytes | None:
        """What a member answers without a question; None if it has nothing, or does not know the request."""
        answer = await self._caller.call(member, Command(code=code), _TIMEOUT_S)
        if answer.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.REQUEST_CODE_NOT_SUPPORTED):
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise FlareError(
                f"{member} did not answer {code.name}: {response_name(answer.code)}, {answer.remark}"
            )
        return bytes(answer.body or b"")
