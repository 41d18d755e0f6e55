"""A REST catalog's answers to a commit: what each one proves, and which files it leaves in the table's folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table.update import SetPropertiesUpdate
from requests.adapters import HTTPAdapter

from compaction_pipeline.core.commit.ports import CommitOutcome, CommitState
from compaction_pipeline.core.errors import CommitRefused, StorageUnavailable
from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.file_io.object_io import OBJECT_FILE_IO
from compaction_pipeline.iceberg.catalogs import rest_catalog
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.catalogs.rest_catalog import BoundedAdapter, BoundedRestCatalog, RequestLimits
from compaction_pipeline.iceberg.commit.committer import IcebergCommitter
from compaction_pipeline_tests.iceberg.lake import Lake, LakeTable
from compaction_pipeline_tests.rest_catalog import Call, Fault, RestServer, done_but, rest_server, status

COMMIT = "POST /v1/namespaces/db/tables/t"


class Rest:
    """A table, whose writers use the catalog behind the server, and a committer that uses the server."""

    def __init__(self, lake: Lake, server: RestServer) -> None:
        self.server = server
        self.lake = lake
        self.properties = {
            "type": "rest",
            "uri": server.uri,
            "credential": "id:secret",
            "oauth2-server-uri": f"{server.uri}/v1/oauth/tokens",
        }
        self.catalogs = Catalogs(lambda name: CatalogEntry(name, self.properties), RequestLimits(60, 60, 60))
        self.committer = IcebergCommitter(self.catalogs, sleep=lambda seconds: None, on_step=self._on_step)
        self.impatient = False
        self.table: LakeTable = lake.table(properties={"commit.retry.num-retries": "2"})
        self.table.ids(1)
        self.table.ids(2)
        self.task: CompactionTask = self.table.merge()

    def commit(self, *faults: Fault | None) -> CommitOutcome:
        self.server.commits = list(faults)
        return self.committer.commit(self.table.identifier, "record-1", [self.task])

    def _on_step(self, step: str) -> None:
        # The limit is short only for the commit of a test in which it hangs. Other requests may be slow on a busy machine.
        if step == "before-swap" and self.impatient:
            self.limit(0.2)

    def limit(self, read_seconds: float) -> None:
        catalog = self.catalogs.catalog("lake")
        assert isinstance(catalog, BoundedRestCatalog)
        for prefix in list(catalog._session.adapters):
            catalog._session.mount(prefix, BoundedAdapter(HTTPAdapter(), RequestLimits(60, read_seconds, read_seconds)))

    def settle(self) -> CommitOutcome:
        return self.committer.settle(self.table.identifier, "record-1", [self.task])

    def metadata(self) -> set[str]:
        return {path.name for path in (self.lake.folder / "wh").rglob("metadata/*.avro")}

    def sent(self) -> int:
        return self.server.count(COMMIT)


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[Rest]:
    lake = Lake(tmp_path)
    with rest_server(lake.catalog) as server:
        yield Rest(lake, server)


def test_a_commit_through_the_server_works(rest: Rest) -> None:
    assert rest.commit().state is CommitState.COMMITTED
    assert rest.table.live_ids() == [1, 2]
    assert rest.sent() == 1


@pytest.mark.parametrize("code", [400, 403, 404, 405, 406, 415, 422])
def test_a_refusal_is_certain_says_the_answer_and_leaves_nothing(rest: Rest, code: int) -> None:
    before = rest.metadata()
    with pytest.raises(CommitRefused, match=rf"HTTP {code}: .*the test says {code}.*nothing was committed"):
        rest.commit(status(code))
    assert rest.sent() == 1
    assert rest.metadata() == before
    assert rest.settle().state is CommitState.NOTHING
    assert rest.commit().state is CommitState.COMMITTED


def test_a_login_that_is_refused_twice_is_certain_too(rest: Rest) -> None:
    before = rest.metadata()
    with pytest.raises(CommitRefused, match=r"HTTP 401: .*the test says 401.*nothing was committed"):
        rest.commit(status(401), status(401))
    assert rest.sent() == 2
    assert rest.metadata() == before
    assert rest.settle().state is CommitState.NOTHING


@pytest.mark.parametrize("second", [None, status(409)])
def test_a_token_that_ended_before_the_commit_is_renewed(rest: Rest, second: Fault | None) -> None:
    tokens = rest.server.count("POST /v1/oauth/tokens")
    assert rest.commit(status(401), second).state is CommitState.COMMITTED
    assert rest.server.count("POST /v1/oauth/tokens") == tokens + 2
    assert rest.table.live_ids() == [1, 2]


@pytest.mark.parametrize("second", [Call.reset, status(503), done_but(503)])
def test_an_answer_that_is_lost_after_a_renewal_is_unknown(rest: Rest, second: Fault) -> None:
    assert rest.commit(status(401), second).state in (CommitState.UNKNOWN, CommitState.COMMITTED)
    assert rest.sent() == 2
    assert rest.commit().state is CommitState.COMMITTED
    assert rest.table.live_ids() == [1, 2]


def test_419_proves_nothing_but_the_next_commit_has_a_new_token(rest: Rest) -> None:
    tokens = rest.server.count("POST /v1/oauth/tokens")
    assert rest.commit(status(419)).state is CommitState.UNKNOWN
    assert rest.commit().state is CommitState.COMMITTED
    assert rest.server.count("POST /v1/oauth/tokens") > tokens
    assert rest.table.live_ids() == [1, 2]


@pytest.mark.parametrize("code", [408, 425, 429, 499, 500, 501, 502, 503, 504])
def test_other_answers_are_unknown_and_nothing_is_deleted(rest: Rest, code: int) -> None:
    before = rest.metadata()
    outcome = rest.commit(status(code))
    assert (outcome.state, outcome.unanswered) == (CommitState.UNKNOWN, True)
    assert outcome.reason.startswith(f"the outcome of the commit is unknown: the catalog answered HTTP {code}: ")
    assert rest.sent() == 1
    assert rest.metadata() > before
    assert rest.settle().state is CommitState.UNKNOWN


@pytest.mark.parametrize("fault", [Call.hang, Call.reset, lambda call: call.answer(403, cut=True)], ids=["hang", "reset", "cut"])
def test_a_lost_answer_is_unknown(rest: Rest, fault: Fault) -> None:
    rest.impatient = fault is Call.hang
    outcome = rest.commit(fault)
    assert outcome.state is CommitState.UNKNOWN
    assert outcome.reason.startswith("the outcome of the commit is unknown: the catalog's answer got lost (")
    assert rest.sent() == 1


@pytest.mark.parametrize("code", [403, 409, 500, 503])
def test_a_commit_that_landed_is_found_whatever_was_answered(rest: Rest, code: int) -> None:
    outcome = rest.commit(done_but(code))
    assert outcome.state is CommitState.COMMITTED
    assert rest.table.live_ids() == [1, 2]
    assert rest.sent() == 1


def test_a_lost_race_is_tried_again(rest: Rest) -> None:
    before = rest.metadata()

    def raced(call: Call) -> None:
        rest.table.ids(3)
        call.answer(409)

    outcome = rest.commit(raced)
    assert (outcome.state, outcome.attempts, outcome.unanswered) == (CommitState.COMMITTED, 2, False)
    assert not [name for name in rest.metadata() - before if "record-1-1-" in name or "-1-record-1." in name], "the lost attempt's stay"


def test_files_of_an_unanswered_attempt_stay_when_a_later_attempt_is_committed(rest: Rest) -> None:
    def raced(call: Call) -> None:
        rest.table.ids(3)
        call.answer(503)

    outcome = rest.commit(raced)
    assert (outcome.state, outcome.attempts, outcome.unanswered) == (CommitState.COMMITTED, 2, True)
    # After a rollback to the parent, the first request could still be carried out. It would need its manifests.
    assert [name for name in rest.metadata() if name.startswith("snap-") and name.endswith("-1-record-1.avro")]


def test_a_refusal_after_an_unanswered_attempt_is_unknown(rest: Rest) -> None:
    def raced(call: Call) -> None:
        rest.table.ids(3)
        call.answer(503)

    outcome = rest.commit(raced, status(403))
    assert (outcome.state, outcome.unanswered) == (CommitState.UNKNOWN, True)


def test_a_refusal_stands_when_the_table_cannot_be_read_either(rest: Rest) -> None:
    def locked_out(call: Call) -> None:
        rest.server.everything = status(403)
        call.answer(403)

    before = rest.metadata()
    with pytest.raises(CommitRefused, match="HTTP 403"):
        rest.commit(locked_out)
    rest.server.everything = None
    # The committer could not check whether the attempt was carried out. Later its files are found by the record's id and deleted.
    left = rest.committer.leftovers(rest.table.identifier, [], ["record-1"])
    assert {path.rsplit("/", 1)[-1] for path in left} == rest.metadata() - before
    assert len(left) == 2
    assert set(rest.committer.delete_orphans(rest.table.identifier, rest.task.table_uuid, left)) == set(left)
    assert rest.metadata() == before


def test_a_redirect_is_no_success(rest: Rest) -> None:
    # `requests` would follow the redirect with a GET. The table would be the answer, with status 200, but nothing would be committed.
    outcome = rest.commit(lambda call: call.answer(302, headers={"Location": f"{rest.server.uri}/v1/namespaces/db/tables/t"}))
    assert outcome.state is CommitState.UNKNOWN
    assert rest.table.live_ids() == [1, 2]


def test_all_snapshots_are_requested_whatever_the_catalog_configures(rest: Rest) -> None:
    rest.properties["snapshot-loading-mode"] = "refs"
    rest.catalogs.load(rest.table.identifier)
    assert rest.server.count("GET /v1/namespaces/db/tables/t?snapshots=all") == 1


def test_no_request_waits_for_ever(rest: Rest) -> None:
    rest.limit(0.2)
    rest.server.everything = Call.hang
    with pytest.raises(StorageUnavailable, match=r"timed out"):
        rest.catalogs.load(rest.table.identifier)
    # Other tables of the catalog do not wait for the limit again.
    asked = len(rest.server.requests)
    with pytest.raises(StorageUnavailable, match=r"timed out a moment ago; it is asked again in \d+ s"):
        rest.catalogs.load(rest.table.identifier)
    assert len(rest.server.requests) == asked
    rest_catalog._silent_until.clear()
    # Opening the catalog first requests a token, and then the catalog's configuration.
    fresh = Catalogs(lambda name: CatalogEntry(name, rest.properties), RequestLimits(60, 0.2, 60))
    with pytest.raises(StorageUnavailable, match=r"timed out"):
        fresh.catalog("lake")
    assert rest.server.requests[-1] == "POST /v1/oauth/tokens"
    # The next tick opens the catalog again, and does not wait either.
    asked = len(rest.server.requests)
    with pytest.raises(StorageUnavailable, match=r"timed out a moment ago"):
        Catalogs(lambda name: CatalogEntry(name, rest.properties)).catalog("lake")
    assert len(rest.server.requests) == asked


def test_the_unknown_outcome_of_one_record_is_not_that_of_another(rest: Rest) -> None:
    rest.commit(status(503))
    other = replace(rest.task, task_id="m2")
    assert rest.committer.settle(rest.table.identifier, "record-2", [other]).state is CommitState.NOTHING


def test_manifests_of_a_commit_that_a_snapshot_lists_are_never_deleted(rest: Rest) -> None:
    rest.commit()
    rest.table.ids(3)
    left = rest.committer.leftovers(rest.table.identifier, [], ["record-1", "record-2"])
    assert len(left) >= 2
    assert rest.committer.delete_orphans(rest.table.identifier, rest.task.table_uuid, left) == ()
    assert rest.table.live_ids() == [1, 2, 3]


def test_a_late_request_may_be_carried_out_whenever_the_table_is_at_its_parent(rest: Rest) -> None:
    assert rest.commit(status(504)).state is CommitState.UNKNOWN
    table = rest.table.identifier
    parent = rest.table.head().snapshot_id
    assert rest.committer.may_land(table, ["record-1", "record-2"]) == ("record-1",)
    rest.table.ids(3)
    assert rest.committer.may_land(table, ["record-1"]) == ()
    assert parent is not None
    rest.table.table.refresh().manage_snapshots().set_current_snapshot(snapshot_id=parent).commit()
    assert rest.committer.may_land(table, ["record-1"]) == ("record-1",)


@pytest.mark.parametrize("code", [200, 403, 409, 503])
def test_a_table_s_token_goes_with_its_commit_and_no_other_request(rest: Rest, code: int) -> None:
    # This login sets no header of its own, so each request has the headers of the session.
    properties: dict[str, Any] = {"auth": {"type": "noop"}, "header.Authorization": "Bearer catalog", "py-io-impl": OBJECT_FILE_IO}
    catalog = BoundedRestCatalog("lake", RequestLimits(60, 60, 60), uri=rest.server.uri, **properties)
    rest.server.table_config = {"token": "of-this-table"}
    table = catalog.load_table(("db", "t"))
    asked = len(rest.server.requests)
    rest.server.commits = [None if code == 200 else status(code)]
    with nullcontext() if code == 200 else pytest.raises(Exception, match=str(code)):
        catalog.commit_table(table, (), (SetPropertiesUpdate(updates={"a": "b"}),))
    catalog.load_table(("db", "t"))
    assert rest.server.requests[asked:] == [COMMIT, "GET /v1/namespaces/db/tables/t?snapshots=all"]
    assert rest.server.logins[asked:] == ["Bearer of-this-table", "Bearer catalog"]
