"""What tasks of one process hand on to each other: delete files that were read, so that a set of keys is built once per worker.

A table's files never change, so a file's path and size stand for what it holds. Nothing is found under a wrong name: a key set is
kept with the table, the columns, the reach of its deletes, and every file in it with its sequence. A task may use a set of more
files than its own, if each of the others is too old to delete anything from the task's inputs; then it deletes the very same rows.

Each task lets go what it cannot use itself before it holds anything new, and counts what it uses as its own memory.
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
    """A delete file by what its content follows from; the sequence is that of its manifest entry."""

    path: str
    size: int
    records: int
    sequence: int

    @classmethod
    def of(cls, file: LiveFile) -> DeleteFile:
        return cls(file.path, file.file_size_bytes, file.record_count, file.data_sequence_number)


@dataclass(frozen=True)
class KeyFiles:
    """Equality-delete files whose keys a task asks for.

    `kind`: table, columns and reach; two sets of one kind differ by their files only. `oldest`: the least sequence of the task's
    inputs that they reach.
    """

    kind: Hashable
    files: frozenset[DeleteFile]
    oldest: int

    def served_by(self, files: frozenset[DeleteFile]) -> bool:
        """Whether a set of these files deletes the same rows from the task's inputs."""
        # A delete reaches rows of a lower sequence only, and a key counts with the highest sequence of a file that holds it.
        return self.files <= files and all(other.sequence <= self.oldest for other in files - self.files)


PathPositions = Mapping[str, NDArray[np.int64]]
"""Positions by the path of their data file."""


@dataclass
class _Kept:
    files: frozenset[DeleteFile]
    keys: KeySet


@dataclass
class SharedDeletes:
    """Belongs to one thread of one process, which runs a task after the other."""

    _sets: dict[Hashable, _Kept] = field(default_factory=dict)
    _positions: dict[DeleteFile, PathPositions] = field(default_factory=dict)
    _asked: frozenset[tuple[Hashable, frozenset[DeleteFile]]] = frozenset()

    def begin(self, wanted: Sequence[KeyFiles], positions: Collection[DeleteFile], limit_bytes: int) -> frozenset[Hashable]:
        """Let go all that a task cannot use, or everything where the rest takes more than `limit_bytes`.

        Returns the kinds of the sets that a task before this one asked for, too: the next one most likely will.
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
        """The set of that kind which the task that has begun can use."""
        kept = self._sets.get(kind)
        return kept.keys if kept is not None else None

    def keep_key_set(self, wanted: KeyFiles, keys: KeySet) -> None:
        """Keep the set of exactly these files."""
        self._sets[wanted.kind] = _Kept(wanted.files, keys)

    def positions(self, file: DeleteFile) -> PathPositions | None:
        """All positions of a delete file."""
        return self._positions.get(file)

    def keep_positions(self, file: DeleteFile, positions: PathPositions) -> None:
        """Keep all positions of a delete file."""
        self._positions[file] = positions

    def clear(self) -> None:
        """Let go everything."""
        self._sets, self._positions = {}, {}
