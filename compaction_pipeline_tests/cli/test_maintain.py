"""The commands of upkeep: what they do to a table, what they say, and with which code they end."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.cli import render_upkeep
from compaction_pipeline.core.tables.data_file import FileContent
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.demo.write_files import write_parquet_file
from compaction_pipeline.keyed import KeyedTable
from compaction_pipeline_tests.cli.conftest import SCHEMA, TABLE, Desk
from compaction_pipeline_tests.reference_reader import reference_rows
from compaction_pipeline_tests.rest_catalog import RestServer, done_but, rest_server, status

NO_TABLE = "lake.shop.none"
UUID = "ce13f4d2-9c1c-4d51-9f0a-2d3f6c1f7a55"
AT_ONCE = {"history.expire.max-snapshot-age-ms": "1", "compaction.expire.grace": "0"}
FEW = {"commit.manifest.min-count-to-merge": "3"}


@pytest.fixture
def server(desk: Desk) -> Iterator[RestServer]:
    with rest_server(desk.lake) as running:
        assert desk.type("catalog", "add", "lake", "-p", "type=rest", "-p", f"uri={running.uri}").exit_code == 0
        yield running


def two_snapshots(desk: Desk, **properties: str) -> Table:
    """A table with an append that a compaction has replaced. Any snapshot but the head is old at once."""
    table = desk.table(buckets=(0,), **AT_ONCE, **properties)
    desk.add_catalog()
    assert desk.json("compact", TABLE)["committed"] == 1
    return table


def scattered(desk: Desk) -> Table:
    """A table of four small manifests, in two partitions."""
    table = desk.table(files=1, buckets=(0,), **FEW)
    for number in range(1, 4):
        desk.append(table, 1, (number % 2,), first=number)
    return table


def snapshots(table: Table) -> int:
    return len(table.refresh().metadata.snapshots)


def manifests(table: Table) -> int:
    head = table.refresh().current_snapshot()
    assert head is not None
    return len(head.manifests(table.io))


def words(desk: Desk, *arguments: str, code: int = 0) -> str:
    """What a command says to a person, in one line."""
    result = desk.type(*arguments, COLUMNS="400")
    assert result.exit_code == code, result.output
    return " ".join(result.stdout.split())


# ---- maintain expire, maintain list ----------------------------------------------------------------------------------


def test_a_dry_run_of_expire_names_what_would_go_and_changes_nothing(desk: Desk) -> None:
    table = two_snapshots(desk)
    before = table.refresh().metadata_location
    said = words(desk, "maintain", "expire", TABLE, "--dry-run")
    assert f"{TABLE}: 1 snapshot would be removed, 1 snapshot stays" in said
    assert "snapshots that stay" in said
    answer = desk.json("maintain", "expire", TABLE, "--dry-run")
    (store,) = answer["stores"]
    assert (answer["dry_run"], len(store["expiry"]["removed"]), store["record"], store["refusal"]) == (True, 1, None, None)
    assert table.refresh().metadata_location == before
    assert "no records" in words(desk, "maintain", "list")


def test_expire_removes_old_snapshots_and_list_shows_it(desk: Desk) -> None:
    table = two_snapshots(desk)
    ids = desk.ids(table)
    answer = desk.json("maintain", "expire", TABLE)
    (store,) = answer["stores"]
    assert (answer["dry_run"], store["record"]["status"], snapshots(table), store["grace_seconds"]) == (False, "REMOVED", 1, 0)
    (record,) = desk.json("maintain", "list")
    assert record["record_id"] == store["record"]["record_id"]
    assert NO_TABLE in desk.json("maintain", "list", NO_TABLE, code=2)["error"]
    # There is no grace time, so the next run deletes the files.
    said = words(desk, "maintain", "expire", TABLE)
    assert f"{TABLE}, record {record['record_id']}: " in said
    assert "nothing is old enough" in said
    assert "DONE" in words(desk, "maintain", "list", TABLE)
    assert len(list((desk.folder / "warehouse").rglob("*.parquet"))) == 1
    assert desk.ids(table) == ids


def test_a_property_that_breaks_its_rule_is_bad_input_for_every_work(desk: Desk) -> None:
    wrong = {"compaction.expire.grace": "soon", "commit.manifest.min-count-to-merge": "many"}
    desk.table(buckets=(0,), **wrong)
    desk.add_catalog()
    for work in ("expire", "manifests"):
        for more in ([], ["--dry-run"]):
            assert desk.type("maintain", work, TABLE, *more).exit_code == 2


def test_list_shows_as_many_records_as_it_is_asked_for_newest_first(desk: Desk) -> None:
    table = two_snapshots(desk)
    desk.json("maintain", "expire", TABLE)
    desk.append(table, 1, first=100)
    desk.json("maintain", "expire", TABLE)
    newest, oldest = desk.json("maintain", "list")
    assert newest["created_at"] > oldest["created_at"]
    assert desk.json("maintain", "list", "--limit", "1") == [newest]


def test_a_refused_expire_ends_with_4_and_the_reason(desk: Desk) -> None:
    table = two_snapshots(desk, **{"gc.enabled": "false"})
    for more in ([], ["--dry-run"]):
        assert f"{TABLE}: nothing expires: 'gc.enabled' is false" in words(desk, "maintain", "expire", TABLE, *more, code=4)
        (store,) = desk.json("maintain", "expire", TABLE, *more, code=4)["stores"]
        assert "'gc.enabled' is false" in store["refusal"]
    assert snapshots(table) == 2


def test_an_expire_without_an_answer_ends_with_5_and_the_next_run_settles_it(desk: Desk, server: RestServer) -> None:
    table = desk.table(buckets=(0,), **AT_ONCE)
    assert desk.json("compact", TABLE)["committed"] == 1
    server.commits = [done_but(503)]
    desk.json("maintain", "expire", TABLE, code=5)
    assert snapshots(table) == 1
    assert desk.type("maintain", "expire", TABLE).exit_code == 0
    (record,) = desk.json("maintain", "list")
    assert record["status"] == "DONE"


@pytest.mark.parametrize("command", ["expire", "changes", "rows", "deletes", "manifests", "orphans"])
def test_a_table_that_nobody_knows_ends_with_2(desk: Desk, command: str) -> None:
    desk.add_catalog()
    assert NO_TABLE in desk.json("maintain", command, NO_TABLE, code=2)["error"]
    assert "nowhere" in desk.json("maintain", command, "nowhere.shop.orders", code=2)["error"]


# ---- maintain manifests ----------------------------------------------------------------------------------------------


def test_a_dry_run_of_manifests_says_what_a_reader_would_gain_and_writes_nothing(desk: Desk) -> None:
    table = scattered(desk)
    desk.add_catalog()
    before = table.refresh().metadata_location
    said = words(desk, "maintain", "manifests", TABLE, "--dry-run")
    assert f"{TABLE}: would be done: 4 small manifests → about 1; " in said
    assert "manifests that a reader of one partition opens: 2 → 1" in said
    answer = desk.json("maintain", "manifests", TABLE, "--dry-run")
    (store,) = answer["stores"]
    assert (answer["dry_run"], store["state"], store["is_due"], store["refusal"]) == (True, None, True, None)
    assert figures(store) == (4, 1, 2.0, 1.0)
    assert (manifests(table), table.metadata_location) == (4, before)


def test_small_manifests_are_rewritten_once_and_every_row_stays(desk: Desk) -> None:
    table = scattered(desk)
    desk.add_catalog()
    ids, head = desk.ids(table), table.refresh().metadata.current_snapshot_id
    said = words(desk, "maintain", "manifests", TABLE)
    assert f"{TABLE}: done: 4 small manifests → 1; manifests that a reader of one partition opens: 2 → 1" in said
    assert (manifests(table), desk.ids(table)) == (1, ids)
    assert table.metadata.current_snapshot_id != head
    again = words(desk, "maintain", "manifests", TABLE)
    assert f"{TABLE}: nothing to do: spec 0 has 1 small data manifest" in again
    (answer,) = desk.json("maintain", "manifests", TABLE)["stores"]
    assert (answer["state"], figures(answer)) == ("NOTHING", (1, 1, 1.0, 1.0))
    assert snapshots(table) == 5


def test_a_rewrite_of_manifests_tells_its_snapshots_to_programs(desk: Desk) -> None:
    table = scattered(desk)
    desk.add_catalog()
    answer = desk.json("maintain", "manifests", TABLE)
    head = table.refresh().current_snapshot()
    assert head is not None
    (store,) = answer["stores"]
    assert (answer["table"], answer["dry_run"], store["state"], store["unanswered"]) == (TABLE, False, "COMMITTED", False)
    assert figures(store) == (4, 1, 2.0, 1.0)
    assert (store["snapshot_after"], store["snapshot_before"]) == (head.snapshot_id, head.parent_snapshot_id)
    (record,) = desk.json("maintain", "list", TABLE)
    assert (record["record_id"], record["status"], record["snapshot_id"]) == (store["record"], "DONE", head.snapshot_id)
    assert "MANIFESTS DONE 4 small manifests → 1" in " ".join(words(desk, "maintain", "list", TABLE).replace("│", "").split())


@pytest.mark.parametrize("more", [[], ["--dry-run"]], ids=["rewrite", "dry run"])
def test_manifests_of_an_observed_a_paused_and_an_encrypted_table_stay_and_the_command_ends_with_4(desk: Desk, more: list[str]) -> None:
    table = scattered(desk)
    desk.add_catalog("--observe")
    assert "catalog lake is only observed" in words(desk, "maintain", "manifests", TABLE, *more, code=4)
    assert desk.type("catalog", "remove", "lake", "--yes").exit_code == 0
    desk.add_catalog()
    desk.json("table", "list", "--refresh")
    assert desk.type("pause", TABLE).exit_code == 0
    assert "a person paused it" in desk.json("maintain", "manifests", TABLE, *more, code=4)["stores"][0]["refusal"]
    assert desk.type("resume", TABLE).exit_code == 0
    with table.refresh().transaction() as change:
        change.set_properties({"encryption.key-id": "k"})
    (answer,) = desk.json("maintain", "manifests", TABLE, *more, code=4)["stores"]
    assert "'encryption.key-id' is 'k'" in answer["refusal"]
    assert (answer["reason"], answer["figures"]) == (None, None)
    assert manifests(table) == 4


def test_a_rewrite_of_manifests_without_an_answer_ends_with_5_and_the_next_run_rewrites_them(desk: Desk, server: RestServer) -> None:
    table = scattered(desk)
    ids = desk.ids(table)
    server.commits = [status(503)]
    said = words(desk, "maintain", "manifests", TABLE, code=5)
    assert "the outcome of the commit is unknown" in said
    assert "The next run finds the table as it is then. The files of an attempt that did not land stay until orphan files" in said
    assert manifests(table) == 4
    server.commits = [status(503)]
    (answer,) = desk.json("maintain", "manifests", TABLE, code=5)["stores"]
    assert (answer["state"], answer["unanswered"], answer["figures"]) == ("UNKNOWN", True, {})
    assert desk.json("maintain", "manifests", TABLE)["stores"][0]["state"] == "COMMITTED"
    assert [record["status"] for record in desk.json("maintain", "list")] == ["DONE", "FAILED", "FAILED"]
    assert (manifests(table), desk.ids(table)) == (1, ids)


# ---- maintain rows ---------------------------------------------------------------------------------------------------

AGING = {"data-expire.field": "id", "data-expire.datetime-number-format": "TIMESTAMP_S", "data-expire.retention-time": "9d"}


def aging(desk: Desk, **properties: str) -> Table:
    """A table of which the ids are seconds since 1970: two rows of 1982 in bucket 0, and one of now in bucket 1."""
    table = desk.table(files=0, **properties)
    desk.append(table, 2, (0,), first=40_000_000 + 1)
    desk.append(table, 1, (1,), first=int(datetime.now(timezone.utc).timestamp()) // 10)
    desk.add_catalog()
    return table


def test_a_dry_run_of_rows_names_partitions_rows_and_bytes_and_writes_nothing(desk: Desk) -> None:
    table = aging(desk, **AGING)
    before = table.refresh().metadata_location
    said = words(desk, "maintain", "rows", TABLE, "--dry-run")
    assert f"{TABLE}: would be done: only times before " in said
    assert " UTC are in 2 data files of 1 partition: 2 rows, " in said
    assert "; bucket=0 (2 data files, 2 rows, " in said
    (store,) = desk.json("maintain", "rows", TABLE, "--dry-run")["stores"]
    assert (store["is_due"], store["figures"]["rows"], store["figures"]["partitions"]) == (True, 2, 1)
    assert table.refresh().metadata_location == before


def test_old_rows_go_once_and_the_others_stay(desk: Desk) -> None:
    table = aging(desk, **AGING)
    young = desk.ids(table)[2:]
    assert "2 data files of 1 partition: 2 rows, " in words(desk, "maintain", "rows", TABLE)
    assert desk.ids(table) == young
    assert "nothing to do: nothing has only times before" in words(desk, "maintain", "rows", TABLE)
    assert "OLD_ROWS DONE only times before" in " ".join(words(desk, "maintain", "list", TABLE).replace("│", "").split())


@pytest.mark.parametrize(
    ("properties", "why", "code"),
    [
        ({}, "'data-expire.field' is not set: it names the column that has the time of a row", 4),
        ({**AGING, "data-expire.field": "day"}, "'data-expire.field' is 'day', but the table has no column of this name", 2),
        ({**AGING, "data-expire.level": "row"}, "'data-expire.level' is row but must be PARTITION or FILE", 2),
        ({**AGING, "gc.enabled": "false"}, "'gc.enabled' is false", 4),
    ],
)
def test_rows_of_a_table_that_does_not_say_what_is_old_stay_and_the_exit_code_tells_refused_from_bad_input(
    desk: Desk, properties: dict[str, str], why: str, code: int
) -> None:
    table = aging(desk, **properties)
    for more in ([], ["--dry-run"]):
        said = words(desk, "maintain", "rows", TABLE, *more, code=code)
        assert f"{TABLE}: old rows stay: " in said
        assert why in said
    assert len(desk.ids(table)) == 3


# ---- maintain deletes ------------------------------------------------------------------------------------------------


def test_deletes_of_a_large_file_become_one_and_dangling_ones_go_while_other_partitions_stay(desk: Desk) -> None:
    # Each data file is a large one.
    table = desk.table(files=1, buckets=(0, 1), **{"self-optimizing.target-size": "1000"})
    rows = pa.table({"id": pa.array(range(100, 105), pa.int64()), "bucket": pa.array([0] * 5, pa.int32())})
    row_delta(table, [write_parquet_file(table, rows, content=FileContent.DATA, partition=Record(0), name="large")])
    for number in (100, 101, 102):
        desk.delete(table, 0, number)
    desk.add_catalog()
    files, ids = live(table), rows_of(table)
    said = words(desk, "maintain", "deletes", TABLE, "--dry-run")
    assert "dry run: nothing is done" in said
    assert live(table) == files
    assert desk.json("maintain", "deletes", TABLE)["delete_files_after"] == 1
    assert rows_of(table) == ids == [0, 1, 103, 104]
    (new,) = live(table) - files
    assert files - live(table) == {one for one in files if "delete-" in one}
    assert new.endswith(".parquet")
    again = desk.json("maintain", "deletes", TABLE)
    assert (again["tasks"], again["committed"]) == (0, 0)


def test_deletes_of_a_table_without_any_leave_it_alone(desk: Desk) -> None:
    table = desk.table(files=3)
    desk.add_catalog()
    files = live(table)
    answer = desk.json("maintain", "deletes", TABLE)
    assert (answer["tasks"], answer["committed"], live(table)) == (0, 0, files)


def live(table: Table) -> set[str]:
    """The names of the live files."""
    files = table.refresh().inspect.files()["file_path"].to_pylist()
    return {path.rsplit("/", 1)[-1] for path in files}


def rows_of(table: Table) -> list[int]:
    return sorted(row["id"] for row in reference_rows(table.refresh()))


def figures(answer: Any) -> tuple[Any, ...]:
    return tuple(answer["figures"][name] for name in ("manifests_before", "manifests_after", "opened_before", "opened_after"))


# ---- maintain changes ------------------------------------------------------------------------------------------------


def test_merged_change_files_leave_a_keyed_table_once_and_the_record_is_listed(desk: Desk) -> None:
    keyed = KeyedTable.create(desk.lake, "shop.payments", SCHEMA, ["id"], properties={"change.data.ttl.minutes": "0"})
    keyed.write_changes(pa.Table.from_pylist([{"id": 1, "bucket": 0, "_change_type": "INSERT"}]))
    desk.add_catalog()
    assert desk.json("compact", "lake.shop.payments", "--type", "full")["committed"] == 1
    said = words(desk, "maintain", "changes", "lake.shop.payments", "--dry-run")
    assert "lake.shop.payments_change_: would be done: 1 merged change file with 1 row" in said
    (answer,) = desk.json("maintain", "changes", "lake.shop.payments")["stores"]
    assert (answer["state"], answer["figures"]["change_files"], answer["figures"]["rows"]) == ("COMMITTED", 1, 1)
    assert "nothing to do: there is no change file" in words(desk, "maintain", "changes", "lake.shop.payments")
    assert [record["target"]["work"] for record in desk.json("maintain", "list", "lake.shop.payments")] == ["CHANGE_FILES"]
    assert keyed.scan().to_arrow().to_pylist() == [{"id": 1, "bucket": 0}]


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_a_plain_table_has_no_change_files_and_the_command_ends_with_4(desk: Desk, more: list[str]) -> None:
    scattered(desk)
    desk.add_catalog()
    assert "merged change files stay: the table is not keyed" in words(desk, "maintain", "changes", TABLE, *more, code=4)


# ---- maintain orphans ------------------------------------------------------------------------------------------------


def put(table: Table, size: int = 5) -> str:
    """Write a file below a table's location that no metadata names, and return its path."""
    path = f"{table.location()}/data/{size:05d}-0-{UUID}-00001.parquet"
    Path(urlsplit(path).path).write_bytes(b"x" * size)
    return path


