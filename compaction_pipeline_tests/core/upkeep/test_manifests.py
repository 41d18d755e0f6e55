"""Which manifests are rewritten: examples, and laws over drawn manifest lists."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.upkeep.manifests import (
    DATA,
    DELETES,
    FieldRange,
    Group,
    Manifest,
    ManifestPlan,
    ManifestRules,
    Place,
    decide_manifests,
    manifests_opened,
    places_of,
    resolve_manifest_rules,
)

MB = 1 << 20
RULES = ManifestRules(target_bytes=8 * MB, min_count=3)


def manifest(
    path: str, mb: float = 1, *, content: str = DATA, spec: int = 0, live: int | None = 10, removed: int = 0, days: str = "aa"
) -> Manifest:
    """A manifest whose partitions lie between two letters."""
    ranges = (FieldRange(days[0], days[1], has_null=False),)
    return Manifest(path, int(mb * MB), content, spec, live, removed, ranges)


def paths(manifests: Sequence[Manifest]) -> list[str]:
    return [one.path for one in manifests]


def test_small_manifests_are_rewritten_when_there_are_enough_of_them() -> None:
    two = [manifest("a"), manifest("b")]
    assert not decide_manifests(two, RULES).is_due
    plan = decide_manifests([*two, manifest("c")], RULES)
    assert [(paths(group.manifests), group.parts) for group in plan.groups] == [(["a", "b", "c"], 1)]
    assert plan.kept == ()


def test_nothing_to_do_has_a_reason() -> None:
    plan = decide_manifests([manifest("a"), manifest("b", content=DELETES)], RULES)
    assert plan.reason == (
        "spec 0 has 1 small data manifest (below 4.2 MB, half of 'commit.manifest.target-size-bytes'), and "
        "'commit.manifest.min-count-to-merge' is 3; spec 0 has 1 small delete manifest (below 4.2 MB, half of "
        "'commit.manifest.target-size-bytes'), and 'commit.manifest.min-count-to-merge' is 3"
    )
    assert decide_manifests([], RULES).reason == "the snapshot has no manifest"


def test_a_manifest_of_half_the_target_stays() -> None:
    plan = decide_manifests([manifest("a"), manifest("b"), manifest("c"), manifest("large", 4), manifest("d", 3.9)], RULES)
    assert paths(plan.kept) == ["large"]


def test_a_manifest_that_mostly_lists_removed_files_is_small() -> None:
    hollow = [manifest(f"h{number}", 40, live=10, removed=990) for number in range(3)]
    (group,) = decide_manifests(hollow, RULES).groups
    assert (len(group.manifests), group.parts) == (3, 1)


def test_manifests_without_a_live_file_become_none() -> None:
    (group,) = decide_manifests([manifest(f"e{number}", live=0, removed=5) for number in range(3)], RULES).groups
    assert group.parts == 0


def test_a_manifest_that_cannot_be_rewritten_stays_and_does_not_count() -> None:
    plan = decide_manifests([manifest("a"), manifest("b"), replace(manifest("c"), stays_because="it is encrypted")], RULES)
    assert not plan.is_due
    assert len(plan.kept) == 3


def test_each_content_and_each_spec_is_judged_and_rewritten_alone() -> None:
    many = [
        manifest(f"{content}{spec}{number}", content=content, spec=spec)
        for content in (DATA, DELETES)
        for spec in (0, 1)
        for number in range(3)
    ]
    plan = decide_manifests([*many, manifest("lone", spec=2)], RULES)
    assert [(group.content, group.spec_id, len(group.manifests)) for group in plan.groups] == [
        (DATA, 0, 3),
        (DATA, 1, 3),
        (DELETES, 0, 3),
        (DELETES, 1, 3),
    ]
    assert paths(plan.kept) == ["lone"]


def test_many_small_manifests_become_as_many_as_their_bytes_fill() -> None:
    (group,) = decide_manifests([manifest(f"m{number:02}", 1) for number in range(20)], RULES).groups
    assert group.parts == 3


def test_groups_have_a_bounded_size_and_neighbouring_partitions() -> None:
    shuffled = [manifest(f"m{number:03}", 2, days=2 * "abcd"[number % 4]) for number in range(256)]
    plan = decide_manifests(shuffled, RULES)
    assert [group.parts for group in plan.groups] == [16] * 4
    assert [{one.ranges[0].lower for one in group.manifests if one.ranges} for group in plan.groups] == [{"a"}, {"b"}, {"c"}, {"d"}]


def test_the_gain_is_told_for_a_reader_of_one_partition() -> None:
    wide = [manifest(f"w{number}", 1, days="ac") for number in range(4)]
    other = [manifest("z", 7, days="zz")]
    plan = decide_manifests([*wide, *other], RULES)
    # The partition "a" lies in four manifests and then in one, "z" in one before and afterwards.
    assert (plan.opened_before, plan.opened_after) == (2.5, 1.0)
    assert plan.reason == "4 small manifests → about 1; manifests that a reader of one partition opens: 2.5 → 1"


def test_a_reader_of_null_opens_only_manifests_that_have_null() -> None:
    null = Manifest("n", MB, DATA, 0, 1, 0, (FieldRange(None, None, has_null=True),))
    both = Manifest("b", MB, DATA, 0, 1, 0, (FieldRange("a", "c", has_null=True),))
    rest = Manifest("r", MB, DATA, 0, 1, 0, (FieldRange("a", "c", has_null=False),))
    assert manifests_opened([null, both, rest], [Place(0, (None,))]) == 2
    assert manifests_opened([null, both, rest], [Place(0, ("b",))]) == 2
    assert manifests_opened([null, both, rest], [Place(1, ("b",))]) == 0


def test_manifests_whose_partitions_are_not_known_are_opened_by_every_reader_of_their_spec() -> None:
    unknown = replace(manifest("u"), ranges=None)
    assert manifests_opened([unknown, manifest("a")], [Place(0, ("a",)), Place(0, ("b",))]) == 1.5
    assert places_of([unknown]) == ()
    assert manifests_opened([unknown, manifest("e", live=0)], ()) == 1


def test_at_most_a_hundred_partitions_stand_for_all() -> None:
    places = places_of([Manifest(str(day), MB, DATA, 0, 1, 0, (FieldRange(day, day, has_null=False),)) for day in range(1000)])
    assert [place.values[0] for place in places] == list(range(0, 1000, 10))


def test_the_properties_of_the_table_win_over_those_of_the_catalog() -> None:
    catalog = {"table.commit.manifest.min-count-to-merge": "7", "table.commit.manifest.target-size-bytes": "5"}
    assert resolve_manifest_rules({}, {}) == ManifestRules(8 * MB, 100)
    assert resolve_manifest_rules({"commit.manifest.target-size-bytes": "9"}, catalog) == ManifestRules(9, 7)
    with pytest.raises(ConfigError, match=re.escape("'commit.manifest.target-size-bytes' is 0 but must be ≥ 1")):
        resolve_manifest_rules({"commit.manifest.target-size-bytes": "0"}, {})


# ---- laws ----------------------------------------------------------------------------------------------------------------

_RANGES = st.one_of(
    st.none(),
    st.tuples(
        st.one_of(
            st.just(FieldRange(None, None, has_null=True)),
            st.tuples(st.integers(0, 5), st.integers(0, 5), st.booleans()).map(lambda one: FieldRange(min(one[:2]), max(one[:2]), one[2])),
        )
    ),
)
_MANIFESTS = st.lists(
    st.builds(
        Manifest,
        path=st.uuids().map(str),
        length_bytes=st.integers(1, 60),
        content=st.sampled_from([DATA, DELETES]),
        spec_id=st.integers(0, 2),
        live_files=st.one_of(st.none(), st.integers(0, 9)),
        removed_files=st.one_of(st.none(), st.integers(0, 9)),
        ranges=_RANGES,
        stays_because=st.sampled_from([None, None, None, "it is encrypted"]),
    ),
    max_size=60,
    unique_by=lambda one: one.path,
)
_RULES = st.builds(ManifestRules, target_bytes=st.integers(1, 40), min_count=st.integers(1, 9))


def rewritten(plan: ManifestPlan) -> list[Manifest]:
    """The manifests afterwards, when the bytes of each group are shared out evenly."""
    after = list(plan.kept)
    for group in plan.groups:
        after += [_part(group, number) for number in range(group.parts)]
    return after


def _part(group: Group, number: int) -> Manifest:
    total = sum(one.live_bytes for one in group.manifests)
    size = total * (number + 1) // group.parts - total * number // group.parts
    name = f"new-{group.content}-{group.spec_id}-{group.manifests[0].path}-{number}"
    return Manifest(
        name, size, group.content, group.spec_id, max(1, sum(one.live_files or 0 for one in group.manifests) // group.parts), 0, None
    )


@given(_MANIFESTS, _RULES)
def test_each_manifest_is_in_one_group_or_stays(manifests: list[Manifest], rules: ManifestRules) -> None:
    plan = decide_manifests(manifests, rules)
    assert Counter(paths([*plan.rewritten, *plan.kept])) == Counter(paths(manifests))


@given(_MANIFESTS, _RULES)
def test_a_rewrite_makes_fewer_manifests_and_no_reader_opens_more(manifests: list[Manifest], rules: ManifestRules) -> None:
    plan = decide_manifests(manifests, rules)
    assert plan.opened_after <= plan.opened_before
    assert not plan.is_due or len(rewritten(plan)) < len(manifests)
    for group in plan.groups:
        assert group.parts <= len(group.manifests)


@given(_MANIFESTS, _RULES)
def test_a_group_has_one_content_and_one_spec_and_only_small_manifests(manifests: list[Manifest], rules: ManifestRules) -> None:
    for group in decide_manifests(manifests, rules).groups:
        assert {(one.content, one.spec_id, one.stays_because) for one in group.manifests} == {(group.content, group.spec_id, None)}
        assert all(one.live_bytes * 2 < rules.target_bytes for one in group.manifests)


@given(_MANIFESTS, _RULES)
def test_a_second_decision_has_nothing_to_do(manifests: list[Manifest], rules: ManifestRules) -> None:
    first = decide_manifests(manifests, rules)
    again = decide_manifests(rewritten(first), rules)
    assert not again.is_due
    assert again.kept == tuple(rewritten(first))


@given(_MANIFESTS, _RULES)
def test_the_order_of_the_list_changes_nothing(manifests: list[Manifest], rules: ManifestRules) -> None:
    there, back = decide_manifests(manifests, rules), decide_manifests(manifests[::-1], rules)
    assert (there.groups, there.is_due) == (back.groups, back.is_due)
