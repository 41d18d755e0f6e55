"""Which classes a reader meets who begins at one module or function, and follows each name to its definition.

A definition leads to every name in it, in annotations too, and each name to its definition in the package. An attribute leads nowhere, and
neither does a name of a library. `core/errors.py` counts as one class, and nothing in it is followed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from shapes.code import PACKAGE, Code, Module, Symbol

# Each begins at the first of its places that exists: a module, or one function of a module after a colon.
BEGINNINGS = {
    "MINOR's trigger": ["core.fragmentation.triggers"],
    "node planner": ["core.planning.node_planner", "core.planning.plain.node_planner"],
    "plain merge": ["merging.kernel:_merge", "merging.plain", "merging.merge"],
    "kernel": ["merging.kernel"],
    "commit service": ["services.commit.commit_tables"],
}


def begin(code: Code, places: list[str]) -> tuple[str, set[Symbol]] | None:
    for place in places:
        name, _, function = place.partition(":")
        module = code.modules.get(f"{PACKAGE}.{name}")
        if module is not None and (not function or function in module.definitions):
            wanted = [function] if function else ["", *module.definitions]
            return place, {Symbol(module.name, each) for each in wanted}
    return None


def reached(code: Code, start: set[Symbol]) -> set[Symbol]:
    """The classes that are reached, those of the beginning included."""
    seen: set[Symbol] = set()
    waiting = set(start)
    while waiting:
        symbol = waiting.pop()
        seen.add(symbol)
        module = code.modules[symbol.module]
        # A whole module that is named leads nowhere by itself; the name after the dot does. The beginning gives its statements.
        statements = module.definitions.get(symbol.name, [])
        if symbol.name == "" and symbol in start:
            statements = [each for each in module.tree.body if not isinstance(each, (ast.Import, ast.ImportFrom))]
        if symbol.module != f"{PACKAGE}.core.errors":
            waiting |= {each for statement in statements for each in _named(code, module, statement)} - seen
    return {each for each in seen if any(isinstance(s, ast.ClassDef) for s in code.modules[each.module].definitions.get(each.name, []))}


def _named(code: Code, module: Module, statement: ast.AST) -> Iterator[Symbol]:
    for node in ast.walk(statement):
        if isinstance(node, (ast.Name, ast.Attribute)):
            symbol = code.resolve(module, node)
            if symbol is not None and symbol.name:
                yield symbol
        for text in _annotations_in_quotes(node):
            yield from _named(code, module, text)


def _annotations_in_quotes(node: ast.AST) -> Iterator[ast.AST]:
    places = [getattr(node, "annotation", None), getattr(node, "returns", None)]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("cast", "TypeVar"):
        places += [*node.args, *(keyword.value for keyword in node.keywords)]
    for place in places:
        for each in ast.walk(place) if isinstance(place, ast.AST) else ():
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                try:
                    yield ast.parse(each.value, mode="eval")
                except SyntaxError:
                    continue


def count(classes: set[Symbol]) -> tuple[int, int]:
    """How many classes, and how many of them are public. Those of core.errors count once."""
    errors = {each for each in classes if each.module == f"{PACKAGE}.core.errors"}
    public = {each for each in classes - errors if not each.name.startswith("_")}
    return len(classes - errors) + bool(errors), len(public) + bool(errors)
