"""What became of a message in a group: told by offsets, as nobody keeps a list of consumed messages."""

from __future__ import annotations

import asyncio

from flaremq.admin import progress
from flaremq.admin.members import Rosters, members_of
from flaremq.admin.servers import Servers
from flaremq.admin.values.groups import GroupMembers
from flaremq.admin.values.messages import FoundMessage, Track, TrackState
from flaremq.base.errors import FlareError
from flaremq.protocol.bodies.group import TAG, ConsumeType, MessageModel, SubscriptionData


async def track(servers: Servers, rosters: Rosters, message: FoundMessage, group: str) -> Track:
    try:
        online, told = await asyncio.gather(
            rosters.online(group), progress.stats(servers, rosters, group, message.topic)
        )
    except FlareError as error:
        return Track(group, TrackState.UNKNOWN, False, str(error))
    members = members_of(group, online) if online.found else None
    if members is not None and members.consume_type is ConsumeType.CONSUME_ACTIVELY:
        return Track(group, TrackState.PULLS, True)
    if members is not None and members.message_model is MessageModel.BROADCASTING:
        return Track(group, TrackState.BROADCASTS, True)
    failure = told.failed.get(message.broker)
    if failure is not None:
        return Track(group, TrackState.UNKNOWN, members is not None, str(failure))
    rows = {queue: row for each in told.found.values() for queue, row in each.offset_table.items()}
    row = rows.get(message.queue)
    if row is None:
        state = TrackState.OFFLINE if members is None else TrackState.UNKNOWN
        return Track(group, state, members is not None, "the group has no offset in its queue")
    if row.consumer_offset <= message.queue_offset:
        return Track(group, TrackState.NOT_YET, members is not None)
    filtered = members is not None and not _wants(members, message)
    return Track(group, TrackState.FILTERED if filtered else TrackState.CONSUMED, members is not None)


def _wants(members: GroupMembers, message: FoundMessage) -> bool:
    """Whether its tag is wanted. What an SQL expression makes of it, only its broker could say."""
    said = next((each for each in members.subscriptions if each.topic == message.topic), None)
    if said is None or said.kind != TAG:
        return True
    tags = SubscriptionData.of(said.topic, said.expression).tags_set
    return not tags or message.tags in tags
