"""Links to Dagster's launchpad with a filled-in configuration, so that a person starts the work on a page's nodes with two clicks.

The launchpad reads `config` from the URL `…/playground/setup`. A link starts nothing: the person sees the configuration and presses Launch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlencode

import dagster as dg

from compaction_pipeline.core.fragmentation.health import HealthStatus
from compaction_pipeline.core.insight.overview import SHOWN, NodeOverview, TableOverview, worst_first
from compaction_pipeline.core.tables.keyed.tree import ROOT
from compaction_pipeline.core.words import count_text, printable
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.defs.markdown import LINE, fitting, is_shown_at_once
from compaction_pipeline.defs.names import COMPACT_JOB, PAUSE_JOB, RESUME_JOB, Names
from compaction_pipeline.defs.svg import clipped_middle
from compaction_pipeline.services.insight.read_status import Status

MOST_CHARACTERS = 8_000
"""The most characters of a link. Web servers refuse requests with very long addresses."""

_NAME_CHARACTERS = LINE - 12
"""A list is indented, and 'Compact' stands before a name. Dagster would cut a longer line off."""
_AT_ONCE = (5, 4, 3, 2, 1)
"""Tables, or nodes, of which an entry names as many as Dagster shows without a button."""
_NODE_CHARACTERS = 8_000
"""The most characters of the links of single nodes behind a button. The event of the whole page should stay below 100 kB."""

_IN_NEED = (HealthStatus.FAILING, HealthStatus.DUE, HealthStatus.WAITING)
_Config = Mapping[str, bool | str | Sequence[str]]
Context = dg.SensorEvaluationContext | dg.AssetExecutionContext | dg.OpExecutionContext


@dataclass(frozen=True, slots=True)
class Place:
    """Where Dagster's web pages show our jobs: the name of the code location, and of the repository in it."""

    location: str
    repository: str | None = None
    names: Names = Names()

    @property
    def path(self) -> str:
        """The part of an address that names the place. Dagster leaves the name of a repository away when nobody gave it one."""
        named = self.repository is not None and not self.repository.startswith("__")
        return f"/locations/{quote(f'{self.repository}@{self.location}' if named else self.location, safe='')}"


def place_of(names: Names, context: Context) -> Place | None:
    """The place of a tick or a run. It is None where no web page exists for it, as in a test or on `dagster job execute`."""
    if isinstance(context, dg.SensorEvaluationContext):
        tick = context.code_location_origin
        return Place(tick.location_name, context.repository_name, names) if tick is not None else None
    run = context.run.remote_job_origin
    return Place(run.location_name, run.repository_origin.repository_name, names) if run is not None else None


def compact_nodes_link(place: Place, nodes: Sequence[NodeOverview]) -> tuple[str, int]:
    """A link that compacts these nodes in one run, whatever their thresholds say, and the number of nodes in it.

    The last nodes are left out when the link would get too long.
    """
    keys = [node.key for node in nodes]
    while True:
        link = _link(place, {"type": CompactionType.MAJOR.value, "force": True, "node_keys": keys})
        if len(link) <= MOST_CHARACTERS or not keys:
            return link, len(keys)
        keys.pop()


def compact_table_link(place: Place, table: TableOverview) -> str:
    """A link that compacts what is due in a table."""
    return _link(place, {"tables": [str(table.table)]})


def pause_table_link(place: Place, table: TableOverview) -> str:
    """A link that pauses a table, or that resumes a paused one."""
    job, op = (RESUME_JOB, "resume") if table.paused else (PAUSE_JOB, "pause")
    return _link(place, {"tables": [str(table.table)]}, job, op)


def launch_metadata(names: Names, context: Context, status: Status) -> dict[str, dg.MetadataValue]:
    """The links for the page of `table_health`. It is empty where no web page exists for the links, and when nothing needs one.

    Dagster shows short Markdown at once, and hides long Markdown behind a button. So the first entries hold as many nodes and tables as
    are shown at once. When there are more, `compact_more` has a link for all nodes, and one for each further node and table.
    """
    place = place_of(names, context)
    return links_by_purpose(place, status.worst, status.tables) if place is not None else {}


def links_by_purpose(place: Place, worst: Sequence[NodeOverview], tables: Sequence[TableOverview]) -> dict[str, dg.MetadataValue]:
    """The entries with links: for the worst nodes together and one by one, for what is due, for a pause, and all links that start work."""
    nodes, due = _that_may_gain(worst, tables), [table for table in _in_need(tables) if table.due]
    switchable = [table for table in worst_first(tables) if table.enabled and not table.observe]
    shown = {
        "compact_worst": fitting(lambda count: _worst_line(place, nodes, count), range(SHOWN, 0, -1)),
        "compact_one_node": fitting(lambda count: _node_lines(place, nodes, count), _AT_ONCE),
        "compact_what_is_due": fitting(lambda count: _due_lines(place, due, count), _AT_ONCE) or "Nothing is due.",
        "pause_a_table": fitting(lambda count: _pause_lines(place, switchable, count), _AT_ONCE),
        "compact_more": _more_links(place, nodes, due),
    }
    return {name: dg.MetadataValue.md(text) for name, text in shown.items() if text}


