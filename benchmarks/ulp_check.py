"""Measures the errors of functions of floats in ULP: the bounds of docs/numerics.md are its output.

Owns: the reference values, the samples, and the measure. Does not own: the functions themselves
(core/compile/math/transcendental.py), whose graphs it compiles for the CPU. `run_with_numpy` runs them
operation by operation instead; tests compare the two. Functions built from these are
run as a user runs them, on Tensors.

    python benchmarks/ulp_check.py          # every float16 and bfloat16, samples of the others
    python benchmarks/ulp_check.py --all    # all 2**32 float32 values as well: minutes a function
    python benchmarks/ulp_check.py --all --only tanh erf

References: float64 for the small formats and float32, the 64-bit significands of x87 for float64
(both from the C library, whose own error is a thousandth of the ULPs measured here).
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy

from proofgrad import Tensor, TinyJit
from proofgrad.backends.cpu import backend as cpu_backend
from proofgrad.backends.cpu.codegen import Host
from proofgrad.core.compile.machine.target import Backend, Target
from proofgrad.core.compile.math.transcendental import expand_transcendentals
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import APPROXIMATED, ELEMENTS, Ops
from proofgrad.core.ir.uop import AxisRole, UOp

CHUNK = 1 << 15  # its arrays fit the cache
SAMPLES = 1 << 22
BUILT_SAMPLES = 1 << 20
FUNCTIONS = {
    Ops.EXP2: numpy.exp2,
    Ops.EXP: numpy.exp,
    Ops.LOG2: numpy.log2,
    Ops.SIN: numpy.sin,
    Ops.COS: numpy.cos,
}
BUILT_TYPES = (dtypes.float16, dtypes.float32, dtypes.float64)
BUILT = {
    "log": numpy.log,
    "log10": numpy.log10,
    "expm1": numpy.expm1,
    "log1p": numpy.log1p,
    "sigmoid": lambda x: 1 / (1 + numpy.exp(-x)),
    "softplus": lambda x: numpy.logaddexp(x, 0),
    "tan": numpy.tan,
    "tanh": numpy.tanh,
    "sinh": numpy.sinh,
    "cosh": numpy.cosh,
    "asinh": numpy.arcsinh,
    "acosh": numpy.arccosh,
    "atanh": numpy.arctanh,
    "atan": numpy.arctan,
    "asin": numpy.arcsin,
    "acos": numpy.arccos,
    "erf": lambda x: c_function("erf", x),
}


@dataclass(frozen=True, slots=True)
class Storage:
    """How numpy holds a format: bfloat16 is float32 with 16 bits cut off."""

    values: Any
    bits: Any
    reference: Any
    fraction_bits: int
    smallest_exponent: int


STORAGES: dict[DType, Storage] = {
    dtypes.float16: Storage(numpy.float16, numpy.uint16, numpy.float64, 10, -14),
    dtypes.bfloat16: Storage(numpy.float32, numpy.uint16, numpy.float64, 7, -126),
    dtypes.float32: Storage(numpy.float32, numpy.uint32, numpy.float64, 23, -126),
    dtypes.float64: Storage(numpy.float64, numpy.uint64, numpy.longdouble, 52, -1022),
}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--all", action="store_true", help="all 2**32 values of float32")
    options.add_argument("--samples", type=int, default=SAMPLES, help="values of the wide formats")
    names = [*[op.name.lower() for op in FUNCTIONS], *BUILT, "pow"]
    options.add_argument("--only", nargs="+", choices=names, default=names, metavar="FUNCTION")
    chosen = options.parse_args()
    numpy.seterr(all="ignore")
    failures = 0
    for op in FUNCTIONS:
        for dtype in STORAGES if op.name.lower() in chosen.only else ():
            values = values_of(dtype, chosen.all, chosen.samples)
            results = ((x, *ulp_errors(op, dtype, x)) for x in values)
            failures += report(op.name.lower(), dtype, results)
    for name in BUILT:
        for dtype in BUILT_TYPES if name in chosen.only else ():
            values = values_of(dtype, chosen.all, min(chosen.samples, BUILT_SAMPLES))
            results = ((x, *built_ulp_errors(name, dtype, x)) for x in values)
            failures += report(name, dtype, results)
    for dtype in BUILT_TYPES if "pow" in chosen.only else ():
        pairs = power_pairs(dtype, min(chosen.samples, BUILT_SAMPLES))
        failures += report("pow", dtype, ((x, *pow_ulp_errors(dtype, x, y)) for x, y in pairs))
    return 1 if failures else 0


def values_of(dtype: DType, is_complete: bool, samples: int) -> Iterator[Any]:
    """Values in arrays of at most CHUNK."""
    return (from_bits(bits, dtype) for bits in bit_patterns(dtype, is_complete, samples))


def report(name: str, dtype: DType, results: Iterator[tuple[Any, Any, Any]]) -> int:
    """Print the largest error; how many special values were wrong."""
    worst = Worst()
    for x, errors, wrong in results:
        worst.add(x, errors, wrong)
    print(worst.line(name, dtype), flush=True)
    return worst.wrong_specials


class Worst:
    """The largest error seen so far, and where."""

    def __init__(self) -> None:
        self.ulps, self.at, self.count, self.wrong_specials = 0.0, 0.0, 0, 0

    def add(self, x: Any, errors: Any, wrong: Any) -> None:
        self.count += len(x)
        self.wrong_specials += int(wrong.sum())
        position = int(errors.argmax())
        if errors[position] > self.ulps:
            self.ulps, self.at = float(errors[position]), float(x[position])

    def line(self, name: str, dtype: DType) -> str:
        return (
            f"{name:7} {dtype.name:9} {self.ulps:6.3f} ULP at {self.at.hex():26}"
            f" {self.count:>11,} values, {self.wrong_specials} wrong special values"
        )


def ulp_errors(op: Ops, dtype: DType, x: Any) -> tuple[Any, Any]:
    """Errors of exp2, exp, log2, sin or cos, and which special values are wrong."""
    exact = FUNCTIONS[op](x.astype(STORAGES[dtype].reference))
    return compare(run_on_cpu(op, dtype)(x), exact, dtype)


def built_ulp_errors(name: str, dtype: DType, x: Any) -> tuple[Any, Any]:
    """Errors of a method of Tensor, and which special values are wrong."""
    exact = BUILT[name](x.astype(STORAGES[dtype].reference))
    value = Tensor(x).realize()
    found = recorded(name, dtype)(value) if len(x) == CHUNK else getattr(value, name)()
    return compare(found.numpy(), exact, dtype)


@functools.cache
def recorded(name: str, dtype: DType) -> Callable[[Tensor], Tensor]:
    """A method on CHUNK values of a type: its graph is made once, which takes longer than its kernel."""
    return TinyJit(lambda x: getattr(x, name)().realize())


def pow_ulp_errors(dtype: DType, x: Any, y: Any) -> tuple[Any, Any]:
    """Errors of x ** y."""
    wide = STORAGES[dtype].reference
    return compare((Tensor(x) ** Tensor(y)).numpy(), c_function("pow", x.astype(wide), y), dtype)


def power_pairs(dtype: DType, samples: int) -> Iterator[tuple[Any, Any]]:
    """Bases with exponents of any size, and with those whose power is neither 0 nor infinite."""
    random = numpy.random.default_rng(7)
    storage = STORAGES[dtype]
    for x in values_of(dtype, False, samples):
        yield x, random.permutation(x)
        size = numpy.log2(numpy.abs(x.astype(storage.reference)))
        least, most = storage.smallest_exponent - storage.fraction_bits, -storage.smallest_exponent
        yield numpy.abs(x), (random.uniform(least, most, len(x)) / size).astype(storage.values)


# Of a type of numpy: its name in LLVM, the last letter of C's functions of it, its bytes in memory.
_C_TYPES = {
    numpy.dtype(numpy.float32): ("float", "f", 4),
    numpy.dtype(numpy.float64): ("double", "", 8),
    numpy.dtype(numpy.longdouble): ("x86_fp80", "l", 16),
}


@functools.cache
def _c_loop(name: str, dtype: Any, arguments: int) -> int:
    """The address of a loop over a function of the C library: table of result and arguments, 0, count."""
    kind, suffix, bytes_ = _C_TYPES[dtype]
    lines, names = [], []
    for k in range(arguments + 1):
        lines.append(f"  %slot{k} = getelementptr ptr, ptr %table, i64 {k}")
        lines.append(f"  %array{k} = load ptr, ptr %slot{k}")
        lines.append(f"  %at{k} = getelementptr [{bytes_} x i8], ptr %array{k}, i64 %i")
        if k:
            lines.append(f"  %x{k} = load {kind}, ptr %at{k}")
            names.append(f"{kind} %x{k}")
    types = ", ".join([kind] * arguments)
    body = "\n".join(lines)
    ir = f"""
