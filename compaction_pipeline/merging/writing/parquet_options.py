"""How the table wants its Parquet files, and a writer with these options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

from compaction_pipeline.core.errors import ConfigError, MergeFailed
from compaction_pipeline.core.tables.bloom_filters import BloomFilter, bloom_filters
from compaction_pipeline.formats.parquet.leaves import Leaf

MIB = 1024 * 1024
_CODECS = {"uncompressed": "none", "none": "none", "gzip": "gzip", "snappy": "snappy", "zstd": "zstd", "brotli": "brotli", "lz4": "lz4"}


@dataclass(frozen=True)
class ParquetOptions:
    """How the table wants its Parquet files (`write.parquet.*`, `write.delete.parquet.*`)."""

    codec: str
    level: int | None
    row_group_bytes: int
    page_bytes: int
    dictionary_bytes: int
    levels_are_free: bool = False
    """The table compresses with zstd and sets no level."""

    @classmethod
    def of(cls, properties: Mapping[str, str], *, deletes: bool = False) -> ParquetOptions:
        def read(name: str, default: str) -> str:
            # Delete files have properties of their own. Where these are not set, those of data files count.
            data = properties.get(f"write.parquet.{name}", default)
            return properties.get(f"write.delete.parquet.{name}", data) if deletes else data

        codec = read("compression-codec", "zstd").strip().lower()
        if codec not in _CODECS:
            raise MergeFailed(
                f"'write.parquet.compression-codec' is {codec!r} but must be one of {', '.join(sorted(_CODECS))}; correct the property"
            )
        level = read("compression-level", "")
        levelled = codec in ("zstd", "gzip", "brotli")
        return cls(
            _CODECS[codec],
            (int(level) if level and level != "null" else 1 if codec == "zstd" else None) if levelled else None,
            _positive(read("row-group-size-bytes", str(128 * MIB)), "row-group-size-bytes"),
            _positive(read("page-size-bytes", str(MIB)), "page-size-bytes"),
            _positive(read("dict-size-bytes", str(2 * MIB)), "dict-size-bytes"),
            codec == "zstd" and level in ("", "null"),
        )


def filters_of(properties: Mapping[str, str], columns: Sequence[Leaf]) -> dict[str, BloomFilter]:
    """The bloom filters that the table asks for, by path in Parquet. Raises MergeFailed for a property that breaks its rule."""
    try:
        asked = bloom_filters(properties, {leaf.name: str(leaf.type) for leaf in columns})
    except ConfigError as error:
        raise MergeFailed(str(error)) from error
    return {leaf.parquet_path: asked[leaf.name] for leaf in columns if leaf.name in asked}


def _positive(text: str, name: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise MergeFailed(f"'write.parquet.{name}' is {text!r} but must be a whole number ≥ 1; correct the table property")
    return int(text)


def parquet_writer(
    stream: Any,
    schema: Any,
    options: ParquetOptions,
    dictionary_paths: Sequence[str],
    footers: list[Any],
    filters: Mapping[str, Mapping[str, float]] | None = None,
    levels: Mapping[str, int] | None = None,
) -> Any:
    """A `pyarrow.parquet.ParquetWriter` that follows the Iceberg spec. It appends its footer to `footers`.

    `filters` are PyArrow's `bloom_filter_options`: `ndv` and `fpp` by path in Parquet. `levels` are the compression levels of all columns,
    by path.
    """
    return pq.ParquetWriter(
        stream,
        schema,
        compression=options.codec,
        compression_level=dict(levels) if levels else options.level,
        use_dictionary=list(dictionary_paths) or False,
        data_page_size=options.page_bytes,
        dictionary_pagesize_limit=options.dictionary_bytes,
        store_schema=False,
        # The next merge copies only pages that a checksum proves.
        write_page_checksum=True,
        store_decimal_as_integer=True,
        write_statistics=True,
        metadata_collector=footers,
        # Older releases of PyArrow lack this option.
        **({"bloom_filter_options": filters} if filters else {}),
    )
