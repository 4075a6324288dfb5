"""The data types of the IR: what a value is, how wide it is, and how many lanes it has.

Owns: `DType`, the namespace `dtypes`, ranges of the integer types, conversion of a Python number to
a constant of a type (refused when it does not fit). Does not own: promotion (core/tensor), storage
(backends).
"""

from __future__ import annotations

import enum
import math
import struct
from dataclasses import dataclass
from typing import Any, TypeAlias


class Kind(enum.Enum):
    """The arithmetic of a type (docs/architecture.md, "Numbers")."""

    VOID = "void"
    BOOL = "bool"
    SIGNED = "signed"
    UNSIGNED = "unsigned"
    INDEX = "index"  # mathematical integers with known bounds; given a width before code is printed
    FLOAT = "float"
    CODE = "code"  # a float that is only stored: cast it to compute with it


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """A scalar or vector type. Instances are interned: compare with `is`."""

    name: str
    kind: Kind
    bits: int
    lanes: int = 1
    priority: int = 0

    def __repr__(self) -> str:
        if self.lanes > 1:
            return f"{self.scalar!r}.vec({self.lanes})"
        return f"dtypes.{_SHORT_NAMES.get(self.name, self.name)}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_by_name, (self.scalar.name, self.lanes))

    @property
    def scalar(self) -> DType:
        """The type of one lane."""
        return self if self.lanes == 1 else _BY_NAME[self.name.rpartition("x")[0]]

    @property
    def base(self) -> DType:
        """Itself: the type of an element, by the name that kernels of tinygrad have for it."""
        return self

    @property
    def itemsize(self) -> int:
        """Bytes per element of a buffer of this scalar type."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        """A float that is computed with; not one that is only stored (`is_code`)."""
        return self.kind is Kind.FLOAT

    @property
    def is_code(self) -> bool:
        """An 8-bit float, which is stored, moved, selected and cast, and not computed with."""
        return self.kind is Kind.CODE

    @property
    def is_int(self) -> bool:
        """A machine integer or an index; not a bool."""
        return self.kind in (Kind.SIGNED, Kind.UNSIGNED, Kind.INDEX)

    @property
    def is_bool(self) -> bool:
        """Whether it is the truth type, or a vector of it."""
        return self.kind is Kind.BOOL

    @property
    def is_unsigned(self) -> bool:
        """Whether it is an unsigned machine integer; not a bool."""
        return self.kind is Kind.UNSIGNED

    @property
    def bitsize(self) -> int:
        """Bits of an element of this scalar type; of a bool, which takes a byte, 1."""
        return 1 if self.is_bool else self.bits

    @property
    def fmt(self) -> str | None:
        """The letter of the type in Python's `struct`; None where it has none."""
        return _STRUCT_LETTERS.get(self.name)

    @property
    def min(self) -> Any:
        """The smallest value, as of `dtypes.min`."""
        return dtypes.min(self)

    @property
    def max(self) -> Any:
        """The largest value, as of `dtypes.max`."""
        return dtypes.max(self)

    def __lt__(self, other: DType) -> bool:
        """In the order of promotion: bool, integers by width, floats by width."""
        return self._position < other._position if isinstance(other, DType) else NotImplemented

    def __gt__(self, other: DType) -> bool:
        return self._position > other._position if isinstance(other, DType) else NotImplemented

    def __le__(self, other: DType) -> bool:
        return self._position <= other._position if isinstance(other, DType) else NotImplemented

    def __ge__(self, other: DType) -> bool:
        return self._position >= other._position if isinstance(other, DType) else NotImplemented

    @property
    def _position(self) -> tuple[int, int, int, int]:
        group = 2 if self.is_float or self.is_code else int(self.is_int)
        return (group, self.bits, self.priority, self.lanes)

    def vec(self, lanes: int) -> DType:
        """The vector type of `lanes` elements of this scalar type; `vec(1)` is the scalar."""
        return self.scalar if lanes == 1 else _vector(self.scalar, lanes)

    def ptr(self, size: int = -1) -> PtrDType:
        """The type of a pointer to `size` elements (-1: unknown). Seen in dumps only."""
        return PtrDType(self, size)

    @property
    def lo(self) -> int | None:
        """Smallest value of an integer or bool type; None where there is none (index, float)."""
        match self.kind:
            case Kind.BOOL | Kind.UNSIGNED:
                return 0
            case Kind.SIGNED:
                return -(1 << (self.bits - 1))
            case _:
                return None

    @property
    def hi(self) -> int | None:
        """Largest value of an integer or bool type; None where there is none (index, float)."""
        match self.kind:
            case Kind.BOOL:
                return 1
            case Kind.UNSIGNED:
                return (1 << self.bits) - 1
            case Kind.SIGNED:
                return (1 << (self.bits - 1)) - 1
            case _:
                return None


