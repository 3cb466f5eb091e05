"""A driver of its own that fills an archive until its stdin ends, or once. Tests start it, and kill it.

python -m tests.spark.archivedriver '{"namesrv": ..., "topic": ..., "to": ..., "master": ..., "once": false}'
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

from flaremq.base.errors import FlareError
from flaremq.spark.pipelines.archive import ArchivePlan, archive, start_archive
from flaremq.spark.plan import SessionPlan
from flaremq.spark.session import opened_session


def wait_for_end(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


def main() -> int:
    said = json.loads(sys.argv[1])
    plan = ArchivePlan(
        namesrv=said["namesrv"],
        topics=(said["topic"],),
        to=Path(said["to"]),
        format=said["format"],
        offsets_max=said["offsets_max"],
        interval_s=0.0,
        options={"brokerTimeout": "120s"},
    )
    session = SessionPlan(master=said["master"], jvm_options=("-XX:TieredStopAtLevel=1",))
    try:
        with opened_session(session) as spark:
            if said["once"]:
                print(archive(spark, plan).rows, flush=True)
                return 0
            with start_archive(spark, plan) as running:
                ended = threading.Event()
                threading.Thread(target=wait_for_end, args=(ended,), daemon=True).start()
                while not ended.is_set() and not running.wait(0.5):
                    pass
    except FlareError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # A thread may still be reading our stdin.
