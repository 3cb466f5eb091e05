"""Who belongs to the group: its checksum, and which changes may be made."""

from __future__ import annotations

import zlib

from flaremq.base.errors import GroupUnsettled, InvalidParameter
from flaremq.dledger.types import MemberId, Membership


def group_checksum(members: Membership) -> int:
    """Of a membership that comes from the configuration; 0 once the log says who the members are. Members
    that were configured otherwise would count their majorities over different sets."""
    if members.index >= 0:
        return 0
    text = ";".join(f"{each}-{members.addresses[each]}" for each in members.ids)
    return zlib.crc32(text.encode()) + 1


def check_one_step(old: Membership, new: Membership) -> None:
    """Majorities of two memberships meet in a member if these differ in one only. Raises InvalidParameter."""
    if not new.addresses:
        raise InvalidParameter("a group without members: expected one at least")
    added = new.addresses.keys() - old.addresses.keys()
    removed = old.addresses.keys() - new.addresses.keys()
    for each in sorted(old.addresses.keys() & new.addresses.keys()):
        if old.addresses[each] != new.addresses[each]:
            raise InvalidParameter(
                f"{each} would move from {old.addresses[each]} to {new.addresses[each]}: remove it first, "
                "then add it with its new address"
            )
    if len(added) + len(removed) != 1:
        what = ", ".join((*(f"+{each}" for each in sorted(added)), *(f"-{each}" for each in sorted(removed))))
        raise InvalidParameter(
            f"a change of {what or 'nothing'}: expected one member added or removed; change the others when "
            "the group has decided on that"
        )


def check_majority_alive(new: Membership, alive: set[MemberId]) -> None:
    """A group that lost its majority by a removal could not even decide on that. Raises GroupUnsettled."""
    there = alive & new.addresses.keys()
    if len(there) < new.majority:
        raise GroupUnsettled(
            f"of the remaining {', '.join(new.ids)} only {', '.join(sorted(there)) or 'none'} can be "
            f"reached: expected {new.majority}; start the others first, or remove one that is gone"
        )
