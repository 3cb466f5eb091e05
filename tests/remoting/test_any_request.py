"""Requests of every code with fields and bodies of every kind: each is answered, and nothing breaks.

Most of them are nearly right, so that they get past the first check and into the handlers.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.remoting.live import TOPIC, Rude, servers

from flaremq.protocol.codes import RequestCode, SerializeType
from flaremq.protocol.command import Command
from flaremq.protocol.frame import encode_frame

NUMBERS = (
    *("queueId", "offset", "queueOffset", "maxMsgNums", "sysFlag", "commitOffset", "suspendTimeoutMillis"),
    *("subVersion", "perm", "readQueueNums", "writeQueueNums", "timestamp", "brokerId", "bodyCrc32"),
    *("beginTimestamp", "endTimestamp", "maxNum", "index", "count", "delayLevel", "topicSeq", "groupSeq"),
    *("maxTopicNum", "maxGroupNum", "flag", "bornTimestamp", "defaultTopicQueueNums", "reconsumeTimes"),
    *("maxReconsumeTimes", "topicSysFlag", "invisibleTime", "pollTime", "maxMsgBytes", "requestSource"),
    *("heartbeatTimeoutMillis", *"defghjl"),
)
TRUTHS = (
    *("isForce", "compressed", "batch", "unitMode", "setZeroIfNotFound", "order", "isOrder", "offline"),
    *("cleanOffset", "jstackEnable", "readable", "committed", "_UNIQUE_KEY_QUERY", "force", "lo", *"km"),
)
TOPICS = ("topic", "b", "originTopic")
GROUPS = (
    "group",
    "consumerGroup",
    "producerGroup",
    "groupName",
    "srcGroup",
    "destGroup",
    "compareGroup",
    "a",
)
WORDS = (
    *("key", "subscription", "expressionType", "topicFilterType", "clientId", "clientID", "msgId", "value"),
    *("brokerName", "brokerAddr", "clusterName", "haServerAddr", "cluster", "namespace", "statsName"),
    *("statsKey", "attributes", "boundaryType", "dataVersion", "filterGroups", "topicList", "properties"),
    *(
        "defaultTopic",
        "originMsgId",
        "clientAddr",
        "ns",
        "nsd",
        "bname",
        "c",
        "i",
        "n",
        "username",
        "subject",
    ),
)
WILD = (
    *("", "0", "-1", "7", "1000", str(2**31 - 1), str(-(2**31)), str(2**31), str(2**63 - 1), str(2**64)),
    *("true", "maybe", "*", "TAG", "SQL92", "a > 1", "a >", "TBW102", "%RETRY%g", "%DLQ%g", "../../x", "1e3"),
    *("RMQ_SYS_TRACE_TOPIC", "SCHEDULE_TOPIC_XXXX", "broker-a", "+a=b,-c", "\x01\x02", "127.0.0.1:1", " 1 "),
    *("x" * 300, "\u00e4\U0001f600", "\x00", "a;b;c", "{", '{"counter":1}', "SINGLE_TAG", "TOPIC_PUT_NUMS"),
)
BODIES = (
    *(None, b"", b"{}", b"[]", b"null", b'"x"', b"{", b"a=b", b"\xff\xfe", b"x\x9c\x03\x00", b"1", bytes(40)),
    *(
        b'{"clientID":null}',
        b'{"consumerDataSet":[{}],"clientID":"c"}',
        b'{"clientID":7,"producerDataSet":{}}',
    ),
    b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":null}]}]}',
    b'{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":9,"subscriptionDataSet":[{"topic":"TopicLive","subString":"a >","expressionType":"SQL92"}]}]}',  # noqa: E501
    b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"TopicLive","subString":"a > 1","expressionType":"SQL92","subVersion":1}]}]}',  # noqa: E501
    b'{"mqSet":[{"topic":"TopicLive"}],"consumerGroup":"g","clientId":"c"}',
    b'{"mqSet":[null],"consumerGroup":"g","clientId":"c"}',
    *(b'{"offsetTable":{1:2}}', b'{"offsetTable":{"t@g":{"x":1}}}', b'{"offsetTable":null}'),
    b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"t":null}}}',
    b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"t":{"topicName":"t","perm":"x"}}}}',
    b'{"groupName":"g","retryMaxTimes":"many"}',
    b'{"groupName":null}',
    b'{"topicConfigList":[{}],"groupConfigList":[{}]}',
    b'{"clientId":"c","group":"g","subscriptionData":null}',
    b'{"clientId":"c","group":"g","subscriptionData":{"topic":"t","subString":"a>","expressionType":"SQL92"}}',
    b"[" * 3000,
    b'{"a":' * 2000,
)
UNFIT = frozenset({RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.UPDATE_BROKER_CONFIG})
"""These may rightly end what the test then asks for."""
CODES = [int(code) for code in RequestCode if code not in UNFIT]


def some_fields(rng: random.Random) -> dict[str, str] | None:
    if rng.random() < 0.03:
        return None
    wildness, found = rng.choice((0.0, 0.02, 0.1, 1.0)), {}
    plain = (
        (NUMBERS, ("0", "1", "3", "100")),
        (TRUTHS, ("true", "false")),
        (TOPICS, (TOPIC, "TopicElse")),
        (GROUPS, ("GID_x", "GID_y")),
        (WORDS, ("x", "*", "DefaultCluster", "127.0.0.1:1", "TAG", "SINGLE_TAG", "TBW102")),
    )
    for names, values in plain:
        for name in names:
            if rng.random() > 0.01:
                found[name] = rng.choice(WILD if rng.random() < wildness else values)
    return found


def a_request(rng: random.Random) -> Command:
    return Command(
        code=rng.choice(CODES) if rng.random() < 0.97 else rng.randrange(-(2**31), 2**31),
        opaque=rng.randrange(-(2**31), 2**31),
        flag=rng.choice((0, 0, 0, 0, 1, 2, 3, -1)),
        ext_fields=some_fields(rng),
        body=rng.choice(BODIES) if rng.random() < 0.8 else rng.randbytes(rng.randrange(200)),
        version=rng.choice((0, 79, 253, 401, 479, 2**31 - 1)),
        serialize_type=rng.choice((SerializeType.JSON, SerializeType.ROCKETMQ)),
    )


async def ask_much(folder: Path, door: str, seed: int, rounds: int) -> None:
    """One connection asks all of it, so nothing that was asked before may have broken it either."""
    rng = random.Random(f"{door}-{seed}")
    with servers(folder) as found:
        async with found.live("TopicOther") as peers:
            await peers.serves()
            rude = await Rude.at(peers.port(door))
            for _ in range(rounds):
                batch = [a_request(rng) for _ in range(rng.randrange(1, 10))]
                await rude.say(b"".join(map(encode_frame, batch)))
                (answer,) = await rude.ask(Command(code=9998, opaque=5))
                while "9998" not in (answer.remark or ""):
                    answer = await rude.hear()
            rude.hang_up()
            await peers.serves()
        assert not found.failures()
        assert (found.broker.stop(), found.namesrv.stop()) == (0, 0)


@pytest.mark.parametrize(("door", "rounds"), [("main", 100), ("vip", 30), ("namesrv", 50)])
async def test_whatever_is_asked_the_next_question_is_answered(
    tmp_path: Path, door: str, rounds: int
) -> None:
    await ask_much(tmp_path, door, 0, rounds)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
@pytest.mark.parametrize("door", ["main", "namesrv"])
async def test_however_much_is_asked_the_next_question_is_answered(
    tmp_path: Path, door: str, seed: int
) -> None:
    await ask_much(tmp_path, door, seed, 2000)
