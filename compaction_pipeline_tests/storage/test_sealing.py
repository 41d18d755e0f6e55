"""Secrets of catalogs and groups are stored encrypted, whoever changes keys or rows at the same time, and whenever a process is killed."""

from __future__ import annotations

import multiprocessing
import multiprocessing.synchronize
import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from sqlalchemy import text

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.queue.group import ResourceGroup
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.storage.engine import open_state, reading
from compaction_pipeline.storage.sealing import GivenKeys, Sealer
from compaction_pipeline.storage.stores import open_stores

SECRET = "Zq7+/x=%&vT9Lm2Kp+/w=%&u8Rj"
PROPERTIES = {"type": "rest", "uri": "https://lake", "token": SECRET, "s3.proxy-uri": f"http://me:{SECRET}@proxy"}
ENTRY = CatalogEntry("lake", PROPERTIES)


def new_key() -> str:
    return Fernet.generate_key().decode()


def given_keys(url: str) -> GivenKeys:
    return GivenKeys() if url.startswith("sqlite") else GivenKeys(new_key())


def stored(url: str) -> str:
    """All rows of catalogs and groups, as the database has them."""
    with reading(open_state(url)) as connection:
        return "".join(str(row) for table in ("catalog", "group") for row in connection.execute(text(f"SELECT * FROM compaction_{table}")))


def key_file_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///") + ".key")


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'state.db'}"


def test_the_database_holds_no_secret_in_plain_text(state_url: str) -> None:
    keys = given_keys(state_url)
    stores = open_stores(state_url, keys=keys)
    stores.catalogs.add(ENTRY)
    group = ResourceGroup("heavy", "k8s", {"parallelism": "2", "spark.hadoop.fs.s3a.secret.key": SECRET})
    assert stores.groups.add(group)
    assert SECRET not in stored(state_url)
    assert "https://lake" in stored(state_url)
    others = open_stores(state_url, keys=keys)
    assert others.catalogs.entry("lake") == ENTRY
    assert list(others.catalogs.entries()) == [ENTRY]
    assert others.groups.group("heavy") == group
    assert group in others.groups.groups()
    changed = CatalogEntry("lake", {**PROPERTIES, "token": SECRET[::-1]})
    others.catalogs.replace(changed)
    assert others.groups.change(ResourceGroup("heavy", "k8s", {"spark.hadoop.fs.s3a.secret.key": SECRET[::-1]}))
    assert SECRET[::-1] not in stored(state_url)
    assert stores.catalogs.entry("lake") == changed
    stores.catalogs.replace(CatalogEntry("lake", {"type": "rest"}))
    assert stores.catalogs.entry("lake").properties == {"type": "rest"}


def test_references_and_plain_properties_need_no_key(state_url: str) -> None:
    stores = open_stores(state_url)
    entry = CatalogEntry("lake", {"uri": "https://lake", "token": "env:LAKE_TOKEN", "s3.secret-access-key": "file:lake/key"})
    stores.catalogs.add(entry)
    assert stores.catalogs.entry("lake") == entry
    assert "env:LAKE_TOKEN" in stored(state_url)
    if state_url.startswith("sqlite"):
        assert not key_file_of(state_url).exists()


@pytest.mark.postgres
def test_postgresql_takes_no_secret_without_a_key(postgres_url: str) -> None:
    stores = open_stores(postgres_url)
    with pytest.raises(
        ConfigError, match=r"'s3.proxy-uri', 'token'.*set COMPACTION_SECRET_KEY or.*or write the value as a reference"
    ) as raised:
        stores.catalogs.add(ENTRY)
    assert SECRET not in str(raised.value)
    assert stores.catalogs.entries() == ()
    assert not stores.groups.group("heavy")


