"""Views: what they say, and that whatever floats are inside, they are strict JSON."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.model.rollout import CanaryState, Phase
from controlplane.ops import views
from controlplane.ops.strict_json import encode, plain
from tests.support import state_views as states

ANY_FLOAT = st.floats(allow_nan=True, allow_infinity=True)


def strict(body: bytes) -> Any:
    """Parse as a parser would that follows the standard."""

    def refuse(constant: str) -> None:
        pytest.fail(f"{constant} is not JSON")

    return json.loads(body, parse_constant=refuse)


def every_view(view: Any, history: Any = ()) -> list[Any]:
    return [
        views.status_view(view),
        views.node_view(view, "edge/2"),
        views.services_view(view),
        views.service_view(view, "chat"),
        views.service_view(view, "broken"),
        views.weights_view(view, "chat"),
        views.weights_view(view, "embed"),
        views.explain_view(view, "chat"),
        views.explain_endpoint_view(view, "chat", states.SLOW),
        views.canary_view(view, "chat"),
        views.canaries_view(view),
        views.history_view("chat", history, with_bodies=True),
    ]


@settings(max_examples=60, deadline=None)
@given(st.lists(ANY_FLOAT, min_size=8, max_size=8))
def test_every_view_is_strict_json_whatever_floats_are_inside(floats: list[float]) -> None:
    # given a state in which each float that the world can influence is arbitrary
    past = dataclasses.replace(states.history()[0], accepted_at_unix_seconds=floats[7])
    service = states.service(
        decision=states.decision(values=(floats[0], floats[1]), term=floats[2], sample=floats[3]),
        canary=states.canary(figure=floats[4], requests=floats[5]),
    )
    view = states.view(services=(service,), last_tick_seconds=floats[6])

    # when each view is written, then it parses as strict JSON and has the schema's version
    for found in every_view(view, (past,)):
        if found is not None:
            assert strict(encode(found))["schema_version"] == 1


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | ANY_FLOAT | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(json_values)
def test_plain_keeps_everything_but_what_json_lacks(value: Any) -> None:
    def expected(item: Any) -> Any:
        if isinstance(item, float) and not math.isfinite(item):
            return None
        if isinstance(item, dict):
            return {key: expected(inner) for key, inner in item.items()}
        return [expected(inner) for inner in item] if isinstance(item, list) else item

    assert strict(encode(value)) == expected(value)


def test_plain_keeps_zero_and_knows_numpy_and_enums() -> None:
    found = plain({"a": np.float64(0.0), "b": np.array([0, 1]), "c": Phase.IDLE, "d": {"z", "y"}})
    assert found == {"a": 0.0, "b": [0, 1], "c": "idle", "d": ["y", "z"]}


def test_plain_refuses_what_has_no_json_form() -> None:
    with pytest.raises(TypeError, match="`object` has no JSON form"):
        plain(object())


def test_weights_show_what_envoy_has_and_where_it_is_heading() -> None:
    found = views.weights_view(states.view(), "chat")
    assert found is not None
    fast, slow = found["endpoints"]
    assert (fast["endpoint"], fast["weight"], fast["share"]) == (states.FAST, 750_000, 0.75)
    assert (fast["previous_weight"], fast["proposed_share"]) == (700_000, 0.8)
    assert (fast["trend"], slow["trend"]) == ("rising", "falling")
    assert fast["reasons"] == ["step limit: limited to +10 %"]
    assert (slow["state"], slow["zone"], slow["gpu"]) == ("no data", "b", "A10")


def test_weights_of_an_undecided_service_are_unknown_not_zero() -> None:
    found = views.weights_view(states.view(), "embed")
    assert found is not None
    assert [row["weight"] for row in found["endpoints"]] == [None, None]
    assert found["decision_age_seconds"] is None


def test_an_endpoint_that_discovery_lost_is_still_shown_while_envoy_has_it() -> None:
    # given a service whose decision knows an endpoint that discovery no longer has
    whole = states.topology()
    less = dataclasses.replace(whole, endpoints=whole.endpoints[:1])
    view = states.view(services=(states.service(topology=less),))
    # when
    found = views.weights_view(view, "chat")
    # then
    assert found is not None
    assert [row["health"] for row in found["endpoints"]] == ["healthy", "gone"]


def test_explain_follows_one_endpoint_from_sample_to_weight() -> None:
    found = views.explain_endpoint_view(states.view(), "chat", states.SLOW)
    assert found is not None
    signals = {signal["signal"]: signal for signal in found["signals"]}
    assert signals["running"]["value"] is None
    assert signals["running"]["dropped"] == "nan"
    assert signals["running"]["query"] == "vllm:num_requests_running"
    assert signals["kv_usage_ratio"]["value"] == pytest.approx(0.9)
    assert [(stage["name"], stage["after"]) for stage in found["stages"]] == [
        ("capacity", 0.2),
        ("step limit", 0.25),
    ]
    assert found["stages"][0]["terms"] == ({"name": "u", "value": 1.0},)
    assert (found["weight"], found["share"]) == (250_000, 0.25)


def test_explain_of_a_service_has_each_endpoint_after_each_stage() -> None:
    found = views.explain_view(states.view(), "chat")
    assert found is not None
    assert [stage["name"] for stage in found["stages"]] == ["capacity", "step limit"]
    fast, slow = found["endpoints"]
    assert (fast["values"], slow["values"]) == ([0.8, 0.75], [0.2, 0.25])
    assert fast["reasons"] == ["", "limited to +10 %"]


def test_every_view_of_a_large_service_is_quick() -> None:
    # given a service with 5,000 endpoints: views are made on the event loop (fault R39: 250 ms)
    view = states.view(services=(states.large_service(5_000),))
    for make in (views.weights_view, views.explain_view, views.service_view):
        # when
        started_at = time.perf_counter()
        body = encode(make(view, "chat"))
        # then (generously, for a machine with neighbours)
        assert len(body) > 300
        assert time.perf_counter() - started_at < 1.0


def test_status_names_the_worst_state_of_a_node_by_the_fleets_own_clock() -> None:
    found = views.status_view(states.view())
    assert [node["state"] for node in found["nodes"]] == ["SYNCED", "NACKED", "NOT SENT"]
    assert found["nodes"][0]["last_contact_age_seconds"] == pytest.approx(1.0)
    assert found["sources"][0]["last_success_age_seconds"] == pytest.approx(60.0)
    assert found["sources"][1]["last_success_age_seconds"] is None


def test_a_canary_shows_the_weight_that_is_set_and_the_one_that_is_measured() -> None:
    found = views.canary_view(states.view(), "chat")
    assert found is not None
    assert found["set_weight_percent"] == pytest.approx(10.0, abs=0.01)
    assert found["actual_weight_percent"] == pytest.approx(10.0)


def test_without_requests_the_measured_weight_is_unknown() -> None:
    unknown = states.service(canary=states.canary(requests=math.nan))
    found = views.canary_view(states.view(services=(unknown,)), "chat")
    assert found is not None
    assert found["actual_weight_percent"] is None


def test_a_canary_that_was_never_judged_has_no_age_of_judgement() -> None:
    fresh = dataclasses.replace(states.canary(), state=CanaryState())
    found = views.canary_view(states.view(services=(states.service(canary=fresh),)), "chat")
    assert found is not None
    assert found["judged_age_seconds"] is None


def test_a_service_whose_only_document_was_refused_is_shown_with_its_problems() -> None:
    found = views.service_view(states.view(), "broken")
    assert found is not None
    assert found["strategy"] is None
    assert [problem["path"] for problem in found["rejected"]["problems"]] == [
        "guards.floor_ratio",
        "law",
    ]


def test_unknown_names_have_no_view() -> None:
    view = states.view()
    assert views.service_view(view, "x") is None
    assert views.weights_view(view, "x") is None
    assert views.explain_view(view, "x") is None
    assert views.explain_view(view, "embed") is None
    assert views.explain_endpoint_view(view, "x", states.SLOW) is None
    assert views.explain_endpoint_view(view, "chat", "1.1.1.1:1") is None
    assert views.canary_view(view, "embed") is None
    assert views.node_view(view, "x") is None
