"""A server's refusal as an exception, with its code, its remark and what to do next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from flaremq.base import errors
from flaremq.base.errors import FlareError, Refused, SendFailed, Unreachable
from flaremq.protocol.codes import OWN_REQUESTS, ResponseCode, request_name, response_name
from flaremq.protocol.command import Command

TRIED_ELSEWHERE: Final = frozenset(
    {
        *(ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_ERROR),
        *(ResponseCode.SYSTEM_BUSY, ResponseCode.NO_PERMISSION, ResponseCode.NO_BUYER_ID),
        *(ResponseCode.NOT_IN_CURRENT_UNIT, ResponseCode.GO_AWAY),
    }
)
"""Refusals after which another broker may accept the message."""

_CLASSES: Final[Mapping[int, type[FlareError]]] = {
    ResponseCode.SYSTEM_BUSY: errors.Busy,
    ResponseCode.FLOW_CONTROL: errors.Busy,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: errors.NotServed,
    ResponseCode.MESSAGE_ILLEGAL: errors.MessageIllegal,
    ResponseCode.SERVICE_NOT_AVAILABLE: errors.ServiceStops,
    ResponseCode.GO_AWAY: errors.ServiceStops,
    ResponseCode.NO_PERMISSION: errors.NoPermission,
    ResponseCode.TOPIC_NOT_EXIST: errors.TopicNotFound,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: errors.InvalidExpression,
    ResponseCode.SUBSCRIPTION_NOT_EXIST: errors.SubscriptionMissing,
    ResponseCode.SUBSCRIPTION_NOT_LATEST: errors.SubscriptionOld,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: errors.GroupNotFound,
    ResponseCode.FILTER_DATA_NOT_EXIST: errors.FilterDataMissing,
    ResponseCode.FILTER_DATA_NOT_LATEST: errors.FilterDataOld,
    ResponseCode.INVALID_PARAMETER: errors.InvalidParameter,
    ResponseCode.CONSUMER_NOT_ONLINE: errors.ConsumerOffline,
}

_NEXT: Final[Mapping[int, str]] = {
    ResponseCode.SYSTEM_ERROR: "see the server's log",
    ResponseCode.SYSTEM_BUSY: "send less at a time, or try again in a moment",
    ResponseCode.FLOW_CONTROL: "send requests less often, or try again in a moment",
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: "this kind or version of server does not support it",
    ResponseCode.SERVICE_NOT_AVAILABLE: "try another broker; check this one's disk, or if it is stopping",
    ResponseCode.GO_AWAY: "the server is stopping; try again, another one will serve",
    ResponseCode.NO_PERMISSION: "ask the operator for the permission, or use another topic or group",
    ResponseCode.TOPIC_NOT_EXIST: "create the topic first",
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: "create the group first",
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: "correct the expression",
    ResponseCode.SUBSCRIPTION_NOT_EXIST: "the next heartbeat sends the subscription; try again",
    ResponseCode.QUERY_NOT_FOUND: "nothing was found by this name",
    ResponseCode.CONSUMER_NOT_ONLINE: "start a consumer of the group first",
    ResponseCode.CONSUME_MSG_TIMEOUT: "the consumer took too long; check its handler",
}

_RETRIABLE: Final = frozenset({ResponseCode.SYSTEM_ERROR})


def error_for(address: str, request: int, answer: Command) -> FlareError:
    """The error that an answer stands for. Raise it."""
    code = answer.code
    name = response_name(code)
    words = f": {answer.remark.strip()}" if answer.remark and answer.remark.strip() else ""
    # To our own requests our servers say themselves what to do.
    is_told = request in OWN_REQUESTS and code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    after = f" ({_NEXT[code]})" if code in _NEXT and not is_told else ""
    error = _CLASSES.get(code, Refused)(f"{address} refuses {request_name(request)}, {name}{words}{after}")
    error.response_code = code
    error.remark = answer.remark
    error.address = address
    if code in _RETRIABLE:
        error.retriable = True
    return error


def all_failed(sent: object, failures: Sequence[FlareError], limit_s: float) -> FlareError:
    """The failure of a send as a whole."""
    if len(failures) == 1 and not isinstance(failures[0], Unreachable):
        return failures[0]  # A single failure needs no summary.
    if not failures:
        return SendFailed(f"{sent}: not sent within {limit_s:g} s: allow more time", ())
    reasons = "; ".join(dict.fromkeys(map(str, failures)))
    attempts = f"{len(failures)} attempt{'' if len(failures) == 1 else 's'}"
    return SendFailed(f"{sent}: failed after {attempts}: {reasons}", failures)
