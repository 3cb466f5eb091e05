"""Time and chance come into clients and NameServers by constructors, so that a seeded simulator owns them."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from flaremq.client.client import Client
from flaremq.client.consumer.push import PushConsumer
from flaremq.client.producer.balance import Balance
from flaremq.client.settings import ClientSettings
from flaremq.model.message import MessageQueue
from flaremq.namesrv.app import NameServer
from flaremq.namesrv.settings import NamesrvSettings
from flaremq.remoting.settings import ServerSettings
from flaremq.testing.clock import ManualClock

SOURCE = Path(__file__).parents[2] / "src" / "flaremq"
ROOMS = [path for wing in ("client", "model", "namesrv") for path in sorted((SOURCE / wing).rglob("*.py"))]
LOOP_TIME = "compares with asyncio's own deadlines, which are the event loop's: a simulator brings the loop"
EXCUSED = {
    ("client/client.py", "random.Random()"): "the default of the constructor",
    ("client/namesrvs.py", "loop.time"): LOOP_TIME,
    ("client/consumer/bulkpull.py", "loop.time"): LOOP_TIME,
    ("client/producer/pipeline.py", "loop.time"): LOOP_TIME,
    ("client/producer/retry.py", "loop.time"): LOOP_TIME,
    ("client/producer/retry.py", "asyncio.sleep()"): "pauses on the event loop",
}
SEVERAL = "127.0.0.1:1;127.0.0.1:2;127.0.0.1:3;127.0.0.1:4"


def direct_uses(tree: ast.AST) -> Iterator[str]:
    """What a room takes from the system by itself."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (each.name for each in names if each.name in {"time", "secrets", "uuid"})
            case ast.ImportFrom(module="time" | "random" | "secrets" | "uuid" as module, names=names):
                yield from (f"{module}.{each.name}" for each in names if each.name != "Random")
            case ast.Attribute(value=ast.Name(id="random"), attr=attr) if attr != "Random":
                yield f"random.{attr}"
            case ast.Call(func=ast.Attribute(value=ast.Name(id="random"), attr="Random"), args=[]):
                yield "random.Random()"
            case ast.Call(func=ast.Attribute(value=ast.Name(id="asyncio"), attr="sleep")):
                yield "asyncio.sleep()"
            case ast.Attribute(value=ast.Name(id="os"), attr="urandom"):
                yield "os.urandom"
            case ast.Attribute(
                value=ast.Name(id="datetime" | "date"), attr="now" | "utcnow" | "today" as attr
            ):
                yield f"datetime.{attr}"
            case ast.Attribute(value=ast.Name(id="loop") | ast.Call(), attr="time"):
                yield "loop.time"


@pytest.mark.parametrize("path", ROOMS, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_room_takes_time_or_chance_from_the_system(path: Path) -> None:
    name = str(path.relative_to(SOURCE))
    found = set(direct_uses(ast.parse(path.read_text())))
    assert {use for use in found if (name, use) not in EXCUSED} == set()


@pytest.mark.parametrize(
    "text",
    [
        "import time",
        "from time import monotonic",
        "import random\nrandom.shuffle([])",
        "from random import choice",
        "import random\nrandom.Random()",
        "import asyncio\nasync def f():\n    await asyncio.sleep(1)",
        "import os\nos.urandom(4)",
        "from datetime import datetime\ndatetime.now()",
        "import asyncio\nasyncio.get_running_loop().time()",
    ],
)
def test_a_direct_use_would_be_found(text: str) -> None:
    assert list(direct_uses(ast.parse(text)))


async def test_clients_with_the_same_seed_make_the_same_choices() -> None:
    def choices(seed: int) -> tuple[str, str, list[int]]:
        client = Client(
            settings=ClientSettings(namesrv=SEVERAL, instance_name="sim"),
            clock=ManualClock(),
            rng=Random(seed),
        )
        queues = [MessageQueue("T", "a", number) for number in range(100)]
        balance = Balance(None, client.rng)
        return (
            client.namesrvs.chosen,
            client.message_ids.next(),
            [balance.choose(queues).queue_id for _ in range(3)],
        )

    assert choices(7) == choices(7)
    assert len({choices(seed)[0] for seed in range(20)}) == 4
    assert len({choices(seed)[1] for seed in range(20)}) == 20


async def test_ids_of_clients_in_one_process_differ_at_the_same_moment() -> None:
    clock = ManualClock()
    ids = {Client("127.0.0.1:1", clock=clock, rng=Random(1)).client_id for _ in range(3)}
    assert len(ids) == 3


async def test_handlers_are_timed_by_the_clock_of_the_client() -> None:
    clock = ManualClock()
    consumer = PushConsumer("G", client=Client("127.0.0.1:1", clock=clock))
    before = consumer._delivery._now_s()
    clock.advance_ms(2_500)
    assert consumer._delivery._now_s() - before == 2.5


async def test_a_name_server_sleeps_as_it_is_told_to(tmp_path: Path) -> None:
    rests: list[float] = []
    asked = asyncio.Event()

    async def sleep(seconds: float) -> None:
        rests.append(seconds)
        asked.set()
        await asyncio.Event().wait()

    settings = NamesrvSettings(
        kv_config_path=tmp_path / "kv.json",
        config_store_path=tmp_path / "namesrv.properties",
        scan_interval_ms=7_000,
    )
    server = NameServer(settings, ServerSettings(listen_port=0), sleep=sleep)
    await server.start()
    async with asyncio.timeout(60):
        await asked.wait()
    await server.stop()
    assert rests == [7.0]
