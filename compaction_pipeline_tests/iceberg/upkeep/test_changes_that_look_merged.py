"""Change files whose numbers look merged stay when a reader may need them all the same, and stores that cannot be judged are refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.table.update import AssertTableUUID, RemoveSnapshotRefUpdate

from compaction_pipeline.core.commit.ports import CommitState
from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.ids import RecordId
from compaction_pipeline.core.upkeep.works import UpkeepWork
from compaction_pipeline.iceberg.upkeep.commits import IcebergUpkeepCommitter
from compaction_pipeline_tests.iceberg.faulty_catalog import Faulty
from compaction_pipeline_tests.iceberg.upkeep.test_merged_changes import BY_REGION, TABLE, Expiring
from compaction_pipeline_tests.keyed.change_logs import row
from compaction_pipeline_tests.keyed.expired_changes import WEEK


@pytest.fixture
def keyed(tmp_path: Path) -> Expiring:
    return Expiring(tmp_path)


def numbers(keyed: Expiring) -> list[int]:
    """The data sequence numbers of the live change files."""
    return sorted(file.data_sequence_number for file in keyed.change_files())


def committer(keyed: Expiring) -> IcebergUpkeepCommitter:
    return IcebergUpkeepCommitter(keyed.catalogs, lambda: datetime.now(timezone.utc) + WEEK, sleep=lambda seconds: None)


def drop_main(keyed: Expiring) -> None:
    """What is left of the base store is on a branch, as when another program replaces a table and keeps its history."""
    keyed.base.refresh().manage_snapshots().create_branch(keyed.base_head(), "former").commit()
    updates = (RemoveSnapshotRefUpdate(ref_name="main"),)
    keyed.base.refresh()._do_commit(updates=updates, requirements=(AssertTableUUID(uuid=keyed.base.metadata.table_uuid),))


def test_while_main_of_the_base_store_has_no_snapshot_every_change_stays(keyed: Expiring) -> None:
    keyed.insert(1, 2)
    keyed.merge()
    drop_main(keyed)
    keyed.check([row(1), row(2)])
    assert keyed.expire_changes() == 0
    keyed.check([row(1), row(2)])


@pytest.mark.parametrize("how", ["set back", "made anew"])
def test_changes_stay_that_got_a_number_which_was_merged_before(keyed: Expiring, how: str) -> None:
    keyed.insert(1)
    old = keyed.change.refresh().metadata_location
    keyed.insert(2)
    keyed.insert(3)
    keyed.merge()
    keyed.expire_base()
    keyed.catalog.drop_table("db.t_change_")
    if how == "set back":
        keyed.change = keyed.catalog.register_table("db.t_change_", old)
    else:
        former = keyed.change.metadata
        keyed.change = keyed.catalog.create_table("db.t_change_", former.schema(), properties=former.properties)
        keyed.insert(1)
    # Another program writes on, and looks at no number.
    keyed.insert(7)
    keyed.insert(8)
    written = numbers(keyed)
    assert written == [1, 2, 3]
    assert keyed.expire_changes() == (1 if how == "set back" else 0), "only the file that the base store has"
    assert set(written) - set(numbers(keyed)) <= {1}


def test_a_transaction_that_has_ended_holds_back_what_landed_after_it_began(keyed: Expiring) -> None:
    """It may be an overwrite that takes the number back to its own. Whoever looks for its end looks for its files."""
    with keyed.base.refresh().transaction() as properties:
        properties.set_properties({"change.data.ttl.minutes": "0"})
    keyed.insert(1)
    transaction = keyed.begin()
    keyed.insert(2)
    keyed.commit(keyed.changes(1, "I", transaction, [(row(3), 0)]))
    keyed.merge()
    now = datetime.now(timezone.utc)
    assert keyed.expire_changes(now + timedelta(minutes=59)) == 1
    assert keyed.expire_changes(now + timedelta(minutes=61)) == 2
    keyed.check([row(1), row(2), row(3)])


def test_null_in_one_store_and_its_text_in_the_other_keep_each_others_changes(tmp_path: Path) -> None:
    keyed = Expiring(tmp_path, spec=BY_REGION)
    keyed.insert(1)
    keyed.merge()
    keyed.insert(2, region="null")
    assert keyed.expire_changes() == 0
    keyed.insert(3, region="eu")
    keyed.merge()
    keyed.expire_base()
    assert keyed.expire_changes() == 1
    assert "eu" not in [file.partition[0].value for file in keyed.change_files()]


def test_a_base_store_that_names_another_change_store_keeps_the_former_one(keyed: Expiring) -> None:
    keyed.insert(1)
    keyed.merge()
    found = committer(keyed)
    (target,) = found.targets(TABLE, UpkeepWork.CHANGE_FILES)
    keyed.catalog.register_table("db.other", keyed.change.refresh().metadata_location)
    with keyed.base.refresh().transaction() as transaction:
        transaction.set_properties({"mixed-format.change.identifier": "db.other"})
    with pytest.raises(TableRefused, match="it names another change store now"):
        found.commit(target, RecordId("expire-1"), {})


def test_a_table_that_was_made_anew_is_neither_changed_nor_asked_how_a_record_ended(keyed: Expiring) -> None:
    keyed.insert(1)
    keyed.merge()
    found = committer(keyed)
    (target,) = found.targets(TABLE, UpkeepWork.CHANGE_FILES)
    former = replace(target, table_uuid="another")
    with pytest.raises(TableRefused, match="another table has the name"):
        found.commit(former, RecordId("expire-1"), {})
    assert found.commit(target, RecordId("expire-1"), {}).state is CommitState.COMMITTED
    settled = found.settle(former, RecordId("expire-1"))
    assert (settled.state, settled.reason) == (CommitState.UNKNOWN, "another table has the name lake.db.t_change_ now, and cannot tell")
    assert found.settle(target, RecordId("expire-1")).state is CommitState.COMMITTED


def test_a_refusal_after_a_request_without_an_answer_leaves_open_whether_it_landed(keyed: Expiring) -> None:
    keyed.insert(1)
    keyed.merge()

    def swallowed(swap: object) -> None:
        with keyed.base.refresh().transaction() as transaction:
            transaction.set_properties({"gc.enabled": "false"})
        keyed.insert(2)
        raise CommitStateUnknownException("gateway timeout")

    found = committer(keyed)
    Faulty(keyed.catalogs.catalog("lake"), swallowed)
    (target,) = found.targets(TABLE, UpkeepWork.CHANGE_FILES)
    outcome = found.commit(target, RecordId("expire-1"), {})
    assert (outcome.state, outcome.unanswered) == (CommitState.UNKNOWN, True)
    assert "'gc.enabled' is false" in outcome.reason
