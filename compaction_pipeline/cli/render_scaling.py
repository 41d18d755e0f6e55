"""How the command line shows what was scaled, and what would have been."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from compaction_pipeline.cli.render import titled_table
from compaction_pipeline.core.capacity.scaling.action import PastAction
from compaction_pipeline.core.words import count_text, duration_text, time_text

if TYPE_CHECKING:
    from compaction_pipeline.services.capacity.read_scaling import GroupScaling, Hour


def scaling_lines(found: GroupScaling) -> list[str]:
    """What a group is to have, what it falls back to, and what is decided now."""
    lines = [f"group {found.group}: {found.problem or found.now}"]
    if found.target is not None and found.good is not None:
        last = "" if found.good == found.target else f"; the last configuration that worked is {found.good.in_words}"
        lines.append(f"it is to have {found.target.in_words}{last}")
    return [*lines, *_notice_lines(found)]


def _notice_lines(found: GroupScaling) -> list[str]:
    """What people were to be told and were not; nothing when all of it arrived."""
    notices = found.notices
    lines = []
    if notices.waiting or notices.given_up:
        why = f"; the last try: {notices.why}" if notices.why else ""
        lines.append(f"notices: {notices.waiting:,} still to arrive, {notices.given_up:,} given up{why}")
    if notices.unheard:
        lines.append(
            f"nobody was told of {count_text(notices.unheard, 'action')} of it, because no address was known: COMPACTION_NOTICES_FILE must "
            "have one of an owner of its team, or of administrators"
        )
    return lines


def actions_table(found: Sequence[GroupScaling]) -> Table:
    """The actions of groups, the newest first."""
    table = titled_table("actions", "at (UTC)", "group", "why", "before", "now", "outcome", "took", "wait p95", "GB-hours")
    for group in found:
        for each in group.actions:
            record = each.record
            outcome = "goes on" if record.outcome is None else record.outcome.value
            table.add_row(
                time_text(record.at),
                escape(record.group),
                escape(record.action.trigger),
                record.action.before.in_words,
                (record.in_force or record.action.after).in_words,
                escape(outcome + (f": {record.why}" if record.why else "")),
                "" if record.closed_at is None else duration_text(record.closed_at - record.at),
                f"{_wait(each.before)} → {_wait(each.after)}",
                f"{_hours(each.before)} → {_hours(each.after)}",
            )
    return table


def replay_table(found: Sequence[PastAction]) -> Table:
    """What a policy would have done, the oldest first."""
    table = titled_table("what the policy would have done", "at (UTC)", "why", "before", "after")
    for each in found:
        table.add_row(time_text(each.at), escape(each.action.trigger), each.action.before.in_words, each.action.after.in_words)
    return table


def _wait(hour: Hour) -> str:
    return "?" if hour.wait_seconds_p95 is None else f"{hour.wait_seconds_p95:.0f} s"


def _hours(hour: Hour) -> str:
    return "?" if hour.gb_hours is None else f"{hour.gb_hours:.1f}"
