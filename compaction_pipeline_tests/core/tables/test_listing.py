"""What a listing of a catalog proves about the tables that are known."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.tables.listing import (
    MOST_SENTENCES,
    ROUNDS,
    CatalogListing,
    Findings,
    KnownName,
    judge_listing,
    vanish_at_once,
)
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline_tests.builders import NOW

INTERVAL = timedelta(minutes=3)


def names(count: int, namespace: str = "shop") -> list[TableIdentifier]:
    return [TableIdentifier("lake", (namespace,), f"t{number:05d}") for number in range(count)]


def listing(tables: list[TableIdentifier], **values: object) -> CatalogListing:
    return replace(CatalogListing(dict.fromkeys(tables)), **values)  # type: ignore[arg-type]


def judged(listed: CatalogListing, known: list[TableIdentifier], *, accepted: bool = False) -> Findings:
    return judge_listing("lake", listed, [KnownName(one) for one in known], NOW, INTERVAL, accepted=accepted)


def after_rounds(listed: CatalogListing, known: list[TableIdentifier], rounds: int, step: timedelta = INTERVAL) -> Findings:
    """What the last of so many rounds finds, each of which sees the same."""
    before = {one: KnownName(one) for one in known}
    for number in range(rounds):
        found = judge_listing("lake", listed, list(before.values()), NOW + number * step, INTERVAL)
        before.update({one.table: one for one in found.missed})
    return found


def test_few_tables_leave_at_once_and_a_new_one_makes_them_wait_for_a_round() -> None:
    known = names(30)
    assert judged(listing(known[2:]), known).may_leave == tuple(known[:2])
    renamed = TableIdentifier("lake", ("shop",), "renamed")
    listed = listing([*known[1:], renamed])
    found = judged(listed, known)
    assert (found.appeared, found.may_leave, len(found.unseen)) == ((renamed,), (), 1)
    assert after_rounds(listed, known, 2).may_leave == (known[0],)


@pytest.mark.parametrize(("known", "vanished"), [(10_000, 51), (10_000, 10_000), (100, 11), (10, 2), (2, 2)])
def test_many_tables_wait_for_two_more_rounds_or_for_a_person(known: int, vanished: int) -> None:
    every = names(known)
    listed = listing(every[vanished:])
    found = judged(listed, every)
    assert found.may_leave == ()
    (sentence,) = found.unseen
    assert sentence.tables == vanished
    assert f"no more, e.g. {every[0]}, in round 1 of 3" in sentence.sentence
    assert "catalog explore lake --accept-vanished" in sentence.sentence
    assert after_rounds(listed, every, ROUNDS - 1).may_leave == ()
    assert after_rounds(listed, every, ROUNDS).may_leave == tuple(every[:vanished])
    assert judged(listed, every, accepted=True).may_leave == tuple(every[:vanished])


def test_listings_that_follow_each_other_at_once_are_one_round() -> None:
    every = names(100)
    assert after_rounds(listing([]), every, 20, timedelta(seconds=5)).may_leave == ()


def test_an_empty_answer_of_a_namespace_is_no_proof_that_its_table_is_gone() -> None:
    known = [*names(40), *names(1, "attic")]
    listed = listing(known[:40], empty=frozenset({("attic",)}))
    assert judged(listed, known).may_leave == ()
    assert after_rounds(listed, known, ROUNDS).may_leave == (known[40],)
    none = listing([], empty=frozenset({()}))
    assert judged(none, known[:1]).may_leave == ()


def test_a_namespace_that_fails_is_a_sentence_and_nothing_leaves_whatever_a_person_says() -> None:
    known = [*names(40), *names(300, "attic")]
    listed = listing(known[:40], failed={("attic",): "HTTP 403"})
    for accepted in (False, True):
        found = judged(listed, known, accepted=accepted)
        assert (found.may_leave, found.missed) == ((), ())
        assert [one.sentence for one in found.unseen] == [
            "namespace attic of catalog lake could not be listed: HTTP 403. 300 tables in it were not seen, and they stay as they are"
        ]
    assert after_rounds(listed, known, 50).may_leave == ()


def test_a_namespace_that_the_catalog_lists_and_denies_removes_nothing_before_a_person_says_so() -> None:
    known = [*names(40), *names(3, "attic")]
    listed = listing(known[:40], missing=frozenset({("attic",)}))
    assert after_rounds(listed, known, 50).may_leave == ()
    assert judged(listed, known, accepted=True).may_leave == tuple(sorted(known[40:]))
    # An upper level that is no namespace of its own is nothing to tell of.
    assert judged(listed, known[:40]).unseen == ()


def test_tables_below_a_namespace_that_hides_its_lower_ones_were_not_seen() -> None:
    deep = TableIdentifier("lake", ("shop", "eu"), "orders")
    listed = listing(names(3), failed={("shop",): "HTTP 500"}, denied_below=frozenset({("shop",)}))
    found = judged(listed, [*names(3), deep])
    assert (found.missed, found.may_leave, found.unseen[0].tables) == ((), (), 1)


def test_many_namespaces_that_fail_are_few_sentences() -> None:
    failed = {(f"n{number:04d}",): "HTTP 503" for number in range(1_000)}
    known = [TableIdentifier("lake", namespace, "t") for namespace in failed]
    found = judged(listing([], failed=failed), known)
    assert len(found.unseen) == MOST_SENTENCES + 1
    assert sum(one.tables for one in found.unseen) == 1_000
    assert found.unseen[-1].sentence.startswith(f"{1_000 - MOST_SENTENCES} more namespaces of catalog lake could not be listed, e.g. ")


def test_a_table_that_is_listed_again_is_counted_anew() -> None:
    (one,) = names(1)
    found = judge_listing("lake", listing([one]), [KnownName(one, 2, NOW)], NOW, INTERVAL)
    assert (found.seen_again, found.missed) == ((one,), ())


@given(st.integers(1, 400), st.integers(0, 400), st.booleans(), st.booleans())
def test_nothing_leaves_that_is_listed_or_hidden_and_only_few_leave_at_once(known: int, seen: int, fails: bool, empty: bool) -> None:
    every = [*names(known), *names(20, "attic")]
    listed = every[: min(seen, known)]
    found = judged(
        listing(
            listed,
            failed={("attic",): "HTTP 403"} if fails else {},
            empty=frozenset({("attic",)}) if empty else frozenset(),
        ),
        every,
    )
    assert not set(found.may_leave) & set(listed)
    assert not fails or all(one.namespace != ("attic",) for one in found.may_leave)
    assert vanish_at_once(len(found.may_leave), len(every))
    assert {one.table for one in found.missed} | set(listed) | set(every[known:] if fails else ()) == set(every)
