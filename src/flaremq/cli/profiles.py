"""The cluster that a command uses.

The first one found counts: the flag --namesrv, the variables FLAREMQ_NAMESRV and NAMESRV_ADDR, the
profile named by --profile or FLAREMQ_PROFILE, the active profile, and finally 127.0.0.1:9876. A
--profile on the command line takes precedence over variables.

Profiles are in a file of the user, ~/.config/flaremq/profiles.toml:

    use = "test"

    [profiles.test]
    namesrv = "10.0.0.1:9876;10.0.0.2:9876"
    tls = true
    tls_ca = "/etc/flaremq/ca.pem"
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from flaremq.base.errors import ConfigError, StoreError
from flaremq.base.files import BackedFile
from flaremq.cli.render import BadValue
from flaremq.cli.tls import KEYS, Tls

USUAL: Final = "127.0.0.1:9876"
VARIABLES: Final = ("FLAREMQ_NAMESRV", "NAMESRV_ADDR")
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_FIRST_LINES: Final = "# Clusters that the flaremq command knows by name: see `flaremq profile --help`.\n"


@dataclass(frozen=True, slots=True)
class ClusterTarget:
    """NameServers, where they were named, and their TLS settings."""

    namesrv: str
    why: str
    tls: Tls = field(default_factory=Tls)


@dataclass(frozen=True, slots=True)
class Profiles:
    """The content of the file."""

    path: Path
    namesrvs: Mapping[str, str] = field(default_factory=dict)
    """NameServer addresses by profile name."""
    in_use: str | None = None
    tls: Mapping[str, Tls] = field(default_factory=dict)
    """TLS settings by profile name, for profiles that have any."""

    def get(self, name: str) -> str:
        if name not in self.namesrvs:
            known = ", ".join(sorted(self.namesrvs)) or "none"
            raise ConfigError(
                f"there is no profile {name!r} in {self.path} (it has: {known}): "
                f"create it with `flaremq profile set {name} --namesrv host:port`"
            )
        return self.namesrvs[name]

    def target(self, name: str, why: str) -> ClusterTarget:
        return ClusterTarget(self.get(name), why, self.tls.get(name, Tls()))

    def set(self, name: str, namesrv: str, tls: Tls | None = None) -> Profiles:
        if not _NAME.fullmatch(name):
            raise ConfigError(f"profile {name!r}: expected up to 64 letters, digits, - or _")
        return replace(
            self,
            namesrvs={**self.namesrvs, name: check_namesrv(namesrv)},
            tls={**self.tls, name: tls or Tls()},
        )

    def use(self, name: str | None) -> Profiles:
        if name is not None:
            self.get(name)
        return replace(self, in_use=name)

    def remove(self, name: str) -> Profiles:
        self.get(name)
        left = {each: namesrv for each, namesrv in self.namesrvs.items() if each != name}
        return replace(self, namesrvs=left, in_use=None if self.in_use == name else self.in_use)

    def save(self) -> None:
        text = _FIRST_LINES
        if self.in_use is not None:
            text += f'use = "{self.in_use}"\n'
        for name, namesrv in sorted(self.namesrvs.items()):
            text += f'\n[profiles.{name}]\nnamesrv = "{namesrv}"\n'
            for key, value in self.tls.get(name, Tls()).table().items():
                # A JSON string is a TOML string too.
                text += f"{key} = {json.dumps(value)}\n"
        try:
            BackedFile(self.path).save(text.encode())
        except (OSError, StoreError) as error:
            raise ConfigError(f"{error}; check its owner and mode") from error


def profiles_path(environ: Mapping[str, str] = os.environ) -> Path:
    home = environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "flaremq" / "profiles.toml"


def load_profiles(path: Path) -> Profiles:
    """Read the file; without one there are no profiles. Raises ConfigError that names an invalid line."""
    try:
        text = path.read_text(encoding="utf-8")
        found = tomllib.loads(text)
    except FileNotFoundError:
        return Profiles(path)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror or error}; check its owner and mode"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 at byte {error.start}: save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {error}: fix that line, or delete the file to start over") from None
    return _understood(path, text, found)


def _understood(path: Path, text: str, found: dict[str, Any]) -> Profiles:
    def wrong(word: str, complaint: str) -> ConfigError:
        return ConfigError(f"{path}, line {_line_of(text, word)}: {complaint}")

    for key in sorted(found.keys() - {"use", "profiles"}):
        raise wrong(key, f"{key!r} is not known here; expected use and [profiles.NAME]")
    tables = found.get("profiles", {})
    if not isinstance(tables, dict):
        raise wrong("profiles", "profiles must be tables, as [profiles.NAME]")
    namesrvs: dict[str, str] = {}
    tls: dict[str, Tls] = {}
    for name, table in tables.items():
        if not isinstance(table, dict) or not isinstance(table.get("namesrv"), str):
            raise wrong(name, f'profile {name!r} needs a line namesrv = "host:port"')
        for key in sorted(table.keys() - {"namesrv", *KEYS}):
            known = f"namesrv, {', '.join(KEYS[:-1])} or {KEYS[-1]}"
            raise wrong(key, f"{key!r} of profile {name!r} is not known here; expected {known}")
        try:
            namesrvs[name] = check_namesrv(table["namesrv"])
        except ConfigError as error:
            raise wrong(table["namesrv"], str(error)) from None
        try:
            tls[name] = Tls.of_table(table)
        except ValueError as error:
            key = str(error)
            kind = "true or false" if key == "tls" else "the path of a PEM file, in quotes"
            raise wrong(f"{key} =", f"{key} of profile {name!r}: expected {kind}") from None
    in_use = found.get("use")
    if in_use is not None and in_use not in namesrvs:
        raise wrong("use", f"use = {in_use!r}, but there is no [profiles.{in_use}]")
    return Profiles(path, namesrvs, in_use, tls)


def _line_of(text: str, word: str) -> int:
    """The first line that contains the word: close enough for an error message."""
    return next((number for number, line in enumerate(text.splitlines(), 1) if word in line), 1)


def check_namesrv(text: str) -> str:
    """Normalize to host:port;host:port, without blanks. Raises ConfigError for anything else."""
    addresses = [part.strip() for part in text.replace(",", ";").split(";") if part.strip()]
    for address in addresses or [""]:
        host, _, port = address.rpartition(":")
        is_port = port.isascii() and port.isdigit() and 0 < int(port) < 65536
        if not host.strip("[]") or not is_port or not host.isprintable() or set('"\\') & set(host):
            raise ConfigError(
                f"{address!r} is not a NameServer address; expected host:port or host:port;host:port"
            )
    return ";".join(addresses)


def choose(
    namesrv: str | None, profile: str | None, environ: Mapping[str, str] = os.environ
) -> ClusterTarget:
    """Choose the NameServers of a command, from its flags, the environment and the profiles."""
    if namesrv and profile:
        raise BadValue(f"--namesrv {namesrv} and --profile {profile} exclude each other: give one of them")
    if namesrv:
        try:
            return ClusterTarget(check_namesrv(namesrv), "--namesrv")
        except ConfigError as error:
            raise BadValue(f"--namesrv: {error}") from None
    if profile:
        return load_profiles(profiles_path(environ)).target(profile, f"--profile {profile}")
    for variable in VARIABLES:
        if environ.get(variable):
            return ClusterTarget(check_namesrv(environ[variable]), variable)
    profiles = load_profiles(profiles_path(environ))
    named = environ.get("FLAREMQ_PROFILE")
    if named:
        return profiles.target(named, f"FLAREMQ_PROFILE={named}")
    if profiles.in_use is not None:
        return profiles.target(profiles.in_use, f"profile {profiles.in_use}")
    return ClusterTarget(USUAL, "default")


def known_names() -> list[str]:
    """For shell completion: a file that cannot be read offers nothing."""
    try:
        return sorted(load_profiles(profiles_path()).namesrvs)
    except ConfigError:
        return []
