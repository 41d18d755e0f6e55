"""Gives the health of a node or a table in one word, with the reason."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from compaction_pipeline.core.fragmentation.verdict import NOTHING_TO_DO, NodeVerdict, PlanReasonCode


class HealthStatus(str, Enum):
    """The health of a node or a table in one word."""

    HEALTHY = "HEALTHY"
    """No work is due by the table's properties, or it would gain nothing."""
    DUE = "DUE"
    """Work is planned or runs."""
    WAITING = "WAITING"
    """Something holds it back: its work cannot be done now or waits for a commit, it is paused, or its files are not read."""
    REFUSED = "REFUSED"
    """The program never compacts it as it is now."""
    FAILING = "FAILING"
    """Work on it failed."""


@dataclass(frozen=True, slots=True)
class Health:
    """The word and the sentence that gives the reason."""

    status: HealthStatus
    reason: str


SETTLED = NOTHING_TO_DO | {PlanReasonCode.NOT_REQUESTED}
"""Reasons of a plan for which nothing is due on a node or a table, or the work would gain nothing."""


def node_health(verdict: NodeVerdict | None, refusal: str | None = None, failing: str | None = None) -> Health:
    """Return the health of a node.

    A refusal of the table outranks everything, and a failure of the node's last task outranks the last verdict. `refusal` and
    `failing` are the reasons of these two, None when there is none. `verdict` is None while no plan has judged the node.
    """
    if refusal is not None:
        return Health(HealthStatus.REFUSED, refusal)
    if failing is not None:
        return Health(HealthStatus.FAILING, failing)
    if verdict is None:
        return Health(HealthStatus.WAITING, "no plan has looked at it yet: the sensors or `compact` make one")
    code, text = verdict.reason.code, verdict.reason.text
    if code in (PlanReasonCode.REFUSED, PlanReasonCode.LIVE_TWICE):
        return Health(HealthStatus.REFUSED, text)
    if code in (PlanReasonCode.INVALID_PROPERTY, PlanReasonCode.GROUP_MISSING):
        return Health(HealthStatus.FAILING, text)
    if code is PlanReasonCode.PLANNED or (code is PlanReasonCode.FILES_IN_USE and verdict.type is None):
        # FILES_IN_USE without a type says that tasks hold the node's files, and that nothing else is due.
        return Health(HealthStatus.DUE, text)
    if code in SETTLED or verdict.type is None:
        return Health(HealthStatus.HEALTHY, text)
    return Health(HealthStatus.WAITING, text)
