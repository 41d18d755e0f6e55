"""Laws of offsets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.dependencies.center.offsets import Offsets, canonical, downstream_times, upstream_times
from compaction_pipeline.core.dependencies.center.periods import Calendar
from compaction_pipeline_tests.core.dependencies.center.calendars import offsets, pairs, times

Pair = tuple[Calendar, Calendar]


@given(offsets)
def test_the_text_reads_back(some: Offsets) -> None:
    assert Offsets.parse(some.text()) == some


@given(st.data(), pairs, offsets)
def test_every_upstream_time_has_its_downstream_among_its_own(data: st.DataObject, pair: Pair, some: Offsets) -> None:
    down, up = pair
    time = data.draw(times(down))
    found = upstream_times(some, down, up, time)
    assert list(found) == sorted(set(found))
    for upstream in (found[0], found[len(found) // 2], found[-1]) if found else ():
        assert time in downstream_times(some, down, up, upstream)


@given(st.data(), pairs, offsets)
def test_every_downstream_time_has_its_upstream_among_its_own(data: st.DataObject, pair: Pair, some: Offsets) -> None:
    down, up = pair
    time = data.draw(times(up))
    found = downstream_times(some, down, up, time)
    assert list(found) == sorted(set(found))
    for downstream in (found[0], found[len(found) // 2], found[-1]) if found else ():
        assert time in upstream_times(some, down, up, downstream)


@given(st.data(), pairs, offsets)
def test_the_canonical_form_means_the_same_and_stays(data: st.DataObject, pair: Pair, some: Offsets) -> None:
    down, up = pair
    time = data.draw(times(down))
    short = canonical(some, down, up)
    assert upstream_times(short, down, up, time) == upstream_times(some, down, up, time)
    assert canonical(short, down, up) == short
