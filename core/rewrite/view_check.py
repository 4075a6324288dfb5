"""Views in use: the names that a search gives are bound only if its contract holds here and now.

Owns: compiling a view of a rule, the check of a contract by comparing linear forms. Does not own:
contracts (views.py), searches (searches.py), linear forms (linear.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.linear import Linear, linear_form, number
from proofgrad.core.rewrite.rule import Apply, Calc, Const, Expr, Lit, Name, Node, Num, Var, View
from proofgrad.core.rewrite.scope import FACTS, Env, Scope
from proofgrad.core.rewrite.searches import SEARCHES
from proofgrad.core.rewrite.terms import compile_expr, compile_term
from proofgrad.core.rewrite.views import CONTRACTS, TERM, Contract

ViewUse = Callable[[Env], bool]


def compile_view(view: View, scope: Scope) -> ViewUse:
    """A function that binds the outputs of `view`, and says whether its contract holds."""
    contract, search = CONTRACTS[view.function], SEARCHES[view.function]
    inputs = [
        _term_input(given, scope) if sort == TERM else _number_input(given, scope)
        for given, (_, sort) in zip(view.inputs, contract.inputs, strict=True)
    ]
    slots = _output_slots(view, contract, scope)
    names = [name for name, _ in (*contract.inputs, *contract.outputs)]

    def use(env: Env) -> bool:
        given = [read(env) for read in inputs]
        if None in given or not _about_index_terms(given):
            return False
        found = search(*given, env[FACTS])
        if found is None or not holds(contract, dict(zip(names, (*given, *found)))):
            return False
        for slot, value in zip(slots, found):
            env[slot] = value
        return True

    return use


def _about_index_terms(values: list[Any]) -> bool:
    """Contracts are equations of mathematical integers: machine integers may wrap."""
    return all([v.dtype is dtypes.index for v in values if isinstance(v, UOp)])


def _term_input(given: Any, scope: Scope) -> Callable[[Env], Any]:
    if not isinstance(given, Var | Const | Lit | Node | Calc):
        raise ValueError(f"a view needs a term here, not {given!r}")  # noqa: TRY004  (bad rule data)
    build = compile_term(given, scope)
    return lambda env: build(env, ())


def _number_input(given: Any, scope: Scope) -> Callable[[Env], Any]:
    return compile_expr(Name(given.name) if isinstance(given, Const) else given, scope)


def _output_slots(view: View, contract: Contract, scope: Scope) -> list[int]:
    """One new slot an output; terms are found as variables, numbers as values."""
    slots = []
    for (name, _), (_, sort) in zip(view.outputs, contract.outputs, strict=True):
        slot = scope.new_slot()
        (scope.nodes if sort == TERM else scope.values)[name] = slot
        slots.append(slot)
    return slots


def holds(contract: Contract, values: dict[str, Any]) -> bool:
    """Whether every claim is an identity of linear forms."""
    for claim in contract.claims:
        left, right = [_form(side, values) for side in claim.args]
        if left is None or right is None or left[:2] != right[:2]:
            return False
    return True


def _form(expr: Expr, values: dict[str, Any]) -> Linear | None:
    match expr:
        case Num(value):
            return number(int(value))
        case Name(name):
            value = values[name]
            return linear_form(value) if isinstance(value, UOp) else number(value)
        case Apply("+", (a, b)):
            return _with(_form(a, values), _form(b, values), Linear.plus)
        case Apply("*", (a, b)):
            return _with(_form(a, values), _form(b, values), _product)
        case Apply("%" | "//" as function, (Name(name), divisor)):
            by = _form(divisor, values)
            return None if by is None or by.terms else _atom(function, values[name], by.constant)
        case _:
            raise ValueError(f"no linear form of {expr!r}")


def _with(a: Linear | None, b: Linear | None, function: Callable[..., Any]) -> Linear | None:
    return None if a is None or b is None else function(a, b)


def _product(a: Linear, b: Linear) -> Linear | None:
    if a.terms and b.terms:
        return None
    return b.scaled(a.constant) if not a.terms else a.scaled(b.constant)


def _atom(function: str, x: UOp, divisor: int) -> Linear:
    op = Ops.MOD if function == "%" else Ops.FLOORDIV
    return Linear({x.alu(op, UOp.const(dtypes.index, divisor)): 1}, 0)
