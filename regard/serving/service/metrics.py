"""The metrics of a server in Prometheus' format. Labels contain no keys, no addresses and no texts."""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """All metrics of one server, in a registry of its own."""

    def __init__(self) -> None:
        disable_created_metrics()  # a second time series for each, which few tools read
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter("regard_requests", "Responses", ("route", "status"), registry=registry)
        self.request_seconds = Histogram(
            "regard_request_seconds",
            "Seconds from a request to its response",
            ("route",),
            buckets=SECONDS,
            registry=registry,
        )
        self.queue_length = Gauge("regard_queue_length", "Unfinished requests", ("model",), registry=registry)
        self.queue_seconds = Histogram(
            "regard_queue_seconds",
            "Seconds that a text waited for its batch",
            ("model",),
            buckets=SECONDS,
            registry=registry,
        )
        self.batch_rows = Histogram(
            "regard_batch_rows", "Texts of a batch", ("model",), buckets=ROWS, registry=registry
        )
        self.batch_seconds = Histogram(
            "regard_batch_seconds", "Seconds of a batch", ("model",), buckets=SECONDS, registry=registry
        )
        self.tokens = Counter("regard_tokens", "Tokens read (prompt) and written", ("kind",), registry=registry)
        self.texts = Counter("regard_texts", "Texts of requests, by the name of the key", ("key",), registry=registry)
        self.first_token_seconds = Histogram(
            "regard_first_token_seconds",
            "Seconds until the first token of a stream",
            buckets=SECONDS,
            registry=registry,
        )
        self.token_seconds = Histogram(
            "regard_token_seconds", "Seconds between two tokens of a text", buckets=SECONDS, registry=registry
        )
        self.cancelled = Counter("regard_cancelled", "Requests whose client disconnected", registry=registry)
        self.rejected = Counter("regard_rejected", "Refused requests", ("reason",), registry=registry)

    def text(self) -> bytes:
        """Return the metrics as Prometheus reads them."""
        return generate_latest(self.registry)
