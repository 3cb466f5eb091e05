"""The pytest plugin, as users have it: their test files, run by a pytest of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from flaremq.admin.sync import Admin
from flaremq.base.errors import FlareError

pytest_plugins = ["pytester"]

INI = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
filterwarnings = error
"""
CONFTEST = 'pytest_plugins = ["flaremq.testing.plugin"]'

Run = Callable[[str], pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    """Run a test file of a user."""

    def run(text: str) -> pytest.RunResult:
        pytester.makeini(INI)
        pytester.makeconftest(CONFTEST)
        pytester.makepyfile(text)
        return pytester.runpytest_inprocess("-p", "no:cacheprovider")

    return run


def test_a_program_that_sends_and_consumes_is_tested(run: Run) -> None:
    run("""
        from flaremq.client.sync import ConsumerSettings, Message, Producer, PushConsumer

        def test_orders(broker, assert_sent, assert_consumed, assert_no_backlog, assert_dead_letters):
            broker.create_topic("Orders", queues=2)
            consumer = PushConsumer("billing", broker.namesrv, settings=ConsumerSettings(commit_s=0.1))
            consumer.subscribe("Orders", lambda message: None)
            with consumer, Producer("shop", broker.namesrv) as producer:
                for _ in range(3):
                    producer.send(Message("Orders", b"one book"))
                assert_sent("Orders", 3)
                assert_consumed("Orders", 3, "billing", within_s=60)
            assert_no_backlog("Orders", "billing")
            assert_dead_letters("billing", 0)
            broker.assert_consumed("Orders", 2, "billing", at_least=True)
    """).assert_outcomes(passed=1)


def test_an_async_test_has_the_same_broker(run: Run) -> None:
    run("""
        import asyncio
        import pytest
        from flaremq import ConsumerSettings, FlareError, Message, Producer, PushConsumer

        async def test_orders(broker, assert_consumed):
            seen = asyncio.Event()
            consumer = PushConsumer("billing", broker.namesrv, settings=ConsumerSettings(commit_s=0.1))

            @consumer.subscribe("Orders")
            async def handle(message):
                seen.set()

            async with Producer("shop", broker.namesrv) as producer:
                await producer.send(Message("Orders", b"one book"))
                async with consumer:
                    await seen.wait()
                    await asyncio.to_thread(assert_consumed, "Orders", 1, "billing", within_s=60)
            with pytest.raises(FlareError, match="await asyncio.to_thread"):
                assert_consumed("Orders", 1, "billing")
    """).assert_outcomes(passed=1)


def test_each_test_has_a_broker_of_its_own(run: Run) -> None:
    run("""
        import pytest
        from flaremq.client.sync import Message, Producer

        @pytest.mark.parametrize("again", [1, 2])
        def test_first_message(broker, again):
            with Producer("shop", broker.namesrv) as producer:
                assert producer.send(Message("Orders", b"one book")).queue_offset == 0
    """).assert_outcomes(passed=2)


def test_a_broker_that_was_stopped_comes_back_with_its_messages(run: Run) -> None:
    run("""
        from flaremq.client.sync import Message, Producer

        def test_restart(broker):
            with Producer("shop", broker.namesrv) as producer:
                producer.send(Message("Orders", b"one book"))
            address = broker.address
            broker.stop()
            broker.stop()
            assert not broker.is_running and not (broker.store / "abort").exists()
            broker.start()
            broker.start()
            assert broker.is_running and broker.address == address
            broker.assert_sent("Orders", 1)
    """).assert_outcomes(passed=1)


def test_options_of_the_broker_are_a_fixture_of_the_project(run: Run) -> None:
    run("""
        import pytest
        from flaremq.client.sync import Message, Producer
        from flaremq import FlareError

        @pytest.fixture
        def broker_options():
            return {"autoCreateTopicEnable": False}

        def test_topics_must_be_made(broker):
            with Producer("shop", broker.namesrv) as producer, pytest.raises(FlareError):
                producer.send(Message("Orders", b"one book"))
    """).assert_outcomes(passed=1)


def test_what_fails_shows_the_queues_and_the_line_of_the_test(run: Run) -> None:
    result = run("""
        from flaremq.client.sync import Message, Producer

        def test_orders(broker, assert_sent, assert_consumed):
            broker.create_topic("Orders", queues=2)
            with Producer("shop", broker.namesrv) as producer:
                producer.send(Message("Orders", b"one book"))
            assert_sent("Orders", 1)
            assert_consumed("Orders", 1, "billing", within_s=0)

        def test_too_many(broker, assert_sent):
            with Producer("shop", broker.namesrv) as producer:
                producer.send(Message("Orders", b"one book"))
            assert_sent("Orders", 0, within_s=1000)

        def test_nothing_to_ask(assert_sent):
            assert_sent("Orders", 1)
    """)
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(
        [
            '>*assert_consumed("Orders", 1, "billing", within_s=0)',
            "E*AssertionError: expected group 'billing' to consume 1 message of *within 0 s; it consumed *",
            "E*AssertionError: expected topic 'Orders' to receive 0 messages; it received 1",
            "E*queue *end",
            "E*Orders broker-a:0*",
            "*no servers to ask: use the fixture `broker`*",
        ]
    )
    assert "asserts.py" not in result.stdout.str()


def test_a_day_passes_for_the_broker(run: Run) -> None:
    run("""
        from datetime import timedelta
        from flaremq.client.sync import Message, Producer

        def test_tomorrow(broker, clock):
            with Producer("shop", broker.namesrv) as producer:
                first = producer.send(Message("Orders", b"today"))
                clock.advance(timedelta(days=1))
                second = producer.send(Message("Orders", b"tomorrow"))
            today, tomorrow = (
                broker.admin.messages.get(each.offset_id).stored.store_timestamp_ms
                for each in (first, second)
            )
            assert 86_400_000 <= tomorrow - today < 86_400_000 + 600_000
    """).assert_outcomes(passed=1)


def test_processes_of_a_cluster_end_with_a_test_that_fails(run: Run, pytester: pytest.Pytester) -> None:
    result = run("""
        from pathlib import Path

        def test_fails(cluster, assert_sent, faults):
            servers = cluster(2, namesrvs=2, brokerClusterName="Shop")
            servers.create_topic("Orders", queues=1)
            assert_sent("Orders", 0)
            Path("namesrv").write_text(servers.namesrv)
            assert [each.name for each in servers.brokers] == ["broker-a", "broker-b"]
            assert {each.cluster for each in servers.admin.brokers.list()} == {"Shop"}
            faults.kill(servers.brokers[0])
            assert not servers.brokers[0].is_running
            raise RuntimeError("the test fails here")
    """)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*RuntimeError: the test fails here"])
    namesrv = (pytester.path / "namesrv").read_text()
    assert len(namesrv.split(";")) == 2
    with Admin(namesrv) as admin, pytest.raises(FlareError):
        admin.brokers.list()


def test_who_does_not_ask_gets_no_fixture_and_needs_no_pytest(pytester: pytest.Pytester) -> None:
    pytester.makeini(INI)
    pytester.makepyfile("def test_it(broker): pass")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.stdout.fnmatch_lines(["*fixture 'broker' not found*"])
    code = (
        "import sys; sys.modules['pytest'] = None;"
        "import flaremq.testing.faults, flaremq.testing.local, flaremq.testing.asserts"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
