"""Whether this broker is a slave, where its master is, and whether another one serves in its place."""

from __future__ import annotations

from flaremq.base.errors import NotMaster


class Role:
    """Fixed while a broker runs, but for the address of the master, which NameServers tell."""

    def __init__(self, *, is_slave: bool, may_act: bool = False) -> None:
        """A slave that may act for its master forgets where it was: one that returns has first to take over
        what was done in its place, and copies nothing to its slaves before NameServers know it again."""
        self.is_slave = is_slave
        self._may_act = may_act
        self.master = ""
        """host:port; empty while it is not known, and in a master. Stays while the master is away, unless
        this slave may act for it."""
        self.has_master = False
        """Whether a NameServer knows one at the moment."""
        self.displaced = ""
        """Why this master serves no clients any more: another one of its name does. Empty: it serves."""

    def learn(self, address: str, _ha_address: str) -> None:
        """Note where NameServers say the master is; an empty address if none of them knows one."""
        self.master = address if self._may_act else address or self.master
        self.has_master = bool(address)

    def refusal(self, what: str, response_code: int) -> NotMaster:
        """`what` says what a slave does not do, as in "takes no messages"."""
        where = f"at {self.master}" if self.master else "(no NameServer knows one at the moment)"
        return NotMaster(f"this broker is a slave and {what}: ask its master {where}", response_code)
