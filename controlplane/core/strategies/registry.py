"""The laws by name, as a value: adding one gives a new registry and changes no other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from controlplane.core.strategies.base import Law
from controlplane.core.strategies.capacity import CAPACITY
from controlplane.core.strategies.equal import EQUAL
from controlplane.core.strategies.inverse_p99 import INVERSE_P99
from controlplane.core.strategies.static import STATIC

ENTRY_POINT_GROUP: Final = "trimtab.strategies"
"""Packages offer further laws under this entry point group, each a `Law`."""


@dataclass(frozen=True, slots=True)
class Registry:
    """Laws by name."""

    laws: Mapping[str, Law[Any]] = field(default_factory=lambda: MappingProxyType({}))

    def get(self, name: str) -> Law[Any] | None:
        """Find a law; `None` if there is none of this name."""
        return self.laws.get(name)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all laws, sorted."""
        return tuple(sorted(self.laws))

    def with_law(self, law: Law[Any]) -> Registry:
        """Give a registry that has one law more.

        Raises:
            ValueError: if the name is taken: a plug-in must not change what a document means.
        """
        if law.name in self.laws:
            raise ValueError(f"there is a law `{law.name}` already")
        return Registry(MappingProxyType({**self.laws, law.name: law}))


BUILTIN: Final = Registry(
    MappingProxyType({law.name: law for law in (CAPACITY, EQUAL, INVERSE_P99, STATIC)}),
)
