"""Records as the encoder writes them. Bytes as Java's MessageExtEncoder wrote them for the same messages."""

from array import array
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.model import layout
from flaremq.model.columns import Draft, Drafts
from flaremq.testing.fakes.builders import BORN_HOST, NOW_MS, STORE_HOST, a_message, drafts_of
from flaremq.testing.twins import twin_name, twins

TWINS = twins("flaremq.model._encode")
PROPERTIES = b"TAGS\x01TagA\x02KEYS\x01order-1\x02UNIQ_KEY\x017F0000010001\x02WAIT\x01true"
GOLDEN = bytes.fromhex(
    "0000009fdaa320a73610a6860000000300000000000000000000000700000000400010000000000000"
    "00018bcfe568000a000001000013880000018bcfe5687b0a00000200002a9f0000000000000000000000"
    "000000000568656c6c6f09546f706963546573740036544147530154616741024b455953016f72646572"
    "2d3102554e49515f4b45590137463030303030313030303102574149540174727565"
)


@pytest.fixture(params=TWINS, ids=twin_name)
def twin(request: pytest.FixtureRequest) -> Any:
    return request.param


def encoded(
    twin: Any, drafts: Drafts, *, base: int = 0, offsets: list[int] | None = None, **encoder: Any
) -> bytes:
    out = bytearray(100_000)
    next_offsets = array("q", offsets or [0] * 64)
    written = twin.Encoder(STORE_HOST, **encoder).encode_many(drafts, 0, out, 0, base, next_offsets, NOW_MS)
    assert written == len(drafts)
    return bytes(out[: drafts.rows[-3] + drafts.rows[-2] - base])


def test_a_record_has_javas_bytes(twin: Any) -> None:
    drafts = drafts_of([a_message(queue_id=3, properties=PROPERTIES)])
    assert encoded(twin, drafts, base=0x40001000, offsets=[7]) == GOLDEN


def test_the_record_crc_is_the_last_property_with_reversed_digits(twin: Any) -> None:
    drafts = drafts_of([a_message(queue_id=3, properties=PROPERTIES)])
    record = encoded(twin, drafts, base=0x40001000, offsets=[7], append_crc=True)
    assert len(record) == 180
    assert record[-21:] == b"\x02__CRC32#\x019308702221\x02"
    assert record[-77:-75].hex() == "004b"


def test_an_ipv6_host_widens_the_record_and_sets_its_bit(twin: Any) -> None:
    host = bytes.fromhex("20010db8000000000000000000000001") + (5000).to_bytes(4, "big")
    record = encoded(twin, drafts_of([a_message(queue_id=3, properties=PROPERTIES, born_host=host)]))
    assert len(record) == 171
    assert record[36:40].hex() == "00000010"
    assert record[48:68] == host


def test_host_bits_of_a_sender_are_not_believed(twin: Any) -> None:
    record = encoded(twin, drafts_of([a_message(sys_flag=0x31)]))
    assert record[36:40].hex() == "00000001"


def test_a_long_topic_makes_a_v2_record(twin: Any) -> None:
    topic = b"%RETRY%" + b"g" * 130
    record = encoded(twin, drafts_of([a_message(topic=topic)]))
    assert record[4:8].hex() == "daa320ab"
    assert b"\x00\x89" + topic in record


def test_rows_take_queue_offsets_in_order(twin: Any) -> None:
    drafts = drafts_of([a_message(queue_id=0), a_message(queue_id=1), a_message(queue_id=0)])
    encoded(twin, drafts, offsets=[5, 9])
    assert list(drafts.rows[Draft.QUEUE_OFFSET :: Draft.WIDTH]) == [5, 9, 6]


def test_a_prepared_message_takes_no_queue_offset(twin: Any) -> None:
    drafts = drafts_of([a_message(sys_flag=0x4)])
    encoded(twin, drafts, offsets=[5])
    assert drafts.rows[Draft.QUEUE_OFFSET] == 0


def test_what_finds_no_room_beside_a_blank_is_left_for_the_next_file(twin: Any) -> None:
    drafts = drafts_of([a_message(), a_message()])
    size = len(encoded(twin, drafts_of([a_message()])))
    encoder, offsets = twin.Encoder(STORE_HOST), array("q", [0])
    assert encoder.encode_many(drafts, 0, bytearray(2 * size + 7), 0, 0, offsets, NOW_MS) == 1
    assert offsets[0] == 1
    assert encoder.encode_many(drafts, 1, bytearray(size + 8), 0, 0, offsets, NOW_MS) == 1


def test_rows_together_are_written_all_or_none(twin: Any) -> None:
    drafts = drafts_of([a_message(), a_message()])
    drafts.rows[Draft.TOGETHER] = 2
    size = len(encoded(twin, drafts_of([a_message()])))
    out = bytearray(2 * size + 7)
    assert twin.Encoder(STORE_HOST).encode_many(drafts, 0, out, 0, 0, array("q", [0]), NOW_MS) == 0
    assert not any(out)


