"""`dependencies …` as a person and a shell script use it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.dependencies.center.inbox import Fact
from compaction_pipeline.settings import load_settings
from compaction_pipeline_tests.cli.conftest import Desk
from compaction_pipeline_tests.opened import OpenedServices

FILE = """
project: sales
receiver: airflow
jobs:
  - {name: raw, period: day, virtual: true, since: 2026-01-01}
  - name: load
    period: day
    since: 2026-01-01
    trigger: "02:00"
    needs:
      - job: raw
      - {table: lake.shop.daily, watermark: true}
"""
RAW = "job=raw && biz=2026-01-01"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "sales.yaml"
    path.write_text(FILE)
    return path


def pass_of_a_server() -> None:
    services = Services(load_settings())
    services.lead_center.run()
    services.lead_center.resign()
    services.close()


def test_a_project_is_saved_and_its_instances_say_what_they_wait_for(desk: Desk, file: Path) -> None:
    dry = desk.type("dependencies", "save", str(file), "--dry-run")
    assert dry.exit_code == 0
    assert "nothing was saved" in dry.stdout
    assert desk.type("dependencies", "jobs").stdout.strip() == "no jobs"
    shown = desk.type("dependencies", "save", str(file)).stdout
    assert "load: added" in shown
    assert any(line.startswith("load: ") and line.endswith(" instances made at once") for line in shown.splitlines())
    assert "load: its first instance waits for: job=raw && biz=2026-01-01, table=lake.shop.daily && watermark>=2026-01-02T00:00Z" in shown
    assert "nothing changed" in desk.type("dependencies", "save", str(file)).stdout
    jobs = desk.type("dependencies", "jobs").stdout
    assert "load (sales): each day in UTC, trigger 02:00, started by airflow" in jobs
    assert "  needs table=lake.shop.daily && watermark 0" in jobs
    pass_of_a_server()
    assert (
        "load/2026-01-01/scheduled/1: WAITING, 2 things missing"
        in desk.type("dependencies", "instances", "--job", "load", "--most", "9999").stdout
    )
    why = desk.type("dependencies", "why", "load", "2026-01-01").stdout
    assert f"  waits for {RAW}, made by raw" in why
    assert f"  waits for {RAW}, made by raw: nobody has reported it" in desk.type("dependencies", "why", "raw", "2026-01-01").stdout
    assert desk.type("dependencies", "ready", RAW).exit_code == 6
    assert desk.type("dependencies", "report", RAW, "FAILED").exit_code == 0
    pass_of_a_server()
    assert f"  waits for {RAW}, made by raw: it FAILED at " in desk.type("dependencies", "why", "load", "2026-01-01").stdout
    assert desk.type("dependencies", "report", RAW, "SUCCEEDED").exit_code == 0
    pass_of_a_server()
    assert desk.type("dependencies", "ready", RAW).exit_code == 0
    assert f"  found {RAW}, " in desk.type("dependencies", "why", "load", "2026-01-01").stdout
    assert desk.json("dependencies", "backfill", "fix", "2026-01-01", "2026-01-02", "load")["made"] == 2
    refused = desk.type("dependencies", "backfill", "early", "2025-12-30", "2025-12-31", "load")
    assert (refused.exit_code, "the first time of 'raw' is 2026-01-01" in " ".join(refused.stderr.split())) == (2, True)
    for more in (("--generation", "9"), ("--number", "-1")):
        assert desk.type("dependencies", "report", "job=load && biz=2026-01-01", "SUCCEEDED", *more).exit_code == 2
    assert len(desk.json("dependencies", "instances", "--backfill", "fix")) == 2


def test_an_instance_says_what_it_was_started_without(desk: Desk, tmp_path: Path) -> None:
    needs = "[{job: raw, strength: any, times: '{0,-1}'}, {table: lake.shop.daily, until: '06:00'}]"
    path = tmp_path / "weak.yaml"
    path.write_text(FILE[: FILE.index("    needs:")] + f"    needs: {needs}\n")
    shown = desk.type("dependencies", "save", str(path)).stdout
    window = "table=lake.shop.daily && window=2026-01-01T00:00Z/2026-01-02T00:00Z"
    assert f"{window} (all of these, until 2026-01-01 06:00:00 UTC)" in shown
    assert "  needs job=raw {0,-1}, any" in desk.type("dependencies", "jobs").stdout
    pass_of_a_server()
    why = desk.type("dependencies", "why", "load", "2026-01-01").stdout
    assert f"  waits for {RAW}, made by raw (one of these is enough)" in why
    assert f"  without {window} (all of these, until 2026-01-01 06:00:00 UTC)" in why
    assert desk.type("dependencies", "report", RAW, "SUCCEEDED").exit_code == 0
    pass_of_a_server()
    note = f"started without {window}, because it was not there at 2026-01-01 06:00:00 UTC"
    assert f"load/2026-01-01/scheduled/1: READY; {note}" in desk.type("dependencies", "why", "load", "2026-01-01").stdout
    assert note in [one["note"] for one in desk.json("dependencies", "instances", "--job", "load", "--state", "READY", "--most", "9999")]


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_facts_that_were_set_aside_are_listed_and_removed(desk: Desk, file: Path) -> None:
    assert desk.type("dependencies", "save", str(file)).exit_code == 0
    services = OpenedServices(load_settings())
    services.stores.center.post([Fact(RAW, services.clock(), "test", "far")])  # type: ignore[arg-type]
    services.close()
    pass_of_a_server()
    (one,) = desk.json("dependencies", "set-aside")
    shown = desk.type("dependencies", "set-aside").stdout
    assert shown.startswith(f"{one['id']}: {RAW}, said by test at ")
    assert desk.type("dependencies", "set-aside", "--again", str(one["id"])).exit_code == 2
    assert desk.type("dependencies", "set-aside", "--again", "1", "--remove", "1").exit_code == 2
    assert "it is removed" in desk.type("dependencies", "set-aside", "--remove", str(one["id"])).stdout
    assert desk.type("dependencies", "set-aside").stdout.strip() == "no fact is set aside"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("why", "nobody", "2026-01-01"), "there is no job 'nobody'"),
        (("ready", "nonsense"), "is no NAME=VALUE"),
        (("report", "job=raw", "SUCCEEDED"), "does not say which biz"),
        (("save", "missing.yaml"), "cannot be read"),
        (("run-again", "load", "2026-01-01"), "there is no job 'load'"),
    ],
)
def test_bad_input_is_told_in_words(desk: Desk, arguments: tuple[str, ...], words: str) -> None:
    refused = desk.type("dependencies", *arguments)
    assert refused.exit_code == 2
    assert words in refused.stderr


def test_a_file_that_is_no_project_is_refused(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    for text, words in (("- a", "which is no mapping"), ("a: [", "which is no YAML"), ("project: a\nproject: b", "stands twice")):
        path.write_text(text)
        refused = desk.type("dependencies", "save", str(path))
        assert (refused.exit_code, words in refused.stderr) == (2, True), refused.stderr


def test_lineage_says_what_jobs_should_wait_for_by_their_sql(desk: Desk, tmp_path: Path) -> None:
    """The example of the page says what it prints."""
    page = (Path(__file__).parents[2] / "docs" / "center.md").read_text().partition("### What a job reads")[2].split("```")
    path = tmp_path / "sales.yaml"
    path.write_text(page[1].removeprefix("yaml"))
    shown = desk.type("dependencies", "save", str(path)).stdout
    lines = page[5].strip().splitlines()
    assert set(lines) <= set(shown.splitlines())
    assert desk.type("dependencies", "lineage", "--project", "sales").stdout.splitlines() == lines
    text = path.read_text().replace("suggest", "automatic").replace("GROUP BY day", "GROUP BY day; CALL cleanup()")
    path.write_text(text)
    shown = desk.type("dependencies", "save", str(path)).stdout
    assert "orders.daily: waits for job=orders.load, times whole, because" in shown
    assert "orders.daily: its SQL is not understood: 'CALL cleanup()'" in shown
    assert "  needs job=orders.load whole" in desk.type("dependencies", "jobs").stdout
    missing = desk.type("dependencies", "lineage", "--project", "sails")
    assert missing.exit_code != 0
    assert "there is no project 'sails'" in missing.stderr


def test_a_forecast_says_when_instances_will_be_done_and_what_holds_them_up(desk: Desk, file: Path) -> None:
    text = file.read_text().replace('    trigger: "02:00"\n', '    trigger: "02:00"\n    promise: 1h\n')
    file.write_text(text.replace("      - {table: lake.shop.daily, watermark: true}\n", ""))
    assert desk.type("dependencies", "save", str(file)).exit_code == 0
    pass_of_a_server()
    lines = desk.type("dependencies", "forecast", "load", "--hours", "1").stdout.splitlines()
    assert lines[0].startswith("load/2026-")
    assert ": WAITING, at least ready " in lines[0]
    assert lines[1].startswith("  promised 2026-")
    assert lines[2].startswith("  held up by job=raw && biz=2026-")
    assert desk.type("dependencies", "report", RAW, "FAILED").exit_code == 0
    pass_of_a_server()
    answer = desk.type("dependencies", "forecast", "--json").stdout
    assert '"is_at_least": true' in answer
    assert desk.type("dependencies", "forecast", "loud").exit_code != 0


def test_the_example_of_whole_projects_is_saved_converted_and_led_back(desk: Desk, tmp_path: Path) -> None:
    """What the page writes is done in its order."""
    page = (Path(__file__).parents[2] / "docs" / "center.md").read_text()
    files = {"sales": page.partition("## One job")[2].split("```")[1], "reports": page.partition("### Whole projects")[2].split("```")[1]}
    commands = page.partition("### Whole projects")[2].split("```")[3].strip().splitlines()
    # Without it, a report of yesterday is none of the job's shortly after midnight in its zone.
    since = "  - name: sales.report\n    period: day\n"
    assert since in files["sales"]
    files["sales"] = files["sales"].replace(since, f"{since}    since: 2026-01-01\n")
    for name, text in files.items():
        path = tmp_path / f"{name}.yaml"
        path.write_text(text.removeprefix("yaml"))
        shown = desk.type("dependencies", "save", str(path), "--json")
        assert shown.exit_code == 0, shown.stderr
    waits = json.loads(shown.stdout)["previews"]["reports.daily"]
    assert {one.split(" && ")[0] for one in waits} == {"job=sales.load", "job=sales.report", "job=raw.events"}
    assert sum(one.startswith("job=raw.events") for one in waits) == 24
    assert "  needs project=sales" in desk.type("dependencies", "jobs").stdout
    found = [desk.type(*command.split()[1:]) for command in commands]
    assert "reports comes after sales, by jobs" in found[0].stdout
    assert "0 at the same moment, 0 at others, 0 open, 0 left out; the farthest 0 s apart" in found[1].stdout
    assert "the shadow of 'reports' runs until" in found[2].stderr
    assert "reports comes after sales, by jobs\n" in found[3].stdout
    convert = ("dependencies", "convert-project", "reports")
    assert "by nodes" in desk.type(*convert, "--switch", "--anyway").stdout
    assert "by own" in desk.type(*convert, "--tighten").stdout
    assert desk.type(*convert, "--back", "--switch").exit_code == 2
    assert desk.type(*convert, "--anyway").exit_code == 2


def test_a_repair_shows_its_layers_and_launches_them(desk: Desk, file: Path) -> None:
    file.write_text(file.read_text().replace("      - {table: lake.shop.daily, watermark: true}\n", "      - {job: load, times: -1}\n"))
    assert desk.type("dependencies", "save", str(file)).exit_code == 0
    shown = desk.type("dependencies", "repair", "raw", "2026-01-01", "2026-01-02").stdout
    assert shown.startswith("layer 1\n  raw: 2026-01-01..2026-01-02 (2), by itself\nlayer 2\n  load: 2026-01-01..2026-")
    launched = desk.type("dependencies", "repair", "load", "2026-01-01", "--only-downstream", "--launch", "fix").stdout.splitlines()
    assert launched[0] == "layer 1"
    assert launched[1].startswith("  load: 2026-01-02..2026-")
    assert launched[2].endswith(" made in backfill fix")
    assert "load/2026-01-02/fix/1: WAITING" in desk.type("dependencies", "instances", "--backfill", "fix", "--most", "9999").stdout
    later = desk.type("dependencies", "repair", "load", "2999-01-01").stdout
    assert later.startswith("nothing of load has run or is due from 2999-01-01 to 2999-01-01")
    refused = desk.type("dependencies", "repair", "load", "2026-01-03", "2026-01-01")
    assert refused.exit_code != 0
    assert "the range from '2026-01-03' to '2026-01-01' is empty" in refused.stderr


ASSETS = """
import dagster as dg

