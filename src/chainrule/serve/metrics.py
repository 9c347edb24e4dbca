"""/metrics: counters of requests and tokens, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from chainrule.serve.models import Models

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

_OF_MODELS: dict[str, tuple[str, type[GaugeMetricFamily] | type[CounterMetricFamily], str]] = {
    "waiting": ("Requests that wait.", GaugeMetricFamily, "waiting"),
    "writing": ("Texts that are being generated.", GaugeMetricFamily, "generating"),
    "tokens": ("Tokens that were generated.", CounterMetricFamily, "tokens"),
    "reused": ("Tokens of prompts that a kept state had read.", CounterMetricFamily, "reused"),
}
"""For each metric of a model: what it is, its type, and the attribute of the scheduler."""


class Meters:
    """Counters of requests, and what each model is doing."""

    def __init__(self, models: Models) -> None:
        self._models, self._registry = models, CollectorRegistry()
        self.requests = Counter(
            "chainrule_requests", "Answers, by route and status.", ["route", "status"], registry=self._registry
        )
        self.seconds = Histogram(
            "chainrule_request_seconds",
            "Time until an answer was complete.",
            ["route"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield what the models are doing now."""
        for name, (explanation, family, attribute) in _OF_MODELS.items():
            metric = family(f"chainrule_{name}", explanation, labels=["model"])
            for served in self._models.all():
                metric.add_metric([served.name], getattr(served.scheduler, attribute))
            yield metric

    def text(self) -> bytes:
        """Return all metrics, as Prometheus reads them."""
        return generate_latest(self._registry)
