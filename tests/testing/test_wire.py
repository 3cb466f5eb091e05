"""Wires that can be cut."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from flaremq.testing.wire import Wire, Wires

HOST = "127.0.0.1"
SILENCE_S = 0.05
LIMIT_S = 30.0


class Echo:
    """A server that gives back what it gets."""

    def __init__(self) -> None:
        self._listening = socket.create_server((HOST, 0))
        self.port = int(self._listening.getsockname()[1])
        self._threads = [threading.Thread(target=self._serve, daemon=True)]
        self._threads[0].start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._echo, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _echo(self, connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(1 << 16):
                    connection.sendall(data)
            except ConnectionError:
                return

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join(LIMIT_S)


@pytest.fixture
def echo() -> Iterator[Echo]:
    echo = Echo()
    yield echo
    echo.close()


@pytest.fixture
def wires(echo: Echo) -> Iterator[Wires]:
    with Wires() as wires:
        yield wires


@pytest.fixture
def wire(wires: Wires, echo: Echo) -> Wire:
    return wires.lay((HOST, echo.port), HOST)


def connect(wire: Wire) -> socket.socket:
    host, _, port = wire.address.partition(":")
    return socket.create_connection((host, int(port)), LIMIT_S)


def received(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := connection.recv(1 << 16)):
        data += more
    return data


def is_silent(connection: socket.socket) -> bool:
    connection.settimeout(SILENCE_S)
    try:
        return connection.recv(1) == b"?"
    except TimeoutError:
        return True
    finally:
        connection.settimeout(LIMIT_S)


def test_a_whole_wire_is_not_noticed(wire: Wire) -> None:
    sent = bytes(range(256)) * 4000
    with connect(wire) as connection:
        writer = threading.Thread(target=connection.sendall, args=(sent,))
        writer.start()
        assert received(connection, len(sent)) == sent
        writer.join()


def test_what_is_sent_over_a_cut_wire_arrives_when_it_is_mended(wires: Wires, wire: Wire) -> None:
    with connect(wire) as connection:
        connection.sendall(b"before")
        assert received(connection, 6) == b"before"
        wires.cut(wire, resets=False)
        connection.sendall(b"meanwhile")
        assert is_silent(connection)
        with connect(wire) as new:  # It hears nothing either.
            new.sendall(b"new")
            assert is_silent(new)
            wires.mend(wire)
            assert received(connection, 9) == b"meanwhile"
            assert received(new, 3) == b"new"


def test_a_wire_that_resets_tells_both_ends_at_once(wires: Wires, wire: Wire) -> None:
    with connect(wire) as connection:
        connection.sendall(b"before")
        assert received(connection, 6) == b"before"
        wires.cut(wire, resets=True)
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
        # A reset may come while the connection is still being made, or just after.
        with pytest.raises(ConnectionResetError), connect(wire) as new:
            new.recv(1)
    wires.mend(wire)
    with connect(wire) as connection:
        connection.sendall(b"after")
        assert received(connection, 5) == b"after"


def test_an_end_that_closes_closes_the_other(wire: Wire, echo: Echo) -> None:
    with connect(wire) as connection:
        connection.sendall(b"all")
        assert received(connection, 3) == b"all"
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""


def test_a_server_that_is_not_there_ends_the_connection(wires: Wires) -> None:
    with socket.create_server((HOST, 0)) as nobody:
        port = int(nobody.getsockname()[1])
    wire = wires.lay((HOST, port), HOST)
    with connect(wire) as connection:
        assert connection.recv(1) == b""


def test_wires_end_while_they_are_cut_and_somebody_waits(echo: Echo) -> None:
    with Wires() as wires:
        wire = wires.lay((HOST, echo.port), HOST)
        with connect(wire) as connection:
            wires.cut(wire, resets=False)
            connection.sendall(b"never")
            assert is_silent(connection)
