"""Clusters, brokers and their health as JSON documents: one form for `--json` and for web pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from flaremq.admin.documents import Document, failures_document
from flaremq.admin.values.brokers import (
    BrokerInfo,
    BrokerRuntime,
    ClusterBrokers,
    ConnectedProducer,
    HaStatus,
)
from flaremq.admin.values.health import ClusterHealth
from flaremq.admin.values.outcome import Answers, Failed
from flaremq.admin.values.raft import RaftMember
from flaremq.base.text import both


def clusters_document(found: Iterable[ClusterBrokers]) -> list[Document]:
    return [{"cluster": each.name, "brokers": list(each.brokers)} for each in found]


def brokers_document(found: Answers[BrokerInfo]) -> Document:
    return {
        "brokers": [{**_address_of(each), "runtime": _runtime_document(each.runtime)} for each in found],
        "failed": failures_document(found.failed),
    }


def status_document(found: Answers[BrokerInfo]) -> Document:
    """Everything that brokers report, by RocketMQ's names."""
    return {
        "brokers": [
            {"broker": each.name, "address": each.address, "runtime": dict(each.runtime.table)}
            for each in found
            if each.runtime is not None
        ],
        "failed": failures_document(found.failed),
    }


def ha_document(found: Answers[HaStatus]) -> Document:
    """Masters and slaves. `behind` counts bytes."""
    return {
        "brokers": [
            {
                "broker": each.broker,
                "id": each.id,
                "address": each.address,
                "role": "master" if each.is_master else "slave",
                "log_end": each.log_max_offset,
                "master": each.master_address,
                "following": None if each.is_master else each.is_following,
                "state": each.state,
                "cut_bytes": each.cut_bytes,
                "displaced": each.displaced or None,
                "rival": each.rival or None,
                "slaves": [
                    {
                        "address": slave.address,
                        "acknowledged": slave.ack_offset,
                        "behind": slave.behind,
                        "in_sync": slave.in_sync,
                        "bytes_per_second": slave.bytes_per_second,
                    }
                    for slave in each.slaves
                ],
            }
            for each in found
        ],
        "failed": failures_document(found.failed),
    }


def raft_document(found: Answers[RaftMember]) -> Document:
    """Members of Raft groups. `behind` counts entries."""
    return {
        "members": [
            {
                "broker": each.broker,
                "address": each.address,
                "group": each.group,
                "member": each.member,
                "standing": each.standing,
                "term": each.term,
                "leader": each.leader or None,
                "answers": each.answers,
                "last_index": each.last_index,
                "synced_index": each.synced_index,
                "commit_index": each.commit_index,
                "members": list(each.members),
                "not_fit": each.not_fit or None,
                "damage": each.damage or None,
                "last_refusal": each.last_refusal or None,
                "may_vote": each.may_vote,
                "caution": each.caution or None,
                "peers": [
                    {
                        "member": peer.member,
                        "behind": peer.behind,
                        "heard_seconds": peer.heard_seconds,
                        "complaint": peer.complaint or None,
                    }
                    for peer in each.peers
                ],
            }
            for each in found
        ],
        "failed": failures_document(found.failed),
    }


def producers_document(found: Answers[ConnectedProducer]) -> Document:
    return {
        "producers": [
            {
                "group": p.group,
                "client_id": p.client_id,
                "address": p.address,
                "language": p.language,
                "version": p.version_name,
                **both("last_seen", p.last_seen_ms),
            }
            for p in found
        ],
        "failed": failures_document(found.failed),
    }


def server_settings_document(chosen: Mapping[str, Mapping[str, str]], failed: Failed) -> Document:
    """Settings by server."""
    return {
        "servers": {server: dict(values) for server, values in chosen.items()},
        "failed": failures_document(failed),
    }


def health_document(found: ClusterHealth) -> Document:
    return {
        "verdict": found.verdict.value,
        "problems": [
            {"kind": each.kind, "subject": each.subject, "text": each.text} for each in found.problems
        ],
        "namesrvs": dict(found.namesrvs),
        "brokers": [{**_address_of(each), "answers": each.runtime is not None} for each in found.brokers],
        "groups_checked": found.groups,
        "unchecked": list(found.unchecked),
    }


def _address_of(each: BrokerInfo) -> Document:
    return {"cluster": each.cluster, "broker": each.name, "id": each.id, "address": each.address}


def _runtime_document(r: BrokerRuntime | None) -> Document | None:
    if r is None:
        return None
    return {
        "version": r.version,
        "active": r.active,
        "put_tps": r.put_tps,
        "get_tps": r.get_tps,
        "put_today": r.put_today,
        "get_today": r.get_today,
        "put_yesterday": r.put_yesterday,
        "get_yesterday": r.get_yesterday,
        "disk_ratio": r.disk_ratio,
        "log_min_offset": r.log_min_offset,
        "log_max_offset": r.log_max_offset,
        "dispatch_behind": r.dispatch_behind,
        **both("boot", r.boot_ms or 0),
        **both("earliest_message", r.earliest_ms or 0),
    }
