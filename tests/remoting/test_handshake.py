"""The first bytes of a connection: notes of proxies, TLS greetings, plain frames."""

from __future__ import annotations

import asyncio
import ssl
import struct
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.base.errors import ConfigError, Malformed
from flaremq.protocol.command import Command, response_to
from flaremq.protocol.frame import FrameDecoder, encode_frame
from flaremq.remoting.handshake import Doorway
from flaremq.remoting.router import Family, Peer, Router
from flaremq.remoting.server import Server
from flaremq.remoting.settings import ServerSettings
from flaremq.remoting.tls import ClientAuth, TlsMode, TlsSettings

CERT, KEY = (str(Path(__file__).parent / "certs" / name) for name in ("cert.pem", "key.pem"))
FRAME = encode_frame(Command(code=1, body=b"hello"))
V2 = b"\r\n\r\n\0\r\nQUIT\n"
V2_IPV4 = V2 + b"\x21\x11\0\x0c" + bytes((10, 1, 2, 3, 10, 0, 0, 1)) + struct.pack(">HH", 4711, 10911)


def settings(mode: TlsMode = TlsMode.PERMISSIVE, **more: object) -> TlsSettings:
    return TlsSettings(mode=mode, certificate=CERT, key=KEY, **more)  # type: ignore[arg-type]


def test_a_plain_frame_passes_and_leaves_the_doorway() -> None:
    doorway = Doorway()
    assert doorway.feed(FRAME) == FRAME
    assert doorway.is_open


@pytest.mark.parametrize(
    ("note", "peer"),
    [
        (b"PROXY TCP4 10.1.2.3 10.0.0.1 4711 10911\r\n", ("10.1.2.3", 4711)),
        (b"PROXY TCP6 2001:db8::7 ::1 4711 10911\r\n", ("2001:db8::7", 4711)),
        (b"PROXY UNKNOWN\r\n", None),
        (V2_IPV4, ("10.1.2.3", 4711)),
        (V2 + b"\x20\x00\0\x00", None),
        (
            V2 + b"\x21\x21\0\x24" + bytes(15) + b"\x07" + bytes(16) + struct.pack(">HH", 4711, 1),
            ("::7", 4711),
        ),
    ],
)
def test_a_proxy_says_who_comes_however_its_note_is_cut(note: bytes, peer: tuple[str, int] | None) -> None:
    for cut in range(len(note) + 1):
        doorway = Doorway()
        data = doorway.feed((note + FRAME)[:cut]) + doorway.feed((note + FRAME)[cut:])
        assert data == FRAME
        assert doorway.peer == peer


@pytest.mark.parametrize(
    "note",
    [
        b"PROXY TCP4 not.an.address 10.0.0.1 4711 10911\r\n",
        b"PROXY TCP4 10.1.2.3\r\n",
        b"PROXY " + b"x" * 200,
        V2 + b"\x31\x11\0\x0c" + bytes(12),
        V2 + b"\x21\x11\xff\xff" + bytes(12),
    ],
)
def test_a_note_that_cannot_be_read_ends_the_connection(note: bytes) -> None:
    with pytest.raises(Malformed):
        Doorway().feed(note)


@given(st.binary(max_size=80), st.sampled_from(TlsMode))
def test_random_bytes_pass_wait_or_are_malformed_and_nothing_else(data: bytes, mode: TlsMode) -> None:
    doorway = Doorway(mode, settings().context())
    with suppress(Malformed):
        doorway.feed(data)


def test_tls_is_refused_where_it_is_disabled_and_plain_where_it_is_enforced() -> None:
    with pytest.raises(Malformed, match="disabled"):
        Doorway().feed(b"\x16\x03\x01")
    with pytest.raises(Malformed, match="enforcing"):
        Doorway(TlsMode.ENFORCING, settings().context()).feed(FRAME)


def test_without_a_certificate_permissive_means_plain() -> None:
    assert TlsSettings().effective_mode is TlsMode.DISABLED
    assert TlsSettings().context() is None


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"tls.server.certPath"):
        TlsSettings(mode=TlsMode.ENFORCING)
    with pytest.raises(ConfigError, match=r"certPath=/nowhere.pem cannot be read: No such file"):
        TlsSettings(certificate="/nowhere.pem", key=KEY).context()
    with pytest.raises(ConfigError, match="trustCertPath"):
        settings(client_auth=ClientAuth.REQUIRE)
    with pytest.raises(ConfigError, match="does not contain a certificate"):
        TlsSettings(certificate=KEY).context()


# Over real sockets.


async def echo(_peer: Peer, request: Command) -> Command:
    return response_to(
        request, body=request.body, ext_fields={"address": f"{_peer.address[0]}:{_peer.address[1]}"}
    )


async def a_server(mode: TlsMode = TlsMode.PERMISSIVE, **more: object) -> Server:
    router = Router()
    router.serve(Family("test", 100), {1: echo})
    server = Server(ServerSettings(bind_address="127.0.0.1", drain_s=1), router, tls=settings(mode, **more))
    await server.start()
    return server


def trusting(**cert: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=CERT)
    if cert:
        context.load_cert_chain(CERT, KEY)
    return context


async def asked(server: Server, data: bytes, context: ssl.SSLContext | None = None) -> Command | None:
    """What comes back; None if the connection is closed instead."""
    name = "localhost" if context else None
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", server.port, ssl=context, server_hostname=name
    )
    try:
        writer.write(data)
        decoder, found = FrameDecoder(), list[Command]()
        async with asyncio.timeout(60):
            while not found:
                got = await reader.read(65536)
                if not got:
                    return None
                found = decoder.feed(got)
        return found[0]
    finally:
        writer.close()


async def test_one_port_serves_plain_and_tls_alike() -> None:
    server = await a_server()
    try:
        plain, sealed = await asked(server, FRAME), await asked(server, FRAME, trusting())
        assert plain is not None
        assert sealed is not None
        assert (plain.body, sealed.body) == (b"hello", b"hello")
    finally:
        await server.stop()


async def test_large_frames_pass_through_tls_too() -> None:
    server = await a_server()
    body = bytes(range(256)) * 8000
    try:
        answer = await asked(server, encode_frame(Command(code=1, body=body)), trusting())
        assert answer is not None
        assert answer.body == body
    finally:
        await server.stop()


async def test_an_enforcing_port_closes_on_plain_frames() -> None:
    server = await a_server(TlsMode.ENFORCING)
    try:
        assert await asked(server, FRAME) is None
        assert await asked(server, FRAME, trusting()) is not None
    finally:
        await server.stop()


async def test_clients_must_show_a_certificate_where_that_is_required() -> None:
    server = await a_server(client_auth=ClientAuth.REQUIRE, trusted=CERT)
    try:
        with suppress(ssl.SSLError, ConnectionError):
            assert await asked(server, FRAME, trusting()) is None
        assert await asked(server, FRAME, trusting(cert=CERT)) is not None
    finally:
        await server.stop()


async def test_a_handler_sees_who_stands_behind_the_proxy() -> None:
    server = await a_server()
    try:
        answer = await asked(server, V2_IPV4 + FRAME)
        assert answer is not None
        assert answer.fields["address"] == "10.1.2.3:4711"
    finally:
        await server.stop()
