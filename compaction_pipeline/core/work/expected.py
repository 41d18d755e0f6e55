"""What a merge of each kind of work may write, and what it may say of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from compaction_pipeline.core.errors import assert_never
from compaction_pipeline.core.tables.columns import CHANGE_COLUMNS, Column
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.core.work.work import Convert, DropDeletes, Merge, RewriteChanges, ToBase, Work


@dataclass(frozen=True, slots=True)
class Expected:
    """What the reports about one kind of work may say.

    `contents` are the contents of files that it may write, and `columns` those columns of its data files that the schema does not have.
    `positions_of` are the data files of which it may write positions, each in at most one file; None when it never does. Of `inserts` an
    unknown part of the rows counts as read, beside all rows of the inputs. `deletes_by_key` tells whether rows may be deleted by equality
    although the task has no equality delete. `keeps_kinds` tells that the names of files divide the rows into inserts and deletes.
    """

    contents: tuple[FileContent, ...] = (FileContent.DATA,)
    columns: Mapping[int, Column] = field(default_factory=dict)
    positions_of: tuple[LiveFile, ...] | None = None
    inserts: tuple[LiveFile, ...] = ()
    kept: tuple[LiveFile, ...] = ()
    deletes_by_key: bool = False
    keeps_kinds: bool = False


def expected_of(work: Work) -> Expected:
    """Return what reports about this work may say."""
    match work:
        case Merge() | DropDeletes():
            return Expected()
        case Convert():
            return Expected(contents=(FileContent.POSITION_DELETES,), positions_of=work.staying)
        case ToBase():
            return Expected(
                contents=(FileContent.DATA, FileContent.POSITION_DELETES),
                positions_of=work.staying,
                inserts=work.changes.inserts,
                kept=work.staying,
                deletes_by_key=bool(work.changes.deletes),
            )
        case RewriteChanges():
            return Expected(columns=CHANGE_COLUMNS, deletes_by_key=True, keeps_kinds=True)
        case _:
            return assert_never(work)