def days_later(desk: Desk, days: int) -> None:
    """Let later commands run so many days from now. The time of a file on this host cannot be set back."""

    def take(services: Services) -> None:
        services.clock = lambda: datetime.now(timezone.utc) + timedelta(days=days)

    desk.preparations.append(take)


def test_orphan_files_are_listed_once_they_are_old_and_none_is_deleted(desk: Desk) -> None:
    table = desk.table(files=3)
    desk.add_catalog()
    stray = put(table)
    days_later(desk, 2)
    young = words(desk, "maintain", "orphans", TABLE)
    assert "YOUNG 1 5 B a writer may be about to commit it" in young
    assert stray not in young
    days_later(desk, 4)
    old = words(desk, "maintain", "orphans", TABLE)
    assert "ORPHAN 1 5 B nobody needs it, as far as is known" in old
    assert f"{stray} 5 B 2" in old
    answer = desk.json("maintain", "orphans", TABLE)
    (orphan,) = answer["orphans"]
    assert (orphan["path"], orphan["size_bytes"]) == (stray, 5)
    assert (answer["table"], answer["dry_run"], answer["refusals"]) == (TABLE, True, [])
    assert answer["standings"]["ORPHAN"] == {"files": 1, "size_bytes": 5}
    assert answer["standings"]["REFERENCED"]["files"] >= 6
    assert Path(urlsplit(stray).path).exists()


