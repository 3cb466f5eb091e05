"""`flaremq broker` as a real process: how it is set, comes up, says no, and ends."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from flaremq.base.options import IMPORTANT, options_of
from flaremq.base.propertiesfile import parse_properties
from flaremq.base.settingsfile import SettingsFile
from flaremq.broker.app import Broker
from flaremq.broker.config import BrokerConfig
from flaremq.broker.doors import Doors
from flaremq.broker.settings import BrokerServerSettings, BrokerSettings
from flaremq.protocol import fastjson
from flaremq.protocol.codes import RequestCode
from flaremq.remoting.ports import BROKER, free_port
from flaremq.servers.config import load_broker
from flaremq.testing.cluster import Cluster, Process, eventually, properties_file
from flaremq.testing.fakes.builders import small_settings
from flaremq.testing.fakes.wireclient import Want, WireClient
from flaremq.testing.patience import load_factor

FLAREMQ = [sys.executable, "-m", "flaremq.cli.main"]
STEPS = [
    "config files",
    "abort check",
    "commit log",
    "consume queues",
    "checkpoint",
    "index",
    "recovery",
    "consume queue flush",
    "commit log flush",
    "dispatch",
    "abort file",
    "cleaning",
    "handlers",
    "delayed messages",
    "timers",
    "transactions",
    "scheduled tasks",
    "replication",
    "listening",
    "registration",
]


def flaremq(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*FLAREMQ, *words], capture_output=True, text=True, check=False, timeout=60 * load_factor()
    )


def is_one_line(run: subprocess.CompletedProcess[str]) -> bool:
    """What an operator reads at the end; the log may stand before it, a traceback may not."""
    last = run.stderr.splitlines()[-1]
    return run.returncode == 1 and last.startswith("flaremq: ") and "Traceback" not in run.stderr


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path) as cluster:
        yield cluster


async def sent_and_read(broker: Process, port: int | None = None) -> None:
    """One message more, at this port; all that were sent can be read at the main one."""
    async with WireClient() as client:
        told = await client.send(f"127.0.0.1:{port or broker.port}", "TopicCli", 0, b"hello")
        found = await client.read_all(broker.address, "TopicCli", 0)
        assert [each.queue_offset for each in found] == list(range(told.queue_offset + 1))
        assert {each.body for each in found} == {b"hello"}


# Settings.


def test_all_settings_are_printed_with_the_names_of_rocketmq(tmp_path: Path) -> None:
    config = properties_file(tmp_path, {"brokerName": "broker-x", "mapedFileSizeCommitLog": 8 << 20})
    run = flaremq("broker", "-p", "-c", str(config), "-n", "10.0.0.1:9876;10.0.0.2:9876", "-o", "brokerId=0")
    assert run.returncode == 0
    shown = dict(line.split("=", 1) for line in run.stdout.splitlines() if not line.startswith("#"))
    wanted = {
        "brokerName": "broker-x",
        "brokerId": "0",
        "namesrvAddr": "10.0.0.1:9876;10.0.0.2:9876",
        "listenPort": "10911",
        "flushDiskType": "ASYNC_FLUSH",
        "brokerRole": "ASYNC_MASTER",
        "autoCreateTopicEnable": "true",
        "serverSocketRcvBufSize": "131072",
        "sendThreadPoolQueueCapacity": "10000",
        "fileReservedTime": "72",
    }
    assert {name: shown.get(name) for name in wanted} == wanted
    assert str(8 << 20) in (shown.get("mappedFileSizeCommitLog"), shown.get("mapedFileSizeCommitLog"))


def printed_names(*arguments: str) -> set[str]:
    lines = flaremq(*arguments).stdout.splitlines()
    return {line.lstrip("# ").partition("=")[0] for line in lines if "=" in line}


def test_every_name_that_java_prints_is_printed() -> None:
    names = printed_names("broker", "-p", "-o", "brokerName=b")
    known = {each.name for each in options_of("BrokerConfig", "MessageStoreConfig", "NettyServerConfig")}
    assert known <= names
    assert {"sendMessageThreadPoolNums", "haListenPort", "authenticationEnabled"} <= names
    assert IMPORTANT & known == printed_names("broker", "-m", "-o", "brokerName=b") & known
    assert {each.name for each in options_of("NamesrvConfig")} <= printed_names("namesrv", "-p")


def test_the_important_settings_are_some_of_all(tmp_path: Path) -> None:
    everything = set(flaremq("broker", "-p", "-o", "brokerName=b").stdout.splitlines())
    run = flaremq("broker", "-m", "-o", "brokerName=b")
    some = set(run.stdout.splitlines())
    assert run.returncode == 0
    assert some < everything
    assert {line.partition("=")[0] for line in some} >= {"brokerName", "namesrvAddr", "brokerClusterName"}


def test_what_was_printed_can_be_given_again(tmp_path: Path) -> None:
    first = flaremq("broker", "-p", "-o", "brokerName=b", "-o", "flushDiskType=SYNC_FLUSH").stdout
    (tmp_path / "all.properties").write_text(first)
    second = flaremq("broker", "-p", "-c", str(tmp_path / "all.properties"))
    assert (second.returncode, second.stdout) == (0, first)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("brokerNam=x", ("brokerNam", "brokerName")),
        ("flushDiskTyp=SYNC_FLUSH", ("flushDiskTyp", "flushDiskType")),
        ("flushDiskType=SOMETIMES", ("flushDiskType", "SOMETIMES", "SYNC_FLUSH")),
        ("listenPort=many", ("listenPort", "many")),
    ],
)
def test_a_wrong_line_in_the_file_is_one_line_that_helps(
    tmp_path: Path, line: str, words: tuple[str, ...]
) -> None:
    config = tmp_path / "broker.conf"
    config.write_text(f"brokerClusterName=DefaultCluster\n{line}\n")
    run = flaremq("broker", "-c", str(config))
    assert is_one_line(run)
    assert run.stderr.count("\n") == 1
    assert all(word in run.stderr for word in words), run.stderr


# Coming up.


async def test_a_broker_comes_up_step_by_step_and_is_ready_last(cluster: Cluster) -> None:
    namesrv = cluster.namesrv()
    broker = cluster.broker(namesrv=namesrv.address)
    started = [line.partition("started: ")[2] for line in broker.lines if "started: " in line]
    assert [next((s for s in sorted(STEPS)[::-1] if step.startswith(s)), step) for step in started] == STEPS
    ready = next(number for number, line in enumerate(broker.lines) if "boot success" in line)
    assert ready > max(number for number, line in enumerate(broker.lines) if "started: " in line)
    wanted = f"The broker[broker-a, {broker.address}] boot success. serializeType=JSON and name server is "
    assert broker.lines[ready] == wanted + namesrv.address
    await sent_and_read(broker)
    await sent_and_read(broker, broker.port - 2)


async def test_a_broker_that_says_it_is_ready_is_registered(cluster: Cluster) -> None:
    namesrv = cluster.namesrv()
    broker = cluster.broker(namesrv=namesrv.address)
    async with WireClient() as client:
        route = await client.route(namesrv.address, "DefaultCluster")
    assert route is not None
    assert [each.broker_addrs for each in route.broker_datas] == [{0: broker.address}]


async def test_readiness_is_told_on_stdout_and_all_else_on_stderr(tmp_path: Path) -> None:
    port = free_port(steps=BROKER)
    options = [f"-olistenPort={port}", f"-ostorePathRootDir={tmp_path}", "-obrokerIP1=127.0.0.1"]
    words = [*FLAREMQ, "broker", *options, "-obrokerName=b", "-omappedFileSizeCommitLog=8388608"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
        finally:
            process.terminate()
            out, err = process.communicate(timeout=60 * load_factor())
    assert line == f"The broker[b, 127.0.0.1:{port}] boot success. serializeType=JSON\n"
    assert out == ""
    assert "started: registration" in err


async def test_a_broker_without_its_name_server_comes_up_and_serves(cluster: Cluster) -> None:
    broker = cluster.broker(namesrv=f"127.0.0.1:{free_port()}", registerBrokerTimeoutMills=500)
    await sent_and_read(broker)


# Saying no.


async def test_a_second_broker_in_the_same_folder_is_refused_and_the_first_goes_on(cluster: Cluster) -> None:
    first = cluster.broker()
    await sent_and_read(first)
    port = free_port(steps=BROKER)
    config = str(first.folder / "conf.properties")
    run = await asyncio.to_thread(flaremq, "broker", "-c", config, "-o", f"listenPort={port}")
    assert is_one_line(run), run.stderr
    assert str(first.store) in run.stderr.splitlines()[-1]
    assert "boot success" not in run.stdout
    await sent_and_read(first)
    assert (first.store / "abort").exists()
    assert first.stop() == 0


@pytest.mark.parametrize("step", [0, -2])
async def test_a_port_in_use_is_one_line_and_leaves_the_folder_free(cluster: Cluster, step: int) -> None:
    port = free_port(steps=BROKER)
    with closing(socket.create_server(("127.0.0.1", port + step))):
        root = cluster._folder / "broker-a"
        root.mkdir()
        given = {"listenPort": port, "bindAddress": "127.0.0.1", "brokerIP1": "127.0.0.1"}
        config = properties_file(root, {**given, "storePathRootDir": root / "store"})
        run = await asyncio.to_thread(flaremq, "broker", "-c", str(config))
        assert is_one_line(run), run.stderr
        assert f"listenPort={port + step}" in run.stderr.splitlines()[-1]
    assert not (root / "store" / "abort").exists()
    await sent_and_read(cluster.start("broker", "broker-a", port, root))


# Ending.


async def test_a_stop_keeps_everything_and_leaves_no_sign_of_a_crash(cluster: Cluster) -> None:
    namesrv = cluster.namesrv()
    broker = cluster.broker(namesrv=namesrv.address)
    async with WireClient() as client:
        await client.create_topic(broker.address, "TopicKept", 3)
        told = [await client.send(broker.address, "TopicKept", 1, b"%d" % n) for n in range(20)]
        await client.heartbeat(broker.address, "GID_kept", "TopicKept")
        await client.commit(broker.address, "GID_kept", "TopicKept", 1, 7)

        async def is_known() -> bool:
            route = await client.route(namesrv.address, "TopicKept")
            return route is not None and route.broker_datas[0].broker_addrs == {0: broker.address}

        await eventually("the NameServer knows the topic", is_known)
        assert (broker.store / "abort").exists()
        assert await asyncio.to_thread(broker.stop) == 0
        assert not (broker.store / "abort").exists()
        assert await client.route(namesrv.address, "TopicKept") is None  # It has said goodbye.

        config = broker.store / "config"
        topics = json.loads((config / "topics.json").read_text())["topicConfigTable"]
        assert topics["TopicKept"]["readQueueNums"] == 3
        offsets = fastjson.load_object((config / "consumerOffset.json").read_text())["offsetTable"]
        assert offsets == {"TopicKept@GID_kept": {1: 7}}
        groups = json.loads((config / "subscriptionGroup.json").read_text())
        assert groups["subscriptionGroupTable"]["GID_kept"]["retryMaxTimes"] == 16

        broker = await asyncio.to_thread(cluster.again, broker)
        found = await client.read_all(broker.address, "TopicKept", 1)
        assert [each.queue_offset for each in found] == [each.queue_offset for each in told]
        assert [each.message_id for each in found] == [each.message_id for each in told]
        assert await client.committed(broker.address, "GID_kept", "TopicKept", 1) == 7


async def test_a_stop_answers_what_it_has_taken_and_lets_waiting_pulls_go(cluster: Cluster) -> None:
    broker = cluster.broker(flushDiskType="SYNC_FLUSH")
    async with WireClient() as client, WireClient("other") as other:
        await client.send(broker.address, "TopicDrain", 0, b"first")
        want = Want(topic="TopicDrain", queue_id=0, offset=1, suspend_ms=60_000)
        waiting = asyncio.create_task(other.pull(broker.address, want))
        sends = [
            asyncio.create_task(client.send(broker.address, "TopicDrain", 1, b"%d" % n)) for n in range(200)
        ]
        await sends[0]
        status = asyncio.create_task(asyncio.to_thread(broker.stop))
        ends = await asyncio.gather(*sends, return_exceptions=True)
        assert await status == 0
        await asyncio.gather(waiting, return_exceptions=True)
        assert not (broker.store / "abort").exists()
        told = {end.queue_offset: end.message_id for end in ends if not isinstance(end, BaseException)}
        broker = await asyncio.to_thread(cluster.again, broker)
        found = {m.queue_offset: m.message_id for m in await client.read_all(broker.address, "TopicDrain", 1)}
        assert told.items() <= found.items()


# Sockets.


@pytest.mark.parametrize(("given", "seen"), [(128 << 10, 256 << 10), (32 << 10, 64 << 10), (0, None)])
async def test_accepted_sockets_have_the_buffers_of_the_settings(
    tmp_path: Path, given: int, seen: int | None
) -> None:
    broker = Broker(
        BrokerConfig(
            broker=BrokerSettings(ip1="127.0.0.1", ip2="127.0.0.1", broker_name="b"),
            server=BrokerServerSettings(
                listen_port=0, bind_address="127.0.0.1", send_buffer=given, receive_buffer=given, drain_s=1
            ),
            store=small_settings(tmp_path),
        )
    )
    await broker.start()
    try:
        assert broker.composition is not None
        (doors,) = [each for each in broker.composition.outer if isinstance(each, Doors)]
        for server in doors.open:
            async with WireClient() as client:
                await client.bounds(f"127.0.0.1:{server.port}", "TBW102", 0)
                (connection,) = server.connections
                assert connection._transport is not None
                sock = connection._transport.get_extra_info("socket")
                for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                    size = sock.getsockopt(socket.SOL_SOCKET, option)
                    # Linux doubles what it is told; left alone it gives a size of its own.
                    assert size == seen if seen is not None else size not in (0, 256 << 10)
    finally:
        await broker.stop()


# Settings that are changed while it runs.

CHANGE = b"fileReservedTime=24\ndeleteWhen=04;16\n"


def test_settings_changed_from_afar_hold_at_once_and_after_a_restart(tmp_path: Path) -> None:
    async def change(address: str) -> None:
        async with WireClient() as client:
            answer = await client.ask(address, RequestCode.UPDATE_BROKER_CONFIG, body=CHANGE)
            assert answer.remark is None

    async def shown(address: str) -> tuple[str, str]:
        async with WireClient() as client:
            answer = await client.ask(address, RequestCode.GET_BROKER_CONFIG)
            values = parse_properties(bytes(answer.body or b"").decode())
            return values["fileReservedTime"], values["deleteWhen"]

    with Cluster(tmp_path) as cluster:
        broker = cluster.broker(fileReservedTime=72)
        asyncio.run(change(broker.address))
        assert asyncio.run(shown(broker.address)) == ("24", "04;16")
        broker.stop()
        again = cluster.again(broker)
        assert asyncio.run(shown(again.address)) == ("24", "04;16")


def test_without_a_file_changes_are_kept_beside_the_store_and_flags_win_over_them(tmp_path: Path) -> None:
    root = f"storePathRootDir={tmp_path}"
    config = load_broker(None, {}, [root])
    assert (config.file, config.store.file_reserved_hours) == (tmp_path / "config" / "flaremq.properties", 72)
    assert SettingsFile(config.file).keep({"fileReservedTime": "24"}) is None
    assert load_broker(None, {}, [root]).store.file_reserved_hours == 24
    assert load_broker(None, {}, [root, "fileReservedTime=36"]).store.file_reserved_hours == 36
