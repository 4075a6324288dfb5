"""The procedures that compute exp2, log2, sin, cos and small floats: their bits, bounds and shapes.

Owns: validation of core/compile/math/transcendental.py, sine.py and promote.py against numpy and the
reference meaning. Does not own: the complete measurement (benchmarks/ulp_check.py), of which the
samples here are a small part.
"""

from __future__ import annotations

import importlib.util
import math
import random
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy
import pytest
from function_bounds import WITHOUT_FMA

from proofgrad import Device, Tensor
from proofgrad.backends.opencl import backend as opencl_backend
from proofgrad.core.compile.lowering.promote import SMALL_FLOATS, promote_small_floats
from proofgrad.core.compile.machine.target import DeviceError
from proofgrad.core.compile.math.sine import turn_words
from proofgrad.core.compile.math.transcendental import expand_transcendentals
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.evaluate import evaluate, evaluate_lanes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp

ROOT = Path(__file__).parent.parent
FUNCTIONS = (Ops.EXP2, Ops.EXP, Ops.LOG2, Ops.SIN, Ops.COS)
WIDE_FLOATS = (dtypes.float32, dtypes.float64)
ULP_BOUND = {
    (Ops.EXP2, dtypes.float32): 0.88,
    (Ops.EXP2, dtypes.float64): 0.9,
    (Ops.EXP, dtypes.float32): 1.7,
    (Ops.EXP, dtypes.float64): 1.6,
    (Ops.LOG2, dtypes.float32): 0.94,
    (Ops.LOG2, dtypes.float64): 1.0,
    (Ops.SIN, dtypes.float32): 0.501,
    (Ops.SIN, dtypes.float64): 1.5,
    (Ops.COS, dtypes.float32): 0.501,
    (Ops.COS, dtypes.float64): 1.5,
}  # as docs/numerics.md publishes them
BUILT_BOUND = {
    "log": 1.8, "log10": 2.2, "expm1": 3.0, "log1p": 2.5, "sigmoid": 3.2, "softplus": 3.8,
    "tanh": 3.6, "sinh": 5.8, "cosh": 5.8, "asinh": 2.9, "acosh": 2.7, "atanh": 3.4, "atan": 3.1,
    "asin": 3.9, "acos": 3.7, "erf": 3.3,
}  # fmt: skip
SAMPLES = 20_000
ROUNDED_EXACTLY = {
    Ops.ADD, Ops.MUL, Ops.FDIV, Ops.NEG, Ops.TRUNC, Ops.CAST, Ops.BITCAST, Ops.AND, Ops.OR, Ops.XOR,
    Ops.SHL, Ops.SHR, Ops.CMPLT, Ops.CMPEQ, Ops.WHERE, Ops.FMA, Ops.CONST, Ops.BROADCAST,
    Ops.LOAD, Ops.NOT,
}  # fmt: skip


