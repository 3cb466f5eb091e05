"""Requests to send, many at once: what all messages to a queue have in common is written once."""

from __future__ import annotations

from typing import Final

from flaremq.client.producer.packing import Packer, Parcel, Ready, Sender, message_text, property_text
from flaremq.model.message import Message, MessageQueue
from flaremq.model.names import AUTO_CREATE_TOPIC
from flaremq.protocol.bulk.frames import send_frame
from flaremq.protocol.codes import CURRENT_VERSION, LanguageCode, RequestCode
from flaremq.protocol.fastjson import quote

_BEHIND: Final = f',"serializeTypeCurrentRPC":"JSON","version":{int(CURRENT_VERSION)}}}'.encode()


class FrameMaker:
    """Makes the frames of one producer. They say exactly what the plain way says (Sender.request)."""

    def __init__(self, sender: Sender, packer: Packer) -> None:
        self._sender = sender
        self._packer = packer
        self._templates: dict[MessageQueue, tuple[bytes, bytes, bytes]] = {}
        self._of_batches: dict[MessageQueue, tuple[bytes, bytes, bytes]] = {}

    def frame(
        self, message: Message | Ready, queue: MessageQueue, message_id: str, born_ms: int, opaque: int
    ) -> bytes:
        """Raises MessageIllegal or InvalidName for a message that no broker would take."""
        self._packer.check(message)
        template = self._templates.get(queue) or self._template(queue)
        body, sys_flag = self._packer.squeezed(message.body)
        text = message.text if isinstance(message, Ready) else message_text(message, message_id)
        return send_frame(template, text, body, (sys_flag, born_ms, message.flag, opaque))

    def parcel_frame(self, parcel: Parcel, queue: MessageQueue, born_ms: int, opaque: int) -> bytes:
        """The same for a parcel that is no retry, whose header says more."""
        if parcel.is_batch:
            template = self._of_batches.get(queue) or self._template(queue, is_batch=True)
        else:
            template = self._templates.get(queue) or self._template(queue)
        numbers = (parcel.sys_flag, born_ms, parcel.flag, opaque)
        return send_frame(template, property_text(parcel.properties), parcel.body, numbers)

    def _template(self, queue: MessageQueue, *, is_batch: bool = False) -> tuple[bytes, bytes, bytes]:
        sender = self._sender
        code = RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2
        batch = "true" if is_batch else "false"
        before = (
            f'{{"code":{int(code)},"extFields":{{"a":{quote(sender.group)},'
            f'"b":{quote(queue.topic)},"c":"{AUTO_CREATE_TOPIC}","d":"{sender.topic_queues}",'
            f'"e":"{queue.queue_id}","f":"'
        )
        between = (
            f',"j":"0","k":"false","m":"{batch}","n":{quote(queue.broker_name)}}},"flag":0,'
            f'"language":"{LanguageCode.PYTHON.name}","opaque":'
        )
        made = before.encode(), between.encode(), _BEHIND
        (self._of_batches if is_batch else self._templates)[queue] = made
        return made
