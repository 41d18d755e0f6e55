"""Up to which transaction the changes of a partition are merged."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.fragmentation.verdict import PlanReasonCode
from compaction_pipeline.core.planning.keyed.cut import ChangeFile, LateChanges, choose_cut, late_changes
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.core.tables.keyed.file_names import change_file
from compaction_pipeline.core.tables.keyed.keyed_files import TransactionSpan
from compaction_pipeline.core.tables.keyed.merge_on_read import KeyedInput
from compaction_pipeline.core.tables.keyed.transactions import BegunTransaction

_NOW = datetime(2026, 11, 23, 2, 0, tzinfo=timezone.utc)


def change(sequence: int, transaction: int = 0, *, rows: int = 1) -> ChangeFile:
    """A change file of one transaction: that of its sequence number when none is given."""
    path = f"wh/1-I-{transaction}-00000-0-{sequence}-00001.parquet"
    file = LiveFile(path, FileContent.DATA, 0, (), 10, rows, sequence)
    return ChangeFile(KeyedInput(file, change_file(path, sequence)))


def merged(sequence: int, span: tuple[int, int]) -> ChangeFile:
    """A change file that tells the transaction of each row."""
    return ChangeFile(change(sequence).of, TransactionSpan(*span))


def begun(*numbers: int) -> tuple[BegunTransaction, ...]:
    return tuple(BegunTransaction(number, _NOW) for number in numbers)


def up_to(
    files: Sequence[ChangeFile], above: int | None = None, open_transactions: Sequence[int] = (), most: int | None = None
) -> int | None:
    return choose_cut(files, above, begun(*open_transactions), most).up_to


def test_all_changes_are_merged_when_no_transaction_is_open() -> None:
    assert up_to([change(3), change(5), change(8)]) == 8
    assert up_to([change(5), change(8)], above=4) == 8


def test_the_reason_says_how_many_files_are_merged() -> None:
    cut = choose_cut([change(5), change(8)], 4, ())
    assert (cut.reason.code, cut.reason.text) == (
        PlanReasonCode.PLANNED,
        "changes above sequence 4 and up to 8: 2 change files",
    )


def test_no_change_above_the_optimized_sequence_is_nothing_to_do() -> None:
    cut = choose_cut([], 7, ())
    assert (cut.up_to, cut.reason.code) == (None, PlanReasonCode.NOT_FRAGMENTED)
    assert cut.reason.text == "no change is above the optimized sequence (7)"


def test_changes_after_a_begun_transaction_wait_for_it() -> None:
    assert up_to([change(3), change(5), change(8)], open_transactions=[6, 9]) == 5
    cut = choose_cut([change(8), change(9)], 4, begun(6))
    assert (cut.up_to, cut.reason.code) == (None, PlanReasonCode.FILES_IN_USE)
    assert cut.reason.text == (
        "transaction 6 began at 2026-11-23 02:00:00 and has not ended: it may still bring changes that come before those of 2 "
        "change files, so they wait"
    )


def test_a_transaction_that_began_before_the_optimized_sequence_holds_back_too() -> None:
    assert up_to([change(8)], above=7, open_transactions=[3]) is None


def test_a_transaction_that_landed_after_later_ones_is_merged_with_them_or_not_at_all() -> None:
    # Transaction 4 landed with the sequence number 7. A base row of transaction 5 would survive its deletes.
    files = [change(3), change(5), change(6), change(7, 4), change(8)]
    assert up_to(files) == 8
    assert up_to(files, open_transactions=[7]) == 3
    assert up_to(files, open_transactions=[8]) == 7


def test_fewer_files_are_merged_when_their_number_is_limited() -> None:
    # No change lies between 5 and 8, so 7 merges as much as 5.
    assert up_to([change(3), change(5), change(8)], most=2) == 7
    assert up_to([change(3), change(3), change(5)], most=1) is None


def test_too_many_files_of_transactions_that_belong_together_say_so() -> None:
    cut = choose_cut([change(5), change(6), change(7, 4)], None, (), 2)
    assert (cut.up_to, cut.reason.code) == (None, PlanReasonCode.OVER_BUDGET)
    assert cut.reason.text == (
        "the changes up to sequence 7 must be merged together, to keep transactions in order, but they are 3 change files, and a merge may "
        "read 2: raise 'self-optimizing.max-file-count' of the table"
    )


def test_a_late_transaction_is_counted_and_merged() -> None:
    files = [change(12, 5, rows=7), change(13)]
    assert late_changes(files, above=10) == LateChanges(1, 7)
    assert late_changes(files, above=4) == LateChanges()
    assert late_changes(files, above=None) == LateChanges()
    assert up_to(files, above=10) == 13


def test_late_transactions_are_merged_together() -> None:
    # A base file may be called 10. A delete of transaction 7 that stays would not reach an insert of transaction 5 in it.
    files = [change(12, 5), change(13, 7)]
    assert up_to(files, above=10) == 13
    assert up_to(files, above=10, most=1) is None


def test_a_file_with_several_transactions_is_read_although_its_sequence_is_above_the_cut() -> None:
    file = merged(15, (5, 15))
    assert up_to([file], open_transactions=[13]) == 12
    assert file.has_rows(None, 12)
    assert not file.has_rows(None, 4)
    assert not file.has_rows(15, 20)
    assert file.highest(12) == 12


def test_a_file_with_a_row_above_its_own_sequence_is_never_skipped_as_a_whole() -> None:
    assert up_to([change(3), merged(6, (2, 9)), change(8)]) == 5
    cut = choose_cut([merged(6, (6, 9))], 5, ())
    assert (cut.up_to, cut.reason.code) == (None, PlanReasonCode.REFUSED)
    assert "has the data sequence number 6 but changes of transaction 9" in cut.reason.text


def test_a_transaction_above_its_sequence_number_is_not_merged() -> None:
    # The new base file would be called 9, and a delete of transaction 7 would not reach its rows.
    assert up_to([change(3), change(6, 9), change(7)]) == 5
    cut = choose_cut([change(6, 9)], 5, ())
    assert cut.reason.code is PlanReasonCode.REFUSED
    assert "has the data sequence number 6 but changes of transaction 9" in cut.reason.text


_NUMBERS = st.integers(0, 12)
_FILES = st.lists(
    st.one_of(
        st.tuples(_NUMBERS, _NUMBERS).map(lambda pair: change(*pair)),
        st.tuples(_NUMBERS, st.tuples(_NUMBERS, _NUMBERS).map(lambda pair: (min(pair), max(pair)))).map(lambda pair: merged(*pair)),
    ),
    max_size=6,
)


def _may_be(files: Sequence[ChangeFile], above: int | None, cut: int) -> bool:
    """Whether a number may be T, judged by each transaction that a row may have."""
    for file in files:
        by_row, span = file.span is not None, file.span or TransactionSpan(file.of.named.transaction_id, file.of.named.transaction_id)
        for transaction in range(span.lowest, span.highest + 1):
            skipped = file.sequence <= cut or (by_row and transaction <= cut)
            is_merged = transaction <= cut if by_row else file.sequence <= cut
            counts = not by_row or above is None or transaction > above
            if counts and (skipped != is_merged or (transaction <= cut) != is_merged):
                return False
    return (-1 if above is None else above) < cut <= max((file.sequence for file in files), default=-1)


@given(_FILES, st.none() | _NUMBERS, st.sets(_NUMBERS, max_size=2), st.none() | st.integers(1, 4))
def test_the_cut_is_the_highest_number_that_keeps_all_rules(
    files: list[ChangeFile], above: int | None, open_transactions: set[int], most: int | None
) -> None:
    kept = [file for file in files if above is None or file.sequence > above]
    allowed = [
        cut
        for cut in range(20)
        if _may_be(kept, above, cut)
        and all(cut < number for number in open_transactions)
        and 0 < sum(file.has_rows(above, cut) for file in kept) <= (most or len(kept))
    ]
    found = up_to(kept, above, sorted(open_transactions), most)
    assert found == max(allowed, default=None)
