"""A cable between two servers on this machine that can be pulled out."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

_CHUNK = 64 << 10


class Cable:
    """Connections to `address` go on to another one. While the cable is out, bytes of both sides wait, and
    neither side is told."""

    def __init__(self, to: str) -> None:
        host, _, port = to.rpartition(":")
        self._to = host, int(port)
        self._in = threading.Event()
        self._in.set()
        self._server = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.reset()
        self._in.set()

    def pull(self) -> None:
        self._in.clear()

    def plug(self) -> None:
        self._in.set()

    def reset(self) -> None:
        """End all connections, as a firewall does that has forgotten them."""
        sockets, self._sockets = self._sockets, []
        for each in sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._server.accept()
                far = socket.create_connection(self._to)
                self._sockets += [near, far]
                for source, target in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK):
                self._in.wait()
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)
