"""Every option name of RocketMQ 4.9 and 5.3, and those that ask for protection.

The names are in `options.tsv` next to this file: name, Java type, default of 4.9, default of 5.3, Java class.
`-` means that the version does not know the name, `null` no value, `""` empty text, `cpu` the number of
processors, `env X` an environment variable. A name may come twice, in two classes. Readers of a configuration
look up here whether a name exists at all.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

from flaremq.base.errors import ConfigError

ALIASES: Final[Mapping[str, str]] = {
    # RocketMQ 4.0 to 4.5.1 wrote them with one p.
    "mapedFileSizeCommitLog": "mappedFileSizeCommitLog",
    "mapedFileSizeConsumeQueue": "mappedFileSizeConsumeQueue",
}


IMPORTANT: Final = frozenset(
    {
        # Of the broker.
        *("namesrvAddr", "listenPort", "brokerIP1", "brokerName", "brokerClusterName", "brokerId"),
        *("recoverConcurrently", "autoCreateTopicEnable", "autoCreateSubscriptionGroup"),
        *("msgTraceTopicName", "traceTopicEnable", "rejectTransactionMessage"),
        *("fetchNameSrvAddrByDnsLookup", "fetchNamesrvAddrByAddressServer", "transactionTimeOut"),
        *("transactionCheckMax", "transactionCheckInterval", "aclEnable"),
        # Of the store.
        *("storePathRootDir", "storePathCommitLog", "storePathDLedgerCommitLog", "storePathEpochFile"),
        *("storePathBrokerIdentity", "disappearTimeAfterStart", "storeType", "flushIntervalCommitLog"),
        *("commitIntervalCommitLog", "flushCommitLogTimed", "deleteWhen", "fileReservedTime"),
        *("deleteFileBatchMax", "maxTransferBytesOnMessageInMemory", "maxTransferCountOnMessageInMemory"),
        *("maxTransferBytesOnMessageInDisk", "maxTransferCountOnMessageInDisk"),
        *("accessMessageInMemoryMaxRatio", "messageIndexEnable", "messageIndexSafe", "haMasterAddress"),
        *("brokerRole", "flushDiskType", "cleanFileForciblyEnable", "transientStorePoolEnable"),
        *("dispatchFromSenderThread", "wakeCommitWhenPutMessage", "wakeFlushWhenPutMessage"),
        *("enableCleanExpiredOffset", "totalReplicas", "inSyncReplicas", "minInSyncReplicas"),
        *("allAckInSyncStateSet", "enableAutoInSyncReplicas", "haFlowControlEnable"),
    }
)
"""What a broker prints as its important settings: those that RocketMQ marks as such."""


@dataclass(frozen=True, slots=True)
class Option:
    """One row. Defaults are Java's, as text; FlareMQ's are in its settings."""

    name: str
    kind: str
    default_4: str
    default_5: str
    owner: str


def find(name: str, owner: str | None = None) -> Option | None:
    """The option of a name: exact and case-sensitive, as in Java; an old spelling finds the new one.

    If a name has two rows, the first, unless `owner` names a class.
    """
    rows = _rows().get(ALIASES.get(name, name), ())
    return next((row for row in rows if owner is None or row.owner == owner), None)


def all_names() -> tuple[str, ...]:
    """Every name and every old spelling, once."""
    return (*_rows(), *ALIASES)


def options_of(*owners: str) -> tuple[Option, ...]:
    """All options that these classes of RocketMQ 5.3 have, in their order."""
    rows = (row for rows in _rows().values() for row in rows)
    return tuple(row for row in rows if row.owner in owners and row.default_5 != "-")


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate that was probably meant, or None. Ignores case."""
    by_folded = {candidate.casefold(): candidate for candidate in candidates}
    close = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.7)
    return by_folded[close[0]] if close else None


@cache
def _rows() -> dict[str, tuple[Option, ...]]:
    text = resources.files("flaremq.base").joinpath("options.tsv").read_text(encoding="utf-8")
    rows: dict[str, tuple[Option, ...]] = {}
    for line in text.splitlines()[1:]:
        row = Option(*line.split("\t"))
        rows[row.name] = (*rows.get(row.name, ()), row)
    return rows


