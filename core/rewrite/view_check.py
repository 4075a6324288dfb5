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
Form = Callable[[dict[str, Any], "Facts"], "Linear | None"]
Claims = tuple[tuple[Form, Form], ...]


def compile_view(view: View, scope: Scope) -> ViewUse:
    """A function that binds the outputs of `view`, and says whether its contract holds."""
    contract, search = CONTRACTS[view.function], SEARCHES[view.function]
    inputs = [
        _term_input(given, scope) if sort == TERM else _number_input(given, scope)
        for given, (_, sort) in zip(view.inputs, contract.inputs, strict=True)
    ]
    slots = _output_slots(view, contract, scope)
    names = [name for name, _ in (*contract.inputs, *contract.outputs)]
    claims = _compiled_claims(contract)

    def find(given: tuple[Any, ...], facts: Facts) -> tuple[Any, ...] | None:
        """Outputs that keep the contract."""
        if None in given or not _about_index_terms(given):
            return None
        found = search(*given, facts)
        if found is None or not _all_hold(claims, dict(zip(names, (*given, *found))), facts):
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
    return _all_hold(_compiled_claims(contract), values, facts)


def _all_hold(claims: Claims, values: dict[str, Any], facts: Facts) -> bool:
    for left_side, right_side in claims:
        left, right = left_side(values, facts), right_side(values, facts)
        if left is None or right is None:
            return False
        if left.constant != right.constant or left.terms != right.terms:
            return False
    return True


def _compiled_claims(contract: Contract) -> Claims:
    """Both sides of each claim as functions of the named values."""
    sides = [[_form(side) for side in claim.args] for claim in contract.claims]
    return tuple([(left, right) for left, right in sides])


def _form(expr: Expr) -> Form:
    """A function that gives the linear form of `expr`, None if it has none."""
    match expr:
        case Num(value):
            fixed = number(int(value))
            return lambda values, facts: fixed
        case Name(name):
            return lambda values, facts: _form_of_value(values[name], facts)
        case Apply("+", (a, b)):
            return _of_two(Linear.plus, _form(a), _form(b))
        case Apply("*", (a, b)):
            return _of_two(_product, _form(a), _form(b))
        case Apply("%" | "//" as function, (Name(name), divisor)):
            return _divided(function, name, _form(divisor))
        case _:
            raise ValueError(f"no linear form of {expr!r}")


def _form_of_value(value: Any, facts: Facts) -> Linear | None:
    return facts.form(value) if isinstance(value, UOp) else number(value)


def _of_two(function: Callable[[Linear, Linear], Linear | None], first: Form, second: Form) -> Form:
    def combine(values: dict[str, Any], facts: Facts) -> Linear | None:
        a, b = first(values, facts), second(values, facts)
        return None if a is None or b is None else function(a, b)

    return combine


def _divided(function: str, name: str, divisor: Form) -> Form:
    """`x % c` and `x // c` are atoms, but for x // 1, which is x."""
    op = Ops.MOD if function == "%" else Ops.FLOORDIV

    def atom(values: dict[str, Any], facts: Facts) -> Linear | None:
        by = divisor(values, facts)
        if by is None or by.terms:
            return None
        if op is Ops.FLOORDIV and by.constant == 1:
            return facts.form(values[name])
        return Linear({UOp(op, dtypes.index, (values[name], UOp.index(by.constant))): 1}, 0)

    return atom


def _product(a: Linear, b: Linear) -> Linear | None:
    if a.terms and b.terms:
        return None
    return b.scaled(a.constant) if not a.terms else a.scaled(b.constant)
