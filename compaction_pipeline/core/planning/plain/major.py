"""MAJOR rewrites segments with too many deleted rows, joins undersized segments, and merges fragments at the same time.

A fragment is a small data file. A segment is a data file that is no fragment.
"""

from __future__ import annotations

from collections.abc import Callable

from compaction_pipeline.core.planning.plain.minor import minor_bins
from compaction_pipeline.core.planning.plain.node_view import MergeBin, NodeView
from compaction_pipeline.core.tables.data_file import LiveFile


def high_delete_ratios(view: NodeView, forced: bool, gone: frozenset[str] = frozenset()) -> dict[str, float]:
    """Return the share of deleted rows, by path, of each available segment whose share reaches the threshold.

    The shares are estimated as if the data files at the paths `gone` were merged already. With `forced` the threshold is 0: every
    segment that a delete reaches counts.
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
    """Return whether joining undersized segments lowers the number of files."""
    return view.joins([file.file_size_bytes for file in view.undersized])


def joins_after(view: NodeView, bins: list[MergeBin]) -> bool:
    """Return whether undersized segments could be joined after these bins are merged, so that the next plan would be a MAJOR."""
    gone = {file.path for each in bins for file in each.inputs}
    left = [file.file_size_bytes for file in view.undersized if file.path not in gone]
    new = [each.output_bytes for each in bins for _ in range(each.outputs) if view.is_undersized(each.output_bytes)]
    return bool(new) and view.joins(left + new)


def major_bins(view: NodeView, forced: bool, *, alone_too: bool) -> list[MergeBin]:
    """Return the bins of a MAJOR: fragments, segments with a high delete ratio, and undersized segments.

    Undersized segments are taken only when joining them saves files now, or would save files right after this plan.

    The rows of a delete are shared among the data files that it reaches. When the fragments among these files are merged, the delete counts
    for the segments alone, and the delete ratio of a segment can reach the threshold. This plan takes such segments too, so that the next
    plan finds nothing. With `alone_too` it also takes fragments that lose a delete only because segments are merged. Without it,
    `choose_conversions` does that, and puts them into the group of these segments.
    """
    segments = set(high_delete_ratios(view, forced))
    while True:
        bins = _bins(view, segments, joins_undersized(view), alone_too)
        if joins_after(view, bins):
            bins = _bins(view, segments, True, alone_too)
        gone = frozenset(file.path for each in bins for file in each.inputs)
        more = set(high_delete_ratios(view, forced, gone)) - segments - gone
        if not more:
            return bins
        segments |= more


def minor_grows_into_major(view: NodeView, forced: bool) -> bool:
    """Return whether a MINOR of the node would make a MAJOR due. The MAJOR is then planned at once."""
    bins = minor_bins(view)
    gone = frozenset(file.path for each in bins for file in each.inputs)
    return joins_after(view, bins) or (bool(gone) and bool(high_delete_ratios(view, forced, gone)))


def _bins(view: NodeView, rewritten_segments: set[str], join: bool, alone_too: bool) -> list[MergeBin]:
    """Return the bins of all fragments and of the segments at these paths; with `join`, of the undersized segments too."""
    pool: list[LiveFile] = [*view.fragments]
    taken = {file.path for file in pool}
    if join:
        pool.extend(view.undersized)
        taken.update(file.path for file in view.undersized)
    pool.extend(file for file in view.available if file.path in rewritten_segments and file.path not in taken)
    merged = frozenset(file.path for file in view.fragments) | (rewritten_segments if alone_too else set())
    while True:
        bins = view.bins(pool, _alone(view, rewritten_segments, merged))
        # A delete that reaches only undersized segments that are joined here, and one fragment, is gone after this plan. So the fragment
        # is freed of it too.
        more = {file.path for each in bins for file in each.inputs} - merged
        if not more or not alone_too:
            return bins
        merged |= more


def _alone(view: NodeView, rewritten_segments: set[str], merged: frozenset[str]) -> Callable[[LiveFile], bool]:
    """Return a function that says whether the rewrite of a file gains something even when the file is alone in its bin."""
    return lambda file: file.path in rewritten_segments or (view.is_fragment(file) and view.loses_deletes(file, merged))
