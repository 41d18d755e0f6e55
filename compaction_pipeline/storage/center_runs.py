"""The RunHistory: what runs and data there were, for forecasts and repairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import func, select, tuple_

from compaction_pipeline.core.dependencies.center.instances import Instance, InstanceState
from compaction_pipeline.core.dependencies.center.jobs import SCHEDULED
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.center_rows import instance_of
from compaction_pipeline.storage.engine import batches
from compaction_pipeline.storage.sql_store import SqlStore

_INSTANCE, _SUBJECT = schema.center_instance.c, schema.center_subject.c
_OPEN = (InstanceState.WAITING, InstanceState.READY, InstanceState.RUNNING)


class SqlRunHistory(SqlStore):
    """Past and open runs, from the state database."""

    def open_runs(self, jobs: Sequence[str]) -> Sequence[Instance]:
        found: list[Instance] = []
        for some in batches(jobs):
            mine = (_INSTANCE.job.in_(some), _INSTANCE.state.in_(_OPEN), _INSTANCE.origin == SCHEDULED, _INSTANCE.part == "")
            found += [instance_of(row) for row in self._rows(select(schema.center_instance).where(*mine).order_by(_INSTANCE.id))]
        return found

    def scheduled(self, runs: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], Instance]:
        found: dict[tuple[str, str], Instance] = {}
        for some in batches(runs):
            mine = (tuple_(_INSTANCE.job, _INSTANCE.biz).in_(some), _INSTANCE.origin == SCHEDULED, _INSTANCE.part == "")
            found.update({(row.job, row.biz): instance_of(row) for row in self._rows(select(schema.center_instance).where(*mine))})
        return found

    def last_runs(self, jobs: Sequence[str], most: int) -> Mapping[str, Sequence[Instance]]:
        found: dict[str, list[Instance]] = {}
        for some in batches(jobs):
            mine = (_INSTANCE.job.in_(some), _INSTANCE.state == InstanceState.SUCCEEDED, _INSTANCE.origin == SCHEDULED)
            place = func.row_number().over(partition_by=_INSTANCE.job, order_by=_INSTANCE.id.desc()).label("place")
            numbered = select(_INSTANCE.id.label("number"), place).where(*mine).subquery()
            newest = select(numbered.c.number).where(numbered.c.place <= most)
            rows = self._rows(select(schema.center_instance).where(_INSTANCE.id.in_(newest)).order_by(_INSTANCE.id.desc()))
            for row in rows:
                found.setdefault(row.job, []).append(instance_of(row))
        return found

    def arrivals(self, keys: Sequence[str]) -> Mapping[str, tuple[int, datetime]]:
        found: dict[str, tuple[int, datetime]] = {}
        for some in batches(keys):
            known = (_SUBJECT.key.in_(some), _SUBJECT.at.is_not(None))
            found.update(
                {row.key: (row.reached, row.at) for row in self._rows(select(_SUBJECT.key, _SUBJECT.reached, _SUBJECT.at).where(*known))}
            )
        return found
