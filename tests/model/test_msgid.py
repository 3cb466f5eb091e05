import threading
from datetime import UTC, datetime, timedelta, timezone, tzinfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.base.errors import Malformed, UsageError
from flaremq.model.host import Host
from flaremq.model.msgid import (
    OffsetId,
    UniqueId,
    UniqueIds,
    decode_offset_id,
    decode_unique_id,
    encode_offset_id,
    month_of,
)
from flaremq.testing.clock import ManualClock

CHINA = timezone(timedelta(hours=8))


def at_ms(text: str, tz: tzinfo = UTC) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=tz).timestamp() * 1000)


def ids_at(clock: ManualClock, ip: str = "10.0.0.1", tz: tzinfo = UTC) -> UniqueIds:
    return UniqueIds(clock, ip=ip, pid=0x12345, salt=0x18B4AAC2, tz=tz)


@pytest.mark.parametrize(
    ("host", "offset", "text"),
    [
        (Host("10.0.0.2", 10911), 4096, "0A00000200002A9F0000000000001000"),
        (Host("::1", 10911), 0, "0000000000000000000000000000000100002A9F0000000000000000"),
        (Host("255.255.255.255", 1), 2**63 - 1, "FFFFFFFF000000017FFFFFFFFFFFFFFF"),
    ],
)
def test_an_offset_id_is_host_and_offset(host: Host, offset: int, text: str) -> None:
    assert encode_offset_id(host, offset) == text
    assert decode_offset_id(text) == OffsetId(host, offset)
    assert decode_offset_id(text.lower()) == OffsetId(host, offset)


@given(st.text())
def test_any_text_is_an_id_or_malformed(text: str) -> None:
    for decode in (decode_offset_id, decode_unique_id):
        with pytest.raises(Malformed, match="message id"):
            decode(text)


@given(st.binary(min_size=16, max_size=16) | st.binary(min_size=28, max_size=28))
def test_any_bytes_of_the_right_length_are_an_id_of_either_kind(raw: bytes) -> None:
    text = raw.hex().upper()
    assert encode_offset_id(*decode_offset_id(text)) == text
    assert 0 <= decode_unique_id(text).counter <= 0xFFFF


@pytest.mark.parametrize("text", ["", "0A", "0" * 31, "0" * 33, "G" * 32, "0" * 30 + "  ", " " + "0" * 31])
def test_what_is_no_id_is_malformed(text: str) -> None:
    with pytest.raises(Malformed, match="message id"):
        decode_offset_id(text)


def test_a_unique_id_is_sender_time_and_counter() -> None:
    clock = ManualClock(at_ms("2024-05-01T00:00:01.234"))
    ids = ids_at(clock)
    assert ids.next() == "0A000001234518B4AAC2000004D20000"
    clock.advance_ms(1)
    assert ids.next() == "0A000001234518B4AAC2000004D30001"


def test_a_unique_id_is_read_back() -> None:
    text = ids_at(ManualClock(at_ms("2024-05-01T00:00:01.234"))).next()
    assert decode_unique_id(text) == UniqueId("10.0.0.1", 0x2345, 0x18B4AAC2, 1234, 0)


def test_an_ipv6_sender_makes_longer_ids() -> None:
    text = ids_at(ManualClock(at_ms("2024-05-01T00:00:00.007")), ip="2001:db8::1").next()
    assert len(text) == 56
    assert decode_unique_id(text) == UniqueId("2001:db8::1", 0x2345, 0x18B4AAC2, 7, 0)


def test_the_counter_has_16_bits() -> None:
    ids = ids_at(ManualClock())
    texts = [ids.next() for _ in range(65_537)]
    assert (texts[0][-4:], texts[65_535][-4:], texts[65_536][-4:]) == ("0000", "FFFF", "0000")
    assert len(set(texts)) == 65_536


def test_the_month_begins_by_local_time() -> None:
    moment_ms = at_ms("2024-04-30T17:00:00")  # In China it is the first of May, one in the morning.
    assert decode_unique_id(ids_at(ManualClock(moment_ms), tz=CHINA).next()).span_ms == 3_600_000
    assert decode_unique_id(ids_at(ManualClock(moment_ms)).next()).span_ms == (29 * 24 + 17) * 3_600_000


def test_a_new_month_begins_again_at_zero() -> None:
    clock = ManualClock(at_ms("2024-12-31T23:59:59.999"))
    ids = ids_at(clock)
    assert decode_unique_id(ids.next()).span_ms == 31 * 86_400_000 - 1
    clock.advance_ms(1)
    assert decode_unique_id(ids.next()).span_ms == 0


def test_the_end_of_a_long_month_keeps_all_32_bits() -> None:
    text = ids_at(ManualClock(at_ms("2024-05-31T12:00:00"))).next()
    assert text[20:28] == f"{30 * 86_400_000 + 43_200_000:08X}"  # More than a signed int holds.


@pytest.mark.parametrize(("back_ms", "span_ms"), [(1_001, 0), (1_000_999, 0), (1_001_000, 2**32 - 1_000_000)])
def test_a_clock_set_back_into_the_last_month_counts_as_its_first_moment(back_ms: int, span_ms: int) -> None:
    clock = ManualClock(at_ms("2024-05-01T00:00:01"))
    ids = ids_at(clock)
    clock.step_wall_ms(-back_ms)
    assert decode_unique_id(ids.next()).span_ms == span_ms


@pytest.mark.parametrize(
    ("sent", "now"),
    [
        ("2024-05-10T01:02:03.456", "2024-05-10T01:02:04"),
        ("2024-05-10T01:02:03.456", "2024-05-10T01:02:03.456"),
        ("2024-04-28T01:02:03.456", "2024-05-02T00:00:00"),
        ("2023-12-31T23:59:59.999", "2024-01-01T00:00:00"),
    ],
)
def test_an_id_tells_when_it_was_made(sent: str, now: str) -> None:
    made = decode_unique_id(ids_at(ManualClock(at_ms(sent))).next())
    assert made.sent_ms(at_ms(now), UTC) == at_ms(sent)


def test_a_month_runs_from_midnight_to_midnight() -> None:
    assert month_of(at_ms("2024-02-29T23:59:59.999"), UTC) == (at_ms("2024-02-01"), at_ms("2024-03-01"))
    assert month_of(at_ms("2024-12-01"), UTC) == (at_ms("2024-12-01"), at_ms("2025-01-01"))
    start_ms, end_ms = month_of(at_ms("2024-07-15"))  # Of this machine, wherever it stands.
    assert start_ms < at_ms("2024-07-15") < end_ms


def test_threads_never_get_the_same_id() -> None:
    ids = ids_at(ManualClock())
    made: list[str] = []

    def make() -> None:
        made.extend([ids.next() for _ in range(2_000)])

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 8_000


def test_a_sender_has_an_address_not_a_name() -> None:
    with pytest.raises(UsageError, match="'localhost' is not a numeric IP address"):
        UniqueIds(ManualClock(), ip="localhost", pid=1, salt=1)
