"""Links from one page of Dagster to another: from a commit to its run, its snapshot, its record and its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

import dagster as dg

from compaction_pipeline.core.commit.record import CompactionRecord
from compaction_pipeline.core.tables.node_keys import table_key
from compaction_pipeline.defs.markdown import fitting, plain
from compaction_pipeline.defs.names import Names
from compaction_pipeline.defs.run_tags import runs_page


def node_links(names: Names, key: str, record: CompactionRecord) -> dict[str, dg.MetadataValue]:
    """The links of one compacted node: to the record of its commit, to its files at the commit's snapshot, and to the run."""
    links = [
        f"record {_link(record.record_id, partition_page(names.compaction_records, table_key(record.table)))}",
        f"snapshot {_link(str(record.snapshot_after), partition_page(names.delta_files, key))}",
        *_run(record),
    ]
    return {"links": dg.MetadataValue.md(" · ".join(links))}


def record_links(names: Names, record: CompactionRecord) -> dict[str, dg.MetadataValue]:
    """The links of one record: to its run, to all runs of its table, and to as many of its nodes as Dagster shows at once."""
    keys = record.node_keys
    all_runs = _link("all runs of this table", runs_page(record.table))

    def listed(count: int) -> str:
        nodes = [_link(key, partition_page(names.compacted_files, key)) for key in keys[:count]]
        more = [f"and {len(keys) - count:,} more nodes"] if count < len(keys) else []
        return " · ".join([*_run(record), f"snapshot `{record.snapshot_after}`", all_runs, *nodes, *more])

    return {"links": dg.MetadataValue.md(fitting(listed, (20, 10, 5, 3, 2, 1, 0)))}


def partition_page(asset: dg.AssetKey, partition: str) -> str:
    """The address of the page of one partition."""
    return f"/assets/{_path(asset.path)}?view=partitions&partition={quote(partition, safe='')}"


def _run(record: CompactionRecord) -> list[str]:
    return [f"run {_link(record.run_id[:8], f'/runs/{quote(record.run_id)}')}"] if record.run_id else ["made outside Dagster"]


def _path(levels: Sequence[str]) -> str:
    return "/".join(quote(level, safe="") for level in levels)


def _link(text: str, address: str) -> str:
    return f"[{plain(text)}]({address})"
