"""The whole page of `table_health`: pictures first, then links that launch work, then the worst nodes, and figures for plots last."""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg

from compaction_pipeline.core.insight.files_over_time import FilesPoint
from compaction_pipeline.core.insight.overview import SHOWN
from compaction_pipeline.defs.health_metadata import queue_figures, status_metadata
from compaction_pipeline.defs.health_pictures import large_pictures, picture_metadata
from compaction_pipeline.defs.launch_links import Context, launch_metadata
from compaction_pipeline.defs.names import Names
from compaction_pipeline.services.insight.read_status import Status


def health_page(
    names: Names, status: Status, history: Sequence[FilesPoint], context: Context | None, *, large: bool = False
) -> dict[str, dg.MetadataValue]:
    """The metadata of one event of `table_health`. `context` says where links lead; without it there are none.

    With `large` it has all pictures again, large. Events of many tables have them seldom, to keep Dagster's event log small.
    """
    links = launch_metadata(names, context, status) if context is not None else {}
    return {
        **picture_metadata(status, history),
        **links,
        **status_metadata(status),
        **(large_pictures(status, history) if large or len(status.tables) <= SHOWN else {}),
        **queue_figures(status),
    }
