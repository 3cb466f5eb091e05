"""JSON documents about a store folder."""

from __future__ import annotations

from pathlib import Path

from flaremq.base.text import both
from flaremq.store.offline.folder import StoreFacts
from flaremq.store.offline.report import VerifyReport


def facts_document(facts: StoreFacts) -> dict[str, object]:
    checkpoint = facts.checkpoint
    return {
        "folder": str(facts.root),
        "held_by_pid": facts.holder,
        "abort_file": facts.has_abort,
        "log": {
            "begin": facts.log_begin,
            "end": facts.log_end,
            "bytes": facts.log_bytes,
            **both("first_stored_at", facts.first_ms),
            **both("last_stored_at", facts.last_ms),
            "files": [
                {"path": str(file.path), "offset": file.offset, "size": file.size} for file in facts.log_files
            ],
        },
        "queues": [
            {
                "topic": queue.topic,
                "queue_id": queue.queue_id,
                "min_offset": queue.min_offset,
                "max_offset": queue.max_offset,
                "files": queue.files,
                "bytes": queue.bytes,
            }
            for queue in facts.queues
        ],
        "index": [
            {
                "path": str(each.path),
                "size": each.size,
                "entries": each.header.next_entry - 1,
                "begin_offset": each.header.begin_offset,
                "end_offset": each.header.end_offset,
                **both("begin_at", each.header.begin_ms),
                **both("end_at", each.header.end_ms),
            }
            for each in facts.index
        ],
        "checkpoint": checkpoint
        and {
            **both("log_time", checkpoint.log_time_ms),
            **both("queue_time", checkpoint.queue_time_ms),
            **both("index_time", checkpoint.index_time_ms),
        },
        "odd": facts.odd,
    }


def report_document(folder: Path, report: VerifyReport) -> dict[str, object]:
    return {
        "folder": str(folder),
        "sound": report.is_sound,
        "records": report.records,
        "bytes": report.bytes,
        "queue_entries": report.entries,
        "index_entries": report.index_entries,
        "problems_count": report.problems_count,
        "problems": report.problems,
        "notes": report.notes,
    }
