"""The same log makes the same queue and index files, and the same messages the same log, byte for byte."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.java.driver import JavaStores
from tests.java.files import (
    assert_same_files,
    assert_same_queues_and_index,
    copy_log,
    files_in,
    index_files,
    opened,
    stored,
)
from tests.java.samples import batch_elements, mixed
from tests.java.sides import BATCH, SMALL, Options, new_message, our_store, put_at, put_variety
from tests.java.values import Draft, batch_body

from flaremq.store.index.indexfile import entry_at
from flaremq.testing.clock import ManualClock
from flaremq.testing.fakes.builders import put_together

pytestmark = pytest.mark.java

PREPARED, COMMIT, ROLLBACK = 0x4, 0x8, 0xC
EXT: Options = SMALL | {"enableConsumeQueueExt": True, "mappedFileSizeConsumeQueueExt": 500}
PLAIN_AND_EXT = pytest.mark.parametrize("options", [SMALL, EXT], ids=["plain", "ext"])


def odd_messages() -> list[Draft]:
    """Transactions of every type, and messages that wait for their time or did so in the past."""
    found = []
    for number, draft in enumerate(mixed(60, first=5000)):
        kind = (0, PREPARED, COMMIT, ROLLBACK)[number % 4]
        found.append(replace(draft, sys_flag=kind, prepared_transaction_offset=number * 7))
        pairs = {"DELAY": (0, 3, 18, 99, -1)[number % 5], "TAGS": "TagA", "KEYS": f"late late-{number}"}
        waiting = "".join(f"{name}\x01{value}\x02" for name, value in pairs.items()).encode()
        found.append(replace(draft, topic="SCHEDULE_TOPIC_XXXX", properties=waiting, sys_flag=0))
        found.append(replace(draft, properties=waiting, sys_flag=0))
    return found


@PLAIN_AND_EXT
def test_from_javas_log_we_make_javas_queues_and_index(
    java_store: JavaStores, tmp_path: Path, options: Options
) -> None:
    root, ours = tmp_path / "java", tmp_path / "ours"
    batch = replace(BATCH, body=batch_body(batch_elements(0, 40)))
    with java_store() as java, opened(java, root, options):
        stored([*java.put(mixed(600)), java.put_batch(batch), *java.put(odd_messages() + mixed(200, 600))])
    with our_store(copy_log(root, ours), options):
        pass
    assert len(index_files(root)) > 3
    assert bool(files_in(root / "consumequeue_ext")) == (options is EXT)
    assert any(name.startswith("SCHEDULE_TOPIC_XXXX/17/") for name in files_in(root / "consumequeue")) == (
        java_store.version < "5"  # It moves delayed messages by itself; in 5.x the broker does.
    )
    assert_same_queues_and_index(ours, root)


@PLAIN_AND_EXT
def test_from_our_log_java_makes_our_queues_and_index(
    java_store: JavaStores, tmp_path: Path, options: Options
) -> None:
    """With times of seconds between messages, so that entries of the index tell one from the other."""
    if java_store.version == "5.5.0":
        pytest.skip("5.5 makes queues of the last files of a log only, and fills up what was before them")
    root, java_root, clock = tmp_path / "ours", tmp_path / "java", ManualClock()
    with our_store(root, options, clock=clock) as store:
        put_variety(store, 0, 200)
        for number, draft in enumerate(odd_messages() + mixed(600, first=200)):
            clock.advance_ms(number * 37 % 2500)
            store.put(new_message(draft))
    with java_store() as java, opened(java, copy_log(root, java_root), options):
        pass
    assert_same_queues_and_index(java_root, root)
    assert_same_files(java_root, root, "commitlog")
    later_first_entries = [data[entry_at(100, 1) :][12:16] for data in index_files(root)[1:]]
    assert any(int.from_bytes(seconds, "big") > 0 for seconds in later_first_entries)


@PLAIN_AND_EXT
def test_the_same_messages_at_the_same_times_make_the_same_store(
    java_store: JavaStores, tmp_path: Path, options: Options
) -> None:
    root, ours, clock = tmp_path / "java", tmp_path / "ours", ManualClock()
    drafts = mixed(400) + odd_messages() + mixed(100, first=400)
    if java_store.version < "5":  # It would move delayed messages to where they wait.
        drafts = [draft for draft in drafts if b"DELAY" not in draft.properties]
    with java_store() as java, opened(java, root, options):
        results = stored(java.put(drafts))
    with our_store(ours, options, clock=clock) as store:
        put_at(store, clock, drafts, results)
    assert_same_files(ours, root, "commitlog")
    assert_same_queues_and_index(ours, root)


def test_the_same_batches_at_the_same_times_make_the_same_store(
    java_store: JavaStores, tmp_path: Path
) -> None:
    root, ours, clock = tmp_path / "java", tmp_path / "ours", ManualClock()
    batches = [batch_elements(number, 1 + number % 20) for number in range(60)]
    with java_store() as java, opened(java, root):
        results = stored([java.put_batch(replace(BATCH, body=batch_body(batch))) for batch in batches])
    with our_store(ours, clock=clock) as store:
        for batch, result in zip(batches, results, strict=True):
            clock.step_wall_ms((result.store_timestamp or 0) - clock.now_ms())
            put_together(store, [new_message(BATCH, element) for element in batch])
    assert_same_files(ours, root, "commitlog")
    assert_same_queues_and_index(ours, root)


def test_a_store_host_of_ipv6_makes_the_same_store(java_store: JavaStores, tmp_path: Path) -> None:
    root, ours, clock, store_host = tmp_path / "java", tmp_path / "ours", ManualClock(), "[2001:db8::2]:10911"
    drafts = [replace(draft, store_host=store_host) for draft in mixed(150)]
    with java_store() as java, opened(java, root):
        results = stored(java.put(drafts))
    with our_store(ours, clock=clock, store_host=store_host) as store:
        put_at(store, clock, drafts, results)
    assert_same_files(ours, root, "commitlog")
    assert_same_queues_and_index(ours, root)
