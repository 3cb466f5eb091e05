"""A broker in a process of its own that another process sends to, as fast as a test wants it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from flaremq.admin.sync import Admin
from flaremq.admin.values.topics import TopicSettings
from flaremq.store.offline.moment import moment_of
from flaremq.store.offline.scan import StoreScan
from flaremq.testing.cluster import Cluster

_FLAREMQ = "from flaremq.cli.main import main; main()"
_READY_S = 60.0


@dataclass(frozen=True, slots=True)
class Busy:
    store: Path
    load: subprocess.Popen[bytes]

    @property
    def log_end(self) -> int:
        """What its broker has dispatched of the log."""
        moment = moment_of(StoreScan(self.store))
        assert moment is not None, "the broker has ended"
        return moment.log_end

    def more(self, size: int) -> None:
        """Wait until the log has grown by so many bytes."""
        end, deadline_s = self.log_end + size, monotonic() + _READY_S
        while self.log_end < end:
            assert self.load.poll() is None, "the load has ended"
            assert monotonic() < deadline_s, f"the log ends at {self.log_end}, and not at {end}"


@contextmanager
def busy_broker(folder: Path, rate: int, topic: str = "Busy", queues: int = 16) -> Iterator[Busy]:
    with Cluster(folder) as cluster:
        namesrv = cluster.namesrv()
        broker = cluster.broker("broker-a", namesrv.address)
        with Admin(namesrv.address) as admin:
            admin.topics.create(topic, TopicSettings(read_queues=queues, write_queues=queues))
        words = ["bench", "send", "-n", namesrv.address, "-t", topic, "--seconds", "600", "--rate", str(rate)]
        load = subprocess.Popen(
            [sys.executable, "-c", _FLAREMQ, *words, "--size", "300"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            busy = Busy(broker.folder / "store", load)
            busy.more(1 << 20)
            yield busy
            assert load.poll() is None, "the load has ended before the test"
        finally:
            load.kill()
            load.wait()
