"""Counts of lines, imports and parameters."""

from __future__ import annotations

import ast
import io
import json
import subprocess
import sys
import tokenize
from pathlib import Path

from shapes.code import FUNCTIONS, PACKAGE, Code, Module, Symbol

_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.ENCODING}


def code_lines(module: Module) -> int:
    """Lines without blank ones, comments, docstrings and imports."""
    left_out: set[int] = set()
    for node in ast.walk(module.tree):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        if is_text or isinstance(node, (ast.Import, ast.ImportFrom)):
            assert isinstance(node, ast.stmt)
            left_out |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type not in _NO_CODE:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - left_out)


def lines_with_any(module: Module) -> int:
    """Lines whose code names `Any`, those of imports left out."""
    return len({each.lineno for each in ast.walk(module.tree) if isinstance(each, ast.Name) and each.id == "Any"})


def importers(code: Code, name: str) -> list[str]:
    """The modules that import a class of this name, the one that defines it left out."""
    return sorted(
        module.path
        for module in code.modules.values()
        if name not in module.definitions and any(each.name == name for each in module.imports.values())
    )


def stringing(code: Code) -> list[Module]:
    """The modules of services/ that import two or more other modules of services/."""
    services = f"{PACKAGE}.services"
    return [
        module
        for name, module in code.modules.items()
        if name.startswith(f"{services}.") and len([each for each in code.imported_modules(module) if each.startswith(f"{services}.")]) >= 2
    ]


class Parameters:
    """Counts parameters, a bundle of services or stores with its fields."""

    MOST = 7
    EXEMPT = ("compaction_pipeline/keyed/table.py: KeyedTable.create", "compaction_pipeline/keyed/table.py: create")

    def __init__(self, code: Code) -> None:
        self._code = code

    def over(self) -> list[str]:
        found = []
        for module in self._code.modules.values():
            for name, function in _all_functions(module.tree, ""):
                where = f"{module.path}: {name}"
                number = sum(self._weight(module, each.annotation, frozenset()) for each in _arguments(function))
                if number > self.MOST and where not in self.EXEMPT and not _is_command(function):
                    found.append(f"{where} ({number})")
            for name, statements in module.definitions.items():
                for each in statements:
                    if isinstance(each, ast.ClassDef) and _is_dataclass(each) and not self._is_value(module, each):
                        number = len(_fields(each))
                        if number > self.MOST:
                            found.append(f"{module.path}: {name}, made with its fields ({number})")
        return found

    def _is_value(self, module: Module, node: ast.ClassDef) -> bool:
        is_frozen = _is_named_tuple(node) or any("frozen=True" in ast.unparse(each) for each in node.decorator_list)
        return is_frozen and not self._is_bundle(Symbol(module.name, node.name))

    def _weight(self, module: Module, annotation: ast.expr | None, above: frozenset[Symbol]) -> int:
        for node in ast.walk(annotation) if annotation is not None else ():
            symbol = self._code.resolve(module, node) if isinstance(node, (ast.Name, ast.Attribute)) else None
            if symbol is not None and symbol not in above and self._is_bundle(symbol):
                owner = self._code.modules[symbol.module]
                return sum(self._weight(owner, each, above | {symbol}) for each in _fields(_class(owner, symbol.name)))
        return 1

    def _is_bundle(self, symbol: Symbol) -> bool:
        """Whether most fields of this class are ports, or services and stores."""
        module = self._code.modules[symbol.module]
        node = _class(module, symbol.name)
        if node is None or not _is_dataclass(node):
            return False
        fields = _fields(node)
        served = [each for each in fields if self._is_service(module, each)]
        return len(served) >= 2 and len(served) * 2 > len(fields)

    def _is_service(self, module: Module, annotation: ast.expr) -> bool:
        for node in ast.walk(annotation):
            symbol = self._code.resolve(module, node) if isinstance(node, (ast.Name, ast.Attribute)) else None
            owner = self._code.modules[symbol.module] if symbol is not None else None
            found = _class(owner, symbol.name) if symbol is not None and owner is not None else None
            if symbol is None or found is None:
                continue
            is_port = any(ast.unparse(base).split("[")[0].endswith("Protocol") for base in found.bases)
            does = symbol.module.startswith((f"{PACKAGE}.services.", f"{PACKAGE}.storage.", f"{PACKAGE}.iceberg."))
            if is_port or (does and not _is_dataclass(found)):
                return True
        return False


def _class(module: Module | None, name: str) -> ast.ClassDef | None:
    found = module.definitions.get(name, []) if module is not None else []
    return next((each for each in found if isinstance(each, ast.ClassDef)), None)


def _is_dataclass(node: ast.ClassDef) -> bool:
    return _is_named_tuple(node) or any("dataclass" in ast.unparse(each) for each in node.decorator_list)


def _is_named_tuple(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).endswith("NamedTuple") for base in node.bases)


def _fields(node: ast.ClassDef | None) -> list[ast.expr]:
    body = node.body if node is not None else []
    return [each.annotation for each in body if isinstance(each, ast.AnnAssign) and "ClassVar" not in ast.unparse(each.annotation)]


def _all_functions(tree: ast.AST, prefix: str) -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    found: list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]] = []
    for node in ast.iter_child_nodes(tree):
        inner = prefix
        if isinstance(node, FUNCTIONS):
            found.append((prefix + node.name, node))
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            inner = f"{prefix}{node.name}."
        found += _all_functions(node, inner)
    return found


def _arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    given = function.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    return [each for number, each in enumerate(every) if not (number == 0 and each.arg in ("self", "cls"))]


def _is_command(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    written = [ast.unparse(each) for each in (*function.decorator_list, function.args)]
    return any(".command" in each or ".callback" in each or "typer." in each for each in written)


def complex_functions(repo: Path) -> list[str]:
    """The functions that ruff finds more complex than 10."""
    ruff = Path(sys.executable).with_name("ruff")
    words = [
        "check",
        "--isolated",
        "--no-cache",
        "--select",
        "C901",
        "--config",
        "lint.mccabe.max-complexity=10",
        "--output-format",
        "json",
        PACKAGE,
    ]
    answer = subprocess.run([str(ruff), *words], cwd=repo, capture_output=True, text=True, check=False)
    if answer.returncode not in (0, 1):
        raise SystemExit(f"ruff ended with {answer.returncode}: {answer.stderr}")
    return [f"{Path(each['filename']).relative_to(repo.resolve())}: {each['message']}" for each in json.loads(answer.stdout)]