def _module(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


ULP_CHECK = _module("benchmarks/ulp_check.py")


def leaf(dtype: DType, number: int = 0) -> UOp:
    """A value from outside, told apart by its number."""
    return UOp(Ops.LOAD, dtype, (), number)


def value_of(root: UOp, leaves: dict[UOp, Any]) -> Any:
    """The value of a graph by the reference meaning of each operation."""
    values = dict(leaves)
    for node in root.toposort():
        if node in values:
            continue
        if node.op is Ops.BROADCAST:
            values[node] = (values[node.src[0]],) * node.dtype.lanes
            continue
        args = [values[s] for s in node.src]
        types = [s.dtype for s in node.src]
        values[node] = evaluate_lanes(node.op, node.dtype, args, types, node.arg)
    return values[root]


def expansion(op: Ops, dtype: DType) -> UOp:
    return expand_transcendentals(UOp(op, dtype, (leaf(dtype),)))


def same(a: float, b: float) -> bool:
    """The same bits, up to which NaN it is."""
    return (math.isnan(a) and math.isnan(b)) or a.hex() == b.hex()


# -- exp2, log2, sin ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", WIDE_FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize(
    ("op", "x", "expected"),
    [
        (Ops.EXP2, 0.0, 1.0),
        (Ops.EXP2, -0.0, 1.0),
        (Ops.EXP2, 10.0, 1024.0),
        (Ops.EXP2, -126.0, 2.0**-126),
        (Ops.EXP2, -149.0, 2.0**-149),
        (Ops.EXP2, 1024.0, math.inf),
        (Ops.EXP2, -1076.0, 0.0),
        (Ops.EXP2, math.inf, math.inf),
        (Ops.EXP2, -math.inf, 0.0),
        (Ops.EXP2, math.nan, math.nan),
        (Ops.EXP, 0.0, 1.0),
        (Ops.EXP, -0.0, 1.0),
        (Ops.EXP, 2.0**-149, 1.0),
        (Ops.EXP, 710.0, math.inf),
        (Ops.EXP, 3e38, math.inf),
        (Ops.EXP, -746.0, 0.0),
        (Ops.EXP, -3e38, 0.0),
        (Ops.EXP, math.inf, math.inf),
        (Ops.EXP, -math.inf, 0.0),
        (Ops.EXP, math.nan, math.nan),
        (Ops.LOG2, 1.0, 0.0),
        (Ops.LOG2, 0.5, -1.0),
        (Ops.LOG2, 2.0**-149, -149.0),
        (Ops.LOG2, 2.0**127, 127.0),
        (Ops.LOG2, 0.0, -math.inf),
        (Ops.LOG2, -0.0, -math.inf),
        (Ops.LOG2, -1.0, math.nan),
        (Ops.LOG2, -math.inf, math.nan),
        (Ops.LOG2, math.inf, math.inf),
        (Ops.LOG2, math.nan, math.nan),
        (Ops.SIN, 0.0, 0.0),
        (Ops.SIN, -0.0, -0.0),
        (Ops.SIN, 2.0**-149, 2.0**-149),
        (Ops.SIN, math.inf, math.nan),
        (Ops.SIN, -math.inf, math.nan),
        (Ops.SIN, math.nan, math.nan),
        (Ops.COS, 0.0, 1.0),
        (Ops.COS, -0.0, 1.0),
        (Ops.COS, 2.0**-149, 1.0),
        (Ops.COS, math.inf, math.nan),
        (Ops.COS, -math.inf, math.nan),
        (Ops.COS, math.nan, math.nan),
    ],
)
def test_function_of_special_value_is_exact(
    op: Ops, x: float, expected: float, dtype: DType
) -> None:
    assert same(value_of(expansion(op, dtype), {leaf(dtype): x}), expected)


def test_exp2_and_log2_of_every_exponent_are_exact() -> None:
    for dtype, low, high in ((dtypes.float32, -149, 127), (dtypes.float64, -1074, 1023)):
        whole = numpy.arange(low, high + 1)
        kind = ULP_CHECK.STORAGES[dtype].values
        powers = numpy.ldexp(kind(1), whole)
        assert (ULP_CHECK.run_on_cpu(Ops.EXP2, dtype)(whole.astype(kind)) == powers).all()
        assert (ULP_CHECK.run_on_cpu(Ops.LOG2, dtype)(powers) == whole).all()


@pytest.mark.parametrize(("op", "dtype"), ULP_BOUND, ids=lambda v: getattr(v, "name", None))
def test_function_on_sample_keeps_published_bound(op: Ops, dtype: DType) -> None:
    with numpy.errstate(all="ignore"):
        for bits in ULP_CHECK.bit_patterns(dtype, False, SAMPLES):
            x = ULP_CHECK.from_bits(bits, dtype)
            errors, wrong = ULP_CHECK.ulp_errors(op, dtype, x)
            assert not wrong.any()
            assert errors.max() <= ULP_BOUND[op, dtype]


@pytest.mark.parametrize("dtype", sorted(SMALL_FLOATS, key=lambda d: d.name), ids=lambda d: d.name)
@pytest.mark.parametrize("op", FUNCTIONS, ids=lambda o: o.name)
def test_function_on_every_small_float_keeps_published_bound(op: Ops, dtype: DType) -> None:
    with numpy.errstate(all="ignore"):
        for bits in ULP_CHECK.bit_patterns(dtype, False, 0):
            errors, wrong = ULP_CHECK.ulp_errors(op, dtype, ULP_CHECK.from_bits(bits, dtype))
            assert not wrong.any()
            assert errors.max() <= 0.501