@dg.asset(key_prefix=["raw"])
def events(): ...

@dg.asset(deps=[events])
def sessions(): ...

@dg.asset(deps=[sessions, events])
def report(): ...

defs = dg.Definitions(assets=[events, sessions, report])
"""


def test_jobs_read_what_their_assets_depend_on_in_dagster(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "their_defs.py").write_text(ASSETS)
    (tmp_path / "no_defs.py").write_text("x = 1")
    path = tmp_path / "sales.yaml"
    path.write_text(
        """
project: sales
receiver: dagster
dependencies: automatic
jobs:
  - {name: load, period: hour, since: 2026-01-01T00, produces: [asset=raw/events]}
  - {name: daily, period: day, since: 2026-01-01, produces: [asset=sessions, asset=report]}
"""
    )
    shown = desk.type("dependencies", "save", str(path), "--dagster", "their_defs")
    assert "daily: waits for job=load, times whole, because it reads asset=raw/events" in shown.stdout, shown.stderr
    for module, says in (
        ("no_defs", "has 0 objects of dagster.Definitions"),
        ("no_module_at_all", "cannot be imported: ModuleNotFoundError"),
    ):
        refused = desk.type("dependencies", "save", str(path), "--dagster", module)
        assert refused.exit_code == 2
        assert says in refused.stderr


def test_a_date_that_is_none_is_said(desk: Desk, file: Path) -> None:
    file.write_text(file.read_text().replace("since: 2026-01-01", "since: 2026-13-24"))
    refused = desk.type("dependencies", "save", str(file))
    assert refused.exit_code == 2
    assert "which is no YAML: a value looks like a date and is none" in refused.stderr


def test_the_quality_of_a_run_is_told(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "judged.yaml"
    path.write_text("project: sales\njobs:\n  - {name: raw, period: day, virtual: true, since: 2026-01-01, quality: expectations}\n")
    desk.type("dependencies", "save", str(path))
    assert "reported, its quality told by expectations" in desk.type("dependencies", "jobs").stdout
    desk.type("dependencies", "report", RAW, "SUCCEEDED")
    pass_of_a_server()
    assert desk.type("dependencies", "ready", RAW).exit_code == 6
    assert "for its quality, which expectations tells" in desk.type("dependencies", "why", "raw", "2026-01-01").stdout
    assert desk.json("dependencies", "quality", RAW, "PASSED") == {"subject": RAW, "quality": "PASSED"}
    pass_of_a_server()
    assert desk.type("dependencies", "ready", RAW).exit_code == 0
    assert desk.type("dependencies", "quality", "job=loud && biz=2026-01-01", "PASSED").exit_code == 2
