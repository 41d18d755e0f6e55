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
from compaction_pipeline.core.queue.task import CompactionType
from compaction_pipeline.core.words import count_text
from compaction_pipeline.defs.keys import COMPACT_JOB
from compaction_pipeline.services.insight.read_status import Status

MOST_CHARACTERS = 8_000
"""The most characters of a link. Web servers refuse requests with very long addresses."""

_IN_NEED = (HealthStatus.FAILING, HealthStatus.DUE, HealthStatus.WAITING)
_Config = Mapping[str, bool | str | Sequence[str]]
Context = dg.SensorEvaluationContext | dg.AssetExecutionContext | dg.OpExecutionContext


@dataclass(frozen=True, slots=True)
class Place:
    """Where Dagster's web pages show our jobs: the name of the code location, and of the repository in it."""

    location: str
    repository: str | None = None

    @property
    def path(self) -> str:
        """The part of an address that names the place. Dagster leaves the name of a repository away when nobody gave it one."""
        named = self.repository is not None and not self.repository.startswith("__")
        return f"/locations/{quote(f'{self.repository}@{self.location}' if named else self.location, safe='')}"


def place_of(context: Context) -> Place | None:
    """The place of a tick or a run. It is None where no web page exists for it, as in a test or on `dagster job execute`."""
    if isinstance(context, dg.SensorEvaluationContext):
        tick = context.code_location_origin
        return Place(tick.location_name, context.repository_name) if tick is not None else None
    run = context.run.remote_job_origin
    return Place(run.location_name, run.repository_origin.repository_name) if run is not None else None


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


def launch_metadata(context: Context, status: Status) -> dict[str, dg.MetadataValue]:
    """The links for the page of `table_health`. It is empty where no web page exists for the links, and when nothing needs one."""
    place = place_of(context)
    text = links_in_markdown(place, status.worst, status.tables) if place is not None else ""
    return {"compact_now": dg.MetadataValue.md(text)} if text else {}


def links_in_markdown(place: Place, worst: Sequence[NodeOverview], tables: Sequence[TableOverview]) -> str:
    """A list in Markdown: a link for the worst of these nodes, and one for each of the 20 tables that need care most.

    No link names a table that is left alone. The link for nodes ignores thresholds, and so it would compact a disabled table too.
    """
    lines = []
    left_alone = {table.table for table in tables if table.is_left_alone}
    link, number = compact_nodes_link(place, [node for node in worst if node.table not in left_alone and _may_gain(node)])
    if number:
        lines.append(f"- [Compact the worst {count_text(number, 'node')} now]({link}) in one run, whatever the thresholds say")
    needing = [table for table in tables if table.health in _IN_NEED and not table.is_left_alone]
    for table in worst_first(needing)[:SHOWN]:
        name, small = _escaped(str(table.table)), count_text(table.metrics.small_files, "small file")
        lines.append(f"- [Compact what is due in {name}]({compact_table_link(place, table)}): {small} in {count_text(table.nodes, 'node')}")
    return "\n".join(lines)


def _may_gain(node: NodeOverview) -> bool:
    """Whether a run that ignores thresholds may find something to do."""
    return node.health is not HealthStatus.REFUSED and (node.metrics.small_files > 1 or node.metrics.delete_files > 0)


def _link(place: Place, config: _Config) -> str:
    return f"{place.path}/jobs/{COMPACT_JOB}/playground/setup?{urlencode({'config': _yaml(config)}, quote_via=quote)}"


def _yaml(config: _Config) -> str:
    """The configuration of the job's op as YAML. A JSON text is a valid value in YAML, whatever characters it has."""
    lines = ["ops:", "  compact:", "    config:"]
    for name, value in config.items():
        if isinstance(value, bool | str):
            lines.append(f"      {name}: {value if value in CompactionType.__members__ else json.dumps(value, ensure_ascii=False)}")
        else:
            lines += [f"      {name}:", *(f"        - {json.dumps(one, ensure_ascii=False)}" for one in value)]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    """A name inside the text of a Markdown link. A line end in a name would end the link and its line, so it is written as `\\n`."""
    one_line = "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text)
    return "".join(f"\\{character}" if character in r"\`*_[]<>" else character for character in one_line)
