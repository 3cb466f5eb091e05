"""The log of a member of a Raft group: what the broker on top of it, and operators, see of the group.

While the member leads, answers to producers wait until the group has committed their messages. When it leads
no more, those that still wait hear so at once: their messages may be stored, or not.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from flaremq.base.clock import Clock
from flaremq.base.errors import InvalidParameter, NotMaster
from flaremq.base.watermark import Watermark
from flaremq.broker.features import Feature, Figure, Requests
from flaremq.broker.offload import Offload
from flaremq.broker.replicas.logside import GroupTimers, LogSide
from flaremq.broker.replicas.tablereader import TableReader
from flaremq.broker.replicas.tablewriter import TableWriter
from flaremq.broker.role import Role
from flaremq.broker.send.acks import Mark
from flaremq.broker.stats.stats import Stats
from flaremq.broker.tables.tables import Tables
from flaremq.dledger.groupnode import GroupNode, GroupStatus
from flaremq.dledger.scrub.ledgerscrub import LedgerScrub
from flaremq.dledger.types import Membership, Standing
from flaremq.protocol import beans, fields
from flaremq.protocol.bodies.cluster import HAClientRuntimeInfo, HAConnectionRuntimeInfo, HARuntimeInfo
from flaremq.protocol.bodies.raft import RaftGroupStatus, RaftPeer
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command, response_to
from flaremq.protocol.headers.replicas import ChangeMembersHeader, TransferLeadershipHeader
from flaremq.remoting.gate import Origin, Right
from flaremq.remoting.router import Handler, Peer
from flaremq.store.store import MessageStore

_DONE_S: Final = 5.0  # How long an operator waits for a change.
_LOOK_S: Final = 0.02
_ANSWERED: Final = frozenset(
    {
        RequestCode.FLAREMQ_GROUP_STATUS,
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.GET_BROKER_HA_STATUS,
        RequestCode.GET_BROKER_RUNTIME_INFO,
        RequestCode.UPDATE_BROKER_CONFIG,
    }
)
"""What a leader answers even when it may have been replaced."""


@dataclass(frozen=True, slots=True)
class RaftPart:
    """What a member of a group gives to the brokers that serve on it, one after another."""

    node: GroupNode
    store: MessageStore
    committed: Watermark
    """How far the group has committed the log."""
    scrub: LedgerScrub


class LeaseGate:
    """Lets clients of a leader pass as long as nobody else can have been elected."""

    def __init__(self, node: GroupNode) -> None:
        self._node = node

    def check(self, _source: Origin, request: Command) -> None:
        if not self._node.may_answer() and request.code not in _ANSWERED:
            raise NotMaster(
                "this member of the group has not heard from a majority lately, and another one may lead by "
                "now: ask a NameServer who does",
                ResponseCode.SERVICE_NOT_AVAILABLE,
            )

    def admits(self, _source: Origin, _topic: bytes, _right: Right) -> bool:
        return self._node.may_answer()


class RaftSide(LogSide):
    """Of one period in which the member leads, or does not."""

    step = "Raft group"

    def __init__(self, part: RaftPart, role: Role, *, timeout_s: float) -> None:
        """`timeout_s`: so long an answer waits."""
        self._node = part.node
        self._store = part.store
        self._scrub = part.scrub
        self._role = role
        self._timeout_s = timeout_s
        self._of_log = part.committed
        self._committed = Watermark(part.committed.value)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._unwatch: Callable[[], None] = lambda: None
        self.shown = part.store.show
        self.was_cut = lambda: None

    # Life.

    async def start(self) -> None:
        self._unwatch = self._of_log.watch(self._grown)
        self._grown(self._of_log.value)

    async def stop(self) -> None:
        self._unwatch()

    def deposed(self) -> None:
        """This member leads no more: whoever waits for its messages hears so."""
        why = "this member leads its group no more: the message may be stored"
        self._committed.fail(NotMaster(why, ResponseCode.SYSTEM_ERROR))

    def _grown(self, to: int) -> None:
        self._committed.advance(to)
        if not self._role.is_slave:
            return  # Answers that were waiting show what they have stored.
        if threading.get_ident() == self._thread:
            self.shown()
            return
        try:
            self._loop.call_soon_threadsafe(self.shown)
        except RuntimeError:  # The loop has ended, and with it all consumers.
            return

    def tables(
        self, tables: Tables, stats: Stats, timers: GroupTimers, offload: Offload, clock: Clock
    ) -> list[Feature]:
        reader = TableReader(self._store, tables, stats, timers, offload, role=self._role)
        if self._role.is_slave:
            return [reader]
        writer = TableWriter(
            *(self._store, tables, timers, self._committed, clock),
            term=self._node.tables_term,
            shown=lambda: self.shown(),
            timeout_s=self._timeout_s,
        )
        return [reader, writer]

    # What the broker asks.

    def marks(self) -> Iterable[Mark]:
        if not self._role.is_slave:
            yield Mark(
                self._committed,
                late=ResponseCode.SYSTEM_ERROR,
                timeout_s=self._timeout_s,
            )

    @property
    def has_slaves(self) -> bool:
        return not self._role.is_slave and len(self._node.status().membership.ids) > 1

    def is_followed_by(self, host: str) -> bool:  # noqa: ARG002 - Members are known by their ids here.
        return self.has_slaves

    def is_following(self) -> bool:
        return self._role.is_slave and bool(self._node.leader)

    def figures(self) -> Mapping[str, str]:
        now = self._node.status()
        return {
            "raftGroup": now.group,
            "raftMember": now.self_id,
            "raftDuty": now.standing.value,
            "raftTerm": str(now.term),
            "raftLeader": now.leader,
            "raftCommitIndex": str(now.commit),
            "raftLastIndex": str(now.last_index),
            "raftNotFit": now.why_not_fit,
            "raftDamage": now.damage,
            "raftCaution": now.caution,
        }

    def metrics(self) -> Iterable[Figure]:
        now = self._node.status()
        standings = [((each.value,), float(now.standing is each)) for each in Standing]
        text = "What this member of the Raft group is: 1 for its part"
        yield Figure("rocketmq_raft_standing", text, False, ("standing",), standings)
        for name, text, value in (
            ("term", "The term of the Raft group, as far as this member knows", now.term),
            ("commit_index", "The last entry that the group is known to have committed", now.commit),
            ("last_index", "The last entry of this member's log", now.last_index),
            ("synced_index", "The last entry of this member's log that is on its disk", now.synced_index),
            ("fit", "Whether this member could lead: its disk works", not now.why_not_fit),
            ("own_rules", "Whether the group follows FlareMQ's rules, not those of DLedger", not now.caution),
        ):
            yield Figure(f"rocketmq_raft_{name}", text, False, (), [((), value)])
        behind = [((each.member,), each.behind) for each in now.peers if each.behind is not None]
        text = "Entries that another member lacks, as its leader sees it"
        yield Figure("rocketmq_raft_member_behind", text, False, ("member",), behind)
        yield from self._scrub_metrics()

    def _scrub_metrics(self) -> Iterable[Figure]:
        scrub = self._scrub
        for name, text, is_counter, value in (
            (
                "scrubbed_bytes",
                "Bytes of the log that were read again since the start",
                True,
                scrub.scrubbed_bytes,
            ),
            (
                "repaired_entries",
                "Entries that were damaged on the disk, and copied from another member since the start",
                True,
                scrub.repaired_entries,
            ),
            (
                "damaged_entries",
                "Entries that are known to be damaged on the disk, and are not repaired yet",
                False,
                scrub.damaged_entries,
            ),
        ):
            yield Figure(f"rocketmq_raft_{name}", text, is_counter, (), [((), value)])

    def ha_info(self) -> HARuntimeInfo:
        now, end = self._node.status(), self._store.log.confirmed
        addresses = now.membership.addresses
        if now.standing is Standing.LEADER:
            return HARuntimeInfo.of_master(
                end,
                (
                    HAConnectionRuntimeInfo(
                        addr=addresses.get(each.member),
                        slave_ack_offset=max(0, each.matched or 0),
                        diff=each.behind or 0,
                        in_sync=not each.behind,
                    )
                    for each in now.peers
                ),
            )
        client = HAClientRuntimeInfo(
            master_addr=addresses.get(now.leader),
            max_offset=end,
            activated=bool(now.leader),
            flare_state="following" if now.leader else "waiting",
            flare_why=None if now.leader else "the group has no leader at the moment",
        )
        return HARuntimeInfo(master=False, ha_client_runtime_info=client)

    # Requests.

    def handlers(self) -> Iterable[Requests]:
        code = RequestCode
        table: dict[int, Handler] = {
            code.GET_BROKER_HA_STATUS: self.get_ha_status,
            code.FLAREMQ_GROUP_STATUS: self.group_status,
            code.FLAREMQ_GROUP_TRANSFER: self.transfer,
            code.FLAREMQ_GROUP_CHANGE: self.change,
        }
        yield "adminBroker", table

    async def group_status(self, _peer: Peer, request: Command) -> Command:
        return response_to(request, body=beans.encode(_status_body(self._node.status())))

    async def transfer(self, _peer: Peer, request: Command) -> Command:
        """Answered when the other member leads, or has not made it in time."""
        header = fields.decode(TransferLeadershipHeader, request.fields)
        self._node.transfer(header.member)
        if await self._until(lambda: self._node.leader == header.member):
            return response_to(request)
        leader = self._node.leader or "nobody yet"
        return response_to(
            request,
            ResponseCode.SYSTEM_ERROR,
            f"{header.member} does not lead after {_DONE_S:g} s, {leader} does: see `flaremq cluster group` "
            "for what it lacks, and try again",
        )

    async def change(self, _peer: Peer, request: Command) -> Command:
        """Answered when the group has decided on it."""
        header = fields.decode(ChangeMembersHeader, request.fields)
        addresses = _changed(self._node.status().membership.addresses, header.member, header.address)
        index, term = self._node.change(Membership(addresses)), self._node.term
        if await self._until(lambda: self._node.has_decided(index, term)):
            return response_to(request)
        return response_to(
            request,
            ResponseCode.SYSTEM_ERROR,
            f"the group has not decided on this after {_DONE_S:g} s, and may still do so: see "
            "`flaremq cluster group` before trying again",
        )

    async def _until(self, is_so: Callable[[], bool]) -> bool:
        ends_s = self._loop.time() + _DONE_S
        while not is_so():
            if self._loop.time() > ends_s:
                return False
            await asyncio.sleep(_LOOK_S)
        return True


def _changed(addresses: Mapping[str, str], member: str, address: str) -> dict[str, str]:
    """The members with this one at its address, or without it if that is empty."""
    if not address and member not in addresses:
        raise InvalidParameter(f"{member} is no member: expected one of {', '.join(sorted(addresses))}")
    if address and addresses.get(member) == address:
        raise InvalidParameter(f"{member} is a member already, at {address}: nothing is to be done")
    kept = {each: known for each, known in addresses.items() if each != member or address}
    return {**kept, member: address} if address else kept


def _status_body(now: GroupStatus) -> RaftGroupStatus:
    complaints = dict(now.complaints)
    addresses = now.membership.addresses
    return RaftGroupStatus(
        group=now.group,
        member=now.self_id,
        standing=now.standing.value,
        term=now.term,
        leader=now.leader,
        answers=now.answers,
        first_index=now.first_index,
        last_index=now.last_index,
        synced_index=now.synced_index,
        commit_index=now.commit,
        members=tuple(f"{each}-{addresses[each]}" for each in now.membership.ids),
        changed_at=now.membership.index,
        not_fit=now.why_not_fit,
        damage=now.damage,
        last_refusal=now.refused,
        may_vote=now.may_vote,
        caution=now.caution,
        peers=tuple(
            RaftPeer(
                member=each.member,
                address=addresses.get(each.member, ""),
                matched=each.matched,
                behind=each.behind,
                heard_seconds=each.heard_s,
                complaint=complaints.get(each.member, ""),
            )
            for each in now.peers
        ),
    )