def test_the_key_file_is_for_its_owner_alone_and_belongs_to_the_real_database(sqlite_url: str, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        open_stores(sqlite_url).catalogs.add(ENTRY)
    finally:
        os.umask(before)
    assert stat.S_IMODE(key_file_of(sqlite_url).stat().st_mode) == 0o600
    (tmp_path / "linked").mkdir()
    link = tmp_path / "linked" / "other.db"
    link.symlink_to(tmp_path / "state.db")
    through = open_stores(f"sqlite:///{link}")
    assert through.catalogs.entry("lake") == ENTRY
    through.catalogs.add(CatalogEntry("second", PROPERTIES))
    assert sorted(path.name for path in (tmp_path / "linked").iterdir() if "key" in path.name) == []
    assert [path.name for path in tmp_path.iterdir() if "key" in path.name] == ["state.db.key"]
    key_file_of(sqlite_url).chmod(0o644)
    assert open_stores(sqlite_url).catalogs.entry("second").properties == PROPERTIES
    assert stat.S_IMODE(key_file_of(sqlite_url).stat().st_mode) == 0o600


def test_a_lost_key_is_an_error_and_never_replaced(sqlite_url: str) -> None:
    stores = open_stores(sqlite_url)
    stores.catalogs.add(ENTRY)
    stores.catalogs.add(CatalogEntry("open", {"type": "sql"}))
    kept = key_file_of(sqlite_url).read_text()
    key_file_of(sqlite_url).unlink()
    fresh = open_stores(sqlite_url)
    for use in (
        lambda: fresh.catalogs.entry("lake"),
        lambda: fresh.catalogs.add(CatalogEntry("second", PROPERTIES)),
        lambda: fresh.catalogs.replace(ENTRY),
        fresh.rotate_key,
    ):
        with pytest.raises(ConfigError, match=r"state\.db\.key' is missing: restore it from a copy"):
            use()
    assert not key_file_of(sqlite_url).exists()
    assert fresh.catalogs.entry("open").properties == {"type": "sql"}
    lake, other = fresh.catalogs.entries()
    assert other == CatalogEntry("open", {"type": "sql"})
    assert lake.unreadable is not None
    assert lake.unreadable.startswith("catalog 'lake' cannot be opened: ")
    assert "is missing: restore it from a copy" in lake.unreadable
    assert lake.properties == {"type": "rest", "uri": "https://lake"}
    key_file_of(sqlite_url).write_text(f"{new_key()}\n")
    with pytest.raises(ConfigError, match=r"do not decrypt.*restore its file from a copy"):
        fresh.catalogs.entry("lake")
    key_file_of(sqlite_url).write_text("no key\n")
    with pytest.raises(ConfigError, match=r"key 1 in the key file .* is no key") as raised:
        fresh.catalogs.entry("lake")
    assert [entry.name for entry in fresh.catalogs.entries() if entry.unreadable] == ["lake"]
    assert "no key\n" not in str(raised.value)
    key_file_of(sqlite_url).write_text(kept)
    assert fresh.catalogs.entry("lake") == ENTRY
    key_file_of(sqlite_url).unlink()
    # Whoever lost the key begins anew.
    open_stores(sqlite_url).catalogs.remove("lake")
    fresh = open_stores(sqlite_url)
    fresh.catalogs.add(ENTRY)
    assert fresh.catalogs.entry("lake") == ENTRY


def test_given_keys_are_used_on_sqlite_too(sqlite_url: str, tmp_path: Path) -> None:
    open_stores(sqlite_url).catalogs.add(ENTRY)
    key = new_key()
    given = open_stores(sqlite_url, keys=GivenKeys(key))
    assert given.catalogs.entry("lake") == ENTRY
    assert given.rotate_key() == 1
    key_file_of(sqlite_url).unlink()
    file = tmp_path / "keys"
    file.write_text(f"# ours\n{new_key()}\n{key}\n")
    assert open_stores(sqlite_url, keys=GivenKeys(file=file)).catalogs.entry("lake") == ENTRY
    with pytest.raises(ConfigError, match=r"COMPACTION_SECRET_KEY_FILE names .* cannot be read: No such file"):
        open_stores(sqlite_url, keys=GivenKeys(file=tmp_path / "none")).catalogs.entry("lake")
    with pytest.raises(ConfigError, match="key 2 in COMPACTION_SECRET_KEY is no key"):
        open_stores(sqlite_url, keys=GivenKeys(f"{key},hunter2")).catalogs.entry("lake")


def _add(url: str, name: str, go: multiprocessing.synchronize.Event) -> None:
    go.wait()
    open_stores(url).catalogs.add(CatalogEntry(name, {**PROPERTIES, "name": name}))


def test_processes_that_store_their_first_secrets_at_once_agree_on_one_key(sqlite_url: str) -> None:
    open_stores(sqlite_url).close()
    processes, go = multiprocessing.get_context("fork"), multiprocessing.get_context("fork").Event()
    started = [processes.Process(target=_add, args=(sqlite_url, f"lake{number}", go)) for number in range(4)]
    for process in started:
        process.start()
    go.set()
    for process in started:
        process.join(60)
    assert [process.exitcode for process in started] == [0] * 4
    assert [entry.properties["token"] for entry in open_stores(sqlite_url).catalogs.entries()] == [SECRET] * 4
    assert len(key_file_of(sqlite_url).read_text().split()) == 1


def test_a_rotation_encrypts_with_a_new_key_and_forgets_the_old_one(sqlite_url: str) -> None:
    running = open_stores(sqlite_url)
    running.catalogs.add(ENTRY)
    running.groups.add(ResourceGroup("heavy", "k8s", {"spark.secret": SECRET}))
    old, before = key_file_of(sqlite_url).read_text(), stored(sqlite_url)
    assert open_stores(sqlite_url).rotate_key() == 2
    assert stored(sqlite_url) != before
    new = key_file_of(sqlite_url).read_text()
    assert len(new.split()) == 1
    assert new != old
    # A server that runs meanwhile reads and writes on, with the new key.
    assert running.catalogs.entry("lake") == ENTRY
    running.catalogs.add(CatalogEntry("second", PROPERTIES))
    assert len(open_stores(sqlite_url).catalogs.entries()) == 2
    assert open_stores(f"{sqlite_url}2").rotate_key() == 0


STEPS = ("new key known", "rows encrypted", "rows stored", "old keys forgotten")


@pytest.mark.parametrize("step", STEPS)
def test_a_rotation_that_is_killed_at_any_step_loses_no_secret(sqlite_url: str, step: str) -> None:
    class Killed(BaseException):
        pass

    def die(at: str) -> None:
        if at == step:
            raise Killed

    stores = open_stores(sqlite_url)
    stores.catalogs.add(ENTRY)
    with pytest.raises(Killed):
        Sealer(open_state(sqlite_url), on_step=die).rotate()
    assert open_stores(sqlite_url).catalogs.entry("lake") == ENTRY
    stores.catalogs.replace(CatalogEntry("lake", {**PROPERTIES, "more": "1"}))
    assert stores.rotate_key() == 1
    assert open_stores(sqlite_url).catalogs.entry("lake").properties == {**PROPERTIES, "more": "1"}
    assert len(key_file_of(sqlite_url).read_text().split()) == 1


@pytest.mark.parametrize("first", STEPS)
def test_a_rotation_between_the_steps_of_another_loses_no_secret(sqlite_url: str, first: str) -> None:
    """The second one runs whole where the first one holds no lock; where it holds the lock, it runs after it."""
    stores = open_stores(sqlite_url)
    stores.catalogs.add(ENTRY)

    def meanwhile(at: str) -> None:
        if at == first and at in ("rows stored", "old keys forgotten"):
            assert open_stores(sqlite_url).rotate_key() == 1

    assert Sealer(open_state(sqlite_url), on_step=meanwhile).rotate() == 1
    assert open_stores(sqlite_url).catalogs.entry("lake") == ENTRY
    assert len(key_file_of(sqlite_url).read_text().split()) == 1


def _rotate(url: str, times: int, go: multiprocessing.synchronize.Event) -> None:
    go.wait()
    for _ in range(times):
        open_stores(url).rotate_key()


def _write(url: str, name: str, times: int, go: multiprocessing.synchronize.Event) -> None:
    """A server that has its stores open all the time, reads all catalogs and changes one."""
    stores = open_stores(url)
    go.wait()
    for number in range(times):
        stores.catalogs.replace(CatalogEntry(name, {**PROPERTIES, "number": str(number), "token": f"{SECRET}{number}"}))
        assert all(entry.properties["token"].startswith(SECRET) for entry in stores.catalogs.entries())


def test_rotations_beside_rotations_and_beside_running_servers_lose_no_secret(sqlite_url: str) -> None:
    stores = open_stores(sqlite_url)
    for number in range(6):
        stores.catalogs.add(CatalogEntry(f"lake{number}", PROPERTIES))
    stores.close()
    processes, go = multiprocessing.get_context("spawn"), multiprocessing.get_context("spawn").Event()
    started = [processes.Process(target=_rotate, args=(sqlite_url, 8, go)) for _ in range(3)]
    started += [processes.Process(target=_write, args=(sqlite_url, f"lake{number}", 15, go)) for number in range(2)]
    for process in started:
        process.start()
    go.set()
    for process in started:
        process.join(120)
    assert [process.exitcode for process in started] == [0] * 5
    entries = open_stores(sqlite_url).catalogs.entries()
    assert [entry.properties["token"] for entry in entries] == [f"{SECRET}14", f"{SECRET}14", *([SECRET] * 4)]
    assert open_stores(sqlite_url).rotate_key() == 6
    assert len(key_file_of(sqlite_url).read_text().split()) == 1


@pytest.mark.postgres
def test_the_first_given_key_takes_the_place_of_the_others(postgres_url: str, tmp_path: Path) -> None:
    old, new = new_key(), new_key()
    file = tmp_path / "keys"
    file.write_text(old)
    running = open_stores(postgres_url, keys=GivenKeys(file=file))
    running.catalogs.add(ENTRY)
    with pytest.raises(ConfigError, match=r"lake.*is not among those given, so nothing was changed"):
        open_stores(postgres_url, keys=GivenKeys(new)).rotate_key()
    with pytest.raises(ConfigError, match="this process has no key: set COMPACTION_SECRET_KEY"):
        open_stores(postgres_url).rotate_key()
    with pytest.raises(ConfigError, match="this process has no key"):
        open_stores(postgres_url).catalogs.entry("lake")
    file.write_text(f"{new}\n{old}\n")
    assert open_stores(postgres_url, keys=GivenKeys(file=file)).rotate_key() == 1
    file.write_text(f"{new}\n")
    assert running.catalogs.entry("lake") == ENTRY
    assert open_stores(postgres_url, keys=GivenKeys(new)).catalogs.entry("lake") == ENTRY


def test_no_file_beside_the_database_holds_the_secret(sqlite_url: str, tmp_path: Path) -> None:
    stores = open_stores(sqlite_url)
    stores.catalogs.add(ENTRY)
    stores.rotate_key()
    with closing(sqlite3.connect(tmp_path / "state.db")) as held:
        held.execute("SELECT count(*) FROM compaction_catalog").fetchone()
        assert {path.name for path in tmp_path.iterdir() if SECRET[:12].encode() in path.read_bytes()} == set()
