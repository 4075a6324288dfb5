"""Coefficients of the series and polynomials of functions.py, as many as each float type needs.

Owns: where each number comes from. Taylor's coefficients are computed here from their definitions,
exactly, and rounded once.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

from proofgrad.core.ir.dtypes import DType, dtypes

ERF_IS_ONE_FROM = 6.0  # 1 - erf(6) is 2e-17

# erf(x) / x in powers of x**2, for |x| <= 0.85, and log2(erfc(x)) in powers of x, by benchmarks/fit_polynomials.py: fitted for
# 0.85 <= x <= 4. Beyond, erf is 1 and its slope below an ULP of 1.
_ERF_FLOAT32 = (
    float.fromhex("0x1.20dd76p+0"), float.fromhex("-0x1.812746p-2"), float.fromhex("0x1.ce2eaap-4"),
    float.fromhex("-0x1.b81d6ap-6"), float.fromhex("0x1.556588p-8"), float.fromhex("-0x1.b03cf8p-11"),
    float.fromhex("0x1.729e76p-14"),
)  # fmt: skip
_LOG2_ERFC_FLOAT32 = (
    float.fromhex("0x1.d37a2cp-13"), float.fromhex("-0x1.a12084p+0"), float.fromhex("-0x1.d3fab6p-1"),
    float.fromhex("-0x1.3f3fa6p-3"), float.fromhex("0x1.271554p-5"), float.fromhex("-0x1.84d406p-8"),
    float.fromhex("0x1.3f544cp-11"), float.fromhex("-0x1.e47e5ep-16"),
)  # fmt: skip
# log(erfc(x) / t) + x**2 in powers of t - 1/2, t = 2 / (2 + x): Chebyshev interpolation in 50 digits
# for 0.5 <= x <= 6. The form is that of Press et al., Numerical Recipes, 6.2.
_ERFC_FLOAT64 = (
    -0.6717940840566923, 1.3452864479553073, 0.1893732273676212, -0.37516488184498725,
    -0.15796302987198213, 0.28239803289768317, 0.11257175046794048, -0.3002639133895893,
    -0.037439507866061685, 0.3449193452790131, -0.0959669866073654, -0.3568625322059298,
    0.2919006223357721, 0.25861983715376186, -0.48472133212937263, 0.009501781017532681,
    0.46976240012226333, -0.3110156905254392,
)  # fmt: skip


def far(dtype: DType) -> float:
    """Where x**2 + 1 is x**2 for half the digits, so that asinh and acosh are log(2 x)."""
    return 2.0**28 if dtype is dtypes.float64 else 2.0**13


def erf_series_end(dtype: DType) -> float:
    """Up to where erf is its odd polynomial."""
    return 0.5 if dtype is dtypes.float64 else 0.85


def log2_erfc() -> tuple[float, ...]:
    """log2(erfc(x)) of float32, for 0.85 <= x <= 6."""
    return _LOG2_ERFC_FLOAT32


def erfc_float64() -> tuple[float, ...]:
    """P(t - 1/2) with erfc(x) = t exp(P - x**2) and t = 2 / (2 + x)."""
    return _ERFC_FLOAT64


@cache
def expm1(dtype: DType) -> tuple[float, ...]:
    """(e**x - 1) / x, for |x| <= 1/2: 1, 1/2!, 1/3!, ..."""
    return tuple([1 / math.factorial(k) for k in range(1, _terms(dtype, 10, 17))])


@cache
def sinh(dtype: DType) -> tuple[float, ...]:
    """sinh(x) / x in powers of x**2, for |x| <= 1."""
    return tuple([1 / math.factorial(2 * k + 1) for k in range(_terms(dtype, 6, 10))])


@cache
def atan(dtype: DType) -> tuple[float, ...]:
    """atan(x) / x in powers of x**2, for |x| <= tan(pi / 8): 1, -1/3, 1/5, ..."""
    return tuple([(-1) ** k / (2 * k + 1) for k in range(_terms(dtype, 10, 22))])


@cache
def erf(dtype: DType) -> tuple[float, ...]:
    """erf(x) / x in powers of x**2, for |x| up to `erf_series_end`."""
    if dtype is not dtypes.float64:
        return _ERF_FLOAT32
    scale = 2 / math.sqrt(math.pi)
    return tuple([scale * (-1) ** k / (math.factorial(k) * (2 * k + 1)) for k in range(13)])


@cache
def tanh(dtype: DType) -> tuple[float, ...]:
    """tanh(x) / x in powers of x**2, for |x| <= 1/4: from tanh' = 1 - tanh**2."""
    count = _terms(dtype, 6, 12)
    found = [Fraction(1)]
    for n in range(1, count):
        square = sum([found[k] * found[n - 1 - k] for k in range(n)], Fraction(0))
        found.append(-square / (2 * n + 1))
    return tuple([float(value) for value in found])


def _terms(dtype: DType, single: int, double: int) -> int:
    return double if dtype is dtypes.float64 else single
