import logging
import socket
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.base.errors import ConfigError
from flaremq.base.settings import Sources, check, computed, dump, load, option, parse_properties
from flaremq.base.units import GiB, MiB


class FlushDiskType(Enum):
    ASYNC_FLUSH = "async"
    SYNC_FLUSH = "sync"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushSettings:
    interval_ms: int = option("flushIntervalCommitLog", 500, minimum=1, unit="span_ms")
    kind: FlushDiskType = option("flushDiskType", FlushDiskType.ASYNC_FLUSH)
    timed: bool = option("flushCommitLogTimed", False)
    file_size: int = option("mappedFileSizeCommitLog", 1 * GiB, unit="size", maximum=4 * GiB)
    gap_max: int = option("haMaxGapNotInSync", 256 * MiB, also=("haSlaveFallbehindMax",))

    def __post_init__(self) -> None:
        check(self)
        if self.timed and self.kind is FlushDiskType.SYNC_FLUSH:
            raise ConfigError("flushCommitLogTimed makes no sense with SYNC_FLUSH")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    name: str = computed("brokerName", socket.gethostname)
    root: Path = option("storePathRootDir", Path("store"))
    extra: Path | None = option("storePathCommitLog", None)
    error_rate: float = option("maxErrorRateOfBloomFilter", 20.0, minimum=0, maximum=100)
    port: int | None = option("listenPort", None, minimum=0, maximum=65535)
    name_servers: tuple[str, ...] = option("namesrvAddr", (), separator=";")
    region: str = option("regionId", "DefaultRegion", choices=("DefaultRegion", "eu"))
    fancy: int = option("fancyOfOurOwn", 1)
    started_by: str = field(default="nobody")


def flush(*flags: str) -> FlushSettings:
    return load(Sources.of(flags=flags), FlushSettings)[0]


def broker(*flags: str) -> BrokerSettings:
    return load(Sources.of(flags=flags), BrokerSettings)[0]


def test_without_a_word_from_anybody_defaults_hold() -> None:
    settings, names = load(Sources.of(), FlushSettings, BrokerSettings)
    assert settings == FlushSettings()
    assert (settings.interval_ms, settings.kind) == (500, FlushDiskType.ASYNC_FLUSH)
    assert names.name == socket.gethostname()
    assert names.started_by == "nobody"


