"""Requests that a slave leaves to its master, with the codes that RocketMQ's slaves answer.

Sends and pulls are lanes of their own: `send.plain` and `pull.lane` refuse those. Commits of offsets are not
among them: a slave takes them while its master is away, or consumers would begin again where they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from flaremq.broker.features import Requests
from flaremq.broker.role import Role
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command
from flaremq.remoting.router import Handler, Peer

_TOPICS: Final = "does not change topics or groups"
_MESSAGES: Final = "takes no messages"
_OFFSETS: Final = "does not reset offsets"

REFUSED: Final[Mapping[int, tuple[str, ResponseCode]]] = {
    RequestCode.CONSUMER_SEND_MSG_BACK: (_MESSAGES, ResponseCode.SYSTEM_BUSY),
    RequestCode.SEND_REPLY_MESSAGE: (_MESSAGES, ResponseCode.SYSTEM_BUSY),
    RequestCode.SEND_REPLY_MESSAGE_V2: (_MESSAGES, ResponseCode.SYSTEM_BUSY),
    RequestCode.END_TRANSACTION: ("ends no transactions", ResponseCode.SLAVE_NOT_AVAILABLE),
    RequestCode.RECALL_MESSAGE: ("recalls no messages", ResponseCode.SLAVE_NOT_AVAILABLE),
    RequestCode.RESUME_CHECK_HALF_MESSAGE: ("resumes no transactions", ResponseCode.SYSTEM_ERROR),
    RequestCode.UPDATE_AND_CREATE_TOPIC: (_TOPICS, ResponseCode.SYSTEM_ERROR),
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: (_TOPICS, ResponseCode.SYSTEM_ERROR),
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: (_TOPICS, ResponseCode.SYSTEM_ERROR),
    RequestCode.DELETE_TOPIC_IN_BROKER: (_TOPICS, ResponseCode.SYSTEM_ERROR),
    # A topic may be younger than our table, and its messages here already: they would lose their queues.
    RequestCode.CLEAN_UNUSED_TOPIC: (_TOPICS, ResponseCode.SYSTEM_ERROR),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: (_TOPICS, ResponseCode.SYSTEM_ERROR),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: (_TOPICS, ResponseCode.SYSTEM_ERROR),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: (_TOPICS, ResponseCode.SYSTEM_ERROR),
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: (_TOPICS, ResponseCode.SYSTEM_ERROR),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: (_OFFSETS, ResponseCode.SYSTEM_ERROR),
    RequestCode.CLONE_GROUP_OFFSET: (_OFFSETS, ResponseCode.SYSTEM_ERROR),
}
"""What a slave does not do, and the code that it answers with."""


_FORBIDDEN: Final = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN


def served_by(role: Role, requests: Iterable[Requests]) -> Iterable[Requests]:
    """These requests as a broker in this role serves them."""
    for family, handlers in requests:
        refused = REFUSED.keys() & handlers.keys() if role.is_slave else set()
        yield family, {**handlers, **{code: _refusing(role, code, handlers[code]) for code in refused}}


def _refusing(role: Role, code: int, handler: Handler) -> Handler:
    what, response_code = REFUSED[code]

    async def refuse(peer: Peer, request: Command) -> Command | None:
        if code == _FORBIDDEN and "readable" not in request.fields:
            return await handler(peer, request)  # It only asks.
        raise role.refusal(what, response_code)

    return refuse
