"""Settings of the members of a Raft group that runs on one machine."""

from __future__ import annotations

from flaremq.remoting.ports import BROKER, free_port


def member_settings(count: int, host: str, peers: str = "") -> list[dict[str, object]]:
    """What each member has for itself, n0 first: its id, its ports, and `dLegerPeers`. These are chosen anew
    if `peers` is empty."""
    peers = peers or ";".join(f"n{number}-{host}:{free_port(host)}" for number in range(count))
    return [
        {
            "listenPort": free_port(host, BROKER),
            "enableDLegerCommitLog": True,
            "dLegerPeers": peers,
            "dLegerSelfId": f"n{number}",
        }
        for number in range(count)
    ]
