"""Prepared messages ("halves") on their way into the topic in which nobody sees them."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from flaremq.base.errors import MessageIllegal, NoPermission
from flaremq.base.live import Live
from flaremq.broker.send.rewrites import Arrival
from flaremq.broker.settings import BrokerSettings
from flaremq.model import names, properties, sysflag
from flaremq.store.drafts import NewMessage

HALF_TOPIC: Final = names.TRANS_HALF_TOPIC.encode()
OP_TOPIC: Final = names.TRANS_OP_HALF_TOPIC.encode()
PARKED_TOPIC: Final = names.TRANS_CHECK_MAX_TIME_TOPIC.encode()


class HalfRewrite:
    """Hides a message with TRAN_MSG until its transaction ends. A delay that it asks for begins then."""

    def __init__(self, settings: Live[BrokerSettings]) -> None:
        self._live = settings

    def __call__(self, message: NewMessage, known: dict[str, str], _arrival: Arrival) -> NewMessage:
        if known.get(properties.TRANSACTION_PREPARED, "").lower() != "true" or _is_retry(message, known):
            return message
        settings = self._live.now
        if settings.reject_transactions:
            raise NoPermission(f"the broker[{settings.ip1}] sending transaction message is forbidden")
        if not known.get(properties.PRODUCER_GROUP, "").strip():
            raise MessageIllegal(
                "a prepared message names no producer group: expected the property PGROUP, "
                "because the broker asks that group how the transaction ended"
            )
        known[properties.REAL_TOPIC] = message.topic.decode()
        known[properties.REAL_QUEUE_ID] = str(message.queue_id)
        known[properties.TRANSACTION_ID] = known[properties.UNIQ_KEY]
        return replace(
            message, topic=HALF_TOPIC, queue_id=0, sys_flag=message.sys_flag & ~sysflag.TRANSACTION_MASK
        )


def _is_retry(message: NewMessage, known: dict[str, str]) -> bool:
    """Whether a consumer sends it back, having failed: clients before 4.6.1 leave TRAN_MSG in it."""
    return message.reconsume_times > 0 and known.get(properties.DELAY, "0") not in ("0", "-1")
