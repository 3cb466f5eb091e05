"""NameServers: their settings, and their key-value table."""

from __future__ import annotations

from collections.abc import Mapping

from flaremq.admin.servers import ServerAddress, ServerCalls
from flaremq.admin.values.brokers import Settings
from flaremq.admin.values.outcome import Answers
from flaremq.admin.wording import settings_of_text, settings_to_text
from flaremq.base.errors import FlareError, InvalidParameter
from flaremq.client.api import body_of, header_of
from flaremq.protocol import fields
from flaremq.protocol.bodies.cluster import KVTable
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.headers import namesrv as headers


class Namesrvs:
    def __init__(self, servers: ServerCalls) -> None:
        self._servers = servers

    async def addresses(self) -> tuple[str, ...]:
        """The configured addresses."""
        return self._servers.api.namesrvs.addresses

    async def config(self) -> Answers[Settings]:
        """The settings of each NameServer."""

        async def ask(server: ServerAddress) -> Settings:
            answer = await self._servers.api.ask(server.address, RequestCode.GET_NAMESRV_CONFIG)
            return Settings(server.name, server.address, settings_of_text(answer.body))

        found = await self._servers.each(self._servers.namesrvs(), ask, "settings of NameServers")
        return Answers(tuple(found.found.values()), found.failed)

    async def update_config(self, changes: Mapping[str, str]) -> tuple[str, ...]:
        """Change these settings on all NameServers. Returns the addresses of those that did."""
        code, body = RequestCode.UPDATE_NAMESRV_CONFIG, settings_to_text(changes)
        return await self._tell(code, None, body, "settings of NameServers")

    async def kv_put(self, namespace: str, key: str, value: str) -> tuple[str, ...]:
        """Set a value on all NameServers: they do not share it."""
        _check(namespace, key)
        if not value:
            raise InvalidParameter(f"the value of {namespace}/{key} is empty: delete the key instead")
        header = headers.PutKVConfigRequestHeader(namespace=namespace, key=key, value=value)
        return await self._tell(RequestCode.PUT_KV_CONFIG, header, None, f"{namespace}/{key}")

    async def kv_get(self, namespace: str, key: str) -> str | None:
        """The value of a key; None if it does not exist."""
        _check(namespace, key)
        header = headers.GetKVConfigRequestHeader(namespace=namespace, key=key)
        try:
            answer = await self._servers.api.ask_namesrv(RequestCode.GET_KV_CONFIG, header)
        except FlareError as error:
            if error.response_code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        return header_of(headers.GetKVConfigResponseHeader, answer).value

    async def kv_delete(self, namespace: str, key: str) -> tuple[str, ...]:
        """Delete a key on all NameServers. One without the key counts as done."""
        _check(namespace, key)
        header = headers.DeleteKVConfigRequestHeader(namespace=namespace, key=key)
        return await self._tell(RequestCode.DELETE_KV_CONFIG, header, None, f"{namespace}/{key}")

    async def kv_list(self, namespace: str) -> Mapping[str, str]:
        """All keys of a namespace; empty if it does not exist."""
        _check(namespace, "any")
        header = headers.GetKVListByNamespaceRequestHeader(namespace=namespace)
        try:
            answer = await self._servers.api.ask_namesrv(RequestCode.GET_KVLIST_BY_NAMESPACE, header)
        except FlareError as error:
            if error.response_code == ResponseCode.QUERY_NOT_FOUND:
                return {}
            raise
        return body_of(KVTable, answer).table

    async def _tell(
        self, code: RequestCode, header: fields.Header | None, body: bytes | None, what: str
    ) -> tuple[str, ...]:
        async def tell(server: ServerAddress) -> None:
            await self._servers.api.ask(server.address, code, header, body)

        return tuple(await self._servers.every(self._servers.namesrvs(), tell, what))


def _check(namespace: str, key: str) -> None:
    if not namespace.strip() or not key.strip():
        raise InvalidParameter(f"namespace {namespace!r}, key {key!r}: neither may be empty")
