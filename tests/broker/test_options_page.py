"""The page of options names every option that has an effect, with its default, and no other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from flaremq.base.settings import dump
from flaremq.broker.settings import BrokerServerSettings, BrokerSettings, FamilySettings
from flaremq.dledger.settings import RaftSettings
from flaremq.ha.settings import HaSettings
from flaremq.namesrv.settings import NamesrvSettings
from flaremq.remoting.settings import CallerSettings
from flaremq.remoting.tls import TlsClientSettings, TlsSettings

PAGE = Path(__file__).parents[2] / "docs" / "options-broker.md"
SECTIONS: dict[str, tuple[type[Any], ...]] = {
    "The broker": (BrokerSettings,),
    "How many requests may wait, and for how long": (FamilySettings,),
    "Replication": (HaSettings,),
    "Raft groups": (RaftSettings,),
    "Listening sockets": (BrokerServerSettings,),
    "Calls to other servers": (CallerSettings,),
    "TLS": (TlsSettings, TlsClientSettings),
    "The NameServer": (NamesrvSettings,),
}
OF_THE_MACHINE = {"namesrvAddr", "brokerName", "brokerIP1", "brokerIP2", "kvConfigPath", "configStorePath"}


def tables() -> dict[str, dict[str, str]]:
    """Option and default, by heading."""
    parts = re.split(r"^## (.*)$", PAGE.read_text(), flags=re.MULTILINE)[1:]
    return {
        heading: dict(re.findall(r"^\| (?!Option)([\w.]+) \| (.*?) \| .*\|$", text, re.MULTILINE))
        for heading, text in zip(parts[::2], parts[1::2], strict=True)
    }


@pytest.mark.parametrize("heading", SECTIONS)
def test_the_page_names_every_option_with_its_default(heading: str) -> None:
    named = tables()[heading]
    known = {name: value or '""' for section in SECTIONS[heading] for name, value in dump(section())}
    assert named.keys() == known.keys()
    assert {name: value for name, value in named.items() if name not in OF_THE_MACHINE} == {
        name: value for name, value in known.items() if name not in OF_THE_MACHINE
    }


def test_the_page_has_no_other_tables() -> None:
    assert {heading for heading, table in tables().items() if table} == SECTIONS.keys()
