"""Tells each asset of a user about the table that it stands for: health, last compaction, and a check.

Dagster lets any code location report events on any asset. So the asset may live anywhere, and needs no code of ours. An observation has no
data version, so it makes no asset outdated.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from hashlib import sha256

import dagster as dg

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.commit.record import CompactionRecord, RecordStatus
from compaction_pipeline.core.insight.own_assets import AssetLevels, AssetReport, LastReport, OwnAssets, report_is_due
from compaction_pipeline.core.tables.asset_key import asset_key_text
from compaction_pipeline.core.tables.property_rules import ASSET_KEY
from compaction_pipeline.core.words import count_text
from compaction_pipeline.defs.choices import Choices
from compaction_pipeline.defs.health_metadata import score_metadata
from compaction_pipeline.defs.metadata import megabytes
from compaction_pipeline.defs.names import Names
from compaction_pipeline.defs.own_checks import check_event, remember, taken
from compaction_pipeline.defs.ticks import ticking
from compaction_pipeline.settings import Settings

MOST_ASSETS = 100
"""One tick reports to at most this many assets, with two events each. The event log takes about 100 events a second."""

_TABLE = "compaction/table"
_NO_ASSET = f"no table names an asset of yours: set the property '{ASSET_KEY}' of a table, or `asset_keys` of CompactionPipeline"


def own_assets_sensor(names: Names, settings: Settings, choices: Choices, checked: frozenset[AssetLevels]) -> dg.SensorDefinition:
    """The sensor `own_assets_sensor`. `checked` are the assets whose checks this load defines."""
    return ticking(
        names,
        "own_assets_sensor",
        partial(_own_assets_tick, choices, checked),
        every=settings.sensor_interval_seconds,
        description=(
            f"Tells your own assets how their tables are. A table names its asset in the property '{ASSET_KEY}'. The asset gets an "
            "observation with the table's health and its last compaction, and the check `compaction_health`. It starts no run."
        ),
    )


def _own_assets_tick(
    choices: Choices, checked: frozenset[AssetLevels], names: Names, context: dg.SensorEvaluationContext, services: Services
) -> dg.SensorResult:
    assets, reports = services.read_tables.asset_reports(choices.asset_keys, taken(names))
    remember(names, assets.tables, services.settings.home)
    by_key = {dg.AssetKey(list(report.asset)): report for report in reports}
    materialized = _materialized(context.instance, by_key)
    told = _told(context.cursor)
    now = services.clock()
    due = [key for key, report in by_key.items() if _is_due(report, told.get(_short(key)), materialized.get(key), now)][:MOST_ASSETS]
    events: list[dg.AssetObservation | dg.AssetCheckEvaluation] = []
    for key in due:
        report = by_key[key]
        metadata = report_metadata(names, report, _last_record(services, report))
        if key in materialized or not _is_observed_by_others(context.instance, key):
            events.append(dg.AssetObservation(key, description=report.table.reason, metadata=metadata))
        events.append(check_event(names, report, metadata))
        told[_short(key)] = LastReport(report.told, now)
    defined = context.repository_def.asset_graph.get_all_asset_keys() if context.repository_def is not None else frozenset()
    strangers = [report for key, report in by_key.items() if key not in materialized and key not in defined]
    return dg.SensorResult(
        skip_reason=_text(assets, len(due), strangers, checked),
        cursor=_cursor({short: told[short] for short in map(_short, by_key) if short in told}),
        asset_events=events,
    )


def report_metadata(names: Names, report: AssetReport, record: CompactionRecord | None) -> dict[str, dg.MetadataValue]:
    """What an asset is told of its table. `record` is that of the last compaction. The names do not collide with the user's own."""
    table, metrics = report.table, report.table.metrics
    metadata: dict[str, dg.MetadataValue] = {
        _TABLE: dg.MetadataValue.text(str(table.table)),
        "compaction/health": dg.MetadataValue.text(table.health.value),
        "compaction/reason": dg.MetadataValue.text(table.reason),
        **score_metadata("compaction/health_score", table.score),
        "compaction/files_count": dg.MetadataValue.int(metrics.files),
        "compaction/small_files_count": dg.MetadataValue.int(metrics.small_files),
        "compaction/delete_files_count": dg.MetadataValue.int(metrics.delete_files),
        "compaction/data_mb": dg.MetadataValue.float(megabytes(metrics.data_bytes)),
        "compaction/records": dg.MetadataValue.asset(names.compaction_records),
    }
    if table.read_costs:
        metadata["compaction/read_costs"] = dg.MetadataValue.text(table.read_costs)
    if table.warning:
        metadata["compaction/warning"] = dg.MetadataValue.text(table.warning)
    if record is not None:
        figures = record.figures
        metadata["compaction/last_compaction"] = dg.MetadataValue.timestamp(record.ended_at or record.created_at)
        metadata["compaction/last_compaction_did"] = dg.MetadataValue.text(
            f"{figures.of_commit}; the table {figures.of_table}; snapshot {record.snapshot_after}, record {record.record_id}"
        )
        if record.run_id:
            metadata["compaction/last_run"] = dg.MetadataValue.dagster_run(record.run_id)
    return metadata


