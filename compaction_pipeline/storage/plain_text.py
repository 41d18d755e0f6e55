"""Takes the secrets that older versions stored as plain text out of a state database: out of its rows, and out of its files.

The migration to version 0037 encrypts the rows. SQLite keeps what was overwritten in free pages and in its log, and PostgreSQL in dead
rows, so both are written anew afterwards. The header of SQLite's file (`user_version`), or the comment of a table of PostgreSQL, says that
this is still to be done, so a crash in between costs only time.
"""

from __future__ import annotations

import json
import logging
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine, inspect, text
from sqlalchemy.exc import SQLAlchemyError

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.secrets.keys import secret_values
from compaction_pipeline.core.secrets.known import KnownSecrets, without_known_secrets
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.engine import BUSY_TIMEOUT_SECONDS, lock, shown
from compaction_pipeline.storage.sealing import Sealer, seal, secrets_of

log = logging.getLogger(__name__)

IN_COPY = "sealed:"
"""Before a secret in a copy that was made before the migration to version 0037. Later versions have a column."""
FIRST_SEALED = "0037"
"""From this version on, no secret is stored as plain text."""
_TO_DO, _DONE = 1, 0
_COMMENT = "dead rows may hold secrets in plain text until VACUUM FULL has run"
_LOCK_TIMEOUT = "10s"
_TEXTS = (
    ("compaction_table", ("problem", "warning", "plan_problem", "commit_problem")),
    ("compaction_task", ("reason",)),
    ("compaction_attempt", ("reason",)),
    ("compaction_optimizer", ("why",)),
)
"""The columns of errors. An error of a library may have repeated a secret."""
_VALUES = (
    ("compaction_record", "record_id", "value"),
    ("compaction_task", "task_id", "result"),
    ("compaction_upkeep_record", "record_id", "value"),
    ("compaction_upkeep_commit", "record_id", "value"),
)
"""Values with errors in them, and the columns that name them."""
_ERRORS = ("reason", "error", "conflicts", "failed")
"""The fields of these values that hold errors. Others, such as paths, never change."""


def seal_rows(connection: Connection, sealer: Sealer) -> None:
    """Encrypt the secrets of all rows of version 0036. Raises ConfigError when there are some, and no key."""
    lock(connection, "secret keys")
    found: list[str] = []
    old = KnownSecrets()
    for table in (schema.catalog, schema.group):
        for name, stored in connection.execute(text(f"SELECT name, properties FROM {table.name} ORDER BY name")).all():
            properties: dict[str, str] = json.loads(stored)
            secrets = dict(secrets_of(properties))
            # A copy that was made before an upgrade, and is used again, has them encrypted already.
            of_copy = {key: sealer.unseal(value.removeprefix(IN_COPY)) for key, value in properties.items() if value.startswith(IN_COPY)}
            secrets.update(of_copy)
            if not secrets:
                continue
            try:
                sealed = seal(sealer.keys_for_writing(secrets, lambda: False), json.dumps(secrets))
            except ConfigError as error:
                raise ConfigError(f"the upgrade changed nothing: {name!r} has secrets in plain text: {error}") from None
            readable = {key: value for key, value in properties.items() if key not in secrets}
            values = {"name": name, "readable": json.dumps(readable), "sealed": sealed}
            connection.execute(text(f"UPDATE {table.name} SET properties = :readable, sealed = :sealed WHERE name = :name"), values)
            old.know(f"{table.name} {name}", secret_values(secrets))
            found += [f"{name}: {', '.join(sorted(secrets))}"]
    if found:
        _hide_in_errors(connection)
        log.warning(
            "the secrets of %s were stored as plain text, and are encrypted now: give each of them a new value at its source, because "
            "copies of the state database and of its host may still hold the old one",
            "; ".join(found),
        )
    old.forget_all()
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("PRAGMA secure_delete = ON")
        connection.exec_driver_sql(f"PRAGMA user_version = {_TO_DO}")
    else:
        connection.execute(text(f"COMMENT ON TABLE {schema.catalog.name} IS '{_COMMENT}'"))


def seal_copy(path: Path, sealer: Sealer) -> None:
    """Encrypt the secrets of a copy of a SQLite database whose version has no column for them. Nothing of the plain text stays in the file.

    Each secret becomes one value, `sealed:…`, which the migration of a copy that is used again decrypts. The caller holds the lock `secret
    keys` of the database.
    """
    old = KnownSecrets()
    engine = create_engine(f"sqlite:///{path}", isolation_level="AUTOCOMMIT")
    with engine.connect() as copy:
        # In WAL mode the copy would leave a second file with its pages.
        for setting in ("secure_delete = ON", "journal_mode = DELETE"):
            copy.exec_driver_sql(f"PRAGMA {setting}")
        for table in (schema.catalog, schema.group):
            for name, stored in copy.execute(text(f"SELECT name, properties FROM {table.name}")).all():
                properties: dict[str, str] = json.loads(stored)
                secrets = {key: value for key, value in secrets_of(properties).items() if not value.startswith(IN_COPY)}
                if secrets:
                    keys = sealer.keys_for_writing(secrets, lambda: False)
                    sealed = {key: IN_COPY + seal(keys, value) for key, value in secrets.items()}
                    values = {"name": name, "properties": json.dumps({**properties, **sealed})}
                    copy.execute(text(f"UPDATE {table.name} SET properties = :properties WHERE name = :name"), values)
                    old.know(f"{table.name} {name}", secret_values(secrets))
        _hide_in_errors(copy)
        old.forget_all()
        copy.exec_driver_sql("VACUUM")
    engine.dispose()


