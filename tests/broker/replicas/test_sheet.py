"""The figures of replication for /metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.broker.replicas.groups import HOST, Group, a_group
from tests.broker.replicas.pairs import replication
from tests.broker.replicas.test_pair import send
from tests.ha.nodes import until

from flaremq.broker.replicas.sheet import slave_figures
from flaremq.ha.states import FollowState, SlaveStatus
from flaremq.servers.together import Broker


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Group]:
    async with a_group(tmp_path) as group:
        yield group


def shown(broker: Broker) -> dict[str, float]:
    """By name, with the broker id or the state of a row behind it."""
    return {
        " ".join((each.name, *labels[-1:])): value
        for each in replication(broker).metrics()
        for labels, value in each.rows
    }


async def test_a_master_shows_its_slaves_and_a_slave_how_far_it_is_behind(pair: Group) -> None:
    master = await pair.broker(0, "SYNC_MASTER")
    slave = await pair.broker(1, "SLAVE", haMasterAddress=f"{HOST}:{master.port + 1}")
    await until(lambda: replication(slave).is_following())
    await send(pair, b"one", b"two")
    end = master.store.log.end
    await until(lambda: shown(master).get("rocketmq_ha_slave_behind_bytes 1") == 0)
    of_master, of_slave = shown(master), shown(slave)
    assert of_master["rocketmq_ha_slaves"] == of_master["rocketmq_ha_slaves_in_sync"] == 1
    assert of_master["rocketmq_ha_sent_bytes_total"] == end
    assert of_master["rocketmq_ha_displaced"] == of_master["rocketmq_ha_refused_total"] == 0
    assert 0 <= of_master["rocketmq_ha_slave_silent_seconds 1"] < 30
    assert of_slave["rocketmq_ha_state following"] == 1 and of_slave["rocketmq_ha_state refused"] == 0
    assert of_slave["rocketmq_ha_behind_bytes"] == 0
    assert 0 <= of_slave["rocketmq_ha_behind_seconds"] < 30
    assert of_slave["rocketmq_ha_received_bytes_total"] > end, "with the headers of chunks"
    assert of_slave["rocketmq_ha_cut_bytes_total"] == of_slave["rocketmq_ha_resyncs_total"] == 0


async def test_a_slave_whose_log_does_not_fit_counts_that(pair: Group) -> None:
    master = await pair.broker(0, "ASYNC_MASTER")
    address = f"{HOST}:{master.port + 1}"
    slave = await pair.broker(1, "SLAVE", haMasterAddress=address, mappedFileSizeCommitLog=1 << 19)
    await until(lambda: shown(slave)["rocketmq_ha_state refused"] == 1)
    assert shown(slave)["rocketmq_ha_misfits_total"] >= 1
    assert "rocketmq_ha_behind_seconds" not in shown(slave), "it never had all"


def test_a_slave_is_behind_by_what_its_master_has_told_and_by_the_time_since_it_had_all() -> None:
    status = SlaveStatus(
        state=FollowState.WAITING,
        master_address="10.0.0.1:10912",
        why="the connection to the master is lost",
        end=1000,
        master_end=1300,
        read_ms=0,
        written_ms=0,
        bytes_per_s=0,
        bytes_total=1012,
        caught_up_ms=50_000,
        refusals=2,
        resyncs=1,
        cut_bytes=70,
    )
    found = {each.name: each.rows[0][1] for each in slave_figures(status, 62_500) if not each.labels}
    assert found == {
        "rocketmq_ha_behind_bytes": 300,
        "rocketmq_ha_behind_seconds": 12.5,
        "rocketmq_ha_received_bytes_total": 1012,
        "rocketmq_ha_misfits_total": 2,
        "rocketmq_ha_resyncs_total": 1,
        "rocketmq_ha_cut_bytes_total": 70,
    }
