"""Which functions ask for the kind of a task, and which for the kind of a table.

They ask with a comparison, `in`, `match`, `isinstance` or `hasattr`, or with a dict by kind. Values that are made of kinds alone
(`PLAIN = (TaskAction.MERGE, …)`, `Plain = Merge | Convert`) count as kinds. Who makes a value of a kind, or passes one on, does not ask.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator

from shapes.code import Code, Module, Symbol

KIND_ENUM = "TaskAction"
KIND_CLASSES = {"Merge", "Convert", "DropDeletes", "ToBase", "RewriteChanges"}
KIND_STRINGS = {"MERGE", "CONVERT", "DROP_DELETES", "TO_BASE", "REWRITE_CHANGES"}
TABLE_CLASSES = re.compile(r"^(Plain|Keyed)(Stores|Table|Layout|Head|Files|View|Base)$")
# A property, an attribute, and a function of core.tables.keyed that say of which kind a table is.
TABLE_FLAGS = {"is_of_keyed_table", "is_keyed", "keyed_table"}
# What is None, or not there, for other kinds. A span of changes belongs to TO_BASE alone.
_OPTIONAL_SPAN = re.compile(r"\bChangeSpan \| None")
_OPTIONAL_KEYED = re.compile(r"\bKeyed\w*\b.*\bNone\b|Optional\[\"?Keyed")
# Whoever lets another node ask, or hold a name, adds it here.
_TELLING = (
    *(ast.Compare, ast.Call, ast.match_case, ast.Dict, ast.If, ast.IfExp, ast.While, ast.Assert, ast.BoolOp, ast.UnaryOp),
    *(ast.comprehension, ast.Attribute, ast.Assign, ast.NamedExpr, ast.AnnAssign, ast.arg),
)


class Kinds:
    """Finds questions. `tasks` and `tables` are the functions that ask, as `path: name`."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self._task_kinds = self._holders(self._named_kinds())
        self._table_kinds = self._holders(
            {Symbol(name, each) for name, module in code.modules.items() for each in module.definitions if TABLE_CLASSES.match(each)}
        )
        self._optional = {"keyed"} | self._declared(_OPTIONAL_KEYED)
        self._spans = self._declared(_OPTIONAL_SPAN)
        self.tasks: list[str] = []
        self.tables: list[str] = []
        for module in code.modules.values():
            self._look_at(module)
        # Who calls a function that asks and answers with yes or no asks through it.
        self.through = self._callers_of_predicates()

    def _named_kinds(self) -> set[Symbol]:
        found = set()
        for name, module in self._code.modules.items():
            for each in module.definitions:
                if each == KIND_ENUM or (each in KIND_CLASSES and ".core.work" in name):
                    found.add(Symbol(name, each))
        return found

    def _holders(self, kinds: set[Symbol]) -> set[Symbol]:
        """The kinds, and the names at the top of modules whose value is made of kinds alone: collections and unions."""
        while True:
            more = set(kinds)
            for name, module in self._code.modules.items():
                for each, statements in module.definitions.items():
                    for statement in statements:
                        value = getattr(statement, "value", None) if isinstance(statement, (ast.Assign, ast.AnnAssign)) else None
                        if value is not None and self._is_collection(module, value, kinds):
                            more.add(Symbol(name, each))
            if more == kinds:
                return kinds
            kinds = more

    def _is_collection(self, module: Module, value: ast.expr, kinds: set[Symbol]) -> bool:
        if isinstance(value, (ast.Tuple, ast.List, ast.Set)):
            return bool(value.elts) and all(self._is_kind(module, each, kinds) for each in value.elts)
        if isinstance(value, ast.BinOp):
            return all(self._is_kind(module, each, kinds) for each in (value.left, value.right))
        if (
            isinstance(value, ast.Call)
            and isinstance(value.func, ast.Name)
            and value.func.id in ("frozenset", "set", "tuple")
            and value.args
        ):
            return self._is_collection(module, value.args[0], kinds)
        return isinstance(value, (ast.Name, ast.Attribute)) and self._is_kind(module, value, kinds)

    def _is_kind(self, module: Module, node: ast.expr, kinds: set[Symbol], local: frozenset[str] = frozenset()) -> bool:
        """Whether this is a kind, a member of the enum of kinds, or a collection or union of them."""
        if isinstance(node, ast.Attribute) and node.attr in ("value", "name"):
            return self._is_kind(module, node.value, kinds, local)
        if isinstance(node, ast.Name) and node.id in local:
            return True
        symbol = self._code.resolve(module, node)
        if symbol is None and isinstance(node, ast.Attribute):
            symbol = self._code.resolve(module, node.value)
            if symbol is None or symbol.name != KIND_ENUM:
                return False
        return symbol in kinds or (
            isinstance(node, (ast.Tuple, ast.List, ast.Set, ast.BinOp, ast.Call)) and self._is_collection(module, node, kinds)
        )

    def _declared(self, pattern: re.Pattern[str]) -> set[str]:
        """Names of fields that are None for the other kinds, as their declaration says."""
        found = set()
        for module in self._code.modules.values():
            for node in module.nodes:
                if isinstance(node, ast.AnnAssign) and pattern.search(ast.unparse(node.annotation)):
                    found.add(_last(node.target))
        return found

    def _look_at(self, module: Module) -> None:
        functions = [(name, _telling(ast.walk(function))) for name, function in module.functions()]
        inside = {id(node) for _, nodes in functions for node in nodes}
        for name, nodes in functions:
            self._note(module, name, nodes)
        self._note(module, "(the module)", [node for node in _telling(module.nodes) if id(node) not in inside])

    def _note(self, module: Module, name: str, nodes: list[ast.AST]) -> None:
        where = f"{module.path}: {name}"
        kinds = self._kinds_held(module, nodes, self._task_kinds)
        spans = self._optional_held(nodes, self._spans, _OPTIONAL_SPAN)
        if any(self._asks_task(module, node, kinds, spans) for node in nodes):
            self.tasks.append(where)
        kinds = self._kinds_held(module, nodes, self._table_kinds)
        keyed = self._optional_held(nodes, self._optional, _OPTIONAL_KEYED)
        if any(self._asks_table(module, node, kinds, keyed) for node in nodes):
            self.tables.append(where)

    def _kinds_held(self, module: Module, nodes: list[ast.AST], kinds: set[Symbol]) -> frozenset[str]:
        """The local names that hold kinds."""
        held: set[str] = set()
        for node in nodes:
            if isinstance(node, (ast.Assign, ast.NamedExpr)) and self._is_collection(module, node.value, kinds):
                held |= _targets(node)
        return frozenset(held)

    def _optional_held(self, nodes: list[ast.AST], fields: set[str], pattern: re.Pattern[str]) -> frozenset[str]:
        """The local names and arguments that hold what other kinds do not have."""
        held: set[str] = set()
        for node in nodes:
            if isinstance(node, (ast.Assign, ast.NamedExpr)) and isinstance(node.value, ast.Attribute) and node.value.attr in fields:
                held |= _targets(node)
            annotation = getattr(node, "annotation", None) if isinstance(node, (ast.arg, ast.AnnAssign)) else None
            if annotation is not None and pattern.search(ast.unparse(annotation)):
                held.add(node.arg if isinstance(node, ast.arg) else _last(getattr(node, "target", annotation)))
        return frozenset(held)

    def _asks_task(self, module: Module, node: ast.AST, local: frozenset[str], spans: frozenset[str]) -> bool:
        def is_optional(each: ast.expr) -> bool:
            if isinstance(each, ast.NamedExpr):
                return is_optional(each.value)
            return (isinstance(each, ast.Attribute) and each.attr in self._spans) or (isinstance(each, ast.Name) and each.id in spans)

        def is_kind(each: ast.expr) -> bool:
            is_text = isinstance(each, ast.Constant) and each.value in KIND_STRINGS
            if isinstance(each, (ast.Tuple, ast.List, ast.Set)):
                return any(is_kind(inner) for inner in each.elts)
            return is_text or self._is_kind(module, each, self._task_kinds, local)

        return _asks_for_none(node, is_optional) or _asks(node, is_kind)

    def _asks_table(self, module: Module, node: ast.AST, local: frozenset[str], keyed: frozenset[str]) -> bool:
        def is_kind(each: ast.expr) -> bool:
            if isinstance(each, (ast.Tuple, ast.List, ast.Set)):
                return any(is_kind(inner) for inner in each.elts)
            return self._is_kind(module, each, self._table_kinds, local)

        def is_optional(each: ast.expr) -> bool:
            if isinstance(each, ast.NamedExpr):
                return is_optional(each.value)
            return (isinstance(each, ast.Attribute) and each.attr in self._optional) or (isinstance(each, ast.Name) and each.id in keyed)

        if _asks_for_none(node, is_optional):
            return True
        if isinstance(node, ast.Attribute) and node.attr in TABLE_FLAGS and isinstance(node.ctx, ast.Load):
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in TABLE_FLAGS:
            return True
        return _asks(node, is_kind)

    def _callers_of_predicates(self) -> list[str]:
        asking = {*self.tasks, *self.tables}
        predicates: set[Symbol] = set()
        methods: set[str] = set()
        for module in self._code.modules.values():
            for name, function in module.functions():
                if f"{module.path}: {name}" in asking and function.returns is not None and ast.unparse(function.returns) == "bool":
                    if "." in name:
                        methods.add(function.name)
                    else:
                        predicates.add(Symbol(module.name, name))
        methods = {name for name in methods if not name.startswith("__")}
        found = []
        for module in self._code.modules.values():
            for name, function in module.functions():
                where = f"{module.path}: {name}"
                if where not in asking and any(self._uses(module, node, predicates, methods) for node in ast.walk(function)):
                    found.append(where)
        return found

    def _uses(self, module: Module, node: ast.AST, predicates: set[Symbol], methods: set[str]) -> bool:
        if isinstance(node, ast.Attribute) and node.attr in methods:
            return True
        return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and self._code.resolve(module, node) in predicates


