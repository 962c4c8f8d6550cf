"""Logs: events with fields, on standard error, JSON for machines and colour for people.

Structlog writes Trimtab's own events; the standard library's records (asyncio, aiohttp, grpc) go
through the same processors, so that one stream has one format. Secrets are cut out twice: Trimtab
never logs them, and `redact` removes what looks like one, from fields and from texts of exceptions.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, Final, TextIO

import structlog

from controlplane.config import LogSettings

REDACTED: Final = "[redacted]"

_SECRET_KEY = re.compile(
    r"(?i)(token|secret|passw(or)?d|authorization|cookie|credential|api_?key|private_?key)"
)
_SECRET_TEXT = re.compile(
    r"(?i)(\b(?:bearer|basic)\s+|\b[\w-]*(?:token|secret|password|authorization|api[_-]?key)[\"']?\s*[=:]\s*[\"']?)"
    r"(?!bearer\b|basic\b)[^\s\"',;&]+"
)
_URL_CREDENTIALS = re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^\s/@]+@", re.IGNORECASE)
_HARMLESS = frozenset({"token_file", "bearer_token_file", "tokens_per_second", "output_tokens"})
"""Keys that look secret and hold a path or a count."""


def configure_logging(settings: LogSettings, *, stream: TextIO | None = None) -> None:
    """Send all logs to `stream` (standard error by default), from `settings.level` upwards.

    `auto` means console on a terminal and JSON off one. Calling it again replaces what was configured.
    """
    target = stream or sys.stderr
    is_console = settings.format == "console" or (settings.format == "auto" and target.isatty())
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    shared = _shared_processors()
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.ExtraAdder(), *shared],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_rendering(is_console=is_console),
            ],
        )
    )
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    # It tells of every change of every file in a watched folder; our own sources tell what mattered.
    logging.getLogger("watchfiles").setLevel(logging.WARNING)


def redact(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replace values of secret-looking keys, and credentials inside texts, at any depth.

    A structlog processor. Numbers and booleans stay: a count of tokens is no secret.
    """
    for key, value in event.items():
        event[key] = _clean(key, value)
    return event


def _shared_processors() -> list[structlog.typing.Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]


def _rendering(*, is_console: bool) -> list[structlog.typing.Processor]:
    # The traceback becomes text before redaction, so that it is searched too.
    before: list[structlog.typing.Processor] = [structlog.processors.format_exc_info, redact]
    if is_console:
        plain = structlog.dev.plain_traceback
        return [*before, structlog.dev.ConsoleRenderer(exception_formatter=plain)]
    return [*before, structlog.processors.JSONRenderer(default=str)]


def _clean(key: str, value: Any) -> Any:  # noqa: ANN401 - any log value
    if _is_secret(key) and not isinstance(value, (bool, int, float, type(None))):
        return REDACTED
    if isinstance(value, str):
        return _clean_text(value)
    if isinstance(value, Mapping):
        return {name: _clean(str(name), item) for name, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_clean("", item) for item in value]
    if isinstance(value, BaseException):
        return _clean_text(f"{type(value).__name__}: {value}")
    return value


def _is_secret(key: str) -> bool:
    return key not in _HARMLESS and _SECRET_KEY.search(key) is not None


def _clean_text(text: str) -> str:
    without = _SECRET_TEXT.sub(lambda match: f"{match[1]}{REDACTED}", text)
    return _URL_CREDENTIALS.sub(rf"\1{REDACTED}@", without)
