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


def test_without_optimizers_nothing_is_badly_used(desk: Desk) -> None:
    assert desk.type("optimizer", "use").stdout.strip() == "no optimizers run"
