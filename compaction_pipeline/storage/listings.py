"""The ListingStore: which known tables the listings of their catalogs did not see, and the sentences about that."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import delete, insert, select, update

from compaction_pipeline.core.tables.listing import Findings, KnownName, Unseen
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.engine import batches, lock, writing
from compaction_pipeline.storage.index import add_tables
from compaction_pipeline.storage.sql_store import SqlStore
from compaction_pipeline.storage.table_rows import identifier_of

_table, _unseen = schema.table_state.c, schema.unseen.c


class SqlListingStore(SqlStore):
    """Listings in the state database."""

    def names(self, catalog: str) -> Sequence[KnownName]:
        rows = self._rows(select(_table.identifier, _table.unseen_rounds, _table.unseen_since).where(_table.catalog == catalog))
        return [KnownName(identifier_of(row.identifier), row.unseen_rounds, row.unseen_since) for row in rows]

    def note(self, catalog: str, findings: Findings) -> None:
        for batch in batches(findings.appeared):
            with writing(self._engine) as connection:
                add_tables(connection, batch)
        with writing(self._engine) as connection:
            lock(connection, f"listing of {catalog}")
            for names in batches([str(table) for table in findings.seen_again]):
                rows = update(schema.table_state).where(_table.identifier.in_(names))
                connection.execute(rows.values(unseen_rounds=0, unseen_since=None))
            counted: dict[tuple[object, object], list[str]] = {}
            for one in findings.missed:
                counted.setdefault((one.unseen_rounds, one.unseen_since), []).append(str(one.table))
            for (rounds, since), missed in counted.items():
                for names in batches(missed):
                    rows = update(schema.table_state).where(_table.identifier.in_(names))
                    connection.execute(rows.values(unseen_rounds=rounds, unseen_since=since))
            connection.execute(delete(schema.unseen).where(_unseen.catalog == catalog))
            sentences = [
                {"catalog": one.catalog, "namespace": ".".join(one.namespace), "sentence": one.sentence, "tables": one.tables}
                for one in findings.unseen
            ]
            # The catalog as a whole may have failed, and tables may be missed beside that.
            by_name = {one["namespace"]: one for one in sentences}
            if by_name:
                connection.execute(insert(schema.unseen), list(by_name.values()))

    def unseen(self) -> Sequence[Unseen]:
        rows = self._rows(select(schema.unseen).order_by(_unseen.catalog, _unseen.namespace))
        return [Unseen(row.catalog, tuple(filter(None, row.namespace.split("."))), row.sentence, row.tables) for row in rows]
