"""After a crash both sides make the same of one folder, whatever was torn and whichever queues it has.

A copy of a folder that is open, taken while nobody writes, is what a killed process would have left.
"""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.java.driver import JavaStores
from tests.java.samples import STORE_HOST, batch_elements, mixed
from tests.java.sides import (
    SMALL,
    Options,
    assert_same_keys,
    assert_same_queues,
    keys_in,
    message_count,
    new_message,
    our_store,
    put_variety,
    scan_ours,
)
from tests.java.toolchain import SINCE_5
from tests.java.values import Draft, batch_body

pytestmark = pytest.mark.java

TOPICS = {"Inner": {"queue.type": "BatchCQ"}}
EVERYTHING: Options = SMALL | {
    "mapperFileSizeBatchConsumeQueue": 46 * 10,
    "enableConsumeQueueExt": True,
    "mappedFileSizeConsumeQueueExt": 500,
    "enableLmq": True,
    "enableMultiDispatch": True,
}
LAST = Draft(
    topic="Orders",
    body=b"the last message before the crash",
    properties=b"KEYS\x01last\x02TAGS\x01TagA\x02colour\x01green\x02",
    store_host=STORE_HOST,
)


def is_batch(topic: str) -> bool:
    return topic in TOPICS


def light(draft: Draft) -> Draft:
    return replace(draft, properties=b"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02TAGS\x01TagA\x02")


def inner_batch(number: int) -> Draft:
    body = batch_body(batch_elements(number, 3))
    return Draft(topic="Inner", body=body, properties=b"UNIQ_KEY\x01U%d\x02" % number, store_host=STORE_HOST)


@pytest.mark.parametrize("java_store", SINCE_5, indirect=True)
def test_both_recover_every_kind_of_queue_after_our_crash(java_store: JavaStores, tmp_path: Path) -> None:
    root, ours, theirs = (tmp_path / name for name in ("open", "ours", "java"))
    with our_store(root, EVERYTHING, is_batch=is_batch) as store:
        for number, draft in enumerate(mixed(150)):
            batch = inner_batch(number)
            counted = replace(batch, properties=batch.properties + b"INNER_NUM\x013\x02", sys_flag=0xC0)
            for each in (draft, light(draft), counted):
                store.put(new_message(each))
        before = scan_ours(store)
        shutil.copytree(root, ours)
        shutil.copytree(root, theirs)
    with java_store() as java, our_store(ours, EVERYTHING, is_batch=is_batch) as store:
        assert not java.open(theirs, options=EVERYTHING, topics=TOPICS).last_exit_ok
        assert_same_queues(java.scan(), before)
        assert_same_queues(scan_ours(store), before)


@pytest.mark.parametrize("java_store", SINCE_5, indirect=True)
def test_both_recover_every_kind_of_queue_after_javas_crash(java_store: JavaStores, tmp_path: Path) -> None:
    root, ours = tmp_path / "java", tmp_path / "ours"
    with java_store() as java:
        java.open(root, options=EVERYTHING, topics=TOPICS)
        for number, draft in enumerate(mixed(150)):
            java.put([draft, light(draft)])
            java.put_batch(inner_batch(number), inner=True)
        java.wait_dispatched()
        before = java.scan()
        java.halt()
    shutil.copytree(root, ours)
    with java_store() as java, our_store(ours, EVERYTHING, is_batch=is_batch) as store:
        assert not java.open(root, options=EVERYTHING, topics=TOPICS).last_exit_ok
        assert_same_queues(java.scan(), before)
        assert_same_queues(scan_ours(store), before)


def tear(root: Path, begin: int, end: int) -> None:
    """Zeros where the last bytes of the log should be: they never reached the disk."""
    file_size = 64 * 1024
    path = root / "commitlog" / f"{begin - begin % file_size:020}"
    with path.open("r+b") as file:
        file.seek(begin % file_size)
        file.write(bytes(end - begin))


@pytest.mark.parametrize("queues", ["queues stay", "queues are lost"])
def test_both_cut_a_torn_log_at_the_same_place(java_store: JavaStores, tmp_path: Path, queues: str) -> None:
    root = tmp_path / "open"
    with our_store(root) as store:
        put_variety(store, 0, 30)
        last = store.put(new_message(LAST))
        store.dispatch()
        shutil.copytree(root, tmp_path / "torn")
    if queues == "queues are lost":
        shutil.rmtree(tmp_path / "torn" / "consumequeue")
    with java_store() as java:
        for lost in (last.size, *range(last.size - 1, 0, -19), 1):  # From all of it to its last byte.
            ours, theirs = tmp_path / f"ours {lost}", tmp_path / f"java {lost}"
            shutil.copytree(tmp_path / "torn", ours)
            tear(ours, last.end - lost, last.end)
            shutil.copytree(ours, theirs)
            end = java.open(theirs, options=SMALL).max_physical_offset
            with our_store(ours) as store:
                found = scan_ours(store)
                assert store.log.end == end
                assert message_count(found) == (35 if end == last.physical_offset else 36)
                assert_same_queues(java.scan(), found)
                intact = [pair for pair in keys_in(found) if pair[1] != "last"]
                assert_same_keys(java, store, intact, crashed=True)
            java.close()
