"""Decides whether a table may be planned at all, before anyone looks at its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.fragmentation.verdict import PlanReason, PlanReasonCode
from compaction_pipeline.core.tables.index import Complete, Empty, TableIndex
from compaction_pipeline.core.tables.policies import PolicyType, TablePolicies, inherited
from compaction_pipeline.core.tables.properties import TableProperties, resolve_properties


@dataclass(frozen=True, slots=True)
class Admitted:
    """The one snapshot that a plan is made from, and the properties in force."""

    read: Complete
    properties: TableProperties


def admission(
    index: TableIndex,
    whole: Complete | Empty | None,
    of_catalog: Mapping[str, str],
    *,
    policies: TablePolicies | None = None,
    paused: bool,
    observed: bool,
    left_out: str | None = None,
    force: bool,
) -> Admitted | PlanReason:
    """Return what a plan is made from, or the reason why nothing may be planned.

    `whole` is the index, or None when a plan may not trust it (`KnownTable.whole`). `observed` is True when the table's catalog is only
    measured. `left_out` says which filter of the catalog leaves the table out; None when none does. `force` is True when a person asked for
    work even on a table whose properties want none. A policy of the catalog that forbids compaction wins over that too.
    """
    if index.refusal is not None:
        return PlanReason(PlanReasonCode.REFUSED, index.refusal)
    if paused:
        return PlanReason(
            PlanReasonCode.PAUSED, f"a person paused it; `resume_job` of Dagster or `compaction-pipeline resume {index.table}` ends this"
        )
    if left_out is not None:
        return PlanReason(PlanReasonCode.DISABLED, left_out)
    if observed:
        return PlanReason(
            PlanReasonCode.OBSERVED,
            f"catalog {index.table.catalog} is only observed: `compaction-pipeline catalog change {index.table.catalog} --no-observe` lets "
            "its tables be compacted (or set `observe: false` in the component that declares it)",
        )
    forbidden = policies.why_not(PolicyType.COMPACTION) if policies is not None else None
    if forbidden is not None:
        return PlanReason(PlanReasonCode.DISABLED, forbidden)
    if whole is None:
        return PlanReason(PlanReasonCode.BEING_READ, index.problem or "the table's files are still being read")
    try:
        properties = resolve_properties(whole.loaded.layout.properties, inherited(of_catalog, policies), index.table)
    except ConfigError as error:
        return PlanReason(PlanReasonCode.INVALID_PROPERTY, str(error))
    if not properties.enabled and not force:
        return PlanReason(PlanReasonCode.DISABLED, f"{properties.disabled_by} on this table")
    if isinstance(whole, Empty):
        return PlanReason(PlanReasonCode.EMPTY_TABLE, "the table has no snapshot yet")
    return Admitted(whole, properties)