@pytest.mark.parametrize(
    ("x", "sine"),
    [  # the first is the double nearest to a multiple of pi / 2 (W. Kahan, 1983)
        (6381956970095103.0 * 2.0**797, None),
        (5319372648326541.0 * 2.0**2, None),
        (1e22, -0.8522008497671888),
        (2.0**1023, 0.5631277798508840),
    ],
)
def test_sine_of_huge_double_is_right(x: float, sine: float | None) -> None:
    got = value_of(expansion(Ops.SIN, dtypes.float64), {leaf(dtypes.float64): x})
    assert got == pytest.approx(_exact_sine(x), rel=3e-16, abs=0)
    assert sine is None or got == pytest.approx(sine, rel=3e-16, abs=0)


def _exact_sine(x: float) -> float:
    """By the words of 1 / 2pi is what is tested; here by the remainder of exact fractions."""
    digits = 420
    unit = 10**digits
    pi = _pi(unit)
    turn = 2 * pi
    angle = (int(x) * unit) % turn
    angle = angle - turn if angle > pi else angle
    term, total, k = angle, 0, 1
    while term:
        total += term
        term = -term * angle // unit * angle // unit // ((2 * k) * (2 * k + 1))
        k += 1
    return total / unit


def _pi(unit: int) -> int:
    """By the arithmetic-geometric mean (Gauss, Legendre), not by the series that sine.py uses."""
    unit *= 10**10
    a, b, t, p = unit, math.isqrt(unit * unit // 2), unit // 4, 1
    for _ in range(12):
        mean = (a + b) // 2
        b = math.isqrt(a * b)
        t -= p * (a - mean) * (a - mean) // unit
        a, p = mean, 2 * p
    return (a + b) * (a + b) // (4 * t) // 10**10


def test_turn_words_begin_with_the_bits_of_one_over_two_pi() -> None:
    digits = turn_words()
    assert digits[:2] == (0, 0)
    assert digits[2] == 0x28BE60DB9391054A  # 1 / 2pi = 0.28BE60DB 9391054A ... in base 16
    assert len(digits) == 21
    bits = 64 * len(digits[2:])
    number = sum([word << (bits - 64 * (k + 1)) for k, word in enumerate(digits[2:])])
    guarded = bits + 64
    assert number == ((1 << 2 * guarded) // (2 * _pi(1 << guarded))) >> 64


@pytest.mark.parametrize("op", FUNCTIONS, ids=lambda o: o.name)
@pytest.mark.parametrize("dtype", WIDE_FLOATS, ids=lambda d: d.name)
def test_expansion_of_vector_gives_the_scalar_bits_in_each_lane(op: Ops, dtype: DType) -> None:
    lanes = (0.7, -3.25, 1e6, 1e-40)
    vector = dtype.vec(4)
    got = value_of(expansion(op, vector), {leaf(vector): lanes})
    for x, lane in zip(lanes, got):
        assert same(lane, value_of(expansion(op, dtype), {leaf(dtype): x}))


@pytest.mark.parametrize("op", FUNCTIONS, ids=lambda o: o.name)
@pytest.mark.parametrize("dtype", dtypes.floats, ids=lambda d: d.name)
def test_expansion_uses_only_correctly_rounded_operations_once(op: Ops, dtype: DType) -> None:
    root = expansion(op, dtype.vec(4))
    assert {node.op for node in root.toposort()} <= ROUNDED_EXACTLY
    assert expand_transcendentals(root) is root


def test_expansion_leaves_native_functions() -> None:
    x = leaf(dtypes.float32)
    root = x.alu(Ops.EXP2) + x.alu(Ops.SIN)
    kept = expand_transcendentals(root, frozenset({Ops.EXP2}))
    assert Ops.EXP2 in {node.op for node in kept.toposort()}
    assert Ops.SIN not in {node.op for node in kept.toposort()}


@pytest.mark.parametrize("op", FUNCTIONS, ids=lambda o: o.name)
@pytest.mark.parametrize("dtype", WIDE_FLOATS, ids=lambda d: d.name)
def test_cpu_numpy_and_reference_run_an_expansion_to_the_same_bits(op: Ops, dtype: DType) -> None:
    patterns = list(ULP_CHECK.bit_patterns(dtype, False, SAMPLES))[-2:]
    x = numpy.concatenate([ULP_CHECK.from_bits(bits[::16], dtype) for bits in patterns])
    with numpy.errstate(all="ignore"):
        fast = ULP_CHECK.run_with_numpy(op, dtype, x)
        assert_same_values(ULP_CHECK.run_on_cpu(op, dtype)(x), fast)
    root = expansion(op, dtype)
    for argument, value in zip(x[::64].tolist(), fast[::64].tolist()):
        assert same(value_of(root, {leaf(dtype): argument}), value)


@pytest.mark.parametrize("op", FUNCTIONS, ids=lambda o: o.name)
@pytest.mark.parametrize("dtype", WIDE_FLOATS, ids=lambda d: d.name)
def test_opencl_gives_the_bits_of_the_cpu(op: Ops, dtype: DType) -> None:
    try:
        run_on_opencl = ULP_CHECK.run_on(opencl_backend(), op, dtype)
    except DeviceError as error:
        pytest.skip(f"no OpenCL here: {error}")
    for bits in ULP_CHECK.bit_patterns(dtype, False, SAMPLES):
        x = ULP_CHECK.from_bits(bits, dtype)
        assert_same_values(run_on_opencl(x), ULP_CHECK.run_on_cpu(op, dtype)(x))


@pytest.mark.parametrize("dtype", (dtypes.float16, *WIDE_FLOATS), ids=lambda d: d.name)
@pytest.mark.parametrize("name", BUILT_BOUND)
def test_function_of_tensor_on_sample_keeps_its_bound(name: str, dtype: DType) -> None:
    with numpy.errstate(all="ignore"):
        patterns = list(ULP_CHECK.bit_patterns(dtype, False, SAMPLES))[-2:]
        x = numpy.concatenate([ULP_CHECK.from_bits(bits, dtype) for bits in patterns])
        errors, wrong = ULP_CHECK.built_ulp_errors(name, dtype, x)
    assert not wrong.any()
    is_fused = not Device["CPU"].target.calls_fma
    assert errors.max() <= BUILT_BOUND[name] * (1.0 if is_fused else WITHOUT_FMA)


@pytest.mark.parametrize(
    ("dtype", "bound"), [(dtypes.float16, 0.501), (dtypes.float32, 0.6), (dtypes.float64, 1100)]
)
def test_power_of_tensors_keeps_its_bound(dtype: DType, bound: float) -> None:
    with numpy.errstate(all="ignore"):
        for x, y in list(ULP_CHECK.power_pairs(dtype, SAMPLES))[-4:]:
            errors, wrong = ULP_CHECK.pow_ulp_errors(dtype, x, y)
            assert not wrong.any()
            assert errors.max() <= bound


@pytest.mark.parametrize("x", [0.5, 1000.0, 123456.0, 3e38])
def test_cosine_of_tensor_is_near_for_any_angle(x: float) -> None:
    angle = numpy.array([x], numpy.float32)
    assert abs(float(Tensor(angle).cos().numpy()[0]) - math.cos(float(angle[0]))) < 1.8e-7


def test_gradient_of_exp_is_exp() -> None:
    x = Tensor([0.5, -3.0, 20.0])
    x.exp().sum().backward()
    assert x.grad.numpy() == pytest.approx(numpy.exp([0.5, -3.0, 20.0]), rel=1e-6)


# -- small floats -------------------------------------------------------------------------------


def every_small_float(dtype: DType) -> Any:
    return ULP_CHECK.from_bits(numpy.arange(1 << 16, dtype=numpy.uint16), dtype)


def small_float_sample(dtype: DType) -> Any:
    """Each 61st pattern, and those around zero, one, the smallest normal and infinity."""
    bits = set(range(0, 1 << 16, 61))
    for middle in (0, 0x0080, 0x0400, 0x3C00, 0x3F80, 0x7BFF, 0x7F80, 0x7C00):
        bits |= {(middle + k + sign) % (1 << 16) for k in range(-6, 7) for sign in (0, 0x8000)}
    return ULP_CHECK.from_bits(numpy.array(sorted(bits), dtype=numpy.uint16), dtype)


def promoted_values(op: Ops, dtype: DType, *args: Any) -> Any:
    """The promoted graph of one operation, run with numpy."""
    leaves = [leaf(dtype, k) for k in range(len(args))]
    root = promote_small_floats(leaves[0].alu(op, *leaves[1:]))
    values: dict[UOp, Any] = dict(zip(leaves, args))
    for node in root.toposort():
        if node not in values:
            sources = [values[s] for s in node.src]
            values[node] = ULP_CHECK.numpy_value(node, sources)
    return values[root]


def assert_same_values(got: Any, expected: Any) -> None:
    equal = (got == expected) & (numpy.signbit(got) == numpy.signbit(expected))
    equal |= numpy.isnan(got) & numpy.isnan(expected)
    assert equal.all(), (got[~equal][:5], expected[~equal][:5])


@pytest.mark.parametrize("op", [Ops.ADD, Ops.MUL, Ops.FDIV], ids=lambda o: o.name)
@pytest.mark.parametrize("dtype", sorted(SMALL_FLOATS, key=lambda d: d.name), ids=lambda d: d.name)
def test_promoted_operation_on_pairs_is_rounded_once(op: Ops, dtype: DType) -> None:
    sample = small_float_sample(dtype)
    x, y = sample[:, None], sample[None, :]
    operation = {Ops.ADD: numpy.add, Ops.MUL: numpy.multiply, Ops.FDIV: numpy.divide}[op]
    with numpy.errstate(all="ignore"):
        got = promoted_values(op, dtype, x, y)
        if dtype is dtypes.float16:
            expected = operation(x, y)  # numpy rounds float16 itself
        else:  # float64 is wide enough, by far, to be rounded once more without harm
            expected = _nearest_bfloat16(operation(x.astype(numpy.float64), y))
        assert_same_values(got, expected)


def _nearest_bfloat16(values: Any) -> Any:
    """Doubles rounded to bfloat16 at once: to a multiple of its unit there, halves to even."""
    safe = numpy.where(numpy.isfinite(values), values, 0)
    unit = numpy.maximum(numpy.frexp(safe)[1] - 8, -133)
    rounded = numpy.ldexp(numpy.rint(numpy.ldexp(safe, -unit)), unit)
    rounded = numpy.where(numpy.abs(rounded) >= 2.0**128, numpy.copysign(numpy.inf, safe), rounded)
    rounded = numpy.copysign(rounded, values)
    return numpy.where(numpy.isfinite(values), rounded, values).astype(numpy.float32)


@pytest.mark.parametrize("dtype", sorted(SMALL_FLOATS, key=lambda d: d.name), ids=lambda d: d.name)
def test_promoted_unary_operations_on_every_value_are_exact(dtype: DType) -> None:
    x = every_small_float(dtype)
    with numpy.errstate(all="ignore"):
        root = numpy.sqrt(x.astype(numpy.float64))
        exact = _nearest_bfloat16(root) if dtype is dtypes.bfloat16 else root.astype(x.dtype)
        assert_same_values(promoted_values(Ops.SQRT, dtype, x), exact)
        assert_same_values(promoted_values(Ops.NEG, dtype, x), -x)
        assert_same_values(promoted_values(Ops.TRUNC, dtype, x), numpy.trunc(x))


def random_graph(dtype: DType, numbers: random.Random, leaves: list[UOp]) -> UOp:
    """A graph of twelve operations on `dtype` over `leaves`."""
    nodes = list(leaves)
    for _ in range(12):
        x, y, z = (numbers.choice(nodes) for _ in range(3))
        made = (
            x + y, x * y, x / y, -x, x.maximum(y), x.minimum(y), x.alu(Ops.SQRT), x.alu(Ops.TRUNC),
            (x < y).where(z, x), x.eq(y).where(y, z), x.cast(dtypes.float32).cast(dtype),
            x.alu(Ops.FMA, y, z),
        )  # fmt: skip
        nodes.append(numbers.choice(made))
    return nodes[-1]


@pytest.mark.parametrize("dtype", sorted(SMALL_FLOATS, key=lambda d: d.name), ids=lambda d: d.name)
def test_promoted_fma_is_rounded_once(dtype: DType) -> None:
    numbers = random.Random(5)
    sample = small_float_sample(dtype).tolist()
    rows = [tuple(numbers.choices(sample, k=3)) for _ in range(3000)]
    middle = (9.0, 29.0) if dtype is dtypes.bfloat16 else (14.0, 439.0)
    above = 262.0 if dtype is dtypes.bfloat16 else 6148.0
    tiny = 2.0**-133 if dtype is dtypes.bfloat16 else 2.0**-24
    rows += [(*middle, term) for term in (tiny, -tiny, 0.0)]
    leaves = [leaf(dtype, k) for k in range(3)]
    promoted = promote_small_floats(leaves[0].alu(Ops.FMA, *leaves[1:]))
    got = [value_of(promoted, dict(zip(leaves, row))) for row in rows]
    for row, value in zip(rows, got):
        assert same(value, evaluate(Ops.FMA, dtype, row)), row
    below = 260.0 if dtype is dtypes.bfloat16 else 6144.0
    assert got[-3:] == [above, below, below]


@pytest.mark.parametrize("dtype", sorted(SMALL_FLOATS, key=lambda d: d.name), ids=lambda d: d.name)
def test_promoting_random_graphs_changes_no_bit(dtype: DType) -> None:
    numbers = random.Random(11)
    sample = small_float_sample(dtype).tolist()
    leaves = [leaf(dtype, k) for k in range(3)]
    for _ in range(200):
        root = random_graph(dtype, numbers, leaves)
        promoted = promote_small_floats(root)
        values = {node: numbers.choice(sample) for node in leaves}
        assert same(value_of(root, values), value_of(promoted, values))


@pytest.mark.parametrize("dtype", sorted(SMALL_FLOATS, key=lambda d: d.name), ids=lambda d: d.name)
def test_promoted_graph_has_no_small_arithmetic_and_stays(dtype: DType) -> None:
    numbers = random.Random(3)
    vector = dtype.vec(8)
    x, y = leaf(vector, 0), leaf(vector, 1)
    roots = [random_graph(dtype, numbers, [leaf(dtype, k) for k in range(3)]) for _ in range(20)]
    roots += [x.alu(Ops.MULACC, y, x), x.alu(Ops.FMA, y, x)]
    roots += [UOp(Ops.HREDUCE, dtype, (x,), Ops.ADD), x.alu(Ops.SIN)]
    for root in roots:
        promoted = promote_small_floats(root)
        assert promote_small_floats(promoted) is promoted
        assert promoted.dtype is root.dtype
        for node in promoted.toposort():
            if node.op not in (Ops.CAST, Ops.WHERE, Ops.LOAD, Ops.CONST):
                assert all(s.dtype.scalar not in SMALL_FLOATS for s in node.src), node.op


def test_procedures_walk_graphs_deeper_than_the_stack() -> None:
    x = leaf(dtypes.float16)
    root = x
    for _ in range(5_000):
        root = root + x
    assert promote_small_floats(root.alu(Ops.SIN)).dtype is dtypes.float16
    assert expand_transcendentals(root.alu(Ops.SIN)).dtype is dtypes.float16


# -- what is published --------------------------------------------------------------------------


def test_published_bounds_are_those_tested() -> None:
    page = (ROOT / "docs/numerics.md").read_text()
    for (op, dtype), bound in ULP_BOUND.items():
        row = re.search(
            rf"^\| {op.name.lower()} \| {dtype.name} \| ([\d.]+) \|", page, re.MULTILINE
        )
        assert row is not None, (op, dtype)
        assert float(row[1]) == bound
