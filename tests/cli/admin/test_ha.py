"""`flaremq cluster ha`, as a person sees it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cli.commands import flaremq

from flaremq.testing.cluster import Cluster


def test_a_master_and_its_slave_are_shown_and_a_slave_that_does_not_follow_is_a_failure(
    tmp_path: Path,
) -> None:
    with Cluster(tmp_path) as cluster:
        namesrv = f"127.0.0.1:{cluster.namesrv().port}"
        master = cluster.broker("broker-a", namesrv)
        alone = flaremq("cluster", "ha", "-n", namesrv)
        assert alone.status == 0 and "no slaves" in alone.out
        nowhere: dict[str, Any] = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": "127.0.0.1:1"}
        cluster.broker("slave", namesrv, brokerName="broker-a", **nowhere)
        shown = flaremq("cluster", "ha", "-n", namesrv)
        assert shown.status == 1
        assert "not following" in shown.out and "broker-a (1): " in shown.err + shown.out
        document = json.loads(flaremq("cluster", "ha", "-n", namesrv, "--json").out)
        assert [each["role"] for each in document["brokers"]] == ["master", "slave"]
        assert document["brokers"][0]["address"] == f"127.0.0.1:{master.port}"
