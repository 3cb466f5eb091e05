"""Requests that have lain unread for too long, at the sockets of a broker process that was held up."""

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial
from pathlib import Path

from tests.remoting.live import TOPIC, Rude

from flaremq.protocol.codes import ResponseCode
from flaremq.protocol.frame import encode_frame
from flaremq.testing.cluster import Cluster, eventually
from flaremq.testing.fakes.wireclient import send_request

HELD_S = 0.3


async def is_served(rude: Rude) -> bool:
    """A busy machine may hold the broker up for a moment as well."""
    (answer,) = await rude.ask(send_request(TOPIC, 0, b"warm"))
    return answer.code == ResponseCode.SUCCESS


async def test_sends_that_waited_for_a_held_up_broker_are_refused_also_those_of_a_steady_sender(
    tmp_path: Path,
) -> None:
    """The steady sender's last bytes are young whenever somebody looks; its first are not."""
    loop = asyncio.get_running_loop()
    with Cluster(tmp_path) as cluster:
        broker = cluster.broker(waitTimeMillsInSendQueue=50)
        single, steady = await Rude.at(broker.port), await Rude.at(broker.port)
        for rude in (single, steady):
            await eventually("it is served", partial(is_served, rude))
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            began_s, said = loop.time(), 0
            await single.say(encode_frame(send_request(TOPIC, 0, b"single")))

            async def say_more() -> bool:
                nonlocal said
                await steady.say(encode_frame(send_request(TOPIC, 0, b"steady", opaque=said)))
                said += 1
                return loop.time() - began_s > HELD_S

            await eventually("the broker was held up for long enough", say_more)
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        answers = [await single.hear(), await steady.hear()]
        assert [each.code for each in answers] == [ResponseCode.SYSTEM_BUSY] * 2
        assert all((each.remark or "").startswith("[TIMEOUT_CLEAN_QUEUE]broker busy") for each in answers)
        await eventually("it is served again", partial(is_served, single))
        for rude in (single, steady):
            rude.hang_up()
