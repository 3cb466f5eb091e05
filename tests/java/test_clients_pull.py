"""DefaultLitePullConsumer and DefaultMQPullConsumer of both versions and both headers."""

import pytest
from tests.java.clients import BEGIN, END, Draft, JavaClients, Queue, bodies
from tests.java.jvm import JavaStoreError

pytestmark = pytest.mark.java

SOON_MS = 5_000
"""Far less than the 20 s for which a broker holds a pull: what comes so soon came by a wake-up."""


def numbered(queue: Queue, count: int, first: int = 0) -> list[Draft]:
    return [
        Draft(
            topic=queue.topic,
            body=f"{number:03}".encode(),
            tags="even" if number % 2 == 0 else "odd",
            keys=f"k{number}",
            properties={"n": str(number)},
            queue=queue,
        )
        for number in range(first, first + count)
    ]


def texts(*numbers: int) -> list[str]:
    return [f"{number:03}" for number in numbers]


def test_a_lite_consumer_polls_all_and_goes_on_where_it_committed(
    java: JavaClients, queues: list[Queue]
) -> None:
    producer = java.producer()
    for number, queue in enumerate(queues):
        producer.send(numbered(queue, 5, first=5 * number))
    first = java.lite(queues[0].topic, autoCommit=False)
    assert bodies(first.poll_until(20)) == texts(*range(20))
    first.commit(queues)
    assert [first.committed(queue) for queue in queues] == [5, 5, 5, 5]
    first.stop()
    producer.send(numbered(queues[0], 3, first=20))
    second = java.lite(queues[0].topic, first.group)
    assert bodies(second.poll_until(3)) == texts(20, 21, 22)


@pytest.mark.parametrize(
    ("tags", "sql", "wanted"),
    [("odd", None, [1, 3, 5, 7, 9]), (None, "n < 3 OR n = 8", [0, 1, 2, 8])],
    ids=["tags", "sql"],
)
def test_a_lite_consumer_gets_what_its_filter_lets_through(
    java: JavaClients, queues: list[Queue], tags: str | None, sql: str | None, wanted: list[int]
) -> None:
    java.producer().send(numbered(queues[3], 10))
    consumer = java.lite(queues[0].topic, tags=tags, sql=sql)
    assert bodies(consumer.poll_until(len(wanted))) == texts(*wanted)


def test_a_lite_consumer_reads_the_queues_that_it_is_assigned(java: JavaClients, queues: list[Queue]) -> None:
    producer, consumer = java.producer(), java.lite(None)
    for number, queue in enumerate(queues):
        producer.send(numbered(queue, 2, first=10 * number))
    assert consumer.queues(queues[0].topic) == queues
    consumer.assign(queues[1:3])
    assert bodies(consumer.poll_until(4)) == texts(10, 11, 20, 21)


def test_a_lite_consumer_seeks(java: JavaClients, queues: list[Queue]) -> None:
    producer, queue = java.producer(), queues[0]
    producer.send(numbered(queue, 10))
    consumer = java.lite(None)
    consumer.assign([queue])
    consumer.seek(queue, 7)
    assert bodies(consumer.poll_until(3)) == texts(7, 8, 9)
    consumer.seek(queue, BEGIN)
    assert bodies(consumer.poll_until(10)) == texts(*range(10))
    consumer.seek(queue, END)
    producer.send(numbered(queue, 1, first=10))
    assert bodies(consumer.poll_until(1)) == texts(10)


def test_a_lite_consumer_finds_an_offset_by_time(java: JavaClients, queues: list[Queue]) -> None:
    java.producer().send(numbered(queues[0], 3))
    consumer = java.lite(None)
    (message, *_) = java.pull().pull(queues[0], 0).messages
    consumer.assign([queues[0]])
    assert consumer.offset_at(queues[0], message.store_timestamp - 10_000) == 0
    assert consumer.offset_at(queues[0], message.store_timestamp + 3_600_000) == 3


