"""Tables that Spark makes."""

from __future__ import annotations

from random import Random

from compaction_pipeline_tests.interop.warehouse import Warehouse
from compaction_pipeline_tests.reference_reader import Row

MERGE_ON_READ = (
    "'format-version'='2', 'write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read', 'write.merge.mode'='merge-on-read'"
)


def made(columns: str, rest: str = "", properties: str = MERGE_ON_READ) -> str:
    return f"CREATE TABLE {{t}} ({columns}) USING iceberg {rest} TBLPROPERTIES ({properties})"


_KEYS = 600


_PARTITIONS = 6


OVERTAKEN = ("missing data files", "Missing required files to delete")
"""Iceberg's errors for a writer whose data files, or whose delete files to be replaced, were removed while it ran."""


class SparkUpserts:
    """Upserts and deletes by Spark, and the rows that the table must have after them."""

    def __init__(self, warehouse: Warehouse, rng: Random) -> None:
        self.rows: dict[int, Row] = {}
        self.commits = 0
        self.overtaken = 0
        self._warehouse = warehouse
        self._rng = rng
        self._clock = 0
        warehouse.sql(made("id BIGINT, part INT, v BIGINT, name STRING", "PARTITIONED BY (part)"))

    def write(self) -> None:
        """Run one statement, and run it again when a compaction overtook it."""
        self._clock += 1
        part = self._rng.randrange(_PARTITIONS)
        keys = self._rng.sample([key for key in range(_KEYS) if key % _PARTITIONS == part], self._rng.randint(5, 40))
        if self._rng.random() < 0.3 and self.rows:
            statement = f"DELETE FROM {{t}} WHERE part = {part} AND id IN ({', '.join(map(str, keys))})"
            after = {key: row for key, row in self.rows.items() if key not in keys}
        else:
            changed: list[Row] = [{"id": key, "part": part, "v": self._clock, "name": f"n{self._clock}"} for key in keys]
            values = ", ".join(f"({row['id']}, {part}, {self._clock}, '{row['name']}')" for row in changed)
            statement = f"""MERGE INTO {{t}} USING (SELECT * FROM VALUES {values} AS v(id, part, v, name)) AS s
                ON {{t}}.id = s.id AND {{t}}.part = s.part AND {{t}}.part = {part}
                WHEN MATCHED THEN UPDATE SET v = s.v, name = s.name WHEN NOT MATCHED THEN INSERT *"""
            after = {**self.rows, **{row["id"]: row for row in changed}}
        while True:
            try:
                self._warehouse.sql(statement)
                break
            except Exception as error:
                if not any(text in str(error) for text in OVERTAKEN):
                    raise
                self.overtaken += 1
        self.rows = after
        self.commits += 1
