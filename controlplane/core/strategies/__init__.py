"""Weight laws: one module each, behind a registry. A law turns signals into raw figures, no more."""

from controlplane.core.strategies.base import Law, LawResult, LawView
from controlplane.core.strategies.registry import BUILTIN, ENTRY_POINT_GROUP, Registry

__all__ = ["BUILTIN", "ENTRY_POINT_GROUP", "Law", "LawResult", "LawView", "Registry"]
