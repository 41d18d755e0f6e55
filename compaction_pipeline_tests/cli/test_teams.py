"""`team`: what teams use and may use, who lent what to whom, and which user of the operating system changed it."""

from __future__ import annotations

import getpass
import os
from pathlib import Path

import pytest

from compaction_pipeline_tests.cli.conftest import Desk


def test_teams_are_made_limited_and_deleted_and_each_change_names_who_made_it(desk: Desk) -> None:
    made = desk.json("team", "set", "shop", "--slots", "4", "--memory-gb", "1.5", "--gb-hours", "10", "--owner", "ann@example.com")
    limits = {"slots": 4, "memory_bytes": 1_500_000_000, "gb_hours": 10.0}
    used = {"slots": 0, "memory_bytes": 0, "gb_hours": 0.0}
    assert made == {"team": "shop", "owners": ["ann@example.com"], "limits": limits, "allowed": limits, "used": used}
    listed = desk.json("team", "list")
    assert [team["team"] for team in listed["teams"]] == ["shop", "unassigned"]
    assert listed["teams"][0] == made
    assert "was so already" in desk.type("team", "set", "unassigned").stdout
    held = desk.json("team", "set", "shop", "--slots", "0")
    assert held.pop("lifts") == ["memory (was 1.5 GB)", "GB-hours a day (was 10)", "owners (were ann@example.com)"]
    assert held["limits"] == {"slots": 0, "memory_bytes": None, "gb_hours": None}
    assert held["held"] == "team shop uses 0 of 0 slots"
    assert "0 of 0" in desk.type("team", "list").stdout
    free = desk.json("team", "whitelist", "shop", "--days", "0.5", "--reason", "a release")
    assert (free["team"], free["allowed_by"]) == ("shop", getpass.getuser())
    freed = desk.json("team", "list")["teams"][0]
    assert freed["whitelisted_until"] == free["until"]
    assert "held" not in freed
    assert desk.json("team", "map", "shop", "lake") == {"target": "lake", "team": "shop"}
    assert desk.json("team", "list")["mapping"] == {"lake": "shop"}
    assert desk.type("team", "delete", "shop").exit_code == 2
    assert desk.json("team", "map", "shop", "lake", "--remove") == {"target": "lake", "team": None}
    assert desk.json("team", "delete", "shop") == {"team": "shop", "deleted": True}
    changes = desk.json("team", "changes", "shop")
    assert {change["who"] for change in changes} == {getpass.getuser()}
    whats = ["deleted", "mapping of lake", "mapping of lake", "whitelisted", "limits and owners", "limits and owners"]
    assert [change["what"] for change in changes] == whats
    assert "whitelisted" in desk.type("team", "changes", "--limit", "5").stdout


def test_a_loan_counts_once_it_is_approved_and_until_it_is_ended(desk: Desk) -> None:
    for name in ("shop", "lake"):
        desk.json("team", "set", name, "--slots", "8")
    asked = desk.json("team", "lend", "lake", "shop", "--slots", "3", "--days", "2")
    assert (asked["slots"], asked["began_at"], asked["asked_by"]) == (3, None, getpass.getuser())

    def allowed() -> dict[str, int]:
        return {team["team"]: team["allowed"]["slots"] for team in desk.json("team", "list")["teams"]}

    assert "waits for approval" in desk.type("team", "list").stdout
    assert allowed() == {"lake": 8, "shop": 8, "unassigned": None}
    begun = desk.json("team", "approve", asked["loan_id"], "--consent", "Bob of lake")
    assert (begun["consent"], begun["approved_by"]) == ("Bob of lake", getpass.getuser())
    assert allowed() == {"lake": 5, "shop": 11, "unassigned": None}
    too_low = desk.type("team", "set", "lake", "--slots", "2")
    assert too_low.exit_code == 2
    assert "'slots' of team lake is 2 but must be at least 3, which it has lent" in " ".join(too_low.stderr.split())
    assert desk.json("team", "end", asked["loan_id"])["ended_at"] is not None
    assert allowed() == {"lake": 8, "shop": 8, "unassigned": None}
    assert desk.json("team", "list")["loans"] == []


def test_setting_a_team_says_which_limits_it_lifts(desk: Desk, tmp_path: Path) -> None:
    desk.json("team", "set", "shop", "--slots", "8", "--memory-gb", "16", "--gb-hours", "200")
    said = " ".join(desk.type("team", "set", "shop", "--gb-hours", "100").stdout.split())
    assert "team shop is set; this lifts slots (was 8), memory (was 16 GB)" in said
    assert "lifts" not in " ".join(desk.type("team", "set", "shop", "--gb-hours", "100", "--slots", "4").stdout.split())
    file = tmp_path / "teams.yaml"
    file.write_text("shop: {slots: 5}\nlake: {slots: 1}")
    assert desk.json("team", "apply", str(file)) == {"changed": ["shop", "lake"], "lifts": {"shop": ["GB-hours a day (was 100)"]}}
    assert desk.json("team", "apply", str(file)) == {"changed": []}
    file.write_text("shop: {}")
    said = " ".join(desk.type("team", "apply", str(file)).stdout.split())
    assert "changed: shop; for team shop this lifts slots (was 5)" in said


