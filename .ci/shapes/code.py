"""The modules of a checkout, and what each name in them stands for."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

PACKAGE, TESTS = "compaction_pipeline", "compaction_pipeline_tests"
Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Symbol:
    """What is defined at the top of a module. The name "" stands for the module itself."""

    module: str
    name: str


@dataclass
class Module:
    name: str
    path: str
    text: str
    is_package: bool = False
    imports: dict[str, Symbol] = field(default_factory=dict)

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the tree. To walk through it takes as long as to parse it, so it is done once."""
        return list(ast.walk(self.tree))

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @cached_property
    def definitions(self) -> dict[str, list[ast.stmt]]:
        """The statements that define each name at the top of the module, also under `if` and `try`."""
        found: dict[str, list[ast.stmt]] = {}
        for statement in top_statements(self.tree.body):
            for name in defined(statement):
                found.setdefault(name, []).append(statement)
        return found

    def functions(self) -> Iterator[tuple[str, Function]]:
        """The functions and methods with their names. A function inside of a function belongs to the outer one."""

        def under(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, Function]]:
            for statement in top_statements(body):
                if isinstance(statement, FUNCTIONS):
                    yield prefix + statement.name, statement
                elif isinstance(statement, ast.ClassDef):
                    yield from under(statement.body, f"{prefix}{statement.name}.")

        yield from under(self.tree.body, "")


def top_statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        if isinstance(statement, (ast.If, ast.Try, ast.With)):
            for part in ("body", "orelse", "finalbody"):
                yield from top_statements(getattr(statement, part, []))
            for handler in getattr(statement, "handlers", []):
                yield from top_statements(handler.body)
        else:
            yield statement


def defined(statement: ast.stmt) -> list[str]:
    if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
        return [statement.name]
    if isinstance(statement, ast.Assign):
        return [each.id for target in statement.targets for each in ast.walk(target) if isinstance(each, ast.Name)]
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return [statement.target.id]
    return []


class Code:
    """The modules of the package by their dotted names."""

    def __init__(self, texts: dict[str, str]) -> None:
        """`texts` are the modules by their paths in the checkout."""
        self.modules: dict[str, Module] = {}
        for path, text in sorted(texts.items()):
            parts = Path(path).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            self.modules[name] = Module(name, path, text, is_package)
        for module in self.modules.values():
            for node in module.nodes:
                module.imports.update(self._imported(module, node))

    @classmethod
    def of(cls, repo: Path, folder: str = PACKAGE) -> Code:
        return cls({str(path.relative_to(repo)): path.read_text() for path in (repo / folder).rglob("*.py")})

    def _imported(self, module: Module, node: ast.AST) -> Iterator[tuple[str, Symbol]]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (
                    (alias.asname, Symbol(alias.name, ""))
                    if alias.asname
                    else (alias.name.split(".")[0], Symbol(alias.name.split(".")[0], ""))
                )
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level:
                parts = module.name.split(".")
                parts = parts[: len(parts) - node.level + (1 if module.is_package else 0)]
                source = ".".join([*parts, *([source] if source else [])])
            for alias in node.names:
                inner = f"{source}.{alias.name}"
                yield alias.asname or alias.name, Symbol(inner, "") if inner in self.modules else Symbol(source, alias.name)

    def imported_modules(self, module: Module) -> set[str]:
        """The modules of the package that this one imports, also inside of functions and under TYPE_CHECKING."""
        found: set[str] = set()
        for node in module.nodes:
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found |= {symbol.module for _, symbol in self._imported(module, node)}
        return (found & self.modules.keys()) - {module.name}

    def resolve(self, module: Module, node: ast.expr) -> Symbol | None:
        """What a name or a dotted name stands for; None when it is no definition of the package."""
        if isinstance(node, ast.Name):
            if node.id in module.imports:
                return self.origin(module.imports[node.id])
            return Symbol(module.name, node.id) if node.id in module.definitions else None
        if isinstance(node, ast.Attribute):
            owner = self.resolve(module, node.value)
            if owner is not None and owner.name == "":
                inner = f"{owner.module}.{node.attr}"
                return Symbol(inner, "") if inner in self.modules else self.origin(Symbol(owner.module, node.attr))
        return None

    def origin(self, symbol: Symbol) -> Symbol | None:
        """Follow a name that a module passes on to the module that defines it."""
        for _ in range(20):
            module = self.modules.get(symbol.module)
            if module is None:
                return None
            if symbol.name == "" or symbol.name in module.definitions:
                return symbol
            if symbol.name not in module.imports:
                return None
            symbol = module.imports[symbol.name]
        return None
