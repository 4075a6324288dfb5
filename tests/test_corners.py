"""CHECK=1 where two operands, or three, are corners of their types at once: kernels and graphs with one such value wrong are refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy
import pytest

from proofgrad import Context
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.evaluate import evaluate
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.core.tensor.runtime.realize import compiler
from proofgrad.verify.sampled import arithmetic
from proofgrad.verify.sampled.expected import CheckError, drawn
from proofgrad.verify.sampled.graph_stages import compare_graphs
from proofgrad.verify.sampled.inputs import KINDS, PRIME, element, rows_of_corners
from proofgrad.verify.sampled.kernels import ValueChecker
from proofgrad.verify.sampled.launch_plan import PlanError

F, D, I, U = dtypes.float32, dtypes.float64, dtypes.int8, dtypes.uint8
INF, NAN = math.inf, math.nan
Term = Callable[..., UOp]


def _op(op: Ops) -> Term:
    return lambda x, *others: x.alu(op, *others)


def _is(*values: float) -> Term:
    """Whether operands are these; of zeros the sign counts."""

    def holds(*operands: UOp) -> UOp:
        found = None
        for x, value in zip(operands, values):
            same = ~x.eq(x) if value != value else x.eq(value)
            if value == 0 and x.dtype.is_float:
                is_negative = x.bitcast(dtypes.int32) < 0
                same = same & (is_negative if math.copysign(1, value) < 0 else ~is_negative)
            found = same if found is None else found & same
        assert found is not None
        return found

    return holds


POW, ADD, MUL, MAX, DIV, MOD = map(_op, (Ops.POW, Ops.ADD, Ops.MUL, Ops.MAX, Ops.FLOORDIV, Ops.MOD))
# Types, what is right, the operands at which it is wrong, and what it is there.
FAULTS: dict[str, tuple[DType, Term, tuple[float, ...], float]] = {
    "a power of -0.0": (F, POW, (-0.0, 3.0), 0.0),
    "a power of 1 by NaN": (F, POW, (1.0, NAN), NAN),
    "a power of NaN by 0": (F, POW, (NAN, -0.0), NAN),
    "a power of -1 by infinity": (F, POW, (-1.0, INF), NAN),
    "NaN is no maximum": (F, MAX, (1.0, NAN), 1.0),
    "the larger of two zeros": (F, MAX, (-0.0, 0.0), -0.0),
    "infinity less itself": (F, ADD, (INF, -INF), 0.0),
    "a sum of negative zeros": (F, ADD, (-0.0, -0.0), 0.0),
    "infinity times 0": (F, MUL, (INF, 0.0), INF),
    "a remainder by infinity": (F, _op(Ops.FMOD), (-1.0, INF), NAN),
    "equal denormals": (F, _op(Ops.CMPEQ), (2.0**-149, 2.0**-149), False),
    "the least by -1": (I, DIV, (-128, -1), 127),
    "the largest by 0": (I, DIV, (127, 0), 1),
    "the largest modulo the least": (I, MOD, (127, -128), 127),
    "a comparison by difference": (I, _op(Ops.CMPLT), (-128, 127), False),
    "a shift by the width less one": (I, _op(Ops.SHL), (-1, 7), 127),
    "a shift by the width": (I, _op(Ops.SHR), (-1, 8), 0),
    "no number above the largest": (U, ADD, (255, 1), 255),
    "the largest by itself": (U, DIV, (255, 255), 0),
}
# Of a kernel alone, for which so many triples are tried.
OF_THREE: dict[str, tuple[DType, Term, tuple[float, ...], float]] = {
    "infinity less itself, multiplied": (F, lambda x, y, z: x * y + z, (INF, 1.0, -INF), INF),
    "the least thrice": (I, lambda x, y, z: x * y + z, (-128, -1, -128), -128),
}
PLACES = ["apart", "rows", "one memory"]


def _memory(place: str, dtype: DType, count: int) -> tuple[list[UOp], tuple[int, ...]]:
    """Operands of an elementwise operation, and their shape."""
    if place == "one memory":
        base = UOp(Ops.PARAM, dtype, (), (1, 11 * count))
        parts = [((11 * k, 11 * k + 11),) for k in range(count)]
        return [UOp(Ops.SHRINK, dtype, (base,), part) for part in parts], (11,)
    size = 5 if place == "apart" else 33 * 40
    flat = [UOp(Ops.PARAM, dtype, (), (1 + k, size)) for k in range(count)]
    if place == "apart":
        return flat, (5,)
    return [UOp(Ops.RESHAPE, dtype, (x,), (33, 40)) for x in flat], (33, 40)


def _of(term: Term, operands: list[UOp], shape: tuple[int, ...]) -> UOp:
    """A term of single values, for all elements of operands."""
    numbers = [100 + k for k in range(len(operands))]
    memory = [UOp(Ops.PARAM, x.dtype, (), (n, 1)) for x, n in zip(operands, numbers)]
    single = [UOp(Ops.RESHAPE, m.dtype, (m,), ()) for m in memory]
    done = dict(zip(single, operands))
    root = term(*single)
    for node in toposort((root,)):
        if node.op is Ops.CONST:
            one = UOp(Ops.RESHAPE, node.dtype, (node,), (1,) * len(shape))
            done[node] = UOp(Ops.EXPAND, node.dtype, (one,), shape)
        elif node not in done and node not in memory:
            done[node] = node.with_src(tuple([done[s] for s in node.src]))
    return UOp.sink(done[root])


def _bodies(fault: tuple[DType, Term, tuple[float, ...], float], place: str) -> tuple[UOp, UOp]:
    dtype, right, at, instead = fault
    memory = _memory(place, dtype, len(at))

    def wrong(*operands: UOp) -> UOp:
        value = right(*operands)
        return _is(*at)(*operands).where(value.const_like(instead), value)

    return _of(right, *memory), _of(wrong, *memory)


def _check(body: UOp, wrong: UOp) -> ValueChecker:
    """The kernels of a body, shown as those of another one."""
    with Context(CHECK=0):
        kernels = compiler().kernels(wrong, "CPU")
    check = ValueChecker()
    check.kernels(body, kernels)
    return check


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", FAULTS)
def test_kernel_that_is_wrong_at_a_pair_of_corners_is_refused(name: str, place: str) -> None:
    right, wrong = _bodies(FAULTS[name], place)
    with pytest.raises(CheckError, match="sampled elements differ"):
        _check(right, wrong)
    assert _check(right, right).total.points


@pytest.mark.parametrize("name", OF_THREE)
def test_kernel_that_is_wrong_at_a_triple_of_corners_is_refused(name: str) -> None:
    with pytest.raises(CheckError, match="differ"):
        _check(*_bodies(OF_THREE[name], "apart"))


@pytest.mark.parametrize("name", FAULTS)
def test_graph_that_is_wrong_at_a_pair_of_corners_is_refused(name: str) -> None:
    with pytest.raises(PlanError, match="another value"):
        _compare(*_bodies(FAULTS[name], "rows"))
    right, _ = _bodies(FAULTS[name], "rows")
    same = UOp.sink(UOp(Ops.FLIP, right.src[0].dtype, (right.src[0],), (True, True)))
    again = UOp.sink(UOp(Ops.FLIP, right.src[0].dtype, (same.src[0],), (True, True)))
    assert _compare(right, again)


def _compare(before: UOp, after: UOp) -> int:
    device = UOp(Ops.DEVICE, dtypes.void, (), "CPU")
    buffers = {
        n: UOp(Ops.BUFFER, n.dtype, (UOp(Ops.UNIQUE, dtypes.void, (), n.arg[0]), device), n.arg[1])
        for n in toposort((before, after))
        if n.op is Ops.PARAM
    }
    with numpy.errstate(all="ignore"):
        return compare_graphs(before.substitute(buffers), after.substitute(buffers), drawn, 10**6)


@pytest.mark.parametrize("dtype", [*dtypes.all, *dtypes.fp8s], ids=str)
def test_corners_of_memories_meet_in_every_way(dtype: DType) -> None:
    every = set(
        map(repr, element(1, dtype, numpy.int64(0), rows_of_corners(1, 1, PRIME), 0).tolist())
    )
    assert (
        len(every) == 2 if dtype.is_bool else len(every) >= PRIME - 3
    )  # of few bits some are alike
    for together in (2, 3):
        kind = rows_of_corners(together, together, PRIME**together)
        index = numpy.arange(len(kind)) * 7919
        drawn = [element(slot, dtype, index, kind, 0).tolist() for slot in range(1, 1 + together)]
        assert len({repr(row) for row in zip(*drawn)}) == len(every) ** together


def test_corners_of_two_elements_of_a_memory_meet_in_every_pair() -> None:
    kind = rows_of_corners(1, 2, PRIME**2)
    complete = 0
    for at in range(20):
        drawn = [element(1, F, numpy.int64(k), kind, 0).tolist() for k in (at, at + 31)]
        complete += len({repr(row) for row in zip(*drawn)}) == PRIME**2
    assert complete >= 16  # elements whose numbers are alike have the same corner: one of 17 pairs


def test_no_more_rows_than_can_be_paid_for() -> None:
    assert [len(rows_of_corners(3, 3, most)) for most in (-9, 0, 16, 17, 288, 289, 600, 5000)] == [
        0, 0, 0, 17, 17, 289, 578, 4913,
    ]  # fmt: skip
    assert len(rows_of_corners(0, 0, 5000)) == 0
    assert rows_of_corners(2, 2, 300).min() == KINDS


def test_doubles_are_multiplied_and_added_with_one_rounding() -> None:
    draw, count = numpy.random.default_rng(3), 3000
    x, y = [draw.normal(size=count) * numpy.exp2(draw.integers(-60, 60, count)) for _ in range(2)]
    few = draw.random(count) < 0.3  # of few bits: sums in the middle between two doubles
    x, y = [numpy.where(few, draw.integers(-(2**27), 2**27, count), each) for each in (x, y)]
    near = -x * y * (1 + draw.integers(-3, 4, count) * 2.0**-52)
    z = numpy.where(
        few, draw.integers(-9, 9, count) * numpy.exp2(draw.integers(-60, 60, count)), near
    )
    ends = [0.0, -0.0, 1.0, INF, -INF, NAN, 5e-324, 1.7e308, -1.7e308, 1e-200, 2.0**990, 2.0**-900]
    every = numpy.array(numpy.meshgrid(ends, ends, ends)).reshape(3, -1)
    columns: list[Any] = [numpy.concatenate(pair) for pair in zip((x, y, z), every)]
    with numpy.errstate(all="ignore"):
        got = arithmetic.compute(Ops.FMA, D, columns, (D,) * 3)
    rows = zip(*[column.tolist() for column in columns])
    wanted = numpy.array([evaluate(Ops.FMA, D, row, (D,) * 3) for row in rows])
    assert arithmetic.same_bits(got, wanted, D).all()