@dataclass(frozen=True, slots=True)
class PtrDType:
    """A pointer to `size` elements of `base`."""

    base: DType
    size: int

    def __repr__(self) -> str:
        return f"{self.base!r}.ptr({self.size})"


_BY_NAME: dict[str, DType] = {}
_VECTORS: dict[tuple[DType, int], DType] = {}
_STRUCT_LETTERS = {
    "bool": "?", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I",
    "int64": "q", "uint64": "Q", "float16": "e", "float32": "f", "float64": "d",
}  # fmt: skip
_SHORT_NAMES = {"int32": "int", "float32": "float"}


def _scalar(name: str, kind: Kind, bits: int) -> DType:
    dtype = DType(name, kind, bits, 1, len(_BY_NAME))
    _BY_NAME[name] = dtype
    return dtype


def _vector(scalar: DType, lanes: int) -> DType:
    known = _VECTORS.get((scalar, lanes))
    if known is None:
        known = DType(f"{scalar.name}x{lanes}", scalar.kind, scalar.bits, lanes, scalar.priority)
        _VECTORS[(scalar, lanes)] = known
    return known


def _by_name(name: str, lanes: int) -> DType:
    return _BY_NAME[name].vec(lanes)


ExponentAndFraction: TypeAlias = tuple[int, int]  # bits of each


