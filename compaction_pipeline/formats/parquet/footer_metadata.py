"""A footer in the form in which PyArrow shows the metadata of a file, as far as `with_metrics` looks at it.

PyArrow itself must not see a footer that somebody else wrote: it ends the whole process when a bound is shorter than its type.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from compaction_pipeline.formats.parquet.footer import BOOLEAN, DOUBLE, FLOAT, INT32, INT64, Chunk, Footer
from compaction_pipeline.formats.parquet.thrift import DamagedParquet, Struct, field

_FORMS = {BOOLEAN: "<?", INT32: "<i", INT64: "<q", FLOAT: "<f", DOUBLE: "<d"}


@dataclass(frozen=True)
class FooterMetadata:
    """The metadata of a file. Damaged statistics raise DamagedParquet when they are asked for."""

    footer: Footer

    @property
    def num_row_groups(self) -> int:
        return len(self.footer.groups)

    @property
    def num_columns(self) -> int:
        return sum(len(column.leaves) for column in self.footer.columns)

    def row_group(self, number: int) -> _Group:
        return _Group(self.footer.groups[number].chunks)


@dataclass(frozen=True)
class _Group:
    chunks: tuple[Chunk, ...]

    def column(self, number: int) -> _Column:
        return _Column(self.chunks[number])


@dataclass(frozen=True)
class _Column:
    chunk: Chunk

    @property
    def total_compressed_size(self) -> int:
        return self.chunk.length

    @property
    def num_values(self) -> int:
        return self.chunk.values

    @property
    def has_dictionary_page(self) -> bool:
        return 11 in self.chunk.meta

    @property
    def dictionary_page_offset(self) -> int | None:
        offset: int | None = field(self.chunk.meta, 11)
        return offset

    @property
    def data_page_offset(self) -> int:
        return int(field(self.chunk.meta, 9))

    @property
    def statistics(self) -> _Statistics | None:
        found = field(self.chunk.meta, 12)
        return None if found is None else _Statistics(found, field(self.chunk.meta, 1))


@dataclass(frozen=True)
class _Statistics:
    found: Struct
    physical: int

    @property
    def has_null_count(self) -> bool:
        return 3 in self.found

    @property
    def null_count(self) -> int:
        return int(field(self.found, 3))

    @property
    def has_min_max(self) -> bool:
        return 5 in self.found and 6 in self.found

    @property
    def min_raw(self) -> Any:
        return self._raw(6)

    @property
    def max_raw(self) -> Any:
        return self._raw(5)

    def _raw(self, number: int) -> Any:
        data = field(self.found, number)
        form = _FORMS.get(self.physical)
        try:
            return data if form is None else struct.unpack(form, data)[0]
        except struct.error as error:
            raise DamagedParquet(str(error)) from error