def test_orphan_files_are_deleted_by_two_commands_a_day_apart(desk: Desk) -> None:
    table = desk.table(files=3)
    desk.add_catalog()
    stray = put(table)
    days_later(desk, 4)
    assert "no two looks at least 24 hours apart found the same" in words(desk, "maintain", "orphans", TABLE, "--delete")
    days_later(desk, 5)
    assert f"{TABLE}: 1 orphan file deleted (5 B)" in words(desk, "maintain", "orphans", TABLE, "--delete")
    assert not Path(urlsplit(stray).path).exists()
    assert "DONE 1 orphan file deleted (5 B)" in words(desk, "maintain", "list", TABLE)
    [record] = desk.json("maintain", "list", TABLE)
    assert [file["path"] for file in record["files"]] == [stray]


def test_too_many_orphan_files_are_listed_and_deleted_only_when_a_person_accepts_the_share(desk: Desk) -> None:
    table = desk.table(files=3)
    desk.add_catalog()
    stray = put(table, 10**6)
    days_later(desk, 4)
    said = words(desk, "maintain", "orphans", TABLE)
    assert stray in said
    assert "these will not be deleted:" in said
    days_later(desk, 5)
    assert "more than 20%" in words(desk, "maintain", "orphans", TABLE, "--delete", code=4)
    answer = desk.json("maintain", "orphans", TABLE, "--delete", "--accept-share", "1")
    assert [file["path"] for deletion in answer["deletions"] for file in deletion["files"]] == [stray]
    assert (answer["dry_run"], answer["problem"]) == (False, None)