class dtypes:  # noqa: N801  (the name users write)
    """All scalar types, under their full names and the short names users know."""

    void = _scalar("void", Kind.VOID, 0)
    index = _scalar("index", Kind.INDEX, 64)
    bool = _scalar("bool", Kind.BOOL, 8)
    int8 = _scalar("int8", Kind.SIGNED, 8)
    uint8 = _scalar("uint8", Kind.UNSIGNED, 8)
    int16 = _scalar("int16", Kind.SIGNED, 16)
    uint16 = _scalar("uint16", Kind.UNSIGNED, 16)
    int32 = _scalar("int32", Kind.SIGNED, 32)
    uint32 = _scalar("uint32", Kind.UNSIGNED, 32)
    int64 = _scalar("int64", Kind.SIGNED, 64)
    uint64 = _scalar("uint64", Kind.UNSIGNED, 64)
    float16 = _scalar("float16", Kind.FLOAT, 16)
    bfloat16 = _scalar("bfloat16", Kind.FLOAT, 16)
    float32 = _scalar("float32", Kind.FLOAT, 32)
    float64 = _scalar("float64", Kind.FLOAT, 64)
    fp8e4m3 = _scalar("fp8e4m3", Kind.CODE, 8)
    fp8e5m2 = _scalar("fp8e5m2", Kind.CODE, 8)
    fp8e4m3fnuz = _scalar("fp8e4m3fnuz", Kind.CODE, 8)
    fp8e5m2fnuz = _scalar("fp8e5m2fnuz", Kind.CODE, 8)
    char, uchar, short, ushort = int8, uint8, int16, uint16
    int, uint, long, ulong = int32, uint32, int64, uint64
    half, float, double = float16, float32, float64
    ints = (int8, uint8, int16, uint16, int32, uint32, int64, uint64)
    sints, uints = (int8, int16, int32, int64), (uint8, uint16, uint32, uint64)
    int8s, int16s, int32s, int64s = (int8, uint8), (int16, uint16), (int32, uint32), (int64, uint64)
    floats = (float16, bfloat16, float32, float64)
    fp8_ocp, fp8_fnuz = (fp8e4m3, fp8e5m2), (fp8e4m3fnuz, fp8e5m2fnuz)
    fp8s = fp8_ocp + fp8_fnuz
    all = (bool, *ints, *floats)  # those that are computed with
    default_int = int32
    default_float = float32

    @staticmethod
    def is_float(dtype: DType) -> Any:
        """Whether it is a float, stored ones among them."""
        return dtype.is_float or dtype.is_code

    @staticmethod
    def is_int(dtype: DType) -> Any:
        """Whether it is a machine integer, signed or unsigned, or an index; not a bool."""
        return dtype.is_int

    @staticmethod
    def is_bool(dtype: DType) -> Any:
        """Whether it is the type of true and false."""
        return dtype.is_bool

    @staticmethod
    def from_py(x: Any) -> DType:
        """The type of a Tensor of this number, or of a list of them. Raises: ValueError for others.

        Example:
            dtypes.from_py([1, 2.5])  # dtypes.float
        """
        parts = list(x) if isinstance(x, (list, tuple)) else [x]
        if not all(isinstance(part, (int, float)) for part in parts):
            raise ValueError(f"only numbers have a type, not {x!r}")
        if not parts or any(isinstance(part, float) for part in parts):
            return dtypes.default_float
        return dtypes.bool if all(isinstance(p, bool) for p in parts) else dtypes.default_int

    @staticmethod
    def is_unsigned(dtype: DType) -> Any:
        """Whether it is an unsigned machine integer; not a bool."""
        return dtype.is_unsigned

    @staticmethod
    def min(dtype: DType) -> Any:
        """Smallest value of the type; -inf for floats that have it."""
        return -dtypes.max(dtype) if dtypes.is_float(dtype) else dtype.lo

    @staticmethod
    def max(dtype: DType) -> Any:
        """Largest value of the type; inf for floats that have it."""
        largest = math.inf if dtypes.is_float(dtype) else dtype.hi
        return LARGEST_CODES.get(dtype, largest)

    @staticmethod
    def finfo(dtype: DType) -> ExponentAndFraction:
        """The bits of the exponent and of the fraction of a float. Raises: ValueError.

        Example:
            dtypes.finfo(dtypes.bfloat16)  # (8, 7)
        """
        if not dtypes.is_float(dtype):
            raise ValueError(f"{dtype} is no float; of integers see dtypes.min and dtypes.max")
        return _EXPONENT_AND_FRACTION[dtype.scalar]


# Source: OCP 8-bit Floating Point Specification (OFP8), 1.0, 2023, tables 1 and 2.
# The names in fnuz are finite, with one NaN and an unsigned zero: Noune et al., "8-bit Numerical Formats for
# Deep Neural Networks", 2022.
LARGEST_CODES = {dtypes.fp8e4m3: 448.0, dtypes.fp8e4m3fnuz: 240.0, dtypes.fp8e5m2fnuz: 57344.0}
_EXPONENT_AND_FRACTION = {
    dtypes.fp8e4m3: (4, 3), dtypes.fp8e5m2: (5, 2), dtypes.float16: (5, 10),
    dtypes.fp8e4m3fnuz: (4, 3), dtypes.fp8e5m2fnuz: (5, 2),
    dtypes.bfloat16: (8, 7), dtypes.float32: (8, 23), dtypes.float64: (11, 52),
}  # fmt: skip


