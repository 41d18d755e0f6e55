"""The inputs of a task that merges changes into the base store, checked: each file is what its place in the task says.

A file that is not would cost rows without an error: a delete file read as inserts revives its rows, and a base file with rows of other
nodes than the task's would miss their deletes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from compaction_pipeline.core.errors import ConfigError, MergeFailed, MergeRefused, TableRefused
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.core.tables.keyed.creation import BASE_BUCKETS_KEY, DEFAULT_BUCKETS, check_buckets
from compaction_pipeline.core.tables.keyed.file_names import KeyedFile, KeyedFileType, base_file, change_file
from compaction_pipeline.core.tables.keyed.merge_on_read import KeyedInput, NodeRead
from compaction_pipeline.core.tables.keyed.tree import DataTreeNode
from compaction_pipeline.core.tables.table import KeyedLayout
from compaction_pipeline.core.work.merge_input import MergeInput
from compaction_pipeline.core.work.work import ChangeSpan, ToBase
from compaction_pipeline.merging.keyed.change_columns import Span
from compaction_pipeline.merging.reading.read import TableShape


@dataclass(frozen=True, slots=True)
class ToBaseInputs:
    """What a task reads, and how.

    `mask` is that of the nodes of its outputs. `name_floor` is the highest transaction that the names of the rewritten base files tell;
    0 without such files. `marked` are the paths of the base files that stay.
    """

    read: NodeRead
    span: Span
    marked: frozenset[str]
    mask: int
    name_floor: int
    keyed: KeyedLayout


def inputs_of(task: MergeInput[ToBase], shape: TableShape) -> ToBaseInputs:
    """The inputs of a TO_BASE task. Raises MergeFailed for a task that must be planned again, and MergeRefused for files that cannot be
    merged."""
    work, changes = task.work, task.work.changes
    keyed = shape.layout.kind.of_task(f"task {task.task_id} merges changes into a base store")
    _check_schema(task, shape, keyed)
    _check_files(work, changes)
    base = _named(work.inputs, lambda file: base_file(file.path), KeyedFileType.BASE)
    inserts = _named(changes.inserts, lambda file: change_file(file.path, file.data_sequence_number), KeyedFileType.INSERT)
    deletes = _named(changes.deletes, lambda file: change_file(file.path, file.data_sequence_number), KeyedFileType.EQUALITY_DELETE)
    _check_base(work, changes, base)
    mask = max(_buckets(shape) - 1, work.node.tree.mask)
    nodes = {each.named.node for each in (*base, *inserts, *deletes)}
    # Deletes and rows of one key meet in the task. A reader lets them meet when their nodes share rows, as the files' names tell. The two
    # are the same when all nodes share rows, or when each key lies in the node of its file. Rows that get new nodes by their keys need
    # that too: the deletes that come later are filed by those keys.
    checks = not _is_chain(nodes) or mask != work.node.tree.mask or any(not node.is_within(work.node.tree) for node in nodes)
    floor = max((each.named.transaction_id for each in base if each.file.path not in changes.marked), default=0)
    return ToBaseInputs(
        read=NodeRead(work.node, base, inserts, deletes, work.deletes, changes.above),
        span=Span(changes.above, changes.up_to, work.node.tree, checks),
        marked=frozenset(changes.marked),
        mask=mask,
        name_floor=floor,
        keyed=keyed,
    )


def _is_chain(nodes: Iterable[DataTreeNode]) -> bool:
    """Whether each two of the nodes share rows."""
    down = sorted(nodes, key=lambda node: node.mask)
    return all(deeper.is_within(node) for node, deeper in pairwise(down))


def _check_schema(task: MergeInput[ToBase], shape: TableShape, keyed: KeyedLayout) -> None:
    """Columns that the plan's schema lacks would be lost with the changes that have them."""
    schema, change = shape.schema_of_plan(task.schema_id), TableShape.of(keyed.change)
    unknown = sorted(change.schemas[keyed.change.schema_id].field_ids - schema.field_ids)
    if unknown:
        raise MergeFailed(
            f"the change store has a column with the field id {unknown[0]}, but the schema that the task was planned with has none: finish "
            "the change of the schema in both stores, and plan the node again"
        )
    top = {field.field_id for field in schema.fields}
    missing = [number for number in keyed.primary_key if number not in top]
    if missing or not keyed.primary_key:
        raise MergeRefused(
            f"the primary key has the field ids {keyed.primary_key}, but each must be a top-level column of the base store, and there must "
            "be one at least"
        )


