"""A Bloom filter knows every hash that was added."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from compaction_pipeline.formats.hash_filter import HashFilter


@settings(max_examples=25, deadline=None)
@given(added=st.lists(st.integers(0, 2**64 - 1)), expected=st.integers(0, 100), most_bytes=st.integers(0, 64))
def test_a_hash_filter_never_denies_what_was_added(added: list[int], expected: int, most_bytes: int) -> None:
    hashes = np.array(added, dtype=np.uint64)
    rows = HashFilter(expected, most_bytes)
    rows.add(hashes)
    assert rows.may_hold(hashes).all()


def test_a_hash_filter_denies_most_keys_that_were_not_added() -> None:
    numbers = np.random.default_rng(1).integers(0, 2**64, (2, 10_000), dtype=np.uint64)
    rows = HashFilter(10_000, 1 << 20)
    rows.add(numbers[0])
    assert rows.may_hold(numbers[1]).mean() < 0.07