declare {kind} @{name}{suffix}({types})
define void @apply(ptr %table, i64 %first, i64 %last) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ %first, %entry ], [ %next, %loop ]
{body}
  %y = call {kind} @{name}{suffix}({", ".join(names)})
  store {kind} %y, ptr %at0
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %last
  br i1 %more, label %loop, label %end
end:
  ret void
}}
"""
    host = Host()
    library = host.link(host.object_code(ir), "apply")
    _HELD.append((host, library))  # the code stays loaded
    return int(library["apply"])


_HELD: list[tuple[Host, Any]] = []


def c_function(name: str, *arguments: Any) -> Any:
    """A function of the C library on arrays, in the widest of their types."""
    kind = numpy.result_type(*arguments)
    shape = numpy.broadcast_shapes(*[numpy.shape(x) for x in arguments])
    arrays = [numpy.ascontiguousarray(numpy.broadcast_to(x, shape), kind) for x in arguments]
    result = numpy.empty_like(arrays[0])
    table = (ctypes.c_void_p * (1 + len(arrays)))(*[x.ctypes.data for x in (result, *arrays)])
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    call(_c_loop(name, kind, len(arrays)))(ctypes.addressof(table), 0, result.size)
    return result


def compare(got: Any, exact: Any, dtype: DType, near: float = 0.0) -> tuple[Any, Any]:
    """Errors in units in the last place, and which NaNs, infinities or zeros are wrong.

    Of results that are smaller than `near` in units in the last place of `near`.
    """
    storage = STORAGES[dtype]
    rounded = round_to(exact, dtype)
    special = ~numpy.isfinite(rounded) | (rounded == 0) | ~numpy.isfinite(got)
    same = (got == rounded) & (numpy.signbit(got) == numpy.signbit(rounded))
    same |= numpy.isnan(got) & numpy.isnan(rounded)
    sizes = numpy.maximum(numpy.abs(numpy.where(special & (near == 0), 1, exact)), near)
    exponent = numpy.frexp(numpy.where(numpy.isfinite(sizes), sizes, 1))[1] - 1
    exponent = numpy.maximum(exponent, storage.smallest_exponent)
    unit = numpy.ldexp(storage.reference(1), exponent - storage.fraction_bits)
    # Near the largest and the smallest number a neighbour of the right value is no mistake.
    errors = numpy.abs(numpy.where(special & same, 0, got.astype(storage.reference) - exact)) / unit
    wrong = special & ~same & ~(errors <= 1)
    return numpy.where(wrong | numpy.isnan(errors), 0, errors), wrong


@functools.cache
def run_on_cpu(op: Ops, dtype: DType) -> Callable[[Any], Any]:
    return run_on(cpu_backend(), op, dtype)


def run_on(machine: Backend, op: Ops, dtype: DType) -> Callable[[Any], Any]:
    """The expansion of `op` compiled for a machine, as a function of at most CHUNK values."""
    source = machine.emit(map_kernel(op, dtype, machine.target), f"{op.name.lower()}_{dtype.name}")
    launch = machine.load(machine.compile(source))
    output, values = (machine.alloc(CHUNK * dtype.itemsize) for _ in range(2))

    def call(x: Any) -> Any:
        bits = to_bits(x, dtype)
        machine.copyin(values, memoryview(bits))
        launch([output, values])
        result = numpy.empty_like(bits)
        machine.copyout(memoryview(result), output)
        return from_bits(result, dtype)

    return call


def map_kernel(op: Ops, dtype: DType, target: Target) -> UOp:
    """Linear: output[i] = op(values[i]) for CHUNK values, in vectors or one a work item."""
    lanes = target.lanes(dtypes.float32)
    role = AxisRole.GLOBAL if target.work_items else AxisRole.LOOP
    output, values = (UOp(Ops.PARAM, dtype, (), (slot, CHUNK)) for slot in range(2))
    size, width = (UOp.const(dtypes.int64, n) for n in (CHUNK // lanes, lanes))
    step = UOp(Ops.RANGE, dtypes.int64, (size,), (0, role))
    first = step * width
    load = UOp(Ops.LOAD, dtype.vec(lanes), (UOp(Ops.INDEX, dtype, (values, first)),))
    value = expand_transcendentals(UOp(op, load.dtype, (load,)))
    store = UOp(Ops.STORE, dtypes.void, (UOp(Ops.INDEX, dtype, (output, first)), value))
    order = store.toposort()
    constants = [n for n in order if n.op is Ops.CONST or n.op is Ops.BROADCAST]
    before = [output, values, *constants, step]
    after = [n for n in order if n not in set(before)]
    return UOp(Ops.LINEAR, dtypes.void, (*before, *after, UOp(Ops.END, dtypes.void, (step,))))


def run_with_numpy(op: Ops, dtype: DType, x: Any) -> Any:
    """The expansion of `op` on the values `x`, done with numpy operation by operation."""
    variable = UOp(Ops.LOAD, dtype)
    root = expand_transcendentals(UOp(op, dtype, (variable,)))
    values: dict[UOp, Any] = {variable: x}
    for node in root.toposort():
        if node not in values:
            values[node] = numpy_value(node, [values[s] for s in node.src])
    return values[root]


def numpy_value(node: UOp, args: list[Any]) -> Any:
    """One operation on arrays, with the meaning of core/ir/ops.py."""
    kind = _numpy_type(node.dtype)
    match node.op:
        case Ops.CONST:
            return kind(node.arg)
        case Ops.CAST:
            return round_to(args[0], node.dtype) if node.dtype.is_float else args[0].astype(kind)
        case Ops.BITCAST:
            return numpy.asarray(args[0]).view(kind)
        case Ops.SHL | Ops.SHR:
            shift = numpy.left_shift if node.op is Ops.SHL else numpy.right_shift
            inside = numpy.asarray(args[1]) < node.dtype.bits
            shifted = shift(args[0], numpy.where(inside, args[1], 0).astype(kind))
            return numpy.where(inside, shifted, kind(0)).astype(kind)
        case _:
            return _NUMPY[node.op](*args)


_NUMPY = {
    **{
        op: getattr(numpy, row.numpy)
        for op, row in ELEMENTS.items()
        if row.numpy and op not in APPROXIMATED
    },
    Ops.NOT: numpy.invert,
    Ops.AND: numpy.bitwise_and,
    Ops.OR: numpy.bitwise_or,
    Ops.XOR: numpy.bitwise_xor,
    Ops.WHERE: numpy.where,
    Ops.FMA: lambda *args: c_function("fma", *args),
}


def round_to(values: Any, dtype: DType) -> Any:
    """Rounded to nearest even in the format `dtype`."""
    if dtype is not dtypes.bfloat16:
        return values.astype(STORAGES[dtype].values)
    bits = values.astype(numpy.float32).view(numpy.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return numpy.where(numpy.isnan(values), numpy.float32("nan"), rounded.view(numpy.float32))


def from_bits(bits: Any, dtype: DType) -> Any:
    if dtype is dtypes.bfloat16:
        return (bits.astype(numpy.uint32) << 16).view(numpy.float32)
    return bits.view(STORAGES[dtype].values)


def to_bits(values: Any, dtype: DType) -> Any:
    if dtype is dtypes.bfloat16:
        return (values.view(numpy.uint32) >> 16).astype(numpy.uint16)
    return numpy.ascontiguousarray(values).view(STORAGES[dtype].bits)


def bit_patterns(dtype: DType, is_complete: bool, samples: int) -> Iterator[Any]:
    """Bits of values: all of them, or those near special values and a seeded random sample."""
    bits = STORAGES[dtype].bits
    count = 1 << dtype.bits
    if dtype.bits == 16 or (is_complete and dtype.bits == 32):
        for start in range(0, count, CHUNK):
            yield numpy.arange(start, min(start + CHUNK, count), dtype=bits)
        return
    special = _special_patterns(dtype)
    yield from (special[start : start + CHUNK] for start in range(0, len(special), CHUNK))
    random = numpy.random.default_rng(2026)
    integer = numpy.int32 if dtype.bits == 32 else numpy.int64
    value = STORAGES[dtype].values
    for _ in range(0, samples, 2 * CHUNK):
        yield random.integers(0, count - 1, CHUNK, dtype=bits, endpoint=True)
        usual = random.standard_normal(CHUNK) * 2.0 ** random.integers(-4, 11, CHUNK)
        yield usual.astype(value).view(integer).view(bits)


def _special_patterns(dtype: DType) -> Any:
    """Powers of two, integers, multiples of a quarter of pi, and 50 neighbours of each."""
    storage = STORAGES[dtype]
    exponents = numpy.arange(storage.smallest_exponent - storage.fraction_bits, 1024)
    with numpy.errstate(over="ignore"):  # the exponents of float64 are too many for float32
        powers = numpy.ldexp(storage.reference(1), exponents).astype(storage.values)
    whole = numpy.arange(-1100, 1100).astype(storage.values)
    angles = (numpy.arange(2000) * storage.reference(numpy.pi) / 4).astype(storage.values)
    values = numpy.concatenate([powers, -powers, whole, angles, storage.values([0.0, numpy.inf])])
    bits = values.view(storage.bits)
    near = numpy.arange(-50, 51).astype(storage.bits)
    return (bits[:, None] + near[None, :]).ravel()


def _numpy_type(dtype: DType) -> Any:
    if dtype in STORAGES:
        return STORAGES[dtype].values
    return getattr(numpy, "bool_" if dtype.is_bool else dtype.name)


if __name__ == "__main__":
    sys.exit(main())
