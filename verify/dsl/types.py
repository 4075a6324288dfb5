"""Types of the terms of one rule: inferred by unification, then written into the terms.

Owns: which operation takes which types, which types a variable may stand for, whether a literal
fits. Does not own: syntax (elaborate.py).
"""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

from proofgrad.core.ir.dtypes import DType, Kind, dtypes, round_float
from proofgrad.core.ir.ops import COMPARE, ELEMENTS, FLOATS, INTEGERS, INTS, NUMBERS, Ops
from proofgrad.core.rewrite.functions import DOMAIN_TYPES, TYPE_CLASSES
from proofgrad.verify.dsl.errors import Position, RuleError, Source, near
from proofgrad.verify.dsl.names import STRUCTURAL_DOMAINS, written

# Comparisons and choices take every type. A fact is of the types of its numbers.
OP_KINDS: dict[str, frozenset[Kind]] = {
    op.name: row.kinds for op, row in ELEMENTS.items() if op not in COMPARE | {Ops.WHERE}
} | {
    "bounds": NUMBERS | {Kind.BOOL}, "bits": INTS, "divisor": INTEGERS, "finite": FLOATS,
    "not_nan": FLOATS,
}  # fmt: skip


# What else there is, where an operation is of floats alone, or of integers.
_INSTEAD = {
    "FDIV": "it divides floats: `//` rounds down, truncdiv rounds towards zero",
    "FLOORDIV": "it divides integers: write `/`",
    "MOD": "it is of integers: write fmod, whose result has the sign of the first",
    "MAX[]": "the largest of no values is the smallest of the type, and an index has none",
    "MIN[]": "the smallest of no values is the largest of the type, and an index has none",
}
# Reductions, which of no values give the smallest or largest of the type.
_REDUCED = {f"{op}[]": OP_KINDS[op] - {Kind.INDEX} for op in ("MAX", "MIN")}
_COMPARISON_OF_BITS = re.compile(r"(<|>|==|!=)[^,()]*[&|]|[&|][^,()]*(<|>|==|!=)")


