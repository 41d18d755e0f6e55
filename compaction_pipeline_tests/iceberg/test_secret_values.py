"""References in the properties of catalogs: what they stand for, which files they may name, and when a catalog is opened anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from compaction_pipeline.core.errors import ConfigError, NotFoundError
from compaction_pipeline.core.secrets.known import without_known_secrets
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.catalogs.secret_values import SecretValues
from compaction_pipeline_tests.iceberg.lake import Lake

SECRET = "Zq7+/x=%&vT9Lm2Kp+/w=%&u8Rj"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secrets" / "lake").mkdir(parents=True)
    (tmp_path / "secrets" / "lake" / "token").write_text(f"{SECRET}\n")
    return tmp_path / "secrets"


def resolved(folder: Path | None, value: str, **environment: str) -> str:
    return SecretValues(folder, environment).resolved(CatalogEntry("lake", {"token": value})).properties["token"]


@pytest.mark.parametrize("name", ["lake/token", "./lake/../lake/token", "{folder}/lake/token"])
def test_a_file_below_the_folder_is_read_without_the_end_of_its_line(folder: Path, name: str) -> None:
    assert resolved(folder, f"file:{name.format(folder=folder)}") == SECRET
    (folder / "lake" / "token").write_bytes(b"two\nlines\r\n")
    assert resolved(folder, f"file:{name.format(folder=folder)}") == "two\nlines"


def test_links_of_the_folder_itself_are_followed(folder: Path, tmp_path: Path) -> None:
    # Kubernetes mounts secrets so.
    (folder / "..data").symlink_to("lake")
    (folder / "token").symlink_to("..data/token")
    assert resolved(folder, "file:token") == SECRET
    (tmp_path / "other name").symlink_to(folder)
    assert resolved(tmp_path / "other name", f"file:{folder}/token") == SECRET


@pytest.mark.parametrize("name", ["../outside", "lake/../../outside", "{outside}", "lake/link", "linked/outside", "."])
def test_a_file_elsewhere_is_refused(folder: Path, tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside"
    outside.write_text("not yours")
    (folder / "lake" / "link").symlink_to(outside)
    (folder / "linked").symlink_to(tmp_path)
    with pytest.raises(ConfigError, match=r"'token' is file:.*does not lie below COMPACTION_SECRETS_FOLDER") as raised:
        resolved(folder, f"file:{name.format(outside=outside)}")
    assert "not yours" not in str(raised.value)


def test_what_cannot_be_looked_up_is_told_with_what_to_do(folder: Path) -> None:
    (folder / "empty").write_text("\n")
    (folder / "binary").write_bytes(b"\xff\xfe")
    (folder / "large").write_bytes(b"a" * (2**20 + 1))
    os.mkfifo(folder / "pipe")
    for value, why in {
        "file:none": "no such file on this host",
        "file:lake": "is no file",
        "file:pipe": "is no file",
        "file:empty": "is empty",
        "file:binary": "no UTF-8 text",
        "file:large": "larger than 1 MiB",
        "env:NONE": "the variable NONE is not set for this process",
        "env:EMPTY": "the variable EMPTY is empty in this process",
        "env:a b+c": "after it there must be the name of a variable",
    }.items():
        with pytest.raises(ConfigError, match=f"catalog 'lake': 'token' .*{why}") as raised:
            resolved(folder, value, EMPTY="")
        assert "b+c" not in str(raised.value)
    with pytest.raises(ConfigError, match="no file may be read: set COMPACTION_SECRETS_FOLDER"):
        resolved(None, "file:lake/token")


def test_a_variable_is_read_and_hidden_from_then_on(folder: Path) -> None:
    secrets = SecretValues(folder, {"TOKEN": SECRET, "REGION": "eu-central-1", "WAREHOUSE": "s3://lake/warehouse"})
    properties = {"token": "env:TOKEN", "s3.region": "env:REGION", "warehouse": "env:WAREHOUSE", "x": "file:lake/token"}
    text = f"{SECRET} eu-central-1 s3://lake/warehouse"
    assert without_known_secrets(text) == text
    entry = secrets.resolved(CatalogEntry("lake", properties))
    assert entry.properties == {"token": SECRET, "s3.region": "eu-central-1", "warehouse": "s3://lake/warehouse", "x": SECRET}
    assert without_known_secrets(text) == "*** eu-central-1 s3://lake/warehouse"
    secrets.forget("lake")
    assert without_known_secrets(text) == text


def test_a_catalog_is_opened_anew_when_what_it_refers_to_changes(lake: Lake, folder: Path) -> None:
    environment = {"KEY": "one-secret-key"}
    entries = {"lake": CatalogEntry("lake", {**lake.properties, "s3.secret-access-key": "env:KEY", "token": "file:lake/token"})}

    def entry_of(name: str) -> CatalogEntry:
        if name not in entries:
            raise NotFoundError(name)
        return entries[name]

    catalogs = Catalogs(entry_of, secrets=SecretValues(folder, environment))
    first = catalogs.catalog("lake")
    assert catalogs.catalog("lake") is first
    assert (first.properties["s3.secret-access-key"], first.properties["token"]) == ("one-secret-key", SECRET)
    environment["KEY"] = "another-secret-key"
    second = catalogs.catalog("lake")
    assert second is not first
    (folder / "lake" / "token").write_text("a-new-token-of-the-lake")
    third = catalogs.catalog("lake")
    assert third is not second
    assert (third.properties["s3.secret-access-key"], third.properties["token"]) == ("another-secret-key", "a-new-token-of-the-lake")
    said = "one-secret-key another-secret-key a-new-token-of-the-lake"
    assert without_known_secrets(said) == "one-secret-key *** ***"
    # Its own state holds the references alone.
    assert entries["lake"].properties["token"] == "file:lake/token"
    del entries["lake"]
    with pytest.raises(NotFoundError):
        catalogs.catalog("lake")
    assert without_known_secrets(said) == said
