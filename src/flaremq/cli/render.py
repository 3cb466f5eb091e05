"""How results are shown: tables for people, one JSON document for programs.

On a terminal, tables fit its width: wide cells are folded. On a pipe they are plain columns, as wide as they
need to be, so that a script finds every word whole.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, TextIO

import typer

from flaremq.base.errors import FlareError, Hint, InvalidParameter, UsageError

_C1: Final = (*range(0x7F, 0xA0),)
_UNSEEN: Final = (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A), 0xFEFF)
"""Characters that reverse or break a line, or are invisible: text could pose as something else."""
_CONTROLS: Final = {
    **{code: f"\\x{code:02x}" for code in (*range(0x20), *_C1)},
    **{code: f"\\u{code:04x}" for code in (*_UNSEEN, *range(0xD800, 0xE000))},  # And lone surrogates.
}
_IN_JSON: Final = {code: f"\\u{code:04x}" for code in (*_C1, *_UNSEEN, *range(0xD800, 0xE000))}
"""JSON has its own escapes for the rest."""
_HINTS: Final[Mapping[Hint, str]] = {
    Hint.LIST_TOPICS: "see `flaremq topic list`",
    Hint.LIST_GROUPS: "see `flaremq group list`",
    Hint.LIST_BROKERS: "see `flaremq cluster brokers`",
    Hint.START_BROKER: "see `flaremq cluster brokers`, and start one",
    Hint.NAME_TOPIC: "add --topic",
    Hint.NAME_OTHER_TOPIC: "add --topic to search one of the others",
    Hint.START_NAMESRV: (
        "check that one runs there, name another with --namesrv, or start one with `flaremq up`"
    ),
    Hint.READ_LOG: "--by-log also finds messages without a queue",
}
"""The next step after an error, as flags and commands."""


class BadValue(InvalidParameter):
    """An invalid value on the command line: wrong usage, so the command ends with status 2."""


class NotConfirmed(UsageError):
    """A command that destroys something was neither confirmed nor forced."""


class Output:
    """The output of one command. With `json` it is one document on stdout, and nothing else."""

    def __init__(self, json: bool = False) -> None:
        self.json = json

    def show(self, document: object, for_people: Callable[[], None]) -> None:
        """Show a result: as a JSON document, or for people."""
        if self.json:
            self.document(document)
        else:
            for_people()

    def document(self, document: object) -> None:
        typer.echo(dumps(document, indent=2))

    def done(self, sentence: str, **facts: object) -> None:
        """Report in one sentence that something was done."""
        self.show({"done": True, **facts}, lambda: typer.echo(safe(sentence)))

    def would(self, sentences: Sequence[str], **facts: object) -> None:
        """Report what a dry run would have done."""

        def say() -> None:
            for sentence in sentences:
                typer.echo(safe(f"would {sentence}"))

        self.show({"done": False, "dry_run": True, **facts}, say)

    def table(
        self, columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "", *, empty: str = ""
    ) -> None:
        """Print a table for people. Columns whose names begin with > are numbers, aligned to the right.

        Without rows, the sentence `empty` is printed instead.
        """
        shown = [[cell(value) for value in row] for row in rows]
        if empty and not shown:
            typer.echo(empty)
        elif sys.stdout.isatty():
            _rich_table(columns, shown, title)
        else:
            _plain_table(columns, shown, title)

    def facts(self, pairs: Iterable[tuple[str, object]], title: str = "") -> None:
        """Names and values, one below the other."""
        listed = [(name, cell(value)) for name, value in pairs]
        width = max((len(name) for name, _ in listed), default=0)
        if title:
            typer.secho(title, bold=True)
        for name, value in listed:
            typer.echo(f"{name:<{width}}  {value}".rstrip())


def note(sentence: str) -> None:
    """Print a note for people on stderr, where programs do not read it."""
    typer.echo(f"flaremq: {safe(sentence)}", err=True)


def worded_error(error: FlareError) -> str:
    """What happened, and what to do at a terminal."""
    return error.fact if error.hint is None else f"{error.fact}; {_HINTS[error.hint]}"


def confirm(what: str, yes: bool) -> None:
    """Ask the user to confirm. `what` is a sentence that says what will be lost."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise NotConfirmed(f"{what}: add --yes to confirm, because there is no terminal to ask on")
    typer.echo(safe(what) + ".", err=True)
    if not typer.confirm("Go on?", err=True):
        raise NotConfirmed("nothing was done")


def dumps(document: object, indent: int | None = None) -> str:
    """JSON with non-ASCII text as it is, if the terminal can show it; control characters are escaped."""
    text = json.dumps(document, indent=indent, ensure_ascii=False, default=str).translate(_IN_JSON)
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(document, indent=indent, default=str)
    return text


def cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return safe(str(value))


def safe(text: str) -> str:
    """Escape control characters: names and bodies come from others and must not control a terminal."""
    return text.translate(_CONTROLS)


def _plain_table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str) -> None:
    if title:
        typer.echo(title)
    heads = [name.lstrip(">").upper().replace(" ", "_") for name in columns]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in (heads, *rows):
        pieces = [
            f"{text:>{width}}" if name.startswith(">") else f"{text:<{width}}"
            for text, width, name in zip(row, widths, columns, strict=True)
        ]
        typer.echo("  ".join(pieces).rstrip())


def _rich_table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str) -> None:
    # No lines: names need the space.
    table = import_module("rich.table").Table(
        title=title or None, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )
    text = import_module("rich.text").Text
    for name in columns:
        justify = "right" if name.startswith(">") else "left"
        table.add_column(name.lstrip(">"), justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*(text(each) for each in row))  # Text, or brackets in a name would be markup.
    import_module("rich.console").Console().print(table)


class ProgressBar:
    """Shows the progress of long work, on a terminal only. `at` may be called as often as you like."""

    def __init__(self, what: str, total: int, stream: TextIO | None = None) -> None:
        self._what, self._total = what, max(1, total)
        self._stream = stream or sys.stderr
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> ProgressBar:
        if self._stream.isatty():
            console = import_module("rich.console").Console(file=self._stream)
            self._bar = import_module("rich.progress").Progress(console=console, transient=True)
            self._task = self._bar.add_task(self._what, total=self._total)
            self._bar.start()
        return self

    def at(self, done: int) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=done)

    def show(self, what: str, done: int) -> None:
        """Go on with another part of the work, or in the same one."""
        if self._bar is not None:
            self._bar.update(self._task, description=what, completed=done)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
