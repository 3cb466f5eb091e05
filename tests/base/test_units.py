import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.base.errors import ConfigError
from flaremq.base.units import DAY_MS, HOUR_MS, GiB, KiB, MiB, parse_size, parse_span_ms


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("4096", 4096),
        (" 4096 ", 4096),
        ("7b", 7),
        ("64k", 64 * KiB),
        ("64KiB", 64 * KiB),
        ("16 MiB", 16 * MiB),
        ("1GIB", GiB),
        ("2g", 2 * GiB),
    ],
)
def test_a_size_is_bytes_or_carries_its_unit(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "span_ms"),
    [
        ("500", 500),
        ("500ms", 500),
        ("10s", 10_000),
        ("2 m", 120_000),
        ("48h", 48 * HOUR_MS),
        ("3d", 3 * DAY_MS),
    ],
)
def test_a_span_is_milliseconds_or_carries_its_unit(text: str, span_ms: int) -> None:
    assert parse_span_ms(text) == span_ms


@pytest.mark.parametrize(
    "text", ["", "k", "-1", "1.5g", "1 2", "10 s", "1kb", "0x10", "1_000", "٣", "9" * 5000]
)
def test_what_is_no_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match="64KiB or 1GiB"):
        parse_size(text)


@pytest.mark.parametrize("text", ["", "h", "-1s", "1.5h", "1w", "1h30m"])
def test_what_is_no_span_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match="10s, 48h or 3d"):
        parse_span_ms(text)


@given(st.text())
def test_any_text_is_a_number_or_a_config_error(text: str) -> None:
    for parse in (parse_size, parse_span_ms):
        try:
            assert parse(text) >= 0
        except ConfigError as error:
            assert repr(text) in str(error)  # noqa: PT017