def _telling(nodes: Iterable[ast.AST]) -> list[ast.AST]:
    """The nodes that can ask, or give a name to what is asked for. They are a quarter of all."""
    return [node for node in nodes if isinstance(node, _TELLING)]


def _asks_for_none(node: ast.AST, is_optional: Callable[[ast.expr], bool]) -> bool:
    """Whether something is asked to be there: with `is None`, or by its truth."""
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        return any(map(is_optional, sides)) and any(isinstance(side, ast.Constant) and side.value is None for side in sides)
    return any(map(is_optional, _tested(node)))


def _asks(node: ast.AST, is_kind: Callable[[ast.expr], bool]) -> bool:
    if isinstance(node, ast.Compare):
        return any(is_kind(side) for side in (node.left, *node.comparators))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "issubclass", "hasattr"):
        if node.func.id == "hasattr":
            return (
                len(node.args) == 2
                and isinstance(node.args[0], (ast.Name, ast.Attribute))
                and _last(node.args[0]) in ("work", "task", "action")
            )
        return len(node.args) == 2 and is_kind(node.args[1])
    if isinstance(node, ast.match_case):
        return any(
            (isinstance(each, ast.MatchValue) and is_kind(each.value)) or (isinstance(each, ast.MatchClass) and is_kind(each.cls))
            for each in ast.walk(node.pattern)
        )
    return isinstance(node, ast.Dict) and any(key is not None and is_kind(key) for key in node.keys)


def _tested(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions whose truth is asked for here."""
    if isinstance(node, (ast.If, ast.IfExp, ast.While, ast.Assert)):
        yield node.test
    elif isinstance(node, ast.BoolOp):
        yield from node.values
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.comprehension):
        yield from node.ifs
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "bool":
        yield from node.args


def _targets(node: ast.Assign | ast.NamedExpr) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
