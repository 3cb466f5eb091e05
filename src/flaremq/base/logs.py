"""Log output: one line of text, or one JSON object.

log = logger("store.flush")
log.info("file is full", extra=fields(file=name, size=size))

2024-05-01 12:00:00.123 INFO  store.flush: file is full file=00000000000000000000 size=1073741824
{"time":"2024-05-01T10:00:00.123Z","level":"INFO","logger":"store.flush","message":"file is full",...}
"""

import json as jsonlib
import logging
import math
import re
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TextIO

from flaremq.base.errors import ConfigError

ROOT: Final = "flaremq"
LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

_FIXED: Final = frozenset({"time", "level", "logger", "message", "error"})
_BARE: Final = re.compile(r"[^\s\"=\\\x00-\x1f\x7f-\x9f\ud800-\udfff]+")
# Names of topics and clients come from outside: a line break in one must not forge a log line.
# Half a surrogate pair cannot be written to a stream at all.
_CONTROLS: Final = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_CONTROLS.update({code: f"\\u{code:04x}" for code in (0x2028, 0x2029, *range(0xD800, 0xE000))})
_CONTROLS.update({ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"})


def logger(name: str) -> logging.Logger:
    """The logger of a module: `store.flush` and `flaremq.store.flush` are the same."""
    full = name if name == ROOT or name.startswith(f"{ROOT}.") else f"{ROOT}.{name}"
    return logging.getLogger(full)


def fields(**values: object) -> dict[str, dict[str, object]]:
    """Named values for one line: `log.info("late", extra=fields(topic=topic, lag_ms=lag_ms))`."""
    return {"flare": values}


class Seldom:
    """Limits how often a line is logged, and counts those held back."""

    def __init__(self, every_s: float, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._every_s = every_s
        self._now_s = now_s
        self._next_s = -math.inf
        self._kept_back = 0

    def due(self) -> int | None:
        """How many lines were held back before this one; None if this one is held back too."""
        now_s = self._now_s()
        if now_s < self._next_s:
            self._kept_back += 1
            return None
        self._next_s, kept_back = now_s + self._every_s, self._kept_back
        self._kept_back = 0
        return kept_back

    def reset(self) -> None:
        """Let the next line through at once: it is about something new."""
        self._next_s, self._kept_back = -math.inf, 0


def configure(level: str, json: bool = False, stream: TextIO | None = None) -> None:
    """Send everything from `level` upwards to `stream`, by default stderr. Replaces an earlier setup."""
    name = level.strip().upper()
    if name not in LEVELS:
        raise ConfigError(f"log level {level!r} is unknown: use one of {', '.join(LEVELS)}")
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonFormatter() if json else PlainFormatter())
    root = logging.getLogger(ROOT)
    root.handlers[:] = [handler]
    root.setLevel(name)
    root.propagate = False  # Otherwise a program that configures logging would print each line twice.


class PlainFormatter(logging.Formatter):
    """Time, level, logger, message, key=value ..., and a traceback below if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        message = record.getMessage().translate(_CONTROLS)
        line = f"{stamp}.{int(record.msecs):03d} {record.levelname:<5} {_short(record.name)}: {message}"
        for key, value in _fields_of(record).items():
            line += f" {key}={_shown(value)}"
        error = _error_of(self, record)
        return f"{line}\n{error}" if error else line


class JsonFormatter(logging.Formatter):
    """One JSON object per line; a field whose name is taken gets `field_` before it."""

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        entry: dict[str, object] = {
            "time": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": _short(record.name),
            "message": record.getMessage(),
        }
        for key, value in _fields_of(record).items():
            entry[f"field_{key}" if key in _FIXED else key] = _plain(value)
        error = _error_of(self, record)
        if error:
            entry["error"] = error
        return jsonlib.dumps(entry, separators=(",", ":"))


def _short(name: str) -> str:
    return name.removeprefix(f"{ROOT}.")


def _fields_of(record: logging.LogRecord) -> Mapping[str, Any]:
    found = getattr(record, "flare", None)
    return found if isinstance(found, Mapping) else {}


def _error_of(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return formatter.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""


def _shown(value: object) -> str:
    text = str(value)
    return text if _BARE.fullmatch(text) else jsonlib.dumps(text, ensure_ascii=False).translate(_CONTROLS)


def _plain(value: object) -> object:
    """A value that JSON has: no NaN, and arbitrary objects as text."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return str(value)
