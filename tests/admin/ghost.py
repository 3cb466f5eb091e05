"""A broker that a NameServer knows, and nobody can reach: it died a moment ago."""

from __future__ import annotations

from flaremq.model.topic import TopicConfig
from flaremq.protocol import beans
from flaremq.protocol.bodies.route import RegisterBrokerBody, TopicConfigSerializeWrapper
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.headers.namesrv import RegisterBrokerRequestHeader
from flaremq.remoting.ports import free_port
from flaremq.testing.fakes.wireclient import WireClient

NAME = "broker-z"


async def haunt(wire: WireClient, namesrv: str, *topics: str, broker_id: int = 0) -> str:
    """Its address. The NameServer knows it as long as the client is connected."""
    cluster = "DefaultCluster"
    address = f"127.0.0.1:{free_port()}"
    header = RegisterBrokerRequestHeader(
        broker_name=NAME,
        broker_addr=address,
        cluster_name=cluster,
        ha_server_addr=address,
        broker_id=broker_id,
        enable_acting_master=True,
    )
    table = {name: TopicConfig(name, 4, 4) for name in (NAME, cluster, *topics)}
    body = RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigSerializeWrapper(topic_config_table=table)
    )
    await wire.ask(namesrv, RequestCode.REGISTER_BROKER, header, beans.encode(body))
    return address
