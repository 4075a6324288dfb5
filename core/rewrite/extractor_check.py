"""Extractors in use: the names that a search gives are bound only if its contract holds here and now.

Owns: the check of a contract, which is Python made from the contract's data; memory of what a
search found; extractors of rules that match terms. Does not own: contracts (extractors.py), searches
(searches.py), sums (sums.py).
"""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import cache
from typing import Any

from proofgrad.core.ir.op_names import FLOORDIV
from proofgrad.core.ir.ops import Ops
from proofgrad.core.rewrite.extractors import (
    CONTRACTS,
    IMPLIED,
    NARROW,
    NARROW_TRUTH,
    NUMBER,
    TERM,
    TRUTH,
    Contract,
)
from proofgrad.core.rewrite.masks import is_about_truth, solution
from proofgrad.core.rewrite.rule import (
    Apply,
    Calc,
    Const,
    Expr,
    Extractor,
    Lit,
    Name,
    Node,
    Num,
    Var,
)
from proofgrad.core.rewrite.scope import FACTS, Env, Scope
from proofgrad.core.rewrite.searches import SEARCHES
from proofgrad.core.rewrite.sum_order import goes_down
from proofgrad.core.rewrite.sums import Atom, Forms, Sum
from proofgrad.core.rewrite.terms import compile_expr, compile_term

ExtractorUse = Callable[[Env], bool]
Check = Callable[..., bool]
CheckedSearch = Callable[..., "tuple[Any, ...] | None"]
DIVISIONS = {"//": Ops.FLOORDIV, "%": Ops.MOD}
NARROWING = frozenset({NARROW, NARROW_TRUTH, IMPLIED})


_NEW: Any = object()  # stands for inputs that were not searched yet


class Extractors:
    """Searches that are checked, with memory: what was found for the same inputs."""

    def __init__(self, forms: Forms) -> None:
        self._forms = forms
        self._memory: dict[str, dict[tuple[Any, ...], tuple[Any, ...] | None]] = {}

    def check(self, name: str) -> Check:
        """The check of the equations of a contract."""
        return check_of(name)

    def use(self, name: str) -> CheckedSearch:
        """A function of the inputs that gives the outputs, None where the contract does not hold."""
        memory = self._memory.get(name)
        if memory is None:
            memory = self._memory[name] = {}
        forms, search, check = self._forms, SEARCHES[name], check_of(name)

        def checked(*given: Any) -> tuple[Any, ...] | None:
            found: tuple[Any, ...] | None = memory.get(given, _NEW)
            if found is not _NEW:
                return found
            found = search(*given, forms)
            if found is not None and not check(forms, *given, *found):
                found = None
            memory[given] = found
            return found

        return checked


# -- contracts -----------------------------------------------------------------------------------


@cache
def check_of(extractor: str) -> Check:
    """Whether every claim of the contract of `extractor` is an identity of sums: (forms, names...)."""
    namespace: dict[str, Any] = {"_put_divided": _put_divided, **_OPS}
    exec(compile(check_code(CONTRACTS[extractor]), f"<contract of {extractor}>", "exec"), namespace)  # noqa: S102
    check: Check = namespace["check"]
    return check


_OPS = {op.name: op for op in DIVISIONS.values()}


def check_code(contract: Contract) -> str:
    """The check as Python: each side of a claim is taken apart into number * sum.

    Names of the contract stand for themselves; those of the check begin with a line.
    """
    names = [name for name, _ in (*contract.inputs, *contract.outputs)]
    if any([name.startswith("_") for name in names]):
        raise ValueError(f"names of a contract cannot begin with _: {names}")
    lines = [f"def check(_forms, {', '.join(names)}):"]
    sorts = dict((*contract.inputs, *contract.outputs))
    for claim in contract.claims:
        left, right = claim.args
        if isinstance(left, Name) and sorts[left.name] == TRUTH:
            continue  # masks.py checks what is claimed of truths
        parts = [*_parts(left, sorts), *[(f"-{k}", of) for k, of in _parts(right, sorts)]]
        if all([of is None for _, of in parts]):
            lines.append(f"    if {' + '.join([k for k, _ in parts])}: return False")
        else:
            lines += _claim_lines(parts)
    return "\n".join([*lines, "    return True\n"])


def _claim_lines(parts: list[Part]) -> list[str]:
    """The sum of all parts is 0."""
    (_, first), *others = parts
    if not isinstance(first, Name):
        raise ValueError(f"a claim begins with a term, not {first!r}")  # noqa: TRY004
    lines = [f"    _terms, _constant = {first.name}[0].copy(), {first.name}[1]"]
    for factor, of in others:
        match of:
            case None:
                lines.append(f"    _constant += {factor}")
            case Name(name):
                lines += [
                    f"    _factor = {factor}",
                    f"    for _atom, _number in {name}[0].items():",
                    "        _terms[_atom] = _terms.get(_atom, 0) + _number * _factor",
                    f"    _constant += {name}[1] * _factor",
                ]
            case Apply(function, (Name(name), divisor)):
                given = f"_forms, {DIVISIONS[function].name}, _terms, {name}, {_number(divisor)}"
                lines.append(f"    _constant += _put_divided({given}, {factor})")
    return [*lines, "    if _constant or any(_terms.values()): return False"]


Part = tuple[str, "Expr | None"]  # a number, and the sum, quotient or remainder that it multiplies