def test_sections_are_built_in_the_order_asked_for_from_all_sources(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("flushIntervalCommitLog=1\nbrokerName=file\nregionId=eu\n")
    sources = Sources.of(
        file, {"FLAREMQ_BROKER_NAME": "env", "FLAREMQ_FANCY_OF_OUR_OWN": "7"}, ["regionId=DefaultRegion"]
    )
    names, settings = load(sources, BrokerSettings, FlushSettings)
    assert settings.interval_ms == 1
    assert (names.name, names.fancy, names.region) == ("env", 7, "DefaultRegion")


@pytest.mark.parametrize(
    ("flag", "name", "value"),
    [
        ("maxErrorRateOfBloomFilter=12.5", "error_rate", 12.5),
        ("maxErrorRateOfBloomFilter= 12 ", "error_rate", 12.0),
        ("maxErrorRateOfBloomFilter=1e1", "error_rate", 10.0),
        ("storePathRootDir= /data/store ", "root", Path("/data/store")),
        ("storePathCommitLog=", "extra", None),
        ("storePathCommitLog=/log", "extra", Path("/log")),
        ("listenPort=10911", "port", 10911),
        ("listenPort= ", "port", None),
        ("namesrvAddr=a:1; b:2 ;;", "name_servers", ("a:1", "b:2")),
        ("namesrvAddr=", "name_servers", ()),
        ("brokerName= b ", "name", "b"),
        ("brokerName=", "name", ""),
    ],
)
def test_text_becomes_the_type_of_the_field(flag: str, name: str, value: object) -> None:
    assert getattr(broker(flag), name) == value


@pytest.mark.parametrize(
    ("flag", "name", "value"),
    [
        ("flushIntervalCommitLog= 7 ", "interval_ms", 7),
        ("flushIntervalCommitLog=+7", "interval_ms", 7),
        ("flushIntervalCommitLog=2s", "interval_ms", 2000),
        ("mappedFileSizeCommitLog=16MiB", "file_size", 16 * MiB),
        ("mapedFileSizeCommitLog=4096", "file_size", 4096),
        ("haSlaveFallbehindMax=-1", "gap_max", -1),
        ("flushDiskType=SYNC_FLUSH", "kind", FlushDiskType.SYNC_FLUSH),
        ("flushCommitLogTimed=true", "timed", True),
        ("flushCommitLogTimed= TRUE ", "timed", True),
        ("flushCommitLogTimed=False", "timed", False),
    ],
)
def test_numbers_words_and_other_spellings(flag: str, name: str, value: object) -> None:
    assert getattr(flush(flag), name) == value


@pytest.mark.parametrize(
    ("flag", "complaint"),
    [
        ("flushCommitLogTimed=yes", "true or false"),
        ("flushCommitLogTimed=", "true or false"),
        ("flushDiskType=sync_flush", "one of ASYNC_FLUSH, SYNC_FLUSH, spelled exactly like this"),
        ("flushDiskType=", "one of ASYNC_FLUSH"),
        ("haMaxGapNotInSync=1k", "whole number"),
        ("haMaxGapNotInSync=1.5", "whole number"),
        ("haMaxGapNotInSync=1_000", "whole number"),
        ("haMaxGapNotInSync=٣", "whole number"),
        ("haMaxGapNotInSync=" + "9" * 5000, "whole number"),
        ("flushIntervalCommitLog=0", "from 1 to any"),
        ("flushIntervalCommitLog=2 weeks", "span of time"),
        ("mappedFileSizeCommitLog=5GiB", f"from any to {4 * GiB}"),
        ("mappedFileSizeCommitLog=big", "a size such as"),
    ],
)
def test_a_wrong_value_is_named_with_its_place_and_what_is_wanted(flag: str, complaint: str) -> None:
    name, _, value = flag.partition("=")
    with pytest.raises(ConfigError) as caught:
        flush(flag)
    text = str(caught.value)
    assert text.startswith(f"{name}={value!r} (flag {name}): ")
    assert complaint in text


@pytest.mark.parametrize(
    ("flag", "complaint"),
    [
        ("maxErrorRateOfBloomFilter=nan", "decimal number"),
        ("maxErrorRateOfBloomFilter=inf", "decimal number"),
        ("maxErrorRateOfBloomFilter=1e999", "decimal number"),
        ("maxErrorRateOfBloomFilter=1_0", "decimal number"),
        ("maxErrorRateOfBloomFilter=100.1", "from 0 to 100"),
        ("storePathRootDir=", "path of a file"),
        ("storePathRootDir=a\0b", "path of a file"),
        ("listenPort=65536", "from 0 to 65535"),
        ("regionId=us", "one of DefaultRegion, eu"),
    ],
)
def test_limits_and_choices_are_kept(flag: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        broker(flag)


def test_relations_between_fields_are_the_section_s_own_business() -> None:
    with pytest.raises(ConfigError, match="makes no sense"):
        flush("flushCommitLogTimed=true", "flushDiskType=SYNC_FLUSH")


def test_a_section_built_by_hand_can_check_itself() -> None:
    with pytest.raises(ConfigError, match=r"flushIntervalCommitLog='0': expected a number from 1"):
        FlushSettings(interval_ms=0)


@pytest.mark.parametrize(
    ("flag", "hint"),
    [
        ("flushDiskTyp=x", "did you mean flushDiskType"),
        ("FlushDiskType=x", "did you mean flushDiskType"),
        ("fancyOfOurOwm=x", "did you mean fancyOfOurOwn"),
        ("haSlaveFallbehindMx=x", "did you mean haSlaveFallbehindMax"),
        ("qqqqqq=x", "remove it"),
    ],
)
def test_an_unknown_name_is_an_error_that_knows_better(flag: str, hint: str) -> None:
    name = flag.partition("=")[0]
    with pytest.raises(ConfigError, match=rf"unknown option '{name}' = 'x' \(flag {name}\): .*{hint}"):
        load(Sources.of(flags=[flag]), FlushSettings, BrokerSettings)


def test_an_unknown_password_is_not_printed() -> None:
    with pytest.raises(ConfigError) as caught:
        flush("tls.server.keyPasswort=hunter2")
    assert "hunter2" not in str(caught.value)


def test_a_name_nobody_acts_on_is_accepted_with_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        flush(
            "useReentrantLockWhenPutMessage=hunter2",
            "mapedFileSizeConsumeQueue=1",
            "mappedFileSizeConsumeQueue=1",
        )
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert said[0].startswith("option mappedFileSizeConsumeQueue (flag")
    assert said[1].startswith("option useReentrantLockWhenPutMessage (flag")
    assert "hunter2" not in caplog.text


def test_a_name_that_is_acted_on_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        flush("flushIntervalCommitLog=1", "haSlaveFallbehindMax=2")
    assert caplog.records == []


def test_two_spellings_with_two_values_are_an_error() -> None:
    with pytest.raises(ConfigError, match="same option with two values"):
        flush("haMaxGapNotInSync=1", "haSlaveFallbehindMax=2")


def test_a_protection_that_is_not_there_stops_the_start() -> None:
    with pytest.raises(ConfigError, match="aclEnable=true asks for a protection"):
        flush("aclEnable=true")
    load(Sources.of(flags=["aclEnable=true"]), FlushSettings, available=frozenset({"acl"}))


def test_dump_prints_java_names_in_order_of_declaration() -> None:
    assert dump(FlushSettings(kind=FlushDiskType.SYNC_FLUSH)) == [
        ("flushIntervalCommitLog", "500"),
        ("flushDiskType", "SYNC_FLUSH"),
        ("flushCommitLogTimed", "false"),
        ("mappedFileSizeCommitLog", str(GiB)),
        ("haMaxGapNotInSync", str(256 * MiB)),
    ]


def test_dump_knows_absence_lists_and_paths() -> None:
    printed = dict(dump(BrokerSettings(name="b", name_servers=("a:1", "b:2"), root=Path("/x"))))
    assert printed == {
        "brokerName": "b",
        "storePathRootDir": "/x",
        "storePathCommitLog": "",
        "maxErrorRateOfBloomFilter": "20.0",
        "listenPort": "",
        "namesrvAddr": "a:1;b:2",
        "regionId": "DefaultRegion",
        "fancyOfOurOwn": "1",
    }


@given(
    name=st.text(st.characters(categories=["L", "N"]), min_size=1),
    rate=st.floats(0, 100),
    port=st.none() | st.integers(0, 65535),
    servers=st.lists(st.text("abc:123", min_size=1)),
)
def test_what_dump_prints_load_reads_back(
    name: str, rate: float, port: int | None, servers: list[str]
) -> None:
    settings = BrokerSettings(name=name, error_rate=rate, port=port, name_servers=tuple(servers))
    assert broker(*(f"{key}={value}" for key, value in dump(settings))) == settings


def test_the_reader_of_files_is_here_for_everybody() -> None:
    assert parse_properties("a=b") == {"a": "b"}


def test_a_type_that_no_text_can_become_is_our_own_bug() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Odd:
        value: complex = option("brokerName", 1j)

    with pytest.raises(TypeError, match="cannot be read from text"):
        load(Sources.of(flags=["brokerName=1"]), Odd)
