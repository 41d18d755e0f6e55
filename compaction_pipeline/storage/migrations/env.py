"""Alembic runs this file. It applies the steps on the connection, and in the transaction, that `migrate` opened."""

from __future__ import annotations

from alembic import context

from compaction_pipeline.storage.engine import VERSION_TABLE

context.configure(connection=context.config.attributes["connection"], version_table=VERSION_TABLE, transactional_ddl=True)
context.run_migrations()
