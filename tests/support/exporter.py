"""Metrics pages of scripted model servers, as vLLM, SGLang, TGI and Triton write them.

Counters grow with time at the rates of a `Load`, so that what any reader should find is known.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from aiohttp import web

BOUNDS = (0.1, 0.5, 1.0, 5.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one model server is doing. `shares` are the parts of its requests in each latency bucket,
    the last one above every bound.
    """

    running: float = 4
    waiting: float = 1
    kv_ratio: float = 0.5
    requests_per_second: float = 20
    failures_per_second: float = 2
    tokens_per_second: float = 900
    hit_ratio: float = 0.25
    shares: tuple[float, float, float, float, float] = (0.2, 0.5, 0.2, 0.1, 0.0)


Names = Literal["new", "old", "both"]
Page = Callable[[Load, float], str]


def histogram(name: str, labels: str, load: Load, seconds: float, *, unit: float = 1.0) -> str:
    """Write a histogram whose buckets grow at the load's rates; `unit` scales the bounds."""
    total = load.requests_per_second * seconds
    lines, below = [], 0.0
    for bound, share in zip((*BOUNDS, float("inf")), load.shares, strict=True):
        below += share
        le = "+Inf" if bound == float("inf") else repr(bound * unit)
        lines.append(f'{name}_bucket{{{labels},le="{le}"}} {total * below}')
    lines += [f"{name}_sum{{{labels}}} {total * 0.4}", f"{name}_count{{{labels}}} {total}"]
    return "\n".join([f"# TYPE {name} histogram", *lines])


def vllm(names: Names = "new") -> Page:
    """Write pages with vLLM's present names, its former ones, or both."""

    def page(load: Load, seconds: float) -> str:
        one = 'engine="0",model_name="m"'
        good = load.requests_per_second * seconds
        lines = [
            f'vllm:num_requests_running{{engine="{engine}",model_name="m"}} {load.running / 2}'
            for engine in (0, 1)
        ]
        lines += [
            f"vllm:num_requests_waiting{{{one}}} {load.waiting}",
            f'vllm:request_success_total{{{one},finished_reason="stop"}} {good}',
            f'vllm:request_success_total{{{one},finished_reason="abort"}} {99 * seconds}',
            f"vllm:generation_tokens_total{{{one}}} {load.tokens_per_second * seconds}",
            histogram("vllm:time_to_first_token_seconds", one, load, seconds),
            histogram("vllm:e2e_request_latency_seconds", one, load, seconds),
        ]
        for is_new in {"new": (True,), "old": (False,), "both": (True, False)}[names]:
            usage = "kv_cache_usage_perc" if is_new else "gpu_cache_usage_perc"
            tokens = "inter_token_latency_seconds" if is_new else "time_per_output_token_seconds"
            cache = "prefix_cache" if is_new else "gpu_prefix_cache"
            lines += [
                f"vllm:{usage}{{{one}}} {load.kv_ratio}",
                histogram(f"vllm:{tokens}", one, load, seconds),
                f"vllm:{cache}_hits_total{{{one}}} {load.hit_ratio * 1000 * seconds}",
                f"vllm:{cache}_queries_total{{{one}}} {1000 * seconds}",
            ]
        return "\n".join(lines) + "\n"

    return page


def sglang(load: Load, seconds: float) -> str:
    """Write a page with every gauge repeated for two tensor-parallel ranks."""
    lines = []
    for rank in (0, 1):
        ranks = f'model_name="m",tp_rank="{rank}"'
        lines += [
            f"sglang:num_running_reqs{{{ranks}}} {load.running}",
            f"sglang:num_queue_reqs{{{ranks}}} {load.waiting}",
            f"sglang:token_usage{{{ranks}}} {load.kv_ratio}",
            f"sglang:cache_hit_rate{{{ranks}}} {load.hit_ratio}",
        ]
    labels = 'model_name="m"'
    started = load.requests_per_second + load.failures_per_second
    lines += [
        f"sglang:num_requests_total{{{labels}}} {started * seconds}",
        f"sglang:num_aborted_requests_total{{{labels}}} {load.failures_per_second * seconds}",
        f"sglang:generation_tokens_total{{{labels}}} {load.tokens_per_second * seconds}",
        histogram("sglang:time_to_first_token_seconds", labels, load, seconds),
        histogram("sglang:inter_token_latency_seconds", labels, load, seconds),
        histogram("sglang:e2e_request_latency_seconds", labels, load, seconds),
    ]
    return "\n".join(lines) + "\n"