def test_a_pull_tells_what_it_found(java: JavaClients, queues: list[Queue]) -> None:
    queue, consumer = queues[0], java.pull()
    java.producer().send(numbered(queue, 10))
    assert consumer.queues(queue.topic) == queues
    found = consumer.pull(queue, 4, 3)
    assert (found.status, found.next_offset, found.min_offset, found.max_offset) == ("FOUND", 7, 0, 10)
    assert [m.body for m in found.messages] == [b"004", b"005", b"006"]
    at_end = consumer.pull(queue, 10)
    assert (at_end.status, at_end.next_offset, at_end.messages) == ("NO_NEW_MSG", 10, [])
    beyond = consumer.pull(queue, 50)
    assert (beyond.status, beyond.next_offset) == ("OFFSET_ILLEGAL", 10)
    empty = consumer.pull(queues[1], 0)
    assert (empty.status, empty.next_offset, empty.max_offset) == ("NO_NEW_MSG", 0, 0)


def test_a_pull_filters(java: JavaClients, queues: list[Queue]) -> None:
    queue, consumer = queues[0], java.pull()
    java.producer().send(numbered(queue, 10))
    assert bodies(consumer.pull(queue, 0, tags="even").messages) == texts(0, 2, 4, 6, 8)
    consumer.heartbeat()  # Only to a broker whose version it has learnt does a client send SQL.
    assert bodies(consumer.pull(queue, 0, sql="n > 5 AND TAGS = 'odd'").messages) == texts(7, 9)
    none = consumer.pull(queue, 0, tags="neither")
    assert (none.status, none.next_offset, none.messages) == ("NO_MATCHED_MSG", 10, [])


def test_a_pull_at_the_end_waits_for_a_message(java: JavaClients, queues: list[Queue]) -> None:
    queue, consumer, producer = queues[2], java.pull(), java.producer()
    for number in range(3):
        consumer.await_pull(queue, number)
        producer.send(numbered(queue, 1, first=number))
        found = consumer.arrived(SOON_MS)
        assert (found.status, found.next_offset) == ("FOUND", number + 1)
        assert bodies(found.messages) == texts(number)


def test_offsets_of_a_queue(java: JavaClients, queues: list[Queue]) -> None:
    queue, consumer = queues[1], java.pull()
    java.producer().send(numbered(queue, 6))
    assert (consumer.offset(queue, "min"), consumer.offset(queue, "max")) == (0, 6)
    messages = consumer.pull(queue, 0).messages
    assert consumer.offset(queue, "earliest") == messages[0].store_timestamp
    for message in messages:
        found = consumer.offset_at(queue, message.store_timestamp)
        assert messages[found].store_timestamp == message.store_timestamp
    assert consumer.offset_at(queue, messages[0].store_timestamp - 10_000) == 0
    assert consumer.offset_at(queue, messages[-1].store_timestamp + 10_000) == 6


def test_a_committed_offset_is_kept(java: JavaClients, queues: list[Queue]) -> None:
    consumer = java.pull()
    java.producer().send(numbered(queues[0], 5))
    assert len(consumer.pull(queues[0], 0).messages) == 5  # A group is known by its first pull.
    consumer.commit(queues[0], 3)
    assert consumer.offset(queues[0], "committed") == 3
    consumer.commit(queues[0], 1)  # Backwards is allowed.
    again, new = java.pull(consumer.group), java.pull()
    assert again.queues(queues[0].topic) == new.queues(queues[0].topic)
    assert again.offset(queues[0], "committed") == 1
    assert new.offset(queues[0], "committed") == 0  # A new group begins a young queue from its beginning.


def test_a_message_is_found_by_either_id_and_by_key(java: JavaClients, queues: list[Queue]) -> None:
    consumer = java.pull()
    sent = java.producer().send(numbered(queues[0], 5))
    assert consumer.queues(queues[0].topic)
    for number, result in enumerate(sent):
        assert result.offset_message_id is not None
        by_offset = consumer.view(queues[0].topic, result.offset_message_id)
        assert (by_offset.body, by_offset.queue_offset) == (f"{number:03}".encode(), number)
        by_unique_key = consumer.view(queues[0].topic, result.message_id)
        assert by_unique_key.body == by_offset.body
        assert bodies(consumer.query(queues[0].topic, f"k{number}")) == texts(number)
    with pytest.raises(JavaStoreError, match=r"finished, but no message"):
        consumer.query(queues[0].topic, "nothing-has-this-key")
