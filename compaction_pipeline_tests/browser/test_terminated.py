"""What Dagster counts when a person terminates a backfill, or one of its runs: only nodes that were done are materialized."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from compaction_pipeline.demo.processes import Processes
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.browser.deployment import Deployment
from compaction_pipeline_tests.defs.lake import key
from compaction_pipeline_tests.opened import OpenedServices

pytestmark = [pytest.mark.browser, pytest.mark.timeout(1500)]

_LAUNCH = """mutation($keys: [String!]!) { launchPartitionBackfill(backfillParams: {
  assetSelection: [{path: ["compacted_files"]}], partitionNames: $keys}) {
  __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""
_CANCEL = "mutation($id: String!) { cancelPartitionBackfill(backfillId: $id) { __typename } }"
_TERMINATE = "mutation($id: String!) { terminateRun(runId: $id) { __typename } }"
_BACKFILL = """query($id: String!) { partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill {
  status assetBackfillData { assetBackfillStatuses { ... on AssetPartitionsStatusCounts {
    numPartitionsTargeted numPartitionsInProgress numPartitionsMaterialized numPartitionsFailed } } } } } }"""
_RUNS = """query($id: String!) { runsOrError(filter: {tags: [{key: "dagster/backfill", value: $id}]}, limit: 50) {
  ... on Runs { results { runId status tags { key value } } } } }"""
_COMPACTED = """{ assetNodes(assetKeys: [{path: ["compacted_files"]}]) {
  assetPartitionStatuses { ... on DefaultPartitionStatuses { materializedPartitions } } } }"""
# A run of a backfill has the ends of its range. In these tests, each range is one node.
_NODE_TAGS = ("dagster/partition", "dagster/asset_partition_range_start")
_ENDED = ("CANCELED", "COMPLETED", "COMPLETED_SUCCESS", "COMPLETED_FAILED", "FAILED")


class OneRunAtATime(Deployment):
    """A deployment in which a run begins only when the one before it has ended."""

    def configure(self) -> None:
        super().configure()
        file = self.folder / "dagster" / "dagster.yaml"
        shipped = file.read_text()
        assert "max_concurrent_runs: 2" in shipped
        file.write_text(shipped.replace("max_concurrent_runs: 2", "max_concurrent_runs: 1"))

    def backfill(self, keys: Sequence[str]) -> str:
        """Launch a backfill of `compacted_files`, and return its id."""
        answer = self.query(_LAUNCH, keys=list(keys))["launchPartitionBackfill"]
        assert answer["__typename"] == "LaunchBackfillSuccess", answer
        return str(answer["backfillId"])

    def runs(self, backfill: str) -> dict[str, dict[str, Any]]:
        """The runs of a backfill by the node that each one works on."""
        runs = self.query(_RUNS, id=backfill)["runsOrError"]["results"]
        return {tag["value"]: run for run in runs for tag in run["tags"] if tag["key"] in _NODE_TAGS}

    def end(self, backfill: str) -> tuple[str, dict[str, int]]:
        """Wait until a backfill has ended. Return its status and its counts."""

        def ended() -> Any:
            found = self.query(_BACKFILL, id=backfill)["partitionBackfillOrError"]
            return found if found["status"] in _ENDED else None

        found = self.wait("the backfill's end", ended)
        (counts,) = found["assetBackfillData"]["assetBackfillStatuses"]
        return found["status"], {name.removeprefix("numPartitions"): number for name, number in counts.items()}

    def compacted(self) -> set[str]:
        """The keys that `compacted_files` shows as materialized."""
        (node,) = self.query(_COMPACTED)["assetNodes"]
        return set(node["assetPartitionStatuses"]["materializedPartitions"])

    @contextmanager
    def nobody_plans_returns(self) -> Iterator[None]:
        """In this block another process holds the plan of `returns`, so each run of its nodes waits."""
        services = OpenedServices(Settings(home=self.home))
        leases, name, owner = services.stores.leases, "plan:lake.shop.returns", "a test#1"
        self.wait("the lease", lambda: leases.acquire(name, owner, datetime.now(timezone.utc), timedelta(hours=1)))
        try:
            yield
        finally:
            leases.release(name, owner)
            services.close()


@pytest.fixture(scope="module")
def dagster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneRunAtATime]:
    made = OneRunAtATime(tmp_path_factory.mktemp("terminated"))
    made.fill()
    with Processes() as processes:
        made.start(processes)
        made.wait("the sensors' run", lambda: {key(1), key(2), key(3)} <= made.compacted())
        for day in (1, 2, 4, 6, 8):
            made.add_partition(key(day, "returns"))
        yield made


def waiting_run(dagster: OneRunAtATime, backfill: str, nodes: set[str]) -> tuple[str, str]:
    """Wait until the run of one of these nodes works. Return the key of its node, and the id of the run."""

    def waiting() -> tuple[str, str] | None:
        runs = dagster.runs(backfill)
        return next(((node, str(run["runId"])) for node, run in runs.items() if node in nodes and run["status"] == "STARTED"), None)

    found: tuple[str, str] = dagster.wait("a run that waits for its table", waiting)
    return found


def test_a_terminated_run_counts_as_failed_and_its_node_is_not_materialized(dagster: OneRunAtATime) -> None:
    returns = {key(day, "returns") for day in (1, 4, 8)}
    files, rows = dagster.lake.files("shop.returns"), dagster.lake.rows("shop.returns")
    with dagster.nobody_plans_returns():
        backfill = dagster.backfill(sorted(returns))
        node, run = waiting_run(dagster, backfill, returns)
        assert dagster.query(_TERMINATE, id=run)["terminateRun"]["__typename"] == "TerminateRunSuccess"
        dagster.wait("the end of the run", lambda: dagster.runs(backfill)[node]["status"] == "CANCELED")
    status, counts = dagster.end(backfill)
    assert (status, counts) == ("COMPLETED_FAILED", {"Targeted": 3, "InProgress": 0, "Materialized": 2, "Failed": 1})
    assert returns & dagster.compacted() == returns - {node}
    # Day n of the table has n + 3 files.
    merged = sum(int(done[-2:]) + 2 for done in returns - {node})
    assert (dagster.lake.files("shop.returns"), dagster.lake.rows("shop.returns")) == (files - merged, rows)


def test_a_canceled_backfill_counts_only_what_was_done(dagster: OneRunAtATime) -> None:
    returns = {key(day, "returns") for day in (2, 6)}
    files = dagster.lake.files("shop.returns")
    with dagster.nobody_plans_returns():
        # The node of the other table may have its turn before the cancellation, or not.
        backfill = dagster.backfill([key(2), *sorted(returns)])
        waiting_run(dagster, backfill, returns)
        assert dagster.query(_CANCEL, id=backfill)["cancelPartitionBackfill"]["__typename"] == "CancelBackfillSuccess"
        status, counts = dagster.end(backfill)
    done = {node for node, run in dagster.runs(backfill).items() if run["status"] == "SUCCESS"}
    assert done <= {key(2)}
    assert (status, counts["Targeted"], counts["InProgress"], counts["Materialized"]) == ("CANCELED", 3, 0, len(done))
    assert not returns & dagster.compacted()
    assert dagster.lake.files("shop.returns") == files
