"""Every commit of ours says the watermark that counts at the head that it is built on, at each attempt, and nothing else of writers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from pyiceberg.table import Table

from compaction_pipeline.core.commit.ports import CommitState
from compaction_pipeline.core.dependencies.watermark import watermark_rule
from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.commit.committer import IcebergCommitter
from compaction_pipeline.iceberg.keyed.replace_changes import replace_changes
from compaction_pipeline.iceberg.keyed.stores import load_stores
from compaction_pipeline.iceberg.upkeep.history import history_of
from compaction_pipeline_tests.iceberg.lake import Lake, LakeTable
from compaction_pipeline_tests.iceberg.upkeep import test_old_rows as old_rows
from compaction_pipeline_tests.iceberg.upkeep.manifest_work import ManifestWork
from compaction_pipeline_tests.iceberg.upkeep.test_merged_changes import Expiring
from compaction_pipeline_tests.keyed.base_commits import BaseCommits
from compaction_pipeline_tests.keyed.change_logs import row
from compaction_pipeline_tests.keyed.delta_merges import rewrite
from compaction_pipeline_tests.one_store import watermark_of
from compaction_pipeline_tests.rest_catalog import rest_server

W1, W2, W3 = "1767225600000", "1767229200000", "1767232800000"
FLINK = {"flink.job-id": "j", "flink.operator-id": "o", "flink.max-committed-checkpoint-id": "7"}
KAFKA = "kafka.connect.valid-through-ts"


def says(table: Table, watermark: str | None = None, **more: str) -> None:
    """What a writer says with a commit of its own."""
    row_delta(table, properties={**({} if watermark is None else {"watermark": watermark}), **more})


def summaries(table: Table) -> list[Mapping[str, str]]:
    """What the snapshots of main say, from the oldest to the head."""
    history = history_of(table.refresh().metadata)
    return [one.summary for one in history.ancestry(history.refs["main"].snapshot_id)][::-1]


def copies(table: Table) -> list[str | None]:
    """The watermark in the summary of each snapshot of main, from the oldest to the head."""
    return [one.get("watermark") for one in summaries(table)]


def watermark(table: Table) -> datetime | None:
    metadata = table.refresh().metadata
    found = watermark_of(history_of(metadata), metadata.properties, watermark_rule(metadata.properties))
    return None if found is None else found.at


def at(milliseconds: str) -> datetime:
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=int(milliseconds))


class Raced:
    """A table that is committed to through one kind of catalog, with a writer that acts at a step of the protocol."""

    def __init__(self, lake: Lake, catalogs: Catalogs) -> None:
        self.t: LakeTable = lake.table(properties={"commit.retry.num-retries": "4"})
        self.t.ids(1)
        self.t.ids(2)
        self.acts: dict[str, list[Callable[[], None]]] = {}
        self.committer = IcebergCommitter(catalogs, sleep=lambda seconds: None, on_step=self._on_step)

    def commit(self, *tasks: CompactionTask) -> None:
        assert self.committer.commit(self.t.identifier, "record-1", tasks).state is CommitState.COMMITTED

    def _on_step(self, step: str) -> None:
        if self.acts.get(step):
            self.acts[step].pop(0)()


@pytest.fixture(params=["sql", "rest"])
def raced(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Raced]:
    lake = Lake(tmp_path)
    if request.param == "sql":
        yield Raced(lake, lake.catalogs)
        return
    with rest_server(lake.catalog) as server:
        properties = {"type": "rest", "uri": server.uri, "credential": "id:secret", "oauth2-server-uri": f"{server.uri}/v1/oauth/tokens"}
        yield Raced(lake, Catalogs(lambda name: CatalogEntry(name, properties)))


def test_a_merge_that_was_planned_at_one_watermark_says_the_newer_one_of_a_writer(raced: Raced) -> None:
    says(raced.t.table, W1)
    merge = raced.t.merge()
    says(raced.t.table, W2)
    raced.commit(merge)
    assert copies(raced.t.table)[-2:] == [W2, W2]
    assert raced.t.live_ids() == [1, 2]


@pytest.mark.parametrize("step", ["after-load", "after-validation", "before-manifest-list", "before-swap"])
def test_a_writer_between_two_attempts_is_heard_by_the_second(raced: Raced, step: str) -> None:
    says(raced.t.table, W1)
    merge = raced.t.merge()
    raced.acts[step] = [lambda: says(raced.t.table, W2), lambda: says(raced.t.table, W3)]
    raced.commit(merge)
    assert copies(raced.t.table)[-4:] == [W1, W2, W3, W3]
    assert raced.t.live_ids() == [1, 2]


def test_a_watermark_that_was_taken_back_meanwhile_is_not_brought_back(raced: Raced) -> None:
    """The writer was started anew from an older savepoint, after our plan and after our first attempt."""
    says(raced.t.table, W3)
    merge = raced.t.merge()
    raced.acts["before-swap"] = [lambda: says(raced.t.table, W1)]
    raced.commit(merge)
    assert copies(raced.t.table)[-2:] == [W1, W1]
    assert watermark(raced.t.table) == at(W1)


def test_a_rollback_while_a_commit_is_made_leaves_the_watermark_of_what_stays(raced: Raced) -> None:
    says(raced.t.table, W1)
    merge = raced.t.merge()
    before = raced.t.table.refresh().metadata.current_snapshot_id
    assert before is not None
    says(raced.t.table, W2)
    raced.acts["before-swap"] = [lambda: raced.t.table.refresh().manage_snapshots().rollback_to_snapshot(before).commit()]
    raced.commit(merge)
    assert copies(raced.t.table)[-2:] == [W1, W1]


def test_a_rollback_withdraws_it_behind_our_commits_too(raced: Raced) -> None:
    says(raced.t.table, W1)
    raced.commit(raced.t.merge())
    ours = raced.t.table.refresh().metadata.current_snapshot_id
    assert ours is not None
    says(raced.t.table, W2)
    assert watermark(raced.t.table) == at(W2)
    raced.t.table.manage_snapshots().rollback_to_snapshot(ours).commit()
    assert watermark(raced.t.table) == at(W1)


def test_both_snapshots_of_a_commit_say_it(lake: Lake) -> None:
    t = lake.table()
    t.ids(1)
    t.ids(2)
    large = t.ids(3, 4)
    t.delete_ids(1)
    gone = t.delete_positions((large.path, 0))
    also = t.delete_positions((large.path, 1))
    says(t.table, W1, **FLINK)
    merge = t.merge([path for path in (file.path for file in t.files() if file.is_data) if path != large.path])
    convert = t.convert([large.path], [gone.path, also.path])
    assert t.commit(merge, convert).state is CommitState.COMMITTED
    assert [one["operation"] for one in summaries(t.table)[-2:]] == ["replace", "overwrite"]
    assert copies(t.table)[-2:] == [W1, W1]
    assert t.live_ids() == [2]


def test_nothing_else_of_a_writer_is_copied(lake: Lake) -> None:
    """A streaming writer that starts anew looks for its newest commit. It must find its own, and no copy."""
    offsets = {"kafka.connect.offsets.control.group": '{"0":3}', "kafka.connect.commit-id": "c", KAFKA: "2026-01-01T00:00Z"}
    t = lake.table()
    t.ids(1)
    t.ids(2)
    says(t.table, **FLINK, **{"flink.watermark": W1}, **offsets)
    assert t.commit(t.merge()).state is CommitState.COMMITTED
    copied = {key: text for key, text in summaries(t.table)[-1].items() if key.startswith(("flink.", "kafka.", "watermark"))}
    assert copied == {"flink.watermark": W1, KAFKA: "2026-01-01T00:00Z"}


def test_the_end_of_a_bounded_load_stays_at_the_time_of_its_own_commit(lake: Lake) -> None:
    t = lake.table()
    t.ids(1)
    t.ids(2)
    says(t.table, str(2**63 - 1))
    loaded = t.table.refresh().current_snapshot()
    assert loaded is not None
    assert t.commit(t.merge()).state is CommitState.COMMITTED
    assert copies(t.table)[-1] == str(loaded.timestamp_ms)
    assert watermark(t.table) == at(str(loaded.timestamp_ms))


@pytest.mark.parametrize("of_catalog", [False, True])
def test_the_keys_of_named_writers_are_copied_each_by_itself(tmp_path: Path, of_catalog: bool) -> None:
    named = {"compaction.watermark-writers": "eu:wm.eu,us:wm.us"}
    folder = tmp_path / "lake"
    folder.mkdir()
    properties = Lake(folder).properties
    lake = Lake(folder, properties={**properties, **({f"table.{key}": text for key, text in named.items()} if of_catalog else {})})
    t = lake.table(properties={} if of_catalog else named)
    t.ids(1)
    t.ids(2)
    says(t.table, **{"wm.eu": W1})
    says(t.table, **{"wm.us": W2})
    says(t.table, **{"wm.eu": W3})
    assert t.commit(t.merge()).state is CommitState.COMMITTED
    assert {key: text for key, text in summaries(t.table)[-1].items() if key.startswith("wm.")} == {"wm.eu": W3, "wm.us": W2}


def test_a_bad_property_stops_no_commit_and_the_default_keys_are_copied(lake: Lake) -> None:
    t = lake.table(properties={"compaction.watermark-keys": "flink.job-id"})
    t.ids(1)
    t.ids(2)
    says(t.table, W1)
    assert t.commit(t.merge()).state is CommitState.COMMITTED
    assert copies(t.table)[-1] == W1


def test_a_person_sets_no_watermark_by_a_property_of_the_snapshot(lake: Lake) -> None:
    """`snapshot_properties` refuses the usual keys. This one only the table's own property makes a watermark."""
    t = lake.table(properties={"compaction.watermark-keys": "our.watermark"})
    t.ids(1)
    t.ids(2)
    merge = replace(t.merge(), snapshot_properties={"our.watermark": W3, "owner": "nightly"})
    assert t.commit(merge).state is CommitState.COMMITTED
    assert ("our.watermark" in summaries(t.table)[-1], summaries(t.table)[-1]["owner"]) == (False, "nightly")
    assert watermark(t.table) is None


