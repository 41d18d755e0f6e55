"""Figures of nodes that an older version stored: they have no rows of deletes by kind."""

from __future__ import annotations

from sqlalchemy.dialects.sqlite import dialect

from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.storage.schema import node

OLD = (
    '{"data_files":3,"small_data_files":3,"small_data_bytes":9,"data_bytes":9,"position_delete_files":0,"equality_delete_files":1,'
    '"small_delete_files":1,"small_delete_bytes":1,"delete_bytes":1,"rows":300,"deleted_rows_estimate":5}'
)


def stored(text: str) -> NodeMetrics:
    metrics = node.c.metrics.type.process_result_value(text, dialect())
    assert isinstance(metrics, NodeMetrics)
    return metrics


def test_figures_without_rows_of_deletes_are_read_and_say_so() -> None:
    assert (stored(OLD).rows, stored(OLD).tells_deletes) == (300, False)


def test_figures_of_a_node_without_deletes_are_complete_whoever_stored_them() -> None:
    assert stored(OLD.replace('"deleted_rows_estimate":5', '"deleted_rows_estimate":0')).tells_deletes


def test_figures_come_back_with_their_rows_of_deletes() -> None:
    figures = NodeMetrics(data_files=1, rows=9, deleted_rows_estimate=5, equality_delete_rows=3, deleted_positions=2)
    text = node.c.metrics.type.process_bind_param(figures, dialect())
    assert text is not None
    assert (stored(text), stored(text).tells_deletes) == (figures, True)
