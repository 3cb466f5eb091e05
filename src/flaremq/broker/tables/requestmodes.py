"""How groups want to be given the messages of a topic: by pull or by pop. Kept in messageRequestMode.json.

Nothing here acts on it yet. A slave keeps what its master told, and a broker that was RocketMQ's keeps what
it had, so that it is there when it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from flaremq.broker.offload import Offload
from flaremq.broker.tables.configfile import ConfigFile, Saving
from flaremq.protocol import beans
from flaremq.protocol.bodies.pop import MessageRequestModeSerializeWrapper, SetMessageRequestModeRequestBody

_Modes = Mapping[str, SetMessageRequestModeRequestBody]
"""By group."""


class RequestModes:
    """By topic and group."""

    def __init__(self, file: ConfigFile, offload: Offload) -> None:
        self._saving = Saving(file, offload, self._take)
        self._table: dict[str, _Modes] = {}

    def load(self) -> None:
        """Load the file. Blocks."""
        kept = self._saving.file.load_as(lambda text: beans.decode(MessageRequestModeSerializeWrapper, text))
        if kept is not None:
            self._table = dict(kept.message_request_mode_map)

    @property
    def dirty(self) -> bool:
        return self._saving.dirty

    async def save(self) -> None:
        await self._saving.save()

    def wrapper(self) -> MessageRequestModeSerializeWrapper:
        """A copy of the table."""
        return MessageRequestModeSerializeWrapper(message_request_mode_map=dict(self._table))

    def replace(self, told: MessageRequestModeSerializeWrapper) -> None:
        """Take over the table of a slave's master."""
        if self._table != told.message_request_mode_map:
            self._table = dict(told.message_request_mode_map)
            self._saving.changes += 1

    def _take(self) -> Callable[[], bytes]:
        wrapper = self.wrapper()
        return lambda: beans.encode(wrapper)
