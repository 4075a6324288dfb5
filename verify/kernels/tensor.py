"""The first kernel compared with the tensor graph that it is made from.

Owns: the meaning of each movement operation as a map of indices, written apart from the compiler's
own; claims that a kernel's terms follow it. Does not own: comparing two kernels (kernels/match.py),
deciding the claims (kernels/questions.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import row_major_strides
from proofgrad.core.ir.uop import UOp
from proofgrad.verify.kernels.linear_sums import linear_form
from proofgrad.verify.kernels.loops import digits
from proofgrad.verify.kernels.match import Difference, Given
from proofgrad.verify.kernels.questions import TRUE, Questions, Verdict, all_of
from proofgrad.verify.kernels.readback import Written
from proofgrad.verify.kernels.terms import loop_size


class FromTensor:
    """Compares the first kernel with the tensor graph that it is made from."""

    def __init__(self, questions: Questions) -> None:
        self.questions = questions
        self._known: dict[tuple[UOp, tuple[UOp, ...], UOp, Given], Difference | None] = {}

    def body(self, body: UOp, kernel: list[Written], room: int | None = None) -> Difference | None:
        """Each element of the body, in row-major order, against the element that is stored.

        `room`: elements of memory that the result has, if they may be more than its own.
        """
        (value,), store = body.src, kernel[0].store
        position, term = store.src
        wanted = prod(value.shape) if room is None else room
        if len(kernel) != 1 or position.src[0].arg[1] != wanted or wanted < prod(value.shape):
            return Difference("the stored element", body, store)
        index = _unflattened(position.src[1], value.shape)
        wrong = self._digits(position.src[1], index, value.shape, ())
        return wrong or self.element(value, index, term, ())

    def _digits(
        self, position: UOp, index: tuple[UOp, ...], shape: Sequence[int], given: Given
    ) -> Difference | None:
        """`index` lies in `shape` and is at `position`; there is only one such index."""
        inside = all_of([c for i, n in zip(index, shape) for c in (~(i < 0), i < n)])
        wrong = self._same("an index", TRUE, inside, given)
        return wrong or self._same("an index", position, _flat(index, shape), given)

    def element(
        self, node: UOp, index: tuple[UOp, ...], term: UOp, given: Given
    ) -> Difference | None:
        """Is `term` the element of `node` at `index`, wherever `given` holds?"""
        key = node, index, term, given
        if key not in self._known:
            self._known[key] = self._element(node, index, term, given)
        return self._known[key]

    def _element(
        self, node: UOp, index: tuple[UOp, ...], term: UOp, given: Given
    ) -> Difference | None:
        wrong = Difference(f"the element of {node.op.name}", node, term)
        match node.op:
            case Ops.DETACH | Ops.CONTIGUOUS:
                return self.element(node.src[0], index, term, given)
            case Ops.CONST:
                return None if term is node else wrong
            case Ops.PARAM:
                return self._load(node, index, term, given)
            case Ops.IOTA:
                return self._same("IOTA", index[0].cast(node.dtype), term, given)
            case Ops.REDUCE_AXIS:
                if term.op is not Ops.REDUCE or term.arg is not node.arg[0]:
                    return wrong
                return self._reduction(node, index, term, given)
            case Ops.PAD | Ops.SKEW:
                return self._padded(node, index, term, given)
            case Ops.RESHAPE:
                source = tuple([_tidy(i) for i in _source_index(node, index)])
                position, shape = _flat(index, node.shape), node.src[0].shape
                unclear = self._digits(position, source, shape, given)
                return unclear or self.element(node.src[0], source, term, given)
            case Ops.PERMUTE | Ops.EXPAND | Ops.SHRINK | Ops.FLIP:
                moved = tuple([_tidy(i) for i in _source_index(node, index)])
                return self.element(node.src[0], moved, term, given)
        if term.dtype is not node.dtype:
            return wrong
        if term.op is not node.op or term.arg != node.arg or len(term.src) != len(node.src):
            return wrong
        parts = [self.element(s, index, t, given) for s, t in zip(node.src, term.src)]
        return next((p for p in parts if p is not None), None)

    def _same(self, what: str, left: UOp, right: UOp, given: Given) -> Difference | None:
        decision = self.questions.same(left, right, given)
        if decision.verdict is Verdict.REFUTED:
            return Difference(what, left, right, decision.point or {"(no loops)": 0})
        return None

    def _load(
        self, node: UOp, index: tuple[UOp, ...], term: UOp, given: Given
    ) -> Difference | None:
        what = f"the load of parameter {node.arg[0]}"
        if term.op is not Ops.LOAD or term.src[0].src[0] is not node:
            return Difference(what, node, term)
        position = term.src[0]
        wrong = self._same(what, index[0], position.src[1], given)
        if wrong is None and len(position.src) > 2:
            wrong = self._same(f"the mask of {what}", TRUE, position.src[2], given)
        return wrong

    def _reduction(
        self, node: UOp, index: tuple[UOp, ...], term: UOp, given: Given
    ) -> Difference | None:
        inner = list(index)
        sizes = [node.src[0].shape[axis] for axis in node.arg[1]]
        if [loop_size(loop) for loop in term.src[1:]] != sizes:
            return Difference("the loops of a reduction", node, term)
        for axis, loop in zip(node.arg[1], term.src[1:]):
            inner[axis] = loop
        return self.element(node.src[0], tuple(inner), term.src[0], given)

    def _padded(
        self, node: UOp, index: tuple[UOp, ...], term: UOp, given: Given
    ) -> Difference | None:
        """Inside of the source its element, outside 0."""
        edge = f"the edge of {node.op.name}"
        source = tuple([_tidy(i) for i in _source_index(node, index)])
        shape = node.src[0].shape
        inside = all_of([c for i, n in zip(source, shape) for c in (~(i < 0), i < n)])
        if term.op is Ops.WHERE:
            condition, value, zero = term.src
            wrong: Difference | None
            if zero.op is not Ops.CONST or zero.arg != 0:
                wrong = Difference(f"what lies outside of {node.op.name}", node, term)
            else:
                wrong = self._same(edge, inside, condition, given)
            if wrong is None:
                return self.element(node.src[0], source, value, (*given, inside))
            # A WHERE may be the source's own, where nothing lies outside.
            if self.questions.seems(inside, given).verdict is not Verdict.PROVED:
                return wrong
        outside = self._same(edge, TRUE, inside, given)
        return outside or self.element(node.src[0], source, term, given)


def _unflattened(position: UOp, shape: Sequence[int]) -> tuple[UOp, ...]:
    """The index of a row-major position."""
    strides = list(zip(row_major_strides(tuple(shape)), shape))
    moving = [(stride, size) for stride, size in strides if size > 1]
    found = iter(digits(position, moving))
    return tuple([next(found) if size > 1 else UOp.index(0) for _, size in strides])


def _flat(index: Sequence[UOp], shape: Sequence[int]) -> UOp:
    """The row-major position of an index."""
    position = UOp.index(0)
    for i, stride in zip(index, row_major_strides(tuple(shape))):
        position = position + i * stride
    return _tidy(position)


def _regrouped(index: Sequence[UOp], old: Sequence[int], new: Sequence[int]) -> tuple[UOp, ...]:
    """The index in the shape `new` of the element at `index` in `old`: a guess for each run of axes.

    It is right if it lies in the shape and has the same position, which is claimed of it.
    """
    found: list[UOp] = []
    i = 0
    while len(found) < len(new):
        j, k = i + 1, len(found) + 1
        while prod(old[i:j]) != prod(new[len(found) : k]) and (j < len(old) or k < len(new)):
            if k == len(new) or (j < len(old) and prod(old[i:j]) < prod(new[len(found) : k])):
                j += 1
            else:
                k += 1
        sizes = new[len(found) : k]
        whole = list(old[i:j]) == list(sizes)
        found += index[i:j] if whole else _unflattened(_flat(index[i:j], old[i:j]), sizes)
        i = j
    return tuple(found)


def _tidy(term: UOp) -> UOp:
    """An index term that is linear, written as a sum of multiples of loops."""
    form = linear_form(term)
    return term if form is None else form.term()


def _source_index(node: UOp, index: tuple[UOp, ...]) -> tuple[UOp, ...]:
    """Where the element of a movement operation at `index` lies in its source, by its meaning."""
    shape = node.src[0].shape
    match node.op:
        case Ops.RESHAPE:
            return _regrouped(index, node.shape, shape)
        case Ops.PERMUTE:
            where = dict(zip(node.arg, index))
            return tuple([where[axis] for axis in range(len(shape))])
        case Ops.EXPAND:
            return tuple([UOp.index(0) if n == 1 else i for i, n in zip(index, shape)])
        case Ops.PAD:
            return tuple([i + -before for i, (before, _) in zip(index, node.arg)])
        case Ops.SHRINK:
            return tuple([i + begin for i, (begin, _) in zip(index, node.arg)])
        case Ops.FLIP:
            ends = zip(index, node.arg, shape)
            return tuple([i * -1 + (n - 1) if flipped else i for i, flipped, n in ends])
        case _:  # SKEW
            axis, by, step, _ = node.arg
            moved = list(index)
            moved[axis] = index[axis] + index[by] * step
            return tuple(moved)
