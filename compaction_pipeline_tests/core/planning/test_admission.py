"""Which tables may be planned at all, and which reason is given when there are several."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compaction_pipeline.core.fragmentation.verdict import PlanReasonCode
from compaction_pipeline.core.planning.admission import Admitted, OfCatalog, admission
from compaction_pipeline.core.tables.index import Complete, Empty, Failed, Refused, TableIndex
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline_tests.builders import COMPLETE, LAYOUT, LOADED, NOW, TABLE


def with_property(key: str, value: str) -> Complete:
    return replace(COMPLETE, loaded=replace(LOADED, layout=replace(LAYOUT, properties={key: value})))


DISABLED = with_property("self-optimizing.enabled", "false")
BROKEN = with_property("self-optimizing.fragment-ratio", "1")
EMPTY = Empty(LOADED, "m1", "read 1", NOW)


def code(
    index: TableIndex, whole: Complete | Empty | None, *, paused: bool = False, observed: bool = False, force: bool = False
) -> PlanReasonCode | None:
    """The code of the reason, or None for a table that may be planned."""
    answer = admission(index, whole, OfCatalog({}, observed), paused=paused, force=force)
    return None if isinstance(answer, Admitted) else answer.code


def test_a_whole_index_is_admitted_with_the_properties_in_force() -> None:
    catalog = OfCatalog({"table.self-optimizing.priority": "7"})
    answer = admission(TableIndex(TABLE, COMPLETE), COMPLETE, catalog, paused=False, force=False)
    assert answer == Admitted(COMPLETE, TableProperties(priority=7))


@pytest.mark.parametrize(
    ("whole", "reason"),
    [
        (None, PlanReasonCode.BEING_READ),
        (BROKEN, PlanReasonCode.INVALID_PROPERTY),
        (DISABLED, PlanReasonCode.DISABLED),
        (EMPTY, PlanReasonCode.EMPTY_TABLE),
    ],
)
def test_decisions_of_a_person_come_before_reasons_of_the_files(whole: Complete | Empty | None, reason: PlanReasonCode) -> None:
    index = TableIndex(TABLE, whole or Failed("away"))
    assert code(index, whole) is reason
    assert code(index, whole, observed=True) is PlanReasonCode.OBSERVED
    assert code(index, whole, observed=True, paused=True) is PlanReasonCode.PAUSED
    assert code(index.turned(Refused("v3")), None, observed=True, paused=True) is PlanReasonCode.REFUSED


def test_force_ignores_that_a_table_is_disabled() -> None:
    assert code(TableIndex(TABLE, DISABLED), DISABLED, force=True) is None
    assert code(TableIndex(TABLE, BROKEN), BROKEN, force=True) is PlanReasonCode.INVALID_PROPERTY


def test_a_table_that_is_not_read_whole_says_why() -> None:
    reason = admission(TableIndex(TABLE, Failed("the catalog is away")), None, OfCatalog({}), paused=False, force=False)
    assert not isinstance(reason, Admitted)
    assert reason.text == "the catalog is away"
