"""Frames that are made in runs say exactly what the plain way says."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from flaremq.base.clock import SystemClock
from flaremq.client.producer.packing import FrameMaker, Packer, Sender
from flaremq.client.settings import ProducerSettings
from flaremq.model import properties as names
from flaremq.model.message import Message, MessageQueue
from flaremq.model.msgid import UniqueIds
from flaremq.model.properties import decode_properties
from flaremq.protocol.command import Command
from flaremq.protocol.frame import decode_frame, encode_frame

PACKER = Packer(ProducerSettings(compress_over=64), UniqueIds(SystemClock(), ip="127.0.0.1", pid=1, salt=2))
SENDER = Sender('a "group"', 4)
QUEUE = MessageQueue("Orders", 'bröker "a"', 3)

words = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=20).filter(
    str.strip
)
keys = words.map(lambda word: "".join(word.split())).filter(bool)
messages = st.builds(
    Message,
    st.just("Orders"),
    st.binary(min_size=1, max_size=200),
    tags=st.none() | words,
    keys=st.lists(keys, max_size=3),
    properties=st.dictionaries(words.filter(lambda word: word not in names.RESERVED), words, max_size=3),
    flag=st.integers(-(2**31), 2**31 - 1),
    delay_level=st.integers(0, 18),
    wait_store=st.booleans(),
    sharding_key=st.none() | words,
)


def said(command: Command) -> tuple[object, ...]:
    """All that a broker reads; the order of the properties means nothing."""
    fields = dict(command.fields)
    properties = decode_properties(fields.pop("i").encode())
    return command.code, command.opaque, command.flag, command.version, fields, properties, command.body


@given(messages, st.integers(-(2**31), 2**31 - 1))
def test_a_frame_made_in_a_run_says_what_the_plain_request_says(message: Message, opaque: int) -> None:
    if message.sharding_key and names.SHARDING_KEY in message.properties:
        return
    plain = SENDER.request(PACKER.pack(message, "ID"), QUEUE, 1_700_000_000_000)
    made = FrameMaker(SENDER, PACKER).frame(message, QUEUE, "ID", 1_700_000_000_000, opaque)
    expected = decode_frame(encode_frame(plain))
    found = decode_frame(made)
    assert said(found) == (expected.code, opaque, *said(expected)[2:])
    parcel = FrameMaker(SENDER, PACKER).parcel_frame(
        PACKER.pack(message, "ID"), QUEUE, 1_700_000_000_000, opaque
    )
    assert said(decode_frame(parcel)) == said(found)


@given(st.lists(messages, min_size=1, max_size=4), st.integers(-(2**31), 2**31 - 1))
def test_a_frame_of_a_batch_says_what_the_plain_request_says(some: list[Message], opaque: int) -> None:
    parcel = PACKER.pack_batch([replace(message, delay_level=0, wait_store=True) for message in some])
    plain = SENDER.request(parcel, QUEUE, 1_700_000_000_000)
    made = FrameMaker(SENDER, PACKER).parcel_frame(parcel, QUEUE, 1_700_000_000_000, opaque)
    assert said(decode_frame(made)) == said(decode_frame(encode_frame(replace(plain, opaque=opaque))))
