"""Counters, gauges and histograms, and the text in which Prometheus reads them.

A metric without labels is made by `counter`, `gauge`, `histogram`; one with labels by the plural, which
returns a family whose members are made on first use. Hot code keeps the member it needs, so that one
increment is one addition.

No increment takes a lock. CPython does not switch threads within `x.n += 1`, so under the GIL none is lost; a
test with many threads checks that.
"""

import logging
import math
import re
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Generic, Protocol, TypeVar

from flaremq.base.errors import UsageError

log = logging.getLogger(__name__)

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

LATENCY_BUCKETS_MS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 1000.0, 5000.0)

_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL: Final = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")

Sample = tuple[str, tuple[tuple[str, str], ...], float]
"""Suffix of the name, labels beyond those of the family, value."""


class Metric(Protocol):
    def samples(self) -> Iterator[Sample]: ...


class Counter:
    """Only grows; a new process starts again at 0."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def inc(self, by: float = 1) -> None:
        assert by >= 0, "a counter only grows; what goes down is a gauge"
        self.value += by

    def samples(self) -> Iterator[Sample]:
        yield "", (), self.value


class Gauge:
    """Goes up and down: set by its owner, or read by a callback on each exposition."""

    __slots__ = ("_read", "_value")

    def __init__(self, read: Callable[[], float] | None = None) -> None:
        self._read = read
        self._value: float = 0

    @property
    def value(self) -> float:
        return self._value if self._read is None else self._read()

    def set(self, value: float) -> None:
        assert self._read is None, "this gauge is read by a callback"
        self._value = value

    def inc(self, by: float = 1) -> None:
        assert self._read is None, "this gauge is read by a callback"
        self._value += by

    def dec(self, by: float = 1) -> None:
        self.inc(-by)

    def samples(self) -> Iterator[Sample]:
        yield "", (), self.value


class Histogram:
    """How many observations were at most as large as each bound."""

    __slots__ = ("_bounds", "_counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)  # The last one is +Inf.
        self.sum: float = 0

    @property
    def count(self) -> int:
        return sum(self._counts)

    def observe(self, value: float) -> None:
        at = bisect_left(self._bounds, value)
        self._counts[at] += 1
        self.sum += value

    def samples(self) -> Iterator[Sample]:
        below = 0
        counts = list(self._counts)  # One copy, so that +Inf and _count agree.
        for bound, count in zip((*self._bounds, math.inf), counts, strict=True):
            below += count
            yield "_bucket", (("le", _number(bound)),), below
        yield "_sum", (), self.sum
        yield "_count", (), below


M = TypeVar("M", bound=Metric)


class MetricFamily(Generic[M]):
    """One metric for each combination of label values."""

    def __init__(self, label_names: tuple[str, ...], make: Callable[[], M]) -> None:
        self._label_names = label_names
        self._make = make
        self._lock = threading.Lock()
        self._members: dict[tuple[str, ...], M] = {}

    def labels(self, **values: str) -> M:
        """The member with these label values, made on first use. Keep it where speed matters."""
        key = self._key(values)
        member = self._members.get(key)
        if member is None:
            with self._lock:
                member = self._members.setdefault(key, self._make())
        return member

    def remove(self, **values: str) -> None:
        """Remove a member, so that a deleted topic is not reported for ever."""
        with self._lock:
            self._members.pop(self._key(values), None)

    def members(self) -> list[tuple[tuple[tuple[str, str], ...], M]]:
        with self._lock:
            found = sorted(self._members.items(), key=lambda item: item[0])
        return [(tuple(zip(self._label_names, key, strict=True)), member) for key, member in found]

    def _key(self, values: dict[str, str]) -> tuple[str, ...]:
        if len(values) != len(self._label_names) or any(name not in values for name in self._label_names):
            raise UsageError(f"labels {sorted(values)} given: expected {sorted(self._label_names)}")
        return tuple(str(values[name]) for name in self._label_names)


class _Registered(Protocol):
    def members(self) -> Sequence[tuple[tuple[tuple[str, str], ...], Metric]]: ...


class Registry:
    """All metrics of one process. Names are unique in it, the derived ones of histograms too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: set[str] = set()
        self._families: dict[str, tuple[str, str, _Registered]] = {}

    def counter(self, name: str, text: str) -> Counter:
        return self.counters(name, text).labels()

    def counters(self, name: str, text: str, *label_names: str) -> MetricFamily[Counter]:
        return self._add(name, text, "counter", MetricFamily(label_names, Counter))

    def gauge(self, name: str, text: str, read: Callable[[], float] | None = None) -> Gauge:
        family: MetricFamily[Gauge] = MetricFamily((), lambda: Gauge(read))
        return self._add(name, text, "gauge", family).labels()

    def gauges(self, name: str, text: str, *label_names: str) -> MetricFamily[Gauge]:
        return self._add(name, text, "gauge", MetricFamily(label_names, Gauge))

    def histogram(self, name: str, text: str, bounds: Sequence[float] = LATENCY_BUCKETS_MS) -> Histogram:
        return self.histograms(name, text, bounds=bounds).labels()

    def histograms(
        self, name: str, text: str, *label_names: str, bounds: Sequence[float] = LATENCY_BUCKETS_MS
    ) -> MetricFamily[Histogram]:
        if not bounds or list(bounds) != sorted(set(bounds)) or not math.isfinite(bounds[-1]):
            raise UsageError(
                f"bounds {tuple(bounds)} of {name}: expected growing finite numbers; +Inf is added"
            )
        return self._add(name, text, "histogram", MetricFamily(label_names, lambda: Histogram(bounds)))

    def exposition(self) -> str:
        """All metrics in Prometheus's text format 0.0.4. Serve it as CONTENT_TYPE."""
        with self._lock:
            families = sorted(self._families.items())
        return "".join(line for name, family in families for line in _lines(name, *family))

    def _add(self, name: str, text: str, kind: str, family: MetricFamily[M]) -> MetricFamily[M]:
        _check_names(name, family._label_names, kind)
        suffixes = ("", "_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        sample_names = {name + suffix for suffix in suffixes}
        with self._lock:
            if sample_names & self._taken:
                taken = ", ".join(sorted(sample_names & self._taken))
                raise UsageError(f"metric {name}: {taken} is taken; choose another name, or share the metric")
            self._taken |= sample_names
            self._families[name] = (text, kind, family)
        return family


def _check_names(name: str, label_names: tuple[str, ...], kind: str) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(f"metric name {name!r} must match {_NAME.pattern}")
    for label in label_names:
        if not _LABEL.fullmatch(label) or (label == "le" and kind == "histogram"):
            raise UsageError(
                f"label {label!r} of {name} must match {_LABEL.pattern}; 'le' is the histogram's own"
            )
    if len(set(label_names)) != len(label_names):
        raise UsageError(f"labels {label_names} of {name}: one of them comes twice")


def _lines(name: str, text: str, kind: str, family: _Registered) -> Iterator[str]:
    yield f"# HELP {name} {_escaped(text)}\n"
    yield f"# TYPE {name} {kind}\n"
    for labels, metric in family.members():
        try:
            samples = list(metric.samples())
        except Exception:
            # One broken callback must not hide all other metrics.
            log.exception("metric %s could not be read and is left out", name)
            continue
        for suffix, more, value in samples:
            yield f"{name}{suffix}{_braces((*labels, *more))} {_number(value)}\n"


def _braces(labels: tuple[tuple[str, str], ...]) -> str:
    if not labels:
        return ""
    quoted = ('{}="{}"'.format(name, _escaped(value).replace('"', '\\"')) for name, value in labels)
    return "{" + ",".join(quoted) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("+Inf" if value > 0 else "-Inf")
    return repr(value)
