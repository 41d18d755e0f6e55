"""The JSON of each kind of work. State databases keep it, and optimizers of earlier releases read and send it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.work.kinds import CompactionType, TaskAction
from compaction_pipeline.core.work.work import ChangeSpan, Work
from compaction_pipeline_tests import builders
from compaction_pipeline_tests.works import KINDS, task_work

TASK: TypeAdapter[CompactionTask] = TypeAdapter(CompactionTask)
DATA, DELETE = builders.data("a"), builders.data("d")

FILE = {
    "content": "DATA",
    "spec_id": 0,
    "partition": [{"name": "dt", "type": "string", "value": "1"}],
    "file_size_bytes": 10000,
    "record_count": 100,
    "data_sequence_number": 1,
    "manifest_path": "",
    "added_snapshot_id": 0,
    "equality_ids": [],
    "referenced_data_file": None,
    "path_lower": None,
    "path_upper": None,
    "sort_order_id": None,
}
A, D = {"path": "a", **FILE}, {"path": "d", **FILE}
SAME = {
    "node": {"spec_id": 0, "partition": FILE["partition"], "tree": {"mask": 0, "index": 0}},
    "type": "MINOR",
    "output_spec_id": 1,
    "target_size_bytes": 1000,
    "fragment_size_bytes": 100,
    "group": "p/g",
    "predicted_files": 2,
    "predicted_bytes": 30,
}
CHANGES = {"inserts": [A], "deletes": [D], "above": None, "up_to": 9, "change_snapshot_id": 7, "marked": ["a"], "tasks": 2}
# As 77fcefb wrote them, when all kinds were one class.
STORED: dict[TaskAction, dict[str, Any]] = {
    TaskAction.MERGE: {"inputs": [A], "deletes": [D], "converts": [], "changes": None},
    TaskAction.CONVERT: {"inputs": [A], "deletes": [D], "converts": ["d"], "changes": None},
    TaskAction.DROP_DELETES: {"inputs": [], "deletes": [D], "converts": [], "changes": None},
    TaskAction.TO_BASE: {"inputs": [A], "deletes": [D], "converts": ["d"], "changes": CHANGES},
    TaskAction.REWRITE_CHANGES: {"inputs": [A], "deletes": [], "converts": [], "changes": None},
}


def work_of(action: TaskAction) -> Work:
    own: dict[str, Any] = {"converts": ("d",)} if action in (TaskAction.CONVERT, TaskAction.TO_BASE) else {}
    if action is TaskAction.TO_BASE:
        own["changes"] = ChangeSpan((DATA,), (DELETE,), None, 9, 7, ("a",), 2)
    inputs = () if action is TaskAction.DROP_DELETES else (DATA,)
    deletes = () if action is TaskAction.REWRITE_CHANGES else (DELETE,)
    work: Work = task_work(
        builders.node(),
        CompactionType.MINOR,
        action,
        inputs,
        deletes,
        1,
        1000,
        100,
        group="p/g",
        predicted_files=2,
        predicted_bytes=30,
        **own,
    )
    return work


@pytest.mark.parametrize("action", TaskAction)
def test_work_is_written_as_ever_and_read_as_its_kind(action: TaskAction) -> None:
    task = replace(builders.task("t1"), work=work_of(action))
    written = json.loads(TASK.dump_json(task))["work"]
    assert written == {**SAME, "action": action.value, **STORED[action]}
    read = TASK.validate_json(TASK.dump_json(task))
    assert read == task
    assert type(read.work) is KINDS[action]


@pytest.mark.parametrize("action", TaskAction)
def test_a_kind_is_told_by_its_action_alone(action: TaskAction) -> None:
    work: TypeAdapter[Work] = TypeAdapter(Work)
    read = work.validate_json(work.dump_json(work_of(action)))
    assert (type(read), read) == (KINDS[action], work_of(action))


@pytest.mark.parametrize(
    ("action", "more"),
    [
        (TaskAction.MERGE, {"converts": ["d"]}),
        (TaskAction.MERGE, {"changes": CHANGES}),
        (TaskAction.CONVERT, {"changes": CHANGES}),
        (TaskAction.DROP_DELETES, {"inputs": [A]}),
        (TaskAction.DROP_DELETES, {"converts": ["d"]}),
        (TaskAction.DROP_DELETES, {"changes": CHANGES}),
        (TaskAction.TO_BASE, {"changes": None}),
        (TaskAction.REWRITE_CHANGES, {"deletes": [D]}),
        (TaskAction.REWRITE_CHANGES, {"converts": ["d"]}),
        (TaskAction.REWRITE_CHANGES, {"changes": CHANGES}),
    ],
)
def test_work_with_what_its_kind_never_has_is_refused(action: TaskAction, more: dict[str, Any]) -> None:
    written = json.loads(TASK.dump_json(replace(builders.task("t1"), work=work_of(action))))
    written["work"] |= more
    with pytest.raises(ValidationError, match=next(iter(more))):
        TASK.validate_json(json.dumps(written))


def test_an_action_that_nobody_knows_is_an_error() -> None:
    written = json.loads(TASK.dump_json(builders.task("t1")))
    written["work"]["action"] = "POLISH"
    with pytest.raises(ValidationError, match="POLISH"):
        TASK.validate_json(json.dumps(written))
