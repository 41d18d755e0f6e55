"""Python's search for cycles comes back when the last of several threads is done."""

from __future__ import annotations

import gc
from contextlib import ExitStack

from compaction_pipeline.core.cycle_search import without_cycle_search


def test_blocks_of_several_threads_end_in_any_order() -> None:
    assert gc.isenabled()
    first, second = ExitStack(), ExitStack()
    first.enter_context(without_cycle_search())
    second.enter_context(without_cycle_search())
    first.close()
    assert not gc.isenabled()
    second.close()
    assert gc.isenabled()


def test_a_search_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with without_cycle_search():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
