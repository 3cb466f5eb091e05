"""The health of a cluster: asks every NameServer and broker once, and compares figures with limits.

NameServers forget a broker as soon as its connection ends, so a broker that died is not listed anywhere.
Three sources still name it: a NameServer that has not noticed yet, the queues that ordered topics are bound
to, and what the caller remembers (`expected`). A broker that none of them names is not reported as missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

from flaremq.admin import orderconf
from flaremq.admin.brokers import ask_runtime, ask_settings
from flaremq.admin.groups import Groups
from flaremq.admin.namesrvs import Namesrvs
from flaremq.admin.servers import ServerAddress, ServerCalls, listed
from flaremq.admin.values.brokers import BrokerInfo, BrokerRuntime
from flaremq.admin.values.health import ClusterHealth, HealthLimits, HealthVerdict, Problem
from flaremq.admin.wording import bytes_of, first_number, whole
from flaremq.base.errors import FlareError
from flaremq.base.text import count
from flaremq.client.api import body_of
from flaremq.protocol.bodies.cluster import ClusterInfo
from flaremq.protocol.codes import RequestCode

_BACKLOGS: Final = ("send", "pull", "litePull", "query", "ack")
_DISK_MAX: Final = (75.0, 10.0, 95.0)  # RocketMQ's default, and the bounds that brokers keep to.
_DISK_STOPS: Final = (90.0, 35.0, 90.0)


class Checkups:
    def __init__(self, servers: ServerCalls) -> None:
        self._servers = servers
        self._groups = Groups(servers)
        self._namesrvs = Namesrvs(servers)

    async def check(
        self, limits: HealthLimits | None = None, expected: Mapping[str, str] | None = None
    ) -> ClusterHealth:
        """Never raises for a server that is away. `expected` maps brokers that should be there to the reason
        why: masters by their names, slaves as `name:id`."""
        answers = await self._servers.try_each(self._servers.namesrvs(), self._cluster)
        problems = [
            Problem(address, "namesrv", f"does not answer: {e}") for address, e in answers.failed.items()
        ]
        namesrvs = {each.address: each.address in answers.found for each in self._servers.namesrvs()}
        if not answers.found:
            return ClusterHealth(HealthVerdict.DOWN, tuple(problems), (), namesrvs)
        problems += _disagreements(answers.found)
        servers = sorted({each for info in answers.found.values() for each in listed(info)})
        known, why_not = await self._ordered_topics()
        brokers, of_brokers = await self._of_brokers(servers, limits or HealthLimits())
        there = {each.name for each in servers} | {each.title for each in servers}
        missing = {**known, **(expected or {})}
        problems += [
            Problem(name, "missing", f"is not registered: {missing[name]}")
            for name in sorted(missing.keys() - there)
        ]
        problems += of_brokers
        groups, of_groups, failed = await self._of_groups((limits or HealthLimits()).lag_max)
        is_down = not any(each.runtime for each in brokers)
        verdict = (
            HealthVerdict.DOWN
            if is_down
            else HealthVerdict.DEGRADED
            if problems or of_groups
            else HealthVerdict.HEALTHY
        )
        unchecked = (*why_not, *(() if is_down else failed))
        return ClusterHealth(verdict, (*problems, *of_groups), brokers, namesrvs, groups, unchecked)

    async def _cluster(self, server: ServerAddress) -> ClusterInfo:
        answer = await self._servers.api.ask(server.address, RequestCode.GET_BROKER_CLUSTER_INFO)
        return body_of(ClusterInfo, answer)

    async def _ordered_topics(self) -> tuple[dict[str, str], tuple[str, ...]]:
        """Brokers that ordered topics are bound to, and what could not be checked."""
        try:
            table = await self._namesrvs.kv_list(orderconf.NAMESPACE)
        except FlareError as error:
            return {}, (f"brokers of ordered topics: {error}",)
        return {
            name: f"the ordered topic {topic} is bound to {count(queues, 'queue')} of it"
            for topic, conf in sorted(table.items())
            for name, queues in orderconf.lenient(conf).items()
        }, ()

    async def _of_brokers(
        self, servers: list[ServerAddress], limits: HealthLimits
    ) -> tuple[tuple[BrokerInfo, ...], list[Problem]]:
        runtimes, settings = await asyncio.gather(
            self._servers.try_each(servers, partial(ask_runtime, self._servers)),
            self._servers.try_each(servers, partial(ask_settings, self._servers)),
        )
        problems = [Problem(t, "broker", f"does not answer: {e}") for t, e in runtimes.failed.items()]
        problems += [
            Problem(name, "master", "has no master registered, only slaves: messages can be read, not sent")
            for name in sorted(
                {each.name for each in servers} - {each.name for each in servers if not each.id}
            )
        ]
        for title, runtime in runtimes.found.items():
            values = settings.found[title].values if title in settings.found else {}
            problems += [Problem(title, kind, text) for kind, text in _judged(runtime, values, limits)]
        brokers = [
            BrokerInfo(each.cluster, each.name, each.id, each.address, runtimes.found.get(each.title))
            for each in servers
        ]
        return tuple(brokers), problems

    async def _of_groups(self, lag_max: int) -> tuple[int, list[Problem], tuple[str, ...]]:
        try:
            found = await self._groups.summaries()
        except FlareError as error:
            return 0, [], (f"lag of consumer groups: {error}",)
        problems = [
            Problem(each.name, "lag", f"is {count(each.lag, 'message')} behind (limit {lag_max:,})")
            for each in found
            if each.lag > lag_max
        ]
        failed = tuple(f"lag of {name}: {error}" for name, error in sorted(found.failed.items()))
        return len(found), problems, failed


def _disagreements(answers: Mapping[str, ClusterInfo]) -> list[Problem]:
    """Brokers that some NameServers know and others do not."""
    known = {address: {each.title for each in listed(info)} for address, info in answers.items()}
    return [
        Problem(
            title,
            "registration",
            f"is registered at {', '.join(a for a, titles in known.items() if title in titles)}, "
            f"but not at {', '.join(a for a, titles in known.items() if title not in titles)}",
        )
        for title in sorted(set().union(*known.values()))
        if not all(title in titles for titles in known.values())
    ]


def _judged(
    runtime: BrokerRuntime, settings: Mapping[str, str], limits: HealthLimits
) -> Iterator[tuple[str, str]]:
    """The problems of a broker that answers: kind and text."""
    table = runtime.table
    if table.get("degraded"):
        yield "degraded", f"works, but parts of it fail: {table['degraded']}"
    if table.get("haState", "FOLLOWING") != "FOLLOWING":
        why = table.get("haWhyNot") or "no master is known"
        yield "replication", f"does not follow its master: {why}"
    if table.get("haDisplaced"):
        yield "master", f"serves no clients: {table['haDisplaced']}"
    if table.get("haRival"):
        yield "master", f"is not the only one of its name: {table['haRival']}"
    used = max(
        (first_number(table.get(key)) or 0.0 for key in ("commitLogDiskRatio", "consumeQueueDiskRatio")),
        default=0.0,
    )
    full, stops = (
        _percent(settings, "diskMaxUsedSpaceRatio", _DISK_MAX),
        _percent(settings, "diskSpaceWarningLevelRatio", _DISK_STOPS),
    )
    if used * 100 >= stops:
        yield "disk", f"its disk is {used:.0%} full (limit {stops:.0f}%): it accepts no messages"
    elif used * 100 >= full:
        yield "disk", f"its disk is {used:.0%} full (limit {full:.0f}%): it deletes old files early"
    if (runtime.dispatch_behind or 0) > limits.behind_max:
        yield "dispatch", f"{runtime.dispatch_behind:,} bytes are stored and not yet visible to consumers"
    unflushed = bytes_of(table.get("remainHowManyDataToFlush")) or 0
    if unflushed > limits.behind_max:
        yield "flush", f"{unflushed:,} bytes are not yet flushed to the disk"
    for name in _BACKLOGS:
        size, room, wait_ms = (
            whole(table.get(f"{name}ThreadPoolQueue{figure}")) or 0
            for figure in ("Size", "Capacity", "HeadWaitTimeMills")
        )
        if size and (size >= limits.backlog_max * room or wait_ms > limits.wait_max_ms):
            yield (
                "backlog",
                f"{size:,} {name} requests wait (room for {room:,}), the first for {wait_ms:,} ms",
            )


def _percent(settings: Mapping[str, str], name: str, known: tuple[float, float, float]) -> float:
    usual, least, most = known
    value = first_number(settings.get(name)) or usual
    return min(max(value * 100 if value <= 1 else value, least), most)
