"""All reference pages."""

from __future__ import annotations

from controlplane.cli.reference.commands import commands_page
from controlplane.cli.reference.metrics import metrics_page
from controlplane.cli.reference.schemas import canary_page, settings_page, strategy_page


def pages() -> dict[str, str]:
    """Give every page by its file name."""
    return {
        "cli.md": commands_page(),
        "settings.md": settings_page(),
        "strategy.md": strategy_page(),
        "canary.md": canary_page(),
        "metrics.md": metrics_page(),
    }
