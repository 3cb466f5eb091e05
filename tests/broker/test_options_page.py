"""The page of options names every option that has an effect, with its default, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from flaremq.base.settings import dump
from flaremq.broker.settings import BrokerServerSettings, BrokerSettings, FamilySettings
from flaremq.remoting.settings import CallerSettings
from flaremq.remoting.tls import TlsSettings

PAGE = Path(__file__).parents[2] / "docs" / "options-broker.md"
SECTIONS = (BrokerSettings, FamilySettings, BrokerServerSettings, CallerSettings, TlsSettings)
OF_THE_MACHINE = {"namesrvAddr", "brokerName", "brokerIP1", "brokerIP2", "rocketmqHome"}


def test_the_page_names_every_option_with_its_default() -> None:
    named = dict(re.findall(r"^\| ([\w.]+) \| (.*?) \| .*\|$", PAGE.read_text(), re.MULTILINE))
    del named["Option"]
    known = {name: value or '""' for section in SECTIONS for name, value in dump(section())}
    assert named.keys() == known.keys()
    assert {name: value for name, value in named.items() if name not in OF_THE_MACHINE} == {
        name: value for name, value in known.items() if name not in OF_THE_MACHINE
    }
