"""CHECK=1: kernels beside their tensor graphs at sampled elements; what is wrong is found, what is right passes."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy
import pytest
from tactics import split_long_reductions
from tensors import numbers

from proofgrad import Context, GlobalCounters, Tensor
from proofgrad.core.compile.compiler import Compiler
from proofgrad.core.compile.plan.known_kernels import KnownKernels
from proofgrad.core.compile.plan.plan import BufferInfo, Kernel, Plan, Step
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.evaluate import evaluate, from_bits
from proofgrad.core.ir.ops import APPROXIMATED, BINARY, COMPARE, TERNARY, UNARY, Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.core.tensor.runtime.arena import make_arena
from proofgrad.core.tensor.runtime.computed_again import note_run, unnoted, values_to_keep
from proofgrad.core.tensor.runtime.realize import compile_only, compiler
from proofgrad.verify.sampled import arithmetic as arithmetic
from proofgrad.verify.sampled.expected import CheckError, drawn
from proofgrad.verify.sampled.freedom import Estimate, estimate, estimate_reduction, largest
from proofgrad.verify.sampled.graph_stages import check_parts, compare_graphs
from proofgrad.verify.sampled.inputs import KINDS, element
from proofgrad.verify.sampled.kernels import ValueChecker
from proofgrad.verify.sampled.launch_plan import PlanError, check_arena, check_plan
from proofgrad.verify.sampled.nesting import NotReadable
from proofgrad.verify.sampled.one_writer import check_writers
from proofgrad.verify.sampled.parts import Drawn, Part, Reader
from proofgrad.verify.sampled.tensor import MOST_NESTED, Budget


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> ValueChecker:
    """Sees every kernel and plan that is made from here on."""
    made = ValueChecker()
    for name, value in (("value_check", made), ("_kernels", KnownKernels(9)), ("_plans", {})):
        monkeypatch.setattr(compiler(), name, value)
    return made


def data(*shape: int) -> Tensor:
    return Tensor(numpy.random.default_rng(0).normal(size=shape).astype(numpy.float32))


# -- the two interpreters -----------------------------------------------------------------------


def _drawn(dtype: DType, count: int, draw: random.Random) -> list[Any]:
    def one() -> Any:
        if dtype is dtypes.index:
            return draw.choice([0, 1, -1, 7, draw.randrange(-(10**6), 10**6)])
        if draw.random() < 0.5 and (dtype.is_float or dtype.is_code):
            return float(
                draw.choice([0.0, -0.0, 1.0, -1.0, 2.5, math.inf, -math.inf, math.nan, 3.0])
            )
        if draw.random() < 0.3 and dtype.is_int:
            assert dtype.lo is not None and dtype.hi is not None
            return draw.choice([0, 1, dtype.lo, dtype.hi, 2, 3, dtype.hi - 1])
        return from_bits(draw.getrandbits(dtype.bits), dtype)

    return [one() for _ in range(count)]


def _operations() -> list[tuple[Ops, DType, tuple[DType, ...]]]:
    found: list[tuple[Ops, DType, tuple[DType, ...]]] = []
    for dtype in (*dtypes.all, dtypes.index):
        kinds = (arithmetic._BOOL, arithmetic._INT, arithmetic._FLOAT)
        table = kinds[0 if dtype.is_bool else 1 if dtype.is_int else 2]
        for op in table:
            if dtype is dtypes.index and op in (Ops.SHL, Ops.SHR, Ops.NOT):
                continue
            count = 1 if op in UNARY else 3 if op in TERNARY else 2
            found.append((op, dtypes.bool if op in COMPARE else dtype, (dtype,) * count))
        found.append((Ops.WHERE, dtype, (dtypes.bool, dtype, dtype)))
        found += [(Ops.CAST, other, (dtype,)) for other in (*dtypes.all, *dtypes.fp8s)]
        alike = [d for d in dtypes.all if d.bits == dtype.bits and not d.is_bool]
        if not dtype.is_bool and dtype is not dtypes.index:
            found += [(Ops.BITCAST, other, (dtype,)) for other in alike]
    return found + [(Ops.CAST, d, (code,)) for code in dtypes.fp8s for d in dtypes.all]


@pytest.mark.parametrize("op", sorted({op for op, _, _ in _operations()}), ids=lambda op: op.name)
def test_operation_on_arrays_is_that_of_the_reference(op: Ops) -> None:
    draw = random.Random(op.name)
    for _, dtype, sources in [each for each in _operations() if each[0] is op]:
        columns = [_drawn(source, 200, draw) for source in sources]
        wanted = [evaluate(op, dtype, row, sources) for row in zip(*columns)]
        arrays = [numpy.array(c, arithmetic.kept_as(s)) for c, s in zip(columns, sources)]
        with numpy.errstate(all="ignore"):
            got = arithmetic.compute(op, dtype, arrays, sources)
            same = arithmetic.same_bits(got, numpy.array(wanted, arithmetic.kept_as(dtype)), dtype)
        if op is Ops.BITCAST and sources[0].is_float:  # a NaN has many bits
            same |= numpy.isnan(arrays[0])
        if op in APPROXIMATED:
            same |= numpy.isclose(got.astype(float), numpy.array(wanted, float), rtol=1e-6)
        assert same.all(), (op, dtype, sources, [c[int(same.argmin())] for c in columns])


def test_operands_with_as_many_axes_as_arrays_have_are_computed_one_by_one() -> None:
    """Each sum in a sum is an axis; functions of numpy that tell a shape alone end at 32."""
    axes = MOST_NESTED - 1
    column = numpy.arange(3.0).reshape(3, *[1] * (axes - 1))
    row, none = numpy.arange(2.0), numpy.zeros((0, 1))
    operands = (dtypes.float64,) * 3
    got = arithmetic.compute(Ops.FMA, dtypes.float64, [column, row, row], operands)
    assert got.shape == (3, *[1] * (axes - 2), 2)
    assert got.ravel().tolist() == [0.0, 1.0, 0.0, 2.0, 0.0, 3.0]
    assert arithmetic.compute(Ops.FMA, dtypes.float64, [none, row, row], operands).shape == (0, 2)


def test_every_elementwise_operation_has_a_meaning_on_arrays() -> None:
    known = {*arithmetic._FLOAT, *arithmetic._INT, *arithmetic._BOOL}
    assert known == UNARY | BINARY | (TERNARY - {Ops.WHERE})


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64])
def test_sum_in_any_order_is_within_its_freedom(dtype: DType) -> None:
    draw = numpy.random.default_rng(1)
    for _ in range(200):
        count = int(draw.integers(1, 40))
        drawn = draw.normal(size=(count, 1)) * numpy.exp2(draw.integers(-20, 20))
        terms = arithmetic.cast(drawn, dtypes.float64, dtype)
        freedom = estimate_reduction(Ops.ADD, dtype, Estimate(terms), count)
        total = arithmetic.constant(dtype, 0.0)
        for k in draw.permutation(count):
            total = arithmetic.compute(Ops.ADD, dtype, (total, terms[k]), (dtype, dtype))
        assert freedom.agrees(total, dtype).all()


def test_products_that_are_too_large_may_be_added_without_rounding() -> None:
    """In float32 2 * largest - largest is infinite, or the largest where it is rounded once; an infinite factor says what it is."""
    one = Estimate(numpy.array([[largest(F), 2.0], [-largest(F), 1.0]], numpy.float32))
    factor = Estimate(numpy.array([[2.0, math.inf], [1.0, 1.0]], numpy.float32))
    product = estimate(Ops.MUL, F, (one, factor), (F, F))
    assert product.error is None and product.values.tolist()[0] == [math.inf, math.inf]
    total = estimate_reduction(Ops.ADD, F, product, 2)
    assert total.agrees(numpy.array([largest(F), math.inf], numpy.float32), F).all()
    assert total.agrees(numpy.zeros(2, numpy.float32), F).tolist() == [True, False]


@pytest.mark.parametrize("terms", [1, 3])
def test_products_that_are_too_small_may_be_added_without_rounding(terms: int) -> None:
    """-2**-120 * 2**-120 rounds to -0.0, and with a sum from 0.0 to 0.0; multiplied and added at once it is -0.0 in the end. 0 * -1 is none."""
    one = Estimate(numpy.array([[-(2.0**-120), 0.0]] * terms, numpy.float32))
    factor = Estimate(numpy.array([[2.0**-120, -1.0]] * terms, numpy.float32))
    product = estimate(Ops.MUL, F, (one, factor), (F, F))
    chosen = Estimate(numpy.array([[True, True]] * terms)), product, Estimate(numpy.float32(0))
    for each in (product, estimate(Ops.WHERE, F, chosen, (dtypes.bool, F, F))):
        total = estimate_reduction(Ops.ADD, F, each, terms)
        assert total.agrees(numpy.array([-0.0, -0.0], numpy.float32), F).tolist() == [True, False]
        assert total.agrees(numpy.array([1e-40, 1e-40], numpy.float32), F).tolist() == [
            False,
            False,
        ]


F, I = dtypes.float32, dtypes.int32
# What is right, and what a compiler might make of it: of a few of the values that kernels are checked with they differ.
AT_THE_ENDS: dict[str, tuple[DType, Callable[..., Any], Callable[..., Any]]] = {
    "a cast that saturates": (F, lambda x, y: _to_half(x), lambda x, y: _to_half(x.clip(-65504, 65504))),
    "x * 0 is 0": (F, lambda x, y: x * 0 + 1, lambda x, y: numpy.ones_like(x)),
    "denormals are 0": (F, lambda x, y: x, lambda x, y: numpy.where(abs(x) < 2.0**-126, x * 0, x)),
    "no reciprocal of denormals": (
        F, lambda x, y: 1 / x, lambda x, y: numpy.where(abs(x) < 2.0**-126, math.inf, 1 / x),
    ),
    "exp2 in its range alone": (F, lambda x, y: numpy.exp2(x), lambda x, y: numpy.exp2(x.clip(-126, 127))),
    "one rounding for two": (F, lambda x, y: x * y + y, lambda x, y: _fused(x, y, y)),
    "NaN is less": (F, lambda x, y: x < y, lambda x, y: ~(x >= y)),
    "0 - x is -x": (F, lambda x, y: 0 - x, lambda x, y: -x),
    "halves are added": (F, lambda x, y: (x + y) * numpy.float32(0.5), lambda x, y: x / 2 + y / 2),
    "no maximum": (F, lambda x, y: numpy.exp2(x - numpy.maximum(x, y)), lambda x, y: numpy.exp2(x) / numpy.exp2(numpy.maximum(x, y))),
    "the least number over -1": (I, lambda x, y: -x, lambda x, y: numpy.where(x == I.lo, I.hi, -x)),
    "x < y is x - y < 0": (I, lambda x, y: x < y, lambda x, y: x - y < 0),
}  # fmt: skip


def _to_half(x: Any) -> Any:
    return arithmetic.cast(x, F, dtypes.float16)


def _fused(x: Any, y: Any, z: Any) -> Any:
    return arithmetic.compute(Ops.FMA, F, (x, y, z), (F, F, F))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", AT_THE_ENDS)
def test_some_of_few_values_tell_what_is_wrong_at_the_ends_of_a_type(name: str) -> None:
    dtype, right, wrong = AT_THE_ENDS[name]
    at, kind = numpy.arange(420), numpy.arange(420) % KINDS
    x, y = [element(slot, dtype, at, kind, 0) for slot in (0, 1)]
    a, b = right(x, y), wrong(x, y)
    same = a == b if a.dtype.kind in "bi" else arithmetic.same_bits(a, b, F)
    assert not same.all()


def test_sum_of_whole_numbers_has_no_freedom() -> None:
    terms = Estimate(numpy.arange(100, dtype=numpy.float32).reshape(100, 1))
    assert estimate_reduction(Ops.ADD, dtypes.float32, terms, 100).error is None


def test_bits_that_are_chosen_are_off_as_far_as_their_float() -> None:
    bits, chosen = dtypes.uint32, Estimate(numpy.array([[False], [True], [False]]))
    near = Estimate(numpy.ones((1, 1), numpy.float32), numpy.full((1, 1), 1e-6))
    zero = Estimate(numpy.zeros((1, 1), numpy.uint32))
    cast = estimate(Ops.BITCAST, bits, (near,), (dtypes.float32,))
    each = estimate(Ops.WHERE, bits, (chosen, cast, zero), (dtypes.bool, bits, bits))
    one = estimate_reduction(Ops.ADD, bits, each, 3)
    back = estimate(Ops.BITCAST, dtypes.float32, (one,), (bits,))
    for found, dtype in ((one, bits), (back, dtypes.float32)):
        close, far = [numpy.array([v], "f4").view(found.values.dtype) for v in (1 + 5e-7, 1.1)]
        assert found.agrees(close, dtype).all()
        assert not found.agrees(far, dtype).any()
        assert found.is_known().all()
    several = estimate_reduction(Ops.ADD, bits, cast, 2)
    counted = estimate(Ops.ADD, bits, (cast, zero), (bits, bits))
    assert not several.is_known().any()
    assert not counted.is_known().any()


def test_comparison_of_nearly_equal_sums_is_not_known() -> None:
    near = Estimate(numpy.ones(1, numpy.float32), numpy.full(1, 1e-6))
    one = Estimate(numpy.ones(1, numpy.float32))
    found = estimate(Ops.CMPLT, dtypes.bool, (near, one), (dtypes.float32,) * 2)
    assert not found.is_known().any()


# -- what is right passes -----------------------------------------------------------------------

RIGHT: dict[str, Callable[[], Tensor]] = {
    "product": lambda: data(20, 40) @ data(40, 36),
    "softmax": lambda: data(6, 37).softmax(),
    "long sum": lambda: data(1 << 17).sum(),
    "convolution": lambda: data(2, 4, 9, 9).conv2d(data(5, 4, 3, 3), padding=1),
    "rows": lambda: data(40, 8)[Tensor([3, -1, 39, 3])],
    "topk": lambda: data(5, 20).topk(3)[0],
    "half": lambda: (data(6, 40).half() @ data(40, 5).half()).exp2(),
    "nothing": lambda: data(13, 4, 0, 1).sum(2),
    "one element": lambda: data(1).exp(),
    "scatter": lambda: data(4, 33).scatter_reduce(1, Tensor([[3, 3, 0]] * 4), data(4, 3), "mean"),
    "whole": lambda: (Tensor.arange(30) * 7 - 50) // 4 % 5,
    "cumsum": lambda: data(300).cumsum(),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_kernels_pass(check: ValueChecker, name: str) -> None:
    with Context(CHECK=1), compile_only():
        RIGHT[name]().realize()
    assert check.total.kernels + check.total.not_checked.total() > 0
    assert not [why for why in check.total.not_checked if "graph" not in why]


# Positions that move with loops by strides; in tiles that are wider than what is left; by a quotient and a remainder of one
# loop; under masks; in lanes that are apart; through tables.
WRITTEN: dict[str, tuple[Callable[[], Tensor], str]] = {
    "elementwise": (lambda: data(7, 13) + 1, ""),
    "turned": (lambda: data(9, 14).permute(1, 0) * 2, ""),
    "product": (lambda: data(21, 24) @ data(24, 40), "tile=4x2x8 staged=none depth=2"),
    "odd product": (lambda: data(37, 5) @ data(5, 23), "tile=3x2x8 staged=rows+columns"),
    "convolution": (lambda: data(2, 4, 9, 9).conv2d(data(5, 4, 3, 3), padding=1), ""),
    "strided": (lambda: data(2, 3, 17, 17).conv2d(data(16, 3, 5, 5), stride=2), ""),
    "softmax": (lambda: data(6, 37).softmax(), ""),
    "largest of columns": (lambda: data(33, 45).max(0), ""),
    "cumsum": (lambda: data(300).cumsum(), ""),
    "padded": (lambda: data(5, 6).pad(((2, 3), (1, 0))), ""),
}


def _kernels_of(make: Callable[[], Tensor], choices: str) -> list[Kernel]:
    seen: list[Kernel] = []

    class Keep(ValueChecker):
        def kernels(self, body: UOp, kernels: Any) -> None:
            seen.extend(kernels)

    with pytest.MonkeyPatch.context() as patch, Context(CHECK=1, CHOICES=choices):
        for name, value in (("value_check", Keep()), ("_kernels", KnownKernels(9)), ("_plans", {})):
            patch.setattr(compiler(), name, value)
        with compile_only():
            make().realize()
    return seen


@pytest.mark.parametrize("name", WRITTEN)
def test_iteration_that_writes_an_element_is_found_for_each(name: str) -> None:
    for kernel in _kernels_of(*WRITTEN[name]):
        assert kernel.source.program is not None
        memory = {number: Drawn(number) for number in kernel.slots}
        part = Part(kernel.source.program, kernel.slots, memory)
        reader = Reader(drawn, Budget(10**9))
        elements = numpy.arange(part.size)
        rows = []
        for found in reader.search(part).writers(elements, elements % 3, {}):
            rows += found.rows.tolist()
            found.frame.writes_at(found.store, found.lane)
            assert found.frame.position is not None
            assert (found.frame.position[found.points] == elements[found.rows]).all()
            if found.frame.writes is not None:
                assert found.frame.writes[found.points].all()
        assert sorted(rows) == list(range(part.size))


@pytest.mark.parametrize("name", WRITTEN)
def test_element_that_no_iteration_writes_is_found(name: str) -> None:
    make, choices = WRITTEN[name]
    for kernel in _kernels_of(make, choices):
        linear = kernel.source.program
        assert linear is not None
        stores = [n for n in linear.src if n.op is Ops.STORE and n.src[0].src[0].op is Ops.PARAM]
        # A row of a tile that is beyond all rows is never written.
        stores = [n for n in stores if not any([m.arg is False for m in n.src[0].src[2:]])]
        whole = Part(linear, kernel.slots, {})
        lost = stores[-1]
        if len(stores) == 1:
            continue
        without = UOp(Ops.LINEAR, dtypes.void, tuple([n for n in linear.src if n is not lost]))
        part = Part(without, kernel.slots, {})
        elements = numpy.arange(whole.size)

        def found_in(part: Part) -> set[int]:
            search = Reader(drawn, Budget(10**9)).search(part)
            writers = search.writers(elements, elements * 0, {})
            return {row for found in writers for row in found.rows.tolist()}

        assert found_in(part) < found_in(whole)


@pytest.mark.parametrize("name", WRITTEN)
def test_elements_that_two_kernels_write_are_found(name: str) -> None:
    """The first writes all of the memory, and the second again: with masks the ends of each are looked for in the other."""
    for kernel in _kernels_of(*WRITTEN[name]):
        assert kernel.source.program is not None
        first = Part(kernel.source.program, kernel.slots, {})
        again = Part(kernel.source.program, kernel.slots, {first.written: first})
        reader = Reader(drawn, Budget(10**9))
        check_writers(reader, first)
        with pytest.raises(NotReadable, match="written twice"):
            check_writers(reader, again)


def test_what_is_not_checked_is_counted(check: ValueChecker) -> None:
    check._most_values = 100
    with Context(CHECK=1), compile_only():
        (data(20, 40) @ data(40, 36)).realize()
    assert check.total.not_checked == {"too much to compute": 1}
    assert "1 not checked: too much to compute" in check.summary()


def test_nothing_is_checked_unless_asked(check: ValueChecker) -> None:
    with Context(CHECK=0), compile_only():
        (data(20, 4) + 1).realize()
    assert check.total.kernels == 0 and check.total.plans == 0


# -- what is wrong is found ---------------------------------------------------------------------


def _compile_with_fault(
    monkeypatch: pytest.MonkeyPatch, value: Tensor, fault: Callable[[UOp], UOp]
) -> None:
    """Compile with every Linear changed by `fault`."""
    right = Compiler._compiled

    def compiled(self: Compiler, linear: UOp, device: str, background: Any = None) -> Kernel:
        return right(self, fault(linear), device, background)

    monkeypatch.setattr(Compiler, "_compiled", compiled)
    with Context(CHECK=1), compile_only():
        value.realize()


def _one_higher(op: Ops) -> Callable[[UOp], UOp]:
    """The index of the first access of a kind is one too high."""

    def fault(linear: UOp) -> UOp:
        position = next(n for n in linear.src if n.op is op).src[0]
        index = position.src[1]
        moved = UOp(Ops.ADD, index.dtype, (index, UOp.const(index.dtype, 1)))
        changed = position.replace(src=(position.src[0], moved, *position.src[2:]))
        return _again(linear, {position: changed})

    return fault


def _again(linear: UOp, changes: dict[UOp, UOp]) -> UOp:
    """Linear with nodes changed, what they need in front of them."""
    made: dict[UOp, UOp] = {}
    order: list[UOp] = []
    for node in linear.src:
        new = changes.get(node, node).substitute(made | changes)
        made[node] = new
        known = set(order)
        order += [n for n in toposort((new,)) if n not in known and n is not new and not n.src]
        order += [n for n in toposort((new,)) if n not in set(order)] if node in changes else [new]
    return UOp(Ops.LINEAR, dtypes.void, tuple(dict.fromkeys(order)))


@pytest.mark.parametrize("op", [Ops.LOAD, Ops.STORE])
def test_wrong_index_is_found(
    check: ValueChecker, monkeypatch: pytest.MonkeyPatch, op: Ops
) -> None:
    with pytest.raises(CheckError, match=r"kernel .*: .*(expected|element)"):
        _compile_with_fault(monkeypatch, data(7, 5).permute(1, 0) + 1.0, _one_higher(op))


def test_another_operation_is_found(check: ValueChecker, monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(linear: UOp) -> UOp:
        node = next(n for n in linear.src if n.op is Ops.MAX)
        return _again(linear, {node: node.replace(op=Ops.MIN)})

    with pytest.raises(CheckError, match="expected"):
        _compile_with_fault(monkeypatch, data(64).maximum(data(64) * 2), fault)


# -- plans --------------------------------------------------------------------------------------


def _a_plan() -> tuple[UOp, UOp, Plan, list[Any]]:
    """A tensor graph, its calls, their plan and kernels: two buffers that are alike, results over inputs."""
    seen: list[Any] = []

    class Keep(ValueChecker):
        def kernels(self, body: UOp, kernels: Any) -> None:
            """Not looked at."""

        def plan(self, *parts: Any) -> None:
            seen.append(parts)

        def arena(self, *parts: Any) -> None:
            """Not looked at."""

    with pytest.MonkeyPatch.context() as patch, Context(CHECK=1):
        for name, value in (("value_check", Keep()), ("_kernels", KnownKernels(9)), ("_plans", {})):
            patch.setattr(compiler(), name, value)
        a, b = data(8, 8).realize(), data(8, 8).exp().realize()
        seen.clear()
        with compile_only():
            ((a * 2).contiguous() - (b * 3).contiguous() @ a).realize()
    graphs, calls, plan, compiled = seen[-1]
    return graphs[-1][1], calls, plan, compiled


def test_right_plan_passes() -> None:
    assert check_plan(*_a_plan()) == ""


def _swapped(plan: Plan, step: int, one: int, other: int) -> Plan:
    slots = list(plan.steps[step].slots)
    slots[one], slots[other] = slots[other], slots[one]
    steps = list(plan.steps)
    steps[step] = replace(steps[step], slots=tuple(slots))
    return replace(plan, steps=tuple(steps))


def test_swapped_arguments_of_a_launch_are_found() -> None:
    graph, calls, plan, compiled = _a_plan()
    last = len(plan.steps) - 1
    with pytest.raises(PlanError, match="does not hold"):
        check_plan(graph, calls, _swapped(plan, last, 1, 2), compiled)


def test_launches_in_another_order_are_found() -> None:
    graph, calls, plan, compiled = _a_plan()
    turned = replace(plan, steps=plan.steps[::-1])
    with pytest.raises(PlanError):
        check_plan(graph, calls, turned, compiled)


def test_memory_that_is_freed_too_early_is_found() -> None:
    graph, calls, plan, compiled = _a_plan()
    first = replace(plan.steps[0], free_after=(plan.steps[0].slots[0],))
    with pytest.raises(PlanError, match="does not hold"):
        check_plan(graph, calls, replace(plan, steps=(first, *plan.steps[1:])), compiled)


def test_another_result_is_found() -> None:
    graph, calls, plan, compiled = _a_plan()
    with pytest.raises(PlanError):
        check_plan(graph, calls, replace(plan, results=(plan.steps[0].slots[0],)), compiled)


def test_memory_that_is_too_small_is_found() -> None:
    graph, calls, plan, compiled = _a_plan()
    made = tuple([replace(info, size=info.size - 1) for info in plan.made])
    with pytest.raises(PlanError, match="has 63"):
        check_plan(graph, calls, replace(plan, made=made), compiled)


def test_swapped_buffers_of_a_call_are_found() -> None:
    graph, calls, plan, compiled = _a_plan()
    call = calls.src[-1]
    turned = call.replace(src=(*call.src[:2], *call.src[:1:-1]))
    with pytest.raises(PlanError, match="value of its root"):
        check_plan(graph, calls.replace(src=(*calls.src[:-1], turned)), plan, compiled)


def test_result_over_an_input_that_is_read_later_is_found() -> None:
    graph, calls, plan, compiled = _a_plan()
    early = calls.src[0]
    written = early.src[1]
    over = next(
        b for call in calls.src[1:] for b in call.src[2:]
        if b.src[0].arg >= 0 and (b.dtype, b.arg) == (written.dtype, written.arg)
    )  # fmt: skip
    moved = [
        call.replace(src=tuple([over if s is written else s for s in call.src]))
        for call in calls.src
    ]
    with pytest.raises(PlanError, match="value of its root"):
        check_plan(graph, calls.replace(src=tuple(moved)), plan, compiled)


# -- before the cut, and memory that is shared --------------------------------------------------


def _long_sum(op: Ops) -> tuple[UOp, UOp]:
    """A long reduction over two of three axes, and the same in parts."""
    memory = UOp(
        Ops.BUFFER,
        dtypes.float32,
        (UOp(Ops.UNIQUE, dtypes.void, (), 0), UOp(Ops.DEVICE, dtypes.void, (), "CPU")),
        3 << 16,
    )
    value = UOp(Ops.RESHAPE, dtypes.float32, (memory,), (1 << 8, 3, 1 << 8))
    whole = UOp.sink(UOp(Ops.REDUCE_AXIS, dtypes.float32, (value,), (op, (0, 2))))
    return whole, split_long_reductions(whole)


@pytest.mark.parametrize("op", [Ops.ADD, Ops.MAX])
def test_reduction_in_parts_is_proved(op: Ops) -> None:
    whole, parts = _long_sum(op)
    assert whole is not parts
    check_parts(whole, parts, every=True)


def _changed(parts: UOp, node: UOp, **change: Any) -> UOp:
    return parts.substitute({node: node.replace(**change)})


def test_other_results_of_a_part_are_found() -> None:
    """The same elements, reduced into the same number of results, but not into their own."""
    whole, parts = _long_sum(Ops.ADD)
    blocks = next(n for n in toposort((parts,)) if n.op is Ops.RESHAPE and len(n.shape) == 4)
    turned = UOp(Ops.PERMUTE, blocks.dtype, (blocks.src[0],), (2, 1, 0))
    with pytest.raises(PlanError):
        check_parts(whole, _changed(parts, blocks, src=(turned,)), every=True)


def test_other_operation_of_a_part_is_found() -> None:
    whole, parts = _long_sum(Ops.MAX)
    outer = [n for n in toposort((parts,)) if n.op is Ops.REDUCE_AXIS][-1]
    with pytest.raises(PlanError, match="REDUCE_AXIS in a reduction by MAX"):
        check_parts(whole, _changed(parts, outer, arg=(Ops.ADD, outer.arg[1])), every=True)


def _sum_with_a_rest(*shape: int, axes: tuple[int, ...]) -> tuple[UOp, UOp]:
    """A long sum of floats whose length no part divides, and the same in parts."""
    memory = UOp(
        Ops.BUFFER,
        dtypes.float32,
        (UOp(Ops.UNIQUE, dtypes.void, (), 0), UOp(Ops.DEVICE, dtypes.void, (), "CPU")),
        math.prod(shape),
    )
    value = UOp(Ops.RESHAPE, dtypes.float32, (memory,), shape)
    whole = UOp.sink(UOp(Ops.REDUCE_AXIS, dtypes.float32, (value,), (Ops.ADD, axes)))
    return whole, split_long_reductions(whole)


RESTS = {
    "one axis": ((100_003,), (0,)),
    "with results": ((3, 70_001), (1,)),
    "one by one": ((35_003, 2), (0,)),
    "rests of rests": ((300_007, 2), (0,)),
    "both axes": ((257, 509), (0, 1)),
}


@pytest.mark.parametrize("every", [False, True], ids=["some", "every"])
@pytest.mark.parametrize("case", RESTS)
def test_sum_with_a_rest_takes_each_element_once(case: str, every: bool) -> None:
    shape, axes = RESTS[case]
    whole, parts = _sum_with_a_rest(*shape, axes=axes)
    sums = [n for n in toposort((parts,)) if n.op is Ops.ADD]
    assert sums
    every &= math.prod(shape) < 1 << 18  # all elements of few, some of many
    check_parts(whole, parts, every)
    for total in sums:
        head, rest = total.src
        end = rest.src[0]
        (axis,) = [a for a, (begin, _) in enumerate(end.arg) if begin]
        begin, size = end.arg[axis]
        ends = {
            "twice": [*end.arg[:axis], (begin - 1, size - 1), *end.arg[axis + 1 :]],
            "shorter": [*end.arg[:axis], (begin, size - 1), *end.arg[axis + 1 :]],
        }
        wrong = {
            "lost": parts.substitute({total: head}),
            "lost head": parts.substitute({total: rest}),
            "doubled": parts.substitute({total: UOp(Ops.ADD, total.dtype, (total, rest))}),
        } | {
            name: parts.substitute({end: end.replace(arg=tuple(arg))})
            for name, arg in ends.items()
            if name == "twice" or size - begin > 1
        }
        for changed in wrong.values():
            assert changed is not parts
            with pytest.raises(
                PlanError, match="is left out|is taken in 2 times|RESHAPE became SHRINK"
            ):
                check_parts(whole, changed, every)
        with pytest.raises(PlanError, match="MAX in a reduction by ADD"):
            check_parts(whole, parts.substitute({total: total.replace(op=Ops.MAX)}), every)


def test_graph_that_rules_made_wrong_is_found(check: ValueChecker) -> None:
    x = UOp(
        Ops.BUFFER,
        dtypes.float32,
        (UOp(Ops.UNIQUE, dtypes.void, (), 0), UOp(Ops.DEVICE, dtypes.void, (), "CPU")),
        12,
    )
    a, b = [UOp(Ops.FLIP, dtypes.float32, (x,), (flipped,)) for flipped in (True, False)]
    with pytest.raises(PlanError, match="another value"):
        compare_graphs(UOp.sink(a), UOp.sink(b), drawn, 10_000)
    assert compare_graphs(
        UOp.sink(a), UOp.sink(UOp(Ops.FLIP, dtypes.float32, (b,), (True,))), drawn, 10_000
    )


def test_buffers_that_share_memory_at_one_time_are_found() -> None:
    info = BufferInfo(dtypes.float32, 8, "REFERENCE")
    made = {k: info for k in range(1, 5)}
    steps = [
        Step(None, (1, 0), ()),
        Step(None, (2, 1), ()),
        Step(None, (3, 2), ()),
        Step(None, (4, 3), ()),
    ]
    arena = make_arena(steps, list(made.values()), 1, ())
    check_arena(made, steps, arena)
    assert len({id(handle) for handle in arena.memory.values()}) < 4
    for slot in range(1, 4):
        shared = replace(arena, memory=arena.memory | {slot + 1: arena.memory[slot]})
        with pytest.raises(PlanError, match="share memory"):
            check_arena(made, steps, shared)
    small = replace(arena, room=arena.room | {2: (31, "REFERENCE")})
    with pytest.raises(PlanError, match="has 31"):
        check_arena(made, steps, small)


@pytest.mark.parametrize(
    "compute",
    [
        lambda x, y: x[1][x[0].topk(3)[1]] + x[0].topk(3)[0],
        lambda x, y: y[(x > 0).sum(1)],
        lambda x, y: x.gather(1, x.argsort()[:, :2]),
    ],
)
def test_positions_that_are_looked_at_leave_the_kernels_as_they_are(
    compute: Callable[[Tensor, Tensor], Tensor],
) -> None:
    """What was computed only to look at it is not there for the run: that has the kernels that it has without CHECK."""
    counts = []
    for check in (0, 1):
        with Context(CHECK=check):
            x, y = Tensor(numbers(6, 6)).realize(), Tensor(numbers(7, 3)).realize()
            before = GlobalCounters.kernel_count
            compute(x, y).realize()
            counts.append(GlobalCounters.kernel_count - before)
    assert counts[0] == counts[1]


def test_threads_that_look_at_positions_leave_each_other_and_themselves_as_they_were() -> None:
    """With one mark for all, that of a thread that ended last stayed: nothing was kept from then on."""
    inside, may_end = threading.Event(), threading.Event()

    def look() -> None:
        with unnoted():
            inside.set()
            may_end.wait()

    thread = threading.Thread(target=look)
    with unnoted():
        thread.start()
        inside.wait()
    may_end.set()
    thread.join()
    value = Tensor(numbers(5)).exp()
    note_run([value.uop])
    assert values_to_keep([value.uop.alu(Ops.ADD, value.uop)]) == [value.uop]


@pytest.mark.parametrize(
    ("op", "other", "allowed"),
    [(Ops.MUL, 2.0**-1000, True), (Ops.FDIV, 2.0**1000, True), (Ops.MUL, 0.0, False)],
)
def test_errors_of_the_smallest_numbers_are_not_lost(op: Ops, other: float, allowed: bool) -> None:
    """What a rounding error comes to may be less than the smallest number, and still decide how a product is rounded; of a factor 0 it decides nothing."""
    float64 = dtypes.float64
    rounded = Estimate(numpy.array([2.0**-73]), numpy.array([2.0**-126]))
    found = estimate(op, float64, (rounded, Estimate(numpy.array([other]))), (float64, float64))
    beside = found.values + 2.0**-1074
    assert found.agrees(found.values, float64).all()
    assert found.agrees(beside, float64).all() == allowed
