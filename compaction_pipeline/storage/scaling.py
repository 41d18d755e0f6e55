"""The ScalingStore: what groups are to have, their actions, and what was seen of them.

Each step of an action is one change of the group's scale to its next revision. A writer that read an older one changes nothing, so a
server that has lost its lease does no harm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import delete, select, update
from sqlalchemy.exc import IntegrityError

from compaction_pipeline.core.capacity.scaling.observation import Observation
from compaction_pipeline.core.capacity.scaling.record import Scale, ScalingRecord
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.engine import upsert, writing
from compaction_pipeline.storage.notices import tell
from compaction_pipeline.storage.sql_store import SqlStore

_scale, _record, _seen = schema.scale.c, schema.scaling_record.c, schema.observation.c


class SqlScalingStore(SqlStore):
    """Scaling in the state database."""

    def scales(self) -> Mapping[str, Scale]:
        return {scale.group: scale for scale in self._values(select(_scale.value))}

    def change(self, scale: Scale, record: ScalingRecord | None = None) -> bool:
        values = {"group": scale.group, "revision": scale.revision, "value": scale}
        before = (_scale.group == scale.group, _scale.revision == scale.revision - 1)
        try:
            with writing(self._engine) as connection:
                if connection.execute(update(schema.scale).where(*before).values(values)).rowcount != 1:
                    # The first one of a group. The key forbids a second one.
                    if scale.revision != 1:
                        return False
                    first = upsert(connection, schema.scale).values(values).on_conflict_do_nothing(index_elements=["group"])
                    if connection.execute(first).rowcount != 1:
                        return False
                if record is not None:
                    of = {"group": record.group, "at": record.at, "outcome": record.outcome, "value": record}
                    row = upsert(connection, schema.scaling_record).values(record_id=record.record_id, **of)
                    connection.execute(row.on_conflict_do_update(index_elements=["record_id"], set_=of))
                    if (event := record.event) is not None:
                        tell(connection, event)
        except IntegrityError:
            return False
        return True

    def observe(self, group: str, seen: Observation) -> None:
        with writing(self._engine) as connection:
            row = upsert(connection, schema.observation).values(group=group, at=seen.at, value=seen)
            connection.execute(row.on_conflict_do_nothing(index_elements=["group", "at"]))

    def observations(self, group: str, since: datetime) -> Sequence[Observation]:
        return tuple(self._values(select(_seen.value).where(_seen.group == group, _seen.at >= since).order_by(_seen.at)))

    def records(self, group: str | None, most: int) -> Sequence[ScalingRecord]:
        query = select(_record.value).order_by(_record.at.desc(), _record.record_id).limit(most)
        return tuple(self._values(query if group is None else query.where(_record.group == group)))

    def expire(self, seen_before: datetime, ended_before: datetime) -> None:
        groups = select(schema.group.c.name)
        with writing(self._engine) as connection:
            connection.execute(delete(schema.observation).where(_seen.at < seen_before))
            ended = (_record.outcome.is_not(None), _record.at < ended_before)
            connection.execute(delete(schema.scaling_record).where(*ended))
            for table in (schema.scale, schema.scaling_record, schema.observation):
                connection.execute(delete(table).where(table.c.group.not_in(groups)))
