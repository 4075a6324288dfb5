"""Are two Tensors the same, or nearly? With an answer that says where not, and by how much.

Owns: `assert_close`, distances in units in the last place. Values may be Tensors, numpy arrays or
lists.
"""

from __future__ import annotations

from typing import Any

from proofgrad import Tensor, dtypes
from proofgrad.core.ir.dtypes import DType

# Allowed unless asked otherwise: (relative, absolute). A few units in the last place.
TOLERANCES = {
    dtypes.float16: (1e-3, 1e-5),
    dtypes.bfloat16: (1.6e-2, 1e-5),
    dtypes.float32: (1.3e-6, 1e-5),
    dtypes.float64: (1e-7, 1e-7),
}


def assert_close(
    actual: Any,
    expected: Any,
    rtol: float | None = None,
    atol: float | None = None,
    ulp: int | None = None,
    equal_nan: bool = True,
    check_dtype: bool = True,
) -> None:
    """Each element within atol + rtol * |expected|, or with `ulp` within so many units.

    Types and shapes must be equal too (`check_dtype=False`: shapes only); integers and bools are
    compared exactly. Tolerances not given are those of the less exact type.

    Raises: AssertionError that names the worst element, both values, the differences.

    Example:
        assert_close(model(x), [[0.5, 0.25]], atol=1e-4)
    """
    first, first_type = _values(actual)
    second, second_type = _values(expected)
    if not isinstance(expected, (Tensor,)) and not hasattr(expected, "dtype"):
        second_type = first_type  # lists have no type of their own
    if first.shape != second.shape:
        raise AssertionError(f"the shape is {first.shape}, and not {second.shape}")
    if check_dtype and first_type is not second_type:
        raise AssertionError(
            f"the type is {first_type}, and not {second_type}; check_dtype=False allows that"
        )
    relative, absolute = _tolerances((first_type, second_type), rtol, atol)
    _compare(first, second, relative, absolute, ulp, equal_nan, first_type)


def ulp_distance(actual: Any, expected: Any, dtype: DType | None = None) -> Any:
    """How many floats of the type lie between two values, elementwise, in an int64 array.

    Zeros of both signs are one float; two NaNs are 0 apart, a NaN and a number 2**63 - 1. `dtype` is
    that of `actual` unless given.

    Raises: TypeError for a type without units: only float16, bfloat16, float32, float64 have.
    """
    import numpy

    first, first_type = _values(actual)
    second, _ = _values(expected)
    kind = first_type if dtype is None else dtype
    positions = [_positions(values, kind) for values in (first, second)]
    apart = positions[0].astype(object) - positions[1].astype(object)
    most = (1 << 63) - 1
    distance = numpy.minimum(abs(apart), most).astype(numpy.int64)
    nans = numpy.isnan(first), numpy.isnan(second)
    distance = numpy.where(nans[0] != nans[1], most, distance)
    return numpy.where(nans[0] & nans[1], 0, distance)


def _values(value: Any) -> tuple[Any, DType | None]:
    """A numpy array, and the type of proofgrad; bfloat16 and fp8 come widened."""
    import numpy

    if isinstance(value, Tensor):
        return value.numpy(), value.dtype
    array = numpy.asarray(value)
    return array, getattr(dtypes, array.dtype.name, None)


def _tolerances(
    kinds: tuple[DType | None, ...], rtol: float | None, atol: float | None
) -> tuple[float, float]:
    known = [TOLERANCES.get(kind, (0.0, 0.0)) for kind in kinds if kind is not None]
    relative, absolute = max(known, default=(0.0, 0.0))
    return relative if rtol is None else rtol, absolute if atol is None else atol


def _compare(
    first: Any,
    second: Any,
    rtol: float,
    atol: float,
    ulp: int | None,
    equal_nan: bool,
    kind: DType | None,
) -> None:
    import numpy

    wide = [_widened(values) for values in (first, second)]
    with numpy.errstate(all="ignore"):
        apart = abs(wide[0] - wide[1])
        size = abs(wide[1])
        equal = wide[0] == wide[1]
        if equal_nan:
            equal |= (wide[0] != wide[0]) & (wide[1] != wide[1])
        near = apart <= atol + rtol * size
        near &= numpy.isfinite(size.astype(float)) if size.dtype != object else True
        units = None if ulp is None else ulp_distance(first, second, kind)
        close = equal | (near if units is None else units <= ulp)
        if close.all():
            return
        scores = numpy.where(close, -1.0, _score(apart if units is None else units))
    raise AssertionError(_report(first, second, wide, close, scores, rtol, atol, ulp, units))


def _score(apart: Any) -> Any:
    """Differences as numbers to compare; NaN is the largest."""
    import numpy

    return numpy.nan_to_num(apart.astype(float), nan=numpy.inf, posinf=numpy.inf)


def _report(
    first: Any,
    second: Any,
    wide: list[Any],
    close: Any,
    scores: Any,
    rtol: float,
    atol: float,
    ulp: int | None,
    units: Any,
) -> str:
    import numpy

    position = numpy.unravel_index(int(numpy.argmax(scores)), scores.shape)
    where = tuple(int(k) for k in position)
    apart = abs(wide[0][where] - wide[1][where])
    with numpy.errstate(all="ignore"):
        relative = float(apart) / abs(float(wide[1][where])) if wide[1][where] else float("inf")
    wrong = int((~close).sum())
    allowed = f"{ulp} ULP" if ulp is not None else f"{atol:g} + {rtol:g} of the expected"
    lines = [
        f"{wrong} of {close.size} elements differ ({wrong / close.size:.1%}); allowed is {allowed}",
        f"  the worst is at {where}: {first[where]!s} instead of {second[where]!s}",
        f"  a difference of {float(apart):.6g}, {relative:.3g} of the expected",
    ]
    if units is not None:
        lines.append(f"  {int(units[where])} ULP")
    return "\n".join(lines)


def _widened(values: Any) -> Any:
    """Numbers whose differences are exact or float64: Python integers for wide integers."""
    import numpy

    kind = values.dtype.kind
    if kind == "b" or (kind in "iu" and values.dtype.itemsize < 8):
        return values.astype(numpy.int64)
    return values.astype(object) if kind in "iu" else values.astype(numpy.float64)


def _positions(values: Any, kind: DType | None) -> Any:
    """The position of each float among all floats of its type, 0 at 0."""
    import numpy

    floats = {
        dtypes.float16: ("float16", "int16", 0),
        dtypes.bfloat16: ("float32", "int32", 16),
        dtypes.float32: ("float32", "int32", 0),
        dtypes.float64: ("float64", "int64", 0),
    }
    if kind not in floats:
        raise TypeError(f"there are no units in the last place of {kind}")
    name, integer, shift = floats[kind]
    with numpy.errstate(all="ignore"):
        bits = values.astype(name).view(integer).astype(numpy.int64) >> shift
    lowest = numpy.int64(-(1 << (numpy.dtype(integer).itemsize * 8 - 1 - shift)))
    return numpy.where(bits < 0, lowest - bits, bits)
