"""`example` lines: two index terms, the second what the rules make of the first.

Owns: reading an example as graphs; names are loops whose bounds the line states. Does not own:
running it (tests/test_dsl.py does).
"""

from __future__ import annotations

from lark import Token, Tree

from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.verify.dsl import names
from proofgrad.verify.dsl.errors import RuleError, Source
from proofgrad.verify.dsl.positions import position_of
from proofgrad.verify.dsl.scope import Syntax

_PREFIX = {sign: Ops[op] for sign, op in names.PREFIX_OPS.items()}
MAX_NUMBER = 1 << 62


def example_graphs(tree: Syntax, source: Source) -> tuple[UOp, UOp]:
    """The graphs of both sides of an `example_text`. Raises: RuleError."""
    left, right, *rest = tree.children
    variables: dict[str, UOp] = {}
    for bounds in rest:
        for bound in bounds.children:
            variables[str(bound.children[0])] = _loop(bound, len(variables), source)
    return _graph(left, variables, source), _graph(right, variables, source)


def _loop(bound: Syntax, number: int, source: Source) -> UOp:
    """A loop over 0 .. high; the low end of an example's variable is 0."""
    low, high = [_number(end, source) for end in bound.children[1:]]
    if low != 0 or high < 1:
        raise RuleError(
            source,
            position_of(bound),
            f"a loop of an example runs over [0, n], not [{low}, {high}]",
        )
    return UOp.range(high + 1, number)


def _number(tree: Syntax, source: Source) -> int:
    token = tree.children[0] if isinstance(tree, Tree) and tree.data == "number" else None
    if not isinstance(token, Token) or not token.isdigit() or len(token) > len(str(MAX_NUMBER)):
        raise RuleError(source, position_of(tree), "expected an integer")
    return int(token)


def _graph(tree: Syntax, variables: dict[str, UOp], source: Source) -> UOp:
    match tree.data:
        case "number":
            return UOp.index(_number(tree, source))
        case "name":
            return _variable(tree, variables, source)
        case "prefix" if (op := _PREFIX.get(str(tree.children[0]))) is not None:
            operand = _graph(tree.children[1], variables, source)
            negated = op is Ops.NEG and operand.op is Ops.CONST
            return UOp.index(-operand.arg) if negated else operand.alu(op)
        case "infix" if tree.children[1] in names.INFIX_OPS:
            first, second = [_graph(tree.children[k], variables, source) for k in (0, 2)]
            return first.alu(Ops[names.INFIX_OPS[str(tree.children[1])]], second)
        case "infix" if tree.children[1] == "-":
            first, second = [_graph(tree.children[k], variables, source) for k in (0, 2)]
            return first - second
        case "call" if tree.children[0] in names.CALL_OPS:
            first, *others = [_graph(child, variables, source) for child in tree.children[1:]]
            return first.alu(Ops[names.CALL_OPS[str(tree.children[0])][0]], *others)
        case _:
            raise RuleError(
                source, position_of(tree), "an example is of index terms and truth values"
            )


def _variable(tree: Syntax, variables: dict[str, UOp], source: Source) -> UOp:
    token = tree.children[0]
    found = variables.get(str(token))
    if found is None:
        raise RuleError(
            source,
            position_of(token),
            f"unknown name {str(token)!r}; say over what it runs: with {token} in [0, 9]",
        )
    return found
