"""The committed reference pages say what the program does now."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from controlplane.cli.reference import pages
from controlplane.cli.reference.metrics import declared_metrics
from controlplane.ops.metrics import StateCollector
from tests.support import state_views as states

FOLDER = Path(__file__).parents[2] / "docs/reference"


@pytest.mark.parametrize("name", sorted(pages()))
def test_the_committed_page_is_current(name: str) -> None:
    assert (FOLDER / name).read_text("utf-8") == pages()[name], "run `make docs`"


def test_every_metric_that_is_exposed_is_described() -> None:
    registry = CollectorRegistry()
    StateCollector(state=states.FixedState(states.view()), registry=registry)
    exposed = {sample.name for family in registry.collect() for sample in family.samples}
    assert exposed <= {each.name for each in declared_metrics()}


def test_every_command_and_setting_is_described() -> None:
    found = pages()
    assert "## `trimtab canary promote`" in found["cli.md"]
    assert "`TRIMTAB_CONSUL__TOKEN_FILE`" in found["settings.md"]
    assert "`hysteresis_ratio`" in found["strategy.md"]
    assert "`max_ratio_to_baseline`" in found["canary.md"]
