"""Options of TLS: each is set, and what it changes is seen, at the server's side or the caller's."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from tests.remoting.test_handshake import CERT, FRAME, KEY, asked, trusting

from flaremq.base.errors import ConfigError, Unreachable
from flaremq.base.settings import Sources
from flaremq.protocol.command import Command, response_to
from flaremq.remoting.caller import Caller
from flaremq.remoting.router import Family, Peer, Router
from flaremq.remoting.server import Server
from flaremq.remoting.settings import ServerSettings
from flaremq.remoting.tls import (
    ClientAuth,
    TlsClientSettings,
    TlsMode,
    TlsSettings,
    client_tls,
    with_tls_file,
)

SEALED_KEY = str(Path(CERT).with_name("key-encrypted.pem"))
PASSWORD = "opensesame"


async def echo(_peer: Peer, request: Command) -> Command:
    return response_to(request, body=request.body)


async def serving(tls: TlsSettings) -> Server:
    router = Router()
    router.serve(Family("test", 100), {1: echo})
    server = Server(ServerSettings(bind_address="127.0.0.1", drain_s=1), router, tls=tls)
    await server.start()
    return server


async def is_served(server: Server, context: ssl.SSLContext | None) -> bool:
    try:
        return await asked(server, FRAME, context) is not None
    except (ssl.SSLError, ConnectionError):
        return False


async def test_only_tls_is_served_where_it_is_enforced() -> None:
    server = await serving(TlsSettings(mode=TlsMode.ENFORCING, certificate=CERT, key=KEY))
    try:
        assert await is_served(server, trusting())
        assert not await is_served(server, None)
    finally:
        await server.stop()


async def test_an_encrypted_key_is_opened_with_its_password() -> None:
    server = await serving(TlsSettings(certificate=CERT, key=SEALED_KEY, key_password=PASSWORD))
    try:
        assert await is_served(server, trusting())
    finally:
        await server.stop()


async def test_clients_without_a_trusted_certificate_are_refused_where_one_is_required() -> None:
    settings = TlsSettings(certificate=CERT, key=KEY, trusted=CERT, client_auth=ClientAuth.REQUIRE)
    server = await serving(settings)
    try:
        assert await is_served(server, trusting(cert=CERT))
        assert not await is_served(server, trusting())
    finally:
        await server.stop()


def test_wishes_that_cannot_come_true_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"tls.server.authClient=true has no effect"):
        TlsSettings(auth_client=True)
    with pytest.raises(ConfigError, match=r"tls.test.mode.enable=true"):
        TlsSettings(test_mode=True)


def test_the_file_of_tls_options_is_read_where_it_is_named(tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    file.write_text("tls.server.mode=enforcing\n")
    sources = with_tls_file(Sources.of(None, {}, [f"tls.config.file={file}"]))
    assert sources.said("tls.server.mode") == "enforcing"


# The calling side.


def test_a_caller_talks_tls_where_it_was_told_or_where_its_own_port_speaks_nothing_else() -> None:
    assert TlsClientSettings(enabled=True).is_enabled()
    assert not TlsClientSettings(enabled=False).is_enabled(TlsMode.ENFORCING)
    assert TlsClientSettings().is_enabled(TlsMode.ENFORCING) and not TlsClientSettings().is_enabled()
    assert client_tls({"FLAREMQ_TLS_ENABLE": "true"}) is not None


async def called(tls: TlsClientSettings, server: Server) -> bool:
    caller = Caller(tls=tls.context())
    try:
        return (await caller.call(f"127.0.0.1:{server.port}", Command(code=1), 5)).code == 0
    except Unreachable:
        return False
    finally:
        await caller.aclose()


async def test_a_caller_believes_only_servers_that_it_was_told_to_trust() -> None:
    server = await serving(TlsSettings(certificate=CERT, key=KEY))
    try:
        assert await called(TlsClientSettings(trusted=CERT), server)
        assert await called(TlsClientSettings(), server)  # Encrypted, but it may be anybody.
        assert not await called(TlsClientSettings(auth_server=True), server)  # No authority has signed it.
    finally:
        await server.stop()


def test_a_caller_that_was_told_whom_to_trust_looks_at_certificates() -> None:
    assert TlsClientSettings(trusted=CERT).context().verify_mode is ssl.CERT_REQUIRED
    assert TlsClientSettings().context().verify_mode is ssl.CERT_NONE


async def test_a_caller_shows_its_certificate() -> None:
    settings = TlsSettings(certificate=CERT, key=KEY, trusted=CERT, client_auth=ClientAuth.REQUIRE)
    server = await serving(settings)
    try:
        shown = TlsClientSettings(trusted=CERT, certificate=CERT, key=SEALED_KEY, key_password=PASSWORD)
        assert await called(shown, server)
        assert not await called(TlsClientSettings(trusted=CERT), server)
    finally:
        await server.stop()


@pytest.mark.parametrize("tls", [TlsClientSettings(trusted=CERT), None], ids=["tls", "plain"])
async def test_a_caller_that_was_closed_leaves_nothing_behind(tls: TlsClientSettings | None) -> None:
    """A command ends its event loop right after that."""
    server = await serving(TlsSettings(certificate=CERT, key=KEY))
    caller = Caller(tls=None if tls is None else tls.context())
    address = f"127.0.0.1:{server.port}"
    try:
        assert (await caller.call(address, Command(code=1), 5)).code == 0
        connection = caller.open_connection(address)
        await caller.aclose()
        assert connection is not None and connection._transport is None
    finally:
        await server.stop()
