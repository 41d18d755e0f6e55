"""A file of teams is read whole, or refused with what is wrong in it."""

from __future__ import annotations

from contextlib import suppress

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.capacity.team import Limits, Team
from compaction_pipeline.core.capacity.team_file import TeamFile, team_file_of
from compaction_pipeline.core.errors import ConfigError


def read(text: str) -> TeamFile:
    return team_file_of(yaml.safe_load(text), "teams.yaml")


def test_teams_have_their_limits_owners_and_tables() -> None:
    found = read("shop: {slots: 8, memory-gb: 1.5, gb-hours: 200, owners: [a@b.c], tables: [lake.shop.orders, lake]}\nfree: {}")
    assert found == TeamFile(
        [Team("shop", ("a@b.c",), Limits(8, 1_500_000_000, 200.0)), Team("free")], {"lake.shop.orders": "shop", "lake": "shop"}
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "teams.yaml must hold names of teams"),
        ("[shop]", "teams.yaml must hold names of teams"),
        ("shop: 8", "team 'shop' of teams.yaml must be a name with keys below it"),
        ("8: {slots: 1}", "teams.yaml has the team 8, which YAML reads as another value than a text: put its name in quotes"),
        ("yes: {slots: 1}", "teams.yaml has the team True, which YAML reads as another value than a text: put its name in quotes"),
        ("shop: {slots: }", "'slots' of team 'shop' is empty but must be a number; leave the key out for no limit"),
        ("shop: {gb-hours: }", "'gb-hours' of team 'shop' is empty but must be a number; leave the key out for no limit"),
        ("shop: {gb-hours: 100000000000}", "'gb-hours' of team 'shop' is 100000000000 but must be a number from 0 to 1,000,000,000"),
        ('shop: {tables: ["lake.shop.\\0"]}', "has a character that nobody can see, so it names no table"),
        ("shop: {tables: [lake.shop.]}", "level 3 of table 'lake.shop.' is empty"),
        ("shop: {tables: [not a name]}", "'not a name' is no name of a catalog, which has 1 to 100 letters"),
        ("shop: {slot: 8}", "has the key 'slot': did you mean 'slots'?"),
        ("shop: {colour: red}", "has the key 'colour': it may have slots, memory-gb, gb-hours, owners, tables"),
        ("shop: {slots: 1.5}", "'slots' of team 'shop' is 1.5 but must be a whole number"),
        ("shop: {slots: true}", "'slots' of team 'shop' is True but must be a whole number"),
        ("shop: {slots: -1}", "'slots' of team shop is -1 but must be from 0"),
        ("shop: {slots: '8'}", "'slots' of team 'shop' is the text '8' but must be a whole number"),
        ("shop: {memory-gb: '16'}", "'memory-gb' of team 'shop' is the text '16' but must be a number from 0"),
        ("shop: {gb-hours: .nan}", "'gb-hours' of team 'shop' is nan but must be a number from 0"),
        ("shop: {memory-gb: .inf}", "'memory-gb' of team 'shop' is inf but must be a number from 0"),
        ("shop: {owners: a@b.c}", "'owners' of team 'shop' is a@b.c but must be a list of texts"),
        ("shop: {tables: ['']}", "'tables' of team 'shop' is"),
        ("shop: {tables: [lake.shop]}", "'lake.shop' has two parts and cannot belong to a team: a table is CATALOG.NAMESPACE.TABLE"),
        ("a shop!: {slots: 1}", "the team name 'a shop!' must have"),
        ("a: {tables: [lake]}\nb: {tables: [lake]}", "maps 'lake' to the teams 'a' and 'b'"),
    ],
)
def test_what_is_wrong_is_said(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(text)
    assert says in str(error.value)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["slots", "memory-gb", "gb-hours", "owners", "tables", "a", 3]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(values)
def test_any_document_is_read_or_refused_in_words(value: object) -> None:
    with suppress(ConfigError):
        found = team_file_of(value, "teams.yaml")
        assert len(found.teams) == len(value)  # type: ignore[arg-type]


def test_a_table_is_mapped_by_its_name_however_that_is_quoted() -> None:
    assert read("shop: {tables: ['lake.`shop`.orders', 'lake.a.`b.c`']}").mapping == {"lake.shop.orders": "shop", "lake.a.`b.c`": "shop"}
