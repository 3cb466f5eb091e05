"""What only blocking clients have: threads, futures, interruptions, forks."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from flaremq.base.errors import NoNameServer, UsageError
from flaremq.client.blocking import LoopThread
from flaremq.client.message import ReceivedMessage
from flaremq.client.producer import producer as core
from flaremq.client.settings import ConsumerSettings
from flaremq.client.sync import Client, Message, Producer, PushConsumer, Receipt
from flaremq.protocol.bodies.group import ConsumeFromWhere
from flaremq.remoting.ports import free_port
from flaremq.testing.embedded import EmbeddedThread


def functions(thread: threading.Thread) -> list[str]:
    """That a thread is in now, the innermost first."""
    assert thread.ident is not None
    return [frame.f_code.co_name for frame, _ in traceback.walk_stack(sys._current_frames()[thread.ident])]


def client_threads() -> list[str]:
    """Those of clients: the servers of the tests have others in this process."""
    ours = ("flaremq-client", "flaremq-producer", "flaremq-test")
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(ours)]


def test_the_blocking_producer_has_the_parameters_of_the_async_one() -> None:
    for name in ("send", "send_batch", "send_many", "send_oneway", "queues"):
        ours, theirs = getattr(Producer, name), getattr(core.Producer, name)
        assert inspect.signature(ours) == inspect.signature(theirs)
        assert ours.__doc__ == theirs.__doc__


def test_many_threads_share_a_producer(servers: EmbeddedThread, topic: str) -> None:
    with Producer("PID", servers.namesrv) as producer, ThreadPoolExecutor(8) as pool:
        receipts = list(pool.map(lambda n: producer.send(Message(topic, b"%d" % n)), range(200)))
    assert len({(receipt.queue, receipt.queue_offset) for receipt in receipts}) == 200


def test_a_send_without_waiting_gives_a_future(servers: EmbeddedThread, topic: str) -> None:
    called: list[Receipt] = []
    with Producer("PID", servers.namesrv) as producer:
        futures = [producer.send_async(Message(topic, b"x")) for _ in range(20)]
        futures[0].add_done_callback(lambda future: called.append(future.result()))
        receipts = [future.result(10) for future in futures]
    assert called == receipts[:1]


def test_a_producer_starts_on_first_use_and_again_after_a_stop(servers: EmbeddedThread, topic: str) -> None:
    producer = Producer("PID_again", servers.namesrv)
    assert not producer.is_running
    producer.send(Message(topic, b"x"))
    producer.stop()
    producer.stop()
    producer.send(Message(topic, b"x"))
    producer.stop()
    assert "flaremq-producer-PID_again" not in client_threads()


def test_producers_of_one_client_share_its_thread(servers: EmbeddedThread, topic: str) -> None:
    with Client(servers.namesrv) as client:
        with Producer("PID_a", client=client) as first, Producer("PID_b", client=client) as second:
            first.send(Message(topic, b"x"))
            second.send(Message(topic, b"x"))
            assert client_threads() == ["flaremq-client"]
        assert client.is_running
    assert not client_threads()


async def test_a_blocking_client_can_be_used_where_a_loop_runs_as_in_a_notebook(
    servers: EmbeddedThread, topic: str
) -> None:
    with Producer("PID", servers.namesrv) as producer:
        assert producer.send(Message(topic, b"x")).queue_offset == 0


def test_a_failed_start_leaves_no_thread(topic: str) -> None:
    producer = Producer("PID", f"127.0.0.1:{free_port()}")
    with pytest.raises(NoNameServer):
        producer.send(Message(topic, b"x"))
    producer.stop()
    assert not client_threads()


def test_a_blocking_call_in_the_clients_own_thread_is_refused() -> None:
    thread = LoopThread("flaremq-test")

    async def outer() -> None:
        thread.run(asyncio.sleep(0))

    try:
        with pytest.raises(UsageError, match="would never return"):
            thread.run(outer())
    finally:
        thread.close()


@pytest.mark.parametrize("awake", [True, False])
def test_an_interrupted_wait_cancels_the_work(awake: bool) -> None:
    thread, ended = LoopThread("flaremq-test"), threading.Event()

    async def endless() -> None:
        if awake:
            os.kill(os.getpid(), signal.SIGINT)
        else:  # Heard by a thread that cannot act on it, while the one that waits sleeps on.
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    try:
        with pytest.raises(KeyboardInterrupt):
            thread.run(endless())
        assert ended.wait(10)
    finally:
        thread.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("awake", [True, False])
def test_a_consumer_runs_until_a_signal_comes(
    servers: EmbeddedThread, topic: str, number: signal.Signals, awake: bool
) -> None:
    before = signal.getsignal(number)
    with Producer("PID", servers.namesrv) as producer:
        producer.send(Message(topic, b"x"))
    settings = ConsumerSettings(start_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer = PushConsumer(f"G-{topic}", servers.namesrv, settings=settings)
    seen: list[bytes] = []

    @consumer.subscribe(topic)
    def handle(message: ReceivedMessage) -> None:
        seen.append(message.body)
        while functions(threading.main_thread())[:2] != ["wait", "wait"]:  # Of a condition, of an event.
            pass
        if awake:
            os.kill(os.getpid(), number)
        else:
            signal.pthread_kill(threading.get_ident(), number)

    consumer.run()
    assert seen == [b"x"]
    assert not consumer.is_running
    assert signal.getsignal(number) is before


FORKS = """
    import json, os, sys
    from flaremq.client.sync import Message, Producer

    namesrv, topic = sys.argv[1:]
    producer = Producer("PID_forks", namesrv)
    before = producer.send(Message(topic, b"before"))
    held = set(os.listdir("/proc/self/fd"))
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        sockets = [fd for fd in held if os.path.exists(f"/proc/self/fd/{fd}")
                   and os.readlink(f"/proc/self/fd/{fd}").startswith("socket:")]
        receipt = producer.send(Message(topic, b"child"))
        producer.stop()
        os.write(writer, json.dumps([receipt.message_id, sockets]).encode())
        os._exit(0)
    os.waitpid(child, 0)
    child_id, sockets = json.loads(os.read(reader, 1000))
    after = [producer.send(Message(topic, b"after")).message_id for _ in range(20)]
    producer.stop()
    print(json.dumps({"ids": [before.message_id, child_id, *after], "sockets": sockets}))
"""


def test_a_forked_process_connects_anew_and_the_parent_goes_on(servers: EmbeddedThread, topic: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(FORKS), servers.namesrv, topic],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    said: dict[str, Any] = json.loads(ran.stdout)
    assert len(set(said["ids"])) == 22
    assert said["sockets"] == [], "the child still holds the parent's connections"
