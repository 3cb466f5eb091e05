"""Figures of masters and slaves for /metrics. RocketMQ has none of them."""

from __future__ import annotations

from collections.abc import Iterable

from flaremq.broker.features import Figure
from flaremq.ha.states import FollowState, MasterStatus, SlaveStatus

_OF_SLAVE = "slave", "broker_id"


def master_figures(now: MasterStatus, *, is_displaced: bool) -> Iterable[Figure]:
    """Of a master and the slaves that are connected to it."""
    slaves = [((each.address, _id(each.broker_id)), each) for each in now.followers]
    near = sum(each.is_near for each in now.followers)
    yield _one("rocketmq_ha_slaves", "Connected slaves", len(slaves))
    yield _one("rocketmq_ha_slaves_in_sync", "Slaves that lack less than haMaxGapNotInSync", near)
    text = "Whether another master of this name serves in place of this one"
    yield _one("rocketmq_ha_displaced", text, is_displaced)
    yield _one(
        "rocketmq_ha_sent_bytes_total", "Bytes of the log sent to slaves", now.bytes_total, counts=True
    )
    yield _one("rocketmq_ha_refused_total", "Connections of slaves refused", now.refused, counts=True)
    lags = [(labels, each.lag) for labels, each in slaves]
    yield Figure("rocketmq_ha_slave_behind_bytes", "Bytes that a slave lacks", False, _OF_SLAVE, lags)
    silences = [(labels, each.silent_s) for labels, each in slaves]
    text = "Seconds since a slave last reported"
    yield Figure("rocketmq_ha_slave_silent_seconds", text, False, _OF_SLAVE, silences)


def slave_figures(now: SlaveStatus, now_ms: int) -> Iterable[Figure]:
    """Of a slave, as far as it knows about its master."""
    states = [((state.name.lower(),), float(now.state is state)) for state in FollowState]
    yield Figure("rocketmq_ha_state", "What a slave does: 1 for its state", False, ("state",), states)
    behind = max(0, now.master_end - now.end)
    yield _one("rocketmq_ha_behind_bytes", "Bytes that this slave lacks of what its master has told", behind)
    if now.caught_up_ms:
        text = "Seconds since this slave had all that its master had told"
        yield _one("rocketmq_ha_behind_seconds", text, max(0, now_ms - now.caught_up_ms) / 1000)
    yield _one(
        "rocketmq_ha_received_bytes_total", "Bytes received from masters", now.bytes_total, counts=True
    )
    text = "Times that the logs of slave and master did not fit"
    yield _one("rocketmq_ha_misfits_total", text, now.refusals, counts=True)
    text = "Times that a part of the log was given up"
    yield _one("rocketmq_ha_resyncs_total", text, now.resyncs, counts=True)
    yield _one("rocketmq_ha_cut_bytes_total", "Bytes of the log given up", now.cut_bytes, counts=True)


def _one(name: str, text: str, value: float, *, counts: bool = False) -> Figure:
    return Figure(name, text, counts, (), [((), value)])


def _id(broker_id: int | None) -> str:
    return "" if broker_id is None else str(broker_id)
