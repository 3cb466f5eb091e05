"""Queues and index of a store that has a log only, made as recovery makes them, and brought to the disk."""

from __future__ import annotations

from pathlib import Path

from flaremq.base.clock import SystemClock
from flaremq.dledger.ledger.checkpoint import ledger_folder
from flaremq.dledger.ledgerlog import LedgerLog
from flaremq.protocol import beans
from flaremq.protocol.bodies.route import TopicConfigSerializeWrapper
from flaremq.protocol.configfiles import FOLDER, deleted_topics, load
from flaremq.store.commitlog import CommitLog
from flaremq.store.dispatch import Dispatcher
from flaremq.store.files.checkpoint import Checkpoint
from flaremq.store.files.disk import Disk
from flaremq.store.index.index import Index, IndexShape
from flaremq.store.queue.nextoffsets import QueueOffsets
from flaremq.store.queue.queues import Queues
from flaremq.store.recovery import Recovery
from flaremq.store.settings import StoreSettings


def rebuild_queues(disk: Disk, settings: StoreSettings, member: str | None) -> None:
    """Make what a broker needs besides the log, and leave the folder as after a clean stop. `member` is whose
    ledger it is; None for a plain log."""
    root = settings.root
    for folder in ("consumequeue", "consumequeue_ext", "batchconsumequeue", "index"):
        disk.delete_folder(root / folder)
    (root / "checkpoint").unlink(missing_ok=True)
    log = _log(disk, settings, member)
    log.files.load()
    batches = batch_topics(root)
    queues = Queues(disk, settings, lambda topic: topic in batches)
    checkpoint = Checkpoint(disk, root / "checkpoint")
    shape = IndexShape(settings.index_slots, settings.index_entries)
    index = Index(disk, SystemClock(), root / "index", shape, sealed=lambda _end_ms: None)
    index.load(clean=False)
    dispatcher = Dispatcher(log, queues, index, settings)
    recovery = Recovery(settings, log, queues, index, checkpoint, dispatcher, QueueOffsets())
    recovery.run(clean=False, damaged=[])
    for topic, end in deleted_topics(root).items():
        name = topic.encode()
        if all(queue.newest < end for key, queue in queues.items() if key[0] == name):
            dispatcher.remove_topic(name)  # One that was made anew keeps its queues.
    queues.flush(0)
    index.flush()
    newest_ms = index.newest[0]
    checkpoint.log_time_ms = checkpoint.queue_time_ms = checkpoint.index_time_ms = newest_ms
    checkpoint.flush()
    for part in (index, queues, log.files, checkpoint):
        part.close()


def _log(disk: Disk, settings: StoreSettings, member: str | None) -> CommitLog | LedgerLog:
    if member is not None:
        return LedgerLog(disk, ledger_folder(settings.root, member) / "data", settings.commitlog_file_size)
    return CommitLog(disk, settings, SystemClock(), bytes(8), QueueOffsets())


def batch_topics(root: Path) -> frozenset[str]:
    """Topics whose queues have units of another kind, one for each batch."""

    def parse(text: bytes) -> frozenset[str]:
        table = beans.decode(TopicConfigSerializeWrapper, text).topic_config_table
        return frozenset(name for name, config in table.items() if config.is_batch_queue)

    return load(root / FOLDER / "topics.json", parse) or frozenset()