def _is_due(report: AssetReport, last: LastReport | None, materialized_at: float | None, now: datetime) -> bool:
    """True when there is news. Dagster also calls a check outdated when the asset was materialized after it."""
    outdated = last is not None and materialized_at is not None and materialized_at > last.at.timestamp()
    return outdated or report_is_due(report, last, now)


def _last_record(services: Services, report: AssetReport) -> CompactionRecord | None:
    if not report.landed:
        return None
    newest = services.read_records.newest(report.table.table)
    return next((record for record in newest if record.status is RecordStatus.COMMITTED and record.committed_task_ids), None)


def _materialized(instance: dg.DagsterInstance, keys: Collection[dg.AssetKey]) -> Mapping[dg.AssetKey, float]:
    """When each of these assets was materialized the last time, in seconds since 1970. One that never was is missing."""
    entries = [record.asset_entry for record in instance.get_asset_records(list(keys))] if keys else []
    return {entry.asset_key: entry.last_materialization.timestamp for entry in entries if entry.last_materialization is not None}


def _is_observed_by_others(instance: dg.DagsterInstance, key: dg.AssetKey) -> bool:
    """True for an asset that somebody else observes. Dagster takes each observation of such an asset for an update of its data."""
    newest = instance.fetch_observations(key, limit=1).records
    observation = newest[0].asset_observation if newest else None
    return observation is not None and _TABLE not in observation.metadata


def _text(assets: OwnAssets, reported: int, strangers: Sequence[AssetReport], checked: frozenset[AssetLevels]) -> str:
    """What the tick found. It names the first of each kind that needs a person."""
    if not assets.tables and not assets.problems:
        return _NO_ASSET
    parts = [f"{reported} of {count_text(len(assets.tables), 'asset')} told of changes"]
    if assets.problems:
        parts.append(f"{count_text(len(assets.problems), 'table')} without an asset, e.g. {assets.problems[0]}")
    if strangers:
        first = strangers[0]
        parts.append(
            f"{count_text(len(strangers), 'asset')} never materialized, e.g. {asset_key_text(first.asset)}, "
            f"which {first.table.table} names: correct the key if no code location defines this asset"
        )
    undefined = frozenset(assets.tables) ^ checked
    if undefined:
        parts.append(f"reload this code location, so that the checks of {count_text(len(undefined), 'asset')} appear or go")
    return "; ".join(parts)


def _short(key: dg.AssetKey) -> str:
    """The key in the cursor, 10 hex digits. Dagster stores the cursor with every tick, so it is kept small."""
    return sha256(key.to_user_string().encode()).hexdigest()[:10]


def _told(cursor: str | None) -> dict[str, LastReport]:
    """What was told to each asset the last time, as the cursor says."""
    told = {}
    for short, text in json.loads(cursor or "{}").items():
        facts, figures, at = text.split()
        told[short] = LastReport((facts, figures), datetime.fromtimestamp(int(at), timezone.utc))
    return told


def _cursor(told: Mapping[str, LastReport]) -> str:
    return json.dumps({short: f"{' '.join(last.told)} {last.at.timestamp():.0f}" for short, last in told.items()})
