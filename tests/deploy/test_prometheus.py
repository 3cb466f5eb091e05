"""The scrape configuration and the alerts for Prometheus: they name figures that a broker serves."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml

from flaremq.client.sync import LitePullConsumer, Message, Producer
from flaremq.remoting.ports import free_port
from flaremq.servers.config import load_broker
from flaremq.testing.cluster import Cluster

FOLDER = Path(__file__).parent.parent.parent / "deploy" / "prometheus"
RULES = [
    rule
    for group in yaml.safe_load((FOLDER / "flaremq-alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """/metrics of a master that a group has begun to consume from, of its slave, and of a Raft group."""
    port, of_slave = free_port(), free_port()
    with Cluster(tmp_path_factory.mktemp("scraped")) as cluster:
        namesrv = cluster.namesrv().address
        cluster.broker(namesrv=namesrv, metricsExporterType="PROM", metricsPromExporterPort=port)
        slave: dict[str, Any] = {"brokerName": "broker-a", "brokerRole": "SLAVE", "brokerId": 1}
        slave |= {"metricsExporterType": "PROM", "metricsPromExporterPort": of_slave}
        cluster.broker("slave", namesrv, **slave)
        with Producer("orders", namesrv) as producer, LitePullConsumer("billing", namesrv) as consumer:
            producer.send(Message("Orders", b"one book"))
            consumer.subscribe("Orders")
            while not consumer.poll(timeout_s=5):
                pass
            consumer.commit()
        members = [free_port(), free_port()]
        served = [{"metricsExporterType": "PROM", "metricsPromExporterPort": each} for each in members]
        cluster.group(2, "broker-b", namesrv, each=served.__getitem__)
        while "rocketmq_ha_slave_behind_bytes{" not in (page := scraped(port)):
            pass  # The slave connects a moment later.
        while "rocketmq_raft_member_behind{" not in (of_group := "".join(map(scraped, members))):
            pass  # A leader is elected a moment later.
        return page + scraped(of_slave) + of_group


def scraped(port: int) -> str:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_is_about_figures_that_a_broker_serves(rule: dict[str, str], page: str) -> None:
    names = set(re.findall(r"rocketmq_\w+", rule["expr"]))
    assert names or rule["expr"].startswith("up{"), "Prometheus makes `up` itself"
    for name in names:
        (line, *_) = [line for line in page.splitlines() if line.startswith(name + "{")]
        labels = {"instance", *re.findall(r"(\w+)=", line)}  # Prometheus says which instance it asked.
        told = {*re.findall(r"labels\.(\w+)", str(rule)), *re.findall(r"(\w+)=\"", rule["expr"])}
        grouped = re.search(r"by \(([^)]*)\)", rule["expr"])
        assert told | set(grouped[1].split(", ") if grouped else ()) <= labels


def test_scrapes_go_to_the_port_at_which_brokers_serve_figures() -> None:
    scrape = yaml.safe_load((FOLDER / "scrape.yml").read_text())
    usual = load_broker(None, {}, []).broker.metrics_port
    (job,) = scrape["scrape_configs"]
    assert {target.rpartition(":")[2] for each in job["static_configs"] for target in each["targets"]} == {
        str(usual)
    }
    assert scrape["rule_files"] == ["flaremq-alerts.yml"]
    assert any(f'job="{job["job_name"]}"' in rule["expr"] for rule in RULES)
