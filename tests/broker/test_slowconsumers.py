"""Slow consumers are disabled where the operator wants it, and nobody else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flaremq.base.live import Live
from flaremq.broker.offload import Offload
from flaremq.broker.settings import BrokerSettings
from flaremq.broker.slowconsumers import SlowConsumers
from flaremq.model.topic import GroupConfig
from flaremq.store.store import MessageStore
from flaremq.testing.fakes.builders import a_message, small_settings


class Groups:
    def __init__(self, *names: str) -> None:
        self._table = {name: GroupConfig(name) for name in names}

    def all(self) -> Mapping[str, GroupConfig]:
        return self._table

    def disable(self, group: str) -> None:
        self._table[group] = replace(self._table[group], consume_enable=False)

    @property
    def disabled(self) -> set[str]:
        return {name for name, config in self._table.items() if not config.consume_enable}


class Positions:
    """Group > topic > queue > offset."""

    def __init__(self, table: dict[str, dict[str, dict[int, int]]]) -> None:
        self._table = table

    def topics_by_group(self) -> Mapping[str, list[str]]:
        return {group: list(topics) for group, topics in self._table.items()}

    def queues(self, group: str, topic: str) -> Mapping[int, int]:
        return self._table[group][topic]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore(small_settings(tmp_path)) as store:
        for _ in range(10):
            store.put(a_message(b"x" * 900), wait=False)
        store.dispatch()
        yield store


@pytest.fixture
def offload() -> Iterator[Offload]:
    offload = Offload(1)
    yield offload
    offload.close()


async def disabled(store: MessageStore, offload: Offload, *, online: bool = True, **other: Any) -> set[str]:
    settings = BrokerSettings(
        broker_name="b",
        ip1="127.0.0.1",
        ip2="127.0.0.1",
        **{"disable_slow_consumers": True, "fall_behind_max": 5000, **other},
    )
    groups = Groups("slow", "quick", "elsewhere", "ahead")
    positions = Positions(
        {
            "slow": {"TopicTest": {0: 1}},
            "quick": {"TopicTest": {0: 8}},
            "ahead": {"TopicTest": {0: 99, 7: 0}},
            "elsewhere": {"Unknown": {0: 0}},
            "unknown": {"TopicTest": {0: 0}},
        }
    )
    await SlowConsumers(
        Live(settings), store, positions, groups, offload, is_online=lambda _group: online
    ).run()
    return groups.disabled


async def test_who_is_too_far_behind_is_disabled(store: MessageStore, offload: Offload) -> None:
    assert await disabled(store, offload) == {"slow"}


async def test_nobody_is_disabled_unless_the_operator_says_so(store: MessageStore, offload: Offload) -> None:
    assert await disabled(store, offload, disable_slow_consumers=False) == set()


async def test_the_limit_is_the_operators(store: MessageStore, offload: Offload) -> None:
    assert await disabled(store, offload, fall_behind_max=1 << 30) == set()
    assert await disabled(store, offload, fall_behind_max=0) == {"slow", "quick"}


async def test_who_is_not_there_harms_nobody(store: MessageStore, offload: Offload) -> None:
    assert await disabled(store, offload, online=False) == set()
