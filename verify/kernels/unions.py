"""A reduction that became several over parts of its iterations, as sums over blocks and the rest of one do.

Owns: which parts there are, a map from the iterations of each to those before, and the claims that each iteration before belongs to exactly one
iteration of one part. Does not own: deciding the claims (kernels/questions.py), comparing values (the `Comparison` that is given).

    sum[j < 7](v(j))   =   sum[q < 2](sum[b < 3](v(q * 3 + b))) + sum[b < 3](where(b < 1, v(6 + b), 0))

The map of a part comes from where both load; where it does not turn out to be one to one, nothing is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.evaluate import identity
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.verify.kernels.linear_sums import linear_form
from proofgrad.verify.kernels.loops import digits, map_by_position, row_major
from proofgrad.verify.kernels.questions import Questions, Verdict, all_of
from proofgrad.verify.kernels.terms import loop_size

Given = tuple[UOp, ...]
# Whether two value terms are the same wherever the conditions hold.
Comparison = Callable[[UOp, UOp, Given], bool]
MOST_PARTS = 16
# No quotient that a map of a part has in it is larger; what is guessed with this is shown without it.
LARGEST_OUTER = 1 << 31


@dataclass(frozen=True, slots=True)
class Part:
    """What a reduction takes in: a value in each iteration of loops where all masks hold."""

    value: UOp
    masks: Given = ()
    loops: Given = ()


@dataclass(frozen=True, slots=True)
class Found:
    """A part whose iterations are some of those before: `there` from its loops, `back` from the loops before."""

    part: Part
    there: dict[UOp, UOp]
    back: dict[UOp, UOp]

    def hits(self) -> UOp:
        """Whether an iteration before is one of the part's."""
        inside = [c for x, t in self.back.items() for c in (~(t < 0), t < loop_size(x))]
        masks = [mask.substitute(self.back) for mask in self.part.masks]
        again = [_same(t.substitute(self.back), x) for x, t in self.there.items()]
        return all_of([*inside, *masks, *again])


def is_in_parts(
    before: UOp, after: UOp, given: Given, questions: Questions, is_same: Comparison
) -> bool:
    """Whether `after` combines the values that the reduction `before` does, each of them once."""
    op = before.arg
    if after.op is not op and after.op is not Ops.REDUCE:
        return False
    wholes, parts = list(parts_of(op, before)), list(parts_of(op, after))
    if len(wholes) != 1 or not 1 < len(parts) <= MOST_PARTS or _loops_twice(parts):
        return False
    (whole,) = wholes

    def shown(claim: UOp, under: Given) -> bool:
        return questions.seems(claim, under).verdict is Verdict.PROVED

    hits, inside = list[UOp](), (*given, *whole.masks)
    for part in parts:
        found = _found(whole, part, given, shown, is_same)
        if found is None:
            return False
        hits.append(found.hits())
    anyone = hits[0]
    for hit in hits[1:]:
        anyone = anyone | hit
    return shown(anyone, inside) and all(
        [shown(~(one & other), inside) for one, other in combinations(hits, 2)]
    )


def parts_of(op: Ops, term: UOp, masks: Given = (), loops: Given = ()) -> Iterator[Part]:
    """What a term combines by an operation: operands, values of reductions by it; nothing of what changes nothing."""
    nothing = UOp.const(term.dtype, identity(op, term.dtype))
    if term.op is op:
        for source in term.src:
            yield from parts_of(op, source, masks, loops)
    elif term.op is Ops.REDUCE and term.arg is op:
        yield from parts_of(op, term.src[0], masks, (*loops, *term.src[1:]))
    elif term.op is Ops.WHERE and term.src[2] is nothing:
        yield from parts_of(op, term.src[1], (*masks, term.src[0]), loops)
    elif term.op is Ops.WHERE and term.src[1] is nothing:
        yield from parts_of(op, term.src[2], (*masks, ~term.src[0]), loops)
    elif op is Ops.ADD and term.op is Ops.LOAD and len(term.src[0].src) > 2:
        *address, mask = term.src[0].src
        plain = term.with_src((term.src[0].with_src(tuple(address)), *term.src[1:]))
        yield Part(plain, (*masks, mask), loops)
    elif term is not nothing:
        yield Part(term, masks, loops)


