"""Accepted documents, oldest first: what `trimtab strategy history` shows."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import structlog
from pydantic import TypeAdapter, ValidationError

from controlplane.model.documents import AcceptedDocument
from controlplane.store.log import DecisionLog

MAX_PER_SERVICE = 100


class History:
    """Keeps accepted documents in a log of their own, and the newest of each service in memory."""

    def __init__(self, *, log: DecisionLog, max_per_service: int = MAX_PER_SERVICE) -> None:
        """Read what the log already has; records that are no accepted documents are left out.

        Raises:
            OSError: if the log cannot be read.
        """
        self._log = log
        self._max_per_service = max_per_service
        self._documents: dict[str, deque[AcceptedDocument]] = {}
        unreadable = 0
        adapter = TypeAdapter(AcceptedDocument)
        for record in log.read():
            try:
                self._remember(adapter.validate_python(record))
            except ValidationError:
                unreadable += 1
        if unreadable:
            structlog.get_logger("trimtab.store").warning("history_unreadable", records=unreadable)

    def append(self, document: AcceptedDocument) -> None:
        """Add one, unless it is what the service had last: a restart accepts it again."""
        known = self._documents.get(document.service)
        if known and (known[-1].hash, known[-1].version) == (document.hash, document.version):
            return
        self._remember(document)
        record: Mapping[str, Any] = asdict(document)
        self._log.append([record])

    def of(self, service: str) -> tuple[AcceptedDocument, ...]:
        """Give a service's newest documents, oldest first."""
        return tuple(self._documents.get(service, ()))

    def _remember(self, document: AcceptedDocument) -> None:
        newest = self._documents.setdefault(document.service, deque(maxlen=self._max_per_service))
        newest.append(document)
