"""The SiteFileStore: files of Hadoop and Kerberos that catalogs name. Their contents are stored encrypted."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from sqlalchemy import Engine, delete, insert, select

from compaction_pipeline.core.catalogs.site_files import REFERENCE, SiteFile
from compaction_pipeline.core.errors import ConfigError, NotFoundError
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.columns import StoredRow
from compaction_pipeline.storage.engine import lock, writing
from compaction_pipeline.storage.sealing import Sealer, read_again_after_rotation
from compaction_pipeline.storage.sql_store import SqlStore

_file = schema.site_file.c


class SqlSiteFileStore(SqlStore):
    """Files in the state database. A row never changes."""

    def __init__(self, engine: Engine, sealer: Sealer) -> None:
        super().__init__(engine)
        self._sealer = sealer

    def add(self, file: SiteFile, content: bytes) -> SiteFile:
        with writing(self._engine) as connection:
            lock(connection, "catalogs")
            known = connection.execute(select(schema.site_file).where(_file.name == file.id)).first()
            if known is not None:
                return _of(known)
            sealed = self._sealer.text(connection, base64.b64encode(content).decode(), f"the file {file.id}")
            values = {"name": file.id, "kind": file.kind, "size_bytes": file.size_bytes, "added_at": file.added_at, "sealed": sealed}
            connection.execute(insert(schema.site_file).values(values))
        return file

    def files(self) -> Sequence[SiteFile]:
        query = select(_file.name, _file.kind, _file.size_bytes, _file.added_at)
        return tuple(sorted((_of(row) for row in self._rows(query)), key=lambda file: file.id))

    def content(self, file_id: str) -> bytes:
        def read() -> bytes:
            row = self._first(select(_file.sealed).where(_file.name == file_id))
            if row is None:
                raise _unknown(file_id)
            return base64.b64decode(self._sealer.unseal(row.sealed))

        return read_again_after_rotation(read)

    def remove(self, file_id: str) -> None:
        with writing(self._engine) as connection:
            # Whoever adds or changes a catalog holds it too, so no catalog comes to name the file meanwhile.
            lock(connection, "catalogs")
            rows = connection.execute(select(schema.catalog.c.name, schema.catalog.c.properties)).all()
            users = sorted(name for name, properties in rows if f"{REFERENCE}{file_id}" in properties.values())
            if users:
                raise ConfigError(
                    f"the file {file_id} is not removed, because catalogs name it: {', '.join(users)}; "
                    "give them another file with `catalog change`, or remove them"
                )
            if connection.execute(delete(schema.site_file).where(_file.name == file_id)).rowcount == 0:
                raise _unknown(file_id)


def _of(row: StoredRow) -> SiteFile:
    return SiteFile(row.name, row.kind, row.size_bytes, row.added_at)


def _unknown(file_id: str) -> NotFoundError:
    return NotFoundError(f"there is no file {file_id!r}; `catalog file list` shows what is stored")
