"""Which paths a worker may report: exactly those that the writers of its task give to files.

A path is compared, and never cleaned. Libraries do not open what a text seems to say: PyIceberg cuts a query and a fragment off, and file
systems join slashes and follow dots. A path that differs from the writer's form by one character may therefore be another file's.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from compaction_pipeline.core.errors import TableRefused, assert_never
from compaction_pipeline.core.tables.data_file import FileContent, OutputFile
from compaction_pipeline.core.tables.keyed.file_names import KeyedFile, KeyedFileType, base_file, parse_name
from compaction_pipeline.core.tables.keyed.partition_paths import path_fields, path_of
from compaction_pipeline.core.tables.node import Partition, Place
from compaction_pipeline.core.tables.output_names import partition_folder
from compaction_pipeline.core.tables.table import data_folder
from compaction_pipeline.core.work.merge_input import MergeInput
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.core.work.work import Convert, DropDeletes, KeyedWork, Merge, PlainWork, RewriteChanges, ToBase, Work

_DIGITS = r"[0-9]{5,10}"
_HEX = r"[0-9a-f]{8}"
_PLAIN = re.compile(r"[^?#;\x00-\x1f\x7f]+")
"""A path with another character may open another file than its last part says."""
W = TypeVar("W", bound=Work)
_TYPE = re.compile(r"[a-z0-9_\[\](), ]{1,40}")


def own_files(result: MergeResult) -> Sequence[str]:
    """The files that nobody but this attempt can have written, as their names show. Nothing else need be known of the attempt's table."""
    ids = re.escape(f"{result.attempt_id}-{result.task_id}-")
    name = re.compile(rf"([0-9]+-[A-Z]+-[0-9]+-00000-0-)?{ids}{_HEX}-{_DIGITS}(-deletes)?[.]parquet")
    paths = [output.path for output in result.outputs]
    return [path for path in paths if _PLAIN.fullmatch(path) and name.fullmatch(path.rpartition("/")[2])]


def lie_elsewhere(task: MergeInput[Work], result: MergeResult) -> bool:
    """Return whether all files of a report have the names that the attempt gives, and none lies in the folder of the table's data files.

    Somebody may have changed that folder while the task was merged, so the optimizer is not to blame.
    """
    folder = data_folder(task.work.written_layout(task.layout).location, task.work.written_layout(task.layout).properties)
    paths = [output.path for output in result.outputs]
    return bool(paths) and not any(path.startswith(f"{folder}/") for path in paths) and len(own_files(result)) == len(paths)


class ReportedPlaces(ABC, Generic[W]):
    """Where the files of one task may lie. `layout` is that of what the task writes to.

    A report may name thousands of files, and so may a task, so what all files are compared with is found once.
    """

    def __init__(self, task: MergeInput[W]) -> None:
        self.layout = task.work.written_layout(task.layout)
        self._work = task.work
        self._ids = re.escape(f"{task.attempt_id}-{task.task_id}-")
        self._place_of = {file.path: (file.spec_id, file.partition) for file in task.work.inputs}

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
        else:
            yield from self._problems_of_name(output)

    def _place(self, output: OutputFile) -> Place | None:
        """The partition of the file, as the task knows it; None when the task writes no such file there."""
        told = (output.spec_id, output.partition)
        if output.content is not FileContent.POSITION_DELETES:
            return self._place_of_data(told)
        place = self._place_of.get(output.referenced_data_file or "")
        return place if place == told else None

    @abstractmethod
    def _place_of_data(self, told: Place) -> Place | None:
        """The partition of a file that holds rows and says that it is of the partition `told`.

        The types in the task's own values are right, so those are returned. A comparison leaves types out.
        """

    @abstractmethod
    def _folder(self, partition: Partition) -> str:
        """The folder of the partition's files, without a slash at its end."""

    @abstractmethod
    def _name(self, output: OutputFile) -> str:
        """The regular expression of the names that the writers choose."""

    def _problems_of_name(self, output: OutputFile) -> Iterator[str]:
        """What is wrong with what the name says of the file's rows."""
        yield from ()


