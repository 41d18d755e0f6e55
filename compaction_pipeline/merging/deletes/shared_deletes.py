"""Delete files that a task has read, kept for the next tasks of the same process. So a worker builds a set of keys only once.

The files of a table never change, so the path and the size of a file stand for its content. A key set is kept under the name of everything
that it depends on: the table, the columns, the reach of its deletes, and each file in it with its sequence number. A task may also use a
set with more files than its own, if each additional file is too old to delete any row of the task's inputs. The result is the same.

Before a task holds anything new, it releases what it cannot use. What it uses counts as its own memory.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.merging.deletes.keys import KeySet


@dataclass(frozen=True)
class DeleteFile:
    """A delete file, identified by the values that its content depends on. `sequence` is the sequence number of its manifest entry."""

    path: str
    size: int
    records: int
    sequence: int

    @classmethod
    def of(cls, file: LiveFile) -> DeleteFile:
        return cls(file.path, file.file_size_bytes, file.record_count, file.data_sequence_number)


@dataclass(frozen=True)
class KeyFiles:
    """The equality-delete files whose keys a task asks for.

    `kind` stands for the table, the columns and the reach; two sets of one kind can differ only in their files. `oldest` is the lowest
    sequence number of the task's inputs that the deletes reach.
    """

    kind: Hashable
    files: frozenset[DeleteFile]
    oldest: int

    def served_by(self, files: frozenset[DeleteFile]) -> bool:
        """Whether a set of the keys of `files` deletes the same rows from the task's inputs."""
        # A delete reaches only rows with a lower sequence number. A key has the highest sequence number of all files that hold it.
        return self.files <= files and all(other.sequence <= self.oldest for other in files - self.files)


PathPositions = Mapping[str, NDArray[np.int64]]
"""Positions, by the path of their data file."""


@dataclass
class _Kept:
    files: frozenset[DeleteFile]
    keys: KeySet


@dataclass
class SharedDeletes:
    """Belongs to one thread of one process. This thread runs one task after the other."""

    _sets: dict[Hashable, _Kept] = field(default_factory=dict)
    _positions: dict[DeleteFile, PathPositions] = field(default_factory=dict)
    _asked: frozenset[tuple[Hashable, frozenset[DeleteFile]]] = frozenset()

    def begin(self, wanted: Sequence[KeyFiles], positions: Collection[DeleteFile], limit_bytes: int) -> frozenset[Hashable]:
        """Release everything that the task cannot use. If the rest takes more than `limit_bytes`, release everything.

        Returns the kinds of sets that the task before this one asked for too. The next task will most likely ask for them again.
        """
        self._sets = {each.kind: self._sets[each.kind] for each in wanted if self._serves(each)}
        self._positions = {file: self._positions[file] for file in positions if file in self._positions}
        if self.nbytes > limit_bytes:
            self.clear()
        asked = self._asked
        self._asked = frozenset((each.kind, each.files) for each in wanted)
        return frozenset(each.kind for each in wanted if any(kind == each.kind and each.served_by(files) for kind, files in asked))

    def _serves(self, wanted: KeyFiles) -> bool:
        kept = self._sets.get(wanted.kind)
        return kept is not None and wanted.served_by(kept.files)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        sets = sum(kept.keys.nbytes for kept in self._sets.values())
        return sets + sum(each.nbytes for kept in self._positions.values() for each in kept.values())

    def key_set(self, kind: Hashable) -> KeySet | None:
        """The set of this kind, if the current task can use it."""
        kept = self._sets.get(kind)
        return kept.keys if kept is not None else None

    def keep_key_set(self, wanted: KeyFiles, keys: KeySet) -> None:
        """Keep the set of keys of exactly these files."""
        self._sets[wanted.kind] = _Kept(wanted.files, keys)

    def positions(self, file: DeleteFile) -> PathPositions | None:
        """All positions of a delete file. None if they are not kept."""
        return self._positions.get(file)

    def keep_positions(self, file: DeleteFile, positions: PathPositions) -> None:
        """Keep all positions of a delete file."""
        self._positions[file] = positions

    def clear(self) -> None:
        """Release everything."""
        self._sets, self._positions = {}, {}