def test_a_table_whose_writers_say_nothing_gets_nothing(lake: Lake) -> None:
    t = lake.table()
    t.ids(1)
    t.ids(2)
    assert t.commit(t.merge()).state is CommitState.COMMITTED
    assert copies(t.table) == [None, None, None]


# ---- other commits of ours --------------------------------------------------------------------------------------------


def test_a_rewrite_of_manifests_says_it(lake: Lake) -> None:
    t = lake.table(properties={"commit.manifest.min-count-to-merge": "2"})
    for number in range(3):
        t.ids(number)
    says(t.table, W1, **FLINK)
    acts = [lambda: says(t.table, W2)]
    work = ManifestWork(lake.catalogs, lambda step: acts.pop()() if step == "before-swap" and acts else None)
    assert work.rewrite(t.identifier).state is CommitState.COMMITTED
    assert copies(t.table)[-3:] == [W1, W2, W2]
    assert "flink.job-id" not in summaries(t.table)[-1]


def test_a_commit_that_drops_old_rows_says_it(lake: Lake) -> None:
    t = old_rows.table(lake)
    old_rows.insert(t, [20, 20.1])
    old_rows.insert(t, [1], 3)
    says(t.table, W1)
    old_rows.drop(t)
    assert (summaries(t.table)[-1]["operation"], copies(t.table)[-1]) == ("delete", W1)


