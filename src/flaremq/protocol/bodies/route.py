"""Bodies about routes: where the queues of a topic are, and the registration of brokers.

A registration has two forms. The plain one is JSON. The compressed one is a zlib stream of parts, each after
its length in 4 bytes, where a topic is one line of text; the order and sys flag of a topic are lost in it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from flaremq.base.errors import Malformed
from flaremq.model.columns import Bytes
from flaremq.model.properties import decode_text
from flaremq.model.topic import DataVersion, TopicConfig
from flaremq.protocol import beans, fastjson
from flaremq.protocol.codes import Version

MASTER_ID: Final = 0

_ZLIB: Final = 0x78  # The first byte of a zlib stream; JSON begins with a brace.
_INFLATED_MAX: Final = 256 * 1024 * 1024  # A registration of a million topics takes half of it.
_INT: Final = struct.Struct(">i")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueData:
    """How many queues a topic has on one broker, and what may be done with them."""

    broker_name: str
    read_queue_nums: int = 0
    write_queue_nums: int = 0
    perm: int = 0
    topic_sys_flag: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerData:
    """The addresses of a master (id 0) and its slaves."""

    cluster: str | None = None
    broker_name: str
    broker_addrs: Mapping[int, str] = field(default_factory=dict)
    zone_name: str | None = None
    enable_acting_master: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicQueueMappingInfo:
    """The part of a static topic that one broker holds."""

    topic: str | None = None
    scope: str | None = None
    total_queues: int = 0
    bname: str | None = None
    epoch: int = 0
    dirty: bool = False
    curr_id_map: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRouteData:
    order_topic_conf: str | None = None
    """`broker-a:4;broker-b:4` for an ordered topic."""
    queue_datas: tuple[QueueData, ...] = ()
    broker_datas: tuple[BrokerData, ...] = ()
    filter_server_table: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    topic_queue_mapping_by_broker: Mapping[str, TopicQueueMappingInfo] | None = None
    """Left out unless the topic is static: one that is not empty makes clients count logical queues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfigSerializeWrapper:
    """All topics of a broker. The last three are for static topics, and absent before version 5."""

    data_version: DataVersion = field(default_factory=DataVersion)
    topic_config_table: Mapping[str, TopicConfig] = field(default_factory=dict)
    mapping_data_version: DataVersion | None = None
    topic_queue_mapping_detail_map: Mapping[str, object] | None = None
    topic_queue_mapping_info_map: Mapping[str, TopicQueueMappingInfo] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerBody:
    topic_config_serialize_wrapper: TopicConfigSerializeWrapper = TopicConfigSerializeWrapper()
    filter_server_list: tuple[str, ...] = ()


def decode_registration(body: Bytes | None, version: int) -> RegisterBrokerBody:
    """A registration. Its first byte says whether it is compressed: headers of Java 5 do not."""
    if body is None or not len(body):
        return RegisterBrokerBody()
    if version < Version.V3_0_11:
        return RegisterBrokerBody(
            topic_config_serialize_wrapper=beans.decode(TopicConfigSerializeWrapper, body)
        )
    if body[0] != _ZLIB:
        return beans.decode(RegisterBrokerBody, body)
    pieces = _Pieces(_inflated(bytes(body)))
    data_version = beans.decode(DataVersion, next(pieces))
    topics = {topic.topic_name: topic for topic in map(_topic_of_line, _counted(pieces))}
    filter_servers = fastjson.loads(next(pieces))
    if not isinstance(filter_servers, list):
        raise Malformed("a registration whose filter servers are not a list")
    mappings = None
    if version >= Version.V5_0_0:
        infos = (beans.decode(TopicQueueMappingInfo, piece) for piece in _counted(pieces))
        mappings = {info.topic: info for info in infos if info.topic is not None}
    return RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
            data_version=data_version, topic_config_table=topics, topic_queue_mapping_info_map=mappings
        ),
        filter_server_list=tuple(str(each) for each in filter_servers),
    )


def encode_registration_compressed(body: RegisterBrokerBody) -> bytes:
    wrapper = body.topic_config_serialize_wrapper
    infos = wrapper.topic_queue_mapping_info_map or {}
    pieces = [
        _with_size(beans.encode(wrapper.data_version)),
        _INT.pack(len(wrapper.topic_config_table)),
        *(_with_size(_line_of_topic(topic)) for topic in wrapper.topic_config_table.values()),
        _with_size(fastjson.dumps(list(body.filter_server_list))),
        _INT.pack(len(infos)),
        *(_with_size(beans.encode(info)) for info in infos.values()),
    ]
    return zlib.compress(b"".join(pieces), zlib.Z_BEST_COMPRESSION)


def _inflated(body: bytes) -> bytes:
    inflate = zlib.decompressobj()
    try:
        data = inflate.decompress(body, _INFLATED_MAX)
    except zlib.error as error:
        raise Malformed(f"a registration that cannot be decompressed: {error}") from None
    if inflate.unconsumed_tail or not inflate.eof:
        raise Malformed(f"a registration that is cut off, or of more than {_INFLATED_MAX} bytes")
    return data


class _Pieces(Iterator[bytes]):
    """Reads parts, each after its length; a count is a length without a part."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self) -> int:
        if self._at + 4 > len(self._data):
            raise Malformed(f"a registration that ends at byte {len(self._data)}", self._at)
        found: int = _INT.unpack_from(self._data, self._at)[0]
        self._at += 4
        if not 0 <= found <= len(self._data) - self._at:
            raise Malformed(f"a registration with a length of {found}", self._at - 4)
        return found

    def __next__(self) -> bytes:
        size = self.number()
        self._at += size
        return self._data[self._at - size : self._at]


def _counted(pieces: _Pieces) -> Iterator[bytes]:
    for _ in range(pieces.number()):
        yield next(pieces)


def _with_size(piece: bytes) -> bytes:
    return _INT.pack(len(piece)) + piece


def _line_of_topic(topic: TopicConfig) -> bytes:
    """`name readQueues writeQueues perm filterType attributes`."""
    attributes = fastjson.dumps(dict(topic.attributes)).decode()
    words = (topic.topic_name, topic.read_queue_nums, topic.write_queue_nums, topic.perm)
    return " ".join((*map(str, words), topic.topic_filter_type.name, attributes)).encode()


def _topic_of_line(line: bytes) -> TopicConfig:
    """The lines of brokers before version 5 have no attributes."""
    words = decode_text(line).split(" ", 5)
    if len(words) < 5:
        raise Malformed(f"a registered topic of {len(words)} words: {words!r}")
    return TopicConfig.from_dict(
        {
            "topicName": words[0],
            "readQueueNums": words[1],
            "writeQueueNums": words[2],
            "perm": words[3],
            "topicFilterType": words[4],
            "attributes": fastjson.load_object(words[5]) if words[5:] and words[5] else {},
        }
    )
