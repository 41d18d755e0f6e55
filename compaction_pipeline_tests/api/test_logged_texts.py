"""What a client writes does not reach the log as it is."""

from __future__ import annotations

import logging
from unittest import mock
from urllib.parse import quote

import pytest

from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.errors import StorageUnavailable
from compaction_pipeline_tests.api.served import REGISTRATION, Served
from compaction_pipeline_tests.api.sockets import answer_on, connected, listening

HARMFUL = "a\x1b[2J\x9b31m\x85\u202e\u2028\n2026-01-01 INFO forged"


def test_no_text_of_a_client_reaches_the_log_with_control_characters(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    name, services = quote(HARMFUL, safe=""), served.house.services
    worker = served.registered(host=HARMFUL, process=HARMFUL, version=HARMFUL, resource_id=HARMFUL)
    tokens = {role: served.token(role) for role in Role}
    with caplog.at_level(logging.DEBUG, logger="compaction_pipeline"):
        served.registered(host=HARMFUL, process=HARMFUL, version=HARMFUL)
        served.ask("POST", "/api/v1/optimizers", tokens[Role.OPTIMIZER], json={**REGISTRATION, "group": HARMFUL})
        served.ask("POST", f"/api/v1/tables/lake.db.{name}/commits", tokens[Role.WRITER], json={"snapshot_id": 1})
        served.ask("POST", f"/api/v1/optimizers/{worker.optimizer_id}/touch", worker.token, json={"running": [HARMFUL]})
        served.ask("POST", f"/api/v1/optimizers/{worker.optimizer_id}/poll", worker.token, json={"poll_id": HARMFUL})
        served.ask("POST", f"/api/v1/attempts/{name}/complete", worker.token, json={"task_id": HARMFUL})
        served.ask("POST", "/api/v1/groups", tokens[Role.ADMIN], json={"group": HARMFUL, "properties": {HARMFUL: HARMFUL}})
        for path in (f"groups/{name}", f"records/{name}", f"tables?catalog={name}", f"groups/{name}/command"):
            served.ask("GET", f"/api/v1/{path}", tokens[Role.ADMIN])
        for path in ("drain", "log-level", "stack"):
            served.ask("POST", f"/api/v1/optimizers/{name}/{path}", tokens[Role.ADMIN], json={"level": "DEBUG"})
        served.ask("DELETE", f"/api/v1/optimizers/{worker.optimizer_id}?failed=true&why={name}", worker.token)
        # An error that nobody foresaw is logged with the path of its request, and one of the database with that of the group.
        with mock.patch.object(services.manage_groups, "group", side_effect=ValueError):
            assert served.ask("GET", f"/api/v1/groups/{name}", tokens[Role.ADMIN]).status_code == 500
    assert any("/api/v1/groups/a\\x1b[2J" in record.getMessage() for record in caplog.records)
    for record in caplog.records:
        if record.name.startswith("compaction_pipeline"):
            assert record.getMessage().isprintable(), record


def test_a_host_with_control_characters_forges_no_line_of_the_log(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    host = "x/\x1b[2J?#\x9b".encode("latin-1")
    token = served.token(Role.ADMIN).encode()
    failing = mock.patch.object(served.house.services.manage_groups, "groups", side_effect=ValueError)
    down = mock.patch.object(served.house.services.keep_tokens, "check", side_effect=StorageUnavailable("away"))
    sent = b"GET /api/v1/groups HTTP/1.1\r\nHost: " + host + b"\r\nAuthorization: Bearer " + token + b"\r\n\r\n"
    with listening(served) as port, caplog.at_level(logging.DEBUG):
        for failure, status in ((failing, b"500"), (down, b"503")):
            with failure, connected(port, sent) as client:
                assert answer_on(client).startswith(b"HTTP/1.1 " + status)
    assert all(record.getMessage().replace("\n", "").isprintable() for record in caplog.records)
