"""schemathesis sends requests of every kind to every route of the OpenAPI document, valid ones and broken ones, as each role and as nobody.

No request gets a 5xx, each answer is as the document says, and nothing changes that the role may not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import content_type_conformance, not_a_server_error, response_schema_conformance, status_code_conformance
from sqlalchemy import create_engine, select

from compaction_pipeline.api.app import http_app
from compaction_pipeline.api.slow_refusals import Refusals
from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.storage.schema import metadata
from compaction_pipeline_tests.api.served import Served
from compaction_pipeline_tests.api.sockets import listening
from compaction_pipeline_tests.services.house import House

EXAMPLES = settings().max_examples // 4
"""So many requests, valid and broken ones together, are sent to each route by each role: 7 in CI."""
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
# What questions about readiness find out is remembered, whoever asks: snapshots and manifests that said it expire.
_FOUND_OUT = frozenset(f"compaction_ready_{name}" for name in ("head", "standing", "reading", "partition", "answer"))
MAY_CHANGE: Mapping[Role | None, frozenset[str]] = {
    None: frozenset(),
    Role.READER: _FOUND_OUT,
    Role.WRITER: _FOUND_OUT
    | {"compaction_commit_report", "compaction_table", "compaction_consumer", "compaction_ready_report"}
    | {"compaction_center_fact", "compaction_center_instance"}
    # What a consumer holds is noted under the lease of the table's commits, and what is done under that is measured.
    | {"compaction_own_work"},
    Role.OPTIMIZER: frozenset({"compaction_optimizer", "compaction_token", "compaction_task", "compaction_attempt"}),
    Role.EVENTS: frozenset({"compaction_commit_report", "compaction_table"}),
    Role.ADMIN: frozenset(metadata.tables),
}
"""The tables of the state database that each role may change."""


@dataclass
class Sent:
    """A request. With `is_known`, its path gets names of things that exist."""

    case: Any
    parameters: Mapping[str, Any]
    is_known: bool


def stored(served: Served) -> dict[str, list[str]]:
    """Every row of the state database, by table."""
    engine = create_engine(served.house.services.settings.state_database_url)
    with engine.connect() as connection:
        rows = {name: sorted(repr(tuple(row)) for row in connection.execute(select(table))) for name, table in metadata.tables.items()}
    engine.dispose()
    return rows


def known_names(served: Served) -> Mapping[str, str]:
    """Names of things that exist, for the parameters of paths: only with such a name can a request change something."""
    table, services = served.house.fragmented(files=12), served.house.services
    services.refresh_files.refresh(table.identifier)
    services.plan_tables.plan(table.identifier, PlanRequest())
    worker = served.registered()
    [assignment] = worker.poll()
    record = "a record of which nobody knows"
    attempt = assignment["task"]["attempt_id"]
    task = assignment["task"]["task_id"]
    names = {"optimizer_id": worker.optimizer_id, "attempt_id": attempt, "task_id": task}
    names |= {"target": str(table.identifier), "group": "default"}
    return {**names, "table": str(table.identifier), "catalog": table.identifier.catalog, "record_id": record}


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Sent]:
    """Requests to every route. To make them takes longer than to answer them, so each role sends the same ones."""
    house = House(tmp_path_factory.mktemp("document"))
    document = schemathesis.openapi.from_dict(http_app(house.services).openapi())
    house.services.close()
    made: list[Sent] = []
    for found in document.get_all_operations():
        operation = found.ok()
        modes = st.sampled_from([GenerationMode.POSITIVE, GenerationMode.NEGATIVE])

        @settings(max_examples=EXAMPLES, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
        @given(case=modes.flatmap(operation.as_strategy), is_known=st.booleans())
        def make(case: Any, is_known: bool) -> None:
            case.headers.pop("Authorization", None)
            made.append(Sent(case, dict(case.path_parameters), is_known))

        make()
    return made


@pytest.mark.parametrize("role", [None, *Role])
def test_no_request_breaks_the_server_or_changes_what_its_role_may_not(served: Served, cases: Sequence[Sent], role: Role | None) -> None:
    names = known_names(served)
    headers = {"Authorization": f"Bearer {served.token(role)}"} if role is not None else {}
    answered: set[int] = set()
    # Each refusal comes a second after the one before, so none of them waits.
    with listening(served, refusals=Refusals(count().__next__)) as port, requests.Session() as session:
        before = stored(served)
        for sent in cases:
            known = {name: names[name] for name in sent.parameters if name in names} if sent.is_known else {}
            sent.case.path_parameters = {**sent.parameters, **known}
            # A token may make so many requests in a second of the house's clock, which only tests move.
            served.house.pass_time(1)
            answer = sent.case.call(f"http://127.0.0.1:{port}", session, headers, timeout=60)
            sent.case.validate_response(answer, checks=CHECKS)
            answered.add(answer.status_code)
        after = stored(served)
    changed = {name for name in after if after[name] != before[name]}
    assert changed <= MAY_CHANGE[role]
    if role is None:
        assert answered & {200, 401} == {200, 401}
        assert not answered & {201, 204}
    else:
        assert answered & {200, 204}
