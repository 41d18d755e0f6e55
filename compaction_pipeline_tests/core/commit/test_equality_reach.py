"""The lowest and highest sequence numbers of a bucket answer as a look at each file does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.commit.head import bucket_of
from compaction_pipeline.core.commit.validation import _EqualityReach
from compaction_pipeline_tests.builders import data, equality

_days = st.integers(1, 3)
_sequences = st.integers(1, 6)


@given(st.lists(st.tuples(_days, _sequences), max_size=5), _days, _sequences, st.booleans())
def test_spans_answer_as_a_look_at_each_file_does(files: list[tuple[int, int]], day: int, sequence: int, everywhere: bool) -> None:
    each = [data(f"d{number}", day=where, seq=when) for number, (where, when) in enumerate(files)]
    delete = equality("e", sequence, day=day)
    reached = [(everywhere or bucket_of(file) == bucket_of(delete)) and file.data_sequence_number < sequence for file in each]
    reach = _EqualityReach(each)
    assert reach.any_of(delete, everywhere) == any(reached)
    assert reach.all_of(delete, everywhere) == all(reached)
    assert reach.is_empty == (not each)
