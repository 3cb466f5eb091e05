"""Requests about the broker itself: status, configuration, cleaning up."""

from __future__ import annotations

from functools import partial

from flaremq.base.errors import PeerError
from flaremq.base.logs import fields as logged
from flaremq.base.logs import logger
from flaremq.base.settings import parse_properties
from flaremq.broker.configuration import Configuration
from flaremq.broker.offload import Offload
from flaremq.broker.stats.runtime import Runtime
from flaremq.broker.stats.stats import Stats
from flaremq.broker.tables.delayoffsets import DelayOffsets
from flaremq.broker.tables.requestmodes import RequestModes
from flaremq.protocol import beans, fields
from flaremq.protocol.bodies.cluster import KVTable
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command, response_to
from flaremq.protocol.headers import broker as headers
from flaremq.remoting.router import Handler, Peer
from flaremq.store.store import MessageStore

log = logger("broker.handlers.admin_broker")


class AdminBrokerHandlers:
    def __init__(
        self,
        store: MessageStore,
        stats: Stats,
        runtime: Runtime,
        configuration: Configuration,
        offload: Offload,
        delays: DelayOffsets,
        *,
        modes: RequestModes,
    ) -> None:
        self._store = store
        self._modes = modes
        self._delays = delays
        self._stats = stats
        self._runtime = runtime
        self._configuration = configuration
        self._offload = offload

    def table(self) -> dict[int, Handler]:
        code = RequestCode
        return {
            code.GET_BROKER_RUNTIME_INFO: self.get_runtime_info,
            code.UPDATE_BROKER_CONFIG: self.update_config,
            code.GET_BROKER_CONFIG: self.get_config,
            code.VIEW_BROKER_STATS_DATA: self.view_stats,
            code.CLEAN_EXPIRED_CONSUMEQUEUE: self.clean_queues,
            code.DELETE_EXPIRED_COMMITLOG: self.delete_log_files,
            code.GET_ALL_DELAY_OFFSET: self.get_delay_offsets,
            code.GET_ALL_MESSAGE_REQUEST_MODE: self.get_request_modes,
        }

    async def get_runtime_info(self, _peer: Peer, request: Command) -> Command:
        measured = await self._offload.run(self._runtime.measured)
        return response_to(request, body=beans.encode(KVTable(table=self._runtime.table(*measured))))

    async def update_config(self, peer: Peer, request: Command) -> Command:
        """Change settings now, and in the broker's file. An empty body changes nothing, as in Java."""
        try:
            text = bytes(request.body or b"").decode("utf-8")
        except UnicodeDecodeError as error:
            raise PeerError(f"the settings are not UTF-8 text: {error}") from None
        given = parse_properties(text)
        log.info("request to change settings", extra=logged(by=peer.address, names=",".join(given)))
        self._configuration.update(given)
        why_not_kept = (
            await self._offload.run(partial(self._configuration.file.keep, given)) if given else None
        )
        return response_to(request, remark=why_not_kept)

    async def get_config(self, _peer: Peer, request: Command) -> Command:
        version = beans.encode(self._configuration.version).decode()
        header = headers.GetBrokerConfigResponseHeader(version=version)
        body = self._configuration.text().encode("utf-8", "replace")
        return response_to(request, ext_fields=fields.encode(header), body=body)

    async def view_stats(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.ViewBrokerStatsDataRequestHeader, request.fields)
        found = self._stats.view(header.stats_name, header.stats_key)
        if found is None:
            remark = f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            return response_to(request, ResponseCode.SYSTEM_ERROR, remark)
        return response_to(request, body=beans.encode(found))

    async def clean_queues(self, peer: Peer, request: Command) -> Command:
        """Queues drop entries of deleted files anyway; on this request, all do so in the next round."""
        log.info("request to clean queues", extra=logged(by=peer.address))
        self._store.retention.request_correction()
        return response_to(request)

    async def delete_log_files(self, peer: Peer, request: Command) -> Command:
        log.warning("request to delete expired log files now", extra=logged(by=peer.address))
        self._store.clean_now()
        return response_to(request)

    async def get_delay_offsets(self, _peer: Peer, request: Command) -> Command:
        """For slaves: how far each delay level is delivered."""
        end = {headers.LOG_END: str(self._store.log.end)}
        return response_to(request, ext_fields=end, body=beans.encode(self._delays.wrapper()))

    async def get_request_modes(self, _peer: Peer, request: Command) -> Command:
        """For slaves."""
        return response_to(request, body=beans.encode(self._modes.wrapper()))