def test_a_table_that_is_gone_counts_until_a_person_says_so(desk: Desk) -> None:
    table = desk.table(files=3)
    inner = desk.lake.create_table(
        "shop.inner", table.schema(), location=f"{table.location()}/inner", properties={"write.metadata.path": f"{table.location()}-inner"}
    )
    desk.add_catalog()
    words(desk, "maintain", "orphans", TABLE, code=4)
    desk.lake.drop_table("shop.inner")
    days_later(desk, 4)
    assert "lake.shop.inner (as it was seen earlier)" in words(desk, "maintain", "orphans", TABLE, code=4)
    said = words(desk, "maintain", "orphans", TABLE, "--forget-gone-tables")
    assert f"forgotten: lake.shop.inner at {inner.location()}" in said


def test_a_person_sees_the_largest_orphans_and_a_program_all(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    table = desk.table(files=3)
    desk.add_catalog()
    monkeypatch.setattr(render_upkeep, "MOST_ORPHANS", 2)
    smallest, largest, other = (put(table, size) for size in (1, 3, 2))
    days_later(desk, 4)
    said = words(desk, "maintain", "orphans", TABLE)
    assert "the largest 2 of 3 orphan files; --json lists all" in said
    assert smallest not in said
    assert said.index(largest) < said.index(other)
    assert len(desk.json("maintain", "orphans", TABLE)["orphans"]) == 3


def test_a_table_without_orphan_files_shows_no_list_of_them(desk: Desk) -> None:
    desk.table(files=3)
    desk.add_catalog()
    days_later(desk, 4)
    assert "orphan files" not in words(desk, "maintain", "orphans", TABLE)
    assert f"{TABLE}: there are no orphan files" in words(desk, "maintain", "orphans", TABLE, "--delete")


def test_files_of_a_table_that_is_registered_twice_are_not_listed_and_the_command_ends_with_4(desk: Desk) -> None:
    table = desk.table(files=3)
    desk.add_catalog()
    stray = put(table)
    days_later(desk, 4)
    desk.lake.register_table("shop.again", table.metadata_location)
    said = words(desk, "maintain", "orphans", TABLE, code=4)
    assert f"{TABLE}: nothing may be deleted: the location {table.location()} and " in said
    assert "lake.shop.again" in said
    assert stray not in said
    answer = desk.json("maintain", "orphans", TABLE, code=4)
    assert (len(answer["refusals"]), answer["orphans"]) == (1, [])
    assert answer["standings"]["ORPHAN"]["files"] == 1


# ---- consumer --------------------------------------------------------------------------------------------------------


def test_a_registered_consumer_keeps_its_snapshot_and_the_dry_run_names_it(desk: Desk) -> None:
    table = two_snapshots(desk)
    first = table.refresh().metadata.snapshots[0].snapshot_id
    said = words(desk, "consumer", "set", TABLE, "etl", str(first), "--days", "2")
    assert f"{TABLE}: snapshot {first} and what comes after it stay for consumer etl until" in said
    assert "consumer etl has not read what came after it" in words(desk, "maintain", "expire", TABLE, "--dry-run")
    desk.json("maintain", "expire", TABLE)
    assert snapshots(table) == 2
    (listed,) = desk.json("consumer", "list", TABLE)
    assert (listed["table"], listed["name"], listed["snapshot_id"], listed["missing_at"]) == (TABLE, "etl", first, None)
    assert "etl" in words(desk, "consumer", "list")
    assert desk.json("consumer", "remove", TABLE, "etl")["removed"] is True
    assert words(desk, "consumer", "list") == "no consumers"
    desk.json("maintain", "expire", TABLE)
    assert snapshots(table) == 1


def test_a_consumer_of_an_unknown_snapshot_table_or_name_is_bad_input(desk: Desk) -> None:
    two_snapshots(desk)
    assert "no store of it has that" in desk.json("consumer", "set", TABLE, "etl", "7", code=2)["error"]
    desk.json("consumer", "set", NO_TABLE, "etl", "7", code=2)
    assert "no consumer 'etl'" in desk.json("consumer", "remove", TABLE, "etl", code=2)["error"]
    assert desk.json("consumer", "list") == []


def test_expire_and_list_warn_of_a_consumer_whose_snapshot_is_gone(desk: Desk) -> None:
    table = two_snapshots(desk)
    first = table.refresh().metadata.snapshots[0].snapshot_id
    desk.json("consumer", "set", TABLE, "etl", str(first))
    table.refresh().maintenance.expire_snapshots().by_id(first).commit()
    assert f"warning: snapshot {first} of {TABLE}, the last that consumer etl has read, was gone" in words(
        desk, "maintain", "expire", TABLE
    )
    assert "read the whole table again" in words(desk, "consumer", "list")
