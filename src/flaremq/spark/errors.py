"""Spark's exceptions turned into errors of one line, and into our own error if one of ours is the cause.

An error of a data source crosses two borders: from a Python worker into Java as the text of a traceback,
and from Java into Python inside a Java exception, with a page of frames around it. Only the text is left, so
the text is parsed. Nothing here needs Spark to be installed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from flaremq.base import errors
from flaremq.base.errors import FlareError, SparkFailed
from flaremq.base.logs import logger

log = logger("spark.errors")
T = TypeVar("T")

_TEXT_MAX: Final = 600
"""The longest text of an error that is not ours: a longer one is a plan or a page of frames."""

_OURS: Final = re.compile(r"^[ \t|+]*(?:[\w.$]+: )*?flaremq\.base\.errors\.(\w+):[ \t]?(.*)$", re.MULTILINE)
_RAISED: Final = re.compile(
    r"^[ \t|]*((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit)): (.*)$", re.MULTILINE
)
# Where the message ends, and frames, a plan or the text of the query begin.
_FRAMES: Final = re.compile(
    r"\n\s*(?:at [\w.$/<>]+\(|\.\.\. \d+ more|Driver stacktrace:|JVM stacktrace:|Caused by:|={2,3} |\+- |')"
)
_STREAM_FAILED: Final = re.compile(r"^Query \[id = [^]]*\] terminated with exception: ")
_SECOND_FAILURE: Final = "\nDuring handling of the above exception, another exception occurred:"
_UNBOUND: Final = "UnboundLocalError: cannot access local variable 'reader'"
_TRACEBACK: Final = "Traceback (most recent call last):"
_CLASS_MARK: Final = re.compile(r"^\[([A-Z][A-Z0-9_.]*)\]\s*")
_WORKER_LATE: Final = "Python worker failed to connect back"
_JVM_GONE: Final = ("Answer from Java side is empty", "Error while sending or receiving")
_SQLSTATE: Final = re.compile(r"\s*SQLSTATE: \w{5}\b")


def spark_error(error: BaseException) -> FlareError:
    """Our own error inside Spark's exception, else a SparkFailed of one line.

    A chain of our own errors prints the cause first and the error that was raised last at the end, so the
    last one in the text is the one to show.
    """
    if isinstance(error, FlareError):
        return error
    texts = list(_texts(error))
    for text in texts:
        if found := _OURS.findall(text):
            name, message = found[-1]
            return _again(name, message.strip())
    if isinstance(error, ConnectionError) or any(gone in text for gone in _JVM_GONE for text in texts):
        # Py4J raises its socket's errors once the JVM does not answer.
        return SparkFailed(
            "the JVM in which Spark runs is gone: it was killed, or the machine had no memory left; "
            "start again, and give it less to do at a time if it happens again"
        )
    if is_worker_late(error):
        return SparkFailed(
            "a Python worker of Spark was not ready within the 10 s that Spark allows, which no setting "
            "changes: the machine is too busy, or its Python does not start; try again when it is less busy"
        )
    for text in texts:
        if worker := _from_worker(text):
            return SparkFailed(worker)
    return SparkFailed(_plain(texts[0]) if texts else type(error).__name__)


def is_worker_late(error: BaseException) -> bool:
    """Whether a Python worker did not start in time. Spark gives it 10 s, which no setting changes."""
    return any(_WORKER_LATE in text for text in _texts(error))


def planned(make: Callable[[], T]) -> T:
    """The result of `make`, which is called again once if a Python worker was late, as on a busy machine.

    Only for reading and planning: a call that may have written something must not be repeated.
    """
    try:
        return make()
    except Exception as error:
        if not is_worker_late(error):
            raise
        log.warning("a Python worker of Spark started too late: retrying once")
        return make()


def _texts(error: BaseException) -> Iterator[str]:
    """The texts of an exception and its causes, including the whole Java text."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        if isinstance(at, FlareError):
            yield f"flaremq.base.errors.{type(at).__name__}: {at}"
        elif text := str(at).strip():
            yield text
        at = at.__cause__ or at.__context__


def _again(name: str, message: str) -> FlareError:
    """An error of the class that was raised in another process.

    Some constructors take more than a message, and those values are lost. The class still says whose fault it
    was, so the error is made without calling its constructor.
    """
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, FlareError)):
        return SparkFailed(f"{name}: {message}")
    again = kind.__new__(kind)
    Exception.__init__(again, message)
    return again


def _from_worker(text: str) -> str | None:
    """The last line of the last traceback: the error that ended a Python worker."""
    if _UNBOUND in text:
        # A bug of Spark: it stops a reader that could not be made.
        text = text[: text.rindex(_SECOND_FAILURE)] if _SECOND_FAILURE in text else text
    if _TRACEBACK not in text:
        return None
    found = _RAISED.findall(text[text.rindex(_TRACEBACK) :])
    if not found:
        return None
    kind, message = found[0]
    return _shortened(f"{kind.rpartition('.')[2]}: {message.strip()}")


def _plain(text: str) -> str:
    """The message of a Java exception, without its frames, its error class mark and its SQL state."""
    # Py4J's first line is not useful: the message comes after ": " at the start of the next.
    if text.startswith("An error occurred while calling"):
        text = text.partition("\n")[2].removeprefix(": ") or text
    text = _FRAMES.split(text, maxsplit=1)[0]
    text = re.sub(r"^(?:[\w$]+\.)+[A-Z]\w*(?:Exception|Error): ", "", text.strip())
    text = _CLASS_MARK.sub("", _STREAM_FAILED.sub("", _CLASS_MARK.sub("", text)))
    return _shortened(_SQLSTATE.sub("", text)).rstrip(" ;")


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _TEXT_MAX else f"{text[: _TEXT_MAX - 4]} ..."
