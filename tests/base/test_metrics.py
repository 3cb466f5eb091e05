import sys
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.base.errors import UsageError
from flaremq.base.metrics import Registry


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
def eager_switching() -> Iterator[None]:
    """Threads take the processor from each other as often as Python can do it."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_an_empty_registry_says_nothing(registry: Registry) -> None:
    assert registry.exposition() == ""


def test_a_counter_counts(registry: Registry) -> None:
    sends = registry.counter("flaremq_sends_total", "Messages taken in.")
    sends.inc()
    sends.inc(4)
    assert sends.value == 5
    assert registry.exposition() == (
        "# HELP flaremq_sends_total Messages taken in.\n"
        "# TYPE flaremq_sends_total counter\n"
        "flaremq_sends_total 5\n"
    )


def test_a_counter_never_goes_down(registry: Registry) -> None:
    with pytest.raises(AssertionError, match="gauge"):
        registry.counter("flaremq_sends_total", "").inc(-1)


def test_a_gauge_is_set_or_asked(registry: Registry) -> None:
    depth = 7
    registry.gauge("asked", "", read=lambda: depth)
    told = registry.gauge("told", "")
    told.set(2.5)
    told.inc()
    told.dec(3)
    depth = 9
    lines = registry.exposition().splitlines()
    assert "asked 9" in lines
    assert "told 0.5" in lines


def test_a_gauge_that_is_asked_cannot_be_set(registry: Registry) -> None:
    with pytest.raises(AssertionError, match="callback"):
        registry.gauge("asked", "", read=lambda: 1).set(2)


def test_a_broken_callback_costs_its_own_line_only(
    registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    registry.gauge("a_broken", "", read=lambda: 1 // 0)
    registry.gauge("b_whole", "").set(3)
    text = registry.exposition()
    assert "b_whole 3\n" in text
    assert "\na_broken" not in text
    assert "metric a_broken could not be read" in caplog.text


def test_a_histogram_counts_what_is_at_most_its_bound(registry: Registry) -> None:
    latency = registry.histogram("latency_ms", "How long.", bounds=(1, 2.5, 10))
    for value in (0.5, 1, 2, 10, 11):
        latency.observe(value)
    assert (latency.count, latency.sum) == (5, 24.5)
    assert registry.exposition() == (
        "# HELP latency_ms How long.\n"
        "# TYPE latency_ms histogram\n"
        'latency_ms_bucket{le="1"} 2\n'
        'latency_ms_bucket{le="2.5"} 3\n'
        'latency_ms_bucket{le="10"} 4\n'
        'latency_ms_bucket{le="+Inf"} 5\n'
        "latency_ms_sum 24.5\n"
        "latency_ms_count 5\n"
    )


def test_labels_make_a_family_sorted_by_their_values(registry: Registry) -> None:
    sends = registry.counters("sends_total", "By topic.", "topic", "result")
    sends.labels(topic="b", result="ok").inc(2)
    sends.labels(result="late", topic="a").inc()
    assert sends.labels(topic="b", result="ok") is sends.labels(topic="b", result="ok")
    assert registry.exposition().splitlines()[2:] == [
        'sends_total{topic="a",result="late"} 1',
        'sends_total{topic="b",result="ok"} 2',
    ]


def test_labels_of_a_histogram_stand_before_its_bound(registry: Registry) -> None:
    family = registry.histograms("latency_ms", "", "topic", bounds=(1,))
    family.labels(topic="a").observe(5)
    lines = registry.exposition().splitlines()
    assert 'latency_ms_bucket{topic="a",le="+Inf"} 1' in lines
    assert 'latency_ms_count{topic="a"} 1' in lines


def test_a_removed_member_is_reported_no_more(registry: Registry) -> None:
    depths = registry.gauges("depth", "", "topic")
    depths.labels(topic="gone").set(1)
    depths.labels(topic="here").set(2)
    depths.remove(topic="gone")
    depths.remove(topic="never there")
    assert "gone" not in registry.exposition()
    assert 'depth{topic="here"} 2' in registry.exposition()


@pytest.mark.parametrize(
    "values", [{}, {"topic": "a"}, {"topic": "a", "queue": "0", "x": "y"}, {"a": "1", "b": "2"}]
)
def test_labels_must_be_exactly_those_of_the_family(registry: Registry, values: dict[str, str]) -> None:
    family = registry.counters("sends_total", "", "topic", "queue")
    with pytest.raises(UsageError, match=r"expected \['queue', 'topic'\]"):
        family.labels(**values)


def test_text_is_escaped(registry: Registry) -> None:
    family = registry.counters("odd_total", "back\\slash and\nline", "name")
    family.labels(name='quote " back\\slash\nline').inc()
    assert registry.exposition() == (
        "# HELP odd_total back\\\\slash and\\nline\n"
        "# TYPE odd_total counter\n"
        'odd_total{name="quote \\" back\\\\slash\\nline"} 1\n'
    )


@given(st.text(st.characters(exclude_characters="\0")))
def test_no_label_value_can_break_out_of_its_line(value: str) -> None:
    registry = Registry()
    registry.counters("odd_total", "", "name").labels(name=value).inc()
    _, _, sample, rest = registry.exposition().split("\n")
    assert rest == ""
    quoted = sample.removeprefix('odd_total{name="').removesuffix('"} 1')
    unescaped = quoted.replace("\\\\", "\0").replace('\\"', '"').replace("\\n", "\n").replace("\0", "\\")
    assert unescaped == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (float("inf"), "+Inf"),
        (float("-inf"), "-Inf"),
        (float("nan"), "NaN"),
        (0.1, "0.1"),
        (10**20, "1" + "0" * 20),
    ],
)
def test_numbers_are_written_as_prometheus_reads_them(registry: Registry, value: float, text: str) -> None:
    registry.gauge("g", "").set(value)
    assert registry.exposition().endswith(f"g {text}\n")


@pytest.mark.parametrize("name", ["", "1st", "with-dash", "mit blank", "ümlaut", "a\n"])
def test_a_name_that_prometheus_refuses_is_refused_here(registry: Registry, name: str) -> None:
    with pytest.raises(UsageError, match="must match"):
        registry.counter(name, "")


@pytest.mark.parametrize("label", ["", "1st", "__reserved", "a-b", "a:b"])
def test_a_label_that_prometheus_refuses_is_refused_here(registry: Registry, label: str) -> None:
    with pytest.raises(UsageError, match="must match"):
        registry.counters("fine_total", "", label)


def test_a_histogram_keeps_the_label_le_for_itself(registry: Registry) -> None:
    with pytest.raises(UsageError, match="histogram's own"):
        registry.histograms("latency_ms", "", "le")


def test_a_label_comes_once(registry: Registry) -> None:
    with pytest.raises(UsageError, match="twice"):
        registry.counters("fine_total", "", "a", "a")


def test_a_name_is_taken_once_also_the_derived_ones(registry: Registry) -> None:
    registry.histogram("latency", "")
    with pytest.raises(UsageError, match="latency_count is taken"):
        registry.counter("latency_count", "")
    registry.counter("other_sum", "")
    with pytest.raises(UsageError, match="other_sum is taken"):
        registry.histogram("other", "")


@pytest.mark.parametrize("bounds", [(), (2, 1), (1, 1), (1, float("inf"))])
def test_bounds_grow_and_are_finite(registry: Registry, bounds: tuple[float, ...]) -> None:
    with pytest.raises(UsageError, match="expected growing finite numbers"):
        registry.histogram("latency_ms", "", bounds)


@pytest.mark.usefixtures("eager_switching")
def test_no_increment_of_many_threads_is_lost(registry: Registry) -> None:
    counter = registry.counter("c_total", "")
    gauge = registry.gauge("g", "")
    histogram = registry.histogram("h", "", bounds=(1,))
    family = registry.counters("f_total", "", "topic")

    def hammer() -> None:
        for _ in range(5_000):
            counter.inc()
            gauge.inc(2)
            histogram.observe(1)
            family.labels(topic="a").inc()

    threads = [threading.Thread(target=hammer) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (counter.value, gauge.value) == (20_000, 40_000)
    assert (histogram.count, histogram.sum) == (20_000, 20_000)
    assert family.labels(topic="a").value == 20_000
