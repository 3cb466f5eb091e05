"""A command: one request or response as a value, independent of bytes and sockets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from flaremq.protocol.codes import (
    CURRENT_VERSION,
    ONE_WAY,
    RESPONSE,
    LanguageCode,
    ResponseCode,
    SerializeType,
    request_name,
    response_name,
)

_NOTHING: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """The content of one frame.

    `ext_fields` is None if the frame had none at all, which Java distinguishes from empty ones. An entry
    without a value (JSON null, or zero bytes in a compact header) is dropped. An empty body is None.
    """

    code: int
    opaque: int = 0
    flag: int = 0
    ext_fields: Mapping[str, str] | None = field(default=None, hash=False)
    body: bytes | memoryview | None = None
    remark: str | None = None
    language: LanguageCode | None = LanguageCode.PYTHON
    """None: a language without a number."""
    version: int = CURRENT_VERSION
    serialize_type: SerializeType = SerializeType.JSON

    @property
    def is_response(self) -> bool:
        return bool(self.flag & RESPONSE)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & ONE_WAY)

    @property
    def wants_answer(self) -> bool:
        return not self.flag & (RESPONSE | ONE_WAY)

    @property
    def fields(self) -> Mapping[str, str]:
        """The ext fields; empty if there are none."""
        return _NOTHING if self.ext_fields is None else self.ext_fields

    def __str__(self) -> str:
        """For logs: never the body, and no field that may be a secret."""
        name = response_name(self.code) if self.is_response else request_name(self.code)
        size = 0 if self.body is None else len(self.body)
        remark = "" if self.remark is None else f", {self.remark!r}"
        return f"{'response' if self.is_response else 'request'} {self.opaque} {name}, {size} bytes{remark}"


def oneway(request: Command) -> Command:
    """The same request, one-way."""
    return replace(request, flag=request.flag | ONE_WAY)


def response_to(
    request: Command,
    code: int = ResponseCode.SUCCESS,
    remark: str | None = None,
    *,
    ext_fields: Mapping[str, str] | None = None,
    body: bytes | memoryview | None = None,
) -> Command:
    """The answer to a request, with its opaque and serialization, and our version.

    There are always ext fields, even if empty: without them the C++ client follows a null pointer.
    The language is Java's, because that is the server every client has been tested with.
    """
    return Command(
        code=code,
        opaque=request.opaque,
        flag=RESPONSE,
        ext_fields={} if ext_fields is None else ext_fields,
        body=body,
        remark=remark,
        language=LanguageCode.JAVA,
        serialize_type=request.serialize_type,
    )
