"""The requests that this broker does not serve, each with the reason that is given in the answer.

Together with the tables of the handlers they cover all request codes.
"""

from __future__ import annotations

from typing import Final

from flaremq.base.errors import NotServed
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.command import Command
from flaremq.remoting.router import Handler, Peer

AT_NAMESRV: Final = "it is for a NameServer; send it to one"
AT_CLIENT: Final = "it goes from a broker to its clients, never the other way"
UNUSED: Final = "no client sends it, and RocketMQ does not serve it either"
POP: Final = "pop consumption comes with a later version; use a push or pull consumer"
ASSIGNMENT: Final = "assignment of queues by the broker comes with pop consumption in a later version"
CONTROLLER: Final = "the controller comes with a later version"
STATIC_TOPICS: Final = "static topics come with a later version; use an ordinary topic"
AUTH: Final = "users and access rules come with a later version"
COLD_DATA: Final = "control of reads from cold files comes with a later version"
CONTAINER: Final = "there is no broker container: start one process for each broker"
ROCKSDB: Final = "queues and settings are kept in plain files here, not in RocksDB"

_REASONS: Final[dict[str, tuple[int, ...]]] = {
    AT_NAMESRV: (
        *(100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 217, 219, 224),
        *(304, 311, 312, 313, 318, 319, 322, 327, 901, 904),
    ),
    AT_CLIENT: (39, 40, 220, 221, 326),
    UNUSED: (13, 22, 23, 27, 47, 209, 210, 211, 212, 213, 214, 301, 302),
    POP: (200050, 200051, 200052, 200053, 200054, 200055, 200056, 200151),
    ASSIGNMENT: (400, 401),
    CONTROLLER: tuple(range(1001, 1019)),
    STATIC_TOPICS: (513,),
    AUTH: tuple(range(3001, 3011)),
    COLD_DATA: (2001, 2002, 2003, 2004),
    CONTAINER: (902, 903),
    ROCKSDB: (354, 355),
}

REFUSED: Final[dict[RequestCode, str]] = {
    RequestCode(code): why for why, codes in _REASONS.items() for code in codes
}


class UnsupportedHandlers:
    """Refuses all requests that are not served."""

    def table(self) -> dict[int, Handler]:
        return dict.fromkeys(REFUSED, self.refuse)

    async def refuse(self, _peer: Peer, request: Command) -> Command:
        code = RequestCode(request.code)
        raise NotServed(f" request type {request.code} not supported: {code.name}, {REFUSED[code]}")
