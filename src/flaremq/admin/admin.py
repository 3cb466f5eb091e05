"""Operating a cluster from a program: topics, groups, messages, transactions, brokers, NameServers, health.

    async with Admin("127.0.0.1:9876") as admin:
        await admin.topics.create("orders", TopicSettings(read_queues=4, write_queues=4))
        progress = await admin.groups.progress("billing")

Works with RocketMQ 4.9 and 5.x as well. NotServed is raised for what a server's version does not have.
Blocking programs use `flaremq.admin.sync.Admin`, which has the same parts and methods.
"""

from __future__ import annotations

import random
from typing import Self

from flaremq.admin.brokers import Brokers
from flaremq.admin.groups import Groups
from flaremq.admin.health import Checkups
from flaremq.admin.messages.deadletters import DeadLetterQueues
from flaremq.admin.messages.messages import Messages
from flaremq.admin.messages.transactions import Halves
from flaremq.admin.namesrvs import Namesrvs
from flaremq.admin.raft import RaftGroups
from flaremq.admin.servers import ServerCalls
from flaremq.admin.topics import Topics
from flaremq.base.errors import UsageError
from flaremq.client import forks
from flaremq.client.api import Api
from flaremq.client.client import settings_of
from flaremq.client.namesrvs import NameServerPool
from flaremq.client.settings import ClientSettings
from flaremq.remoting.caller import Caller
from flaremq.remoting.settings import CallerSettings


class Admin:
    """Lives in one event loop, from `start` to `stop`; `async with` does both."""

    def __init__(self, namesrv: str | None = None, *, settings: ClientSettings | None = None) -> None:
        """By default the environment names the NameServers (see ClientSettings)."""
        self.settings = settings_of(namesrv, settings)
        caller_settings = CallerSettings(connect_timeout_ms=round(self.settings.connect_timeout_s * 1000))
        self._caller = Caller(caller_settings, None, self.settings.tls)
        namesrvs = NameServerPool(self.settings.addresses, self._caller, random.Random())
        self._servers = servers = ServerCalls(Api(self._caller, namesrvs, self.settings.timeout_s))
        self._stopped = False
        self.topics = Topics(servers)
        self.groups = Groups(servers)
        self.brokers = Brokers(servers)
        self.messages = Messages(servers)
        self.dead_letters = DeadLetterQueues(servers)
        self.transactions = Halves(servers)
        self.namesrvs = Namesrvs(servers)
        self.health = Checkups(servers)
        self.raft = RaftGroups(servers)

    async def start(self) -> None:
        """Idempotent. Connections are made later, when needed."""
        if self._stopped:
            raise UsageError("this Admin is stopped: create another one")
        forks.note(self._caller)

    async def stop(self) -> None:
        """Close all connections. Idempotent."""
        if not self._stopped:
            self._stopped = True
            self._servers.close()
            await self._caller.aclose()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