def _parts(expr: Expr, sorts: dict[str, str]) -> list[Part]:
    match expr:
        case Num(value):
            return [(f"({int(value)})", None)]
        case Name(name):
            return [("1", expr)] if sorts[name] == TERM else [(name, None)]
        case Apply("+", (a, b)):
            return [*_parts(a, sorts), *_parts(b, sorts)]
        case Apply("*", (a, b)):
            return [_product(f, g) for f in _parts(a, sorts) for g in _parts(b, sorts)]
        case Apply("//" | "%", (Name(_), _)):
            return [("1", expr)]
        case _:
            raise ValueError(f"no linear form of {expr!r}")


def _product(first: Part, second: Part) -> Part:
    (factor, of), (other_factor, other) = first, second
    if of is not None and other is not None:
        raise ValueError(f"{of!r} * {other!r} is not linear")
    return f"{factor} * {other_factor}", of if other is None else other


def _number(expr: Expr) -> str:
    match expr:
        case Num(value):
            return str(int(value))
        case Name(name):
            return name
        case Apply("*", (a, b)):
            return f"{_number(a)} * {_number(b)}"
        case _:
            raise ValueError(f"{expr!r} is no divisor")


def _put(terms: dict[Atom, int], form: Sum, factor: int) -> int:
    """Add factor * form to `terms`; what it adds to the constant."""
    for atom, coefficient in form[0].items():
        terms[atom] = terms.get(atom, 0) + coefficient * factor
    return form[1] * factor


def _put_divided(
    forms: Forms, op: Ops, terms: dict[Atom, int], form: Sum, number: int, factor: int
) -> int:
    """As `_put`, of form // number or form % number: an atom, but for x // 1, which is x."""
    if op is FLOORDIV and number == 1:
        return _put(terms, form, factor)
    atom = forms.divided(op, form, number)
    terms[atom] = terms.get(atom, 0) + factor
    return 0


# -- extractors of rules that match terms -------------------------------------------------------------


def compile_extractor(
    extractor: Extractor, scope: Scope, smaller: Container[str] = ()
) -> ExtractorUse:
    """A function that binds the outputs of `extractor`, and says whether its contract holds.

    Outputs named in `smaller` must also be smaller sums than the first input (sum_order.py).
    """
    contract = CONTRACTS[extractor.function]
    if extractor.function in NARROWING:
        return _compile_narrowing(extractor, contract, scope)
    if is_about_truth(contract):
        return _compile_extractor_of_truth(extractor, contract, scope)
    sorts = [sort for _, sort in contract.inputs]
    inputs = [
        _term_input(given, scope) if sort == TERM else _number_input(given, scope)
        for given, sort in zip(extractor.inputs, sorts, strict=True)
    ]
    slots = _output_slots(extractor, contract, scope)
    below = [
        k for k, (name, sort) in enumerate(extractor.outputs) if sort == TERM and name in smaller
    ]

    def use(env: Env) -> bool:
        forms = env[FACTS].forms
        given = []
        for read, sort in zip(inputs, sorts):
            value = read(env)
            given.append(forms.read(value) if sort == TERM else value)
        if None in given:
            return False
        found = env[FACTS].extractors.use(extractor.function)(*given)
        if found is None:
            return False
        if below and not all([goes_down(found[k], given[0]) for k in below]):
            return False
        for (slot, is_term), value in zip(slots, found):
            env[slot] = forms.written(value) if is_term else value
        return True

    return use


def _compile_extractor_of_truth(
    extractor: Extractor, contract: Contract, scope: Scope
) -> ExtractorUse:
    """As `compile_extractor`: the inputs are a truth and a range, the outputs nodes and a number."""
    mask, counter = [_term_input(given, scope) for given in extractor.inputs]
    slots = [slot for slot, _ in _output_slots(extractor, contract, scope)]

    def use(env: Env) -> bool:
        found = solution(extractor.function, mask(env), counter(env), env[FACTS])
        if found is None:
            return False
        for slot, value in zip(slots, found):
            env[slot] = value
        return True

    return use


def _compile_narrowing(extractor: Extractor, contract: Contract, scope: Scope) -> ExtractorUse:
    """As `compile_extractor`, of what is read within a mask: only where a rewriter at work can tell."""
    given, mask = [_term_input(part, scope) for part in extractor.inputs]
    ((slot, _),) = _output_slots(extractor, contract, scope)

    def use(env: Env) -> bool:
        narrowing = env[FACTS].narrowing
        if narrowing is None:
            return False
        found = narrowing.find(extractor.function, given(env), mask(env))
        if found is None:
            return False
        env[slot] = found
        return True

    return use


def _term_input(given: Any, scope: Scope) -> Callable[[Env], Any]:
    if not isinstance(given, Var | Const | Lit | Node | Calc):
        raise ValueError(f"an extractor needs a term here, not {given!r}")  # noqa: TRY004  (bad rule data)
    build = compile_term(given, scope)
    return lambda env: build(env, ())


def _number_input(given: Any, scope: Scope) -> Callable[[Env], Any]:
    return compile_expr(Name(given.name) if isinstance(given, Const) else given, scope)


def _output_slots(extractor: Extractor, contract: Contract, scope: Scope) -> list[tuple[int, bool]]:
    """One new slot an output, and whether it is a term; numbers are found as values."""
    slots = []
    for (name, _), (_, sort) in zip(extractor.outputs, contract.outputs, strict=True):
        slot = scope.new_slot()
        (scope.values if sort == NUMBER else scope.nodes)[name] = slot
        slots.append((slot, sort == TERM))
    return slots
