"""Sorts: what each name, number, function and arg of a rule is, checked in one place.

Owns: the sort of every expression, which operands, args and conditions fit together. A rule that does
not pass has no meaning: the parser refuses it with its position, the prover asks nothing of it. So the
encoder, the sampler, the engine and the printer read each part of a rule as the same thing. Does not
own: the inference of types (verify/dsl/types.py), values.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from proofgrad.core.ir.dtypes import Kind
from proofgrad.core.ir.ops import COMPARE, ELEMENTWISE, Ops
from proofgrad.core.rewrite.extractors import CONTRACTS, NUMBER
from proofgrad.core.rewrite.functions import COMPUTABLE, TYPE_CLASSES, TYPE_FUNCTIONS
from proofgrad.core.rewrite.rule import (
    NUMBER_KINDS,
    Apply,
    Calc,
    Const,
    Expr,
    Extractor,
    Fact,
    Instance,
    Lit,
    Name,
    Node,
    Num,
    Rule,
    Term,
    Text,
    Var,
)
from proofgrad.core.rewrite.scope import RANGE, RANGES, types_of_class


class Sort(enum.Enum):
    """What an expression stands for; the values are for messages."""

    INTEGER = "an integer"
    REAL = "a number that may be a fraction or infinite"
    TRUTH = "a truth"
    TYPE = "a type"
    OPERATION = "the operation of a reduction"
    SHAPE = "a shape"
    AXES = "a set of axes"
    PERMUTATION = "a permutation of axes"
    PADS = "the widths of padding"
    ENDS = "the ends of a shrink"
    FLIPS = "flips of axes"
    SKEW = "the arg of a skew"
    DEVICE = "a device"


_NUMBERS = frozenset({Sort.INTEGER, Sort.REAL})
_ANY_ARG = frozenset(Sort) - _NUMBERS - {Sort.TRUTH, Sort.TYPE}


class IllSorted(ValueError):
    """A part of a rule where something else is wanted. Fields: part, reason."""

    def __init__(self, part: Term | Expr, reason: str) -> None:
        self.part = part
        self.reason = reason
        super().__init__(reason)


ARG_SORTS: dict[str, Sort] = {
    "RESHAPE": Sort.SHAPE,
    "EXPAND": Sort.SHAPE,
    "PERMUTE": Sort.PERMUTATION,
    "PAD": Sort.PADS,
    "SHRINK": Sort.ENDS,
    "FLIP": Sort.FLIPS,
    "SKEW": Sort.SKEW,
    "COPY": Sort.DEVICE,
    "REDUCE": Sort.OPERATION,
}

_I, _T = Sort.INTEGER, Sort.TRUTH
# Functions whose arguments and value have one sort each.
SIGNATURES: dict[str, tuple[tuple[Sort, ...], Sort]] = {
    **{name: ((_I, _I), _I) for name in ("//", "%", "gcd", "&", "|", "^", "<<", ">>", "without")},
    **{name: ((_I,), _I) for name in ("log2_exact", "fill")},
    "divides": ((_I, _I), _T),
    "is_power_of_two": ((_I,), _T),
    "and": ((_T, _T), _T),
    "or": ((_T, _T), _T),
    "not": ((_T,), _T),
    "wrapped": ((_I, Sort.TYPE), _I),
    **{name: ((Sort.TYPE,), _I) for name in ("least", "largest", "bits", "modulus")},
    **{name: ((Sort.TYPE, Sort.TYPE), _T) for name in TYPE_FUNCTIONS},
    "compose": ((Sort.PERMUTATION, Sort.PERMUTATION), Sort.PERMUTATION),
    "inverse": ((Sort.PERMUTATION,), Sort.PERMUTATION),
    "is_identity": ((Sort.PERMUTATION,), _T),
    "add_pads": ((Sort.PADS, Sort.PADS), Sort.PADS),
    "is_zero_pad": ((Sort.PADS,), _T),
    "pads_to_shrinks": ((Sort.PADS, Sort.SHAPE), Sort.ENDS),
    "chain_shrinks": ((Sort.ENDS, Sort.ENDS), Sort.ENDS),
    "is_full_shrink": ((Sort.ENDS, Sort.SHAPE), _T),
    "shrinks_to_pads": ((Sort.ENDS, Sort.SHAPE), Sort.PADS),
    "xor_flips": ((Sort.FLIPS, Sort.FLIPS), Sort.FLIPS),
    "is_no_flip": ((Sort.FLIPS,), _T),
    "skew_back": ((Sort.SKEW, Sort.SHAPE), Sort.SKEW),
    "expanded_axes": ((Sort.SHAPE, Sort.SHAPE), Sort.AXES),
    "is_empty": ((Sort.AXES,), _T),
    "union": ((Sort.AXES, Sort.AXES), Sort.AXES),
    "disjoint": ((Sort.AXES, Sort.AXES), _T),
}
# Functions of numbers whose value is an integer if all arguments are, and of numbers to a truth.
ARITHMETIC = {"+": 2, "-": 2, "*": 2, "min": 2, "max": 2, "neg": 1, "abs": 1}
ORDER = ("<", "<=", ">", ">=")
EQUALITY = ("==", "!=")
# Facts about a term: what the term's type must be of, and the sort of the fact.
_WORDS = frozenset({Kind.SIGNED, Kind.UNSIGNED})
_WHOLE = _WORDS | {Kind.INDEX}
_FACTS: dict[str, tuple[frozenset[Kind], Sort]] = {
    "ones": (_WORDS, _I),
    "may": (_WORDS, _I),
    "divisor": (_WHOLE, _I),
    "finite": (frozenset({Kind.FLOAT}), _T),
    "not_nan": (frozenset({Kind.FLOAT}), _T),
    "loop_free": (frozenset(Kind), _T),
    "shape": (frozenset(Kind), Sort.SHAPE),
}


def check_sorts(rule: Rule) -> None:
    """Check every part of a rule. Raises: IllSorted."""
    checker = _Checker(rule)
    checker.bind(rule.left)
    for extractor in rule.extractors:
        checker.extractor(extractor)
    for right in rule.right:
        if right is None:
            continue
        if rule.kind in NUMBER_KINDS and isinstance(right, Calc):
            checker.want(right.number, _NUMBERS)
        else:
            checker.term(right)
    for condition in (*rule.where, *rule.when):
        checker.want(condition, {Sort.TRUTH})


@dataclass(frozen=True, slots=True)
class _Types:
    """The types that the names of types stand for in one rule."""

    rule: Rule

    def kinds(self, name: str) -> frozenset[Kind]:
        """The kinds of every type that `name` may stand for."""
        kind = dict(self.rule.types).get(name, name)
        if kind not in TYPE_CLASSES and kind != "domain":
            raise ValueError(f"{name!r} is no type")
        return frozenset([dtype.kind for dtype in types_of_class(self.rule, kind)])


class _Checker:
    """The names of one rule and their sorts."""

    def __init__(self, rule: Rule) -> None:
        self._types = _Types(rule)
        self._type_names = {name for name, _ in rule.types}
        self.args: dict[str, Sort] = {}
        self._numbers: dict[str, Sort] = {}
        self._terms: dict[str, str] = {"g": ""}  # the type of each; g is the cotangent

    # -- the left side, which binds -------------------------------------------------------------

    def bind(self, term: Term) -> None:
        """Bind the names of the left side, and check it."""
        match term:
            case Var(name, kind):
                self._named(term, name, kind)
            case Const(name, kind):
                self._named(term, name, kind)
                self._numbers[name] = self._sort_of_type(kind)
            case Lit():
                pass
            case Node(_, src, _, arg):
                for source in src:
                    self.bind(source)
                if arg is not None:
                    self._bind_arg(term, arg)
                self._operation(term)
            case _:
                raise IllSorted(term, "this cannot stand on a left side")

    def _named(self, term: Term, name: str, kind: str) -> None:
        known = self._terms.setdefault(name, kind)
        if (known, kind) == ("index", RANGE):
            raise IllSorted(
                Var(name, known),
                f"{name!r} is a loop of the reduction, and stands in a term of the left side: say a truth `g` there,"
                f" and what it asks of the loop by `let (i, p, a, b, s) = solve(g, {name})` or `solve_less`",
            )
        if known not in (kind, "") and (known, kind) != (RANGE, "index"):
            raise IllSorted(term, f"{name!r} has the types {self._terms[name]} and {kind}")

    def _bind_arg(self, node: Node, arg: Expr) -> None:
        if node.op == "REDUCE_AXIS":
            if not isinstance(arg, Apply) or arg.function != "pair":
                raise IllSorted(node, "the arg of REDUCE_AXIS is a pair of operation and axes")
            for part, sort in zip(arg.args, (Sort.OPERATION, Sort.AXES), strict=True):
                self._bind_part(part, sort)
        else:
            self._bind_part(arg, _arg_sort(node))

    def _bind_part(self, part: Expr, sort: Sort) -> None:
        if isinstance(part, Name):
            known = self.args.setdefault(part.name, sort)
            if known is not sort:
                raise IllSorted(
                    part, f"{part.name!r} is {known.value}, and cannot be {sort.value} too"
                )
        else:
            self.want(part, {sort})

    # -- terms ----------------------------------------------------------------------------------

    def term(self, term: Term) -> None:
        """Check a term whose names are bound."""
        match term:
            case Var(name, kind) | Const(name, kind):
                if name not in self._terms:
                    raise IllSorted(term, f"{name!r} is not bound")
                self._named(term, name, kind)
            case Lit():
                pass
            case Calc(_, kind, "wrap"):
                self._computed(term, term.computed)
                if term.computed.type != kind:
                    raise IllSorted(term, f"a constant of {term.computed.type} as {kind}")
            case Calc(_, kind, _):
                is_bool = self._types.kinds(kind) == {Kind.BOOL}
                self.want(term.number, {Sort.TRUTH} if is_bool else _NUMBERS)
            case Instance():
                self._instance(term)
            case Node(_, src, _, arg):
                for source in src:
                    self.term(source)
                if arg is not None:
                    self._arg(term, arg)
                self._operation(term)

    def _computed(self, calc: Calc, value: Term) -> None:
        """A term over constants, of operations that give the same everywhere."""
        match value:
            case Const() | Lit() | Calc(_, _, "exact"):
                self.term(value)
            case Node(op, src, _, None) if Ops[op] in COMPUTABLE:
                for source in src:
                    self._computed(calc, source)
                self._operation(value)
            case _:
                raise IllSorted(calc, "only constants and operations on them can be computed")

    def _instance(self, term: Instance) -> None:
        kind = self._terms.get(term.counter)
        if term.name not in self._terms or kind is None:
            raise IllSorted(term, f"{term.name!r} or {term.counter!r} is not bound")
        self._named(term, term.name, term.type)
        wanted = "index" if kind == RANGE else "bool"
        if kind not in (RANGE, "bool") or term.value.type != wanted:
            raise IllSorted(
                term, f"{term.counter!r} is of {kind}, and cannot be a value of {term.value.type}"
            )
        self.term(term.value)

    def _arg(self, node: Node, arg: Expr) -> None:
        if node.op != "REDUCE_AXIS":
            self.want(arg, {_arg_sort(node)})
            return
        if not isinstance(arg, Apply) or arg.function != "pair" or len(arg.args) != 2:
            raise IllSorted(node, "the arg of REDUCE_AXIS is a pair of operation and axes")
        self.want(arg.args[0], {Sort.OPERATION})
        self.want(arg.args[1], {Sort.AXES})

    def _operation(self, node: Node) -> None:
        """Operands of an elementwise operation are of one type, and so is its value."""
        op, types = Ops[node.op], [source.type for source in node.src]
        if (node.op in ARG_SORTS or node.op == "REDUCE_AXIS") != (node.arg is not None):
            raise IllSorted(node, f"{node.op} {'has an' if node.arg is None else 'takes no'} arg")
        if op in (Ops.CAST, Ops.BITCAST) or op not in ELEMENTWISE:
            return
        operands = types[1:] if op is Ops.WHERE else types
        expected = "bool" if op in COMPARE else operands[0]
        if op is Ops.WHERE and types[0] != "bool":
            raise IllSorted(node, f"the condition of a WHERE is a bool, not {types[0]}")
        if len(set(operands)) > 1 or node.type != expected:
            raise IllSorted(node, f"{node.op} of {', '.join(types)} as {node.type}")

    # -- extractors ----------------------------------------------------------------------------------

    def extractor(self, extractor: Extractor) -> None:
        """Check the inputs, bind the outputs."""
        contract = CONTRACTS[extractor.function]
        for (_, sort), given in zip(contract.inputs, extractor.inputs, strict=True):
            if isinstance(given, Name | Num | Apply | Fact | Text):
                self.want(given, {Sort.INTEGER})
            elif sort == NUMBER:
                raise IllSorted(given, f"{extractor.function} takes a number here")
            else:
                self.term(given)
        for name, sort in extractor.outputs:
            if sort == NUMBER:
                self._numbers[name] = Sort.INTEGER
            else:
                self._terms[name] = ""  # index or bool, as the contract says

    # -- expressions ----------------------------------------------------------------------------

    def want(self, expr: Term | Expr, wanted: frozenset[Sort] | set[Sort]) -> Sort:
        """The sort of an expression. Raises: IllSorted if it is none of `wanted`."""
        found = self.sort(expr)
        if found not in wanted:
            texts = " or ".join(sorted([sort.value for sort in wanted]))
            raise IllSorted(expr, f"this is {found.value}; {texts} is wanted here")
        return found

    def sort(self, expr: Term | Expr) -> Sort:
        """The sort of an expression. Raises: IllSorted."""
        match expr:
            case Num(value):
                if isinstance(value, bool):
                    return Sort.TRUTH
                return Sort.INTEGER if isinstance(value, int) else Sort.REAL
            case Text():
                return Sort.OPERATION
            case Name(name):
                return self._sort_of_name(expr, name)
            case Apply(function, args):
                return self._applied(expr, function, args)
            case _:
                raise IllSorted(expr, "this is a term; a number, an arg or a truth is wanted here")

    def _sort_of_name(self, expr: Name, name: str) -> Sort:
        for known in (self.args, self._numbers):
            if name in known:
                return known[name]
        if name in self._type_names or name not in self._terms:
            return Sort.TYPE
        raise IllSorted(expr, f"{name!r} is a variable for terms, not a number")

    def _sort_of_type(self, kind: str) -> Sort:
        """The sort of a number of a type; a bool among numbers is 0 or 1."""
        kinds = self._types.kinds(kind)
        if kinds == {Kind.BOOL}:
            return Sort.TRUTH
        return Sort.INTEGER if kinds <= _WHOLE | {Kind.BOOL} else Sort.REAL

    def _applied(self, expr: Apply, function: str, args: tuple[Expr, ...]) -> Sort:
        if function in SIGNATURES:
            wanted, value = SIGNATURES[function]
            _check_count(expr, len(wanted))
            for arg, sort in zip(args, wanted):
                self.want(arg, {sort})
            return value
        if function in ARITHMETIC or function in ORDER:
            _check_count(expr, ARITHMETIC.get(function, 2))
            found = {self.want(arg, _NUMBERS) for arg in args}
            if function in ORDER:
                return Sort.TRUTH
            return Sort.INTEGER if found == {Sort.INTEGER} else Sort.REAL
        if function in EQUALITY:
            _check_count(expr, 2)
            return self._equality(expr)
        return self._fact(expr, function, args)

    def _equality(self, expr: Apply) -> Sort:
        first, second = [self.want(arg, _NUMBERS | _ANY_ARG | {Sort.TRUTH}) for arg in expr.args]
        if first is not second and not {first, second} <= _NUMBERS:
            raise IllSorted(expr, f"{first.value} is compared with {second.value}")
        return Sort.TRUTH

    def _fact(self, expr: Apply, function: str, args: tuple[Expr, ...]) -> Sort:
        about = args[0].term if args and isinstance(args[0], Fact) else None
        if function in ("independent", "count"):
            return self._fact_of_ranges(expr, function, about)
        if about is None or function not in (*_FACTS, "lo", "hi"):
            raise IllSorted(expr, f"{function} is no function of such arguments")
        self._fact_term(about)
        if function in ("lo", "hi"):
            kinds = self._types.kinds(about.type)
            return Sort.REAL if kinds & {Kind.FLOAT, Kind.CODE} else Sort.INTEGER
        kinds, sort = _FACTS[function]
        others = self._types.kinds(about.type) - kinds
        if others:
            names = " and ".join(sorted([kind.value for kind in others]))
            raise IllSorted(expr, f"{function} has no meaning on types of the kinds {names}")
        return sort

    def _fact_of_ranges(self, expr: Apply, function: str, about: Term | None) -> Sort:
        last = expr.args[-1].term if isinstance(expr.args[-1], Fact) else None
        if not isinstance(last, Var) or last.type not in (RANGE, RANGES):
            raise IllSorted(expr, f"{function} is about the loops of a reduction")
        if function == "count":
            return Sort.INTEGER
        if about is None or len(expr.args) != 2:
            raise IllSorted(expr, "independent takes a term and the loops of a reduction")
        self._fact_term(about)
        return Sort.TRUTH

    def _fact_term(self, term: Term) -> None:
        if not isinstance(term, Var | Const) or self._terms.get(term.name) != "":
            self.term(term)


def _arg_sort(node: Node) -> Sort:
    if node.op not in ARG_SORTS:
        raise IllSorted(node, f"{node.op} takes no arg")
    return ARG_SORTS[node.op]


def _check_count(expr: Apply, wanted: int) -> None:
    if len(expr.args) != wanted:
        raise IllSorted(expr, f"{expr.function} takes {wanted} arguments, not {len(expr.args)}")
