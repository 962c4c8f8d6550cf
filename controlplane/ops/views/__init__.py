"""What the admin API answers: pure functions from the state view to JSON-ready documents.

Every document has `schema_version`; fields are only ever added under one version. Unknown is `None`,
never zero; zeros are always there. Ages are seconds before the moment of the view.
"""

from controlplane.ops.views.canary import canaries_view, canary_view
from controlplane.ops.views.common import SCHEMA_VERSION, Document
from controlplane.ops.views.explain import explain_endpoint_view, explain_view
from controlplane.ops.views.services import history_view, service_view, services_view, weights_view
from controlplane.ops.views.status import node_view, status_view

__all__ = [
    "SCHEMA_VERSION",
    "Document",
    "canaries_view",
    "canary_view",
    "explain_endpoint_view",
    "explain_view",
    "history_view",
    "node_view",
    "service_view",
    "services_view",
    "status_view",
    "weights_view",
]
