"""Health of a node in one word, with its reason, until there is a score."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from compaction_pipeline.core.fragmentation.verdict import NodeVerdict, PlanReasonCode


class HealthStatus(str, Enum):
    """HEALTHY: nothing to gain. DUE: work is planned, or runs. WAITING: due, but held. REFUSED: never. FAILING: work failed."""

    HEALTHY = "HEALTHY"
    DUE = "DUE"
    WAITING = "WAITING"
    REFUSED = "REFUSED"
    FAILING = "FAILING"


@dataclass(frozen=True, slots=True)
class Health:
    """The word and why."""

    status: HealthStatus
    reason: str


SETTLED = frozenset({PlanReasonCode.NOT_FRAGMENTED, PlanReasonCode.NO_GAIN, PlanReasonCode.EMPTY_TABLE, PlanReasonCode.NOT_REQUESTED})
"""Why a node, or a table, needs nothing."""


def node_health(verdict: NodeVerdict | None, refusal: str | None = None, failing: str | None = None) -> Health:
    """Health from the last verdict, the table's refusal and the node's last failure; a refusal outranks all."""
    if refusal is not None:
        return Health(HealthStatus.REFUSED, refusal)
    if failing is not None:
        return Health(HealthStatus.FAILING, failing)
    if verdict is None:
        return Health(HealthStatus.WAITING, "no plan stored yet: sensors or `compact` store one")
    code, text = verdict.reason.code, verdict.reason.text
    if code in (PlanReasonCode.REFUSED, PlanReasonCode.LIVE_TWICE):
        return Health(HealthStatus.REFUSED, text)
    if code is PlanReasonCode.INVALID_PROPERTY:
        return Health(HealthStatus.FAILING, text)
    if code is PlanReasonCode.PLANNED or (code is PlanReasonCode.FILES_IN_USE and verdict.type is None):
        # Without a type nothing is due beside the tasks that hold the node's files.
        return Health(HealthStatus.DUE, text)
    if code in SETTLED or verdict.type is None:
        return Health(HealthStatus.HEALTHY, text)
    return Health(HealthStatus.WAITING, text)
