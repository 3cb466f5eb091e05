"""TLS: RocketMQ's options for it, and the context that they make."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from flaremq.base.errors import ConfigError
from flaremq.base.settings import check, option


class TlsMode(Enum):
    """What a server does with a peer that does, or does not, speak TLS."""

    DISABLED = "disabled"  # TLS is refused.
    PERMISSIVE = "permissive"  # Both are served.
    ENFORCING = "enforcing"  # Only TLS is served.


class ClientAuth(Enum):
    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """Java takes these from system properties of the same names; here they are options like all others."""

    mode: TlsMode = option("tls.server.mode", TlsMode.PERMISSIVE)
    certificate: str = option("tls.server.certPath", "")
    """PEM. Without one nobody can speak TLS: permissive then means plain."""
    key: str = option("tls.server.keyPath", "")
    key_password: str = option("tls.server.keyPassword", "")
    trusted: str = option("tls.server.trustCertPath", "")
    """PEM of those whose clients are believed."""
    client_auth: ClientAuth = option("tls.server.need.client.auth", ClientAuth.NONE)

    def __post_init__(self) -> None:
        check(self)
        for name, path in (
            ("tls.server.certPath", self.certificate),
            ("tls.server.keyPath", self.key),
            ("tls.server.trustCertPath", self.trusted),
        ):
            if path and not Path(path).is_file():
                raise ConfigError(f"{name}={path}: there is no such file")
        if self.mode is TlsMode.ENFORCING and not self.certificate:
            raise ConfigError("tls.server.mode=enforcing needs a certificate: set tls.server.certPath")
        if self.client_auth is not ClientAuth.NONE and not self.trusted:
            raise ConfigError(
                f"tls.server.need.client.auth={self.client_auth.value} needs tls.server.trustCertPath: "
                "whose clients are to be believed?"
            )

    @property
    def effective_mode(self) -> TlsMode:
        return self.mode if self.certificate else TlsMode.DISABLED

    def context(self) -> ssl.SSLContext | None:
        """What sessions are made with; None where nobody may speak TLS."""
        if self.effective_mode is TlsMode.DISABLED:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.certificate, self.key or None, self.key_password or None)
            if self.trusted:
                context.load_verify_locations(self.trusted)
        except (ssl.SSLError, OSError) as error:
            raise ConfigError(
                f"tls.server.certPath={self.certificate}: certificate, key and trusted certificates "
                f"cannot be used: {error}"
            ) from error
        context.verify_mode = {
            ClientAuth.NONE: ssl.CERT_NONE,
            ClientAuth.OPTIONAL: ssl.CERT_OPTIONAL,
            ClientAuth.REQUIRE: ssl.CERT_REQUIRED,
        }[self.client_auth]
        return context
