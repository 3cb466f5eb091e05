"""Where settings come from: a properties file, the environment, flags. The last one wins.

Each value remembers its source, so that an error can say where to look. In the environment, the name of an
option is FLAREMQ_ and its Java name in capitals, split into words:

    flushDiskType    FLAREMQ_FLUSH_DISK_TYPE      before a capital after a small letter or digit
    checkCRCOnPut    FLAREMQ_CHECK_CRC_ON_PUT     before the last capital of a run, if a word begins there
    brokerIP1        FLAREMQ_BROKER_IP1           a digit stays with what is before it
    tls.server.mode  FLAREMQ_TLS_SERVER_MODE      at a dot
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from flaremq.base.errors import ConfigError
from flaremq.base.options import nearest
from flaremq.base.propertiesfile import parse_properties

PREFIX: Final = "FLAREMQ_"
NOT_OPTIONS: Final = frozenset(
    {
        *("FLAREMQ_PURE", "FLAREMQ_COMPILED", "FLAREMQ_LOG_LEVEL"),
        *("FLAREMQ_NAMESRV", "FLAREMQ_PROFILE", "FLAREMQ_DEBUG"),
    }
)
"""Variables with our prefix that are not options."""

_CUT: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|\.")
_SECRET: Final = re.compile(r"passw|secret|credential|init_?authentication_?user", re.IGNORECASE)


class Given(NamedTuple):
    """A value as written, and where."""

    value: str
    where: str


@dataclass(frozen=True, slots=True)
class Sources:
    """The given values by source, not parsed yet: that is done by `settings.load`."""

    file: Mapping[str, Given]
    environ: Mapping[str, Given]
    """By variable, not by option: only `merged` knows which options exist."""
    flags: Mapping[str, Given]

    @classmethod
    def of(
        cls, file: Path | None = None, environ: Mapping[str, str] | None = None, flags: Sequence[str] = ()
    ) -> "Sources":
        """Read the sources. Flags are `key=value`; variables without our prefix are ignored."""
        ours = {
            name: Given(value, f"environment variable {name}")
            for name, value in (environ or {}).items()
            if name.startswith(PREFIX) and name not in NOT_OPTIONS
        }
        return cls(_read_file(file) if file else {}, ours, _read_flags(flags))

    def said(self, option: str) -> str | None:
        """The value of an option in the source that wins, not parsed."""
        given = self.flags.get(option) or self.environ.get(environment_name(option)) or self.file.get(option)
        return None if given is None else given.value.strip()

    def including(self, option: str, usual: Path, family: str, wanted: tuple[str, ...]) -> "Sources":
        """Add the options of one more file that begin with one of `wanted`. They override the configuration
        file; all options in it must belong to `family`.

        `option` names the file; the `usual` one need not exist.
        """
        name = self.said(option)
        if name is None or name == str(usual):
            if not usual.is_file():
                return self
            name = str(usual)
        if not name:
            return self
        try:
            found = _read_file(Path(name))
        except ConfigError as error:
            raise ConfigError(f"{option}={name}: {error}") from None
        for each in found:
            if not each.startswith(family):
                raise ConfigError(
                    f"{option}={name}: {each} does not belong there: expected {family}* options only"
                )
        more = {each: given for each, given in found.items() if each.startswith(wanted)}
        return Sources({**self.file, **more}, self.environ, self.flags)

    def merged(self, names: Iterable[str], aliases: Mapping[str, str]) -> dict[str, Given]:
        """One value per option, under the name that `aliases` leads to.

        Unknown names are kept as they are, for the caller to judge; only an unknown variable is an error
        here, as it is not clear which option it means.
        """
        by_variable = {environment_name(name): name for name in names}
        environ = {}
        for variable, given in self.environ.items():
            if variable not in by_variable:
                raise ConfigError(_unknown_variable(variable, given, by_variable))
            environ[by_variable[variable]] = given
        merged: dict[str, Given] = {}
        for layer in (self.file, environ, self.flags):
            merged.update(_one_spelling(layer, aliases))
        return merged


def environment_name(option: str) -> str:
    return PREFIX + _CUT.sub("_", option).upper()


def shown(name: str, value: str) -> str:
    """The value for a message; hidden if the name sounds like a password."""
    return "'***'" if _SECRET.search(name) else repr(value)


def _read_file(file: Path) -> dict[str, Given]:
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(
            f"{file} cannot be read: {error.strerror or error}; expected a readable file, or none"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{file} is not UTF-8 at byte {error.start}: save it as UTF-8, or write \\uXXXX"
        ) from None
    try:
        found = parse_properties(text)
    except ConfigError as error:
        raise ConfigError(f"{file}, {error}") from None
    return {name: Given(value, str(file)) for name, value in found.items()}


def _read_flags(flags: Sequence[str]) -> dict[str, Given]:
    found: dict[str, Given] = {}
    for flag in flags:
        name, equals, value = flag.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"flag {flag!r} is not key=value: for example flushDiskType=SYNC_FLUSH")
        found[name.strip()] = Given(value, f"flag {name.strip()}")
    return found


def _one_spelling(layer: Mapping[str, Given], aliases: Mapping[str, str]) -> dict[str, Given]:
    """Within one source, two spellings of an option must agree."""
    found: dict[str, Given] = {}
    spelled: dict[str, str] = {}
    for name, given in layer.items():
        option = aliases.get(name, name)
        if option in found and found[option].value.strip() != given.value.strip():
            raise ConfigError(
                f"{spelled[option]}={found[option].value!r} and {name}={given.value!r} ({given.where}) "
                f"are the same option with two values: keep one, best as {option}"
            )
        found[option] = given
        spelled[option] = name
    return found


def _unknown_variable(variable: str, given: Given, known: Iterable[str]) -> str:
    # Compared without the prefix, with which all of them would look alike.
    tails = [name.removeprefix(PREFIX) for name in (*known, *NOT_OPTIONS)]
    close = nearest(variable.removeprefix(PREFIX), tails)
    hint = f"did you mean {PREFIX}{close}?" if close else f"{PREFIX}* is reserved for options; rename it"
    return f"environment variable {variable}={shown(variable, given.value)} is unknown: {hint}"
