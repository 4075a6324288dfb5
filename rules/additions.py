"""Operations that are being added: their lines in the files on which proofs depend, between two marks.

    # adding ROUND
    Ops.ROUND: lambda x: z3.fpRoundToIntegral(z3.RNE(), x),
    # end of ROUND

A set that does not name ROUND depends on none of these lines, and its proofs stay fresh while they change:
without them the files are what they were. That holds because such lines only add, which is checked whenever
there are any: entries under `Ops.ROUND` in tables, functions that nothing else is called, and the last
member of `Ops`. Whoever is done takes the marks out, and every set is proven again, once.

Owns: the marks, the check. Does not own: what a fingerprint is made of (library.py).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from typing import TypeGuard

MARK = b"# adding "
_BLOCK = re.compile(rb"^[ \t]*# adding (\w+)\n(?:.*\n)*?[ \t]*# end of \1\n", re.MULTILINE)


class AdditionError(RuntimeError):
    """What stands between the marks of an operation does more than add it."""


def added_in(content: bytes) -> frozenset[str]:
    """The operations whose marks are in a file. Raises: AdditionError for a mark without its end."""
    if MARK not in content:
        return frozenset()
    found = _BLOCK.findall(content)
    if len(found) != content.count(MARK):
        raise AdditionError('"# adding NAME" and "# end of NAME" each take a line of their own')
    return frozenset([name.decode() for name in found])


def without(content: bytes, names: Collection[str]) -> bytes:
    """A file without the lines between the marks of these operations, and without these marks."""
    if not names or MARK not in content:
        return content
    return _BLOCK.sub(lambda m: b"" if m[1].decode() in names else m[0], content)


def check_only_adds(file: str, content: bytes) -> None:
    """Raises: AdditionError if the file, but for what adds its operations, is not the file without them."""
    names = added_in(content)
    before = ast.parse(without(content, names))
    after = _Without(names, _names_bound(before)).visit(ast.parse(content))
    if ast.dump(before) != ast.dump(after):
        raise AdditionError(
            f"{file}: between the marks of {', '.join(sorted(names))} stands more than entries of tables under"
            " Ops.NAME, new functions whose names begin with _, and the last member of Ops; take the marks"
            " out, and run `verify-rules`"
        )


def _names_bound(module: ast.Module) -> frozenset[str]:
    """The names that a module gives a meaning, or takes from Python."""
    parts = list(ast.walk(module))
    return frozenset(
        [
            *[n.name for n in parts if isinstance(n, ast.FunctionDef | ast.ClassDef | ast.alias)],
            *[n.asname for n in parts if isinstance(n, ast.alias) and n.asname],
            *[n.id for n in parts if isinstance(n, ast.Name)],
        ]
    )


class _Without(ast.NodeTransformer):
    """Takes out what adds an operation and can do nothing else."""

    def __init__(self, names: Collection[str], bound: Collection[str]) -> None:
        self._names = names
        self._bound = bound

    def visit_Module(self, module: ast.Module) -> ast.Module:
        module.body = [part for part in module.body if not self._is_new_function(part)]
        self.generic_visit(module)
        return module

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        members = [part for part in node.body if _is_member(part)]
        while node.name == "Ops" and members and self._is_new_member(members[-1]):
            node.body.remove(members.pop())
        return node

    def visit_Dict(self, table: ast.Dict) -> ast.Dict:
        items = zip(table.keys, table.values)
        kept = [k for k, (key, value) in enumerate(items) if not self._is_added(key, value)]
        table.keys, table.values = [table.keys[k] for k in kept], [table.values[k] for k in kept]
        self.generic_visit(table)
        return table

    def _is_new_function(self, part: ast.stmt) -> bool:
        if not isinstance(part, ast.FunctionDef) or part.decorator_list:
            return False
        has_defaults = part.args.defaults or any(part.args.kw_defaults)
        return part.name.startswith("_") and part.name not in self._bound and not has_defaults

    def _is_new_member(self, part: ast.Assign) -> bool:
        (target, *others) = part.targets
        return isinstance(target, ast.Name) and target.id in self._names and not others

    def _is_added(self, key: ast.expr | None, value: ast.expr) -> bool:
        match key:
            case ast.Attribute(ast.Name("Ops"), name) if name in self._names:
                return all([self._makes_a_value(part) for part in _parts_that_run(value)])
            case _:
                return False

    def _makes_a_value(self, part: ast.AST) -> bool:
        """Not a call of a method, as of one that changes a table."""
        if isinstance(part, ast.Call):
            return isinstance(part.func, ast.Name) and part.func.id in self._bound
        return not isinstance(part, ast.NamedExpr)


def _is_member(part: ast.stmt) -> TypeGuard[ast.Assign]:
    return isinstance(part, ast.Assign) and ast.unparse(part.value) == "enum.auto()"


def _parts_that_run(value: ast.expr) -> Iterator[ast.AST]:
    """The parts of an expression but for the bodies of functions."""
    stack: list[ast.AST] = [value]
    while stack:
        part = stack.pop()
        yield part
        if not isinstance(part, ast.Lambda):
            stack.extend(ast.iter_child_nodes(part))
