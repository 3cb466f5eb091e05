"""The HTTP port where Prometheus reads metrics and load balancers check the broker's health."""

from __future__ import annotations

from flaremq.base.live import Live
from flaremq.broker.features import Feature
from flaremq.broker.settings import BrokerSettings, MetricsExporter
from flaremq.broker.stats.metrics import BrokerMetrics
from flaremq.remoting.http import HttpServer


class Exporter(Feature):
    """Listens only if metricsExporterType=PROM."""

    def __init__(self, settings: Live[BrokerSettings], metrics: BrokerMetrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._http: HttpServer | None = None

    async def start(self) -> None:
        settings = self._settings.now
        if settings.metrics_exporter is not MetricsExporter.PROM:
            return
        pages = {"/metrics": self._metrics.page, "/health": self._metrics.health}
        self._http = HttpServer(settings.metrics_host or settings.ip1, settings.metrics_port, pages)
        await self._http.start()

    async def stop(self) -> None:
        if self._http is not None:
            await self._http.stop()
