"""/metrics: what the server has done, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from chainrule.serve.models import Models

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


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
        """What the models are doing now."""
        waiting = GaugeMetricFamily("chainrule_waiting", "Requests that wait.", labels=["model"])
        writing = GaugeMetricFamily("chainrule_writing", "Texts that are being written.", labels=["model"])
        tokens = CounterMetricFamily("chainrule_tokens", "Tokens that were written.", labels=["model"])
        reused = CounterMetricFamily(
            "chainrule_reused", "Tokens of prompts that a kept state had read.", labels=["model"]
        )
        for served in self._models.all():
            waiting.add_metric([served.name], served.engine.waiting)
            writing.add_metric([served.name], served.engine.writing)
            tokens.add_metric([served.name], served.engine.tokens)
            reused.add_metric([served.name], served.engine.reused)
        yield from (waiting, writing, tokens, reused)

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return generate_latest(self._registry)
