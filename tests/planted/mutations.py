"""Faults that nobody thought of: every position of a module's text where an operator, a constant or a name could be another.

Owns: the kinds of change. Does not own: planting them (plant.py), which of them show (procedure_faults.py).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

from planted.plant import ROOT, Fault

_OTHER: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mod, ast.Mod: ast.FloorDiv,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
_OPERATIONS = {"ADD": "MAX", "MAX": "MIN", "MIN": "MAX", "MUL": "ADD"}


def mutations(file: str) -> int:
    """How many changes of one position there are in the functions of a file."""
    return sum([1 for _ in _all_changes(_parsed(file))])


def lines_of(file: str) -> list[range]:
    """The lines of each change."""
    return [
        range(line, (getattr(node, "end_lineno", None) or line) + 1)
        for _, line, node, _ in _all_changes(_parsed(file))
    ]


def mutation(file: str, number: int) -> Fault:
    """One of them."""
    tree = _parsed(file)
    for k, (function, line, node, undo) in enumerate(_all_changes(tree)):
        if k == number:
            shown = f"{Path(file).stem}.{function.name}:{line}: {ast.unparse(node)[:60]}"
            return Fault(shown, file, (ROOT / file).read_text("utf-8"), ast.unparse(tree))
        undo()
    raise ValueError(f"{file} has no change {number}")


def functions_of(file: str) -> list[str]:
    """The name of the function that each change is in."""
    return [function.name for function, *_ in _all_changes(_parsed(file))]


def _parsed(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text("utf-8"))


def _all_changes(
    tree: ast.Module,
) -> Iterator[tuple[ast.FunctionDef, int, ast.AST, Callable[[], None]]]:
    """Each change, in place; it is undone before the next one."""
    for function in [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]:
        for line, node, undo in _changes(function):
            yield function, line, node, undo
            undo()


def _changes(function: ast.FunctionDef) -> Iterator[tuple[int, ast.AST, _Undo]]:
    """The function changed in place, once for each (line, changed node, how it is undone)."""
    left_out = _not_computed(function)
    for node in list(ast.walk(function)):
        if node in left_out:
            continue
        line = getattr(node, "lineno", function.lineno)
        match node:
            case ast.BinOp() | ast.BoolOp() | ast.AugAssign() if type(node.op) in _OTHER:
                yield line, node, _set(node, "op", _OTHER[type(node.op)]())
            case ast.Compare() if type(node.ops[0]) in _OTHER:
                yield line, node, _set(node, "ops", [_OTHER[type(node.ops[0])](), *node.ops[1:]])
            case ast.Constant(value=int(value)) if not isinstance(value, bool):
                yield line, node, _set(node, "value", value + 1)
            case ast.UnaryOp(op=ast.Invert()):
                yield line, node, _set(node, "op", ast.UAdd())
            case ast.Attribute(value=ast.Name(id="Ops"), attr=name) if name in _OPERATIONS:
                yield line, node, _set(node, "attr", _OPERATIONS[name])
            case ast.Subscript(slice=ast.Slice(lower=None, upper=upper)) if upper is not None:
                yield line, node, _set(node.slice, "lower", ast.Constant(1))
            case ast.IfExp():
                yield line, node, _set(node, "test", ast.UnaryOp(ast.Not(), node.test))
            case ast.If():
                yield line, node.test, _set(node, "test", ast.UnaryOp(ast.Not(), node.test))
            case ast.Call(args=[first, second, *rest]) if (
                not rest and not _is_starred(node) and not _is_same(first, second)
            ):
                yield line, node, _set(node, "args", [second, first])
            case ast.Tuple(elts=[first, second], ctx=ast.Load()):
                yield line, node, _set(node, "elts", [second, first])


class _Undo:
    """Sets a field back."""

    def __init__(self, node: ast.AST, name: str, value: object) -> None:
        self.node, self.name, self.value = node, name, value

    def __call__(self) -> None:
        setattr(self.node, self.name, self.value)


def _set(node: ast.AST, name: str, value: object) -> _Undo:
    """A field set, and how it is set back."""
    undo = _Undo(node, name, getattr(node, name))
    setattr(node, name, value)
    ast.fix_missing_locations(node)
    return undo


def _not_computed(function: ast.FunctionDef) -> set[ast.AST]:
    """What is told, and types: nothing is computed of them."""
    nodes = list(ast.walk(function))
    types = [n.annotation for n in nodes if isinstance(n, (ast.arg, ast.AnnAssign))]
    types += [n.returns for n in nodes if isinstance(n, ast.FunctionDef)]
    texts = [n for n in nodes if isinstance(n, ast.JoinedStr)]
    return {node for root in (*types, *texts) if root is not None for node in ast.walk(root)}


def _is_same(one: ast.AST, other: ast.AST) -> bool:
    return ast.dump(one) == ast.dump(other)


def _is_starred(call: ast.Call) -> bool:
    return any(isinstance(argument, ast.Starred) for argument in call.args)
