"""MAJOR: rewrite segments with too many deleted rows, join undersized ones, and merge the fragments on the way."""

from __future__ import annotations

from compaction_pipeline.core.planning.minor import minor_bins
from compaction_pipeline.core.planning.node_view import MergeBin, NodeView
from compaction_pipeline.core.tables.data_file import LiveFile


def high_delete_ratios(view: NodeView, forced: bool, gone: frozenset[str] = frozenset()) -> dict[str, float]:
    """Deleted ratio of each available segment that reaches the threshold, when the data files at `gone` are left out.

    Forced, every segment that has a delete to lose.
    """
    fragment = view.properties.fragment_size_bytes
    threshold = 0.0 if forced else view.properties.major_duplicate_ratio
    deleted = view.deleted([file for file in view.files.data if file.path not in gone])
    return {
        file.path: ratio
        for file in view.available
        if file.file_size_bytes > fragment
        and file.path in deleted
        and (ratio := deleted[file.path] / max(file.record_count, 1)) >= threshold
    }


def joins_undersized(view: NodeView) -> bool:
    """Whether joining undersized segments lowers the file count."""
    return view.joins([file.file_size_bytes for file in view.undersized])


def joins_after(view: NodeView, bins: list[MergeBin]) -> bool:
    """Whether undersized segments could be joined once these bins are merged: the next plan would be a MAJOR."""
    gone = {file.path for each in bins for file in each.inputs}
    left = [file.file_size_bytes for file in view.undersized if file.path not in gone]
    new = [each.output_bytes for each in bins for _ in range(each.outputs) if view.is_undersized(each.output_bytes)]
    return bool(new) and view.joins(left + new)


def major_bins(view: NodeView, forced: bool) -> list[MergeBin]:
    """Segments with a high delete ratio and fragments; undersized segments too where that saves files now or would right after.

    Merging fragments moves the estimated deletes of what both shared onto the segments; those whose delete ratio gets high by this are
    taken at once, so that the next plan finds nothing.
    """
    segments = set(high_delete_ratios(view, forced))
    while True:
        bins = _bins(view, segments, joins_undersized(view))
        if joins_after(view, bins):
            bins = _bins(view, segments, True)
        gone = frozenset(file.path for each in bins for file in each.inputs)
        more = set(high_delete_ratios(view, forced, gone)) - segments - gone
        if not more:
            return bins
        segments |= more


def minor_grows_into_major(view: NodeView, forced: bool) -> bool:
    """Whether a MINOR of the node would make a MAJOR due: then the MAJOR is planned at once."""
    bins = minor_bins(view)
    gone = frozenset(file.path for each in bins for file in each.inputs)
    return joins_after(view, bins) or (bool(gone) and bool(high_delete_ratios(view, forced, gone)))


def _bins(view: NodeView, rewritten_segments: set[str], join: bool) -> list[MergeBin]:
    pool: list[LiveFile] = [*view.fragments]
    taken = {file.path for file in pool}
    if join:
        pool.extend(view.undersized)
        taken.update(file.path for file in view.undersized)
    pool.extend(file for file in view.available if file.path in rewritten_segments and file.path not in taken)
    merged = frozenset(file.path for file in view.fragments)
    fragment = view.properties.fragment_size_bytes
    return view.bins(
        pool, lambda file: file.path in rewritten_segments or (file.file_size_bytes <= fragment and view.loses_deletes(file, merged))
    )