def test_a_merge_of_changes_says_what_counts_in_the_base_store(tmp_path: Path) -> None:
    keyed = BaseCommits(tmp_path)
    keyed.commit(keyed.changes(1, "I", 0, [(row(1), 1), (row(2), 2)]))
    says(keyed.change, W3)
    says(keyed.base, W1)
    tasks = keyed.plan()
    says(keyed.base, W2)
    assert keyed.commit_tasks(*tasks).state is CommitState.COMMITTED
    assert copies(keyed.base)[-1] == W2, "each store goes on with its own"
    keyed.check([row(1), row(2)])


class Stopped(BaseException):
    """The process ends here."""


def test_a_commit_that_only_moves_the_head_of_a_base_store_says_it(tmp_path: Path) -> None:
    """An attempt was cut off, and what it was planned from was rolled back in the change store: nothing can go in any more."""
    keyed = BaseCommits(tmp_path)
    keyed.commit(keyed.changes(1, "I", 0, [(row(1), 1)]))
    first = keyed.change.refresh().metadata.current_snapshot_id
    assert first is not None
    keyed.commit(keyed.changes(1, "I", 0, [(row(2), 1)]))
    says(keyed.base, W1)
    tasks = keyed.plan()

    def stop(step: str) -> None:
        if step == "before-swap":
            raise Stopped

    with pytest.raises(Stopped):
        keyed.commit_tasks(*tasks, committer=IcebergCommitter(keyed.catalogs, sleep=lambda seconds: None, on_step=stop))
    keyed.change.manage_snapshots().rollback_to_snapshot(first).commit()
    assert keyed.commit_tasks(*tasks).state is CommitState.NOTHING
    assert copies(keyed.base) == [W1, W1]


