"""The commands for catalogs, tables, records, status, state and doctor, and rules that every command follows."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from compaction_pipeline.cli.main import app
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline_tests.cli.conftest import TABLE, Desk
from compaction_pipeline_tests.opened import opened

COMMANDS = [
    (),
    ("catalog",),
    ("catalog", "add"),
    ("catalog", "change"),
    ("catalog", "explore"),
    ("catalog", "file"),
    ("catalog", "file", "add"),
    ("catalog", "file", "list"),
    ("catalog", "file", "remove"),
    ("catalog", "list"),
    ("catalog", "remove"),
    ("catalog", "show"),
    ("table",),
    ("table", "list"),
    ("table", "show"),
    ("pause",),
    ("resume",),
    ("plan",),
    ("compact",),
    ("record",),
    ("record", "list"),
    ("record", "show"),
    ("status",),
    ("state",),
    ("state", "upgrade"),
    ("state", "rotate-key"),
    ("doctor",),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_help_shows_examples(command: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*command, "--help"])
    assert result.exit_code == 0
    assert result.stdout.count("compaction-pipeline") >= 2
    assert "Exit codes" in result.stdout


def test_the_version_is_printed() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout.split()[0]) == (0, "compaction-pipeline")


# ---- catalogs --------------------------------------------------------------------------------------------------------


def test_a_catalog_is_added_listed_and_removed(desk: Desk) -> None:
    desk.table(files=1)
    added = desk.json("catalog", "add", "lake", *desk.catalog_options)
    counts = {"table_count": 1, "namespace_count": 1, "left_out_count": 0}
    assert added == {"catalog": "lake", "observe": False, "tables": [TABLE], **counts}
    assert desk.add_catalog().exit_code == 2
    [entry] = desk.json("catalog", "list")
    assert (entry["catalog"], entry["observe"]) == ("lake", False)
    refused = desk.type("catalog", "remove", "lake")
    assert (refused.exit_code, "1 table, 0 open tasks and 0 records would be forgotten" in refused.stderr) == (2, True)
    assert desk.json("catalog", "remove", "lake", "--dry-run")["tables"] == 1
    assert desk.json("catalog", "remove", "lake", "--yes")["removed"]
    assert desk.json("catalog", "list") == []
    assert desk.type("catalog", "remove", "lake").exit_code == 2


def test_no_secret_is_shown(desk: Desk) -> None:
    desk.add_catalog("-p", "s3.access-key-id=me", "-p", "s3.secret-access-key=hunter2", "-p", "s3.endpoint=http://me:hunter2@minio:9000")
    for result in (
        desk.type("catalog", "list"),
        desk.type("catalog", "list", "--json"),
        desk.type("status", "--json"),
        desk.type("doctor"),
    ):
        assert "hunter2" not in result.output
    assert "s3.secret-access-key=***" in desk.type("catalog", "list").stdout


@pytest.mark.parametrize("options", [("-p", "hunter2"), ("-p", "=hunter2"), ("-p", "type=sql", "-p", "type=hunter2")])
def test_a_text_that_is_no_property_is_bad_input_and_not_repeated(desk: Desk, options: tuple[str, ...]) -> None:
    result = desk.type("catalog", "add", "lake", *options)
    assert result.exit_code == 2
    assert "hunter2" not in result.output


def test_a_catalog_name_must_fit_into_a_table_name(desk: Desk) -> None:
    assert "letters, digits" in desk.type("catalog", "add", "my.lake", *desk.catalog_options).stderr


def test_a_catalog_that_does_not_open_is_not_registered_and_not_created(desk: Desk) -> None:
    result = desk.type("catalog", "add", "typo", "-p", "type=sql", "-p", f"uri=sqlite:///{desk.folder}/typo.db")
    assert result.exit_code in (1, 2)
    assert result.stderr.startswith("error: ")
    assert desk.json("catalog", "list") == []
    assert not (desk.folder / "typo.db").exists()


# ---- tables ----------------------------------------------------------------------------------------------------------


def test_tables_are_listed_with_figures_once_they_are_read(desk: Desk) -> None:
    desk.table(files=2)
    desk.add_catalog()
    desk.table(files=1, name="later")
    listed = desk.json("table", "list", "--refresh")
    assert {item["table"]: item["data_files"] for item in listed} == {TABLE: 4, "lake.shop.later": 2}
    assert TABLE in desk.type("table", "list", "--catalog", "lake").stdout
    assert desk.type("table", "list", "--catalog", "nowhere").exit_code == 2


def test_a_table_that_was_never_read_shows_no_figures_and_how_to_get_them(desk: Desk) -> None:
    desk.table(files=1)
    desk.add_catalog()
    result = desk.type("table", "list")
    assert "1 table not read yet: `compaction-pipeline table list --refresh` reads what is new" in result.stderr
    assert " 0 " not in result.stdout
    assert "–" in result.stdout
    assert desk.json("table", "list")[0]["data_files"] is None
    assert "not read yet" not in desk.type("table", "list", "--refresh").stderr
    assert desk.type("table", "list").stderr == ""


def test_a_table_is_shown_with_nodes_files_and_properties(desk: Desk) -> None:
    filters = {f"write.parquet.bloom-filter-enabled.column.{name}": "true" for name in ("id", "typo")}
    settings = {"self-optimizing.fragment-ratio": "4", "self-optimizing.max-retry": "3", "compaction.typo": "1", **filters}
    settings |= {"compaction.ready-when": "quiet:2h", "snapshot.keep.duration": "3d"}
    table = desk.table(files=2, **settings)
    desk.delete(table, 0, 0)
    desk.add_catalog()
    shown = desk.json("table", "show", TABLE)
    assert {node["node"] for node in shown["nodes"]} == {"bucket=0", "bucket=1"}
    assert sorted(file["content"] for file in shown["files"]) == ["DATA"] * 4 + ["EQUALITY_DELETES"]
    assert shown["properties"]["self-optimizing.fragment-ratio"] == 4
    assert shown["properties"]["self-optimizing.commit.interval"] == 300_000
    assert shown["unknown_properties"] == ["compaction.typo"]
    assert shown["ready_properties"] == {"compaction.ready-when": "quiet:2h"}
    assert shown["upkeep_properties"] == {"snapshot.keep.duration": "3d"}
    [(ignored, instead)] = shown["ignored_properties"].items()
    assert (ignored, "self-optimizing.execute.num-retries" in instead) == ("self-optimizing.max-retry", True)
    assert list(shown["write_properties_not_honoured"]) == ["write.parquet.bloom-filter-enabled.column.typo"]
    assert "files" not in desk.json("table", "show", TABLE, "--no-files")
    people = desk.type("table", "show", TABLE).stdout
    for word in ("bucket=1", "self-optimizing.max-retry", "ignored", "unknown", ".parquet", "quiet:2h"):
        assert word in people


def test_a_person_is_shown_the_first_files_and_json_has_all(desk: Desk) -> None:
    desk.table(files=51)
    desk.add_catalog()
    people = desk.type("table", "show", TABLE).stdout
    assert "the first 100 of 102 files; --json lists all" in people
    assert people.count(".parquet") == 100
    assert len(desk.json("table", "show", TABLE)["files"]) == 102


def test_no_tables_come_with_the_next_step(desk: Desk) -> None:
    assert "no catalog is registered: run `compaction-pipeline catalog add`" in desk.type("table", "list").stdout
    desk.add_catalog()
    assert "no tables: no registered catalog lists one" in desk.type("table", "list").stdout


def test_all_tables_are_paused_and_resumed_at_once(desk: Desk) -> None:
    desk.table(files=1)
    desk.table(files=1, name="devices")
    desk.add_catalog()
    assert desk.json("pause")["changed"] == 2
    assert all(item["paused"] for item in desk.json("table", "list"))
    assert desk.json("resume")["changed"] == 2
    assert desk.type("pause", "lake.shop.nope").exit_code == 2


# ---- records and status ----------------------------------------------------------------------------------------------


def test_records_show_what_was_done(desk: Desk) -> None:
    desk.table()
    desk.add_catalog()
    done = desk.json("compact", TABLE)
    [listed] = desk.json("record", "list", TABLE)
    assert [listed["record_id"]] == done["records"]
    shown = desk.json("record", "show", listed["record_id"][:6])
    assert (shown["status"], shown["snapshot_after"]) == ("COMMITTED", done["snapshot_after"])
    assert [task["status"] for task in shown["tasks"]] == ["COMMITTED", "COMMITTED"]
    people = desk.type("record", "show", listed["record_id"]).stdout
    assert "24 → 2" in people
    assert "longest wait" in people
    assert shown["waited"] in people
    assert shown["waited"].startswith(("did not wait", "waited "))
    assert "PREPARED" not in people
    assert listed["record_id"] in desk.type("record", "list").stdout
    assert desk.type("record", "show", "nope").exit_code == 2
    nobody_s = desk.type("record", "list", "lake.shop.nope")
    assert (nobody_s.exit_code, nobody_s.stdout) == (2, "")
    assert "table lake.shop.nope is not known" in nobody_s.stderr


def test_status_is_the_page_to_look_at_first(desk: Desk) -> None:
    nothing = desk.type("status")
    assert nothing.exit_code == 0
    assert "catalog add" in nothing.stderr
    desk.table()
    desk.add_catalog()
    desk.json("compact", TABLE)
    now = desk.json("status")
    assert [item["table"] for item in now["tables"]] == [TABLE]
    nothing_open = dict.fromkeys(("pending", "paused", "executing", "prepared", "retrying"), 0)
    assert now["queue"] == nothing_open | {"committed": 2, "failed": 0, "canceled": 0, "replaced": 0}
    assert (now["executing"], now["unsettled"], len(now["records"])) == ([], [], 1)
    assert "worst nodes" in desk.type("status").stdout


# ---- state and doctor ------------------------------------------------------------------------------------------------


def test_the_state_is_upgraded_on_demand(desk: Desk) -> None:
    # The SQLite database already has this version.
    assert desk.json("state", "upgrade")["upgraded"] is False


def test_the_key_of_the_secrets_is_changed_on_demand(desk: Desk) -> None:
    assert desk.json("state", "rotate-key") == {"rotated": 0}
    desk.table(files=1)
    desk.json("catalog", "add", "lake", *desk.catalog_options, "-p", "s3.access-key-id=me", "-p", "s3.secret-access-key=Zq7+/x=%&vT9Lm2Kp")
    key = (desk.folder / "home" / "state.db.key").read_text()
    assert "the secrets of one catalog or group are encrypted with the new key" in desk.type("state", "rotate-key").stdout
    assert (desk.folder / "home" / "state.db.key").read_text() != key
    shown = desk.type("catalog", "list", "--json").stdout
    assert '"s3.secret-access-key": "***"' in shown
    assert "Zq7" not in shown


def test_a_state_database_of_a_newer_version_is_refused_in_one_sentence(desk: Desk) -> None:
    desk.type("status")
    with sqlite3.connect(desk.folder / "home" / "state.db") as connection:
        [(name,)] = connection.execute("SELECT name FROM sqlite_master WHERE name LIKE '%version%' AND type = 'table'").fetchall()
        column = connection.execute(f"PRAGMA table_info({name})").fetchone()[1]
        connection.execute(f"UPDATE {name} SET {column} = '9999'")
    result = desk.type("status")
    assert result.exit_code == 2
    assert "9999" in result.stderr
    assert "newer" in result.stderr
    assert desk.type("doctor").exit_code == 1


@pytest.mark.parametrize("url", ["mysql://me:hunter2@db/x", "hunter2"])
def test_a_state_url_of_another_kind_is_bad_input_and_shows_no_password(desk: Desk, url: str) -> None:
    result = desk.type("status", COMPACTION_STATE_URL=url)
    assert result.exit_code == 2
    assert "COMPACTION_STATE_URL" in result.stderr
    assert "hunter2" not in result.output


def test_a_state_url_that_names_a_catalog_s_database_or_no_folder_is_bad_input_and_makes_nothing(desk: Desk) -> None:
    desk.table(files=1)
    for path, why in (("catalog.db", "the database of another program"), ("nowhere/x.db", "there is no folder")):
        result = desk.type("status", COMPACTION_STATE_URL=f"sqlite:///{desk.folder}/{path}")
        assert (result.exit_code, result.stdout) == (2, "")
        assert why in result.stderr
    with closing(sqlite3.connect(desk.folder / "catalog.db")) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert tables == {"iceberg_tables", "iceberg_namespace_properties"}
    assert not (desk.folder / "nowhere").exists()


@pytest.mark.parametrize("days", ["0", "800000", "99999999999999"])
def test_a_setting_out_of_bounds_is_bad_input(desk: Desk, days: str) -> None:
    result = desk.type("status", COMPACTION_RECORD_TTL_DAYS=days)
    assert result.exit_code == 2
    assert "COMPACTION_RECORD_TTL_DAYS" in result.stderr


def test_doctor_passes_a_sound_set_up_and_finds_a_bad_dagster_home(desk: Desk) -> None:
    folder = desk.folder / "dagster"
    folder.mkdir()
    desk.table(files=1)
    desk.add_catalog()
    sound = json.loads(desk.type("doctor", "--json", DAGSTER_HOME=str(folder), COMPACTION_SPARK_REMOTE="sc://spark:15002").stdout)
    assert sound["sound"], sound
    assert {finding["soundness"] for finding in sound["findings"]} == {"OK"}
    bad = desk.type("doctor", DAGSTER_HOME=str(desk.folder / "nowhere"), COMPACTION_SPARK_REMOTE="sc://spark:15002")
    assert bad.exit_code == 1
    assert "mkdir -p" in bad.stdout


def test_doctor_reads_the_file_of_catalogs(desk: Desk) -> None:
    path = desk.folder / "catalogs.yaml"

    def found(text: str) -> dict[str, str]:
        path.write_text(text)
        answer = desk.type("doctor", "--json", COMPACTION_SPARK_REMOTE="sc://spark:15002", COMPACTION_CATALOGS_FILE=str(path))
        [finding] = [one for one in json.loads(answer.stdout)["findings"] if one["subject"] == "catalogs file"]
        assert answer.exit_code == (0 if finding["soundness"] == "OK" else 1)
        return dict(finding)

    assert found("catalogs:\n  - {name: prod, type: rest, properties: {uri: 'https://lake'}}")["found"] == f"{path}: 1 catalog"
    wrong = found("catalogs:\n  - {name: a/b, type: rest, properties: {uri: x}}\n  - {name: c, type: nothing}")
    assert wrong["soundness"] == "WRONG"
    assert all(word in wrong["found"] for word in ("'name' is 'a/b'", "'uri'", "'type' is 'nothing'"))
    assert "is empty: it must have the one key 'catalogs'" in found("# nothing yet\n")["found"]
    assert desk.json("catalog", "list") == []


def test_doctor_finds_a_catalog_that_is_gone(desk: Desk) -> None:
    desk.add_catalog()
    (desk.folder / "catalog.db").unlink()
    result = desk.type("doctor", "--json", COMPACTION_SPARK_REMOTE="sc://spark:15002")
    assert result.exit_code == 1
    [finding] = [item for item in json.loads(result.stdout)["findings"] if item["subject"] == "catalog lake"]
    assert finding["soundness"] == "WRONG"


def test_a_list_with_a_table_that_cannot_be_read_says_which_and_why(desk: Desk) -> None:
    desk.table(files=1)
    ill = desk.table(files=1, name="returns")
    desk.add_catalog()
    Path(ill.metadata_location.removeprefix("file://")).unlink()
    errors = {item["table"]: item["refresh_error"] for item in desk.json("table", "list", "--refresh", code=1)}
    assert errors[TABLE] is None
    assert "returns" in errors["lake.shop.returns"]
    assert "refresh_error" not in desk.json("table", "list")[0]


def test_tables_by_health_show_each_score_with_its_sentences_the_lowest_first(desk: Desk) -> None:
    desk.table(files=1)
    # 6 kB are enough for a file.
    desk.table(files=12, name="returns", **{"self-optimizing.target-size": "8000"})
    desk.add_catalog()
    assert [item["table"] for item in desk.json("table", "list", "--refresh")] == [TABLE, "lake.shop.returns"]
    worst, best = desk.json("table", "list", "--by", "health")
    assert (worst["table"], best["table"]) == ("lake.shop.returns", TABLE)
    assert best["score"]["parts"] == {"total": 100, "small_files": 40, "equality_deletes": 40, "position_deletes": 20}
    assert best["score"]["reason"] == "none of 2 nodes loses a point"
    assert best["score"]["remedy"] == "`compaction-pipeline plan` says what is due"
    parts = worst["score"]["parts"]
    assert 60 <= parts["total"] == parts["small_files"] + 60 < 100
    assert f"cost {40 - parts['small_files']} of 40 points" in worst["score"]["reason"]
    people = desk.type("table", "show", "lake.shop.returns").stdout
    small = f"(small files {parts['small_files']}/40, equality deletes 40/40, position deletes 20/20): bucket="
    assert f"health score {parts['total']} of 100 {small}" in " ".join(people.split())
    assert worst["read_costs"] in " ".join(people.split())
    assert worst["read_costs"].endswith("kB with 1 snapshot; a reader of one partition opens 1 of 1 manifest")
    assert worst["metadata"]["snapshots"] == 1


def test_tables_that_appear_while_all_are_paused_are_paused_too(desk: Desk) -> None:
    desk.table(files=12)
    desk.add_catalog()
    assert "tables that appear later are paused too, until `resume`" in desk.type("pause").stdout
    desk.table(files=12, name="returns")
    assert {item["table"]: item["paused"] for item in desk.json("table", "list")} == {TABLE: True, "lake.shop.returns": True}
    assert desk.json("compact", "lake.shop.returns", code=4)["reason_code"] == "PAUSED"
    assert "later" not in desk.type("resume").stdout
    assert desk.json("compact", "lake.shop.returns")["committed"] == 2


# ---- every command ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("compact",),
        ("compact", TABLE, "--type", "huge"),
        ("record", "list", "-n", "0"),
        ("record", "list", "-n", "9" * 26),
        ("--verbose", "--quiet", "status"),
    ],
)
def test_a_mistake_in_typing_is_bad_input_for_people_and_programs(desk: Desk, arguments: tuple[str, ...]) -> None:
    people = desk.type(*arguments)
    assert (people.exit_code, people.stdout) == (2, "")
    assert people.stderr
    assert "Value error" not in people.stderr
    answer = desk.json(*arguments, code=2)
    assert (answer["exit_code"], answer["reason_code"]) == (2, "INVALID_INPUT")
    assert answer["error"]
    assert "Value error" not in answer["error"]


@pytest.mark.parametrize("arguments", [("--json", "table", "list"), ("table", "--json", "list"), ("table", "list", "--json")])
def test_global_options_may_stand_anywhere(desk: Desk, arguments: tuple[str, ...]) -> None:
    assert json.loads(desk.type(*arguments).stdout) == []


def test_an_unexpected_error_is_one_sentence_and_its_place_only_with_verbose(desk: Desk) -> None:
    def broken() -> None:
        raise ZeroDivisionError("a fault of ours")

    desk.hold("read_status", lambda status: status.instead(status=broken))
    result = desk.type("status")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "ZeroDivisionError: a fault of ours" in result.stderr
    assert "Traceback" not in result.stderr
    assert "Traceback" in desk.type("status", "--verbose").stderr
    assert desk.json("status", code=1)["reason_code"] == "UNEXPECTED"


def test_quiet_prints_only_the_answer_and_the_log_goes_to_stderr(desk: Desk) -> None:
    desk.table()
    desk.add_catalog()
    verbose = desk.type("compact", TABLE, "--verbose", "--json")
    assert json.loads(verbose.stdout)["committed"] == 2
    assert "compaction_pipeline" in verbose.stderr
    assert desk.type("compact", TABLE, "--quiet").stderr == ""


def test_leftovers_on_real_storage_are_deleted_and_live_files_stay(desk: Desk) -> None:
    table = desk.table()
    desk.add_catalog()
    desk.json("compact", TABLE)
    services = opened()
    identifier = TableIdentifier.parse(TABLE)
    task = services.stores.tasks.tasks(identifier, statuses=(TaskStatus.COMMITTED,))[0]
    assert task.result is not None
    live = Path(task.result.outputs[0].path.removeprefix("file://"))
    leftover = live.with_name(f"000000000000-{task.task_id}-deadbeef-00000.parquet")
    leftover.write_bytes(live.read_bytes())
    done = services.maintain_tables.maintain()
    services.close()
    assert [Path(path.removeprefix("file://")) for path in done.leftovers[identifier]] == [leftover]
    assert live.exists()
    assert len(desk.ids(table)) == 24


def test_a_warning_about_a_table_names_it_once(desk: Desk) -> None:
    desk.add_catalog()
    table = desk.table()
    for file in Path(table.metadata_location.removeprefix("file://")).parent.glob("snap-*"):
        file.unlink()
    warning = desk.type("table", "list", "--refresh").stderr
    assert warning.startswith(f"warning: the manifest list of table {TABLE} is missing: ")
    assert warning.count(TABLE) == 1


def test_a_site_file_is_stored_named_and_never_shown(desk: Desk) -> None:
    site = desk.folder / "core-site.xml"
    site.write_text("<configuration><property><name>fs.defaultFS</name><value>hdfs://Zq7vT9Lm2Kp</value></property></configuration>")
    stored = desk.json("catalog", "file", "add", "core-site", str(site))
    assert (stored["kind"], stored["size_bytes"], stored["reference"]) == ("core-site", site.stat().st_size, f"site:{stored['file']}")
    assert desk.json("catalog", "file", "add", "core-site", str(site)) == stored
    assert desk.json("catalog", "file", "list") == [stored]
    desk.table(files=1)
    desk.json("catalog", "add", "lake", *desk.catalog_options, "-p", f"hdfs.core-site={stored['reference']}")
    assert "catalogs name it: lake" in desk.type("catalog", "file", "remove", stored["file"]).stderr
    answers = [desk.type(*words).stdout for words in (("catalog", "show", "lake"), ("catalog", "file", "list"), ("doctor",))]
    assert "Zq7" not in "".join(answers)
    assert stored["file"] in answers[0]
    desk.json("catalog", "change", "lake", "--unset", "hdfs.core-site")
    assert desk.json("catalog", "file", "remove", stored["file"]) == {"file": stored["file"], "removed": True}


def test_a_bad_site_file_and_a_bad_reference_are_refused_in_words(desk: Desk) -> None:
    site = desk.folder / "site.xml"
    site.write_text("<!DOCTYPE configuration><configuration/>")
    assert "DOCTYPE" in desk.type("catalog", "file", "add", "core-site", str(site)).stderr
    assert "must be one of core-site" in desk.type("catalog", "file", "add", "site", str(site)).stderr
    assert "cannot be read" in desk.type("catalog", "file", "add", "core-site", str(desk.folder / "none")).stderr
    added = desk.type("catalog", "add", "lake", *desk.catalog_options, "-p", "hdfs.core-site=site:core-site-1")
    assert "there is no such file" in added.stderr
    assert desk.json("catalog", "file", "list") == []
