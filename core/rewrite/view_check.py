"""Views in use: the names that a search gives are bound only if its contract holds here and now.

Owns: compiling a view of a rule, the check of a contract by comparing linear forms. Does not own:
contracts (views.py), searches (searches.py), linear forms (linear.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.linear import Linear, number
from proofgrad.core.rewrite.rule import Apply, Calc, Const, Expr, Lit, Name, Node, Num, Var, View
from proofgrad.core.rewrite.scope import FACTS, Env, Scope
from proofgrad.core.rewrite.searches import SEARCHES
from proofgrad.core.rewrite.terms import compile_expr, compile_term
from proofgrad.core.rewrite.views import CONTRACTS, TERM, Contract

if TYPE_CHECKING:
    from proofgrad.core.rewrite.facts import Facts

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

    def find(given: tuple[Any, ...], facts: Facts) -> tuple[Any, ...] | None:
        """Outputs that keep the contract."""
        if None in given or not _about_index_terms(given):
            return None
        found = search(*given, facts)
        if found is None or not holds(contract, dict(zip(names, (*given, *found))), facts):
            return None
        return found

    def use(env: Env) -> bool:
        given = tuple([read(env) for read in inputs])
        known = env[FACTS].view_results(search)
        if given in known:
            found = known[given]
        else:
            found = known[given] = find(given, env[FACTS])
        if found is None:
            return False
        for slot, value in zip(slots, found):
            env[slot] = value
        return True

    return use


def _about_index_terms(values: tuple[Any, ...]) -> bool:
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


def holds(contract: Contract, values: dict[str, Any], facts: Facts) -> bool:
    """Whether every claim is an identity of linear forms."""
    forms = _Forms(values, facts)
    for claim in contract.claims:
        left, right = [forms.of(side) for side in claim.args]
        if left is None or right is None:
            return False
        if left.constant != right.constant or left.terms != right.terms:
            return False
    return True


class _Forms:
    """Linear forms of the sides of claims over named values."""

    def __init__(self, values: dict[str, Any], facts: Facts) -> None:
        self._values = values
        self._facts = facts

    def of(self, expr: Expr) -> Linear | None:
        if type(expr) is Name:
            value = self._values[expr.name]
            return self._facts.form(value) if isinstance(value, UOp) else number(value)
        if type(expr) is Num:
            return number(int(expr.value))
        if type(expr) is not Apply:
            raise ValueError(f"no linear form of {expr!r}")
        function, (first, second) = expr.function, expr.args
        a, b = self.of(first), self.of(second)
        if a is None or b is None:
            return None
        if function == "+":
            return a.plus(b)
        if function == "*":
            return _product(a, b)
        if function in ("%", "//") and type(first) is Name:
            if b.terms:
                return None
            if function == "//" and b.constant == 1:
                return a
            return _atom(function, self._values[first.name], b.constant)
        raise ValueError(f"no linear form of {expr!r}")


def _product(a: Linear, b: Linear) -> Linear | None:
    if a.terms and b.terms:
        return None
    return b.scaled(a.constant) if not a.terms else a.scaled(b.constant)


def _atom(function: str, x: UOp, divisor: int) -> Linear:
    op = Ops.MOD if function == "%" else Ops.FLOORDIV
    return Linear({x.alu(op, UOp.const(dtypes.index, divisor)): 1}, 0)
