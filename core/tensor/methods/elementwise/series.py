"""Coefficients of the series and polynomials of functions.py, as many as each float type needs.

Owns: where each number comes from. Taylor's coefficients are computed here from their definitions,
exactly, and rounded once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from proofgrad.core.ir.dtypes import DType, dtypes


def _floats(hexadecimal: str) -> tuple[float, ...]:
    """Numbers in hexadecimal, a space between."""
    return tuple([float.fromhex(number) for number in hexadecimal.split()])


# The next are found by benchmarks/fit_polynomials.py. log(erfc(x)) / x in powers of x, for 0 <= x <= 4, and 6; the first is exact in products.
_LOG_ERFC_FLOAT32 = _floats(
    "-0x1.2p+0 -0x1.baea3p-9 -0x1.45f2fap-1 -0x1.a4fa48p-4 0x1.39cc74p-6 0x1.5198e6p-13 -0x1.b52704p-10 "
    "0x1.4bf3a2p-11 -0x1.edc854p-14 0x1.36e796p-17"
)
_LOG_ERFC_FLOAT64 = _floats(
    "-0x1.2p+0 -0x1.baea08536d9e9p-9 -0x1.45f306dc9c8dap-1 -0x1.a4f4e2a1a9ad5p-4 0x1.396685908ac30p-6 0x1.b6b6a1da88fb3p-13 "
    "-0x1.bca691ef7e706p-10 0x1.35663c82fe999p-11 -0x1.b29b4168828b4p-16 -0x1.0e32c620ad841p-14 0x1.f0311b1d4a4c5p-16 "
    "-0x1.a95c1cd3dca9fp-19 -0x1.a4937af8836d4p-19 0x1.117f3e4bb102ep-19 -0x1.328efb392044ep-21 0x1.99b4dd95d5a8dp-27 "
    "0x1.19e7119b4fce5p-24 -0x1.28c784ab2c6c8p-25 0x1.71d42859202adp-27 -0x1.4421120a6463bp-29 0x1.9d19e27075af2p-32 "
    "-0x1.7a022fa798a15p-35 0x1.d8fbaca62b824p-39 -0x1.6b389c27eeaabp-43 0x1.0287933da9ddfp-48"
)
# log2(erfc(x / sqrt(2))) / x in powers of x, for 0 <= x <= 6, beyond which it is less than 2e-9.
NORMAL_ENDS_FLOAT32 = 6.0
_LOG2_BEYOND_FLOAT32 = _floats(
    "-0x1.26aecap+0 -0x1.d63d44p-2 -0x1.ada38ap-5 0x1.c74138p-8 0x1.0d072ap-17 -0x1.2e00c4p-12 "
    "0x1.51051ep-14 -0x1.8fa042p-17 0x1.056202p-20 -0x1.278b3ap-25"
)
# (2**r - 1) / r in powers of r, for |r| <= 1/2.
_EXP2_SLOPE_FLOAT32 = _floats(
    "0x1.62e43p-1 0x1.ebfbdcp-3 0x1.c6af7ap-5 0x1.3b2dd2p-7 0x1.5f094ap-10 0x1.417ab8p-13"
)
# (e**r - 1 - r) / r**2 in powers of r, for -ln 2 / 2 <= r <= ln 2.
_GROWTH_TAIL_FLOAT32 = _floats(
    "0x1.fffffep-2 0x1.555578p-3 0x1.555776p-5 0x1.10e0c0p-7 0x1.6b1d18p-10 0x1.e30ce0p-13"
)
_GROWTH_TAIL_FLOAT64 = _floats(
    "0x1.0000000000000p-1 0x1.5555555555559p-3 0x1.5555555555509p-5 0x1.111111110ffe8p-7 0x1.6c16c16c3a349p-10 "
    "0x1.a01a01a57e215p-13 0x1.a01a00e1a88cfp-16 0x1.71de32af736e5p-19 0x1.27e6a3dd33df9p-22 0x1.ae583ea7abc62p-26 "
    "0x1.1c842c5079eedp-29 0x1.9de1872846a22p-33"
)
# (atan(x) / x - 1) / x**2 in powers of x**2, for |x| <= 1; the seventh of float32 is three units larger than that of the best fit, with
# which atan(1) would be rounded to the other side.
_ATAN_FLOAT32 = _floats(
    "-0x1.55553ep-2 0x1.9991eap-3 -0x1.2420fap-3 0x1.c092dep-4 -0x1.5820f6p-4 0x1.da8a1ep-5 "
    "-0x1.fe57bcp-6 0x1.6528a6p-7 -0x1.d5566ap-10"
)
_ATAN_FLOAT64 = _floats(
    "-0x1.5555555555526p-2 0x1.999999999554ep-3 -0x1.249249237e398p-3 0x1.c71c717f989dep-4 "
    "-0x1.745d11ab2adap-4 0x1.3b136677f068cp-4 -0x1.110e5028ccb7cp-4 0x1.e1bb9b85af84cp-5 "
    "-0x1.ae5e457462591p-5 0x1.82da46b4fc4c1p-5 -0x1.59a29699878bap-5 0x1.2c2b9f36705b3p-5 "
    "-0x1.e9f1b5bcb6393p-6 0x1.6832e6b6db32ap-6 -0x1.c77dc5bff98edp-7 0x1.d7a05b0946862p-8 "
    "-0x1.7a20bbfe5e9d4p-9 0x1.b3d87db787637p-11 -0x1.3f1938264512fp-13 0x1.bbbff173430a6p-17"
)
# (tan(x) / x - 1) / x**2 in powers of x**2, for |x| <= pi / 4.
_TAN_FLOAT32 = _floats(
    "0x1.555560p-2 0x1.110da0p-3 0x1.bad940p-5 0x1.5cc6e8p-6 0x1.62a914p-7 0x1.b2c7e8p-14 0x1.1e6352p-8"
)
_TAN_FLOAT64 = _floats(
    "0x1.55555555554f2p-2 0x1.11111111182fbp-3 0x1.ba1ba1b46a504p-5 0x1.664f49a8905a2p-6 "
    "0x1.226e1257da346p-7 0x1.d6d933f497049p-9 0x1.7d5b5ae49b26bp-10 0x1.37fa914c90720p-11 "
    "0x1.d270ccbd44e4bp-13 0x1.1e2881a7f8ecfp-13 -0x1.b8ecaae0a28a2p-16 0x1.76c9256fcdbdfp-14 "
    "-0x1.7803d34e1b477p-15 0x1.5dd12b4460d4cp-16"
)


def far(dtype: DType) -> float:
    """Where x**2 + 1 is x**2 for half the digits, so that asinh and acosh are log(2 x)."""
    return 2.0**28 if dtype is dtypes.float64 else 2.0**13


@dataclass(frozen=True, slots=True)
class Growth:
    """What e**x - 1 needs to know of a float format."""

    fraction_bits: int
    magic: float  # what is added to it has the nearest whole number in its last bits, with the bias of an exponent
    most_exponent: int
    ln_2: float  # the product with a whole number of an exponent is exact
    ln_2_rest: float
    tail: tuple[float, ...]
    lowest: float  # here e**x - 1 is -1
    highest: float  # here it is infinite


_LN_2_FLOAT32, _LN_2_REST_FLOAT32 = _floats("0x1.62e4p-1 0x1.7f7d1cp-20")
_LN_2_FLOAT64, _LN_2_REST_FLOAT64 = _floats("0x1.62e42fefa38p-1 0x1.ef35793c7673p-45")


@cache
def growth(dtype: DType) -> Growth:
    """Of float32 or float64."""
    if dtype is not dtypes.float64:
        magic, tail = 1.5 * 2.0**23 + 127, _GROWTH_TAIL_FLOAT32
        return Growth(23, magic, 127, _LN_2_FLOAT32, _LN_2_REST_FLOAT32, tail, -40.0, 89.0)
    magic, tail = 1.5 * 2.0**52 + 1023, _GROWTH_TAIL_FLOAT64
    return Growth(52, magic, 1023, _LN_2_FLOAT64, _LN_2_REST_FLOAT64, tail, -60.0, 710.0)


@dataclass(frozen=True, slots=True)
class Tangent:
    """What the tangent needs to know of a float format."""

    magic: float  # what is added to it has the nearest whole number in its last bits
    near: float  # below it the parts of pi / 2 leave all digits of the rest
    half_pi: tuple[
        float, ...
    ]  # three, of which the product of the second and a number of quarter turns is exact
    tail: tuple[float, ...]


_HALF_PI_FLOAT32 = _floats("0x1.921fb6p+0 -0x1.778p-25 0x1.68c234p-39")
_HALF_PI_FLOAT64 = _floats("0x1.921fb54442d18p+0 0x1.1a6263p-54 0x1.8a2e03707344ap-81")


@cache
def tangent(dtype: DType) -> Tangent:
    """Of float32 or float64."""
    if dtype is not dtypes.float64:
        return Tangent(1.5 * 2.0**23, 2.0**11, _HALF_PI_FLOAT32, _TAN_FLOAT32)
    return Tangent(1.5 * 2.0**52, 2.0**20, _HALF_PI_FLOAT64, _TAN_FLOAT64)


@dataclass(frozen=True, slots=True)
class LogErfc:
    """log(erfc(x)) / x in powers of x, for 0 <= x <= `end`, from where on erf is 1."""

    coefficients: tuple[float, ...]
    end: float


@cache
def log_erfc(dtype: DType) -> LogErfc:
    """Of float32, where 1 - erf(4) is 1.5e-8, or float64, where 1 - erf(6) is 2e-17."""
    if dtype is not dtypes.float64:
        return LogErfc(_LOG_ERFC_FLOAT32, 4.0)
    return LogErfc(_LOG_ERFC_FLOAT64, 6.0)


def beyond() -> tuple[tuple[float, ...], tuple[float, ...]]:
    """log2(erfc(x / sqrt(2))) / x of float32, for 0 <= x <= 6, and the slope of 2**r that it needs."""
    return _LOG2_BEYOND_FLOAT32, _EXP2_SLOPE_FLOAT32


@cache
def sinh(dtype: DType) -> tuple[float, ...]:
    """sinh(x) / x in powers of x**2, for |x| <= 1."""
    return tuple([1 / math.factorial(2 * k + 1) for k in range(_terms(dtype, 6, 10))])


def atan(dtype: DType) -> tuple[float, ...]:
    """(atan(x) / x - 1) / x**2 in powers of x**2, for |x| <= 1."""
    return _ATAN_FLOAT64 if dtype is dtypes.float64 else _ATAN_FLOAT32


def _terms(dtype: DType, single: int, double: int) -> int:
    return double if dtype is dtypes.float64 else single