def _loops_twice(parts: Sequence[Part]) -> bool:
    return any([len(set(part.loops)) < len(part.loops) for part in parts])


def _found(
    whole: Part, part: Part, given: Given, shown: Callable[[UOp, Given], bool], is_same: Comparison
) -> Found | None:
    """The part as some of the iterations of the whole, and its values as theirs; None where that is not seen."""
    inside = (*given, *part.masks)
    loads = _loads(whole.value), _loads(part.value)
    for one, other, sign in product(*loads, (1, -1)):  # -1: where memory is read from its end
        if one.src[0] is not other.src[0]:
            continue
        index = _within(other.src[1], inside, shown)
        index, outer = _with_loops_for_others(index, part.loops)
        there = map_by_position(one.src[1] * sign, index * sign, whole.loops)
        back = None if there is None else _back(whole.loops, there, part.loops)
        if there is None or back is None:
            continue
        there, back = [{x: t.substitute(outer) for x, t in m.items()} for m in (there, back)]
        bounds = [c for x, t in there.items() for c in (~(t < 0), t < loop_size(x))]
        masks = [mask.substitute(there) for mask in whole.masks]
        again = [_same(t.substitute(there), x) for x, t in back.items()]
        if all([shown(claim, inside) for claim in (*bounds, *masks, *again)]) and is_same(
            whole.value.substitute(there), part.value, inside
        ):
            return Found(part, there, back)
    return None


def _back(whole: Given, there: dict[UOp, UOp], loops: Given) -> dict[UOp, UOp] | None:
    """The loops of a part as digits of how far an iteration before is from what stays as it is."""
    form = linear_form(row_major(whole).term().substitute(there))
    if form is None:
        return None
    moving = sorted([x for x in loops if form.parts.get(x, 0) > 0], key=lambda x: -form.parts[x])
    if len(moving) < len([x for x in loops if loop_size(x) > 1]):
        return None
    rest = [t * c for t, c in form.parts.items() if t not in moving]
    position = row_major(whole).term()
    for term in (*rest, UOp.index(form.constant)):
        position = position + term * -1
    found = dict(zip(moving, digits(position, [(form.parts[x], loop_size(x)) for x in moving])))
    return {**{x: UOp.index(0) for x in loops}, **found}


def _with_loops_for_others(term: UOp, loops: Given) -> tuple[UOp, dict[UOp, UOp]]:
    """An index term with a loop in place of each quotient and remainder that none of `loops` changes; and what each stands for."""
    moves, new, outer = set(loops), dict[UOp, UOp](), dict[UOp, UOp]()
    for node in toposort((term,)):
        changed = new[node] = node.with_src(tuple([new[s] for s in node.src]))
        if not moves.isdisjoint(node.src):
            moves.add(node)
        elif node.op in (Ops.FLOORDIV, Ops.MOD):
            stands = UOp.range(LARGEST_OUTER, (1 << 20) + len(outer))
            outer[stands] = changed.substitute(outer)
            new[node] = stands
    return new[term], outer


def _within(term: UOp, given: Given, shown: Callable[[UOp, Given], bool]) -> UOp:
    """An index term without the bounds that it keeps by itself where `given` holds."""
    new: dict[UOp, UOp] = {}
    for node in toposort((term,)):
        changed = new[node] = node.with_src(tuple([new[s] for s in node.src]))
        if node.op in (Ops.MIN, Ops.MAX) and node.dtype is dtypes.index:
            one, other = changed.src if node.op is Ops.MIN else changed.src[::-1]
            if shown(~(other < one), given):
                new[node] = changed.src[0]
            elif shown(~(one < other), given):
                new[node] = changed.src[1]
        elif node.op is Ops.MOD and node.dtype is dtypes.index:
            whole, divisor = changed.src
            if shown(~(whole < 0) & (whole < divisor), given):
                new[node] = whole
    return new[term]


def _same(one: UOp, other: UOp) -> UOp:
    return UOp(Ops.CMPEQ, dtypes.bool, (one, other))


def _loads(value: UOp) -> list[UOp]:
    """The addresses of parameters that a value is loaded from."""
    addresses = [n.src[0] for n in toposort((value,)) if n.op is Ops.LOAD]
    return [address for address in addresses if address.src[0].op is Ops.PARAM]