class _PlainPlaces(ReportedPlaces[PlainWork]):
    def __init__(self, task: MergeInput[PlainWork]) -> None:
        super().__init__(task)
        self._places = frozenset(self._place_of.values())

    def _place_of_data(self, told: Place) -> Place | None:
        spec_id = self._work.output_spec_id
        if len(self._places) != 1 or next(iter(self._places))[0] != spec_id:
            # Only the rows tell to which partitions of the spec they go.
            return told if told[0] == spec_id and self._has_fields(told[1]) else None
        return next((place for place in self._places if place == told), None)

    def _has_fields(self, partition: Partition) -> bool:
        spec = self.layout.specs.get(self._work.output_spec_id)
        if spec is None:
            return False
        return [field["name"] for field in json.loads(spec)["fields"]] == [value.name for value in partition]

    def _folder(self, partition: Partition) -> str:
        return partition_folder(data_folder(self.layout.location, self.layout.properties), partition)

    def _name(self, output: OutputFile) -> str:
        return f"{self._ids}{_HEX}-{_DIGITS}{'' if output.is_data else '-deletes'}[.]parquet"


KW = TypeVar("KW", bound=KeyedWork)


class _KeyedPlaces(ReportedPlaces[KW]):
    def _place_of_data(self, told: Place) -> Place | None:
        place = self._work.node.place
        return place if place == told else None

    def _folder(self, partition: Partition) -> str:
        spec = self.layout.specs[self._work.node.spec_id]
        folder = data_folder(self.layout.location, self.layout.properties)
        return "/".join(part for part in (folder, path_of(partition, path_fields(spec, [value.type for value in partition]))) if part)

    def _problems_of_name(self, output: OutputFile) -> Iterator[str]:
        try:
            named = parse_name(output.path)
        except TableRefused as error:
            yield str(error)
            return
        if named is not None:
            yield from self._problems_of_named(output, named)

    def _problems_of_named(self, output: OutputFile, named: KeyedFile) -> Iterator[str]:
        yield from ()


class _ChangePlaces(_KeyedPlaces[RewriteChanges]):
    def _name(self, output: OutputFile) -> str:
        return f"{self._work.node.tree.id}-(I|ED)-0-00000-0-{self._ids}{_HEX}-{_DIGITS}[.]parquet"


class _BasePlaces(_KeyedPlaces[ToBase]):
    """What a name in a base store says decides which changes still reach the file's rows."""

    def __init__(self, task: MergeInput[ToBase]) -> None:
        super().__init__(task)
        self._floor = max((base_file(file.path).transaction_id for file in task.work.rewritten), default=0)

    def _name(self, output: OutputFile) -> str:
        kind = KeyedFileType.BASE if output.is_data else KeyedFileType.POSITION_DELETE
        return f"[0-9]{{1,19}}-{kind.value}-[0-9]{{1,19}}-00000-0-{self._ids}{_HEX}-{_DIGITS}[.]parquet"

    def _problems_of_named(self, output: OutputFile, named: KeyedFile) -> Iterator[str]:
        up_to, tree = self._work.changes.up_to, self._work.node.tree
        if not self._floor <= named.transaction_id <= up_to:
            yield (
                f"the name of file {output.path} tells transaction {named.transaction_id}, but rows of the task come after "
                f"{self._floor} to {up_to}"
            )
        if not output.is_data and named.node != base_file(output.referenced_data_file or "").node:
            yield f"the name of file {output.path} tells another node than that of {output.referenced_data_file}"
        if not named.node.is_within(tree):
            yield f"the name of file {output.path} tells node {named.node.id}, but those of the task lie in {tree.id}"


Places = _PlainPlaces | _BasePlaces | _ChangePlaces


def places_of(task: MergeInput[Work]) -> Places:
    """Return where the files of this task may lie."""
    match task.work:
        case Merge() | Convert() | DropDeletes():
            return _PlainPlaces(task.of(task.work))
        case ToBase():
            return _BasePlaces(task.of(task.work))
        case RewriteChanges():
            return _ChangePlaces(task.of(task.work))
        case _:
            return assert_never(task.work)
