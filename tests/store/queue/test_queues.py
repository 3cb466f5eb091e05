"""Light queues: a message may name more queues than its own, and some messages may not."""

from pathlib import Path

import pytest

from flaremq.model.record import decode, decode_many
from flaremq.store.offline.scan import StoreScan
from flaremq.store.store import MessageStore
from flaremq.testing.fakes.builders import a_message, small_settings


def bodies(store: MessageStore, topic: bytes = b"TopicTest") -> list[bytes]:
    found = store.get(topic, 0, store.min_offset(topic, 0), 32)
    return [message.body for message in decode_many(found.gathered())]


def test_a_retry_and_an_open_transaction_do_not_go_to_light_queues(tmp_path: Path) -> None:
    known = b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02"
    again = known + b"INNER_MULTI_QUEUE_OFFSET\x019\x02"  # As the first try was stored.
    with MessageStore(small_settings(tmp_path, lmq_enabled=True, multi_dispatch_enabled=True)) as store:
        store.put(a_message(b"0", properties=known))
        store.put(a_message(b"1", properties=again, topic=b"%RETRY%group"))
        store.put(a_message(b"2", properties=again, topic=b"rmq_sys_topic"))
        store.put(a_message(b"3", properties=known, sys_flag=0x4))
        store.dispatch()
        assert bodies(store, topic=b"%LMQ%a") == [b"0"]


@pytest.mark.parametrize("name", ["..", "%LMQ%" + "a" * 300, "a/b", ""])
@pytest.mark.parametrize("offset", ["0", "-7", "1000000000000", "9" * 40, "x"])
def test_a_light_queue_that_cannot_be_costs_nothing_but_itself(
    tmp_path: Path, name: str, offset: str
) -> None:
    forged = f"INNER_MULTI_DISPATCH\x01{name},Good\x02INNER_MULTI_QUEUE_OFFSET\x01{offset},{offset}\x02"
    settings = small_settings(tmp_path, multi_dispatch_enabled=True)
    with MessageStore(settings) as store:
        for body in (b"0", b"1"):
            store.put(a_message(body, properties=forged.encode()))
        store.dispatch()
        assert bodies(store) == [b"0", b"1"]
    with MessageStore(settings) as store:
        assert bodies(store) == [b"0", b"1"]


def test_no_gap_is_filled_for_a_number_that_a_sender_made_up(tmp_path: Path) -> None:
    first, second = (
        b"INNER_MULTI_DISPATCH\x01Other\x02INNER_MULTI_QUEUE_OFFSET\x01%d\x02" % n for n in (0, 10**12)
    )
    with MessageStore(small_settings(tmp_path, multi_dispatch_enabled=True)) as store:
        store.put(a_message(b"0", properties=first))
        store.put(a_message(b"1", properties=second))
        store.dispatch()
        assert store.max_offset(b"Other", 0) == 2
        assert bodies(store, topic=b"Other") == [b"0", b"1"]


def test_a_scan_reads_light_queues_too(tmp_path: Path) -> None:
    known = b"INNER_MULTI_DISPATCH\x01%LMQ%b,%LMQ%a\x02"
    with MessageStore(small_settings(tmp_path, lmq_enabled=True, multi_dispatch_enabled=True)) as store:
        store.put(a_message(b"0"))
        for body in (b"1", b"2"):
            store.put(a_message(body, properties=known))
        store.dispatch()
        records = StoreScan(tmp_path).queue_records("%LMQ%a", 0)
        assert [decode(bytes(record)).body for record in records] == [b"1", b"2"]
