"""One folder, two stores: the same options and messages go to either, and their answers compare.

What is read of our store comes in the values that the driver gives for Java's, so that a test can hold one
against the other.
"""

from collections.abc import Callable, Iterable
from ipaddress import ip_address
from pathlib import Path
from typing import Literal

from tests.java.driver import JavaStore
from tests.java.samples import BODY_MAX, STORE_HOST, batch_elements, keys_of, mixed
from tests.java.values import LONG_MAX, Draft, Element, Gap, PutResult, Scanned, ScannedQueue

from flaremq.base.clock import Clock
from flaremq.base.settings import Sources, load
from flaremq.base.units import KiB
from flaremq.model.host import Host
from flaremq.model.message import StoredMessage
from flaremq.model.record import decode
from flaremq.store.api import Boundary, GetStatus
from flaremq.store.drafts import NewMessage
from flaremq.store.settings import StoreSettings
from flaremq.store.store import MessageStore
from flaremq.testing.clock import ManualClock
from flaremq.testing.fakes.builders import put_together

Options = dict[str, object]

BATCH = Draft(topic="Batches", queue_id=1, born_host="10.0.0.1:5000", store_host=STORE_HOST)
"""What the elements of a batch have in common."""
SMALL: Options = {
    "mappedFileSizeCommitLog": 64 * KiB,
    "maxMessageSize": BODY_MAX,
    "mappedFileSizeConsumeQueue": 17 * 20,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
    "diskMaxUsedSpaceRatio": 95,
    "osPageCacheBusyTimeOutMills": 60_000,
}
"""Files so small that a few hundred messages roll every kind of them several times."""


def settings_for(root: Path, options: Options) -> StoreSettings:
    """Our settings by Java's names, as a broker.conf gives them."""
    given = {"storePathRootDir": root} | options
    flags = [
        f"{name}={str(value).lower() if value in (True, False) else value}" for name, value in given.items()
    ]
    (settings,) = load(Sources.of(flags=flags), StoreSettings)
    return settings


def our_store(
    root: Path,
    options: Options = SMALL,
    *,
    clock: Clock | None = None,
    is_batch: Callable[[str], bool] = lambda _topic: False,
    store_host: str = STORE_HOST,
) -> MessageStore:
    return MessageStore(
        settings_for(root, options), store_host=host(store_host), clock=clock, is_batch=is_batch
    )


def host(text: str) -> bytes:
    """From "ip:port" to 8 or 20 bytes."""
    ip, _, port = text.rpartition(":")
    return Host(str(ip_address(ip.strip("[]"))), int(port)).encode()


def new_message(draft: Draft, element: Element | None = None) -> NewMessage:
    """The same message for our store, or one element of the batch that the draft is the head of."""
    return NewMessage(
        topic=draft.topic.encode(),
        body=draft.body if element is None else element.body,
        queue_id=draft.queue_id,
        properties=draft.properties if element is None else element.properties,
        flag=draft.flag if element is None else element.flag,
        sys_flag=draft.sys_flag,
        born_timestamp_ms=draft.born_timestamp,
        born_host=host(draft.born_host),
        reconsume_times=draft.reconsume_times,
        prepared_transaction_offset=draft.prepared_transaction_offset,
    )


def put_all(store: MessageStore, drafts: Iterable[Draft]) -> None:
    for draft in drafts:
        store.put(new_message(draft))


def put_at(
    store: MessageStore, clock: ManualClock, drafts: Iterable[Draft], results: Iterable[PutResult]
) -> None:
    """Put messages at the very times at which Java stored the same ones; they land in the same places."""
    for draft, result in zip(drafts, results, strict=True):
        assert result.store_timestamp is not None
        clock.step_wall_ms(result.store_timestamp - clock.now_ms())
        put = store.put(new_message(draft))
        assert (put.physical_offset, put.queue_offset) == (result.physical_offset, result.queue_offset)


def put_variety(store: MessageStore, first: int, count: int) -> None:
    """Single messages, and a batch behind them."""
    put_all(store, mixed(count, first))
    put_together(store, [new_message(BATCH, element) for element in batch_elements(first)])


def scan_ours(store: MessageStore) -> list[ScannedQueue]:
    """Every message of every queue that ever held one, read one by one as the driver's scan does."""
    store.dispatch()
    queues = sorted((topic.decode(), queue_id) for (topic, queue_id), _ in store.queues.items())
    return [
        _scan_queue(store, topic, queue_id)
        for topic, queue_id in queues
        if store.max_offset(topic.encode(), queue_id) > 0
    ]


def _scan_queue(store: MessageStore, topic: str, queue_id: int) -> ScannedQueue:
    low, high = store.min_offset(topic.encode(), queue_id), store.max_offset(topic.encode(), queue_id)
    messages, gaps, offset = [], [], low
    while offset < high:
        found = store.get(topic.encode(), queue_id, offset, 1)
        if found.status is GetStatus.FOUND:
            messages.append(scanned(decode(found.gathered()), found.next_offset - found.count))
        else:
            gaps.append(Gap(offset, found.next_offset, found.status.value))
        assert found.next_offset > offset, (topic, queue_id, offset, found)
        offset = found.next_offset
    return ScannedQueue(topic, queue_id, low, high, tuple(messages), tuple(gaps))


def scanned(message: StoredMessage, position: int) -> Scanned:
    return Scanned(
        position,
        message.topic,
        message.queue_id,
        message.queue_offset,
        message.physical_offset,
        message.size,
        message.store_timestamp_ms,
        message.raw_properties,
        message.body,
        None,
    )


def boundary_name(boundary: Boundary) -> Literal["LOWER", "UPPER"]:
    return "LOWER" if boundary is Boundary.LOWER else "UPPER"


def by_key_ours(store: MessageStore, topic: str, key: str) -> list[bytes]:
    return [bytes(record) for record in store.query(topic.encode(), key.encode(), 64, 0, LONG_MAX)]


def assert_same_queues(found: list[ScannedQueue], wanted: list[ScannedQueue]) -> None:
    """Equal, or the first message that is not: the whole of both would fill a screen a thousand times."""
    heads = [
        [(q.topic, q.queue_id, q.min_offset, q.max_offset, q.gaps) for q in side] for side in (found, wanted)
    ]
    assert heads[0] == heads[1]
    for one, other in zip(found, wanted, strict=True):
        for message, like in zip(one.messages, other.messages, strict=False):
            assert message == like, (one.topic, one.queue_id)
        assert len(one.messages) == len(other.messages), (one.topic, one.queue_id)


def assert_same_keys(
    java: JavaStore, store: MessageStore, keys: Iterable[tuple[str, str]], *, crashed: bool = False
) -> None:
    """Both find the same records by each key, and at least one.

    After a crash Java may index the last record of a full index file a second time, and then gives it twice.
    """
    for topic, key in keys:
        ours, theirs = by_key_ours(store, topic, key), java.by_key(topic, key).records
        assert ours, (topic, key)
        assert list(dict.fromkeys(theirs) if crashed else theirs) == ours, (topic, key)


def keys_in(queues: list[ScannedQueue]) -> list[tuple[str, str]]:
    """Every key of every message, as the messages themselves say."""
    found = (keys_of(message.topic, message.properties) for queue in queues for message in queue.messages)
    return sorted({pair for pairs in found for pair in pairs})


def message_count(queues: Iterable[ScannedQueue]) -> int:
    return sum(len(queue.messages) for queue in queues)
