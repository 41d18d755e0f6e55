"""Random writers, failed writers, compactions, tags and expiries, and then orphan files deleted: every kept snapshot reads as before.

Nothing that a commit left behind stays, once no metadata tells of it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from compaction_pipeline.core.upkeep.file_names import is_of_iceberg
from compaction_pipeline.core.upkeep.orphan_rules import ListedFile, OrphanRules
from compaction_pipeline.core.upkeep.orphans import confirmed, decide_orphans
from compaction_pipeline.iceberg.upkeep.look_at_files import IcebergFilesLooker
from compaction_pipeline.iceberg.upkeep.metadata_states import ListedMetadata
from compaction_pipeline.iceberg.upkeep.referenced import Referenced
from compaction_pipeline.iceberg.upkeep.remove_snapshots import Removal, remove
from compaction_pipeline_tests.iceberg.lake import Lake, LakeTable

STEPS = 20
DAY = timedelta(days=1)


class Model:
    """One table, and the files that failed writers left behind."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        lake = Lake(folder)
        self.table: LakeTable = lake.table(properties={"write.metadata.previous-versions-max": str(self.random.choice([1, 3, 100]))})
        self.looker = IcebergFilesLooker(lake.catalogs)
        self.left: set[str] = set()
        self.append()

    def loaded(self) -> Table:
        return self.table.lake.catalogs.load(self.table.identifier)

    def rows(self) -> pa.Table:
        ids = [self.random.randrange(1000) for _ in range(self.random.randint(1, 5))]
        return pa.table({"id": ids, "name": [str(one) for one in ids]}, schema=self.table.table.schema().as_arrow())

    def files(self) -> set[str]:
        folder = Path(urlsplit(self.table.table.metadata.location).path)
        return {str(path) for path in folder.rglob("*") if path.is_file()}

    # ---- steps

    def append(self) -> None:
        self.table.table.refresh().append(self.rows())

    def delete(self) -> None:
        self.table.table.refresh().delete(f"id < {self.random.randrange(300)}")

    def overwrite(self) -> None:
        self.table.table.refresh().overwrite(self.rows())

    def tag(self) -> None:
        snapshots = self.loaded().metadata.snapshots
        name = f"t{self.random.randrange(10**6)}"
        self.loaded().manage_snapshots().create_tag(self.random.choice(snapshots).snapshot_id, name).commit()

    def drop_tags(self) -> None:
        loaded = self.loaded()
        remove(loaded, Removal((), [name for name in loaded.metadata.refs if name != "main"]))

    def expire(self) -> None:
        """Oldest snapshots go, as expiry removes them; their files stay."""
        loaded = self.loaded()
        named = {ref.snapshot_id for ref in loaded.metadata.refs.values()}
        old = [one.snapshot_id for one in loaded.metadata.snapshots if one.snapshot_id not in named]
        remove(loaded, Removal(old[: self.random.randint(0, len(old))], ()))

    def lose_the_race(self) -> None:
        """A writer that wrote all its files and could not commit."""
        before = self.files()
        with _losing(self.table.table.refresh()):
            self.append()
        self.left |= self.files() - before

    def forget_old_metadata(self) -> None:
        """Somebody deletes the metadata files before the current one."""
        for entry in self.loaded().metadata.metadata_log:
            Path(urlsplit(entry.metadata_file).path).unlink(missing_ok=True)

    def compact(self) -> None:
        # These data files have the names of writers of tests, which are strange. So the merge rewrites few.
        if self.table.table.refresh().current_snapshot() is not None and self.table.files():
            record_id: Any = f"{self.random.randrange(16**12):012x}"
            self.table.lake.committer.commit(self.table.identifier, record_id, [self.table.merge(task_id=record_id)])

    def step(self) -> None:
        steps = [self.append] * 4 + [self.lose_the_race] * 2 + [self.expire] * 2
        steps += [self.delete, self.overwrite, self.tag, self.drop_tags, self.compact, self.forget_old_metadata]
        self.random.choice(steps)()

    # ---- deleting

    def contents(self) -> dict[int, list[dict[str, Any]]]:
        """The rows of every snapshot that metadata has."""
        loaded = self.loaded()
        return {one.snapshot_id: _sorted(loaded, one.snapshot_id) for one in loaded.metadata.snapshots}

    def delete_orphans(self) -> set[str]:
        """Look twice, and delete what both looks found."""
        looks = []
        for days in (10, 11):
            found = self.looker.look(self.table.identifier)
            rules = OrphanRules(found.stores, metadata=found.metadata, accept_share=1.0)
            decision = decide_orphans(found.listing, found.referenced, rules, datetime.now(timezone.utc) + days * DAY)
            assert decision.refusals == ()
            looks.append(decision)
        gone = {urlsplit(file.path).path for file in confirmed(*(look.orphans for look in looks))}
        for path in gone:
            Path(path).unlink()
        return gone


@contextmanager
def _losing(table: Table) -> Iterator[None]:
    """Each commit loses against a writer that is not there."""
    lost = CommitFailedException("another writer was faster")
    with patch.object(type(table.catalog), "commit_table", side_effect=lost), pytest.raises(CommitFailedException):
        yield


def _sorted(table: Table, snapshot_id: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.scan(snapshot_id=snapshot_id).to_arrow().to_pylist()
    return sorted(rows, key=lambda row: (row["id"], row["name"]))


@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
@pytest.mark.parametrize("seed", range(3))
def test_every_kept_snapshot_reads_as_before_and_nothing_of_failed_writers_is_left(tmp_path: Path, seed: int) -> None:
    model = Model(tmp_path, seed)
    deleted = set[str]()
    for number in range(STEPS):
        model.step()
        if number % 5 == 4:
            before = model.contents()
            deleted |= model.delete_orphans()
            assert model.contents() == before
    model.append()
    deleted |= model.delete_orphans()
    assert model.left
    assert model.left <= deleted
    table, referenced = model.loaded(), Referenced()
    named = {urlsplit(path).path for path in referenced.paths([table])}
    # Metadata of a commit that failed may be a fork's, so it stays with what it names.
    metadata = {path for path in model.files() if path.endswith(".metadata.json")}
    listing = [ListedFile(f"file://{path}", 1, datetime.now(timezone.utc)) for path in sorted(metadata)]
    forks = {urlsplit(path).path for path in referenced.of_forks(ListedMetadata([table.io]), listing)}
    assert {path for path in model.files() - named - metadata - forks if is_of_iceberg(path.rsplit("/", 1)[-1])} == set()
