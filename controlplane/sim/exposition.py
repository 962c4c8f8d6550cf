"""vLLM's metrics: its names, labels, buckets and meanings, as its V1 engine exposes them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from controlplane.sim.engine import Engine, Token

FIRST_TOKEN_BUCKETS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
    1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
INTER_TOKEN_BUCKETS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75,
    1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
REQUEST_BUCKETS = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0,
    30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
"""All three from `vllm/v1/metrics/buckets.py`."""

FINISHED_REASONS = ("stop", "length", "abort")

_LABELS = ("model_name", "engine")


class Exposition:
    """The metrics of one server, on a registry of its own."""

    def __init__(self, engine: Engine, *, model: str) -> None:
        """Report on `engine`, which serves the model called `model`."""
        self._registry = CollectorRegistry()
        self._labels = (model, "0")
        self._engine = engine
        self._counted_hits = self._counted_queries = 0
        self._running = self._gauge("num_requests_running", "Requests in the running batch.")
        self._waiting = self._gauge("num_requests_waiting", "Requests waiting for the batch.")
        self._kv_usage = self._gauge("kv_cache_usage_perc", "KV cache in use. 1 means 100 percent.")
        self._ttft = self._histogram(
            "time_to_first_token_seconds", "Time to first token.", FIRST_TOKEN_BUCKETS
        )
        self._gap = self._histogram(
            "inter_token_latency_seconds", "Time between tokens.", INTER_TOKEN_BUCKETS
        )
        self._e2e = self._histogram(
            "e2e_request_latency_seconds", "Time of a whole request.", REQUEST_BUCKETS
        )
        self._prompt = self._counter("prompt_tokens", "Prompt tokens processed.")
        self._generation = self._counter("generation_tokens", "Tokens generated.")
        self._queries = self._counter(
            "prefix_cache_queries", "Prompt tokens looked up in the prefix cache."
        )
        self._hits = self._counter("prefix_cache_hits", "Prompt tokens found in the prefix cache.")
        success = Counter(
            "vllm:request_success",
            "Finished requests.",
            (*_LABELS, "finished_reason"),
            registry=self._registry,
        )
        self._success = {reason: success.labels(*self._labels, reason) for reason in FINISHED_REASONS}

    def token(self, token: Token, *, prompt_tokens: int) -> None:
        """Count a token of a request with so long a prompt."""
        self._generation.inc()
        if token.index == 0:
            self._ttft.observe(token.gap_seconds)
            self._prompt.inc(prompt_tokens)
        else:
            self._gap.observe(token.gap_seconds)

    def finished(self, token: Token, *, reason: str) -> None:
        """Count an answer that ends in this token."""
        self._e2e.observe(token.elapsed_seconds)
        self._success[reason].inc()

    def aborted(self) -> None:
        """Count a request whose client went away: vLLM files it under success too."""
        self._success["abort"].inc()

    def render(self) -> bytes:
        """Write the metrics in Prometheus's text format."""
        self._running.set(self._engine.running)
        self._waiting.set(self._engine.waiting)
        self._kv_usage.set(self._engine.kv_usage_ratio)
        self._queries.inc(self._engine.queried_tokens - self._counted_queries)
        self._hits.inc(self._engine.hit_tokens - self._counted_hits)
        self._counted_queries = self._engine.queried_tokens
        self._counted_hits = self._engine.hit_tokens
        return generate_latest(self._registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"vllm:{name}", text, _LABELS, registry=self._registry).labels(*self._labels)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"vllm:{name}", text, _LABELS, registry=self._registry).labels(*self._labels)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        found = Histogram(f"vllm:{name}", text, _LABELS, buckets=buckets, registry=self._registry)
        return found.labels(*self._labels)
