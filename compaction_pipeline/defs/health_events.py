"""When `table_health` is told, and as what.

Each event has some ten thousand bytes, and Dagster keeps it for ever. So changes are told once a minute, and only bad news, or its end, at
once. An event comes every five minutes in any case: it shows that the program works. Dagster calls the asset failed when there is no
materialization for an hour.

While nobody looks at the tables, the page may be wrong. Then it is told as an observation, which Dagster does not count: the asset turns
red although runs go on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256

import dagster as dg

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.fragmentation.health import HealthStatus
from compaction_pipeline.core.words import duration_text
from compaction_pipeline.defs.names import Names
from compaction_pipeline.services.insight.read_status import Status
from compaction_pipeline.settings import Settings

CHANGES_EVERY = timedelta(minutes=1)
"""Ordinary changes are told at most this often, and half as often when there are `MANY` tables: then something changes all the time."""
MANY = 100
HEARTBEAT = timedelta(minutes=5)
"""An event comes at least this often, also when nothing has changed. Large pictures come this often at most."""


def warn_after(settings: Settings) -> timedelta:
    """Dagster warns when there is no materialization for this long. It is longer than ten minutes only where sensors tick seldom."""
    return max(timedelta(minutes=10), 3 * timedelta(seconds=settings.sensor_interval_seconds))


def freshness(settings: Settings) -> dg.FreshnessPolicy:
    """Dagster warns after a while without a materialization, and calls the asset failed after twice this time, or after an hour."""
    warn_window = warn_after(settings)
    return dg.FreshnessPolicy.time_window(fail_window=max(timedelta(hours=1), 2 * warn_window), warn_window=warn_window)


@dataclass(frozen=True, slots=True)
class Told:
    """What the last event told, and when it did, in seconds since 1970. `large_at` is when large pictures were told.

    `shown` stands for everything that the page shows, and `news` for what must be told at once.
    """

    shown: str = ""
    news: str = ""
    at: int = 0
    large_at: int = 0

    @classmethod
    def of(cls, text: str | None) -> Told:
        """Read it from a cursor."""
        parts = (text or "").split(" ")
        if len(parts) != 4:
            # There is no cursor yet, or it is one of a release that remembered only what the page had shown.
            return cls()
        shown, news, at, large_at = parts
        return cls(shown, news, int(at), int(large_at))

    @property
    def text(self) -> str:
        """The same as a cursor stores it."""
        return f"{self.shown} {self.news} {self.at} {self.large_at}"

    def next(self, status: Status) -> Told | None:
        """What an event tells now; None when none is due. When `large_at` is another one than before, it has large pictures."""
        shown, news, now = status_fingerprint(status), _news(status), int(status.at.timestamp())
        waited = timedelta(seconds=now - self.at)
        pause = CHANGES_EVERY if len(status.tables) < MANY else 2 * CHANGES_EVERY
        changed = shown != self.shown and waited >= pause
        if news == self.news and not changed and waited < HEARTBEAT:
            return None
        has_large = timedelta(seconds=now - self.large_at) >= HEARTBEAT
        return Told(shown, news, now, now if has_large else self.large_at)


def status_fingerprint(status: Status) -> str:
    """16 hex digits, which are equal for two states that `table_health` shows alike. Times do not count."""
    return _fingerprint(
        [
            [(node.key, node.health.value, node.reason, node.metrics.files) for node in status.worst],
            [
                (str(table.table), table.health.value, table.reason, table.warning, table.metrics.files, table.score.text)
                for table in status.tables
            ],
            [(task.task_id, task.attempt) for task in status.executing],
            repr(status.queue),
            [record.record_id for record in status.unsettled],
            [(one.catalog, one.namespace, one.sentence) for one in status.unseen],
        ]
    )


def _news(status: Status) -> str:
    """16 hex digits, which differ when a table is refused, when a table or a node fails or is well again, when a task has failed, and when
    a listing sees more or less than before.

    That nodes are due, wait and are healthy again is the daily work, and no news.
    """
    refused = [(str(table.table), table.reason) for table in status.tables if table.health is HealthStatus.REFUSED]
    failing = [str(table.table) for table in status.tables if table.health is HealthStatus.FAILING]
    nodes = sorted(node.key for node in status.all_nodes if node.health is HealthStatus.FAILING)
    unseen = [(one.catalog, one.namespace) for one in status.unseen]
    return _fingerprint([refused, failing, nodes, status.queue.failed, unseen])


def _fingerprint(shown: object) -> str:
    return sha256(json.dumps(shown).encode()).hexdigest()[:16]


def nobody_looks(services: Services) -> str | None:
    """Say that nobody has looked at the tables for long, so that writers' commits stay unseen; None when somebody does."""
    swept_at = services.sweep_tables.swept_at()
    silent = None if swept_at is None else services.clock() - swept_at
    if silent is not None and silent < warn_after(services.settings):
        return None
    since = "" if silent is None else f" for {duration_text(silent)}"
    return f"nobody has looked for new snapshots{since}: see that `snapshot_sensor` is on, and read its last tick"


def health_event(
    names: Names, description: str, metadata: Mapping[str, dg.MetadataValue], silence: str | None
) -> dg.AssetMaterialization | dg.AssetObservation:
    """The event of `table_health`. With `silence`, the sentence of `nobody_looks`, it is no proof that the program works."""
    if silence is not None:
        return dg.AssetObservation(names.table_health, description=f"{silence}; {description}", metadata=metadata)
    return dg.AssetMaterialization(names.table_health, description=description, metadata=metadata)
