"""TLS of a command: from flags and profiles to the variables that all clients of this process read.

Flags take precedence, then the environment, then the profile. Variables also reach processes that a command
starts, such as Spark's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

import typer

_ENABLE: Final = "FLAREMQ_TLS_ENABLE"
_FILES: Final = {
    "tls_ca": "FLAREMQ_TLS_CLIENT_TRUST_CERT_PATH",
    "tls_cert": "FLAREMQ_TLS_CLIENT_CERT_PATH",
    "tls_key": "FLAREMQ_TLS_CLIENT_KEY_PATH",
}
PASSWORD: Final = "FLAREMQ_TLS_CLIENT_KEY_PASSWORD"

KEYS: Final = ("tls", *_FILES)
"""The TLS keys of a profile."""

Enabled = Annotated[
    bool | None,
    typer.Option("--tls/--no-tls", help=f"Connect with TLS. Default: ${_ENABLE}, then the profile."),
]
Ca = Annotated[
    str | None,
    typer.Option(
        "--tls-ca",
        metavar="FILE",
        help="PEM file of trusted authorities; implies --tls.",
    ),
]
Cert = Annotated[
    str | None, typer.Option("--tls-cert", metavar="FILE", help="PEM file of the client's own certificate.")
]
Key = Annotated[
    str | None,
    typer.Option("--tls-key", metavar="FILE", help=f"PEM file of its key; ${PASSWORD} opens it."),
]


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS settings from one source. Naming a file turns TLS on, unless `enabled` says otherwise."""

    enabled: bool | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    def variables(self) -> dict[str, str]:
        files = (self.ca, self.cert, self.key)
        found = {name: file for name, file in zip(_FILES.values(), files, strict=True) if file}
        enabled = True if self.enabled is None and found else self.enabled
        return found if enabled is None else {_ENABLE: str(enabled).lower(), **found}

    def table(self) -> dict[str, object]:
        """As a profile stores it."""
        values = (self.enabled, self.ca, self.cert, self.key)
        return {key: value for key, value in zip(KEYS, values, strict=True) if value is not None}

    @classmethod
    def of_table(cls, table: Mapping[str, object]) -> Tls:
        """Raises ValueError with the key whose value has the wrong type."""
        enabled = table.get("tls")
        if enabled is not None and not isinstance(enabled, bool):
            raise ValueError("tls")
        for key in _FILES:
            if not isinstance(table.get(key, ""), str):
                raise ValueError(key)
        ca, cert, key_file = (str(table[key]) if key in table else None for key in _FILES)
        return cls(enabled, ca, cert, key_file)

    def say(self, *, over: bool = False) -> None:
        """Set the variables; `over` also replaces those that are set already."""
        for name, value in self.variables().items():
            if over or not os.environ.get(name):
                os.environ[name] = value
