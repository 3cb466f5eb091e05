"""What drivers have in common that tests start as processes of their own, and kill."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from flaremq.base.errors import FlareError
from flaremq.spark.errors import spark_error
from flaremq.spark.launch.plan import SessionPlan
from flaremq.spark.launch.session import RAISED, opened_session


def stdin_ended() -> threading.Event:
    ended = threading.Event()

    def read() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=read, daemon=True).start()
    return ended


def play(run: Callable[[SparkSession, dict[str, Any]], None]) -> None:
    """Run it in a session, with what the command line says, and end the process. An error is one line."""
    said, code = json.loads(sys.argv[1]), 0
    plan = SessionPlan(master=said["master"], jvm_options=("-XX:TieredStopAtLevel=1",))
    try:
        with opened_session(plan) as spark:
            try:
                run(spark, said)
            except RAISED as error:
                raise spark_error(error) from error
    except FlareError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        code = 1
    sys.stdout.flush()
    os._exit(code)  # A thread may still be reading our stdin.
