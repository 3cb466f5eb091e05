"""The settings of a running broker: shown as a properties file, and changed where that is safe."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from flaremq.base.clock import Clock
from flaremq.base.errors import ConfigError, NoPermission
from flaremq.base.files import Files
from flaremq.base.live import Live
from flaremq.base.logs import fields, logger
from flaremq.base.options import all_names, nearest
from flaremq.base.settings import Sources, dump, load
from flaremq.base.settingsfile import SettingsFile
from flaremq.base.sources import shown
from flaremq.model.topic import DataVersion

log = logger("broker.configuration")

S = TypeVar("S")
OnChange: TypeAlias = Callable[[frozenset[str]], None]
"""Called with the names of the options that have changed."""

_ALWAYS_FORBIDDEN: Final = frozenset({"brokerConfigPath", "configBlackList", "rocketmqHome"})

CHANGEABLE: Final = frozenset(
    {
        "autoCreateSubscriptionGroup",
        "autoCreateTopicEnable",
        "autoDeleteUnusedStats",
        "brokerPermission",
        "cleanFileForciblyEnable",
        "consumerFallbehindThreshold",
        "defaultTopicQueueNums",
        "deduplicationProducersMax",
        "deduplicationWindowCount",
        "deduplicationWindowSec",
        "deleteWhen",
        "disableConsumeIfConsumerReadSlowly",
        "diskMaxUsedSpaceRatio",
        "diskSpaceCleanForciblyRatio",
        "diskSpaceWarningLevelRatio",
        "enableMixedMessageType",
        "enablePropertyFilter",
        "fileReservedTime",
        "filterSupportRetry",
        "forceRegister",
        "litePullMessageEnable",
        "longPollingEnable",
        "maxStatsIdleTimeInMinutes",
        "namesrvAddr",
        "notifyConsumerIdsChangedEnable",
        "registerBrokerTimeoutMills",
        "registerNameServerPeriod",
        "rejectPullConsumerEnable",
        "rejectTransactionMessage",
        "shortPollingTimeMills",
        "slaveReadEnable",
        "startAcceptSendRequestTimeStamp",
        "traceOn",
        "useServerSideResetOffset",
        "validateSystemTopicWhenUpdateTopic",
    }
)
"""Options that a remote command may change: their readers look them up each time they need them."""


class Configuration:
    """All sections of a broker's settings. Readers of a live section see changes; listeners are called."""

    def __init__(
        self,
        sections: Iterable[Any],
        clock: Clock,
        *,
        changeable: frozenset[str] = CHANGEABLE,
        black_list: Iterable[str] = (),
        file: Path | None = None,
        files: Files | None = None,
    ) -> None:
        """`file` keeps the changes."""
        self._sections: dict[type[Any], Live[Any]] = {type(section): Live(section) for section in sections}
        self._clock = clock
        self._changeable = changeable
        self._forbidden = _ALWAYS_FORBIDDEN | set(black_list)
        self.file = SettingsFile(file, files)
        self.version = DataVersion()
        self.listeners: list[OnChange] = []

    def live(self, section: type[S]) -> Live[S]:
        """The section for readers that must see changes."""
        return self._sections[section]

    def get(self, section: type[S]) -> S:
        """The section as it is now."""
        return self.live(section).now

    def values(self) -> dict[str, str]:
        return {name: value for section in self._sections.values() for name, value in dump(section.now)}

    def text(self) -> str:
        """The settings as a properties file. Secrets are replaced by `***`."""
        return "".join(
            f"{name}={value if shown(name, value) == repr(value) else '***'}\n"
            for name, value in self.values().items()
        )

    def update(self, given: dict[str, str]) -> None:
        """Change these options, all or none. NoPermission for one that no remote command may change;
        ConfigError for one that is unknown, fixed while the broker runs, or given an invalid value."""
        forbidden = sorted(given.keys() & self._forbidden)
        if forbidden:
            raise NoPermission(f"Can not update config in black list: {', '.join(forbidden)}")
        before = self.values()
        self._check_names(given, before)
        flags = [f"{name}={value}" for name, value in {**before, **given}.items()]
        sections = load(Sources.of(None, {}, flags), *self._sections)
        for section in sections:
            self._sections[type(section)].now = section
        after = self.values()
        changed = frozenset(name for name in after if after[name] != before[name])
        if changed:
            self.version = self.version.next(self._clock.now_ms())
            log.info("the configuration was changed", extra=fields(**{name: after[name] for name in changed}))
        for listener in self.listeners if changed else ():
            listener(changed)

    def _check_names(self, given: dict[str, str], ours: dict[str, str]) -> None:
        for name in given.keys() - ours.keys():
            if name in all_names():
                raise ConfigError(f"{name} has no effect in this broker, so changing it would change nothing")
            close = nearest(name, ours)
            hint = f"did you mean {close}?" if close else "no option has a name like that"
            raise ConfigError(f"unknown option {name!r}: {hint}")
        fixed = sorted(given.keys() - self._changeable)
        if fixed:
            allowed = ", ".join(sorted(self._changeable))
            raise ConfigError(
                f"{', '.join(fixed)} cannot be changed while running: set it in the broker's file and "
                f"restart; options that can be changed: {allowed}"
            )
