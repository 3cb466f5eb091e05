"""TLS: RocketMQ's options, and the contexts made from them.

Java takes these from system properties of the same names, and from the file that tls.config.file names; here
they are options like all others, and that file is one more source (`with_tls_file`). Values and defaults are
Java's, with three exceptions. There is no test mode: without a certificate there is no TLS. The certificate
of a peer is always verified. And a caller with trusted certificates verifies its server, unless
tls.client.authServer=false.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import ClassVar, Final

from flaremq.base.errors import ConfigError
from flaremq.base.settings import Sources, check, environment_name, load, option

_CONFIG_FILE: Final = "/etc/rocketmq/tls.properties"
_CERTIFICATE: Final = b"-----BEGIN CERTIFICATE-----"
_KEY: Final = b"PRIVATE KEY-----"
_ENCRYPTED: Final = b"ENCRYPTED"


class TlsMode(Enum):
    """Whether a server accepts TLS connections, plain ones, or both."""

    DISABLED = "disabled"  # TLS is refused.
    PERMISSIVE = "permissive"  # Both are served.
    ENFORCING = "enforcing"  # Only TLS is served.


class ClientAuth(Enum):
    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """The listening side: clients and brokers connect here."""

    PROTECTS: ClassVar = frozenset({"tls_server"})

    mode: TlsMode = option("tls.server.mode", TlsMode.PERMISSIVE, by_value=True)
    certificate: str = option("tls.server.certPath", "")
    """PEM, the server's certificate first and then those that signed it. Without one there is no TLS:
    permissive then means plain."""
    key: str = option("tls.server.keyPath", "")
    key_password: str = option("tls.server.keyPassword", "")
    trusted: str = option("tls.server.trustCertPath", "")
    """PEM of the authorities that client certificates must be signed by."""
    client_auth: ClientAuth = option("tls.server.need.client.auth", ClientAuth.NONE, by_value=True)
    """A client's certificate must be signed by a trusted one, even where Java would accept any."""
    auth_client: bool = option("tls.server.authClient", False)
    test_mode: bool = option("tls.test.mode.enable", False)
    """Java's default is true: its server then makes a certificate, which FlareMQ does not."""
    config_file: str = option("tls.config.file", _CONFIG_FILE)

    def __post_init__(self) -> None:
        check(self)
        if self.mode is TlsMode.ENFORCING and not self.certificate:
            raise ConfigError(
                "tls.server.mode=enforcing needs a certificate: "
                "set tls.server.certPath and tls.server.keyPath"
            )
        if self.test_mode and not self.certificate and self.mode is not TlsMode.DISABLED:
            raise ConfigError(
                "tls.test.mode.enable=true expects a server to make a certificate, and FlareMQ makes none: "
                "set tls.server.certPath and tls.server.keyPath, or tls.test.mode.enable=false"
            )
        if self.client_auth is not ClientAuth.NONE and not self.trusted:
            raise ConfigError(
                f"tls.server.need.client.auth={self.client_auth.value} needs tls.server.trustCertPath: "
                "the certificates of the authorities that sign client certificates"
            )
        if self.auth_client and self.client_auth is ClientAuth.NONE:
            raise ConfigError(
                "tls.server.authClient=true has no effect while tls.server.need.client.auth=none: no client "
                "is asked for a certificate; expected optional or require"
            )

    @property
    def effective_mode(self) -> TlsMode:
        return self.mode if self.certificate else TlsMode.DISABLED

    def context(self) -> ssl.SSLContext | None:
        """The context for accepted sessions; None without TLS. Raises ConfigError."""
        if self.effective_mode is TlsMode.DISABLED:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        _load_chain(context, "tls.server", self.certificate, self.key, self.key_password)
        if self.trusted:
            _load_trusted(context, "tls.server", self.trusted)
        context.verify_mode = {
            ClientAuth.NONE: ssl.CERT_NONE,
            ClientAuth.OPTIONAL: ssl.CERT_OPTIONAL,
            ClientAuth.REQUIRE: ssl.CERT_REQUIRED,
        }[self.client_auth]
        return context


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsClientSettings:
    """The calling side: clients, and brokers that talk to NameServers."""

    PROTECTS: ClassVar = frozenset({"tls_client"})

    enabled: bool | None = option("tls.enable", None, also=("useTLS",))
    """Not set: on for a server whose own port is TLS only, off for all others."""
    trusted: str = option("tls.client.trustCertPath", "")
    """PEM of the authorities that server certificates must be signed by."""
    auth_server: bool | None = option("tls.client.authServer", None)
    """Whether a server's certificate must be signed by a trusted one: by default if trustCertPath is set.
    true without it means the authorities that the system trusts. Host names are not checked, as in Java:
    servers are known by their addresses."""
    certificate: str = option("tls.client.certPath", "")
    """PEM, for servers that ask for a client certificate."""
    key: str = option("tls.client.keyPath", "")
    key_password: str = option("tls.client.keyPassword", "")

    def __post_init__(self) -> None:
        check(self)
        if bool(self.certificate) != bool(self.key):
            given, missing = ("certPath", "keyPath") if self.certificate else ("keyPath", "certPath")
            raise ConfigError(
                f"tls.client.{given} is set without tls.client.{missing}: expected both or none"
            )

    @property
    def verifies(self) -> bool:
        return bool(self.trusted) if self.auth_server is None else self.auth_server

    def is_enabled(self, mode: TlsMode = TlsMode.DISABLED) -> bool:
        """Whether calls use TLS; `mode` is that of the process's own port."""
        return mode is TlsMode.ENFORCING if self.enabled is None else self.enabled

    def context(self) -> ssl.SSLContext:
        """The context for outgoing connections. Raises ConfigError."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED if self.verifies else ssl.CERT_NONE
        if self.trusted:
            _load_trusted(context, "tls.client", self.trusted)
        elif self.verifies:
            context.load_default_certs()
        if self.certificate:
            _load_chain(context, "tls.client", self.certificate, self.key, self.key_password)
        return context


def with_tls_file(sources: Sources, *, only_client: bool = False) -> Sources:
    """Add the options of the file that tls.config.file names. They override the configuration file, as in
    Java; variables and flags override them."""
    wanted = ("tls.client.",) if only_client else ("tls.",)
    return sources.including("tls.config.file", Path(_CONFIG_FILE), "tls.", wanted)


_OF_CLIENTS: Final = frozenset(
    environment_name(name)
    for name in (
        *("tls.enable", "useTLS", "tls.config.file", "tls.client.trustCertPath", "tls.client.authServer"),
        *("tls.client.certPath", "tls.client.keyPath", "tls.client.keyPassword"),
    )
)


def client_tls(environ: Mapping[str, str] = os.environ) -> ssl.SSLContext | None:
    """A client's TLS context from the environment variables of its options (FLAREMQ_TLS_ENABLE,
    FLAREMQ_TLS_CLIENT_TRUST_CERT_PATH ...); None if TLS is off."""
    given = {name: value for name, value in environ.items() if name in _OF_CLIENTS}
    if not given:
        return None
    sources = with_tls_file(Sources.of(None, given), only_client=True)
    settings, _ = load(sources, TlsClientSettings, _ClientFile)
    return settings.context() if settings.is_enabled() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _ClientFile:
    """Makes tls.config.file known to a client, which has no other section with it."""

    config_file: str = option("tls.config.file", _CONFIG_FILE)


# Reading certificate and key files.


def _load_chain(context: ssl.SSLContext, side: str, certificate: str, key: str, password: str) -> None:
    _read(f"{side}.certPath", certificate, "a certificate", _CERTIFICATE)
    key_option, key_file = (f"{side}.keyPath", key) if key else (f"{side}.certPath", certificate)
    is_encrypted = _ENCRYPTED in _read(key_option, key_file, "a private key", _KEY)
    if is_encrypted and not password:
        raise ConfigError(f"{key_option}={key_file}: the key is encrypted: set {side}.keyPassword")
    try:
        context.load_cert_chain(certificate, key or None, password)
    except (ssl.SSLError, OSError) as error:
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            why = f"does not belong to {side}.certPath={certificate}: expected the key of that certificate"
        elif is_encrypted:
            why = f"cannot be opened with {side}.keyPassword: expected the password of that key"
        else:
            why = f"cannot be used with {side}.certPath={certificate}: {error}"
        raise ConfigError(f"{key_option}={key_file} {why}") from error


def _load_trusted(context: ssl.SSLContext, side: str, trusted: str) -> None:
    _read(f"{side}.trustCertPath", trusted, "a certificate", _CERTIFICATE)
    try:
        context.load_verify_locations(trusted)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(f"{side}.trustCertPath={trusted} cannot be used: {error}") from error


def _read(name: str, path: str, what: str, mark: bytes) -> bytes:
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{name}={path} cannot be read: {error.strerror or error}; expected a PEM file with {what} that "
            "this user may read"
        ) from error
    if mark not in text:
        raise ConfigError(f"{name}={path} does not contain {what}: expected a PEM file")
    return text
