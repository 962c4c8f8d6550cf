"""How people see what the admin API answers: pure functions from its documents to pages."""

from controlplane.cli.pages.canary import canaries_page, canary_page
from controlplane.cli.pages.explain import explain_endpoint_page, explain_page
from controlplane.cli.pages.fleet import node_page, status_page
from controlplane.cli.pages.services import history_page, services_page, weights_page

__all__ = [
    "canaries_page",
    "canary_page",
    "explain_endpoint_page",
    "explain_page",
    "history_page",
    "node_page",
    "services_page",
    "status_page",
    "weights_page",
]
