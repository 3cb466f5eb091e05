"""`flaremq cluster group`: Raft groups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from flaremq.admin.clusterdocuments import raft_document
from flaremq.admin.raft import foreign_leader
from flaremq.admin.values.raft import RaftMember
from flaremq.cli.connect import connected, note_failures
from flaremq.cli.options import Broker, Cluster, Json, Namesrv, Profile, Yes
from flaremq.cli.render import Output, confirm, note, safe

app = typer.Typer(
    invoke_without_command=True,
    add_completion=False,
    help="Raft groups: who leads, who is behind, and changes of either.",
)

MemberName = Annotated[str, typer.Argument(metavar="MEMBER", help="Id of the member, such as n1.")]
GroupBroker = Annotated[
    str | None,
    typer.Option("-b", "--broker", metavar="NAME", help="The group's broker name, if there are several."),
]


@app.callback()
def show(
    context: typer.Context,
    namesrv: Namesrv = None,
    profile: Profile = None,
    cluster: Cluster = None,
    broker: Broker = None,
    json: Json = False,
) -> None:
    """Show the members of Raft groups. Exit status 1 if a group has no leader, or a member is missing,
    could not lead, or has a damaged log."""
    if context.invoked_subcommand is not None:
        return
    out = Output(json)
    with connected(namesrv, profile) as admin:
        found = admin.raft.members(cluster=cluster, broker=broker)

    def for_people() -> None:
        out.table(
            (
                *("broker", "member", "standing", ">term", "address", ">last entry", ">on disk"),
                *(">committed", ">behind", "state"),
            ),
            [_row(each, found) for each in found],
            empty="No Raft groups found.",
        )
        for text in _remarks(found):
            note(safe(text))
        note_failures(found.failed)

    out.show(raft_document(found), for_people)
    if found.failed or not all(_is_well(name, found) for name in {each.broker for each in found}):
        raise typer.Exit(1)


@app.command("transfer")
def transfer(
    member: MemberName,
    namesrv: Namesrv = None,
    profile: Profile = None,
    broker: GroupBroker = None,
) -> None:
    """Let another member lead. It does once it has all messages of the present leader."""
    with connected(namesrv, profile) as admin:
        admin.raft.transfer(member, broker=broker)
    typer.echo(f"{member} leads now.")


@app.command("add")
def add(
    member: MemberName,
    address: Annotated[
        str, typer.Argument(metavar="HOST:PORT", help="Where the others reach it: its part of dLegerPeers.")
    ],
    namesrv: Namesrv = None,
    profile: Profile = None,
    broker: GroupBroker = None,
    yes: Yes = False,
) -> None:
    """Let a new member into the group.

    Start it first, with dLegerPeers that name all members and itself: it waits until it is let in, and then
    copies the log. A majority is counted with it from now on.
    """
    confirm(f"Let {member} at {address} into the group?", yes=yes)
    with connected(namesrv, profile) as admin:
        admin.raft.add(member, address, broker=broker)
    typer.echo(f"{member} is a member now.")


@app.command("remove")
def remove(
    member: MemberName,
    namesrv: Namesrv = None,
    profile: Profile = None,
    broker: GroupBroker = None,
    yes: Yes = False,
) -> None:
    """Remove a member from the group. Stop it afterwards."""
    confirm(f"Remove {member} from the group?", yes=yes)
    with connected(namesrv, profile) as admin:
        admin.raft.remove(member, broker=broker)
    typer.echo(f"{member} is no member any more.")


def _is_no_leader(each: RaftMember) -> bool:
    return not each.is_leader


def _group(name: str, found: Iterable[RaftMember]) -> list[RaftMember]:
    return [each for each in found if each.broker == name]


def _leader(name: str, found: Iterable[RaftMember]) -> RaftMember | None:
    leaders = [each for each in _group(name, found) if each.is_leader]
    return max(leaders, key=lambda each: each.term, default=None)


def _is_well(name: str, found: Iterable[RaftMember]) -> bool:
    members, leader = _group(name, found), _leader(name, found)
    if leader is None:  # In a mixed group only those of FlareMQ's are known, and what they say.
        is_led = bool(foreign_leader(members)) and all(each.leader for each in members)
        return is_led and not any(each.not_fit or each.damage for each in members)
    if not leader.answers:
        return False
    if any(each.caution for each in members):
        return not any(peer.complaint for peer in leader.peers)
    return len(members) == len(leader.members) and not any(each.not_fit or each.damage for each in members)


def _row(each: RaftMember, found: Iterable[RaftMember]) -> tuple[object, ...]:
    leader = _leader(each.broker, found)
    behind = None if leader is None else max(0, leader.last_index - each.last_index)
    state = "could not lead" if each.not_fit else ""
    if each.is_leader:
        state = "serves" if each.answers else "waits for a majority"
    elif not state:
        state = f"follows {each.leader}" if each.leader else "knows no leader"
    if each.damage:
        state += ", damaged"
    if not each.may_vote:
        state += ", does not vote yet"
    return (
        *(each.broker, each.member, each.standing, each.term, each.address),
        *(each.last_index, each.synced_index, each.commit_index, behind, state),
    )


def _remarks(found: Iterable[RaftMember]) -> list[str]:
    """What a person must know, in full sentences."""
    said = []
    for name in sorted({each.broker for each in found}):
        members, leader = _group(name, found), _leader(name, found)
        for each in members:
            if each.not_fit:
                said.append(f"{name}, {each.member} could not lead: {each.not_fit}")
            if each.damage:
                said.append(f"{name}, {each.member} has damage in its log, not repaired yet: {each.damage}")
            if each.last_refusal:
                said.append(f"{name}, {each.member} has refused {each.last_refusal}")
        cautions = dict.fromkeys(each.caution for each in sorted(members, key=_is_no_leader) if each.caution)
        said += [f"{name}: {caution}" for caution in list(cautions)[:1]]
        foreign = "" if leader is not None else foreign_leader(members)
        if foreign:
            said.append(
                f"{name} is led by {foreign}, which tells nothing of its group, as those of RocketMQ's do not"
            )
            continue
        if leader is None:
            said.append(f"{name} has no leader: a majority of {', '.join(members[0].members)} must run")
            continue
        said += [f"{name}, {peer.member}: {peer.complaint}" for peer in leader.peers if peer.complaint]
        ids = [known.partition("-")[0] for known in leader.members]
        missing = [wanted for wanted in ids if all(wanted != each.member for each in members)]
        if missing and not leader.caution:
            said.append(f"{name}: no NameServer knows {', '.join(missing)}: start what does not run")
    return said
