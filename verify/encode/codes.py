"""The 8-bit floats as SMT terms: a value is its code, 8 bits.

Owns: the number of a code, and the code of a number that is rounded. Does not own: casts (semantics.py).

Only e5m2 is a format of IEEE 754. The others have no infinity: e4m3 has one NaN of each sign, the codes 0x7F
and 0xFF; those named fnuz have one, 0x80, and no -0.0. A cast that gives NaN gives 0x7F, or 0x80.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import z3

from proofgrad.core.ir.dtypes import DType

Term = Any  # as in semantics.py


@dataclass(frozen=True, slots=True)
class _Codes:
    """A format of its own: its numbers are the finite ones of FPSort(exponent + 1, fraction + 1) up to a largest.

    `above` is how much larger the bias of that sort is, `step` the exponent of the least number.
    """

    exponent: int
    fraction: int
    above: int
    step: int
    largest: float
    is_fnuz: bool

    @property
    def sort(self) -> Any:
        """Of as many digits, whose normal numbers hold all numbers but 0."""
        return z3.FPSort(self.exponent + 1, self.fraction + 1)

    @property
    def nan(self) -> Term:
        """The code that casts give."""
        return z3.BitVecVal(0x80 if self.is_fnuz else 0x7F, 8)


_CODES = {
    "fp8e4m3": _Codes(4, 3, above=8, step=-9, largest=448.0, is_fnuz=False),
    "fp8e4m3fnuz": _Codes(4, 3, above=7, step=-10, largest=240.0, is_fnuz=True),
    "fp8e5m2fnuz": _Codes(5, 2, above=15, step=-17, largest=57344.0, is_fnuz=True),
}
ONES = {"fp8e5m2": 0x3C, "fp8e4m3": 0x38, "fp8e4m3fnuz": 0x40, "fp8e5m2fnuz": 0x40}


def sort_of_numbers(code: DType) -> Any:
    """e5m2, or a format with the precision of the code and exponents that are larger, and smaller."""
    return z3.FPSort(5, 3) if code.name == "fp8e5m2" else _CODES[code.name].sort


def code_of_float(x: Term, target: DType) -> Term:
    """The code of a float of any sort, rounded to nearest even, once."""
    if target.name in _CODES and _CODES[target.name].is_fnuz and x.sort() == z3.Float16():
        x = z3.fpFPToFP(z3.RNE(), x, z3.Float32())  # float16 has no 2**17
    rounded = z3.fpFPToFP(z3.RNE(), x, sort_of_numbers(target))
    if target.name == "fp8e5m2":
        return code_of_rounded(rounded, target)
    codes = _CODES[target.name]
    # Below its least normal number, as 2**-6 of e4m3, it has multiples of the least number, as 2**-9.
    steps = z3.fpMul(z3.RNE(), x, z3.FPVal(2.0**-codes.step, x.sort()))
    count = z3.fpToUBV(z3.RTZ(), z3.fpAbs(z3.fpRoundToIntegral(z3.RNE(), steps)), z3.BitVecSort(7))
    sign = z3.If(z3.fpIsNegative(x), z3.BitVecVal(1, 1), z3.BitVecVal(0, 1))
    normal = 2.0 ** (codes.step + codes.fraction)
    is_small = z3.fpLT(z3.fpAbs(x), z3.FPVal(normal, x.sort()))
    small = z3.Concat(sign, count)
    if codes.is_fnuz:
        small = z3.If(count == 0, z3.BitVecVal(0, 8), small)
    return z3.If(is_small, small, code_of_rounded(rounded, target))


def code_of_rounded(rounded: Term, target: DType) -> Term:
    """The code of a number that has the precision of `target`; but for e5m2, of a normal one."""
    bits = z3.fpToIEEEBV(rounded)
    if target.name == "fp8e5m2":
        return z3.If(z3.fpIsNaN(rounded), z3.BitVecVal(0x7F, 8), bits)
    codes = _CODES[target.name]
    above = z3.BitVecVal(codes.above << codes.fraction, 8)
    sign, size = z3.Extract(8, 8, bits), z3.Extract(7, 0, bits) - above
    is_inside = z3.fpLEQ(z3.fpAbs(rounded), z3.FPVal(codes.largest, rounded.sort()))
    return z3.If(is_inside, z3.Concat(sign, z3.Extract(6, 0, size)), codes.nan)


def number_of_code(x: Term, source: DType) -> Term:
    """The float of `sort_of_numbers` that a code stands for."""
    sort = sort_of_numbers(source)
    if source.name == "fp8e5m2":
        return z3.fpBVToFP(x, sort)
    codes = _CODES[source.name]
    sign, exponent = z3.Extract(7, 7, x), z3.Extract(6, codes.fraction, x)
    fraction = z3.Extract(codes.fraction - 1, 0, x)
    above = z3.BitVecVal(codes.above, codes.exponent + 1)
    normal = z3.fpFP(sign, z3.ZeroExt(1, exponent) + above, fraction)
    size = _denormal(fraction, codes)
    denormal = z3.If(sign == 1, z3.fpNeg(size), size)
    number = z3.If(exponent == 0, denormal, normal)
    is_nan = x == codes.nan if codes.is_fnuz else z3.Extract(6, 0, x) == 0x7F
    return z3.If(is_nan, z3.fpNaN(sort), number)


def _denormal(fraction: Term, codes: _Codes) -> Term:
    """So many of the least number."""
    if not codes.is_fnuz:
        count = z3.fpUnsignedToFP(z3.RNE(), fraction, codes.sort)
        return z3.fpMul(z3.RNE(), count, z3.FPVal(2.0**codes.step, codes.sort))
    size = z3.FPVal(0.0, codes.sort)
    for count in range(1, 1 << codes.fraction):  # few: without a product they are found sooner
        size = z3.If(fraction == count, z3.FPVal(count * 2.0**codes.step, codes.sort), size)
    return size
