"""Logs: format, fields, and that secrets stay out."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.config import LogSettings
from controlplane.ops.logging import REDACTED, configure_logging, redact

SECRET = "s3cr3t-0f-the-mesh"


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def _refuse(password: str) -> None:
    raise RuntimeError(f"refused: password={password}")


def logged(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_off_a_terminal_an_event_is_one_json_line_with_utc_time_and_level() -> None:
    stream = io.StringIO()
    configure_logging(LogSettings(), stream=stream)
    structlog.get_logger("trimtab.test").warning("sample_dropped", endpoint="10.0.0.1:80", reason="nan")
    (line,) = logged(stream)
    assert line["event"] == "sample_dropped"
    assert (line["level"], line["reason"], line["logger"]) == ("warning", "nan", "trimtab.test")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", line["timestamp"])


def test_records_of_other_libraries_get_the_same_form() -> None:
    stream = io.StringIO()
    configure_logging(LogSettings(), stream=stream)
    logging.getLogger("aiohttp.server").error("Error handling %s", "request")
    (line,) = logged(stream)
    assert (line["event"], line["logger"]) == ("Error handling request", "aiohttp.server")


def test_the_level_is_kept_and_configuring_twice_prints_once() -> None:
    stream = io.StringIO()
    configure_logging(LogSettings(level="debug"), stream=io.StringIO())
    configure_logging(LogSettings(level="warning"), stream=stream)
    structlog.get_logger().info("quiet")
    structlog.get_logger().error("loud")
    assert [line["event"] for line in logged(stream)] == ["loud"]


def test_on_a_console_people_read_it() -> None:
    stream = io.StringIO()
    configure_logging(LogSettings(format="console"), stream=stream)
    structlog.get_logger().info("published", token=SECRET)
    assert "published" in stream.getvalue()
    assert SECRET not in stream.getvalue()


@pytest.mark.fault("R34")
@pytest.mark.parametrize("form", ["json", "console"])
def test_secrets_never_reach_the_log(form: Any) -> None:
    # given
    stream = io.StringIO()
    configure_logging(LogSettings(format=form), stream=stream)
    log = structlog.get_logger()
    # when secrets come in every disguise that a mistake may give them
    log.info("a", token=SECRET, headers={"Authorization": f"Bearer {SECRET}"})
    log.info("b", url=f"https://user:{SECRET}@consul:8500/v1", error=ValueError(f"token={SECRET}"))
    log.info("c", text=f'{{"X-Consul-Token": "{SECRET}"}}', nested=[{"api_key": SECRET}])
    log.info("authorization: Bearer %s", SECRET)
    log.info("e", bearer=f"Basic {SECRET}", query=f"?consul_token={SECRET}&index=1")
    try:
        _refuse(SECRET)
    except RuntimeError:
        log.exception("d")
        logging.getLogger("other").exception("with secret: %s", SECRET)
    # then none is in the output
    assert SECRET not in stream.getvalue()
    assert stream.getvalue().count(REDACTED) >= 8


def test_a_count_of_tokens_is_no_secret() -> None:
    event = {"event": "x", "token_count": 7, "token_file": "/run/token", "tokens": None}
    assert redact(None, "info", dict(event)) == event


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(), st.text() | st.integers() | st.none() | st.lists(st.text())))
def test_redaction_never_raises_and_keeps_keys(event: dict[str, Any]) -> None:
    assert redact(None, "info", dict(event)).keys() == event.keys()
