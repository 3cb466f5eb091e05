"""The client side of a captured conversation, said again to our servers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from flaremq.protocol.codes import RequestCode
from flaremq.protocol.command import Command
from flaremq.protocol.frame import FrameDecoder, decode_frame, encode_frame

CONVERSATIONS = Path(__file__).parent / "conversations"
ANSWER_S = 20.0
"""Within which everything is answered that is not a pull that waits."""


@dataclass(frozen=True)
class Said:
    """One frame of a conversation."""

    at: str
    """Who serves it: namesrv or broker."""
    line: str
    side: str
    frame: bytes

    @cached_property
    def command(self) -> Command:
        return decode_frame(self.frame)

    @property
    def is_request(self) -> bool:
        return self.side == "c2s" and not self.command.is_response

    @property
    def may_wait(self) -> bool:
        """Whether the server may hold it until there is something to tell."""
        code = self.command.code
        return code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)


@dataclass(frozen=True)
class Asked:
    """A request that wants an answer, what Java answered if that was seen, and what we do."""

    request: Command
    theirs: Command | None
    ours: Command | None

    @property
    def name(self) -> str:
        try:
            return RequestCode(self.request.code).name
        except ValueError:
            return str(self.request.code)


def conversation(name: str) -> list[Said]:
    lines = (CONVERSATIONS / f"{name}.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return [Said(row["at"], row["line"], row["side"], bytes.fromhex(row["hex"])) for row in rows]


@dataclass
class Line:
    """One connection to our servers."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    replies: Mapping[int, Command]
    """What the client answers when the server asks it something, by code."""
    answers: dict[int, asyncio.Future[Command]] = field(default_factory=dict)

    async def listen(self) -> None:
        decoder = FrameDecoder()
        while data := await self.reader.read(1 << 16):
            for command in decoder.feed(data):
                reply = self.replies.get(command.code)
                if command.is_response:
                    self.answer(command.opaque).set_result(command)
                elif command.wants_answer and reply is not None:
                    self.writer.write(encode_frame(replace(reply, opaque=command.opaque)))

    def answer(self, opaque: int) -> asyncio.Future[Command]:
        return self.answers.setdefault(opaque, asyncio.get_running_loop().create_future())


class Replay:
    """All connections of a conversation, opened when they first speak."""

    def __init__(self, said: list[Said], addresses: dict[str, int]) -> None:
        self._said = said
        self._ports = addresses
        self._replies = _replies(said)
        self._lines: dict[str, Line] = {}
        self._listening: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Say everything in order; wait for each answer before the next request, but for pulls that wait."""
        for each in self._said:
            if not each.is_request:
                continue
            line = self._lines.get(each.line) or await self._opened(each)
            line.writer.write(each.frame)
            await line.writer.drain()
            if each.command.wants_answer and not each.may_wait:
                with suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.shield(line.answer(each.command.opaque)), ANSWER_S)

    async def _opened(self, said: Said) -> Line:
        streams = await asyncio.open_connection("127.0.0.1", self._ports[said.at])
        line = Line(*streams, self._replies)
        self._lines[said.line] = line
        self._listening.append(asyncio.create_task(line.listen()))
        return line

    async def close(self) -> None:
        for line in self._lines.values():
            line.writer.close()
            with suppress(OSError):
                await line.writer.wait_closed()
        await asyncio.gather(*self._listening, return_exceptions=True)

    def asked(self) -> Iterator[Asked]:
        theirs = {
            (said.line, said.command.opaque): said.command
            for said in self._said
            if said.side == "s2c" and said.command.is_response
        }
        for said in self._said:
            if said.is_request and said.command.wants_answer:
                opaque = said.command.opaque
                future = self._lines[said.line].answer(opaque)
                ours = future.result() if future.done() else None
                yield Asked(said.command, theirs.get((said.line, opaque)), ours)


def _replies(said: list[Said]) -> dict[int, Command]:
    asked = {
        (each.line, each.command.opaque): each.command.code
        for each in said
        if each.side == "s2c" and each.command.wants_answer
    }
    return {
        asked[each.line, each.command.opaque]: each.command
        for each in said
        if each.side == "c2s" and each.command.is_response and (each.line, each.command.opaque) in asked
    }
