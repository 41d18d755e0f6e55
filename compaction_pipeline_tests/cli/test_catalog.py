"""The commands of catalogs: all problems at once, filters, changes, the file of catalogs, and what goes with a catalog."""

from __future__ import annotations

from pathlib import Path

import yaml

from compaction_pipeline_tests.cli.conftest import TABLE, Desk
from compaction_pipeline_tests.core.catalogs.bad_definitions import BAD, SECRET


def test_every_bad_definition_is_answered_in_words_and_nothing_is_stored(desk: Desk) -> None:
    asked = [bad for bad in BAD if bad.is_of_texts]
    assert len(asked) >= 30
    for bad in asked:
        answer = desk.type("catalog", "add", *bad.arguments)
        assert (answer.exit_code, bad.said in answer.stderr) == (2, True), (bad.name, answer.stderr)
        assert all(f"'{key}'" in answer.stderr or key == "authentication" for key in bad.keys), (bad.name, answer.stderr)
        assert SECRET not in answer.stderr + answer.stdout, bad.name
    assert desk.json("catalog", "list") == []


def file_of(desk: Desk, *definitions: object) -> Path:
    path = desk.folder / "catalogs.yaml"
    path.write_text(yaml.safe_dump({"catalogs": list(definitions)}, allow_unicode=True))
    return path


def lake_of(desk: Desk, **more: object) -> dict[str, object]:
    pairs = (pair.partition("=") for pair in desk.catalog_options[1::2])
    return {"name": "lake", "properties": {key: value for key, _, value in pairs}, **more}


def test_a_dry_run_tries_the_catalog_and_stores_nothing(desk: Desk) -> None:
    desk.table(files=1)
    tried = desk.json("catalog", "add", "lake", *desk.catalog_options, "-p", "table-filter=db[.]none", "--dry-run")
    assert (tried["dry_run"], tried["tables"], tried["left_out_count"]) == (True, [], 1)
    assert desk.json("catalog", "list") == []


def test_a_change_says_which_team_is_charged_then(desk: Desk) -> None:
    desk.table(files=1)
    desk.add_catalog()
    desk.json("team", "set", "shop")

    def said(*arguments: str) -> str:
        return " ".join(desk.type("catalog", "change", "lake", *arguments).stderr.split())

    key = "'table.compaction.team' gives the work on its tables to team"
    tried = said("-p", "table.compaction.team=shop", "--dry-run")
    assert f"warning: {key} 'shop' instead of 'unassigned'" in tried
    assert "There is no team" not in tried
    assert "There is no team 'ghost', so 'unassigned' is charged until" in said("-p", "table.compaction.team=ghost", "--dry-run")
    assert key in said("-p", "table.compaction.team=shop")
    assert key not in said("-p", "table.compaction.team=shop", "-p", "table-filter=db[.].*", "--dry-run")
    assert f"{key} 'unassigned' instead of 'shop'" in said("--unset", "table.compaction.team", "--dry-run")
    assert key in said("-p", "table.compaction.team=ghost")
    assert f"{key} 'shop' instead of 'unassigned'" in said("-p", "table.compaction.team=shop", "--dry-run")
    assert key not in said("--unset", "table.compaction.team", "--dry-run"), "nobody else was charged while there was no team 'ghost'"
    desk.json("team", "map", "shop", "lake")
    assert key not in said("-p", "table.compaction.team=other", "--dry-run"), "a mapping of the catalog wins"


def test_a_filter_is_changed_and_the_table_leaves_and_comes_back_with_its_records(desk: Desk) -> None:
    desk.table(files=12)
    desk.add_catalog()
    desk.json("compact", TABLE)
    records = desk.json("record", "list", TABLE)
    tried = desk.json("catalog", "change", "lake", "-p", "table-filter=nothing", "--dry-run")
    assert (tried["left_out_count"], len(desk.json("table", "list"))) == (1, 1)
    assert desk.json("catalog", "change", "lake", "-p", "table-filter=nothing")["tables"] == []
    assert desk.json("catalog", "show", "lake")["properties"]["table-filter"] == "nothing"
    assert desk.json("table", "list") == []
    assert desk.json("catalog", "explore")["appeared"] == []
    assert desk.json("catalog", "change", "lake", "--unset", "table-filter")["tables"] == [TABLE]
    assert desk.json("record", "list", TABLE) == records != []


def test_a_change_that_the_catalog_does_not_like_is_not_stored(desk: Desk) -> None:
    desk.table(files=1)
    desk.add_catalog()
    before = desk.json("catalog", "show", "lake")
    for words in (["-p", "uri=sqlite:////nowhere/at/all.db"], ["-p", "uri=x", "--unset", "uri"], ["--unset", "ury"], []):
        assert desk.type("catalog", "change", "lake", *words).exit_code != 0
    assert desk.json("catalog", "show", "lake") == before
    assert desk.json("catalog", "change", "lake", "--observe")["observe"] is True


def test_the_sources_of_keys_are_shown_and_secrets_are_masked(desk: Desk) -> None:
    desk.table(files=1)
    desk.add_catalog("-p", f"s3.secret-access-key={SECRET}", "-p", "s3.access-key-id=me")
    shown = desk.type("catalog", "show", "lake").stdout
    assert SECRET not in shown
    assert "a command or an HTTP request" in shown
    sources = desk.json("catalog", "show", "lake")["sources"]
    assert (sources.pop("observe"), set(sources.values())) == ("default", {"person"})
    assert "the default" in shown


def test_a_format_that_the_catalog_leaves_out_is_not_compacted_and_says_so(desk: Desk) -> None:
    desk.table(files=12)
    desk.add_catalog("-p", "table-formats=MIXED_ICEBERG")
    refused = desk.type("compact", TABLE)
    assert "'table-formats' of catalog lake is MIXED_ICEBERG, and this table is iceberg" in refused.output
    desk.json("catalog", "change", "lake", "-p", "table-formats=ICEBERG,MIXED_ICEBERG")
    assert desk.json("compact", TABLE)["committed"] == 2
