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


@dataclass(frozen=True, slots=True)
class OfCatalog:
    """What counts for a table because of its catalog.

    `observed` is True when the catalog is only measured. `left_out` says which of its filters leaves the table out. `policies` are those
    that the catalog itself has for the table.
    """

    properties: Mapping[str, str]
    observed: bool = False
    left_out: str | None = None
    policies: TablePolicies | None = None


def admission(index: TableIndex, whole: Complete | Empty | None, catalog: OfCatalog, *, paused: bool, force: bool) -> Admitted | PlanReason:
    """Return what a plan is made from, or the reason why nothing may be planned.

    `whole` is the index, or None when a plan may not trust it (`KnownTable.whole`). `force` is True when a person asked for work even on a
    table whose properties want none. A policy of the catalog that forbids compaction wins over that too.
    """
    if index.refusal is not None:
        return PlanReason(PlanReasonCode.REFUSED, index.refusal)
    if paused:
        return PlanReason(
            PlanReasonCode.PAUSED, f"a person paused it; `resume_job` of Dagster or `compaction-pipeline resume {index.table}` ends this"
        )
    if catalog.left_out is not None:
        return PlanReason(PlanReasonCode.DISABLED, catalog.left_out)
    if catalog.observed:
        return PlanReason(
            PlanReasonCode.OBSERVED,
            f"catalog {index.table.catalog} is only observed: `compaction-pipeline catalog change {index.table.catalog} --no-observe` lets "
            "its tables be compacted (or set `observe: false` in the component that declares it)",
        )
    forbidden = catalog.policies.why_not(PolicyType.COMPACTION) if catalog.policies is not None else None
    if forbidden is not None:
        return PlanReason(PlanReasonCode.DISABLED, forbidden)
    if whole is None:
        return PlanReason(PlanReasonCode.BEING_READ, index.problem or "the table's files are still being read")
    try:
        properties = resolve_properties(whole.loaded.layout.properties, inherited(catalog.properties, catalog.policies), index.table)
    except ConfigError as error:
        return PlanReason(PlanReasonCode.INVALID_PROPERTY, str(error))
    if not properties.enabled and not force:
        return PlanReason(PlanReasonCode.DISABLED, f"{properties.disabled_by} on this table")
    if isinstance(whole, Empty):
        return PlanReason(PlanReasonCode.EMPTY_TABLE, "the table has no snapshot yet")
    return Admitted(whole, properties)
