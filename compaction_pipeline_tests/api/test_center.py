"""A scheduler that starts jobs over HTTP when their data is there."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import update

from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.dependencies.center.inbox import Fact
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.center_leader import SqlCenterStore
from compaction_pipeline.storage.engine import open_state, writing
from compaction_pipeline_tests.api.served import Served

PATH = "/api/v1/dependencies"
JOBS: list[dict[str, Any]] = [
    {"name": "raw", "period": "day", "virtual": True, "since": "2026-01-01"},
    {"name": "load", "period": "day", "since": "2025-12-30", "needs": [{"job": "raw"}]},
]
FILE = {"project": "sales", "receiver": "airflow", "jobs": JOBS}
SUBJECT = "job=raw && biz=2026-01-01"
WRONG = {"subject": "job=raw", "state": "FAILED"}


def saved(served: Served) -> str:
    """A token of a writer, after the project was saved and its instances were made."""
    assert served.ask("PUT", f"{PATH}/project", served.token(Role.ADMIN), json={"file": FILE}).status_code == 200
    served.house.services.lead_center.run()
    return served.token(Role.WRITER, "airflow")


def test_a_scheduler_claims_starts_and_reports(served: Served) -> None:
    writer = saved(served)
    reader = served.token(Role.READER)
    waiting = served.ask("GET", f"{PATH}/why", reader, params={"job": "load", "biz": "2026-01-01"}).json()
    assert [one["subject"] for one in waiting["waits_for"]] == [SUBJECT]
    old = served.ask("POST", f"{PATH}/claims", writer, json={"receiver": "airflow", "most": 1000}).json()
    assert {one["biz"] for one in old} == {"2025-12-30", "2025-12-31"}
    assert served.ask("POST", f"{PATH}/reports", writer, json={"reports": [{"subject": SUBJECT, "state": "SUCCEEDED"}]}).json() == {
        "subjects": [SUBJECT]
    }
    served.house.services.lead_center.run()
    assert served.ask("GET", f"{PATH}/ready", reader, params={"subject": SUBJECT}).json() == {"ready": True}
    (one,) = served.ask("GET", f"{PATH}/instances", reader, params={"job": "load", "biz": "2026-01-01"}).json()
    assert (one["key"], one["state"]) == ("load/2026-01-01/scheduled/1", "READY")
    delivered = {"receiver": "airflow", "instances": [{"id": one["id"], "generation": 1} for one in old]}
    assert served.ask("POST", f"{PATH}/deliveries", writer, json=delivered).json() == {"count": len(old)}
    assert served.ask("POST", f"{PATH}/deliveries", writer, json=delivered).json() == {"count": 0}


def test_lineage_is_answered_to_readers(served: Served) -> None:
    report = {"name": "report", "period": "day", "sql": "INSERT INTO b SELECT * FROM a", "produces": ["table=lake.shop.c"]}
    file = {"project": "sales", "receiver": "airflow", "sql": {"catalog": "lake", "namespace": "shop"}, "jobs": [report]}
    change = served.ask("PUT", f"{PATH}/project", served.token(Role.ADMIN), json={"file": file}).json()
    (one,) = change["suggestions"]
    assert (one["job"], one["upstream"], one["times"], one["added"]) == ("report", "table=lake.shop.a", "", False)
    reader = served.token(Role.READER)
    assert served.ask("GET", f"{PATH}/lineage", reader, params={"project": "sales"}).json() == {"suggestions": [one], "alerts": []}
    assert served.ask("GET", f"{PATH}/lineage", reader, params={"project": "sails"}).status_code == 404


def test_a_forecast_is_answered_to_readers(served: Served) -> None:
    saved(served)
    reader = served.token(Role.READER)
    found = served.ask("GET", f"{PATH}/forecast", reader, params={"job": "load", "hours": 1}).json()
    assert {one["job"] for one in found["instances"]} == {"load"}
    assert all(one["done"]["usual"] <= one["done"]["late"] for one in found["instances"])
    assert (found["kept"], found["judged"]) == (0, 0)
    assert served.ask("GET", f"{PATH}/forecast", reader, params={"job": "loud"}).status_code == 404
    assert served.ask("GET", f"{PATH}/forecast", reader, params={"hours": 0}).status_code == 422


def test_an_admin_converts_a_project(served: Served) -> None:
    saved(served)
    admin = served.token(Role.ADMIN)
    file = {"project": "late", "receiver": "airflow", "after": ["sales"], "jobs": [{"name": "last", "period": "day"}]}
    assert served.ask("PUT", f"{PATH}/project", admin, json={"file": file}).status_code == 200
    shadow = served.ask("POST", f"{PATH}/conversions", admin, json={"project": "late", "action": "SHADOW", "days": 3}).json()
    assert (shadow["form"], shadow["after"], shadow["same"]) == ("jobs", ["sales"], 0)
    assert served.ask("GET", f"{PATH}/conversion", served.token(Role.READER), params={"project": "late"}).json() == shadow
    early = served.ask("POST", f"{PATH}/conversions", admin, json={"project": "late", "action": "SWITCH"})
    assert (early.status_code, "runs until" in early.json()["detail"]) == (400, True)
    for action, form in (("SWITCH", "nodes"), ("TIGHTEN", "own"), ("BACK", "jobs")):
        body = {"project": "late", "action": action, "anyway": True}
        assert served.ask("POST", f"{PATH}/conversions", admin, json=body).json()["form"] == form
    assert served.ask("GET", f"{PATH}/conversion", admin, params={"project": "sales"}).status_code == 400


def test_a_reader_asks_what_must_run_again_and_an_admin_launches_it(served: Served) -> None:
    saved(served)
    reader, admin = served.token(Role.READER), served.token(Role.ADMIN)
    asked = {"job": "raw", "from": "2026-01-01", "to": "2026-01-02"}
    found = served.ask("GET", f"{PATH}/repair", reader, params=asked).json()
    assert [[(one["job"], one["count"]) for one in layer] for layer in found["layers"]] == [[("raw", 2)], [("load", 2)]]
    assert (found["count"], found["launched"]) == (2, 0)
    one = served.ask("GET", f"{PATH}/repair", reader, params={"job": "raw", "from": "2026-01-01"}).json()
    assert [[(each["job"], each["count"]) for each in layer] for layer in one["layers"]] == [[("raw", 1)], [("load", 1)]]
    alone = {"job": "load", "from": "2026-01-01", "name": "alone"}
    assert served.ask("POST", f"{PATH}/repairs", admin, json=alone).json()["launched"] == 1
    assert served.ask("POST", f"{PATH}/repairs", reader, json={**asked, "name": "fix"}).status_code == 403
    assert "is only reported" in served.ask("POST", f"{PATH}/repairs", admin, json={**asked, "name": "fix"}).json()["detail"]
    asked["only_downstream"] = "true"
    assert served.ask("POST", f"{PATH}/repairs", admin, json={**asked, "only_downstream": True, "name": "fix"}).json()["launched"] == 2
    assert served.ask("POST", f"{PATH}/repairs", admin, json={**asked, "only_downstream": True, "name": "scheduled"}).status_code == 400
    assert served.ask("GET", f"{PATH}/repair", reader, params={**asked, "job": "loud"}).status_code == 404
    assert served.ask("GET", f"{PATH}/repair", reader, params={**asked, "to": "tomorrow"}).status_code == 400


def test_reports_of_runs_that_nobody_started_are_refused(served: Served) -> None:
    writer = saved(served)
    load = {"subject": "job=load && biz=2026-01-01", "state": "SUCCEEDED", "generation": 1}
    for wrong, status in (
        ({**load, "generation": 7}, 400),
        ({**load, "subject": f"{load['subject']} && backfill=fix"}, 404),
        ({**load, "subject": "job=load && biz=2062-01-01"}, 400),
    ):
        refused = served.ask("POST", f"{PATH}/reports", writer, json={"reports": [load, wrong]})
        assert (refused.status_code, refused.json()["detail"].startswith("report 2 of 2: ")) == (status, True)
    for _ in range(2):
        assert served.ask("POST", f"{PATH}/reports", writer, json={"reports": [load]}).status_code == 200


def test_a_token_claims_for_the_receivers_that_it_names(served: Served) -> None:
    writer = saved(served)
    (one, *_) = served.ask("POST", f"{PATH}/claims", writer, json={"receiver": "airflow"}).json()
    has = {"receiver": "airflow", "instances": [{"id": one["id"], "generation": 1}]}
    for other, may in ((served.token(Role.WRITER), "it names no receiver"), (served.token(Role.WRITER, "dagster"), "it may for dagster")):
        for path, body in (("claims", {"receiver": "airflow"}), ("deliveries", has)):
            refused = served.ask("POST", f"{PATH}/{path}", other, json=body)
            assert refused.status_code == 403
            assert f"may not claim for 'airflow', because {may}: use the one of this receiver, or issue" in refused.json()["detail"]
    assert served.ask("POST", f"{PATH}/claims", served.token(Role.ADMIN), json={"receiver": "airflow"}).status_code == 200
    assert served.ask("POST", f"{PATH}/deliveries", writer, json=has).json() == {"count": 1}


def test_a_token_of_an_older_release_claims_for_all_receivers(served: Served) -> None:
    saved(served)
    old = served.token(Role.WRITER)
    with writing(open_state(served.house.services.settings.state_database_url)) as connection:
        connection.execute(update(schema.token).where(schema.token.c.token_id == old.partition(".")[0]).values(receivers=None))
    assert served.ask("POST", f"{PATH}/claims", old, json={"receiver": "airflow"}).status_code == 200


def test_an_admin_backfills_and_runs_again(served: Served) -> None:
    writer, admin = saved(served), served.token(Role.ADMIN)
    body = {"name": "fix", "jobs": ["load"], "from": "2026-01-01", "to": "2026-01-03"}
    assert served.ask("POST", f"{PATH}/backfills", admin, json=body).json() == {"count": 3}
    assert served.ask("POST", f"{PATH}/backfills", admin, json=body).json() == {"count": 0}
    again = {"job": "load", "biz": "2025-12-30"}
    assert served.ask("POST", f"{PATH}/runs-again", admin, json=again).status_code == 400
    report = {"reports": [{"subject": "job=load && biz=2025-12-30", "state": "SUCCEEDED", "generation": 1}]}
    assert served.ask("POST", f"{PATH}/reports", writer, json=report).status_code == 200
    served.house.services.lead_center.run()
    assert served.ask("POST", f"{PATH}/runs-again", admin, json=again).json()["key"] == "load/2025-12-30/scheduled/2"
    assert [one["name"] for one in served.ask("GET", f"{PATH}/jobs", admin).json()] == ["load", "raw"]


def test_a_project_that_somebody_else_changed_at_the_same_time_is_a_conflict(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SqlCenterStore, "save_project", lambda *_: False)
    answer = served.ask("PUT", f"{PATH}/project", served.token(Role.ADMIN), json={"file": FILE})
    assert (answer.status_code, answer.json()["reason_code"]) == (409, "CONFLICT")
    assert answer.json()["detail"].endswith("save it again")


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_an_admin_looks_at_facts_that_were_set_aside_tries_one_again_and_removes_one(served: Served) -> None:
    saved(served)
    admin, path, services = served.token(Role.ADMIN), f"{PATH}/set-aside", served.house.services
    assert served.ask("GET", path, admin).json() == []
    services.stores.center.post([Fact(SUBJECT, served.house.now, "test", "far")])  # type: ignore[arg-type]
    services.lead_center.run()
    (one,) = served.ask("GET", path, admin).json()
    assert (one["subject"], one["source"]) == (SUBJECT, "test")
    assert served.ask("GET", path, served.token(Role.READER)).status_code == 403
    assert "cannot be read" in served.ask("POST", f"{path}/{one['id']}/again", admin).json()["detail"]
    assert served.ask("DELETE", f"{path}/{one['id']}", admin).json() == one
    assert served.ask("DELETE", f"{path}/{one['id']}", admin).status_code == 404


@pytest.mark.parametrize(
    ("asked", "status", "words"),
    [
        ("instances?biz=x", 400, "the business time 'x' has no form of one: write it like"),
        ("instances?job=load&biz=x", 400, "the business time 'x' is no DAY in zone UTC"),
        ("instances?most=0", 422, "query.most is '0': Input should be greater than or equal to 1; correct it, and send the request again"),
        (
            "instances?state=DONE",
            422,
            "query.state is 'DONE': Input should be 'WAITING', 'READY', 'RUNNING', 'SUCCEEDED' or 'FAILED'",
        ),
        ("why?job=load", 422, "query.biz is missing; correct it, and send the request again"),
    ],
)
def test_a_wrong_question_is_told_the_value_the_rule_and_what_to_do(served: Served, asked: str, status: int, words: str) -> None:
    saved(served)
    answer = served.ask("GET", f"{PATH}/{asked}", served.token(Role.READER))
    assert (answer.status_code, answer.json()["detail"][: len(words)]) == (status, words)


def test_instances_are_found_by_their_business_time_however_it_is_written(served: Served) -> None:
    saved(served)
    reader = served.token(Role.READER)
    for query in ({"biz": "2026-01-01"}, {"biz": " 2026-01-01 ", "job": "load"}):
        assert [one["job"] for one in served.ask("GET", f"{PATH}/instances", reader, params=query).json()] == ["load"]


def test_a_wrong_report_is_told_the_value_the_rule_and_what_to_do(served: Served) -> None:
    writer = saved(served)
    body = {"reports": [{"subject": SUBJECT, "state": "DONE"}, {"state": "FAILED", "generation": "1"}]}
    detail = served.ask("POST", f"{PATH}/reports", writer, json=body).json()["detail"]
    assert detail == (
        "body.reports.0.state is 'DONE': Input should be 'WAITING', 'READY', 'RUNNING', 'SUCCEEDED' or 'FAILED'; "
        "body.reports.1.subject is missing; body.reports.1.generation is '1': Input should be a valid integer; "
        "correct it, and send the request again"
    )


@pytest.mark.parametrize(
    ("method", "path", "role", "body", "status"),
    [
        ("PUT", "project", Role.WRITER, {"file": FILE}, 403),
        ("PUT", "project", Role.ADMIN, {"file": {"project": "a"}}, 400),
        ("PUT", "project", Role.ADMIN, {"file": []}, 422),
        ("POST", "reports", Role.READER, {"reports": [{"subject": SUBJECT, "state": "SUCCEEDED"}]}, 403),
        ("POST", "reports", Role.WRITER, {"reports": [{"subject": SUBJECT, "state": "DONE"}]}, 422),
        ("POST", "reports", Role.WRITER, {"reports": [{"subject": SUBJECT, "state": "READY"}]}, 400),
        ("POST", "reports", Role.WRITER, {"reports": [{"subject": "job=nobody && biz=2026-01-01", "state": "SUCCEEDED"}]}, 404),
        ("POST", "reports", Role.WRITER, {"reports": [{"subject": "job=load && biz=2026-01-01", "state": "SUCCEEDED"}]}, 400),
        ("POST", "reports", Role.WRITER, {"reports": [{"subject": "job=raw", "state": "SUCCEEDED"}]}, 400),
        ("POST", "reports", Role.WRITER, {"reports": []}, 422),
        (
            "POST",
            "reports",
            Role.WRITER,
            {"reports": [{"subject": SUBJECT, "state": "FAILED"}, {"subject": "job=raw", "state": "FAILED"}]},
            400,
        ),
        ("POST", "claims", Role.READER, {"receiver": "airflow"}, 403),
        ("POST", "claims", Role.WRITER, {"receiver": "airflow", "most": 0}, 422),
        ("POST", "backfills", Role.ADMIN, {"name": "a b", "jobs": ["load"], "from": "2026-01-01", "to": "2026-01-01"}, 400),
        ("POST", "backfills", Role.ADMIN, {"name": "a", "jobs": ["raw"], "from": "2026-01-01", "to": "2026-01-01"}, 400),
        ("POST", "backfills", Role.ADMIN, {"name": "a", "jobs": ["load"], "from": "1990-01-01", "to": "2026-01-01"}, 400),
        ("POST", "backfills", Role.ADMIN, {"name": "a", "jobs": ["load"], "from": "2026-01-02", "to": "2026-01-01"}, 400),
        ("POST", "runs-again", Role.ADMIN, {"job": "load", "biz": "1999-01-01"}, 404),
    ],
)
def test_bad_requests_change_nothing(served: Served, method: str, path: str, role: Role, body: Any, status: int) -> None:
    saved(served)
    before = served.house.services.center.jobs()
    answer = served.ask(method, f"{PATH}/{path}", served.token(role), json=body)
    assert answer.status_code == status, answer.text
    assert served.house.services.center.jobs() == before
    assert served.house.services.lead_center.once() is not None


def test_a_run_that_is_judged_is_there_once_its_quality_has_passed(served: Served) -> None:
    file = {**FILE, "jobs": [{**JOBS[0], "quality": "expectations"}, JOBS[1]]}
    assert served.ask("PUT", f"{PATH}/project", served.token(Role.ADMIN), json={"file": file}).status_code == 200
    writer, reader = served.token(Role.WRITER), served.token(Role.READER)
    assert served.ask("POST", f"{PATH}/reports", writer, json={"reports": [{"subject": SUBJECT, "state": "SUCCEEDED"}]}).status_code == 200
    there = []
    for state in ("FAILED", "PASSED"):
        served.house.services.lead_center.run()
        there.append(served.ask("GET", f"{PATH}/ready", reader, params={"subject": SUBJECT}).json()["ready"])
        body = {"reports": [{"subject": SUBJECT, "state": state}]}
        assert served.ask("POST", f"{PATH}/quality", reader, json=body).status_code == 403
        assert served.ask("POST", f"{PATH}/quality", writer, json=body).json() == {"subjects": [SUBJECT]}
    served.house.services.lead_center.run()
    assert [*there, served.ask("GET", f"{PATH}/ready", reader, params={"subject": SUBJECT}).json()["ready"]] == [False, False, True]
    wrong = {"reports": [{"subject": SUBJECT, "state": "PASSED"}, {"subject": "job=load && biz=2026-01-01", "state": "PASSED"}]}
    refused = served.ask("POST", f"{PATH}/quality", writer, json=wrong)
    assert (refused.status_code, refused.json()["detail"].startswith("report 2 of 2: nobody judges")) == (400, True)
    assert [one["quality"] for one in served.ask("GET", f"{PATH}/jobs", reader).json()] == ["", "expectations"]