def _hide_in_errors(connection: Connection) -> None:
    inspector = inspect(connection)
    known = {table: {column["name"] for column in inspector.get_columns(table)} for table in inspector.get_table_names()}
    for table, columns in _TEXTS:
        for column in known.get(table, set()).intersection(columns):
            texts = connection.execute(text(f"SELECT DISTINCT {column} FROM {table} WHERE {column} IS NOT NULL")).scalars().all()
            for stored in texts:
                hidden = without_known_secrets(stored)
                if hidden != stored:
                    values = {"hidden": hidden, "stored": stored}
                    connection.execute(text(f"UPDATE {table} SET {column} = :hidden WHERE {column} = :stored"), values)
    for table, name, column in _VALUES:
        if table not in known:
            continue
        for row, stored in connection.execute(text(f"SELECT {name}, {column} FROM {table} WHERE {column} IS NOT NULL")).all():
            if without_known_secrets(stored) != stored:
                fields = json.loads(stored)
                hidden = json.dumps({**fields, **{field: _hidden(fields[field]) for field in _ERRORS if field in fields}})
                connection.execute(text(f"UPDATE {table} SET {column} = :hidden WHERE {name} = :row"), {"hidden": hidden, "row": row})


def _hidden(value: object) -> object:
    if isinstance(value, dict):
        return {key: _hidden(each) for key, each in value.items()}
    return without_known_secrets(value) if isinstance(value, str) else value


def is_plain_text_left(connection: Connection) -> bool:
    """Whether a database may still hold plain text in free pages, in its log or in dead rows."""
    if connection.dialect.name == "sqlite":
        return connection.exec_driver_sql("PRAGMA user_version").scalar() == _TO_DO
    comment = text("SELECT obj_description(to_regclass(:name), 'pg_class')")
    return connection.execute(comment, {"name": schema.catalog.name}).scalar() == _COMMENT


def wipe_plain_text(engine: Engine) -> bool:
    """Write anew what may hold plain text: the file of SQLite with its log, or two tables of PostgreSQL.

    Return whether this is done. If not, it is tried again at the next start.
    """
    return _wipe_file(engine) if engine.dialect.name == "sqlite" else _wipe_tables(engine)


def _wipe_file(engine: Engine) -> bool:
    path = Path(engine.url.database or "")
    try:
        if shutil.disk_usage(path.parent).free < 2 * path.stat().st_size:
            return _later(engine, "the disk has no room for a second copy of it")
        with closing(sqlite3.connect(path, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None)) as connection:
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("VACUUM")
            busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if busy:
                return _later(engine, "another process reads it")
            connection.execute(f"PRAGMA user_version = {_DONE}")
    except (OSError, sqlite3.Error) as error:
        return _later(engine, str(error))
    return True


def _later(engine: Engine, reason: str) -> bool:
    log.warning(
        "the state database %s could not be written anew, so plain text of old secrets may still be in its files: %s; "
        "it is tried again at the next start",
        shown(engine),
        reason,
    )
    return False


def _wipe_tables(engine: Engine) -> bool:
    try:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            try:
                connection.execute(text(f"SET lock_timeout = '{_LOCK_TIMEOUT}'"))
                connection.execute(text(f"VACUUM FULL {schema.catalog.name}, {schema.group.name}"))
                connection.execute(text(f"COMMENT ON TABLE {schema.catalog.name} IS NULL"))
            finally:
                # Whoever gets a connection next waits for locks as the settings say.
                connection.invalidate()
    except SQLAlchemyError as error:
        return _later(engine, str(getattr(error, "orig", None) or error).strip())
    return True


def older_copies(database: Path) -> tuple[str, ...]:
    """The copies that earlier upgrades made, and that may hold secrets as plain text."""
    found = (path for path in database.parent.glob(f"{database.name}.backup-*") if path.name.rpartition("-")[2] < FIRST_SEALED)
    return tuple(sorted(str(path) for path in found if not _is_sealed(path)))


def _is_sealed(path: Path) -> bool:
    """Whether a copy surely holds no secret in plain text."""
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)) as copy:
            tables = [table.name for table in (schema.catalog, schema.group)]
            rows = [json.loads(row) for table in tables for (row,) in copy.execute(f"SELECT properties FROM {table}")]
    except sqlite3.Error:
        return False
    return not any(value for row in rows for value in secrets_of(row).values() if not value.startswith(IN_COPY))
