"""Which column metrics a worker may report of a file that it wrote.

Readers leave whole files out because of these numbers, so a wrong one hides rows or revives deleted ones. What is found here needs the
report and the schema only. That a number is true, and not only possible, the file itself must show.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from compaction_pipeline.core.tables.columns import PATH_ID, POSITION_ID, Column, bound_value
from compaction_pipeline.core.tables.data_file import OutputFile

POSITION_DELETE_COLUMNS: Mapping[int, Column] = {
    PATH_ID: Column(PATH_ID, "string"),
    POSITION_ID: Column(POSITION_ID, "long"),
}
_COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_MOST = 2**63
_MAGIC = 4
"""A Parquet file begins with four bytes that name the format. Its first row group follows."""
_LONGEST_BOUND = 2**20
"""No writer that we know keeps longer bounds: most have no statistics of values above 4 KiB. Only a path's bounds are whole."""


def problems_of_metrics(output: OutputFile, columns: Mapping[int, Column]) -> Iterator[str]:
    """Why the sizes, counts, bounds and offsets of a file cannot be true. `columns` are the primitive columns that the file has."""
    for name in (*_COUNTS, "lower_bounds", "upper_bounds"):
        unknown = [number for number in getattr(output, name) if number not in columns]
        if unknown:
            yield f"{name} of file {output.path} names column {unknown[0]}, but the file has no such column"
            return
    if not all(0 <= count < _MOST for name in _COUNTS for count in getattr(output, name).values()):
        yield f"a count of file {output.path} is negative or larger than 2⁶³"
        return
    if sum(output.column_sizes.values()) > output.file_size_bytes:
        yield f"the columns of file {output.path} take more than its {output.file_size_bytes} bytes"
    for column in columns.values():
        yield from _problems_of_counts(output, column)
        yield from _problems_of_bounds(output, column)
    yield from _problems_of_offsets(output)


def _problems_of_counts(output: OutputFile, column: Column) -> Iterator[str]:
    number = column.field_id
    values, nulls, nans = (counts.get(number) for counts in (output.value_counts, output.null_value_counts, output.nan_value_counts))
    where = f"column {number} of file {output.path}"
    if values is not None and (values < output.record_count if column.repeated else values != output.record_count):
        yield f"{where} has {values} values, but the file has {output.record_count} rows"
    if values is None and (nulls or nans):
        yield f"{where} has NULLs or NaNs, but no count of values"
    elif (nulls or 0) + (nans or 0) > (values or 0):
        yield f"{where} has {nulls or 0} NULLs and {nans or 0} NaNs among {values or 0} values"
    if nans is not None and not column.is_float:
        yield f"{where} has a count of NaNs, but its type is {column.type}"


def _problems_of_bounds(output: OutputFile, column: Column) -> Iterator[str]:
    number = column.field_id
    where = f"column {number} of file {output.path}"
    values: list[bool | int | float | bytes] = []
    for text in (output.lower_bounds.get(number), output.upper_bounds.get(number)):
        if text is None:
            continue
        if number != PATH_ID and len(text) > 2 * _LONGEST_BOUND:
            yield f"a bound of {where} has {len(text) // 2} bytes, but none may have more than {_LONGEST_BOUND}"
            return
        try:
            values.append(bound_value(column.type, _bytes(text)))
        except ValueError as error:
            yield f"a bound of {where} is no value of its type {column.type}: {error}"
            return
    if not values:
        return
    if column.repeated or column.type == "uuid":
        yield f"{where} has bounds, but lies in a list or map, or is a UUID: readers would leave out files that they need"
    elif column.is_float and output.nan_value_counts.get(number) != 0:
        yield f"{where} has bounds, but does not say that it holds no NaN"
    elif output.null_value_counts.get(number, 0) == output.record_count:
        yield f"{where} has bounds, but all its values are NULL"
    # Both are values of one type, which mypy cannot know.
    elif len(values) == 2 and values[0] > values[1]:  # type: ignore[operator]
        yield f"the lower bound of {where} is above its upper bound"


def _bytes(text: str) -> bytes:
    if len(text) % 2 or not all(each in "0123456789abcdef" for each in text):
        raise ValueError("it is not hexadecimal")
    return bytes.fromhex(text)


def _problems_of_offsets(output: OutputFile) -> Iterator[str]:
    offsets = output.split_offsets
    if any(later <= earlier for earlier, later in pairwise(offsets)):
        yield f"the split offsets of file {output.path} do not rise"
    elif offsets and offsets[0] != _MAGIC:
        yield f"the first split offset of file {output.path} is {offsets[0]}, but its first row group begins at {_MAGIC}"
    elif offsets and offsets[-1] >= output.file_size_bytes:
        yield f"the split offset {offsets[-1]} of file {output.path} lies behind its {output.file_size_bytes} bytes"
    elif len(offsets) > output.record_count:
        yield f"file {output.path} has {len(offsets)} split offsets, but {output.record_count} rows"
