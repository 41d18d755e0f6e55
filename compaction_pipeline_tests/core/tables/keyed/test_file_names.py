"""Names of the files of keyed tables: made, read, and what they mean in each store."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.tables.keyed.file_names import (
    KeyedFile,
    KeyedFileNames,
    KeyedFileType,
    base_file,
    change_file,
    parse_name,
)
from compaction_pipeline.core.tables.keyed.tree import ROOT, DataTreeNode
from compaction_pipeline_tests.strategies import tree_nodes

_FOLDER = "s3://lake/db/t_change_/data/region=l%27%C3%A9t%C3%A9/"


def test_a_name_has_the_form_of_amoro() -> None:
    names = KeyedFileNames(transaction_id=17, writer=1, task_id=0, operation_id=5132886235797133601)
    assert names.name(DataTreeNode(7, 1), KeyedFileType.EQUALITY_DELETE, 6) == "9-ED-17-00001-0-5132886235797133601-00006.parquet"


@given(
    tree_nodes(), st.sampled_from(KeyedFileType), st.integers(0, 2**63 - 1), st.integers(0, 10**6), st.integers(0, 2**40),
    st.integers(0, 2**63 - 1), st.integers(1, 10**6), st.sampled_from(["", ".", _FOLDER, _FOLDER + "."]),
)  # fmt: skip
def test_a_name_says_what_it_was_made_of(
    node: DataTreeNode, kind: KeyedFileType, transaction: int, writer: int, task: int, operation: int, number: int, before: str
) -> None:
    name = KeyedFileNames(transaction, writer, task, operation).name(node, kind, number)
    assert parse_name(before + name) == KeyedFile(node, kind, transaction)


@pytest.mark.parametrize(
    "name",
    [
        "00000-12-2b0f6c1e-1f0e-4f8b-9d3a-0c8b3d8f4f5e-00001.parquet",
        "9-XX-17-00001-0-5132886235797133601-00006.parquet",
        "9-ed-17-00001-0-5132886235797133601-00006.parquet",
        "-9-ED-17-00001-0-5132886235797133601-00006.parquet",
        "..9-ED-17-00001-0-5132886235797133601-00006.parquet",
        "9-ED-17-00001-0",
        "٩-ED-17-00001-0-1-00006.parquet",
        "000000_0",
        "",
    ],
)
def test_another_name_holds_inserts_of_its_sequence_number_in_the_change_store_and_old_rows_in_the_base_store(name: str) -> None:
    assert parse_name(_FOLDER + name) is None
    assert change_file(_FOLDER + name, 42) == KeyedFile(ROOT, KeyedFileType.INSERT, 42)
    assert base_file(_FOLDER + name) == KeyedFile(ROOT, KeyedFileType.BASE, 0)


def test_a_change_file_with_transaction_0_has_its_data_sequence_number_as_transaction() -> None:
    assert change_file("5-ED-0-00000-0-7408343150939781868-00003.parquet", 11).transaction_id == 11
    assert change_file("5-ED-9-00000-0-7408343150939781868-00003.parquet", 11).transaction_id == 9


def test_an_insert_file_in_the_base_store_is_a_base_file() -> None:
    assert base_file("5-I-9-00000-0-7408343150939781868-00003.parquet") == KeyedFile(DataTreeNode(3, 1), KeyedFileType.BASE, 9)
    assert base_file("5-I-0-00000-0-7408343150939781868-00003.parquet").transaction_id == 0
    assert base_file("5-PD-9-00000-0-7408343150939781868-00003.parquet").type is KeyedFileType.POSITION_DELETE


def test_the_node_of_a_table_with_5_buckets_is_the_one_that_its_name_says() -> None:
    # Amoro gives the 5 buckets the mask 4. The last one gets the id 9, which is the node (7, 1) for every reader.
    assert change_file("9-I-3-00000-0-1-00001.parquet", 3).node == DataTreeNode(7, 1)


@pytest.mark.parametrize("name", ["0-I-3-00000-0-1-00001.parquet", f"1-I-{2**63}-00000-0-1-00001.parquet", f"{2**63}-I-1-0-0-1.parquet"])
def test_a_name_that_follows_the_rules_but_names_what_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(TableRefused, match="it is unknown which rows the file belongs to"):
        parse_name(_FOLDER + name)
