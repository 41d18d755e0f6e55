"""The versions of the state's schema, and the steps from one to the next.

An empty database gets the newest schema at once. A SQLite database is migrated when it is opened, under its write lock and after a
backup copy. A PostgreSQL database may serve several machines, so only `compaction-pipeline state upgrade` migrates it. A version newer
than this program knows, or older than `OLDEST`, is refused.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Column, Connection, Engine, MetaData, PrimaryKeyConstraint, String, Table, insert, inspect, text

from compaction_pipeline.core.errors import ConfigError, StorageUnavailable
from compaction_pipeline.core.queue.group import ResourceGroup
from compaction_pipeline.core.tables.group_name import DEFAULT_GROUP
from compaction_pipeline.core.tables.team_name import UNASSIGNED
from compaction_pipeline.storage.engine import VERSION_TABLE, lock, reading, shown, writing
from compaction_pipeline.storage.groups import insert_group_without_properties
from compaction_pipeline.storage.plain_text import (
    FIRST_SEALED,
    is_plain_text_left,
    older_copies,
    seal_copy,
    seal_rows,
    wipe_plain_text,
)
from compaction_pipeline.storage.private_files import make_private_file
from compaction_pipeline.storage.schema import metadata
from compaction_pipeline.storage.sealing import Sealer
from compaction_pipeline.storage.teams import insert_team_without_limits

if TYPE_CHECKING:
    from alembic.config import Config

log = logging.getLogger(__name__)

HEAD = "0083"
"""The version that this program writes (a test compares it with the newest file in `versions/`)."""
OLDEST = "0026"
"""The oldest version that this program upgrades."""
SCRIPTS = Path(__file__).parent

# Alembic keeps the version in a table like this.
_version = Table(
    VERSION_TABLE,
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)


def migrate(engine: Engine, sealer: Sealer | None = None, *, upgrade: bool = False, scripts: Path = SCRIPTS, head: str = HEAD) -> bool:
    """Bring the schema to `head`, where that is allowed. This costs one SELECT when the schema already has this version.

    Returns True when an older version was upgraded. Raises ConfigError for a newer version, for one before `OLDEST`, for an older one
    on PostgreSQL without `upgrade`, and when it holds secrets in plain text and `sealer` has no key for them.
    """
    sealer = sealer or Sealer(engine)
    stored = _stored_version(engine)
    if stored == head:
        return False
    if stored is None:
        with writing(engine) as connection:
            lock(connection, "migration")
            # Another process may have made the tables while this one waited.
            stored = schema_version(connection)
            if stored is None:
                _create(connection)
                stored = HEAD
        if stored == head:
            return False
    if stored < OLDEST:
        raise ConfigError(
            f"the state database {shown(engine)} has version {stored} but this program upgrades versions from {OLDEST} on; "
            "open it once with the release of compaction-pipeline that came before this one, or point COMPACTION_STATE_URL at another "
            "database"
        )
    # Importing alembic takes half a second, and only a migration needs it.
    from alembic.command import upgrade as alembic_upgrade
    from alembic.script import ScriptDirectory

    config = _config(scripts)
    if stored not in {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}:
        raise ConfigError(
            f"the state database {shown(engine)} has version {stored} but this program knows versions up to {head}; "
            "install the newer compaction-pipeline that wrote it, or point COMPACTION_STATE_URL at another database"
        )
    if engine.dialect.name == "postgresql" and not upgrade:
        raise ConfigError(
            f"the state database {shown(engine)} has version {stored} but this program needs {head}; "
            "stop what uses it, back it up and run `compaction-pipeline state upgrade`"
        )
    with writing(engine) as connection:
        lock(connection, "migration")
        stored = schema_version(connection)
        if stored == head:
            # Another process migrated it while this one waited.
            return False
        if engine.dialect.name == "sqlite":
            _back_up(Path(engine.url.database or ""), str(stored), sealer)
        config.attributes["connection"] = connection
        config.attributes["seal"] = lambda bound: seal_rows(bound, sealer)
        alembic_upgrade(config, head)
    _wipe(engine, str(stored))
    return True


def _stored_version(engine: Engine) -> str | None:
    """The version of the database. Plain text that an upgrade could not wipe from its files is wiped now."""
    with reading(engine) as connection:
        stored = schema_version(connection)
        plain_text_left = is_plain_text_left(connection)
    if plain_text_left:
        wipe_plain_text(engine)
    return stored


def _wipe(engine: Engine, version: str) -> None:
    """After an upgrade from this version, let no file of the database hold plain text of secrets, and name those that still do."""
    if version >= FIRST_SEALED:
        return
    wipe_plain_text(engine)
    if engine.dialect.name != "sqlite":
        return
    copies = older_copies(Path(engine.url.database or ""))
    if copies:
        log.warning(
            "older copies of the state database may hold secrets in plain text: delete %s when you do not need them", ", ".join(copies)
        )


def schema_version(connection: Connection) -> str | None:
    """The version of a state database; None when it holds no state."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    version: str | None = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
    return version


def _create(connection: Connection) -> None:
    """Make the newest schema in an empty database, with the default resource group and the team of tables that name none."""
    metadata.create_all(connection, checkfirst=False)
    insert_group_without_properties(connection, ResourceGroup(DEFAULT_GROUP))
    insert_team_without_limits(connection, UNASSIGNED)
    _version.create(connection, checkfirst=False)
    connection.execute(insert(_version).values(version_num=HEAD))


def _config(scripts: Path) -> Config:
    from alembic.config import Config

    config = Config()
    # alembic interpolates `%`, which may be part of a folder's name.
    config.set_main_option("script_location", str(scripts).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _back_up(database: Path, version: str, sealer: Sealer) -> None:
    """Copy the database to a file beside it, with its secrets encrypted.

    The caller holds the write lock, so the copy shows one moment. The copy gets its final name only when it is complete.
    """
    target = database.with_name(f"{database.name}.backup-{version}")
    part = target.with_name(f"{target.name}.part")
    try:
        part.unlink(missing_ok=True)
        make_private_file(part)
        with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(part)) as copy:
            source.backup(copy)
        if version < FIRST_SEALED:
            seal_copy(part, sealer)
        os.replace(part, target)
    except BaseException as error:
        # The copy may hold secrets in plain text.
        with suppress(OSError):
            part.unlink(missing_ok=True)
        if not isinstance(error, OSError | sqlite3.Error):
            raise
        raise StorageUnavailable(
            f"the state database {str(database)!r} of version {version} cannot be backed up before its migration: {error}; "
            "make room for a copy beside it"
        ) from error
