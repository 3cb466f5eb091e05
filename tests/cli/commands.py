"""Commands as a user calls them, in this process, with a home folder of their own."""

from __future__ import annotations

import json
import sys
from typing import Any, Final

from typer.testing import CliRunner

from flaremq.cli.main import app

AT_A_TERMINAL: Final = [
    sys.executable,
    "-c",
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "from flaremq.cli.main import main; main()",
]
"""`flaremq` in a process of its own that Ctrl-C ends, even where tests run in the background."""


class Ended:
    """What a command has printed and how it ended."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status = status
        self.out = out
        self.err = err

    @property
    def document(self) -> Any:
        """The one JSON document on stdout."""
        assert self.status == 0, self.err
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def complaint(self) -> str:
        """The one line of an error of ours."""
        return self.complaint_with(1)

    @property
    def misuse(self) -> str:
        """The one line about a word of the command line that cannot be."""
        return self.complaint_with(2)

    def complaint_with(self, status: int) -> str:
        assert self.status == status, (self.status, self.out, self.err)
        assert self.err.startswith("flaremq: ") and self.err.count("\n") == 1, self.err
        assert "this is a bug" not in self.err, self.err
        return self.err


def flaremq(*words: object, given: str | None = None) -> Ended:
    """`flaremq` with these words, and this on its stdin, which is no terminal."""
    result = CliRunner().invoke(app, [str(word) for word in words], input=given, prog_name="flaremq")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ended(result.exit_code, result.stdout, result.stderr)
