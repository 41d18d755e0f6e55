"""Laws of orphan files, over drawn listings: what anything may reach is never one, and what cannot be judged is kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.upkeep.file_names import carries
from compaction_pipeline.core.upkeep.orphan_rules import ListedFile, OrphanRules, Standing
from compaction_pipeline.core.upkeep.orphans import OrphanDecision, OrphanList, confirmed, confirmed_by_any, decide_orphans
from compaction_pipeline.core.upkeep.paths import Relation, compared, full_path, loose_name
from compaction_pipeline_tests.core.upkeep.listings import DAY, HOUR, LOCATION, NOW, all_rules, decided, files, listed, references, rules


def orphans(decision: OrphanDecision) -> set[str]:
    return {file.path for file in decision.files[Standing.ORPHAN]}


@given(files, references, all_rules)
def test_each_file_has_exactly_one_standing(some: list[ListedFile], named: list[str], own: OrphanRules) -> None:
    decision = decide_orphans(some, named, own, NOW)
    paths = [file.path for group in decision.files.values() for file in group]
    assert sorted(paths) == sorted({file.path for file in some})
    assert sum(total.files for total in decision.totals.values()) == len(paths)
    assert sum(total.size_bytes for total in decision.totals.values()) == sum(
        file.size_bytes for group in decision.files.values() for file in group
    )
    told = {file.path for one in (Standing.STRANGE, Standing.MISMATCH) for file in decision.files[one]}
    assert set(decision.reasons) == told


@given(files, references, all_rules)
def test_nothing_that_may_be_referenced_is_an_orphan(some: list[ListedFile], named: list[str], own: OrphanRules) -> None:
    for path in orphans(decide_orphans(some, named, own, NOW)):
        for reference in named:
            assert compared(full_path(path), full_path(reference)) is Relation.DIFFERENT
            assert loose_name(path) != loose_name(reference)


@given(files, references, all_rules)
def test_an_orphan_is_old_and_of_nobody_who_may_come_back(some: list[ListedFile], named: list[str], own: OrphanRules) -> None:
    decision = decide_orphans(some, named, own, NOW)
    youngest = {file.path: max(one.modified_at for one in some if one.path == file.path) for file in some}
    for path in orphans(decision):
        assert youngest[path] <= NOW - max(own.minimum_age, DAY)
        assert not carries(path.rsplit("/", 1)[-1], own.ids)
        assert "/_tmp/" not in path
        assert "/.x/" not in path
        assert not path.endswith("000000_0")


@given(files, references, references, all_rules)
def test_more_references_never_make_more_orphans(some: list[ListedFile], named: list[str], more: list[str], own: OrphanRules) -> None:
    assert orphans(decide_orphans(some, [*named, *more], own, NOW)) <= orphans(decide_orphans(some, named, own, NOW))


@given(files, references, all_rules, st.permutations(range(12)))
def test_the_order_of_files_and_references_says_nothing(
    some: list[ListedFile], named: list[str], own: OrphanRules, order: Sequence[int]
) -> None:
    shuffled = [some[place] for place in order if place < len(some)]
    one, other = decide_orphans(some, named, own, NOW), decide_orphans(shuffled, reversed(named), own, NOW)
    assert {standing: {file.path for file in group} for standing, group in one.files.items()} == {
        standing: {file.path for file in group} for standing, group in other.files.items()
    }


@given(files, references, all_rules, st.integers(1, 400))
def test_an_orphan_stays_one_while_nothing_but_time_changes(some: list[ListedFile], named: list[str], own: OrphanRules, hours: int) -> None:
    assert orphans(decide_orphans(some, named, own, NOW)) <= orphans(decide_orphans(some, named, own, NOW + hours * HOUR))


@given(files, files, st.integers(0, 60))
def test_only_what_two_looks_a_day_apart_saw_alike_is_deleted(first: list[ListedFile], second: list[ListedFile], hours: int) -> None:
    before, after = OrphanList(NOW, tuple(first)), OrphanList(NOW + hours * HOUR, tuple(second))
    found = confirmed(before, after)
    assert set(found) == (set(first) & set(second) if hours >= 24 else set())
    assert confirmed(after, before) == () or hours == 0


@given(st.lists(st.tuples(files, st.integers(-80, 80)), max_size=3), files)
def test_the_newest_look_is_confirmed_by_one_that_is_a_day_older_when_all_looks_in_between_agree(
    earlier: list[tuple[list[ListedFile], int]], newest: list[ListedFile]
) -> None:
    newest_first = sorted(earlier, key=lambda one: one[1])
    looks = [OrphanList(NOW - hours * HOUR, tuple(some)) for some, hours in newest_first]
    found = confirmed_by_any(looks, OrphanList(NOW, tuple(newest)))
    assert found == {
        file
        for file in newest
        if any(hours >= 24 and all(file in some for some, _ in newest_first[: place + 1]) for place, (_, hours) in enumerate(newest_first))
    }


def test_a_file_that_changed_between_two_looks_is_not_deleted() -> None:
    seen = listed(f"{LOCATION}/data/x", size=5, version="e1")
    later = NOW + timedelta(hours=24)
    assert confirmed(OrphanList(NOW, (seen,)), OrphanList(later, (seen,))) == (seen,)
    for changed in (
        ListedFile(seen.path, 6, seen.modified_at, "e1"),
        ListedFile(seen.path, 5, seen.modified_at + HOUR, "e1"),
        ListedFile(seen.path, 5, seen.modified_at, "e2"),
        ListedFile(seen.path, 5, seen.modified_at),
    ):
        assert confirmed(OrphanList(NOW, (seen,)), OrphanList(later, (changed,))) == ()


def test_a_listing_that_breaks_is_no_shorter_listing() -> None:
    def broken() -> Iterator[ListedFile]:
        yield listed(f"{LOCATION}/data/x")
        raise OSError("the second page failed")

    with pytest.raises(OSError, match="second page"):
        decided(broken())


def test_metadata_that_cannot_be_read_is_no_shorter_metadata() -> None:
    def broken() -> Iterator[str]:
        yield f"{LOCATION}/data/x"
        raise OSError("a manifest is missing")

    with pytest.raises(OSError, match="manifest"):
        decided([listed(f"{LOCATION}/data/x")], broken())


def test_the_listing_ends_before_the_first_reference_is_read() -> None:
    events = list[str]()

    def listing() -> Iterator[ListedFile]:
        yield listed(f"{LOCATION}/data/x")
        events.append("listed")

    def named() -> Iterator[str]:
        events.append("metadata")
        yield f"{LOCATION}/data/x"

    decide_orphans(listing(), named(), rules(), NOW)
    assert events == ["listed", "metadata"]
