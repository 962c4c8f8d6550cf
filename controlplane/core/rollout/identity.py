"""The identity of what a canary document runs."""

from __future__ import annotations

import dataclasses
import hashlib
import json

from controlplane.model.rollout import CanarySpec

_STEERING_FIELDS = ("desired", "retry", "description")


def hash_of(spec: CanarySpec) -> str:
    """Hash what a document runs, for `step`: a change of it starts over.

    Left out is what people steer a running canary with: `desired`, `retry`, `description`, and the
    gates, which may be lifted under way.
    """
    content = dataclasses.asdict(spec)
    for name in _STEERING_FIELDS:
        del content[name]
    for step_content in content["steps"]:
        del step_content["gate"]
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]
