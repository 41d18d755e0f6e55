"""What remains possible when the key of the stored secrets is lost, and what a secret that is no text does."""

from __future__ import annotations

import pytest

from compaction_pipeline.core.secrets.known import KnownSecrets, without_known_secrets
from compaction_pipeline_tests.cli.conftest import Desk


def test_a_catalog_whose_key_is_lost_can_be_removed(desk: Desk) -> None:
    desk.table(files=1)
    desk.json("catalog", "add", "lake", *desk.catalog_options, "-p", "s3.access-key-id=me", "-p", "s3.secret-access-key=Zq7+/x=%&vT9Lm2Kp")
    (desk.folder / "home" / "state.db.key").unlink()
    assert "key" in desk.type("catalog", "show", "lake").stderr
    assert desk.type("catalog", "remove", "lake", "--yes").exit_code == 0
    assert desk.json("catalog", "list") == []


@pytest.mark.parametrize("secret", ["passw\udcf6rd-sehr-geheim", "topsecretvalue0815\udcff"])
def test_a_secret_that_is_no_text_ends_no_log(secret: str) -> None:
    known = KnownSecrets()
    known.know("lake", [secret])
    assert without_known_secrets(f"a text with {secret}") == "a text with ***"
    known.forget_all()
