"""Our producers at Apache RocketMQ's servers: the suite that they pass at ours.

One test stays at home: messages that are under way together keep their order at our broker, while several
threads of Java's store them in any.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tests.client.producer.test_producer import (  # noqa: F401 - Tests and their fixture.
    make,
    test_a_batch_is_stored_together,
    test_a_large_body_is_compressed,
    test_a_message_is_stored_as_it_was_given,
    test_a_one_way_message_arrives,
    test_a_refusal_has_the_brokers_code_its_words_and_what_to_do,
    test_a_selector_and_a_queue_decide_where_a_message_goes,
    test_batches_are_split_by_size_and_keep_their_order,
    test_many_messages_are_stored_once_each_and_receipts_are_in_their_order,
    test_messages_of_one_sharding_key_go_to_one_queue,
    test_messages_without_a_key_go_to_all_queues_of_all_brokers_in_turn,
    test_one_bad_message_among_many_does_not_harm_the_others,
    test_several_producers_of_one_and_of_many_groups_work_in_one_process,
)
from tests.java.peers import Apache, Peers
from tests.java.toolchain import Toolchain

pytestmark = pytest.mark.java

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Servers:
    namesrv: str
    addresses: list[str]


@pytest.fixture(scope="module", params=["5.3.3", "5.5.0", "4.9.7"])
def servers(
    request: pytest.FixtureRequest, java_toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Servers]:
    """A NameServer and two brokers of one version."""
    kind = Apache(java_toolchain, version=request.param)
    with Peers(tmp_path_factory.mktemp("apache")) as peers:
        namesrv = peers.namesrv(kind)
        brokers = [peers.broker(kind, namesrv.address, name) for name in ("broker-a", "broker-b")]
        yield Servers(namesrv.address, [broker.address for broker in brokers])


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    wish = re.sub(r"[^a-zA-Z0-9]+", "_", request.node.name).removeprefix("test_")[:60]
    return f"{wish}-{next(_numbers)}"