def test_changes_of_a_team_that_never_was_are_an_error_and_those_of_a_deleted_one_stay(desk: Desk) -> None:
    refused = desk.type("team", "changes", "nope")
    assert refused.exit_code == desk.type("team", "delete", "nope").exit_code != 0
    assert "team 'nope' does not exist" in " ".join(refused.stderr.split())
    assert desk.json("team", "changes", "unassigned") == []
    desk.json("team", "set", "shop", "--slots", "8")
    desk.json("team", "delete", "shop")
    assert [change["what"] for change in desk.json("team", "changes", "shop")] == ["deleted", "limits and owners"]


def test_a_mapping_of_another_team_is_not_taken_away(desk: Desk) -> None:
    desk.json("team", "set", "shop")
    desk.json("team", "map", "shop", "lake")
    refused = desk.type("team", "map", "unassigned", "lake", "--remove")
    assert refused.exit_code == 2
    assert "lake is mapped to team shop, not to unassigned" in " ".join(refused.stderr.split())
    assert desk.json("team", "list")["mapping"] == {"lake": "shop"}


def test_a_user_without_a_name_is_written_down_by_number(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 4711")

    monkeypatch.setattr(getpass, "getuser", nameless)
    desk.json("team", "set", "shop")
    assert desk.json("team", "changes", "shop")[0]["who"] == f"uid {os.getuid()}"


def test_what_is_wrong_with_a_team_or_a_loan_is_said(desk: Desk) -> None:
    for arguments, said in (
        (("set", "a", "--memory-gb", "inf"), "'--memory-gb' is inf but must be from 0 to"),
        (("set", "a", "--memory-gb", "1e400"), "'--memory-gb' is inf but must be from 0 to"),
        (("set", "a b"), "the team name 'a b' must have"),
        (("lend", "a", "b", "--slots", "1"), "team 'a' does not exist"),
        (("lend", "a", "b", "--slots", "1", "--days", "31"), "at most 30"),
        (("map", "a", "lake.shop"), "has two parts"),
        (("lend", "a", "b"), "give one of 'slots' and 'gb_hours'"),
        (("approve", "nothing", "--consent", "Bob"), "loan 'nothing' does not exist"),
        (("approve", "nothing", "--consent", " "), "'consent' is empty"),
        (("whitelist", "unassigned", "--reason", " "), "'reason' is empty"),
        (("whitelist", "unassigned", "--reason", "x" * 501), "'reason' has 501 characters"),
        (("whitelist", "unassigned", "--reason", "x", "--days", "0"), "'days' is 0 but must be more than 0"),
        (("map", "ghost", "lake"), "team 'ghost' does not exist"),
        (("map", "unassigned", " "), "the name of the table or catalog is empty"),
        (("delete", "unassigned"), "cannot be deleted: tables that name no team are charged to it"),
    ):
        answer = desk.type("team", *arguments)
        assert answer.exit_code != 0
        assert said in " ".join(answer.stderr.split())


def test_a_file_of_teams_is_applied_and_a_second_time_changes_nothing(desk: Desk, tmp_path: Path) -> None:
    file = tmp_path / "teams.yaml"
    file.write_text("shop: {slots: 8, owners: [a@example.com], tables: [lake.shop.orders]}\nlake: {gb-hours: 20.5}\n")
    assert desk.json("team", "apply", str(file)) == {"changed": ["shop", "lake", "lake.shop.orders"]}
    listed = desk.json("team", "list")
    assert {team["team"]: team["limits"]["slots"] for team in listed["teams"]} == {"lake": None, "shop": 8, "unassigned": None}
    assert listed["mapping"] == {"lake.shop.orders": "shop"}
    assert desk.json("team", "apply", str(file)) == {"changed": []}
    file.write_text("shop: {slots: 9}\nlake: {gb-hours: many}\n")
    refused = desk.type("team", "apply", str(file))
    assert refused.exit_code == 2
    assert "'gb-hours' of team 'lake' is many but must be a number" in refused.stderr
    assert desk.json("team", "list") == listed, "a file with a mistake changes nothing"
    assert "which cannot be read" in desk.type("team", "apply", str(tmp_path / "none.yaml")).stderr