@given(
    bodies=st.lists(st.binary(max_size=40), min_size=1, max_size=5),
    gap=st.integers(0, 64),
    together=st.booleans(),
    room=st.integers(0, 1200),
)
def test_records_with_gaps_are_the_same_records_further_apart(
    bodies: list[bytes], gap: int, together: bool, room: int
) -> None:
    for module in TWINS:
        drafts = drafts_of([a_message(body) for body in bodies])
        drafts.rows[Draft.TOGETHER] = len(bodies) if together else 1
        out = bytearray(b"x" * room)
        written = module.Encoder(STORE_HOST, gap=gap).encode_many(
            drafts, 0, out, 0, 500, array("q", [0]), NOW_MS
        )
        at = 0
        for row in range(written):
            place, size = drafts.rows[row * Draft.WIDTH + Draft.PHYSICAL_OFFSET :][:2]
            assert (place, bytes(out[at : at + gap])) == (500 + at + gap, b"x" * gap)
            assert int.from_bytes(out[at + gap + 28 : at + gap + 36], "big") == place
            at += gap + size
        sizes = [gap + len(encoded(module, drafts_of([a_message(body)]))) for body in bodies]
        fitting = [n for n in range(1, len(sizes) + 1) if sum(sizes[:n]) + 8 <= room]
        if not together:
            assert written == len(fitting)
        else:
            assert bool(written) == (sum(sizes) + 8 <= room)
        assert set(out[at:]) <= {ord("x")}


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        (Draft.TOPIC_AT, -1, "bytes -1"),
        (Draft.BODY_SIZE, 10_000, "of a buffer of 5"),
        (Draft.BORN_HOST_SIZE, 7, "born host of 7"),
        (Draft.QUEUE, 64, "queue 64 of 64"),
        (Draft.TOGETHER, 2, "2 rows together, 1 left"),
        (Draft.TOGETHER, 0, "0 rows together"),
        (Draft.FLAG, 1 << 31, "more than 32 bits"),
    ],
)
def test_a_row_that_points_outside_is_refused_before_a_byte_is_written(
    twin: Any, column: int, value: int, message: str
) -> None:
    drafts, out = drafts_of([a_message()]), bytearray(1000)
    drafts.rows[column] = value
    with pytest.raises(ValueError, match=message):
        twin.Encoder(STORE_HOST).encode_many(drafts, 0, out, 0, 0, array("q", [0] * 64), NOW_MS)
    assert not any(out)


def test_a_store_host_has_eight_or_twenty_bytes(twin: Any) -> None:
    with pytest.raises(ValueError, match="8 or 20"):
        twin.Encoder(b"localhost")


@pytest.mark.parametrize(
    ("message", "taken"),
    [
        (a_message(b"x" * 100), 1),
        (a_message(b"x" * 101), -1),
        (a_message(properties=b"a\x01" + b"x" * 32765), 1),
        (a_message(properties=b"a\x01" + b"x" * 32766), -1),
    ],
)
def test_sizes_over_their_limits_are_refused(twin: Any, message: Any, taken: int) -> None:
    encoder, out = twin.Encoder(STORE_HOST, False, 100, 40_000), bytearray(50_000)
    assert encoder.encode_many(drafts_of([message]), 0, out, 0, 0, array("q", [0]), NOW_MS) == taken
    assert any(out) == (taken > 0)


def test_one_record_over_its_limit_stops_all_rows(twin: Any) -> None:
    drafts, out = drafts_of([a_message(), a_message(b"longer than hello")]), bytearray(1000)
    size = len(encoded(twin, drafts_of([a_message()])))
    encoder = twin.Encoder(STORE_HOST, False, 1000, size)
    assert encoder.encode_many(drafts, 0, out, 0, 0, array("q", [0]), NOW_MS) == -2
    assert not any(out)


hosts = st.sampled_from([BORN_HOST, bytes(range(16)) + BORN_HOST[4:]])
messages = st.builds(
    a_message,
    body=st.binary(max_size=300),
    topic=st.binary(min_size=1, max_size=127).filter(
        lambda t: not {47, 0} & set(t) and t not in (b".", b"..")
    ),
    properties=st.binary(max_size=200),
    queue_id=st.integers(0, 7),
    flag=st.integers(-(2**31), 2**31 - 1),
    sys_flag=st.integers(0, 0x7FF).filter(lambda flag: not flag & 0x80),
    born_timestamp_ms=st.integers(-(2**63), 2**63 - 1),
    born_host=hosts,
    reconsume_times=st.integers(0, 2**31 - 1),
    prepared_transaction_offset=st.integers(0, 2**63 - 1),
)


@pytest.mark.skipif(len(TWINS) == 1, reason="the extension is not built")
@given(batch=st.lists(messages, max_size=8), room=st.integers(0, 3000), append_crc=st.booleans())
def test_twins_write_the_same_bytes_and_columns(batch: list[Any], room: int, append_crc: bool) -> None:
    seen = []
    for module in TWINS:
        drafts, out, offsets = drafts_of(batch), bytearray(room), array("q", [3] * 64)
        encoder = module.Encoder(STORE_HOST, append_crc, 290, 560)
        written = encoder.encode_many(drafts, 0, out, 0, 1 << 40, offsets, NOW_MS)
        seen.append((written, out, drafts.rows, offsets))
    assert seen[0] == seen[1]


@pytest.mark.skipif(len(TWINS) == 1, reason="the extension is not built")
@given(rows=st.lists(st.integers(-3, 40), min_size=Draft.WIDTH, max_size=Draft.WIDTH))
def test_twins_refuse_the_same_rows(rows: list[int]) -> None:
    def attempt(module: ModuleType) -> str:
        drafts = Drafts(array("q", rows), bytes(30), bytes(30))
        try:
            return str(
                module.Encoder(STORE_HOST).encode_many(drafts, 0, bytearray(300), 0, 0, array("q", [0]), 1)
            )
        except ValueError as error:
            return str(error)

    assert attempt(TWINS[0]) == attempt(TWINS[1])


def test_twins_export_the_same_names() -> None:
    assert {"Encoder", "check_rows"} <= set(dir(TWINS[0])) & set(dir(TWINS[-1]))
    assert layout.FIXED_SIZE == 91
