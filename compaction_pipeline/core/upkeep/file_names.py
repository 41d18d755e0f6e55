"""Names of files on storage: which of them a writer of Iceberg tables makes, and which carry the id of a task or a record.

A name that is not known here is never garbage. It may be of Hive, Delta, or a person.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from urllib.parse import unquote_plus

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_FORMAT = r"(parquet|avro|orc)"
_COMMIT = rf"([0-9a-f]{{12}}|[0-9a-f]{{32}}|{_UUID}|shut-out-[0-9a-f]{{32}})"
"""The id of a record of this program, or the name of another commit of it or of Java."""
_HASH = r"([01]{8}-)?"
"""The end of a hash, with `write.object-storage.enabled` and without the partition in the path."""
_TRINO_QUERY = r"\d{8}_\d{6}_\d{5}_[a-z0-9]{5}"
# Flink's manifests of files that are not committed yet: job, operator, subtask, attempt, checkpoint, number.
_FLINKS_MANIFEST = r"[0-9a-f]{32}-[0-9a-f]{32}-\d{5,10}-\d+-\d+-\d{5,10}(-.+)?[.]avro"
"""With any suffix: the dynamic sink adds a UUID, and a later one may add something else."""
_OUR_ATTEMPT = r"([0-9a-f]{8,32}-[0-9a-f]{12}-\d{5,10}|a1-sink-[0-9a-f]{16})-[0-9a-f]{8}-\d{5,10}"

_NAMES: tuple[str, ...] = (
    # Java's OutputFileFactory: Spark, Flink and Kafka Connect. The operation is a UUID, alone or with an epoch behind it.
    rf"{_HASH}\d{{5,10}}-\d+-{_UUID}(-\d+)?-\d{{5,10}}(-deletes)?[.]({_FORMAT}|puffin)",
    # PyIceberg.
    rf"{_HASH}\d{{5,10}}-\d+-{_UUID}[.]parquet",
    # Trino and Athena.
    rf"{_HASH}{_TRINO_QUERY}-{_UUID}([.]gz)?[.]{_FORMAT}",
    # This program, in plain tables, and in keyed ones.
    rf"{_OUR_ATTEMPT}(-deletes)?[.]parquet",
    rf"\d+-(B|I|ED|PD|IED)-\d+-\d{{5,10}}-\d+-{_OUR_ATTEMPT}[.]parquet",
    # Amoro, in keyed tables. The operation is a number.
    rf"\d+-(B|I|ED|PD|IED)-\d+-\d{{5,10}}-\d+-\d+-\d{{5,10}}[.]{_FORMAT}",
    # Manifests of Java, PyIceberg and Trino, those that Spark rewrites or imports, and ours, which have the record's id and a token.
    rf"{_UUID}-m\d+[.]avro",
    rf"optimized-m-{_UUID}[.]avro",
    rf"stage-\d+-task-\d+-manifest-{_UUID}[.]avro",
    rf"{_COMMIT}-\d+-[0-9a-f]{{8}}-m\d+[.]avro",
    # Flink's manifests. Those that are listed are referenced, and with them the files that they list.
    _FLINKS_MANIFEST,
    # Manifest lists.
    rf"snap-\d+-\d+-{_COMMIT}[.]avro",
    # Metadata of catalogs that swap a pointer, and of those that count versions.
    rf"\d{{5,10}}-{_UUID}([.]gz)?[.]metadata[.]json([.]gz)?",
    r"v\d+([.]gz)?[.]metadata[.]json([.]gz)?",
    # Statistics: Java and Trino, this program and Amoro, and those of partitions.
    rf"(\d+|{_TRINO_QUERY})-{_UUID}[.]stats",
    rf"\d+-(\d+-)?{_COMMIT}[.]puffin",
    rf"partition-stats-\d+-{_UUID}[.]{_FORMAT}",
)
_KNOWN = re.compile("|".join(f"(?:{name})" for name in _NAMES), re.ASCII)
_OF_FLINK = re.compile(_FLINKS_MANIFEST, re.ASCII)
_METADATA = ".metadata.json"
_UNSAFE = re.compile(r"[?#\x00-\x1f\x7f]")


def is_of_iceberg(name: str) -> bool:
    """Whether a writer of Iceberg tables makes files with such names."""
    return _KNOWN.fullmatch(name) is not None


def is_of_flink(path: str) -> bool:
    """Whether the file is a manifest of files that a job of Flink has written and not committed yet, by its name."""
    return path.endswith(".avro") and _OF_FLINK.fullmatch(path.rsplit("/", 1)[-1]) is not None


def is_metadata(name: str) -> bool:
    """Whether the file holds the metadata of a table, by its name."""
    name = name.removesuffix(".gz")
    return name.endswith(_METADATA) and name != _METADATA


def carries(name: str, ids: Collection[str]) -> bool:
    """Whether one of the ids is a whole part of the name. `p-1` is not a part of `a-p-12-x.parquet`, a file of another task."""
    if not ids:
        return False
    parts = name.rsplit(".", 1)[0].split("-")
    return any("-".join(parts[start:end]) in ids for start in range(len(parts)) for end in range(start + 1, len(parts) + 1))


def strangeness(below: str, partition_fields: Collection[str]) -> str | None:
    """Why a file is nobody's garbage, in words; None for one that may be.

    `below` is its path below the location of the table. A part of it that begins with `_` or `.` hides a file from readers, and other
    programs keep their own files so, unless the part is the value of a partition field with such a name.
    """
    if _UNSAFE.search(below):
        return "its path has '?', '#' or a control character, so a program may open another file by it"
    *folders, name = below.split("/")
    for part in (*folders, name):
        if part[:1] in ("_", ".") and unquote_plus(part.partition("=")[0]) not in _with_value(part, partition_fields):
            return f"{part!r} in its path begins with '_' or '.': such files are other programs'"
    if is_metadata(name):
        return "it is metadata that the table's own metadata does not lead to: it may be registered in another catalog"
    return None if is_of_iceberg(name) else "no writer of Iceberg tables that is known makes such a name"


def _with_value(part: str, fields: Collection[str]) -> Collection[str]:
    return fields if "=" in part else ()
