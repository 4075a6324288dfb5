"""Right sides and conditions of a rule, compiled to closures over the environment of a match.

Owns: the value of each expression (None: nothing is known, and then no condition holds), the two
kinds of computed constants, construction of nodes. Does not own: binding of names (match.py), the
functions themselves (functions.py), facts (facts.py).
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import isfinite, isinf, isnan
from typing import Any

from proofgrad.core.ir.dtypes import DType, as_constant, dtypes, round_float
from proofgrad.core.ir.evaluate import evaluate
from proofgrad.core.ir.op_names import CONST
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.shapes import Shape
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.functions import (
    ARG_FUNCTIONS,
    COMPUTABLE,
    NUMBER_FUNCTIONS,
    TYPE_FUNCTIONS,
    TYPE_NUMBERS,
)
from proofgrad.core.rewrite.instances import assumed, instance
from proofgrad.core.rewrite.rule import (
    Apply,
    Calc,
    Const,
    Expr,
    Fact,
    Instance,
    Lit,
    Name,
    Node,
    Num,
    Term,
    Text,
    Var,
)
from proofgrad.core.rewrite.scope import FACTS, RANGE, RANGES, Env, Scope, constant

Value = Callable[[Env], Any]
Builder = Callable[[Env, Shape], UOp]


class DoesNotFit(Exception):
    """A part of the right side cannot be made, or would say nothing new: the rule does not fire."""


# -- expressions --------------------------------------------------------------------------------


def compile_expr(expr: Expr, scope: Scope) -> Value:
    """The mathematical value of `expr`; None where it depends on an unknown bound."""
    match expr:
        case Num(value):
            exact = exact_number(value)
            return lambda env: exact
        case Text(text):
            named = Ops[text] if text in Ops.__members__ else text
            return lambda env: named
        case Name(name):
            return _compile_name(name, scope)
        case Apply(function, args):
            return _compile_apply(function, args, scope)
        case _:
            raise ValueError(f"{expr!r} is not an expression")


def _compile_name(name: str, scope: Scope) -> Value:
    slot = scope.values.get(name, scope.nodes.get(name))
    if slot is not None:
        return lambda env: exact_number(env[slot])
    get_type = scope.type_getter(name)
    return lambda env: get_type(env).scalar


def exact_number(value: Any) -> Any:
    """A float as an exact fraction, since conditions are mathematical; None if it is NaN."""
    if type(value) is not float:
        return value
    if isnan(value):
        return None
    return value if isinf(value) else Fraction(value)


def _compile_apply(function: str, args: tuple[Expr, ...], scope: Scope) -> Value:
    if function in _FACT_FUNCTIONS:
        return _FACT_FUNCTIONS[function](args, scope)
    values = [compile_expr(arg, scope) for arg in args]
    match function:
        case "and":
            return lambda env: _all_of([value(env) for value in values])
        case "or":
            return lambda env: _any_of([value(env) for value in values])
    found = NUMBER_FUNCTIONS.get(function) or TYPE_FUNCTIONS.get(function)
    found = found or ARG_FUNCTIONS.get(function) or TYPE_NUMBERS.get(function)
    if found is None:
        raise ValueError(f"unknown function {function!r}")
    if len(args) == 2 and isinstance(args[0], Num) != isinstance(args[1], Num):
        return _strict_with_number(found, args, values)
    return _strict(found, values)


def _strict_with_number(
    function: Callable[..., Any], args: tuple[Expr, ...], values: list[Value]
) -> Value:
    """As `_strict`, where one of two values is a number written in the rule."""
    if isinstance(args[0], Num):
        fixed, value = values[0]([]), values[1]

        def apply_second(env: Env) -> Any:
            known = value(env)
            return None if known is None else function(fixed, known)

        return apply_second
    value, last = values[0], values[1]([])

    def apply_first(env: Env) -> Any:
        known = value(env)
        return None if known is None else function(known, last)

    return apply_first


def _strict(function: Callable[..., Any], values: list[Value]) -> Value:
    """`function` of the values; None if any of them is None."""
    if len(values) == 2:
        first, second = values

        def apply_two(env: Env) -> Any:
            a = first(env)
            if a is None:
                return None
            b = second(env)
            return None if b is None else function(a, b)

        return apply_two

    def apply_all(env: Env) -> Any:
        known = [value(env) for value in values]
        return None if any([value is None for value in known]) else function(*known)

    return apply_all


def _all_of(values: list[Any]) -> bool | None:
    if any([value is not None and not value for value in values]):
        return False
    return None if None in values else True


def _any_of(values: list[Any]) -> bool | None:
    if any([value is not None and bool(value) for value in values]):
        return True
    return None if None in values else False


# -- facts --------------------------------------------------------------------------------------


def _bound(side: str) -> Callable[[tuple[Expr, ...], Scope], Value]:
    end = 0 if side == "lo" else 1

    def compile_bound(args: tuple[Expr, ...], scope: Scope) -> Value:
        slot = _slot_of(args[0], scope)
        if slot is not None:
            return lambda env: env[FACTS].interval(env[slot])[end]
        node = _fact_node(args[0], scope)
        return lambda env: env[FACTS].interval(node(env))[end]

    return compile_bound


def _bits(position: int) -> Callable[[tuple[Expr, ...], Scope], Value]:
    def compile_bits(args: tuple[Expr, ...], scope: Scope) -> Value:
        node = _fact_node(args[0], scope)
        return lambda env: env[FACTS].bits(node(env))[position]

    return compile_bits


def _divisor(args: tuple[Expr, ...], scope: Scope) -> Value:
    node = _fact_node(args[0], scope)
    return lambda env: env[FACTS].divisor(node(env))


def _finite(args: tuple[Expr, ...], scope: Scope) -> Value:
    node = _fact_node(args[0], scope)
    return lambda env: env[FACTS].finite(node(env))


def _not_nan(args: tuple[Expr, ...], scope: Scope) -> Value:
    node = _fact_node(args[0], scope)
    return lambda env: env[FACTS].not_nan(node(env))


def _independent(args: tuple[Expr, ...], scope: Scope) -> Value:
    node, ranges = _fact_node(args[0], scope), _fact_node(args[1], scope)
    if _is_one_range(args[1]):
        return lambda env: env[FACTS].independent(node(env), (ranges(env),))
    return lambda env: env[FACTS].independent(node(env), ranges(env))


def _is_one_range(expr: Expr) -> bool:
    return isinstance(expr, Fact) and isinstance(expr.term, Var) and expr.term.type == RANGE


def _count(args: tuple[Expr, ...], scope: Scope) -> Value:
    node = _fact_node(args[0], scope)

    def count(env: Env) -> int | None:
        size: UOp = node(env).src[0]
        return size.arg if size.op is CONST else None

    return count


def _loop_free(args: tuple[Expr, ...], scope: Scope) -> Value:
    node = _fact_node(args[0], scope)
    return lambda env: env[FACTS].loop_free(node(env))


def _shape(args: tuple[Expr, ...], scope: Scope) -> Value:
    node = _fact_node(args[0], scope)
    return lambda env: node(env).shape


def _fact_node(expr: Expr, scope: Scope) -> Value:
    """The node (or the tuple of ranges) that a fact is about."""
    slot = _slot_of(expr, scope)
    if slot is not None:
        return lambda env: env[slot]
    if not isinstance(expr, Fact):
        raise ValueError(f"a fact is about a term, not {expr!r}")
    build = compile_term(expr.term, scope)
    return lambda env: build(env, ())


def _slot_of(expr: Expr, scope: Scope) -> int | None:
    """Where the node is that a fact is about, if the rule names it."""
    term = expr.term if isinstance(expr, Fact) else expr
    return scope.nodes[term.name] if isinstance(term, Name | Var | Const) else None


_FACT_FUNCTIONS: dict[str, Callable[[tuple[Expr, ...], Scope], Value]] = {
    "lo": _bound("lo"),
    "hi": _bound("hi"),
    "ones": _bits(0),
    "may": _bits(1),
    "divisor": _divisor,
    "finite": _finite,
    "not_nan": _not_nan,
    "independent": _independent,
    "count": _count,
    "loop_free": _loop_free,
    "shape": _shape,
}


# -- terms --------------------------------------------------------------------------------------


def compile_term(term: Term, scope: Scope) -> Builder:
    """A function that builds `term`; constants get the shape it is called with."""
    match term:
        case Var(name, _) | Const(name, _):
            slot = scope.nodes[name]
            return lambda env, shape: env[slot]
        case Lit(value, type_name):
            get_type = scope.type_getter(type_name)
            return lambda env, shape: _fitting(get_type(env), value, shape)
        case Calc():
            return _compile_calc(term, scope)
        case Instance():
            return _compile_instance(term, scope)
        case Node():
            return _compile_node(term, scope)


def _compile_instance(term: Instance, scope: Scope) -> Builder:
    body, counter = scope.nodes[term.name], scope.nodes[term.counter]
    value, is_truth = compile_term(term.value, scope), term.value.type == dtypes.bool.name

    def build_instance(env: Env, shape: Shape) -> UOp:
        if is_truth:
            changed = assumed(env[body], env[counter], value(env, shape), env[FACTS])
            if changed is env[body]:
                raise DoesNotFit  # nothing is known that was not
            return changed
        found = instance(env[body], env[counter], value(env, ()), env[FACTS])
        if found is None:
            raise DoesNotFit
        return found

    return build_instance


def _fitting(dtype: DType, value: Any, shape: Shape) -> UOp:
    try:
        return constant(dtype, value, shape)
    except OverflowError:
        raise DoesNotFit from None


def _compile_node(term: Node, scope: Scope) -> Builder:
    op, get_type = Ops[term.op], scope.type_getter(term.type)
    get_arg = (lambda env: None) if term.arg is None else compile_expr(term.arg, scope)
    if isinstance(term.src[-1], Var) and term.src[-1].type == RANGES:
        return _compile_reduction(term, op, get_type, get_arg, scope)
    builders = [compile_term(source, scope) for source in term.src]
    if op not in ELEMENTWISE:
        return lambda env, shape: UOp(
            op, get_type(env), tuple([build(env, ()) for build in builders]), get_arg(env)
        )
    shaped = _first_shaped(term)
    if shaped is None:
        return lambda env, shape: UOp(
            op, get_type(env), tuple([build(env, shape) for build in builders]), get_arg(env)
        )

    def build_elementwise(env: Env, shape: Shape) -> UOp:
        first = builders[shaped](env, shape)
        src = [b(env, first.shape) if k != shaped else first for k, b in enumerate(builders)]
        return UOp(op, get_type(env), tuple(src), get_arg(env))

    return build_elementwise


def _first_shaped(term: Node) -> int | None:
    """The source whose shape a constant beside it must take; None if no constant needs it."""
    if not any([isinstance(source, Lit | Calc) for source in term.src]):
        return None
    others = [k for k, source in enumerate(term.src) if not isinstance(source, Lit | Calc)]
    return others[0] if others else None


def _compile_reduction(
    term: Node, op: Ops, get_type: Callable[[Env], DType], get_arg: Value, scope: Scope
) -> Builder:
    """A REDUCE: its last source is the variable of all its ranges."""
    body, ranges = compile_term(term.src[0], scope), compile_term(term.src[1], scope)

    def build_reduction(env: Env, _: Shape) -> UOp:
        src = (body(env, ()), *ranges(env, ()))  # type: ignore[misc]
        return UOp(op, get_type(env), src, get_arg(env))

    return build_reduction


# -- computed constants -------------------------------------------------------------------------


def _compile_calc(term: Calc, scope: Scope) -> Builder:
    get_type = scope.type_getter(term.type)
    if term.mode == "wrap":
        compute = _compile_wrapped(term.computed, scope)

        def build_wrapped(env: Env, shape: Shape) -> UOp:
            return constant(get_type(env), compute(env), shape)

        return build_wrapped
    value = compile_expr(term.number, scope)

    def build_exact(env: Env, shape: Shape) -> UOp:
        dtype = get_type(env)
        return _fitting(dtype, _exactly(value(env), dtype), shape)

    return build_exact


def _exactly(value: Any, dtype: DType) -> Any:
    """`value` if it is exactly a value of `dtype`. Raises: DoesNotFit."""
    if value is None or (dtype.is_bool and not isinstance(value, bool)):
        raise DoesNotFit
    if isinstance(value, float) and not isfinite(value):
        raise DoesNotFit
    if dtype.is_bool:
        return value
    try:
        nearest = round_float(float(value), dtype.scalar) if dtype.is_float else int(value)
    except OverflowError:
        raise DoesNotFit from None
    if nearest != value:
        raise DoesNotFit
    return nearest


def _compile_wrapped(term: Term, scope: Scope) -> Value:
    """The value of a term over constants, each operation done at the type that it says."""
    match term:
        case Const(name, _):
            slot = scope.values[name]
            return lambda env: env[slot]
        case Lit(value, type_name):
            get_type = scope.type_getter(type_name)
            return lambda env: _literal(value, get_type(env).scalar)
        case Calc(_, type_name, "exact"):
            exact, get_type = compile_expr(term.number, scope), scope.type_getter(type_name)
            return lambda env: _exactly(exact(env), get_type(env).scalar)
        case Node(op_name, src, type_name) if Ops[op_name] in COMPUTABLE:
            return _compile_computed(Ops[op_name], src, type_name, scope)
        case _:
            raise ValueError(f"{term!r} is no term over constants")


def _compile_computed(op: Ops, src: tuple[Term, ...], type_name: str, scope: Scope) -> Value:
    values = [_compile_wrapped(source, scope) for source in src]
    get_type = scope.type_getter(type_name)
    source_types = [scope.type_getter(source.type) for source in src]

    def compute(env: Env) -> Any:
        known = [value(env) for value in values]
        return evaluate(
            op, get_type(env).scalar, known, [source(env).scalar for source in source_types]
        )

    return compute


def _literal(value: Any, dtype: DType) -> Any:
    """A literal as a value of `dtype`. Raises: DoesNotFit."""
    try:
        return as_constant(value, dtype)
    except OverflowError:
        raise DoesNotFit from None