def dtype_named(name: str) -> DType:
    """The scalar type called `name` (full or short). Raises: ValueError, with near names."""
    found = _BY_NAME.get(name) or getattr(dtypes, name, None)
    if isinstance(found, DType):
        return found
    import difflib

    known = [d.name for d in (*dtypes.all, *dtypes.fp8s)]
    near = difflib.get_close_matches(name, known, n=2)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise ValueError(f"unknown dtype {name!r}{hint}; known: {', '.join(known)}")


def round_float(value: float, dtype: DType) -> float:
    """`value` (a double) rounded to nearest even in the float format `dtype`.

    Beyond the largest number it is infinite; NaN where there is no infinity.
    """
    match dtype.name:
        case "float64":
            return value
        case "float32":
            return _through("<f", value)
        case "float16":
            return _through("<e", value)
        case "bfloat16":
            return _round_to_precision(value, precision=8, exponent_min=-126, exponent_max=127)
        case "fp8e5m2":
            return _round_to_precision(value, precision=3, exponent_min=-14, exponent_max=15)
        case "fp8e4m3":
            rounded = _round_to_precision(value, precision=4, exponent_min=-6, exponent_max=8)
            return rounded if abs(rounded) <= 448.0 else math.nan
        case "fp8e4m3fnuz":
            return _fnuz(_round_to_precision(value, precision=4, exponent_min=-7, exponent_max=7))
        case "fp8e5m2fnuz":
            return _fnuz(_round_to_precision(value, precision=3, exponent_min=-15, exponent_max=15))
        case _:
            raise ValueError(f"{dtype} is not a float type")


def _fnuz(rounded: float) -> float:
    return math.nan if math.isinf(rounded) else rounded + 0.0  # a zero has no sign


def _through(code: str, value: float) -> float:
    try:
        return float(struct.unpack(code, struct.pack(code, value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _round_to_precision(
    value: float, precision: int, exponent_min: int, exponent_max: int
) -> float:
    """Round to a binary format given by its precision and exponent range (IEEE 754, 2019, 3.3)."""
    if value == 0.0 or not math.isfinite(value):
        return value
    if abs(value) >= math.ldexp(1.0, exponent_max + 1):
        return math.copysign(math.inf, value)
    exponent = max(math.frexp(value)[1] - 1, exponent_min)
    unit = exponent - (precision - 1)
    rounded = math.ldexp(float(round(math.ldexp(value, -unit))), unit)
    largest = math.ldexp(2.0 - math.ldexp(1.0, 1 - precision), exponent_max)
    return (
        math.copysign(math.inf, value) if abs(rounded) > largest else math.copysign(rounded, value)
    )


def as_constant(value: Any, dtype: DType) -> int | float | bool:
    """`value` as a constant of `dtype`. Raises: OverflowError if an integer does not fit."""
    match dtype.kind:
        case Kind.BOOL:
            return bool(value)
        case Kind.FLOAT | Kind.CODE:
            return round_float(float(value), dtype)
        case Kind.INDEX:
            return int(value)
        case Kind.SIGNED | Kind.UNSIGNED:
            number = int(value)
            assert dtype.lo is not None and dtype.hi is not None
            if not dtype.lo <= number <= dtype.hi:
                raise OverflowError(
                    f"{number} does not fit {dtype.name}, which holds {dtype.lo} to {dtype.hi};"
                    f" choose a wider dtype or cast explicitly"
                )
            return number
        case _:
            raise ValueError(f"no constants of {dtype}")


def wrap_int(value: int, dtype: DType) -> int:
    """`value` modulo 2**bits, in the range of the machine integer `dtype`."""
    if dtype.kind is Kind.INDEX:
        return value
    low = value & ((1 << dtype.bits) - 1)
    return low - (1 << dtype.bits) if dtype.kind is Kind.SIGNED and low >> (dtype.bits - 1) else low
