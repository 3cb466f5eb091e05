"""A real NameServer and broker inside a test process: nothing to install, nothing to clean up.

Run it with pytest.
"""

from pathlib import Path

from flaremq.client.sync import Message, Producer
from flaremq.testing.embedded import EmbeddedThread


def test_my_program_sends_an_order(tmp_path: Path) -> None:
    with EmbeddedThread(tmp_path) as servers, Producer("orders", servers.namesrv) as producer:
        receipt = producer.send(Message("Orders", b"one book"))
    assert receipt.queue_offset == 0
