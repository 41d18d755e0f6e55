"""Groups are made before tables use them, and deleted when nothing belongs to them any more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from compaction_pipeline.core.errors import ConfigError, NotFoundError
from compaction_pipeline.core.fragmentation.health import HealthStatus
from compaction_pipeline.core.fragmentation.verdict import PlanReasonCode
from compaction_pipeline.core.queue.group import CompactionQueue, ResourceGroup
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline_tests.services.house import House

HEAVY = ResourceGroup("heavy")


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def test_a_table_of_a_missing_group_says_so_and_is_planned_once_the_group_exists(house: House) -> None:
    services = house.services
    table = house.fragmented(self_optimizing__group="heavy").identifier
    services.one_table.refresh(table)
    planned = services.plan_tables.plan(table)
    assert planned.plan.reason.code is PlanReasonCode.GROUP_MISSING
    assert "'heavy'" in planned.plan.reason.text
    [overview] = services.read_tables.tables()
    assert overview.health is HealthStatus.WAITING
    assert "group add heavy" in overview.reason
    services.manage_groups.add(HEAVY)
    assert table in services.tables_in_line.worth_planning()
    [task] = services.plan_tables.plan(table).tasks
    assert task.queue == "heavy"


def test_a_group_that_is_in_use_is_not_deleted_and_the_refusal_says_by_what(house: House) -> None:
    services = house.services
    services.manage_groups.add(HEAVY)
    table = house.fragmented(self_optimizing__group="heavy")
    services.one_table.refresh(table.identifier)
    with pytest.raises(ConfigError, match=r"in use: tables lake\.db\.t\. Name another group"):
        services.manage_groups.delete("heavy")
    services.plan_tables.plan(table.identifier)
    with table.table.transaction() as transaction:
        transaction.set_properties({"self-optimizing.group": "default"})
    services.one_table.refresh(table.identifier)
    with pytest.raises(ConfigError, match="in use: 1 open task"):
        services.manage_groups.delete("heavy")
    with pytest.raises(NotFoundError, match="'light' does not exist"):
        services.manage_groups.delete("light")
    with pytest.raises(ConfigError, match="cannot be deleted"):
        services.manage_groups.delete("default")


def test_a_group_that_a_catalog_names_is_in_use(house: House) -> None:
    house.services.stores.catalogs.replace(CatalogEntry("lake", {**house.lake.properties, "table.self-optimizing.group": "heavy"}))
    house.services.manage_groups.add(HEAVY)
    with pytest.raises(ConfigError, match="in use: catalogs lake"):
        house.services.manage_groups.delete("heavy")


@pytest.mark.parametrize(
    ("group", "message"),
    [
        (ResourceGroup("a b"), "the group name 'a b' must have 1 to 64 letters"),
        (ResourceGroup("a", queue=CompactionQueue(0)), "the capacity of group a is 0 but must be from 1 to 1000000"),
        (ResourceGroup("a", properties={"instances": "-1"}), "'instances' of group a is '-1' but must be a whole number from 0 to 1000"),
        (ResourceGroup("a", properties={"parallelism": "0"}), "'parallelism' of group a is '0' but must be a whole number from 1 to 1024"),
        (ResourceGroup("a", properties={"min-instances": "1"}), "'min-instances' of group a is 1 but must not be more than 'instances'"),
    ],
)
def test_a_bad_value_is_named_with_its_rule(house: House, group: ResourceGroup, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        house.services.manage_groups.add(group)
    assert [each.name for each in house.services.manage_groups.groups()] == ["default"]
    with pytest.raises(ConfigError, match=message):
        house.services.manage_groups.change(group)


def test_a_name_is_taken_once(house: House) -> None:
    house.services.manage_groups.add(HEAVY)
    with pytest.raises(ConfigError, match="group heavy exists already"):
        house.services.manage_groups.add(HEAVY)
    with pytest.raises(NotFoundError, match="'light' does not exist"):
        house.services.manage_groups.change(ResourceGroup("light"))
    with pytest.raises(NotFoundError, match="'light' does not exist"):
        house.services.manage_groups.group("light")


def test_nothing_is_lost_that_two_change_at_once(house: House) -> None:
    """The second one finds a group that has changed since it looked, and applies its change to that."""
    manage, seen = house.services.manage_groups, list[str]()

    def slowly(old: ResourceGroup) -> ResourceGroup:
        seen.append(old.properties.get("memory", ""))
        if len(seen) == 1:
            manage.edit("default", lambda group: replace(group, properties={**group.properties, "memory": "7"}))
        return replace(old, properties={**old.properties, "parallelism": "3"})

    assert manage.edit("default", slowly).properties == {"memory": "7", "parallelism": "3"}
    assert (manage.group("default").properties, seen) == ({"memory": "7", "parallelism": "3"}, ["", "7"])
    house.services.stores.groups.hold("default", "no room")
    assert manage.edit("default", lambda group: replace(group, properties={})).properties == {}
    rivals = iter(range(1, 99))

    def never(old: ResourceGroup) -> ResourceGroup:
        house.services.stores.groups.change(replace(old, queue=CompactionQueue(next(rivals))))
        return replace(old, properties={"memory": "9"})

    with pytest.raises(ConfigError, match="was changed by others 20 times"):
        manage.edit("default", never)
    assert manage.group("default").properties == {}