@dataclass(frozen=True, slots=True)
class Guard:
    """An option by which an operator asks for protection: of the ports, or of the messages.

    `asked_by` are the values that ask, `declined_by` those that do not; any other text is an error, as Java
    would silently read it as "do not".
    """

    option: str
    protection: str
    asked_by: frozenset[str] = frozenset({"true"})
    declined_by: frozenset[str] = frozenset({"false"})
    needs: tuple[str, ...] = ()
    """Options without which the protection cannot work."""
    instead: str = "protect its ports by other means"


def _copies(option: str, protection: str = "replication", **other: Any) -> Guard:
    return Guard(option, protection, instead="know that each message has a single copy", **other)


def _group(option: str, **other: Any) -> Guard:
    """Asks for a group that elects its leader."""
    return _copies(option, "election", **other)


def _count(option: str, protection: str = "replication") -> Guard:
    """Asks for more than one copy of every message: any number above 1. The limit is Java's int."""
    return _copies(option, protection, asked_by=MORE_THAN_ONE, declined_by=frozenset({"0", "1"}))


MORE_THAN_ONE: Final = frozenset({"2 or more"})
"""Stands for every whole number above 1."""

GUARDS: Final = (
    Guard("aclEnable", "acl"),
    Guard("authenticationEnabled", "authentication"),
    Guard("authorizationEnabled", "authorization"),
    # If not set (written as empty text), it follows tls.server.mode.
    Guard("tls.enable", "tls_client", declined_by=frozenset({"false", ""})),
    Guard("useTLS", "tls_client", declined_by=frozenset({"false", ""})),
    Guard(
        "tls.server.mode",
        "tls_server",
        asked_by=frozenset({"enforcing"}),
        declined_by=frozenset({"disabled", "permissive"}),
        needs=("tls.server.keyPath", "tls.server.certPath"),
    ),
    # With one of these, a producer that gets SEND_OK relies on copies on other machines.
    _copies(
        "brokerRole",
        asked_by=frozenset({"sync_master", "slave"}),
        declined_by=frozenset({"async_master"}),
    ),
    *map(_count, ("inSyncReplicas", "totalReplicas")),
    _count("minInSyncReplicas", "election"),
    _copies("enableDLegerCommitLog", "raft"),
    *map(_group, ("allAckInSyncStateSet", "enableAutoInSyncReplicas")),
    *map(_group, ("enableControllerMode", "enableControllerInNamesrv")),
)


def check_protection(values: Mapping[str, str], available: frozenset[str] = frozenset()) -> None:
    """Refuse to start without a protection that the operator asked for.

    `available` names the protections that this process has. Raises ConfigError if another one is asked for,
    if one lacks what it needs, or if a value is invalid.
    """
    for guard in GUARDS:
        if guard.option in values:
            _check_guard(guard, values, available)


def _check_guard(guard: Guard, values: Mapping[str, str], available: frozenset[str]) -> None:
    given = values[guard.option]
    value = given.strip().lower()
    if guard.asked_by is MORE_THAN_ONE and value.isascii() and value.isdigit():
        value = "2 or more" if int(value) > 1 else str(int(value))
    if value not in guard.asked_by | guard.declined_by:
        known = ", ".join(sorted((guard.asked_by | guard.declined_by) - {""}))
        raise ConfigError(f"{guard.option}={given!r} is invalid: expected one of {known}")
    if value in guard.declined_by:
        return
    missing = [name for name in guard.needs if not values.get(name, "").strip()]
    if missing:
        raise ConfigError(
            f"{guard.option}={given} needs {' and '.join(missing)}: set them, or nothing is protected"
        )
    if guard.protection not in available:
        off = " or ".join(sorted(guard.declined_by - {""}))
        raise ConfigError(
            f"{guard.option}={given} asks for a protection ({guard.protection}) that this process lacks. "
            f"It will not run unprotected in silence: set {guard.option}={off} and {guard.instead}"
        )
