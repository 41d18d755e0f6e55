"""Data files that are live twice: every command names a path and its two manifests, and nothing is rewritten."""

from __future__ import annotations

import re

from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from compaction_pipeline_tests.cli.conftest import TABLE, Desk


def _add_once_more(table: Table) -> None:
    """Add a file a second time, as `add_files` does without its check for duplicates."""
    paths = [task.file.file_path for task in table.scan().plan_files()]
    table.add_files(paths, check_duplicate_files=False)


def test_a_file_that_is_live_in_two_manifests_is_named_with_both_by_every_command(desk: Desk) -> None:
    table = desk.table(files=12, buckets=(0,))
    _add_once_more(table)
    desk.add_catalog()
    snapshot = table.refresh().metadata.current_snapshot_id
    current = table.current_snapshot()
    assert current is not None
    manifests = [manifest.manifest_path for manifest in current.manifests(PyArrowFileIO())]

    answer = desk.json("compact", TABLE, code=4)
    assert (answer["reason_code"], answer["tasks"], answer["committed"]) == ("LIVE_TWICE", 0, 0)
    told = [answer["reason"]]
    desk.type("table", "list", "--refresh")
    told += [desk.type(*command, "--json").stdout for command in (("plan", TABLE), ("status",), ("table", "show", TABLE))]
    for text in told:
        assert "12 data file(s) are live more than once and left alone" in text
        found = re.search(r"(\S+\.parquet) is in (\S+\.avro) and in (\S+\.avro); readers get its rows 2 times", text)
        assert found is not None
        assert {found[2], found[3]} <= set(manifests)
        assert found[2] != found[3]
        assert "running or waiting" not in text
    assert table.refresh().metadata.current_snapshot_id == snapshot