class Types:
    """The type slots of one rule. A slot is a text like "?3" until `resolve` replaces it."""

    def __init__(self, domains: tuple[str, ...], source: Source) -> None:
        self._domains = domains
        self._source = source
        self._classes: dict[str, str] = {}  # declared type variables
        self._parent: dict[str, str] = {}
        self._about: dict[str, str] = {}  # slot -> the variable that has it, for messages
        self._checks: list[tuple[str, str, Position]] = []  # (slot, op, position)
        self._casts: list[tuple[str, str, Position]] = []  # (slot, type, position)
        self._literals: list[tuple[str, Any, Position]] = []
        self._named: set[str] = set()

    # -- while elaborating -----------------------------------------------------------------------

    def declare(self, name: str, class_name: str, position: Position) -> None:
        """Make `name` a type variable of a class such as `int`. Raises: RuleError for an unknown class or the name of a type."""
        if class_name not in TYPE_CLASSES:
            raise RuleError(
                self._source,
                position,
                f"unknown class of types {class_name!r}; {near(class_name, TYPE_CLASSES)}",
            )
        if name in TYPE_CLASSES:
            raise RuleError(self._source, position, f"{name!r} is a type; choose another name")
        self._classes[name] = class_name
        self._parent[name] = name

    def fresh(self, about: str = "") -> str:
        """A new slot whose type is still open; `about`: the variable that error messages name."""
        slot = f"?{len(self._parent)}"
        self._parent[slot] = slot
        self._about[slot] = about
        return slot

    def named(self, name: str, position: Position) -> str:
        """The type variable T, a declared one, or a type's own name."""
        if name == "T" and name not in self._classes:
            self._classes["T"] = self._default_class()
        elif name not in self._classes and name not in _single_types():
            known = [*self._classes, *_single_types()]
            raise RuleError(
                self._source,
                position,
                f"unknown type {name!r}; {near(name, known)}"
                + (f"; or declare it: ({name} in int)" if name[0].isupper() else ""),
            )
        self._parent.setdefault(name, name)
        self._named.add(name)
        return name

    def literal(self, value: int | float | bool, position: Position) -> str:
        """The slot of a literal; whether `value` fits its type is checked by `finish`."""
        if isinstance(value, bool):
            return self.named("bool", position)
        slot = self.fresh(f"the literal {value}")
        self._literals.append((slot, value, position))
        return slot

    def unify(self, a: str, b: str, position: Position) -> None:
        """Raises: RuleError if both are settled and differ."""
        first, second = self._root(a), self._root(b)
        if first == second:
            return
        if not first.startswith("?") and not second.startswith("?"):
            raise RuleError(
                self._source,
                position,
                f"the types {first} and {second} meet here; they must be equal",
            )
        if first.startswith("?"):
            first, second = second, first
        self._parent[second] = first

    def is_number_against_bool(self, slot: str, bool_slot: str) -> bool:
        """Whether `slot` can only become a type of the domain, and that is never bool."""
        open_slot = self._root(slot).startswith("?") and self._root(bool_slot) == "bool"
        scalar = self._domains[0] not in (*STRUCTURAL_DOMAINS, "cast")
        return open_slot and scalar and dtypes.bool not in self._domain_types()

    def forbid_floats(self, slot: str, position: Position) -> None:
        """Let `finish` refuse the rule if `slot` may be a float: `x <= y` means `!(y < x)`, which is wrong for NaN."""
        self.takes(slot, "<=", position)

    def takes(self, slot: str, op: str, position: Position) -> None:
        """Let `finish` refuse the rule if `slot` may be of a type that the operation does not take."""
        self._checks.append((slot, op, position))

    def cast(self, slot: str, type_: str, position: Position) -> str:
        """The type of a cast; `finish` refuses what no graph has, an index made of a float."""
        self._casts.append((slot, type_, position))
        return type_

    def operation(self, op: str, sources: list[str], position: Position) -> str:
        """The type of the result; sources are unified as the operation wants."""
        match op:
            case "CMPLT" | "CMPEQ":
                self.unify(sources[0], sources[1], position)
                return self.named("bool", position)
            case "WHERE":
                self.unify(sources[0], self.named("bool", position), position)
                self.unify(sources[1], sources[2], position)
                return sources[1]
            case "INDEX":
                self.unify(sources[1], self.named("index", position), position)
                for mask in sources[2:]:
                    self.unify(mask, self.named("bool", position), position)
                return sources[0]
        for other in sources[1:]:
            self.unify(sources[0], other, position)
        self.takes(sources[0], op, position)
        return sources[0]

    # -- at the end ------------------------------------------------------------------------------

    def finish(self, root: str, position: Position) -> tuple[tuple[str, str], ...]:
        """Settle what is open, check operations and literals; the type variables of the rule."""
        self._settle(root, position)
        for slot, op, at in self._checks:
            self._check_operation(self._root(slot), op, at)
        for slot, made, at in self._casts:
            self._check_cast(self._root(slot), self._root(made), at)
        for slot, value, at in self._literals:
            self._check_literal(self._root(slot), value, at)
        self._check_used(position)
        return tuple(sorted(self._classes.items(), key=lambda pair: (pair[0] != "T", pair[0])))

    def resolve(self, part: Any) -> Any:
        """The same terms, expressions or tuples of them, with every slot replaced by its type."""
        if isinstance(part, tuple):
            return tuple([self.resolve(p) for p in part])
        if dataclasses.is_dataclass(part) and not isinstance(part, type):
            values = [self.resolve(getattr(part, f.name)) for f in dataclasses.fields(part)]
            return type(part)(*values)
        if isinstance(part, str) and part.startswith("?"):
            return self._root(part)
        return part

    def _settle(self, root: str, position: Position) -> None:
        open_slots = {self._root(s): s for s in self._parent if self._root(s).startswith("?")}
        if not open_slots:
            return
        top = self._root(root)
        if top not in open_slots:
            top = min(open_slots, key=lambda slot: int(slot[1:]))
        self._parent[top] = self.named("T", position)
        for slot in [s for s in self._parent if self._root(s).startswith("?")]:
            about = self._about[slot] or "a part of this rule"
            raise RuleError(
                self._source,
                position,
                f"the type of {about} is not settled by the rest; write it, as in (x: T), or"
                " declare another after the rule's name, as in (A in any)",
            )

    def _check_operation(self, type_: str, op: str, position: Position) -> None:
        kinds = {**OP_KINDS, **_REDUCED, "<=": NUMBERS - FLOATS | {Kind.BOOL}}
        allowed = kinds.get(op)
        if allowed is None:
            return
        wrong = [d.name for d in self.possible(type_) if d.kind not in allowed]
        if not wrong:
            return
        what = (
            "x <= y is !(y < x), which is wrong for"
            if op == "<="
            else f"{written(op)!r} does not take"
        )
        instead = _INSTEAD.get(op, "say `over` other domains or types")
        raise RuleError(self._source, position, f"{what} {', '.join(wrong)}; {instead}")

    def _check_cast(self, type_: str, made: str, position: Position) -> None:
        wrong = [d.name for d in self.possible(type_) if d.kind not in INTEGERS | {Kind.BOOL}]
        if dtypes.index in self.possible(made) and wrong:
            reason = f"{', '.join(wrong)} is cast to an int first, and that to index"
            raise RuleError(self._source, position, reason)

    def _check_literal(self, type_: str, value: int | float, position: Position) -> None:
        for dtype in self.possible(type_):
            reason = _misfit(value, dtype, exact="derivative" not in self._domains)
            if reason:
                raise RuleError(self._source, position, reason)

    def _check_used(self, position: Position) -> None:
        used = {self._root(slot) for slot in self._parent if slot not in self._classes}
        used |= self._named
        unused = sorted(set(self._classes) - used)
        if unused:
            raise RuleError(
                self._source, position, f"no term of this rule has the declared type {unused[0]!r}"
            )
        structural = self._domains[0] in (*STRUCTURAL_DOMAINS, "cast")
        if not structural and self._domains != ("bool",) and not self._classes:
            meant = "bool" if used <= {"bool"} else "cast"
            sides = re.sub("=>|<<|>>", ",", self._source.line(position.line))
            loose = "; `&` and `|` bind tighter than comparisons: put these in parentheses"
            raise RuleError(
                self._source,
                position,
                f"every term of this rule comes out as {' or '.join(sorted(used))}, and"
                f" none as the T of {', '.join(self._domains)}; say `over {meant}` if that is meant"
                f"{loose if _COMPARISON_OF_BITS.search(sides) else ''}",
            )

    def possible(self, type_: str) -> tuple[DType, ...]:
        """The dtypes that a settled type may stand for in this rule."""
        class_name = self._classes.get(type_, type_)
        if class_name != "domain":
            return TYPE_CLASSES.get(class_name, ())
        return self._domain_types()

    def _domain_types(self) -> tuple[DType, ...]:
        return tuple(dict.fromkeys([d for name in self._domains for d in DOMAIN_TYPES[name]]))

    def _default_class(self) -> str:
        return STRUCTURAL_DOMAINS.get(self._domains[0], "domain")

    def _root(self, slot: str) -> str:
        while self._parent.get(slot, slot) != slot:
            slot = self._parent[slot]
        return slot


def _single_types() -> list[str]:
    return [name for name, members in TYPE_CLASSES.items() if [d.name for d in members] == [name]]


def _misfit(value: int | float, dtype: DType, exact: bool) -> str:
    """Why `value` is no literal of `dtype`; empty if it is one."""
    if dtype.kind is Kind.BOOL:
        return f"{value} is no bool; write true or false"
    if dtype is dtypes.index or dtype.kind in INTS:
        if isinstance(value, float):
            return f"{value} is no {dtype.name}; write an integer without a point"
        if dtype.lo is not None and dtype.hi is not None and not dtype.lo <= value <= dtype.hi:
            less = " (`x - 1` is `x + -1`)" if value < 0 and dtype.lo == 0 else ""
            return f"{value} does not fit {dtype.name}, which holds {dtype.lo} to {dtype.hi}{less}; say `over` types that hold it"
        return ""
    if isinstance(value, int):
        return f"{value} is an integer, but {dtype.name} is possible here; write {value}.0"
    if exact and math.isfinite(value) and round_float(value, dtype) != value:
        return f"{value} is no value of {dtype.name}"
    return ""
