"""What `check` learns from one read."""

from __future__ import annotations

from controlplane.model.signals import Provenance, Readings, Sample
from controlplane.model.strategy import SignalsSpec
from controlplane.sources import catalogue
from controlplane.sources.preflight import survey
from tests.support.signal_requests import signal_request


def test_coverage_counts_endpoints_and_tells_idle_from_absent() -> None:
    request = signal_request(("10.0.0.1:80", "10.0.0.2:80"), SignalsSpec(custom={"mine": "up"}))
    samples = (Sample("10.0.0.1:80", "running", 1, 0), Sample("10.0.0.1:80", "waiting", 1, 0))
    found = {"running", "waiting", "ttft_p90_seconds"}
    expected = (*catalogue.signals("vllm"), "mine")
    readings = Readings(
        "chat",
        0.0,
        samples,
        provenance=(Provenance("running", "prometheus", "sum(x)"),),
        unresolved=tuple(signal for signal in expected if signal not in found),
        unmatched_series=1,
        unmatched=("10.0.0.3:80",),
    )
    result = survey(request, readings)
    rows = {row.signal: row for row in result.coverage}
    assert tuple(rows) == expected
    assert (rows["running"].endpoints, rows["running"].query) == (1, "sum(x)")
    assert (rows["ttft_p90_seconds"].endpoints, rows["ttft_p90_seconds"].is_found) == (0, True)
    assert (rows["mine"].is_found, rows["mine"].is_optional) == (False, False)
    assert rows["gpu_fault"].is_optional
    assert result.endpoints_without_series == ("10.0.0.2:80",)
    assert result.unmatched == ("10.0.0.3:80",)
    assert not result.is_usable


def test_a_service_is_usable_without_envoy_and_gpu_metrics() -> None:
    request = signal_request(("10.0.0.1:80",))
    absent = tuple(signal for signal in catalogue.signals("vllm") if catalogue.is_optional("vllm", signal))
    readings = Readings("chat", 0.0, (Sample("10.0.0.1:80", "running", 1, 0),), unresolved=absent)
    assert survey(request, readings).is_usable
