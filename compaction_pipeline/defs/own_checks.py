"""The check on assets of users that stand for tables. It is defined here, and Dagster shows it on the asset, wherever that one is defined.

Definitions are made without a look into the state database. So a sensor writes the keys of these assets into a small file, and the next
load of the code location reads it. Runs have the checks of the load that launched them, also where this file is missing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path

import dagster as dg

from compaction_pipeline.core.insight.own_assets import AssetLevels, AssetReport
from compaction_pipeline.defs.choices import Choices
from compaction_pipeline.defs.load_state import read_at_load
from compaction_pipeline.defs.names import Names
from compaction_pipeline.defs.resources import services_of

log = logging.getLogger(__name__)

CHECK = "compaction_health"
_DESCRIPTION = (
    "compaction_pipeline can keep the table behind this asset compacted. When this is red, the table is refused or cannot be read, or the "
    "work on it fails. The reason says what to do."
)


def taken(names: Names) -> frozenset[AssetLevels]:
    """The program's own assets, which can stand for no table."""
    return frozenset(tuple(key.path) for key in names.assets)


def checked_assets(names: Names, choices: Choices, home: Path) -> frozenset[AssetLevels]:
    """The assets whose checks this load defines: those that the component names, or that a property of a table named at the last tick."""
    key = "/".join(["compaction_pipeline", "own_assets", *names.asset_prefix])
    named = _parsed(read_at_load(key, lambda: _text(remembered(names, home))))
    return frozenset([*choices.asset_keys.values(), *named]) - taken(names)


def own_checks(names: Names, choices: Choices, checked: Iterable[AssetLevels]) -> list[dg.AssetChecksDefinition]:
    """One check for each of these assets."""
    return [_definition(names, choices, levels) for levels in sorted(checked)]


def check_event(names: Names, report: AssetReport, metadata: dict[str, dg.MetadataValue]) -> dg.AssetCheckEvaluation:
    """Judge the table of one asset now."""
    return dg.AssetCheckEvaluation(
        asset_key=dg.AssetKey(list(report.asset)),
        check_name=names.of(CHECK),
        passed=report.is_well,
        metadata=metadata,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"{report.table.table} is {report.table.health.value}: {report.table.reason}",
    )


def remembered(names: Names, home: Path) -> frozenset[AssetLevels]:
    """The assets that the last tick wrote down in this folder. The set is empty when there is no file, or when the file is damaged."""
    try:
        return _parsed(_file(names, home).read_text())
    except (OSError, ValueError, TypeError):
        return frozenset()


def remember(names: Names, assets: Iterable[AssetLevels], home: Path) -> None:
    """Write these assets down for the next load, unless the file holds them already."""
    wanted = frozenset(assets)
    if wanted == remembered(names, home):
        return
    try:
        _file(names, home).write_text(_text(wanted))
    except OSError as error:
        log.warning("%s not written, so the check %s of new assets stays undefined: %s", _file(names, home), CHECK, error)


def _text(assets: frozenset[AssetLevels]) -> str:
    return json.dumps(sorted(assets))


def _parsed(text: str) -> frozenset[AssetLevels]:
    return frozenset(tuple(str(level) for level in levels) for levels in json.loads(text))


def _file(names: Names, home: Path) -> Path:
    # Several sets of definitions may share a home.
    return home.expanduser() / names.of("own_assets.json")


def _definition(names: Names, choices: Choices, levels: AssetLevels) -> dg.AssetChecksDefinition:
    key = dg.AssetKey(list(levels))

    @dg.asset_check(asset=key, name=names.of(CHECK), description=_DESCRIPTION, required_resource_keys={names.compaction})
    def judged() -> dg.AssetCheckResult:
        services = services_of(names, dg.OpExecutionContext.get())
        _, reports = services.read_tables.asset_reports(choices.asset_keys, taken(names))
        report = next((report for report in reports if report.asset == levels), None)
        if report is None:
            text = "no table names this asset any more: reload the code location of compaction_pipeline, and the check goes"
            return dg.AssetCheckResult(passed=True, description=text)
        event = check_event(names, report, {})
        return dg.AssetCheckResult(passed=event.passed, severity=event.severity, description=event.description)

    return judged
