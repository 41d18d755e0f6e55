"""The table of figures: what each is, and what it counts."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from shapes import reach, sizes, stated, traced
from shapes.code import PACKAGE, TESTS, Code
from shapes.kinds import Kinds

NOWHERE = tuple(f"{PACKAGE}/{folder}/" for folder in ("merging", "iceberg", "formats", "core/commit"))


@dataclass(frozen=True)
class Figure:
    name: str
    value: str
    goal: str
    counts: str
    members: list[str] = field(default_factory=list)


def figures(repo: Path, since: str, *, trace: bool = True) -> tuple[list[Figure], list[stated.Difference]]:
    """Every figure of a checkout, and what its laws say otherwise than at the commit `since`."""
    with ThreadPoolExecutor(2) as pool:
        # The tests run beside the counting.
        running = {name: pool.submit(traced.trace, repo, name) for name in (traced.TESTS if trace else ())}
        code = Code.of(repo)
        found = [*_kinds(code), *_reached(code), *_sizes(repo, code)]
        for name, future in running.items():
            found.append(_traced(name, future.result()))
    found += _tests(repo)
    differences, came, went = stated.since(repo, since)
    found.append(
        Figure(
            f"laws, models, crash and interop tests since {since}: files that say something else · new · gone",
            f"{len({each.path for each in differences})} · {len(came)} · {len(went)}",
            "0 by a refactoring",
            "Those of scenarios/ and interop/, and modules called laws, model, machine or crash; renaming is none (`--diff`).",
            [*sorted({each.path for each in differences}), *(f"new: {each}" for each in came), *(f"gone: {each}" for each in went)],
        )
    )
    return found, differences


def _kinds(code: Code) -> Iterator[Figure]:
    kinds = Kinds(code)
    how = "by `is`, `==`, `in`, `match`, `isinstance`, `hasattr`, a dict, or strings; one function counts once, keyed/ included."
    yield Figure(
        "functions that ask for a task's kind",
        str(len(kinds.tasks)),
        "≤ 8",
        f"Asked of TaskAction, of the union of core/work, and of a span of changes, {how}",
        kinds.tasks,
    )
    yield Figure(
        "functions that ask for a table's kind",
        str(len(kinds.tables)),
        "≤ 8",
        f"Asked of `.keyed`, of what is declared as `Keyed… | None`, of PlainStores | KeyedStores, and of `is_of_keyed_table`, {how}",
        kinds.tables,
    )
    yield Figure(
        "both together, without those that ask for both",
        str(len({*kinds.tasks, *kinds.tables})),
        "",
        "The functions of the two figures above.",
    )
    yield Figure(
        "functions that ask through another",
        str(len(kinds.through)),
        "",
        "They call a function that asks and returns a bool, and ask nothing themselves. They are not among those above.",
        kinds.through,
    )


def _reached(code: Code) -> Iterator[Figure]:
    goals = dict(zip(reach.BEGINNINGS, ("≤ 14", "≤ 36", "≤ 85", "≤ 110", "≤ 55"), strict=True))
    for name, places in reach.BEGINNINGS.items():
        begun = reach.begin(code, places)
        if begun is None:
            yield Figure(
                f"classes reached by name: {name}", "?", goals[name], f"None of {places} exists: name the new place in .ci/shapes/reach.py."
            )
            continue
        place, start = begun
        classes = reach.reached(code, start)
        every, public = reach.count(classes)
        counts = f"From {place}: each name leads to its definition, and so on, annotations too; core.errors counts once."
        yield Figure(
            f"classes reached by name: {name} (public ones)",
            f"{every} ({public})",
            goals[name],
            counts,
            sorted(f"{each.module.removeprefix(f'{PACKAGE}.')}.{each.name}" for each in classes),
        )


def _sizes(repo: Path, code: Code) -> Iterator[Figure]:
    modules = list(code.modules.values())
    tasks = sizes.importers(code, "CompactionTask")
    wrong = [path for path in tasks if path.startswith(NOWHERE)]
    yield Figure(
        "modules that import CompactionTask · of these in merging/, iceberg/, formats/, core/commit/",
        f"{len(tasks)} · {len(wrong)}",
        "≤ 35 · 0",
        "Imports in functions and under TYPE_CHECKING count.",
        tasks,
    )
    wires = [each for each in sizes.stringing(code) if each.path.endswith("/wire.py")]
    stringing = [each for each in sizes.stringing(code) if each not in wires]
    yield Figure(
        "modules of services/ that import two or more other modules of services/ · their lines · lines of wires",
        f"{len(stringing)} · {sum(each.lines for each in stringing):,} · {sum(each.lines for each in wires):,}",
        "≤ 1,700 lines",
        "All lines of these modules. A wire.py only builds what it imports, as bootstrap.py alone did once, so wires count apart.",
        [f"{each.path} ({each.lines})" for each in stringing],
    )
    over = sizes.Parameters(code).over()
    yield Figure(
        "functions with more than 7 parameters",
        str(len(over)),
        "0",
        "Bundles of ports, services or stores count with their fields; self, frozen values, typer commands, KeyedTable.create do not.",
        over,
    )
    complex_ones = sizes.complex_functions(repo)
    yield Figure(
        "functions more complex than 10", str(len(complex_ones)), "0", "ruff C901, functions inside of functions included.", complex_ones
    )
    yield Figure(
        "lines that name Any",
        str(sum(map(sizes.lines_with_any, modules))),
        "not more",
        "Lines of code of the package, those of imports left out.",
    )
    long_ones = [f"{each.path} ({each.lines})" for each in modules if each.lines > 450]
    yield Figure("modules over 450 lines", str(len(long_ones)), "0", "All lines of a module.", long_ones)
    yield Figure(
        "lines of code",
        f"{sum(map(sizes.code_lines, modules)):,}",
        "≤ 31,000",
        "Lines of the package, demo/ too, without blank ones, comments, docstrings and imports.",
    )


def _traced(name: str, folders: list[str]) -> Figure:
    walk = folders[: traced.MOST_CHANGES + 1]
    tops = traced.top_folders(walk)
    keyed = sorted({folder for folder in walk if "keyed" in folder.split("/")})
    what, goal = ("a plain commit's attempt", "0 · ≤ 30") if name == "commit" else ("merge_task", "– · ≤ 40")
    test = traced.TESTS[name].split("::")[1]
    return Figure(
        f"{what}: keyed folders entered · returns to a folder at the top of the package · to any folder, once left",
        f"{len(keyed)} · {traced.returns(tops)} · {traced.returns(walk)}",
        goal,
        f"sys.setprofile in {test}: {len(walk) - 1} changes of folder (the first {traced.MOST_CHANGES} at most).",
        [*keyed, " > ".join(tops)],
    )


def _tests(repo: Path) -> Iterator[Figure]:
    tests = Code.of(repo, TESTS)
    patched = [
        f"{module.path}:{node.lineno}"
        for module in tests.modules.values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "setattr"
        and "monkeypatch" in ast.unparse(node.func.value)
    ]
    yield Figure("monkeypatch.setattr in tests", str(len(patched)), "≤ 30", "Calls in all test modules.", patched)
    crossed = [
        f"{module.path} imports {name}"
        for module in tests.modules.values()
        for name in sorted(tests.imported_modules(module))
        if name.rsplit(".", 1)[-1].startswith("test_")
    ]
    yield Figure(
        "imports from test modules by other test modules",
        str(len(crossed)),
        "0",
        "Pairs of modules; the imported one is called test_….",
        crossed,
    )
    words = len((repo / "ARCHITECTURE.md").read_text().split())
    yield Figure("words of ARCHITECTURE.md", f"{words:,}", "≤ 1,500", "As `wc -w` counts them.")