def test_merged_change_files_say_what_counts_in_the_change_store(tmp_path: Path) -> None:
    keyed = BaseCommits(tmp_path)
    keyed.commit(keyed.changes(1, "I", 0, [(row(1), 1)]))
    keyed.commit(keyed.changes(1, "I", 0, [(row(2), 1)]))
    says(keyed.change, W1)
    rewrite(keyed, keyed.change_files())
    assert copies(keyed.change)[-1] == W1
    keyed.check([row(1), row(2)])


def test_a_merging_sink_says_it_in_its_merges(tmp_path: Path) -> None:
    keyed = BaseCommits(tmp_path)
    keyed.commit(keyed.changes(1, "I", 0, [(row(1), 1)]))
    keyed.commit(keyed.changes(1, "I", 0, [(row(2), 1)]))
    says(keyed.change, W1)
    merged = keyed.changes(1, "I", 0, [(row(1), 1, 1), (row(2), 1, 2)])
    replace_changes(load_stores(keyed.catalog, ("db", "t")), keyed.change_files(), [merged], lambda seconds: None)
    assert copies(keyed.change)[-1] == W1


def test_merged_changes_that_expire_take_no_watermark_with_them(tmp_path: Path) -> None:
    keyed = Expiring(tmp_path)
    keyed.insert(1)
    says(keyed.change, W1)
    keyed.merge()
    assert keyed.expire_changes() == 1
    assert (summaries(keyed.change)[-1]["operation"], copies(keyed.change)[-1]) == ("delete", W1)


# ---- keys that only the base store of a keyed table names ---------------------------------------------------------------


def names_keys_on_its_base_store(keyed: BaseCommits, named: Mapping[str, str]) -> None:
    """Readers look by the properties of the base store for what the change store says."""
    keyed.base.refresh().transaction().set_properties(dict(named)).commit_transaction()


def merged_by_the_program(keyed: Expiring) -> None:
    rewrite(keyed, keyed.change_files())


def merged_by_a_sink(keyed: Expiring) -> None:
    stores = load_stores(keyed.catalog, ("db", "t"))
    replace_changes(stores, keyed.change_files(), [keyed.changes(1, "I", 0, [(row(1), 1, 1), (row(2), 1, 2)])], lambda seconds: None)


def expired(keyed: Expiring) -> None:
    keyed.merge()
    assert keyed.expire_changes() == 2


@pytest.mark.parametrize("commit", [merged_by_the_program, merged_by_a_sink, expired])
@pytest.mark.parametrize("own", [None, "us:wm.us", "eu"])
def test_commits_to_a_change_store_copy_by_the_keys_of_the_base_store(
    tmp_path: Path, commit: Callable[[Expiring], None], own: str | None
) -> None:
    keyed = Expiring(tmp_path)
    names_keys_on_its_base_store(keyed, {"compaction.watermark-writers": "eu:wm.eu,us:wm.us"})
    if own is not None:
        keyed.change.refresh().transaction().set_properties({"compaction.watermark-writers": own}).commit_transaction()
    for number in (1, 2):
        keyed.commit(keyed.changes(1, "I", 0, [(row(number), 1)]))
    says(keyed.change, **{"wm.eu": W1})
    says(keyed.change, **{"wm.us": W2})
    commit(keyed)
    assert {key: text for key, text in summaries(keyed.change)[-1].items() if key.startswith("wm.")} == {"wm.eu": W1, "wm.us": W2}
    keyed.check([row(1), row(2)])


def test_a_sink_that_runs_hears_of_keys_that_the_base_store_names_meanwhile(tmp_path: Path) -> None:
    keyed = Expiring(tmp_path)
    for number in (1, 2):
        keyed.commit(keyed.changes(1, "I", 0, [(row(number), 1)]))
    says(keyed.change, **{"wm.eu": W1})
    stores = load_stores(keyed.catalog, ("db", "t"))
    names_keys_on_its_base_store(keyed, {"compaction.watermark-keys": "wm.eu"})
    replace_changes(stores, keyed.change_files(), [keyed.changes(1, "I", 0, [(row(1), 1, 1), (row(2), 1, 2)])], lambda seconds: None)
    assert summaries(keyed.change)[-1].get("wm.eu") == W1
