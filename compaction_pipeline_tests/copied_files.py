"""Small data files of tests. Each process writes and describes an equal file once, and copies it then, which takes a fifth of the time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider

from compaction_pipeline.core.tables.data_file import OutputFile

_WRITTEN: dict[object, tuple[OutputFile, bytes]] = {}


def copied_file(table: Table, name: str, holds: object, write: Callable[[], OutputFile]) -> OutputFile:
    """The file NAME.parquet that `write` writes below the table's data location, or a copy of an equal one.

    `holds` says by its `repr` which rows are in it, and its partition. A file depends on nothing else but the table's schema, partition
    spec and properties.
    """
    metadata = table.metadata
    key = table.schema().model_dump_json(), repr(table.spec()), tuple(sorted(metadata.properties.items())), repr(holds)
    if key not in _WRITTEN:
        file = write()
        with table.io.new_input(file.path).open() as source:
            _WRITTEN[key] = file, source.read()
        return file
    file, content = _WRITTEN[key]
    path = load_location_provider(metadata.location, metadata.properties).new_data_location(f"{name}.parquet")
    with table.io.new_output(path).create(overwrite=True) as target:
        target.write(content)
    return replace(file, path=path)
