"""Planted secrets are in nothing that leaves the program, although the catalog repeats them in each of its errors, in every form."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import dagster as dg
import pytest
from dagster._utils.error import serializable_error_info_from_exc_info
from fastapi.testclient import TestClient

from compaction_pipeline.api.app import http_app
from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.insight.masking import masked_text
from compaction_pipeline.definitions import defs
from compaction_pipeline_tests.cli.conftest import Desk, desk
from compaction_pipeline_tests.defs.executed import launch, run
from compaction_pipeline_tests.opened import opened
from compaction_pipeline_tests.plain_names import COMPACTION_RECORDS
from compaction_pipeline_tests.planted import forms, found_in, found_in_files, planted
from compaction_pipeline_tests.rest_catalog import Call, Fault, RestServer, rest_server

__all__ = ["desk"]

TOKEN, KEY, HEADER, PASSWORD, VENDED = (planted(name) for name in ("Token", "SecKey", "Header", "Passwd", "Vended"))
SECRETS = (TOKEN, KEY, HEADER, PASSWORD, VENDED)
BUSY, WRONG, DENIED = 503, 400, 403


@pytest.fixture
def server(desk: Desk) -> Iterator[RestServer]:
    with rest_server(desk.lake) as server:
        server.table_config = {"s3.session-token": VENDED}
        yield server


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """What the root logger hears, as a formatter of somebody else writes it, with the stacks of errors."""
    heard = io.StringIO()
    handler = logging.StreamHandler(heard)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield heard
    root.removeHandler(handler)
    root.setLevel(level)


def echo(status: int, secrets: tuple[str, ...] = SECRETS[:4]) -> Fault:
    """A fault that answers with these secrets in every form, as a careless server does."""
    said = "; ".join(f"{name}: {form}" for secret in secrets for name, form in forms(secret).items())
    cut = " ".join(secret[:15] for secret in secrets)

    def fault(call: Call) -> None:
        login = call._handler.headers.get("Authorization")
        message = f"no: {login} {said} {cut}"
        call.answer(status, {"error": {"message": message, "type": "EchoException", "code": status}})

    return fault


def add(desk: Desk, server: RestServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Register the catalog: one secret by a variable, one by a file, two literal ones. Return what the commands said."""
    (folder / "key").write_text(f"{KEY}\n")
    monkeypatch.setenv("LAKE_TOKEN", TOKEN)
    monkeypatch.setenv("COMPACTION_LINGER_SECONDS", "0")
    monkeypatch.setenv("COMPACTION_DRAIN_SECONDS", "1")
    monkeypatch.setenv("COMPACTION_SECRETS_FOLDER", str(folder))
    options = [
        "type=rest",
        f"uri={server.uri}",
        "token=env:LAKE_TOKEN",
        "s3.access-key-id=AKIA",
        "s3.secret-access-key=file:key",
        f"header.X-Api-Key={HEADER}",
        f"s3.proxy-uri=http://me:{quote(PASSWORD, safe='')}@proxy.example.com:3128",
        "table.self-optimizing.minor.trigger.file-count=3",
    ]
    arguments = [part for option in options for part in ("-p", option)]
    server.everything = echo(DENIED)
    refused = desk.type("catalog", "add", "lake", *arguments, "--verbose")
    assert refused.exit_code == 1, refused.output
    server.everything = None
    added = desk.type("catalog", "add", "lake", *arguments, "--verbose")
    assert added.exit_code == 0, added.output
    assert server.logins[-1] == f"Bearer {TOKEN}"
    return refused.output + added.output


def test_commands_logs_pages_and_both_databases_hold_no_secret(
    desk: Desk, server: RestServer, logged: io.StringIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.table(files=4, buckets=(0,))
    desk.table(files=4, buckets=(0,), name="other")
    (tmp_path / "secrets").mkdir()
    said = [add(desk, server, tmp_path / "secrets", monkeypatch)]

    def commands(*lines: str) -> None:
        for line in lines:
            result = desk.type(*line.split())
            said.append(f"{line}: {result.exit_code} {result.output}")

    commands("catalog list", "catalog list --json", "table list --json", "plan lake.shop.orders --verbose")
    server.commits = [echo(BUSY, SECRETS), echo(WRONG, SECRETS), echo(DENIED, SECRETS)]
    commands(*["compact lake.shop.orders --verbose"] * 3)
    assert not server.commits
    commands("record list --json", "status", "table show lake.shop.orders")
    server.everything = echo(BUSY)
    commands("table list", "plan lake.shop.other --verbose", "compact lake.shop.other --json", "doctor", "check")

    (tmp_path / "dagster").mkdir()
    with dg.DagsterInstance.local_temp(str(tmp_path / "dagster")) as instance:
        said += list(runs_and_ticks(instance))
        server.everything = None
        server.commits = [echo(BUSY, SECRETS)]
        said += list(runs_and_ticks(instance))
        assert not server.commits

    services = opened()
    admin = services.keep_tokens.issue(Role.ADMIN, "admin").text
    with TestClient(http_app(services), raise_server_exceptions=False) as client:
        for fault in (None, echo(BUSY)):
            server.everything = fault
            said += answers(client, admin)
    # The server must have known of each secret, else nothing was shown.
    assert masked_text(" ".join(SECRETS)) == "*** *** *** *** ***"
    services.close()

    leaks = {line[:100]: found for line in said if (found := found_in(line, SECRETS))}
    assert leaks == {}, leaks
    everything = "\n".join(said)
    assert everything.count("EchoException") > 20
    assert "***" in everything
    assert "EchoException" in logged.getvalue()
    assert found_in(logged.getvalue(), SECRETS) == set()
    assert found_in_files(tmp_path / "home", SECRETS) == {}
    assert found_in_files(tmp_path / "dagster", SECRETS) == {}
    assert any(path.stat().st_size > 50_000 for path in (tmp_path / "dagster").rglob("*.db"))


def runs_and_ticks(instance: dg.DagsterInstance) -> Iterator[str]:
    """What Dagster's daemon stores of all our sensors, and its events of runs that fail and that succeed."""
    repository = defs.get_repository_def()
    for sensor in repository.sensor_defs:
        resources = {key: (defs.resources or {})[key] for key in sensor.required_resource_keys}
        try:
            with dg.build_sensor_context(instance=instance, repository_def=repository, resources=resources) as context:
                yield str(sensor(context))
        except Exception:
            yield serializable_error_info_from_exc_info(sys.exc_info()).to_string()
    for result in (run(instance, "compact_job", force=True), launch(instance, COMPACTION_RECORDS, "lake.shop.other")):
        for entry in instance.all_logs(result.run_id):
            yield str(entry)


def answers(client: TestClient, token: str) -> Iterator[str]:
    """The answers of all routes that read, and of some that ask the catalog."""
    headers = {"Authorization": f"Bearer {token}"}
    document = client.get("/openapi.json", headers=headers).json()
    paths = [path for path, methods in document["paths"].items() if "get" in methods]
    assert len(paths) > 10
    for path in paths:
        named = path.replace("{table}", "lake.shop.other").replace("{name}", "default").replace("{catalog}", "lake")
        answer = client.get(named, headers=headers)
        yield f"{path} {answer.status_code} {answer.text} {dict(answer.headers)}"
    for path in [path for path, methods in document["paths"].items() if "post" in methods and "{table}" in path]:
        answer = client.post(path.replace("{table}", "lake.shop.other"), headers=headers, json={})
        yield f"{path} {answer.status_code} {answer.text}"
