"""Unpacks example tables that Flink, Spark and Amoro wrote into any folder.

Their metadata names the folder `/warehouse/NAME`. Unpacking rewrites every path, in JSON, in Avro, in the catalog and in
position-delete files. Data files stay as they are, byte for byte.
"""

from __future__ import annotations

import json
import sqlite3
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from compaction_pipeline_tests.reference_reader import Row, canonical

HERE = Path(__file__).parent
PLAIN_EXAMPLES = ("flink_v2_unpart_cdc", "spark_v2_addfiles")
KEYED_EXAMPLES = ("amoro_keyed_change_only", "amoro_keyed_unpart")
"""Keyed tables: `db.t` is the base store and `db.t_change_` the change store."""
CATALOG_NAME = "examples"
"""The catalog's name in the rows of the SQL catalog. The table is `db.t`."""

_FILE_PATH_ID = 2147483546


def unpack(name: str, folder: Path) -> Path:
    """Unpack an example. Returns its folder, which holds `wh/`, `catalog.db` and `expected.parquet`."""
    with tarfile.open(HERE / f"{name}.tar.gz") as archive:
        # Older patch releases of the supported Pythons do not have the filter.
        archive.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))  # type: ignore[arg-type]
    home = folder / name
    for checksum in home.rglob(".*.crc"):
        checksum.unlink()
    _relocate(home, f"/warehouse/{name}", str(home))
    return home


def catalog_properties(home: Path) -> dict[str, str]:
    """The properties that open the catalog of the unpacked example."""
    return {"type": "sql", "uri": f"sqlite:///{home}/catalog.db", "warehouse": str(home / "wh"), "catalog-name": CATALOG_NAME}


def expected_rows(home: Path) -> list[Row]:
    """The rows that a reader must see, in the form of the reference reader's rows."""
    table = pq.read_table(home / "expected.parquet")
    maps = [item.name for item in table.schema if pa.types.is_map(item.type)]
    rows: list[Row] = table.to_pylist()
    for row in rows:
        for name in maps:
            if row[name] is not None:
                row[name] = frozenset((canonical(key), canonical(value)) for key, value in row[name])
    return rows


def _relocate(home: Path, old: str, new: str) -> None:
    sizes: dict[str, int] = {}

    def moved(text: str | None) -> str | None:
        return None if text is None else text.replace(old, new)

    def entry(record: dict[str, Any]) -> dict[str, Any]:
        file = record["data_file"]
        file["file_path"] = moved(file["file_path"])
        file["referenced_data_file"] = moved(file.get("referenced_data_file"))
        if file.get("content") == 1:
            # Only position deletes of a single data file keep their bounds, because those are whole paths. A bound that was cut off
            # would be wrong with the new folder.
            path = file["file_path"].removeprefix("file://").removeprefix("file:")
            file["file_size_in_bytes"] = sizes[path]
            file["split_offsets"] = [4]
            for bounds in ("lower_bounds", "upper_bounds"):
                file[bounds] = [_moved_bound(pair, old, new) for pair in file[bounds] or [] if _is_movable(pair, old)]
        return record

    def manifest(record: dict[str, Any]) -> dict[str, Any]:
        record["manifest_path"] = moved(record["manifest_path"])
        path = record["manifest_path"].removeprefix("file://").removeprefix("file:")
        if path in sizes:
            record["manifest_length"] = sizes[path]
        return record

    for path in home.rglob("*.parquet"):
        if _is_position_deletes(path):
            _move_position_deletes(path, old, new)
            sizes[str(path)] = path.stat().st_size
    avros = sorted(home.rglob("metadata/*.avro"), key=lambda path: path.name.startswith("snap-"))
    for path in avros:
        _rewrite_avro(path, manifest if path.name.startswith("snap-") else entry)
        sizes[str(path)] = path.stat().st_size
    for path in home.rglob("metadata/*.json"):
        path.write_text(path.read_text().replace(old, new))
    with sqlite3.connect(home / "catalog.db") as connection:
        for column in ("metadata_location", "previous_metadata_location"):
            connection.execute(f"update iceberg_tables set {column} = replace({column}, ?, ?)", (old, new))
        connection.execute("update iceberg_namespace_properties set property_value = replace(property_value, ?, ?)", (old, new))
    connection.close()


def _is_movable(pair: dict[str, Any], old: str) -> bool:
    return bool(pair["key"] != _FILE_PATH_ID or old.encode() in pair["value"])


def _moved_bound(pair: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    return {**pair, "value": pair["value"].replace(old.encode(), new.encode())} if pair["key"] == _FILE_PATH_ID else pair


def _is_position_deletes(path: Path) -> bool:
    return list(pq.read_schema(path).names[:2]) == ["file_path", "pos"]


def _move_position_deletes(path: Path, old: str, new: str) -> None:
    with pq.ParquetFile(path) as source:
        table = source.read()
    index = table.schema.get_field_index("file_path")
    paths = [text.replace(old, new) for text in table["file_path"].to_pylist()]
    item = table.schema.field(index)
    pq.write_table(table.set_column(index, item, pa.array(paths, item.type)), path, compression="zstd", store_schema=False)


def _rewrite_avro(path: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    with path.open("rb") as source:
        reader = fastavro.reader(source)
        header = dict(reader.metadata)
        records = [change(record) for record in reader if isinstance(record, dict)]
    kept = {key: value for key, value in header.items() if not key.startswith("avro.")}
    with path.open("wb") as target:
        fastavro.writer(target, json.loads(header["avro.schema"]), records, codec=header.get("avro.codec", "null"), metadata=kept)
