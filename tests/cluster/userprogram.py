"""A program such as a user writes, for tests that look at it from outside, and kill it.

    python userprogram.py produce  '{"namesrv": ..., "topics": [...]}'
    python userprogram.py consume  '{"namesrv": ..., "topics": [...], "group": ..., "consumers": 2}'

What it has sent, or got, it prints as lines of JSON, each before anybody else hears of it: a message
that a killed consumer has not printed was not consumed. SIGTERM ends it in order.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from flaremq.base.errors import FlareError
from flaremq.client.sync import (
    ClientSettings,
    ConsumerSettings,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
)
from flaremq.protocol.bodies.group import ConsumeFromWhere

PACE_S = 0.004
"""Between two messages of a producer."""
LOOK_S = 0.02


def say(**what: object) -> None:
    """One write for one line: threads do not mix, and nothing waits in a buffer."""
    os.write(1, json.dumps(what).encode() + b"\n")


def client(wish: dict[str, Any]) -> ClientSettings:
    return ClientSettings(namesrv=wish["namesrv"], refresh_s=1.0, heartbeat_s=1.0)


def produce(wish: dict[str, Any], asked_to_stop: list[int]) -> None:
    """To all topics in turn. What is not acknowledged is sent once more under another number."""
    number = 0
    with Producer("PID_user", client=client(wish)) as producer:
        say(ready=True)
        while not asked_to_stop:
            time.sleep(PACE_S)
            number += 1
            topic = wish["topics"][number % len(wish["topics"])]
            body = f"{topic}-{number}"
            try:
                receipt = producer.send(Message(topic, body.encode()))
            except FlareError as error:
                say(failed=str(error))
                continue
            say(body=body, broker=receipt.queue.broker_name)


def consumer(wish: dict[str, Any], number: int) -> PushConsumer:
    settings = ConsumerSettings(
        start_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        orderly=wish.get("orderly", False),
        broadcasting=wish.get("broadcasting", False),
        offsets_folder=Path(wish.get("folder", ".")),
        rebalance_s=1.0,
        commit_s=1.0,
    )
    made = PushConsumer(wish["group"], settings=settings, client=client(wish))

    def handler(message: ReceivedMessage) -> None:
        queue = message.queue
        say(
            by=number,
            body=message.body.decode(),
            queue=[queue.topic, queue.broker_name, queue.queue_id],
            offset=message.queue_offset,
            at_s=time.monotonic(),
        )

    for topic in wish["topics"]:
        made.subscribe(topic, handler)
    return made


def consume(wish: dict[str, Any], asked_to_stop: list[int]) -> None:
    consumers = [consumer(wish, number) for number in range(wish.get("consumers", 1))]
    for each in consumers:
        each.start()
    say(ready=True)
    while not asked_to_stop:
        time.sleep(LOOK_S)
    for each in consumers:
        each.stop()


def main() -> None:
    what, wish = sys.argv[1], json.loads(sys.argv[2])
    if wish.get("logs", False):
        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    asked_to_stop: list[int] = []  # An event has a lock, which this thread may hold when the signal comes.
    signal.signal(signal.SIGTERM, lambda number, _: asked_to_stop.append(number))
    faulthandler.enable()
    {"produce": produce, "consume": consume}[what](wish, asked_to_stop)
    say(ended=True)


if __name__ == "__main__":
    main()
