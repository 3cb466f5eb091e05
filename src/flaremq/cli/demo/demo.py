"""`flaremq demo`: a real cluster on this machine, a broker killed, its slave read, and nothing lost."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.table import Table

from flaremq.admin.admin import Admin
from flaremq.admin.values.topics import TopicSettings
from flaremq.base.errors import ConfigError, FlareError
from flaremq.base.lifecycle import new_loop
from flaremq.base.logs import ROOT
from flaremq.cli.demo.orders import TOPIC, Ledger, Shop, consumers, report
from flaremq.cli.demo.plots import plot
from flaremq.cli.demo.raftscene import RaftScene
from flaremq.cli.demo.spark import SparkHalf, Told, can_run
from flaremq.cli.demo.specials import Specials
from flaremq.client.client import Client
from flaremq.client.producer.producer import Producer
from flaremq.client.settings import ClientSettings
from flaremq.remoting.ports import BROKER, free_port
from flaremq.servers.processes import Process, ProcessFailed, properties_file

_BACKLOG: Final = 20_000
_AT_ONCE: Final = 1_000
_RATE: Final = 1_500
_CATCH_UP_LIMIT_S: Final = 40.0
_SLAVE_LIMIT_S: Final = 40.0
_WIDTH: Final = 40
_MASTERS: Final = ("broker-a", "broker-b")
_SMALL: Final = {
    "mappedFileSizeCommitLog": 64 << 20,
    "mappedFileSizeConsumeQueue": 20_000 * 20,
    "maxHashSlotNum": 100_000,
    "maxIndexNum": 400_000,
    "shutdownWaitTimeSeconds": 2,
    "diskMaxUsedSpaceRatio": 99,
    "flushConsumerOffsetInterval": 500,  # Offsets that a killed broker had not saved are consumed again.
}


def command(
    folder: Annotated[
        Path, typer.Option("--folder", metavar="FOLDER", help="Folder for server files and results.")
    ] = Path("flaremq-demo"),
    seconds: Annotated[
        float, typer.Option("-s", "--seconds", metavar="N", min=6, help="How long orders are sent.")
    ] = 24,
    spark: Annotated[
        bool,
        typer.Option(
            "--spark/--no-spark", help="Archive, count, replay and audit the orders with Spark at the end."
        ),
    ] = True,
) -> None:
    """Watch a cluster at work: producers, consumers, a broker that is killed, its slave, Spark, a summary."""
    logging.getLogger(ROOT).addHandler(logging.NullHandler())  # The demo reports what happens itself.
    demo = Demo(_new_folder(folder), seconds, with_spark=spark)
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(demo.run())
    except ProcessFailed as error:
        what, *printed = str(error).splitlines()
        why = f" {printed[-1].strip()};" if printed else ""
        raise FlareError(f"{what}{why} its output is below {demo.folder}") from error
    finally:
        demo.close()  # Whatever happened, even if stopping failed.


def _new_folder(folder: Path) -> Path:
    stem = time.strftime("%Y%m%d-%H%M%S")
    try:
        for name in (stem, *(f"{stem}-{number}" for number in range(2, 100))):
            place = (folder / name).resolve()
            with suppress(FileExistsError):
                place.mkdir(parents=True)
                return place
    except OSError as error:
        raise ConfigError(
            f"--folder {folder} cannot be used: {error.strerror}; give another folder"
        ) from error
    raise ConfigError(f"--folder {folder} already holds demos started this second: give another folder")


class Demo:
    def __init__(self, folder: Path, seconds: float, *, with_spark: bool = False) -> None:
        self.folder = folder
        self._seconds = seconds
        self._with_spark = with_spark
        self._told: Told | None = None
        self._console = Console()
        self._ledger = Ledger()
        self._specials = Specials()
        self._raft = RaftScene()
        self._running = ExitStack()
        self._may_begin = threading.Lock()
        self._closed = False
        self._servers: dict[str, Process] = {}

    async def run(self) -> None:
        say = self._console.print
        cast = "2 NameServers, 2 brokers, a slave, a Raft group, a shop, consumers, an audit"
        say(Panel(cast, title="FlareMQ demo"))
        try:
            with self._console.status("starting the servers, each in its own process"):
                namesrv = await asyncio.to_thread(self._start)
            for name, process in self._servers.items():
                say(f"  [green]✓[/] {name:10} {process.address}  pid {process.pid}")
            settings = ClientSettings(namesrv=namesrv, refresh_s=2, heartbeat_s=2)
            await self._story(settings)
            await self._specials.run(settings, say)
            await self._raft.run(settings, say, partial(self._serve_member, namesrv), self._kill_member)
            await self._look_up(settings)
            if self._with_spark:
                await asyncio.to_thread(self._in_spark, namesrv)
            self._summary()
        finally:
            with self._console.status("stopping the servers"):
                await asyncio.to_thread(self.close)
        say("all servers are stopped")
        if self._ledger.lost:
            raise FlareError(f"{len(self._ledger.lost)} acknowledged orders were not consumed: this is a bug")
        if self._raft.lost:
            raise FlareError(
                f"{self._raft.lost} acknowledged receipts of the Raft group are gone: this is a bug"
            )
        if missing := self._ledger.not_at_slave:
            raise FlareError(f"{missing} acknowledged orders were not at the slave: this is a bug")

    # Servers.

    def _start(self) -> str:
        for name in ("namesrv-1", "namesrv-2"):
            kept = self.folder / name / "kvConfig.json"
            self._serve("namesrv", name, {"listenPort": free_port(), "kvConfigPath": kept})
        namesrv = ";".join(process.address for process in self._servers.values())
        self._serve_broker("broker-a", namesrv, {"brokerName": "broker-a"})
        self._serve_broker("broker-b", namesrv, {"brokerName": "broker-b", "brokerRole": "SYNC_MASTER"})
        slave = {"brokerName": "broker-b", "brokerRole": "SLAVE", "brokerId": 1}
        self._serve_broker("slave-b", namesrv, slave)
        return namesrv

    def _serve_broker(self, name: str, namesrv: str, options: dict[str, object]) -> None:
        common = {
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "namesrvAddr": namesrv,
            "storePathRootDir": self.folder / name / "store",
            **_SMALL,
        }
        given = {"listenPort": free_port(steps=BROKER), **common, **options}
        self._serve("broker", name, given)

    async def _kill_member(self, name: str) -> None:
        await asyncio.to_thread(self._servers[name].kill)

    async def _serve_member(self, namesrv: str, name: str, options: Mapping[str, object]) -> None:
        await asyncio.to_thread(self._serve_broker, name, namesrv, dict(options))

    def _serve(self, what: str, name: str, options: dict[str, object]) -> None:
        folder, port = self.folder / name, options["listenPort"]
        assert isinstance(port, int)
        folder.mkdir()
        properties_file(folder, {"bindAddress": "127.0.0.1", **options})
        self._begin(what, name, port)

    def _begin(self, what: str, name: str, port: int) -> None:
        with self._may_begin:
            if self._closed:  # Ctrl-C arrived while another thread was starting servers.
                raise ProcessFailed(f"{name} was stopped")
            process = Process(what, name, port, self.folder / name)
            self._running.callback(process.end)
        self._servers[name] = process.wait_ready()

    def close(self) -> None:
        """Stop all servers, and start no others."""
        with self._may_begin:
            self._closed = True
        self._running.close()

    async def _kill(self, name: str) -> None:
        self._ledger.mark(f"{name} killed")
        await asyncio.to_thread(self._servers[name].kill)

    async def _return(self, name: str) -> None:
        dead = self._servers[name]
        await asyncio.to_thread(self._begin, dead.what, name, dead.port)
        self._ledger.mark(f"{name} back")

    # The story.

    async def _story(self, settings: ClientSettings) -> None:
        say, ledger = self._console.print, self._ledger
        async with Admin(settings=settings) as admin:
            await admin.topics.create(TOPIC, TopicSettings(read_queues=4, write_queues=4))
            await self._slave_follows(admin)
        say(f"  [green]✓[/] topic {TOPIC} with 4 queues on each broker")
        async with Client(settings=settings) as client, Producer("shop", client=client) as producer:
            shop = Shop(producer, ledger)
            ledger.began_s = perf_counter()
            async with self._watched("orders come in, not consumed yet"):
                for _ in range(_BACKLOG // _AT_ONCE):
                    await shop.sell(_AT_ONCE)
            async with AsyncExitStack() as stack:
                ledger.mark("consumers join")
                for consumer in consumers(settings, ledger, self.folder):
                    await stack.enter_async_context(consumer)
                async with self._watched("billing and audit join, orders keep coming"):
                    await shop.sell_steadily(_RATE, self._seconds * 0.4)
                async with self._watched("broker-b is killed (kill -9): sends go to broker-a"):
                    await self._kill("broker-b")
                    selling = shop.sell_steadily(_RATE, self._seconds * 0.3)
                    await asyncio.gather(self._read_slave(settings, "broker-b"), selling)
                self._console.print(
                    f"    {len(ledger.from_slave):,} orders of broker-b were read from its slave meanwhile",
                    style="dim",
                    highlight=False,
                )
                async with self._watched("broker-b returns with all its messages"):
                    selling = shop.sell_steadily(_RATE, self._seconds * 0.3)
                    await asyncio.gather(self._return("broker-b"), selling)
                async with self._watched("no more orders: the backlog falls to nothing"):
                    await self._caught_up()
        async with Admin(settings=settings) as admin:
            await self._slave_follows(admin)

    async def _slave_follows(self, admin: Admin) -> None:
        """Wait until a slave is near its master: what needs the slave is refused or unsafe before that."""
        deadline_s = perf_counter() + _SLAVE_LIMIT_S
        while not any(slave.in_sync for each in await admin.brokers.ha() for slave in each.slaves):
            if perf_counter() > deadline_s:
                raise FlareError(f"no slave followed its master within {_SLAVE_LIMIT_S:g} s: this is a bug")
            await asyncio.sleep(0.1)

    async def _read_slave(self, settings: ClientSettings, broker: str) -> None:
        """A report reads all that the dead broker has acknowledged, and leaves before that is back."""
        ledger = self._ledger
        expected, deadline_s = ledger.safe_at(broker), ledger.now_s() + _SLAVE_LIMIT_S
        async with report(settings, ledger, broker):
            while not expected <= ledger.from_slave and ledger.now_s() < deadline_s:
                await asyncio.sleep(0.1)
        ledger.not_at_slave = len(expected - ledger.from_slave)
        ledger.mark("its slave is read")

    async def _caught_up(self) -> None:
        ledger = self._ledger
        deadline_s = ledger.now_s() + _CATCH_UP_LIMIT_S
        while ledger.lost and ledger.now_s() < deadline_s:
            await asyncio.sleep(0.25)
        ledger.mark("all consumed")

    @asynccontextmanager
    async def _watched(self, title: str) -> AsyncIterator[None]:
        """Show the counts while a step runs, then print a line about it."""
        began_s = self._ledger.now_s()
        with Live(self._board(title), console=self._console, refresh_per_second=4, transient=True) as live:
            task = asyncio.create_task(self._sampling(title, live))
            try:
                yield
            finally:
                task.cancel()
        last = self._ledger.sample()
        self._console.print(f"  [green]✓[/] {title} ({last.at_s - began_s:.1f} s)")
        self._console.print(
            f"    {last.sold:,} sent, {sum(last.billed):,} billed, {last.audited:,} audited, "
            f"backlog {last.backlog:,}",
            style="dim",
            highlight=False,
        )

    async def _sampling(self, title: str, live: Live) -> None:
        while True:
            self._ledger.sample()
            live.update(self._board(title))
            await asyncio.sleep(0.25)

    def _board(self, title: str) -> Table:
        samples = self._ledger.samples or [self._ledger.sample()]
        now, before = samples[-1], samples[max(len(samples) - 5, 0)]
        span_s = max(now.at_s - before.at_s, 1e-9)
        board = Table(title=title, title_justify="left", show_edge=False)
        for name, justify in (("", "left"), ("messages", "right"), ("per second", "right"), ("", "left")):
            board.add_column(name, justify="right" if justify == "right" else "left")
        rows = (
            ("sent", now.sold, before.sold),
            ("billing 1", now.billed[0], before.billed[0]),
            ("billing 2", now.billed[1], before.billed[1]),
            ("audit", now.audited, before.audited),
            ("backlog", now.backlog, before.backlog),
        )
        most = max(now.sold, 1)
        for name, count, earlier in rows:
            bar = "█" * min(round(_WIDTH * count / most), _WIDTH)
            board.add_row(name, f"{count:,}", f"{(count - earlier) / span_s:+,.0f}", bar)
        return board

    # Results.

    def _in_spark(self, namesrv: str) -> None:
        if not can_run():
            self._console.print(
                "  Spark is not installed, so its half is skipped. To see it, run "
                "pip install '.\\[spark]' in FlareMQ's source folder."
            )
            return
        stores = {name: self.folder / name / "store" for name in self._servers if name in _MASTERS}
        self._told = SparkHalf(self._console, self.folder, namesrv, stores).run(TOPIC)
        if self._told.deviations:
            raise FlareError(f"an audit found {self._told.deviations} deviations: this is a bug")

    async def _look_up(self, settings: ClientSettings) -> None:
        number = next(iter(reversed(self._ledger.sold)))
        async with Admin(settings=settings) as admin:
            found = await admin.messages.by_key(TOPIC, number)
        self._console.print()
        table = Table(title=f"looked up by its key {number}", title_justify="left", show_edge=False)
        for name in ("broker", "queue", "offset", "tags", "body"):
            table.add_column(name)
        for message in found:
            place = (message.broker, str(message.stored.queue_id), str(message.queue_offset))
            table.add_row(*place, message.tags or "", message.body.decode())
        self._console.print(table)
        self._console.print()

    def _spark_rows(self) -> tuple[tuple[str, str, int], ...]:
        told = self._told
        if told is None:
            return ()
        return (
            ("archived by Spark", "archived", told.archived),
            ("sent again from the archive", "replayed", told.replayed),
            ("records audited", "records_audited", told.audited),
            ("deviations", "deviations", told.deviations),
        )

    def _summary(self) -> None:
        ledger, last, specials = self._ledger, self._ledger.sample(), self._specials
        rows = (
            ("orders acknowledged", "acknowledged", len(ledger.sold)),
            ("sends that failed", "failed", ledger.failed),
            ("billed by consumer 1", "billed_1", last.billed[0]),
            ("billed by consumer 2", "billed_2", last.billed[1]),
            ("audited (broadcasting)", "audited", last.audited),
            ("read from the slave", "read_from_slave", len(ledger.from_slave)),
            ("not found at the slave", "not_at_slave", ledger.not_at_slave),
            ("delivered once more", "repeated", ledger.repeated),
            ("payments committed", "committed", specials.committed),
            ("payments rolled back", "rolled_back", specials.rolled_back),
            ("dead letters", "dead_letters", specials.dead_letters),
            ("receipts of the Raft group", "receipts", self._raft.acknowledged),
            ("receipts lost with its leader", "receipts_lost", self._raft.lost),
            *self._spark_rows(),
            ("lost", "lost", len(ledger.lost)),
        )
        table = Table(title="summary", title_justify="left", show_edge=False)
        table.add_column("what")
        table.add_column("count", justify="right")
        for what, name, count in rows:
            colour = ("bold red" if count else "bold green") if name == "lost" else ""
            table.add_row(what, f"{count:,}", style=colour)
        self._console.print(table)
        found: dict[str, float] = {name: count for _, name, count in rows}
        found = {
            **found,
            "reminder_s": round(specials.reminder_s, 3),
            "raft_pause_s": round(self._raft.pause_s, 3),
        }
        document = {**found, "events": [{"at_s": round(at, 3), "what": what} for at, what in ledger.marks]}
        (self.folder / "summary.json").write_text(json.dumps(document, indent=2) + "\n")
        picture = self.folder / "rates.png"
        drawn = plot(ledger.samples, ledger.marks, picture)
        places = {
            "servers": self.folder,
            "summary": self.folder / "summary.json",
            "plot": picture if drawn else "none: it needs matplotlib; run pip install '.\\[demo]'",
            **({} if self._told is None else {"archive": self._told.archive, "stats": self._told.stats}),
        }
        self._console.print()
        for name, where in places.items():  # No frame and no line breaks, so that paths can be copied.
            self._console.print(f"  {name:8} {where}", soft_wrap=True, highlight=False)
