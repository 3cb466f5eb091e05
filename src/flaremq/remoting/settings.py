"""Socket options: those of RocketMQ's Netty options that have an effect here."""

from __future__ import annotations

from dataclasses import dataclass

from flaremq.base.errors import ConfigError
from flaremq.base.settings import check, option
from flaremq.base.units import KiB


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The listening side. Defaults are those of 5.3, except for the socket buffers: those of 4.x."""

    bind_address: str = option("bindAddress", "0.0.0.0")
    listen_port: int = option("listenPort", 0, minimum=0, maximum=65535)
    """0: any free port. Servers have RocketMQ's ports as defaults."""
    backlog: int = option("serverSocketBacklog", 1024, minimum=1)
    idle_max_s: int = option("serverChannelMaxIdleTimeSeconds", 120, minimum=1)
    """A connection without a read or write for this long is closed."""
    send_buffer: int = option("serverSocketSndBufSize", 128 * KiB, minimum=0, unit="size")
    receive_buffer: int = option("serverSocketRcvBufSize", 128 * KiB, minimum=0, unit="size")
    """0 leaves it to the kernel."""
    write_high_water: int = option("writeBufferHighWaterMark", 0, minimum=0, unit="size")
    write_low_water: int = option("writeBufferLowWaterMark", 0, minimum=0, unit="size")
    """Bytes waiting to be written at which reading from a peer stops (high) and resumes (low). If either is
    0, they are 64 and 32 KiB."""
    async_max: int = option("serverAsyncSemaphoreValue", 64, minimum=1)
    """How many requests to connected clients may wait for their answers at a time."""
    drain_s: int = option("shutdownWaitTimeSeconds", 30, minimum=0)
    """How long a stop waits for requests under way."""

    def __post_init__(self) -> None:
        check(self)
        high, low = self.write_high_water, self.write_low_water
        if high and low and low > high:
            raise ConfigError(
                f"writeBufferLowWaterMark={low} is above writeBufferHighWaterMark={high}: lower the first"
            )

    @property
    def water_marks(self) -> tuple[int, int]:
        """High and low, in bytes."""
        if self.write_high_water and self.write_low_water:
            return self.write_high_water, self.write_low_water
        return 64 * KiB, 32 * KiB


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerSettings:
    """The calling side: calls between servers, and from clients to servers."""

    connect_timeout_ms: int = option("connectTimeoutMillis", 3000, minimum=1, unit="span_ms")
    idle_max_s: int = option("clientChannelMaxIdleTimeSeconds", 120, minimum=1)
    """A connection unused for this long is closed; the next call makes another."""
    oneway_max: int = option("clientOnewaySemaphoreValue", 65535, minimum=1)
    async_max: int = option("clientAsyncSemaphoreValue", 65535, minimum=1)
    close_on_timeout: bool = option("clientCloseSocketIfTimeout", True)
    """Whether the connection is closed when a call on it times out."""

    def __post_init__(self) -> None:
        check(self)
