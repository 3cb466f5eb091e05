"""What is asked about a broker itself, as mqadmin asks it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.broker.nobody import Nobody

from flaremq.base.live import Live
from flaremq.broker.configuration import CHANGEABLE, Configuration
from flaremq.broker.handlers.admin_broker import AdminBrokerHandlers
from flaremq.broker.offload import Offload
from flaremq.broker.settings import BrokerSettings, FamilySettings
from flaremq.broker.stats.runtime import Runtime
from flaremq.broker.stats.stats import SampleSpan, Stats
from flaremq.broker.tables.configfile import ConfigFile
from flaremq.broker.tables.delayoffsets import DelayOffsets
from flaremq.broker.tables.requestmodes import RequestModes
from flaremq.model.topic import DataVersion
from flaremq.protocol import beans, fastjson
from flaremq.protocol.bodies.cluster import KVTable
from flaremq.protocol.bodies.stats import BrokerStatsData
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command
from flaremq.remoting.router import Family, Router
from flaremq.store.settings import StoreSettings
from flaremq.store.store import MessageStore
from flaremq.testing.clock import START_MS, ManualClock
from flaremq.testing.fakes.builders import NOW_MS, small_settings


class Bench:
    def __init__(self, store: MessageStore, offload: Offload) -> None:
        clock = ManualClock()
        settings = BrokerSettings(broker_name="broker-a", cluster_name="C", ip1="127.0.0.1", ip2="127.0.0.1")
        live = Live(settings)
        self.stats = Stats(live, clock)
        self.configuration = Configuration(
            (settings, FamilySettings(), store.settings), clock, black_list=("namesrvAddr",)
        )
        self.told: list[frozenset[str]] = []
        self.configuration.listeners.append(self.told.append)
        self.delays = DelayOffsets(ConfigFile(store.settings.root / "delayOffset.json"), offload, clock)
        runtime = Runtime(live, store, self.stats, {}, clock)
        self._router = Router()
        self.modes = RequestModes(ConfigFile(store.settings.root / "messageRequestMode.json"), offload)
        handlers = AdminBrokerHandlers(
            store, self.stats, runtime, self.configuration, offload, self.delays, modes=self.modes
        )
        self._router.serve(Family("admin", 100), handlers.table())

    async def ask(self, code: int, body: bytes | None = None, **fields: str) -> Command:
        answer = await self._router.answer(Nobody(), Command(code=code, ext_fields=fields, body=body))
        assert answer is not None
        return answer

    @property
    def settings(self) -> BrokerSettings:
        return self.configuration.get(BrokerSettings)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore(small_settings(tmp_path), clock=ManualClock(NOW_MS)) as store:
        yield store


@pytest.fixture
async def bench(store: MessageStore) -> AsyncIterator[Bench]:
    offload = Offload(1)
    yield Bench(store, offload)
    offload.close()


async def test_a_broker_tells_how_it_does(bench: Bench) -> None:
    answer = await bench.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    table = beans.decode(KVTable, answer.body).table
    assert table["brokerVersionDesc"] == "V5_3_3" and table["bootTimestamp"] == str(START_MS)


async def test_statistics_are_shown_by_name_and_key(bench: Bench) -> None:
    bench.stats.put("A", 20, 20)
    await bench.stats.sample(SampleSpan.MINUTE)
    answer = await bench.ask(RequestCode.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey="A")
    assert beans.decode(BrokerStatsData, answer.body).stats_minute.sum == 20
    gone = await bench.ask(RequestCode.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey="B")
    assert (gone.code, gone.remark) == (1, "The stats <TOPIC_PUT_NUMS> <B> not exist")


async def test_all_settings_are_shown_with_their_version(bench: Bench) -> None:
    answer = await bench.ask(RequestCode.GET_BROKER_CONFIG)
    lines = bytes(answer.body or b"").decode().splitlines()
    assert {"brokerName=broker-a", "brokerPermission=6", "maxMessageSize=16384"} <= set(lines)
    assert "waitTimeMillsInSendQueue=200" in lines
    assert answer.fields["version"] == '{"counter":0,"stateVersion":0,"timestamp":0}'


async def test_a_setting_is_changed_and_told(bench: Bench) -> None:
    body = b"# from mqadmin\nbrokerPermission=4\nautoCreateTopicEnable=false\nlongPollingEnable=true\n"
    answer = await bench.ask(RequestCode.UPDATE_BROKER_CONFIG, body)
    assert answer.code == 0
    assert (bench.settings.permission, bench.settings.auto_create_topics) == (4, False)
    assert bench.told == [frozenset({"brokerPermission", "autoCreateTopicEnable"})]
    assert bench.configuration.version == DataVersion(0, 1, START_MS)
    shown = await bench.ask(RequestCode.GET_BROKER_CONFIG)
    assert b"brokerPermission=4\n" in bytes(shown.body or b"")
    assert '"counter":1' in shown.fields["version"]


@pytest.mark.parametrize("body", [None, b"", b"# nothing\n", b"brokerPermission=6"])
async def test_what_changes_nothing_is_told_to_nobody(bench: Bench, body: bytes | None) -> None:
    assert (await bench.ask(RequestCode.UPDATE_BROKER_CONFIG, body)).code == 0
    assert not bench.told and bench.configuration.version == DataVersion()


@pytest.mark.parametrize(
    ("body", "code", "remark"),
    [
        (b"configBlackList=x", ResponseCode.NO_PERMISSION, "black list"),
        (b"brokerConfigPath=/etc/passwd", ResponseCode.NO_PERMISSION, "black list"),
        (b"rocketmqHome=/tmp", ResponseCode.NO_PERMISSION, "black list"),
        (b"brokerPermission=4\nnamesrvAddr=a:1", ResponseCode.NO_PERMISSION, "namesrvAddr"),
        (b"brokerPermission=4\nstorePathRootDir=/tmp", 1, "cannot be changed while running"),
        (b"brokerName=other", 1, "cannot be changed while running"),
        (b"brokerPermission=4\nbrokerPermision=2", 1, "did you mean brokerPermission"),
        (b"zzzzzz=1", 1, "no option has a name like that"),
        (b"aclEnable=true", 1, "has no effect"),
        (b"brokerPermission=many", 1, "whole number"),
        (b"brokerPermission=99", 1, "from 0 to 7"),
        (b"longPollingEnable=perhaps", 1, "true or false"),
        (b"\xff\xfe=1", 1, "UTF-8"),
    ],
)
async def test_what_may_not_be_changed_changes_nothing(
    bench: Bench, body: bytes, code: int, remark: str
) -> None:
    before = bench.configuration.text()
    answer = await bench.ask(RequestCode.UPDATE_BROKER_CONFIG, body)
    assert answer.code == code and remark in (answer.remark or "")
    assert bench.configuration.text() == before and not bench.told


def test_everything_that_may_be_changed_is_an_option() -> None:
    settings = BrokerSettings(broker_name="b", ip1="127.0.0.1", ip2="127.0.0.1")
    known = Configuration((settings, FamilySettings(), StoreSettings()), ManualClock()).values()
    assert known.keys() >= CHANGEABLE


async def test_files_are_cleaned_on_request(bench: Bench, store: MessageStore) -> None:
    assert (await bench.ask(RequestCode.DELETE_EXPIRED_COMMITLOG)).code == 0
    assert store.retention._manual_rounds > 0
    assert (await bench.ask(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)).code == 0


async def test_delay_offsets_are_told_by_level(bench: Bench) -> None:
    answer = await bench.ask(RequestCode.GET_ALL_DELAY_OFFSET)
    assert fastjson.load_object(answer.body)["offsetTable"] == {}
    bench.delays.set(3, 41)
    answer = await bench.ask(RequestCode.GET_ALL_DELAY_OFFSET)
    assert fastjson.load_object(answer.body)["offsetTable"] == {3: 41}
