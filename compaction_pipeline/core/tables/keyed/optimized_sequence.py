"""Which changes of each partition are already in the base store: the optimized sequence.

Changes with a data sequence number up to it were merged into the base store. Their files may stay in the change store for a while, and
readers must skip them, or else their rows appear twice. Amoro keeps the numbers in a statistics file of a base snapshot (`MixedTableUtil`,
`StatisticsFileUtil`), and before its version 0.6 in a property of the base store.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.tables.keyed.partition_paths import PartitionKey, PathField, key_of, key_of_path, names_fields, path_of
from compaction_pipeline.core.tables.node import Partition

SEQUENCE_BLOB = "optimized-sequence"
"""The type of the blob in the statistics file."""
SEQUENCE_FLAG = "optimized-sequence.exist"
"""This key in the summary of a snapshot says that the snapshot has the statistics file."""
TIME_BLOB = "base-optimized-time"
"""The type of the blob with the times (epoch ms) at which the base files of each partition were last rewritten."""
TIME_FLAG = "base-optimized-time.exist"
"""This key in the summary of a snapshot says that the snapshot has that blob."""
LEGACY_KEY = "table.partition-properties"
"""The property of the base store in which old versions of Amoro kept the numbers."""
OLDEST_LEGACY_KEY = "base.table.max-transaction-id"
"""The property in which still older versions kept the number of a table without partitions."""
EXPIRED_KEY = "compaction.expired-changes"
"""The property of the change store that says up to which number merged changes of each partition have left the store."""
_LEGACY_SEQUENCE = "max-txId"
_LEGACY_TIME = "base-op-time"


@dataclass(frozen=True, slots=True)
class OptimizedSequences:
    """The optimized sequence of each partition. A partition that is not there has none: all its changes count.

    In a table with several partition specs these are the numbers of its default spec, and `by_spec` has those of each spec.
    """

    fields: tuple[PathField, ...] = ()
    by_partition: Mapping[PartitionKey, int] = field(default_factory=dict)
    by_spec: Mapping[int, OptimizedSequences] = field(default_factory=dict)

    def of_spec(self, spec_id: int) -> OptimizedSequences:
        """The optimized sequences of the partitions of one spec."""
        return self.by_spec.get(spec_id, self)

    @property
    def highest(self) -> int:
        """The highest number of all partitions; 0 when no partition has one."""
        return max((number for each in (self, *self.by_spec.values()) for number in each.by_partition.values()), default=0)

    def refuse_shared_numbers(self, partitions: Iterable[Partition]) -> None:
        """Raise TableRefused when one number stands for several of these partitions: it is unknown which of them it is about."""
        by_key: dict[PartitionKey, set[Partition]] = {}
        for partition in partitions:
            by_key.setdefault(key_of(partition, self.fields), set()).add(partition)
        for key, same in by_key.items():
            if len(same) > 1 and key in self.by_partition:
                raise TableRefused(
                    f"{path_of(min(same, key=str), self.fields)!r} is the path of {len(same)} partitions of the keyed table, NULL and a "
                    f"text, and the base store keeps one optimized sequence for it ({self.by_partition[key]}): it is unknown which of the "
                    "partitions has its changes in the base store; give the rows of one of them another partition value"
                )

    def of(self, partition: Partition) -> int | None:
        """The highest data sequence number whose changes are in the base store; None when no change is."""
        return self.by_partition.get(key_of(partition, self.fields))


def numbers_of_blob(payload: bytes) -> dict[str, int]:
    """The numbers of a blob by the texts of their partitions. Raises TableRefused when the payload is not what it should be."""
    try:
        numbers = json.loads(payload.decode())
    except ValueError as error:
        raise _unreadable(f"it is not JSON ({error})") from error
    if not isinstance(numbers, dict) or not all(type(number) is int for number in numbers.values()):
        raise _unreadable("it is not a map of partitions to whole numbers")
    return numbers


def numbers_moved(numbers: Mapping[str, int], moved: Mapping[Partition, int], fields: Sequence[PathField]) -> dict[str, int]:
    """The numbers by the texts of their partitions, with new numbers for some partitions. The others keep their texts."""
    keys = {key_of(partition, fields) for partition in moved}
    unpartitioned = all(field.transform == "void" for field in fields)
    kept = {path: number for path, number in numbers.items() if key_of_path(path, fields) not in keys}
    return {**kept, **{"" if unpartitioned else path_of(partition, fields): number for partition, number in moved.items()}}


def sequences_by_spec(numbers: Mapping[str, int], specs: Mapping[int, Sequence[PathField]], default_spec_id: int) -> OptimizedSequences:
    """Give numbers by the texts of their partitions to the specs of a table. `specs` are the fields of each spec.

    Raises TableRefused for a text that is a partition of no spec, or of several: it is unknown whose number it is.
    """
    if len(specs) == 1:
        return _by_partition(numbers, specs[default_spec_id])
    of_specs: dict[int, dict[str, int]] = {spec_id: {} for spec_id in specs}
    for path, number in numbers.items():
        found = [spec_id for spec_id, fields in specs.items() if names_fields(path, fields)]
        if len(found) != 1:
            raise _unreadable(
                f"it has a number for {path!r}, which is a partition of {len(found)} of the partition specs {', '.join(map(str, specs))}"
            )
        of_specs[found[0]][path] = number
    by_spec = {spec_id: _by_partition(each, specs[spec_id]) for spec_id, each in of_specs.items()}
    return replace(by_spec[default_spec_id], by_spec=by_spec)


def payload_of(numbers: Mapping[str, int]) -> bytes:
    """The payload of a blob that holds these numbers."""
    return json.dumps(numbers, separators=(",", ":")).encode()


def numbers_of_properties(properties: Mapping[str, str], *, times: bool = False) -> dict[str, int]:
    """The numbers in the property in which old versions of Amoro kept them, by the texts of their partitions; none without the property.

    With `times` they are the times (epoch ms) in it. Raises TableRefused when it cannot be read.
    """
    key = _LEGACY_TIME if times else _LEGACY_SEQUENCE
    try:
        by_path = json.loads(properties.get(LEGACY_KEY, "{}"))
        return {path: int(values[key]) for path, values in by_path.items() if values.get(key) is not None}
    except (ValueError, TypeError, AttributeError) as error:
        raise TableRefused(
            f"'{LEGACY_KEY}' of the base store cannot be read ({error}): which changes are already in it is unknown"
        ) from error


def numbers_of_expired(properties: Mapping[str, str]) -> dict[str, int]:
    """The highest data sequence numbers that have left a change store with these properties, by the texts of their partitions.

    Raises TableRefused when they cannot be read.
    """
    try:
        return numbers_of_blob(properties.get(EXPIRED_KEY, "{}").encode())
    except TableRefused as error:
        raise TableRefused(
            f"'{EXPIRED_KEY}' of the change store cannot be read, so it is unknown which merged changes have left the store: set it to the "
            "value that an older metadata file of the store has"
        ) from error


def _by_partition(numbers: Mapping[str, int], fields: Sequence[PathField]) -> OptimizedSequences:
    found: dict[PartitionKey, int] = {}
    for path, number in numbers.items():
        key = key_of_path(path, fields)
        if found.setdefault(key, number) != number:
            raise _unreadable(f"it has two numbers for the partition {path!r}: {found[key]} and {number}")
    return OptimizedSequences(tuple(fields), found)


def _unreadable(why: str) -> TableRefused:
    return TableRefused(
        f"the blob {SEQUENCE_BLOB!r} of the base store cannot be read: {why}; which changes are already in the base store is unknown"
    )
