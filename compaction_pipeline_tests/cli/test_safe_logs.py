"""The log of the command line shows no control character, and no text can forge a line of it."""

from __future__ import annotations

import logging

import pytest

from compaction_pipeline.cli.logs import log_to_stderr
from compaction_pipeline.cli.output import Verbosity

HARMFUL = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, 0x202E, 0x2066, 0xFEFF)]


@pytest.fixture(autouse=True)
def logs() -> object:
    loggers = [logging.getLogger(name) for name in ("compaction_pipeline", "uvicorn")]
    before = [(each, list(each.handlers), each.level) for each in loggers]
    log_to_stderr(Verbosity.VERBOSE)
    yield
    for each, handlers, level in before:
        each.handlers[:] = handlers
        each.setLevel(level)


def test_no_control_character_and_no_forged_line_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    log, server = logging.getLogger("compaction_pipeline.x"), logging.getLogger("uvicorn.error")
    for harmful in HARMFUL:
        name = f"a{harmful}2026-01-01 00:00:00,000 INFO compaction_pipeline.x forged"
        log.warning("table=%s path=%s", name, f"s3://b/{name}")
        try:
            raise ValueError(name)
        except ValueError as error:
            log.exception("id %s failed", name)
            server.error("Exception in ASGI application\n", exc_info=error)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 10 * len(HARMFUL)
    assert all(line.isprintable() for line in lines)
    assert not any(line.startswith("2026-01-01") for line in lines)
    assert sum(line.startswith("20") for line in lines) == 3 * len(HARMFUL)
