"""A PostgreSQL server of our own for a test, where its programs are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flaremq.remoting.ports import free_port

LIMIT_S = 60
_NOBODY = 65534


def _program(name: str) -> str:
    found = shutil.which(name) or next(
        (str(path) for path in sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)), None
    )
    if found is None:
        pytest.skip(f"no PostgreSQL to test against: {name} is not installed")
    return found


@contextmanager
def running_postgres() -> Iterator[str]:
    """The connection string of a server that is stopped in the end. Skips the test if there is none."""
    pytest.importorskip("psycopg", reason="no PostgreSQL client: psycopg is not installed")
    initdb, postgres = _program("initdb"), _program("postgres")
    # It refuses to run as root, and the path of its socket may not be long.
    user = _NOBODY if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="pg-", ignore_cleanup_errors=True) as folder:
        if user is not None:
            os.chown(folder, user, -1)
        data, port = Path(folder) / "data", free_port()
        subprocess.run(
            [initdb, "-D", str(data), "-U", "test", "-A", "trust", "--no-sync"],
            user=user,
            cwd=folder,
            check=True,
            capture_output=True,
            timeout=LIMIT_S,
        )
        server = subprocess.Popen(
            [postgres, "-D", str(data), "-k", folder, "-p", str(port), "-h", "", "-c", "fsync=off"],
            user=user,
            cwd=folder,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert server.stderr is not None
        drain = threading.Thread(target=server.stderr.read, daemon=True)  # A full pipe would stop it.
        try:
            for line in server.stderr:
                if "ready to accept connections" in line:
                    break
            else:
                raise AssertionError(f"PostgreSQL ended with {server.wait()}")
            drain.start()
            yield f"host={folder} port={port} user=test dbname=postgres"
        finally:
            server.terminate()
            server.wait(LIMIT_S)
            if drain.ident is not None:
                drain.join(LIMIT_S)
            server.stderr.close()