def tgi(load: Load, seconds: float) -> str:
    """Write a page with TGI's names: counters have no ``_total``."""
    labels = 'method="batch"'
    started = load.requests_per_second + load.failures_per_second
    lines = [
        f"tgi_batch_current_size {load.running}",
        f"tgi_queue_size {load.waiting}",
        "# TYPE tgi_request_success counter",
        f"tgi_request_success {load.requests_per_second * seconds}",
        f"tgi_request_count {started * seconds}",
        f'tgi_request_failure{{err="overloaded"}} {load.failures_per_second * seconds}',
        f"tgi_request_generated_tokens_sum {load.tokens_per_second * seconds}",
        histogram("tgi_request_mean_time_per_token_duration", labels, load, seconds),
        histogram("tgi_request_duration", labels, load, seconds),
    ]
    return "\n".join(lines) + "\n"


def triton(load: Load, seconds: float) -> str:
    """Write a page on which an ensemble and its model both count every request."""
    lines = []
    for model in ("ensemble", "tensorrt_llm"):
        labels = f'model="{model}",version="1"'
        lines += [
            f"nv_inference_request_success{{{labels}}} {load.requests_per_second * seconds}",
            f'nv_inference_request_failure{{{labels},reason="OTHER"}} {load.failures_per_second * seconds}',
            f"nv_inference_request_duration_us{{{labels}}} {load.requests_per_second * 3e5 * seconds}",
        ]
    labels = 'model="tensorrt_llm",version="1"'
    for kind, value in (("scheduled", load.running), ("waiting", load.waiting), ("max", 512)):
        lines.append(f'nv_trt_llm_request_metrics{{{labels},request_type="{kind}"}} {value}')
    lines += [
        f'nv_trt_llm_kv_cache_block_metrics{{{labels},kv_cache_block_type="fraction"}} {load.kv_ratio}',
        f'nv_trt_llm_kv_cache_block_metrics{{{labels},kv_cache_block_type="used"}} 70',
        histogram("nv_inference_first_response_histogram_ms", labels, load, seconds, unit=1000),
        'nv_gpu_utilization{gpu_uuid="a"} 0.75',
        'nv_gpu_memory_used_bytes{gpu_uuid="a"} 30',
        'nv_gpu_memory_total_bytes{gpu_uuid="a"} 40',
    ]
    return "\n".join(lines) + "\n"


def envoy(rates: Mapping[str, tuple[float, float]], seconds: float) -> str:
    """Write an Envoy's page: endpoint → successes and errors per second."""
    lines = []
    for address, (successes, errors) in rates.items():
        labels = f'envoy_cluster_name="c",envoy_endpoint_address="{address}"'
        lines += [
            f"envoy_cluster_endpoint_rq_success{{{labels}}} {int(successes * seconds)}",
            f"envoy_cluster_endpoint_rq_error{{{labels}}} {int(errors * seconds)}",
        ]
    return "\n".join(lines) + "\n"


@dataclass(slots=True)
class Exporter:
    """An HTTP server whose pages a test replaces as it likes.

    A page is text, or a function of the seconds since the start; a name that is not in `pages`
    answers 404.
    """

    port: int
    pages: dict[str, Callable[[float], str | bytes]] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)
    requests: int = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def url(self, page: str) -> str:
        return f"http://{self.address}/{page}"

    def add(self, name: str, page: Page, load: Load) -> None:
        """Serve `page` under ``/<name>``."""
        self.pages[name] = lambda seconds: page(load, seconds)

    async def answer(self, request: web.Request) -> web.Response:
        self.requests += 1
        page = self.pages.get(request.match_info["name"])
        if page is None:
            raise web.HTTPNotFound
        body = page(time.monotonic() - self.started)
        return web.Response(
            body=body.encode() if isinstance(body, str) else body,
            headers={"Content-Type": "text/plain; version=0.0.4"},
        )


@contextlib.asynccontextmanager
async def exporter() -> AsyncIterator[Exporter]:
    """Serve metrics pages on a free port until the block ends."""
    served = Exporter(port=0)
    app = web.Application()
    app.router.add_get("/{name:.*}", served.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        served.port = int(runner.addresses[0][1])
        yield served
    finally:
        await runner.cleanup()