def _check_files(work: ToBase, changes: ChangeSpan) -> None:
    if work.output_spec_id != work.node.spec_id:
        raise MergeFailed(
            f"the task writes partition spec {work.output_spec_id}, but its node has spec {work.node.spec_id}; plan the node again"
        )
    place = (work.node.spec_id, work.node.partition)
    files = (*work.inputs, *changes.inserts, *changes.deletes)
    for file in files:
        if file.content is not FileContent.DATA:
            raise MergeFailed(f"file {file.path} holds {file.content.value}, but the task needs data files there; plan the node again")
        if (file.spec_id, file.partition) != place:
            raise MergeFailed(
                f"file {file.path} is of partition {file.partition} of spec {file.spec_id}, but the task merges partition {place[1]} of "
                f"spec {place[0]}; plan the node again"
            )
    twice = [path for path, count in Counter(file.path for file in files).items() if count > 1]
    if twice:
        raise MergeRefused(f"file {twice[0]} is there twice, as in the base store and among the changes, so its rows would appear twice")
    unknown = set(changes.marked) - {file.path for file in work.inputs}
    if unknown:
        raise MergeFailed(f"file {min(unknown)} gets position deletes, but it is no input of the task; plan the node again")
    if changes.above is not None and changes.above > changes.up_to:
        raise MergeFailed(
            f"the task merges changes above {changes.above} and up to {changes.up_to}: no change is both; plan the node again"
        )


def _check_base(work: ToBase, changes: ChangeSpan, base: Sequence[KeyedInput]) -> None:
    for each in base:
        if not each.named.node.is_within(work.node.tree):
            raise MergeFailed(
                f"base file {each.file.path} has rows of the tree node {each.named.node.id}, but the task applies changes of node "
                f"{work.node.tree.id} only, so deletes of other nodes would miss their rows; plan the file in a task of node "
                f"{each.named.node.id} or of one above it"
            )
        if each.named.transaction_id > changes.up_to and each.file.path not in changes.marked:
            raise MergeRefused(
                f"base file {each.file.path} tells the transaction {each.named.transaction_id} by its name, but changes are merged up to "
                f"{changes.up_to} only: its rows cannot get one place in the log of changes with other rows. Wait until later changes can "
                "be merged too, or find out who wrote the file"
            )


def _named(files: Sequence[LiveFile], name: Callable[[LiveFile], KeyedFile], kind: KeyedFileType) -> tuple[KeyedInput, ...]:
    found = []
    for file in files:
        try:
            named = name(file)
        except TableRefused as error:
            raise MergeRefused(str(error)) from error
        if named.type is not kind:
            raise MergeRefused(
                f"file {file.path} is called a file of type {named.type.value}, but the task needs one of type {kind.value} there; find "
                "out who added it"
            )
        found.append(KeyedInput(file, named))
    return tuple(found)


def _buckets(shape: TableShape) -> int:
    text = shape.layout.properties.get(BASE_BUCKETS_KEY, str(DEFAULT_BUCKETS))
    try:
        buckets = int(text)
        check_buckets(buckets)
    except (ValueError, ConfigError) as error:
        raise MergeRefused(f"'{BASE_BUCKETS_KEY}' of the base store is {text!r} but must be a power of two ({error})") from error
    return buckets
