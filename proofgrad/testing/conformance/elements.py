"""Checks of single elements: every operation on the edges of every type, casts, bits of one type as another, functions.

Owns: these programs. Results are those of REFERENCE to the bit; functions, whose steps a machine may contract, within a few
units in the last place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from proofgrad import Tensor, dtypes
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.ir.dtypes import DType
from proofgrad.testing.conformance.check import (
    Check,
    Item,
    Options,
    Result,
    Skip,
    unpromised_reason,
)
from proofgrad.testing.conformance.differences import Exactness
from proofgrad.testing.conformance.edges import FLOATS, INTEGERS, edges, kept_edges, line, pairs

# Twice the published bounds of the functions, and of one that multiplies the rounding of its argument, which differs where a
# machine rounds a product before it adds (docs/numerics.md).
FUNCTION_ULP = 4
LARGER_ULP = {("gelu", dtypes.float32): 300, ("gelu", dtypes.float64): 2300}
_Two = Callable[[Tensor, Tensor], Tensor]

_COMPARISONS: dict[str, _Two] = {
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
    "==": lambda x, y: x.eq(y),
    "!=": lambda x, y: x.ne(y),
    "where": lambda x, y: (x < y).where(x, y),
    "maximum": lambda x, y: x.maximum(y),
    "minimum": lambda x, y: x.minimum(y),
}
OF_INTEGERS: dict[str, _Two] = {
    **_COMPARISONS,
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    "//": lambda x, y: x // y,
    "%": lambda x, y: x % y,
    "&": lambda x, y: x & y,
    "|": lambda x, y: x | y,
    "^": lambda x, y: x ^ y,
    "<<": lambda x, y: x << y,
    ">>": lambda x, y: x >> y,
    "neg": lambda x, y: -x,
    "~": lambda x, y: ~x,
    "abs": lambda x, y: x.abs(),
    "sign": lambda x, y: x.sign(),
    "*+": lambda x, y: x * y + x,
}
OF_BOOLS: dict[str, _Two] = {
    "&": lambda x, y: x & y,
    "|": lambda x, y: x | y,
    "^": lambda x, y: x ^ y,
    "not": lambda x, y: x.logical_not(),
    "==": lambda x, y: x.eq(y),
    "where": lambda x, y: x.where(y, x),
    "maximum": lambda x, y: x.maximum(y),
}
OF_FLOATS: dict[str, _Two] = {
    **_COMPARISONS,
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    "/": lambda x, y: x / y,
    "neg": lambda x, y: -x,
    "abs": lambda x, y: x.abs(),
    "sqrt": lambda x, y: x.sqrt(),
    "reciprocal": lambda x, y: x.reciprocal(),
    "trunc": lambda x, y: x.trunc(),
    "floor": lambda x, y: x.floor(),
    "ceil": lambda x, y: x.ceil(),
    "round": lambda x, y: x.round(),
    "isnan": lambda x, y: x.isnan(),
    "isinf": lambda x, y: x.isinf(),
}
FUNCTIONS = (
    "exp2", "exp", "log2", "log", "sin", "cos", "tan", "tanh", "sigmoid", "erf", "rsqrt", "asinh", "atan", "gelu",
    "softplus", "silu",
)  # fmt: skip


def integers(device: str, target: Target, options: Options) -> Iterator[Item]:
    """Arithmetic that wraps, floors and shifts, on every pair of edges."""
    for kind in INTEGERS:
        yield from _each(device, target, kind, OF_INTEGERS)
    yield from _each(device, target, dtypes.bool, OF_BOOLS)


def floats(device: str, target: Target, options: Options) -> Iterator[Item]:
    """IEEE arithmetic on every pair of edges: denormals, infinities, NaN, signed zeros."""
    for kind in FLOATS:
        yield from _each(device, target, kind, OF_FLOATS)


def _each(device: str, target: Target, kind: DType, table: dict[str, _Two]) -> Iterator[Item]:
    if kind not in target.storage:
        for name in table:
            yield _no_type(f"{kind.name} {name}", kind)
        return
    yield from _not_kept(kind, target)
    x, y = pairs(device, kind, target.unpromised)
    for name, function in table.items():
        yield Result(f"{kind.name} {name}", function(x, y))


def _not_kept(kind: DType, target: Target) -> Iterator[Item]:
    """What is said of the edges that the machine does not keep."""
    if kind.is_float and (lost := unpromised_reason(target)):
        count = len(edges(kind)) - len(kept_edges(kind, target.unpromised))
        yield Skip(f"{count} edges of {kind.name}", lost)


def _no_type(label: str, kind: DType) -> Skip:
    return Skip(label, f"the device has no {kind.name}")


def casts(device: str, target: Target, options: Options) -> Iterator[Item]:
    """Every type to every other, those that are only stored among them."""
    types = (*dtypes.all, *dtypes.fp8s)
    for source in types:
        made = line(device, source, target.unpromised) if source in target.storage else None
        yield from _not_kept(source, target) if made is not None else ()
        for kind in types:
            label = f"{source.name} as {kind.name}"
            if made is None or kind not in target.storage:
                yield _no_type(label, source if made is None else kind)
            else:
                found = made.cast(kind)
                yield Result(label, found.float() if kind in dtypes.fp8s else found)


def bitcasts(device: str, target: Target, options: Options) -> Iterator[Item]:
    """The bits of one type as another, wider and narrower ones too."""
    types = [kind for kind in (*dtypes.all, *dtypes.fp8s) if not kind.is_bool]
    for source in types:
        for kind in types:
            label = f"{source.name} bits as {kind.name}"
            missing = next((k for k in (source, kind) if k not in target.storage), None)
            if missing is not None:
                yield _no_type(label, missing)
            elif source is not kind and source.itemsize == kind.itemsize:
                # NaN may be another NaN: there are no bits to compare
                values = line(device, source, target.unpromised)
                values = values.isnan().where(0, values) if source in FLOATS else values
                if source in dtypes.fp8s:
                    values = Tensor([0.0, -1.5, 2.0, 448.0], device).cast(source)
                found = values.bitcast(kind)
                yield Result(label, found.float() if kind in dtypes.fp8s else found)
    if dtypes.uint32 in target.storage:
        words = Tensor([0x01020304, 0xFFFEFDFC, 7, 0], device, dtypes.uint32)
        yield Result("uint32 bits as uint8", words.bitcast(dtypes.uint8))
        yield Result("uint8 bits as uint16", words.bitcast(dtypes.uint8).bitcast(dtypes.uint16))


def fp8_storage(device: str, target: Target, options: Options) -> Iterator[Item]:
    """Eight-bit floats are stored, read, moved and computed with in float32."""
    for kind in dtypes.fp8s:
        if kind not in target.storage:
            yield _no_type(kind.name, kind)
            continue
        values = Tensor([k * 0.37 - 3.0 for k in range(40)], device).cast(kind).contiguous()
        table = values.reshape(5, 8)
        yield Result(f"{kind.name} stored", values.float())
        yield Result(f"{kind.name} transposed", table.transpose(0, 1).contiguous().float())
        yield Result(f"{kind.name} product", table.float() * 2)
        yield Result(f"{kind.name} largest", table.float().max(1))


def functions(device: str, target: Target, options: Options) -> Iterator[Item]:
    """Functions that are made of arithmetic, in every type of floats."""
    for kind in FLOATS:
        if kind not in target.storage:
            for name in FUNCTIONS:
                yield _no_type(f"{kind.name} {name}", kind)
            continue
        x = line(device, kind, target.unpromised).cat(
            Tensor(
                [k * 0.37 - 9.0 for k in range(50)],
                device,
                dtypes.float64 if kind is dtypes.float64 else None,
            ).cast(kind)
        )
        for name in FUNCTIONS:
            found = getattr(x, name)()
            bound = Exactness(ulp=LARGER_ULP.get((name, kind), FUNCTION_ULP))
            yield Result(f"{kind.name} {name}", found, None, bound)


CHECKS = (
    Check("integers", integers, has_many_alike=True),
    Check("floats", floats, has_many_alike=True),
    Check("casts", casts, has_many_alike=True),
    Check("bitcasts", bitcasts, has_many_alike=True),
    Check("fp8", fp8_storage),
    Check("functions", functions, has_many_alike=True),
)
