"""Commands for tests of the protocol, ordinary and strange."""

from __future__ import annotations

from hypothesis import strategies as st

from flaremq.protocol.codes import LanguageCode, SerializeType
from flaremq.protocol.command import Command

int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int16 = st.integers(-(1 << 15), (1 << 15) - 1)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
body = st.none() | st.binary(min_size=1, max_size=60)

json_commands = st.builds(
    Command,
    code=int32,
    opaque=int32,
    flag=int32,
    ext_fields=st.none() | st.dictionaries(text, text, max_size=4),
    body=body,
    remark=st.none() | text,
    language=st.sampled_from(LanguageCode),
    version=int32,
)
compact_commands = st.builds(
    Command,
    code=st.integers(0, 3000),
    opaque=int32,
    flag=int32,
    ext_fields=st.none() | st.dictionaries(text, text.filter(bool), min_size=1, max_size=4),
    body=body,
    remark=st.none() | text.filter(bool),
    language=st.sampled_from(LanguageCode),
    version=int16,
    serialize_type=st.just(SerializeType.ROCKETMQ),
)
commands = json_commands | compact_commands


def a_send(**changes: str | None) -> Command:
    """A send by letters as a Java client writes it; None leaves a field out."""
    fields: dict[str, str | None] = {
        "a": "pg",
        "b": "TopicTest",
        "c": "TBW102",
        "d": "4",
        "e": "3",
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": "UNIQ_KEY\x01U1\x02WAIT\x01true\x02TAGS\x01TagA\x02",
        "j": "0",
        "k": "false",
        "m": "false",
        "n": "broker-a",
    }
    fields.update(changes)
    given = {name: value for name, value in fields.items() if value is not None}
    return Command(
        code=310, opaque=7, ext_fields=given, body=b"hello", language=LanguageCode.JAVA, version=479
    )


def a_pull(**changes: str | None) -> Command:
    fields: dict[str, str | None] = {
        "consumerGroup": "g1",
        "topic": "TopicTest",
        "queueId": "2",
        "queueOffset": "40",
        "maxMsgNums": "32",
        "sysFlag": "3",
        "commitOffset": "39",
        "suspendTimeoutMillis": "15000",
        "subVersion": "1700000000000",
        "expressionType": "TAG",
        "maxMsgBytes": "262144",
        "bname": "b",
    }
    fields.update(changes)
    given = {name: value for name, value in fields.items() if value is not None}
    return Command(code=11, opaque=9, ext_fields=given, language=LanguageCode.JAVA, version=479)
