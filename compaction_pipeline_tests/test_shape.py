"""What `.ci/shape` counts, on small samples."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / ".ci"))

from shapes import reach, sizes, stated, traced
from shapes.code import Code
from shapes.kinds import Kinds

_REPO = Path(__file__).parents[1]
# `write_parquet_file` takes them by name, and most calls give four. The others are tables of parts.
_MANY_PARAMETERS = {
    "core/stores.py: Stores, made with its fields",
    "demo/write_files.py: write_parquet_file",
    "foundations.py: Foundations, made with its fields",
}

_KINDS = """
    class TaskAction(str, Enum):
        MERGE = "MERGE"
        CONVERT = "CONVERT"
"""
_WORK = """
    class Merge: ...
    class Convert: ...
    Work = Merge | Convert
"""


def _code(**texts: str) -> Code:
    """A package. The words of a module's path are parted by two underscores."""
    return Code({f"compaction_pipeline/{name.replace('__', '/')}.py": dedent(text) for name, text in texts.items()})


def _asking(body: str) -> Kinds:
    head = "from compaction_pipeline.core.work.kinds import TaskAction\nfrom compaction_pipeline.core.work import work\n"
    imported = "from compaction_pipeline.core.work.work import Convert, Merge, Work\nPLAIN = (TaskAction.MERGE, TaskAction.CONVERT)\n"
    asker = f"{head}{imported}def f(task, layout, kept, keyed: KeyedHead | None):\n    {body}\n"
    return Kinds(_code(core__work__kinds=_KINDS, core__work__work=_WORK, asker=asker))


@pytest.mark.parametrize(
    "body",
    [
        "return task.action is TaskAction.MERGE",
        "return task.action != TaskAction.MERGE",
        "return task.action in (TaskAction.MERGE, TaskAction.CONVERT)",
        "return task.action in PLAIN",
        "return task.action.value == 'MERGE'",
        "return {TaskAction.MERGE: 1}[task.action]",
        "return {Merge: 1}[type(task.work)]",
        "return isinstance(task.work, Merge)",
        "return isinstance(task.work, work.Merge | Convert)",
        "return isinstance(task.work, Work)",
        "return type(task.work) is Merge",
        "asked = (Merge, Convert); return isinstance(task.work, asked)",
        "return hasattr(task.work, 'changes')",
        "\n    match task.work:\n        case Merge(): return 1",
        "\n    match task.work:\n        case (Merge() as merge) if merge: return 1",
        "\n    match task.action:\n        case TaskAction.MERGE | TaskAction.CONVERT: return 1",
    ],
)
def test_each_way_to_ask_for_the_kind_of_a_task_counts_once(body: str) -> None:
    assert _asking(body).tasks == ["compaction_pipeline/asker.py: f"]


@pytest.mark.parametrize(
    "body",
    [
        "return task_work(action=TaskAction.MERGE)",
        "return Merge(1)",
        "return task.work.reads",
        "return task is None",
        "return task == Other.MERGE",
    ],
)
def test_who_makes_work_or_passes_it_on_does_not_ask(body: str) -> None:
    kinds = _asking(body)
    assert (kinds.tasks, kinds.tables) == ([], [])


@pytest.mark.parametrize(
    "body",
    [
        "return layout.keyed is None",
        "return None is not layout.keyed",
        "return 1 if layout.keyed else 2",
        "return layout.keyed and 1",
        "kept = layout.keyed; return kept is not None",
        "return (kept := layout.keyed) is None",
        "return keyed is None",
        "return task.work.is_of_keyed_table",
    ],
)
def test_each_way_to_ask_for_the_kind_of_a_table_counts_once(body: str) -> None:
    assert _asking(body).tables == ["compaction_pipeline/asker.py: f"]


def test_stores_of_a_kind_are_kinds_of_tables() -> None:
    stores = "class PlainStores: ...\nclass KeyedStores: ...\nStores = PlainStores | KeyedStores\n"
    asker = "from compaction_pipeline.iceberg.stores import Stores\ndef f(stores):\n    return isinstance(stores, Stores)\n"
    assert Kinds(_code(iceberg__stores=stores, asker=asker)).tables == ["compaction_pipeline/asker.py: f"]


def test_who_asks_through_a_function_is_named_apart() -> None:
    asker = """
        from compaction_pipeline.core.work.kinds import TaskAction
        def merges(task) -> bool:
            return task.action is TaskAction.MERGE
        def g(task):
            return 1 if merges(task) else 2
    """
    kinds = Kinds(_code(core__work__kinds=_KINDS, asker=asker))
    assert (kinds.tasks, kinds.through) == (["compaction_pipeline/asker.py: merges"], ["compaction_pipeline/asker.py: g"])


