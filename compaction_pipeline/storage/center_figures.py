"""The CenterFiguresReader: figures for people and for alerts. No query takes longer when there are more instances that have ended."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import and_, exists, func, select

from compaction_pipeline.core.dependencies.center.figures import COUNTED, LATELY, NEWEST, CenterFigures
from compaction_pipeline.core.dependencies.center.instances import InstanceState
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.center_facts import FACT, TEXT, said_at
from compaction_pipeline.storage.sql_store import SqlStore

_INSTANCE, _SUBJECT, _REQUIREMENT = schema.center_instance.c, schema.center_subject.c, schema.center_requirement.c
_MISSED = schema.center_missed.c
_ALERTS = select(schema.center_alert.c.owner, func.count().label("counted")).group_by(schema.center_alert.c.owner)
_LOOKED_AT = 10
_IS_STARTED = _INSTANCE.receiver.is_not(None)


class SqlCenterFiguresReader(SqlStore):
    """The figures of the dependency center, from the state database."""

    def figures(self, now: datetime) -> CenterFigures:
        counted = select(_INSTANCE.state, func.count().label("counted")).where(_INSTANCE.state.in_(COUNTED), _IS_STARTED)
        counts = {row.state: row.counted for row in self._rows(counted.group_by(_INSTANCE.state))}
        unclaimed = (_INSTANCE.state == InstanceState.READY, _INSTANCE.claimed_at.is_(None), _IS_STARTED)
        first = self._first(select(_INSTANCE.ready_at).where(*unclaimed).order_by(_INSTANCE.ready_at).limit(1))
        # The leader sets aside what cannot be read. Until then, the time of what came after it is told.
        reports = self._values(select(TEXT).where(FACT.problem.is_(None)).order_by(FACT.id).limit(_LOOKED_AT))
        set_aside = self._values(select(func.count()).where(FACT.problem.is_not(None)))[0]
        missed = self._values(select(func.coalesce(func.sum(_MISSED.events), 0)).where(_MISSED.hour > now - LATELY))[0]
        return CenterFigures(
            now,
            {state: counts.get(state, 0) for state in COUNTED},
            None if first is None else first.ready_at,
            next((at for text in reports if (at := said_at(text)) is not None), None),
            tuple(ready_at - max(made_at, there_at) for made_at, ready_at, there_at in self._started() if there_at <= ready_at),
            set_aside,
            int(missed),
            {row.owner: row.counted for row in self._rows(_ALERTS)},
        )

    def _started(self) -> list[tuple[datetime, datetime, datetime]]:
        """When the newest were made, became ready, and had the last thing that they needed.

        What ran again is no sign of speed, nor is what had weak edges: it may have waited for a time of day.
        """
        is_weak = exists(select(schema.center_group.c.edge).where(schema.center_group.c.instance_id == _INSTANCE.id))
        ready = (_IS_STARTED, _INSTANCE.ready_at.is_not(None), _INSTANCE.generation == 1, ~is_weak)
        newest = select(_INSTANCE.id, _INSTANCE.made_at, _INSTANCE.ready_at).where(*ready).order_by(_INSTANCE.id.desc()).limit(NEWEST)
        rows = {row.id: row for row in self._rows(newest)}
        if not rows:
            return []
        is_told = and_(_SUBJECT.id == _REQUIREMENT.subject_id, _SUBJECT.at.is_not(None))
        needs = schema.center_requirement.join(schema.center_subject, is_told)
        last: dict[int, datetime] = {}
        query = select(_REQUIREMENT.instance_id, _SUBJECT.at).select_from(needs).where(_REQUIREMENT.instance_id.in_(list(rows)))
        for row in self._rows(query):
            last[row.instance_id] = max(row.at, last.get(row.instance_id, row.at))
        return [(row.made_at, row.ready_at, last.get(number, row.made_at)) for number, row in rows.items()]