def _more_links(place: Place, nodes: Sequence[NodeOverview], due: Sequence[TableOverview]) -> str:
    """The links that found no room in the entries above: one for all these nodes, and one for each further node and table."""
    worst = "" if is_shown_at_once(_worst_line(place, nodes, SHOWN)) else _worst_line(place, nodes, SHOWN)
    first = next((count for count in _AT_ONCE if is_shown_at_once(_node_lines(place, nodes, count))), 1)
    others = nodes[first:]
    counts = range(min(len(others), SHOWN - first), -1, -1)
    singly = next(lines for count in counts if len(lines := _node_lines(place, others, count)) <= _NODE_CHARACTERS)
    shown = next((count for count in _AT_ONCE if is_shown_at_once(_due_lines(place, due, count))), 1)
    return "\n".join(line for line in (worst, singly, _due_lines(place, due[shown:], SHOWN - shown)) if line)


def _that_may_gain(worst: Sequence[NodeOverview], tables: Sequence[TableOverview]) -> list[NodeOverview]:
    left_alone = {table.table for table in tables if table.is_left_alone}
    return [node for node in worst if node.table not in left_alone and _may_gain(node)]


def _in_need(tables: Sequence[TableOverview]) -> Sequence[TableOverview]:
    return worst_first(table for table in tables if table.health in _IN_NEED and not table.is_left_alone)


def _worst_line(place: Place, nodes: Sequence[NodeOverview], count: int) -> str:
    """The link for the first `count` nodes. It says that it forces a MAJOR, because a person should know that before the launch.

    No link names a table that is left alone. This one ignores thresholds, and so it would compact a disabled table too.
    """
    link, number = compact_nodes_link(place, nodes[:count])
    if not number:
        return ""
    all_nodes = count_text(len(nodes), "worst node")
    which = f"{number:,} of the {all_nodes}" if number < len(nodes) else f"the {all_nodes}"
    return f"- [Compact {which} now]({link})\\\n  in one run: a forced MAJOR"


def _node_lines(place: Place, nodes: Sequence[NodeOverview], count: int) -> str:
    """A link for each of the first `count` nodes. It forces a MAJOR, as the link for all of them does.

    A forced MAJOR takes the whole partition of a tree node.
    """
    lines = []
    for node in nodes[:count]:
        name = f"{_short(str(node.table))}\\\n  {_short(str(node.node))}"
        what = "a forced MAJOR" if node.node.tree == ROOT else "its partition: a forced MAJOR"
        lines.append(f"- [Compact {name}]({compact_nodes_link(place, [node])[0]})\\\n  {what}")
    return "\n".join([*lines, *_more(nodes, count, "node")])


def _due_lines(place: Place, due: Sequence[TableOverview], count: int) -> str:
    """A link for each of the first `count` tables."""
    lines = [
        f"- [Compact what is due in\\\n  {_short(str(table.table))}]({compact_table_link(place, table)})\\\n"
        f"  {table.due:,} of {count_text(table.nodes, 'node')}, each by its triggers"
        for table in due[:count]
    ]
    return "\n".join([*lines, *_more(due, count, "table")])


def _pause_lines(place: Place, tables: Sequence[TableOverview], count: int) -> str:
    lines = []
    for table in tables[:count]:
        verb = "Resume" if table.paused else "Pause"
        lines.append(f"- [{verb} {_short(str(table.table))}]({pause_table_link(place, table)})")
    return "\n".join([*lines, *_more(tables, count, "table")])


def _short(name: str) -> str:
    """The name of a table or node, which has room in the text of a link. The link itself has the whole name."""
    return _escaped(clipped_middle(name, _NAME_CHARACTERS))


def _more(listed: Sequence[NodeOverview] | Sequence[TableOverview], count: int, word: str) -> list[str]:
    return [f"- and {count_text(len(listed) - count, f'more {word}')}"] if len(listed) > count else []


def _may_gain(node: NodeOverview) -> bool:
    """Whether a run that ignores thresholds may find something to do."""
    return node.health is not HealthStatus.REFUSED and (node.metrics.small_files > 1 or node.metrics.delete_files > 0)


def _link(place: Place, config: _Config, job: str = COMPACT_JOB, op: str = "compact") -> str:
    query = urlencode({"config": _yaml(config, place.names.of(op))}, quote_via=quote)
    return f"{place.path}/jobs/{place.names.of(job)}/playground/setup?{query}"


def _yaml(config: _Config, op: str) -> str:
    """The configuration of the job's op as YAML. A JSON text is a valid value in YAML, whatever characters it has."""
    lines = ["ops:", f"  {op}:", "    config:"]
    for name, value in config.items():
        if isinstance(value, bool | str):
            lines.append(f"      {name}: {value if value in CompactionType.__members__ else json.dumps(value, ensure_ascii=False)}")
        else:
            lines += [f"      {name}:", *(f"      - {json.dumps(one, ensure_ascii=False)}" for one in value)]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    """A name inside the text of a Markdown link. A line end in a name would end the link and its line, so it is written as `\\n`."""
    return "".join(f"\\{character}" if character in r"\`*_[]<>" else character for character in printable(text))
