"""`cost`, `optimizer use` and `plan --budget` on a command line."""

from __future__ import annotations

import json

import pytest

from compaction_pipeline_tests.cli.conftest import TABLE, Desk


def test_a_compaction_is_charged(desk: Desk) -> None:
    desk.table(files=12, buckets=(0,))
    desk.add_catalog()
    assert desk.type("cost").stdout.startswith("no attempt has ended from ")
    assert desk.type("compact", TABLE).exit_code == 0
    (cost,) = json.loads(desk.type("cost", "--json").stdout)["costs"]
    assert (cost["key"], cost["attempts"], cost["provisional"], cost["cut"]) == (TABLE, 1, 0, 0)
    assert 0 < cost["merged_slot_seconds"] == cost["slot_seconds"]
    assert cost["cpu_seconds"] > 0
    assert cost["bytes_read"] > cost["bytes_written"] > 0
    # Nobody said how much memory this process has.
    assert cost["gb_hours"] is None
    assert TABLE in desk.type("cost").stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("cost", "--days", "36"), "'days' is 36 but must be from 1 to 35"),
        (("cost", "--by", "colour"), "colour"),
        (("plan",), "the table is missing"),
        (("plan", "--budget", "4"), "--budget is '4' but must be GB-hours above 0"),
        (("plan", "--budget", "4GBh", "--type", "full"), "--budget goes with no --type"),
        (("plan", "lake.nothing", "--budget", "4GBh"), "nothing"),
    ],
)
def test_bad_input_is_refused(desk: Desk, arguments: tuple[str, ...], says: str) -> None:
    answer = desk.type(*arguments)
    assert answer.exit_code == 2
    assert says in answer.stderr


def test_a_budget_without_anything_to_predict_from_says_what_to_do(desk: Desk) -> None:
    desk.table(files=12, buckets=(0,))
    desk.add_catalog()
    assert desk.type("plan", TABLE).exit_code == 0
    answer = desk.type("plan", "--budget", "1GBh")
    assert answer.exit_code == 2
    assert "start optimizers with --memory" in answer.stderr


def test_a_budget_orders_what_is_due_once_something_was_merged(desk: Desk) -> None:
    table = desk.table(files=12, buckets=(0, 1))
    desk.add_catalog()
    memory = {"COMPACTION_RUN_MEMORY": str(4 * 10**9)}
    assert desk.type("compact", TABLE, **memory).exit_code == 0
    (cost,) = json.loads(desk.type("cost", "--json").stdout)["costs"]
    assert cost["gb_hours"] == pytest.approx(4 * cost["slot_seconds"] / 3600)
    for bucket, files in ((0, 12), (1, 30)):
        desk.append(table, files, buckets=(bucket,), first=100 * (bucket + 1))
    assert desk.type("plan", TABLE).exit_code == 0
    found = json.loads(desk.type("plan", "--budget", "1000GBh", "--json").stdout)
    assert [(one["due"]["node"], one["is_within"]) for one in found["nodes"]] == [("bucket=1", True), ("bucket=0", True)]
    assert [one["due"]["benefit"] for one in found["nodes"]] == [30, 12]
    none = json.loads(desk.type("plan", "--budget", "0.000001GBh", "--json").stdout)
    assert [one["is_within"] for one in none["nodes"]] == [False, False]
    assert "the budget ends here" in desk.type("plan", "--budget", "0.000001GBh").stdout


def test_a_record_shows_what_was_predicted_beside_what_was_found(desk: Desk) -> None:
    """Nothing can be predicted of the first compaction. The second is predicted before it runs."""
    table = desk.table(files=12, buckets=(0,))
    desk.add_catalog()
    memory = {"COMPACTION_RUN_MEMORY": str(4 * 10**9)}
    assert desk.type("compact", TABLE, **memory).exit_code == 0
    desk.append(table, 12, buckets=(1,), first=100)
    assert desk.type("plan", TABLE).exit_code == 0
    (planned,) = json.loads(desk.type("plan", TABLE, "--json").stdout)["tasks"]
    assert desk.type("compact", TABLE, **memory).exit_code == 0
    second, first = json.loads(desk.type("record", "list", "--json").stdout)
    (cost,) = json.loads(desk.type("cost", "--json").stdout)["costs"]
    assert first["predicted_gb_hours"] is None
    assert first["gb_hours"] + second["gb_hours"] == pytest.approx(cost["gb_hours"])
    # The second run does what the first did, so its bytes are predicted as that one wrote them.
    assert (second["predicted_gb_hours"], second["predicted_bytes"]) == (planned["predicted_gb_hours"], planned["predicted_bytes"])
    assert second["predicted_gb_hours"] > 0
    assert second["predicted_bytes"] == pytest.approx(second["figures"]["output_bytes"], rel=0.1)
    assert abs(first["predicted_bytes"] - first["figures"]["output_bytes"]) > 0.5 * first["figures"]["output_bytes"]
    assert (
        f"{second['gb_hours']:.3g}; predicted {second['predicted_gb_hours']:.3g}" in desk.type("record", "show", second["record_id"]).stdout
    )
    assert f"{first['gb_hours']:.3g}; predicted unknown" in desk.type("record", "show", first["record_id"]).stdout


def test_without_optimizers_nothing_is_badly_used(desk: Desk) -> None:
    assert desk.type("optimizer", "use").stdout.strip() == "no optimizers run"
