"""What the rules of definitions must be told, because core neither matches patterns nor looks into the state database."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from compaction_pipeline.core.catalogs.site_files import SiteFileKind


def _nothing(text: str) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known beside the definition. Without a fact, the rule that needs it passes.

    `why_no_pattern` says why a text is no regular expression that can be matched in linear time; None when it is one. `why_no_condition`
    says why a text is a condition for no table. `groups` are the resource groups that exist, and `teams` the teams; None when nobody has
    looked. `mapped` are the names of the tables and catalogs that an administrator has given to a team.
    `site_files` are the kinds of the stored files that catalogs may name, by id; None when nobody has looked.
    """

    why_no_pattern: Callable[[str], str | None] = _nothing
    why_no_condition: Callable[[str], str | None] = _nothing
    groups: Collection[str] | None = None
    teams: Collection[str] | None = None
    site_files: Mapping[str, SiteFileKind] | None = None
    mapped: Collection[str] = ()
