"""What remains possible when the key of the stored secrets is lost, and what a secret that is no text does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compaction_pipeline.core.secrets.known import KnownSecrets, without_known_secrets
from compaction_pipeline_tests.cli.conftest import TABLE, Desk


def test_a_catalog_whose_key_is_lost_can_be_removed(desk: Desk) -> None:
    desk.table(files=1)
    desk.json("catalog", "add", "lake", *desk.catalog_options, "-p", "s3.access-key-id=me", "-p", "s3.secret-access-key=Zq7+/x=%&vT9Lm2Kp")
    (desk.folder / "home" / "state.db.key").unlink()
    assert "key" in desk.type("catalog", "show", "lake").stderr
    assert desk.type("catalog", "remove", "lake", "--yes").exit_code == 0
    assert desk.json("catalog", "list") == []


def test_a_lost_key_stops_no_catalog_without_secrets_and_every_deletion(desk: Desk) -> None:
    desk.table(files=2, **{"history.expire.max-snapshot-age-ms": "0", "compaction.expire.grace": "0s"})
    desk.add_catalog()
    other = ["-p", "type=sql", "-p", f"uri=sqlite:///{desk.folder}/other.db", "-p", "init_catalog_tables=true"]
    desk.json("catalog", "add", "sealed", *other, "-p", "s3.access-key-id=me", "-p", "s3.secret-access-key=Zq7+/x=%&vT9Lm2Kp")
    (desk.folder / "home" / "state.db.key").unlink()

    listed = {one["catalog"]: one for one in desk.json("catalog", "list")}
    assert listed["lake"]["unreadable"] is None
    assert "state.db.key' is missing: restore it from a copy" in listed["sealed"]["unreadable"]
    explored = desk.type("catalog", "explore")
    assert explored.exit_code == 1
    assert "catalog sealed was not listed: catalog 'sealed' cannot be opened" in explored.stderr
    assert desk.json("compact", TABLE, "--type", "FULL")["committed"]
    # Snapshots leave the metadata of the table, and their files come later.
    assert "their files wait" in desk.type("maintain", "expire", TABLE).stdout
    before = files_of(desk)
    assert before
    for work in (["expire", TABLE], ["orphans", TABLE, "--delete"]):
        refused = desk.type("maintain", *work)
        assert "catalog 'sealed' cannot be opened" in refused.stdout + refused.stderr, (work, refused.exit_code, refused.stdout)
        assert files_of(desk) >= before
    doctor = json.loads(desk.type("doctor", "--json", COMPACTION_SPARK_REMOTE="sc://spark:15002").stdout)
    found = {one["subject"]: one for one in doctor["findings"]}
    assert found["catalog lake"]["soundness"] == "OK"
    assert found["catalog sealed"]["soundness"] == "WRONG"


def files_of(desk: Desk) -> set[Path]:
    return {path for path in (desk.folder / "warehouse").rglob("*") if path.is_file()}


@pytest.mark.parametrize("secret", ["passw\udcf6rd-sehr-geheim", "topsecretvalue0815\udcff"])
def test_a_secret_that_is_no_text_ends_no_log(secret: str) -> None:
    known = KnownSecrets()
    known.know("lake", [secret])
    assert without_known_secrets(f"a text with {secret}") == "a text with ***"
    known.forget_all()
