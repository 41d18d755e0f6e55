"""The name of a team keeps the rule of names of groups; a table names its team in a property, and `unassigned` stands for none."""

from __future__ import annotations

from compaction_pipeline.core.tables.group_name import GROUP_NAME_RULE, is_group_name

UNASSIGNED = "unassigned"
"""The team of tables that name none, or one that does not exist. It exists always."""
TEAM_NAME_RULE = GROUP_NAME_RULE


def is_team_name(text: object) -> bool:
    """Return whether a text keeps `TEAM_NAME_RULE`."""
    return is_group_name(text)