def test_reach_follows_names_through_functions_annotations_and_errors() -> None:
    code = _code(
        core__errors="class Base(Exception): ...\nclass A(Base): ...\nclass B(Base):\n    other: Hidden\nclass Hidden: ...\n",
        a="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from compaction_pipeline.b import passed_on, Typed\n"
        "def start(x: Typed):\n"
        "    from compaction_pipeline.core.errors import A, B\n    passed_on()\n    raise A or B\nclass Elsewhere: ...\n",
        b="from compaction_pipeline.c import passed_on\nclass Typed: ...\nclass Unused: ...\n",
        c="class _Made: ...\ndef passed_on() -> '_Made': return _Made()\n",
    )
    begun = reach.begin(code, ["gone", "a:start"])
    assert begun is not None
    assert begun[0] == "a:start"
    classes = reach.reached(code, begun[1])
    assert {each.name for each in classes} == {"A", "B", "Typed", "_Made"}
    assert reach.count(classes) == (3, 2)


def test_bundles_of_services_count_with_their_fields() -> None:
    code = _code(
        ports="class Files(Protocol): ...\n@dataclass(frozen=True)\nclass Bundle:\n    a: Files\n    b: Files\n    c: int\n",
        user="from compaction_pipeline.ports import Bundle\nclass User:\n    def one(self, x: Bundle, p, q, r, s, t): ...\n"
        "    def two(self, x: Bundle, p, q, r, s): ...\n"
        "@dataclass(frozen=True)\nclass Value:\n" + "".join(f"    {name}: int\n" for name in "abcdefgh"),
    )
    assert sizes.Parameters(code).over() == ["compaction_pipeline/user.py: User.one (8)"]


def test_only_these_functions_have_more_than_seven_parameters() -> None:
    found = {name.rpartition(" (")[0].removeprefix("compaction_pipeline/") for name in sizes.Parameters(Code.of(_REPO)).over()}
    assert found == _MANY_PARAMETERS


def test_lines_of_code_leave_out_what_people_read() -> None:
    text = '"""Says\nwhat."""\n\nfrom a import (\n    b,\n)\n\n# why\ndef f() -> str:\n    """Words."""\n    return """two\n    lines"""\n'
    (module,) = _code(m=text).modules.values()
    assert sizes.code_lines(module) == 3


def test_importers_and_services_that_string_others_are_found() -> None:
    code = _code(
        core__queue__task="class CompactionTask: ...",
        services__a="def f():\n    from compaction_pipeline.core.queue.task import CompactionTask\n",
        services__b="x = 1",
        services__c="from compaction_pipeline.services import a\nfrom compaction_pipeline.services.b import x\n",
        cli="from compaction_pipeline.services import a, b\n",
    )
    assert sizes.importers(code, "CompactionTask") == ["compaction_pipeline/services/a.py"]
    assert [each.path for each in sizes.stringing(code)] == ["compaction_pipeline/services/c.py"]


def test_a_renaming_is_no_difference() -> None:
    old = "from a import Task\ndef test_x():\n    task = Task(1)\n    assert f(task) == 1\n"
    new = "from b import Work\n\n\ndef test_x():\n    # why\n    task = Work(\n        1,\n    )\n    assert f(task) == 1\n"
    assert stated.differences({"t": (old, new)}) == []


@pytest.mark.parametrize(
    "new",
    [
        "def test_x():\n    assert f(a) == 2\n    assert g(b) == 1\n",
        "def test_x():\n    assert f(a) != 1\n    assert g(b) == 1\n",
        # The name `a` is still used, so this is another argument and no renaming.
        "def test_x():\n    assert f(a) == 1\n    assert g(a) == 1\n",
        "def test_x():\n    assert f(a) == 1\n",
    ],
)
def test_another_statement_is_a_difference(new: str) -> None:
    old = "def test_x():\n    assert f(a) == 1\n    assert g(b) == 1\n"
    assert len(stated.differences({"t": (old, new)})) == 1


def test_two_names_that_become_one_are_a_difference() -> None:
    assert stated.differences({"t": ("f(a)\nf(b)\n", "f(c)\nf(c)\n")}) != []


def test_returns_count_folders_that_were_left() -> None:
    walk = ["core/tables", "core/queue", "iceberg", "core/tables", "iceberg"]
    assert traced.returns(walk) == 2
    assert traced.top_folders(walk) == ["core", "iceberg", "core", "iceberg"]
