"""Which paths a worker may report: exactly those that the writers of its task give to files.

A path is compared, and never cleaned. Libraries do not open what a text seems to say: PyIceberg cuts a query and a fragment off, and file
systems join slashes and follow dots. A path that differs from the writer's form by one character may therefore be another file's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.tables.data_file import FileContent, OutputFile
from compaction_pipeline.core.tables.keyed.file_names import KeyedFileType, base_file, parse_name
from compaction_pipeline.core.tables.keyed.partition_paths import path_fields, path_of
from compaction_pipeline.core.tables.node import Partition, Place
from compaction_pipeline.core.tables.output_names import partition_folder
from compaction_pipeline.core.tables.table import TableLayout, data_folder
from compaction_pipeline.core.work.kinds import TaskAction
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.core.work.work import written_layout

_DIGITS = r"[0-9]{5,10}"
_HEX = r"[0-9a-f]{8}"
_PLAIN = re.compile(r"[^?#;\x00-\x1f\x7f]+")
"""A path with another character may open another file than its last part says."""
_TYPE = re.compile(r"[a-z0-9_\[\](), ]{1,40}")


def own_files(result: MergeResult) -> Sequence[str]:
    """The files that nobody but this attempt can have written, as their names show. Nothing else need be known of the attempt's table."""
    ids = re.escape(f"{result.attempt_id}-{result.task_id}-")
    name = re.compile(rf"([0-9]+-[A-Z]+-[0-9]+-00000-0-)?{ids}{_HEX}-{_DIGITS}(-deletes)?[.]parquet")
    paths = [output.path for output in result.outputs]
    return [path for path in paths if _PLAIN.fullmatch(path) and name.fullmatch(path.rpartition("/")[2])]


def lie_elsewhere(task: CompactionTask, result: MergeResult, layout: TableLayout) -> bool:
    """Return whether all files of a report have the names that the attempt gives, and none lies in the folder of the table's data files.

    Somebody may have changed that folder while the task was merged, so the optimizer is not to blame.
    """
    written = written_layout(task.work.action, layout)
    folder = data_folder(written.location, written.properties)
    paths = [output.path for output in result.outputs]
    return bool(paths) and not any(path.startswith(f"{folder}/") for path in paths) and len(own_files(result)) == len(paths)


@dataclass(frozen=True, slots=True)
class ReportedPlaces:
    """Where the files of one task may lie. `layout` is that of what the task writes to.

    `place_of` are the places of the task's inputs by path, and `floor` is the last transaction that the names of its base files tell. A
    report may name thousands of files, and so may a task, so both are found once.
    """

    task: CompactionTask
    layout: TableLayout
    place_of: Mapping[str, Place]
    places: frozenset[Place]
    floor: int

    @classmethod
    def of(cls, task: CompactionTask, layout: TableLayout) -> ReportedPlaces:
        """The places of a task of the table with this layout."""
        place_of: Mapping[str, Place] = {file.path: (file.spec_id, file.partition) for file in task.work.inputs}
        merges_changes = task.work.changes is not None
        floor = max((base_file(file.path).transaction_id for file in task.work.rewritten), default=0) if merges_changes else 0
        return cls(task, written_layout(task.work.action, layout), place_of, frozenset(place_of.values()), floor)

    def problems(self, output: OutputFile) -> Iterator[str]:
        """Why the partition, the folder or the name of a file cannot be those that the task gives to it."""
        strange = [value.type for value in output.partition if not _TYPE.fullmatch(value.type)]
        if strange:
            yield f"a partition value of file {output.path} has the type {strange[0]!r}, which is none"
            return
        place = self._place(output)
        if place is None:
            yield f"file {output.path} is of partition {list(map(str, output.partition))} of spec {output.spec_id}, not the task's"
            return
        folder = self._folder(place[1])
        if not output.path.startswith(f"{folder}/"):
            yield f"file {output.path} does not lie in {folder}, the folder of its partition"
        elif not re.fullmatch(self._name(output), output.path[len(folder) + 1 :]):
            yield f"the name of file {output.path} is not one that this attempt of the task gives to such a file"
        elif self.task.work.is_of_keyed_table:
            yield from self._problems_of_keyed_name(output)

    def _place(self, output: OutputFile) -> Place | None:
        """The partition of the file, as the task knows it; None when the task writes no such file there."""
        work, told = self.task.work, (output.spec_id, output.partition)
        if output.content is FileContent.POSITION_DELETES:
            place = self.place_of.get(output.referenced_data_file or "")
            places = frozenset(() if place is None else (place,))
        elif work.is_of_keyed_table:
            places = frozenset({work.node.place})
        else:
            places = self.places
            if len(places) != 1 or next(iter(places))[0] != work.output_spec_id:
                # Only the rows tell to which partitions of the spec they go.
                return told if output.spec_id == work.output_spec_id and self._has_fields(output.partition) else None
        # The types in the task's own values are right. The comparison leaves those of the report out.
        return next((place for place in places if place == told), None)

    def _has_fields(self, partition: Partition) -> bool:
        spec = self.layout.specs.get(self.task.work.output_spec_id)
        if spec is None:
            return False
        return [field["name"] for field in json.loads(spec)["fields"]] == [value.name for value in partition]

    def _folder(self, partition: Partition) -> str:
        folder = data_folder(self.layout.location, self.layout.properties)
        if not self.task.work.is_of_keyed_table:
            return partition_folder(folder, partition)
        spec = self.layout.specs[self.task.work.node.spec_id]
        return "/".join(part for part in (folder, path_of(partition, path_fields(spec, [value.type for value in partition]))) if part)

    def _name(self, output: OutputFile) -> str:
        """The regular expression of the names that the writers choose."""
        ids = re.escape(f"{self.task.current_attempt_id}-{self.task.task_id}-")
        if not self.task.work.is_of_keyed_table:
            return f"{ids}{_HEX}-{_DIGITS}{'' if output.is_data else '-deletes'}[.]parquet"
        if self.task.work.action is TaskAction.REWRITE_CHANGES:
            return f"{self.task.work.node.tree.id}-(I|ED)-0-00000-0-{ids}{_HEX}-{_DIGITS}[.]parquet"
        kind = KeyedFileType.BASE if output.is_data else KeyedFileType.POSITION_DELETE
        return f"[0-9]{{1,19}}-{kind.value}-[0-9]{{1,19}}-00000-0-{ids}{_HEX}-{_DIGITS}[.]parquet"

    def _problems_of_keyed_name(self, output: OutputFile) -> Iterator[str]:
        """What a name in a base store says decides which changes still reach the file's rows."""
        changes = self.task.work.changes
        try:
            named = parse_name(output.path)
        except TableRefused as error:
            yield str(error)
            return
        if changes is None or named is None:
            return
        if not self.floor <= named.transaction_id <= changes.up_to:
            yield (
                f"the name of file {output.path} tells transaction {named.transaction_id}, but rows of the task come after {self.floor} to "
                f"{changes.up_to}"
            )
        if not output.is_data and named.node != base_file(output.referenced_data_file or "").node:
            yield f"the name of file {output.path} tells another node than that of {output.referenced_data_file}"
        if not named.node.is_within(self.task.work.node.tree):
            yield f"the name of file {output.path} tells node {named.node.id}, but those of the task lie in {self.task.work.node.tree.id}"
