"""The type of a result, from the types of the operands.

Owns: the lattice, the types of Python scalars (weak: they take the tensor's type where they can),
the type a sum is accumulated in. Does not own: the conversion itself (core/tensor/methods/elementwise).

The lattice is JAX's (docs.jax.dev, "Type promotion semantics"): an edge leads to the types that can
stand for both; int64 with uint64 has no common integer type and gives the default float type.
"""

from __future__ import annotations

from functools import cache

from proofgrad.core.ir.dtypes import DType, dtype_named, dtypes
from proofgrad.core.tensor.data.errors import NoSuchDtypeError

_ABOVE: dict[DType, tuple[DType, ...]] = {
    dtypes.bool: (dtypes.int8, dtypes.uint8),
    dtypes.int8: (dtypes.int16,),
    dtypes.int16: (dtypes.int32,),
    dtypes.int32: (dtypes.int64,),
    dtypes.uint8: (dtypes.int16, dtypes.uint16),
    dtypes.uint16: (dtypes.int32, dtypes.uint32),
    dtypes.uint32: (dtypes.int64, dtypes.uint64),
    dtypes.int64: (dtypes.float16, dtypes.bfloat16),
    dtypes.uint64: (dtypes.float16, dtypes.bfloat16),
    **{code: (dtypes.float16, dtypes.bfloat16) for code in dtypes.fp8s},
    dtypes.float16: (dtypes.float32,),
    dtypes.bfloat16: (dtypes.float32,),
    dtypes.float32: (dtypes.float64,),
    dtypes.float64: (),
}


# Each operation asks whether a type is one of these.
CODES = frozenset(dtypes.fp8s)
_FLOATS_AND_CODES = CODES.union(dtypes.floats)
# Those that are computed with as they are, and that numbers beside them take.
COMPUTED_FLOATS = frozenset(dtypes.floats)


def promote(a: DType, b: DType) -> DType:
    """The least type that can stand for both, or the default float where no one type is least.

    Example:
        promote(dtypes.int8, dtypes.uint8)  # dtypes.int16
    """
    return _least_above_both(a, b) or dtypes.default_float


@cache
def _least_above_both(a: DType, b: DType) -> DType | None:
    common = _at_or_above(a) & _at_or_above(b)
    return next((dtype for dtype in common if common <= _at_or_above(dtype)), None)


@cache
def _at_or_above(dtype: DType) -> frozenset[DType]:
    found = {dtype}
    for upper in _ABOVE[dtype]:
        found |= _at_or_above(upper)
    return frozenset(found)


def promote_scalar(dtype: DType, value: bool | float) -> DType:
    """The type of a tensor of `dtype` combined with the Python scalar `value`."""
    if dtype in _FLOATS_AND_CODES or isinstance(value, bool):
        return dtype
    if isinstance(value, float):
        return dtypes.default_float
    return dtypes.default_int if dtype.is_bool else dtype


def scalar_dtype(value: bool | float) -> DType:
    """The type of a tensor made from the Python scalar `value`."""
    if isinstance(value, bool):
        return dtypes.bool
    return dtypes.default_int if isinstance(value, int) else dtypes.default_float


def computed_dtype(dtype: DType) -> DType:
    """The type in which an operation on `dtype` is done: float32 for 8-bit floats, to which its result is rounded."""
    return dtypes.float32 if dtype in CODES else dtype


def least_float(dtype: DType) -> DType:
    """The type of the result of functions such as exp of a tensor of `dtype`."""
    return dtype if dtype in _FLOATS_AND_CODES else dtypes.default_float


@cache
def sum_dtype(dtype: DType) -> DType:
    """The type of a sum: integers of fewer than 32 bits widen to 32, as counts would overflow."""
    if dtype.is_bool:
        return dtypes.int32
    if dtype.is_int and dtype.bits < 32:
        return dtypes.uint32 if dtype.is_unsigned else dtypes.int32
    return dtype


@cache
def accumulation_dtype(dtype: DType) -> DType:
    """The type in which a sum of `dtype` runs before it is rounded once to `dtype`."""
    return dtypes.float32 if dtype in (dtypes.float16, dtypes.bfloat16) else computed_dtype(dtype)


def as_dtype(dtype: DType | str) -> DType:
    """The type itself or the type of that name. Raises: DtypeError, with near names."""
    if isinstance(dtype, DType):
        return dtype
    if not isinstance(dtype, str):
        of_numpy = dtype.__module__ if isinstance(dtype, type) else type(dtype).__module__
        if of_numpy.partition(".")[0] == "numpy":  # numpy.float32, numpy.dtype("float32")
            import numpy

            return as_dtype(numpy.dtype(dtype).name)
        raise NoSuchDtypeError(f"a dtype is dtypes.NAME or its name as text, not {dtype!r}")
    try:
        return dtype_named(dtype.removeprefix("dtypes."))
    except ValueError as error:
        raise NoSuchDtypeError(str(error)) from None
