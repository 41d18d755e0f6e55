"""What a new keyed table must be like, so that its rows are never read in two ways.

Each rule shuts out a table that Amoro accepts, and in which a row could come back, appear twice, or lie where its delete does not look.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.keyed.key_hash import may_be_in_a_key
from compaction_pipeline.core.tables.kinds import CHANGE_STORE_KEY, FORMAT_KEY, MIXED_ICEBERG, PRIMARY_KEY, STORE_KEY
from compaction_pipeline.core.tables.property_rules import DELTA_REWRITE_KEY, ENABLED_KEY

BASE_BUCKETS_KEY, CHANGE_BUCKETS_KEY = "base.file-index.hash-bucket", "change.file-index.hash-bucket"
UPSERT_KEY = "compaction.upsert"
"""This property says that at most one row of each key is live. It is set when a table is created, and never changed."""
AMORO_UPSERT_KEY = "write.upsert.enabled"
"""Amoro's writers turn each insert into a delete and an insert when this property says so."""
DEFAULT_BUCKETS = 4
_MOST_BUCKETS = 1 << 16
_UNSAFE_IDENTITIES = ("float", "double", "binary", "fixed", "boolean")


def was_created_upsert(properties: Mapping[str, str]) -> bool:
    """Whether every insert of a table with these properties has a delete of its key before it.

    Amoro's property does not tell: it may be changed, and older rows then keep their doubles.
    """
    return properties.get(UPSERT_KEY, "").lower() == "true"


@dataclass(frozen=True, slots=True)
class PartitionColumn:
    """A field of a partition spec: its name, its transform, and the name and the Iceberg type of its source column."""

    name: str
    transform: str
    source: str
    source_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedOptions:
    """What a keyed table is created with beside what every table has: see `KeyedTable.create`."""

    primary_key: Sequence[str]
    buckets: int = DEFAULT_BUCKETS
    upsert: bool = False
    delta_rewrite: bool = False


def check_new_table(columns: Mapping[str, str], partition: Sequence[PartitionColumn], options: KeyedOptions) -> None:
    """Raise ConfigError for a table that must not be created. `columns` are the Iceberg types of the top-level columns by name."""
    _check_primary_key(columns, options.primary_key)
    check_buckets(options.buckets)
    for field in partition:
        _check_partition(field, options.primary_key, options.upsert)


def _check_primary_key(columns: Mapping[str, str], primary_key: Sequence[str]) -> None:
    if isinstance(primary_key, str):
        raise ConfigError(f"primary_key is {primary_key!r} but must be a list of columns, for example [{primary_key!r}]")
    if not primary_key or len(set(primary_key)) != len(primary_key):
        raise ConfigError(f"primary_key is {list(primary_key)} but must name one column or more, each once")
    for name in primary_key:
        if name not in columns:
            raise ConfigError(f"primary_key names {name!r}, but the columns are {', '.join(columns)}")
        if "," in name or name != name.strip():
            raise ConfigError(f"primary_key names {name!r}: a name with a comma, or with a space at an end, cannot be stored in the table")
        if not may_be_in_a_key(columns[name]):
            raise ConfigError(f"primary_key names {name!r} of type {columns[name]}, which has no hash: use columns of other types")


def _check_partition(field: PartitionColumn, primary_key: Sequence[str], upsert: bool) -> None:
    if field.transform == "year":
        raise ConfigError(f"partition field {field.name!r} is by year, which Amoro's readers read wrongly: use month or day")
    if field.transform == "identity" and field.source_type.partition("[")[0] in _UNSAFE_IDENTITIES:
        raise ConfigError(
            f"partition field {field.name!r} has values of type {field.source_type}, which Amoro's readers may read wrongly: use "
            "bucket or another column"
        )
    if upsert and field.source not in primary_key:
        raise ConfigError(
            f"partition field {field.name!r} comes from {field.source!r}, which is not in the primary key: when an upsert changes it, "
            "the old row would stay in its old partition; add it to the primary key"
        )


def check_buckets(buckets: int) -> None:
    """Raise ConfigError for a number of buckets that is no power of two in 1..65536."""
    if not 1 <= buckets <= _MOST_BUCKETS or buckets & (buckets - 1):
        raise ConfigError(
            f"the number of hash buckets is {buckets} but must be a power of two in 1..{_MOST_BUCKETS}: the nodes form a tree"
        )


def store_properties(options: KeyedOptions, change_store: str, now_ms: int) -> tuple[dict[str, str], dict[str, str]]:
    """The properties of a new base store and of its change store, as Amoro sets them.

    With `delta_rewrite` both tell Amoro not to compact the table: it would read merged change files by their names, and lose rows.
    """
    common = {
        FORMAT_KEY: MIXED_ICEBERG,
        PRIMARY_KEY: ",".join(options.primary_key),
        "table.create-timestamp": str(now_ms),
        "format-version": "2",
        "write.metadata.delete-after-commit.enabled": "true",
        "flink.max-continuous-empty-commits": str(2**31 - 1),
        BASE_BUCKETS_KEY: str(options.buckets),
        CHANGE_BUCKETS_KEY: str(options.buckets),
        **({UPSERT_KEY: "true", AMORO_UPSERT_KEY: "true"} if options.upsert else {}),
        **({DELTA_REWRITE_KEY: "true", ENABLED_KEY: "false"} if options.delta_rewrite else {}),
    }
    return {**common, STORE_KEY: "base", CHANGE_STORE_KEY: change_store}, {**common, STORE_KEY: "change"}
