"""Fits the polynomials of core/compile/math and of core/tensor/methods/elementwise/series.py, and prints them ready to paste.

Owns: how the coefficients were found, so that anybody can find them again:
`python benchmarks/fit_polynomials.py`. Needs nothing but Python. Does not own: what the functions
built on them are worth in ULP (benchmarks/ulp_check.py measures that).

Method: the smallest largest relative error on Chebyshev points, by Lawson's repeated least squares
in decimal arithmetic of 60 digits. The coefficients are rounded to the format one by one, lowest
order first, and the others are fitted again each time, so that they make up for the rounding. (Not those of atan, tan and erf in float64, whose
rounding is small beside that of the sum.)
Source: C. L. Lawson 1961; rounding in sequence as in J.-M. Muller, Elementary Functions, 3.3.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, getcontext

DIGITS = 60
TURN_DIGITS = 304  # in base 16, of one over two pi
GRID_POINTS = 160
ROUNDS = 25
Function = Callable[[Decimal], Decimal]


@dataclass(frozen=True, slots=True)
class Fit:
    """Find c with `target(x)` near `sum(c[k] * x**k)`, the error counted times `weight(x)`."""

    name: str
    bits: int
    terms: int
    low: Decimal
    high: Decimal
    target: Function
    weight: Function
    one_by_one: bool = True


def main() -> None:
    getcontext().prec = DIGITS
    for fit in all_fits():
        coefficients, error = rounded_fit(fit)
        print(f"{fit.name}: relative error {float(error):.2e}")
        for c in coefficients:
            print(f'    "{float(c).hex()} "')
    print("1 / 2pi:", [float(p).hex() for p in turn_parts(cuts=(28, 54, 80, 106, 132, 158))])
    getcontext().prec = 2 * TURN_DIGITS
    print(
        f"1 / 2pi, after the point: {int(Decimal(16) ** TURN_DIGITS / (2 * pi())):0{TURN_DIGITS}x}"
    )
    for bits, cut in ((32, 15), (64, 41)):
        parts = two_parts(Decimal(4).ln(), bits, cut)
        print(f"ln 4, float{bits}:", [float(p).hex() for p in parts])
    print("pi:", [float(p).hex() for p in parts_of(pi())])


def all_fits() -> list[Fit]:
    zero, half, root, ln_2 = Decimal(0), Decimal("0.5"), Decimal(2).sqrt(), Decimal(2).ln()
    return [
        Fit("exp2, float32", 32, 6, -half, half, _exp2_slope, _exp2_weight),
        Fit("exp2, float64", 64, 11, -half, half, _exp2_slope, _exp2_weight),
        Fit("exp, float32", 32, 6, -ln_2, ln_2, _growth_tail, _exp_weight),
        Fit("exp, float64", 64, 12, -ln_2, ln_2, _growth_tail, _exp_weight),
        Fit("log2, float32", 32, 10, root / 2 - 1, root - 1, _log2_rest, _log2_weight),
        Fit("log2, float64", 64, 8, Decimal(0), Decimal(1) / 25, _atanh_tail, lambda z: z),
        Fit("exp - 1 - r, float32", 32, 6, -ln_2 / 2, ln_2, _growth_tail, _growth_weight),
        Fit("exp - 1 - r, float64", 64, 12, -ln_2 / 2, ln_2, _growth_tail, _growth_weight),
        Fit("log of erfc + 9/8 x, float32", 32, 9, zero, Decimal(4), _log_erfc, _log_erfc_weight),
        Fit(
            "log of erfc + 9/8 x, float64",
            64,
            24,
            zero,
            Decimal(6),
            _log_erfc,
            _log_erfc_weight,
            False,
        ),
        Fit(
            "log2 of erfc(x / sqrt(2)), float32",
            32,
            10,
            zero,
            Decimal(6),
            _log2_beyond,
            _beyond_weight,
        ),
        Fit("atan, float32", 32, 9, zero, Decimal(1), _atan_tail, _atan_weight),
        Fit("atan, float64", 64, 20, zero, Decimal(1), _atan_tail, _atan_weight, False),
        Fit("tan, float32", 32, 7, zero, pi() ** 2 / 16, _tan_tail, _tan_weight),
        Fit("tan, float64", 64, 14, zero, pi() ** 2 / 16, _tan_tail, _tan_weight, False),
        Fit("sine, float32", 64, 6, zero, pi() ** 2 / 4, _sine_ratio, _sine_weight),
        Fit("sine tail, float64", 64, 7, Decimal(0), pi() ** 2 / 16, _sine_tail, _sine_weight_64),
        Fit(
            "cosine tail, float64", 64, 7, Decimal(0), pi() ** 2 / 16, _cosine_tail, _cosine_weight
        ),
    ]


def rounded_fit(fit: Fit) -> tuple[list[Decimal], Decimal]:
    """Coefficients that are numbers of the format, and the largest weighted error on a grid."""
    fixed: list[Decimal] = []
    if not fit.one_by_one:
        fixed = [_round_to(c, fit.bits) for c in best_fit(fit, [])]
    while len(fixed) < fit.terms:
        fixed.append(_round_to(best_fit(fit, fixed)[0], fit.bits))
    return fixed, max(abs(_error(fit, fixed, x)) for x in _grid(fit))


def best_fit(fit: Fit, fixed: list[Decimal]) -> list[Decimal]:
    """The coefficients after `fixed` of the best polynomial that begins with `fixed`."""
    importance = [Decimal(1)] * GRID_POINTS
    found: list[Decimal] = []
    for _ in range(ROUNDS):
        found = _least_squares(fit, fixed, importance)
        errors = [abs(_error(fit, fixed + found, x)) for x in _grid(fit)]
        importance = [i * e for i, e in zip(importance, errors)]
        largest = max(importance)
        importance = [i / largest for i in importance]
    return found


def turn_parts(cuts: tuple[int, ...]) -> list[Decimal]:
    """1 / 2pi cut behind the bits of weight 2**-cut, for each cut; the rest comes last."""
    rest = 1 / (2 * pi())
    parts = []
    for cut in cuts:
        scale = Decimal(2) ** cut
        part = Decimal(int(rest * scale)) / scale
        parts.append(part)
        rest -= part
    return [*parts, rest]


def two_parts(number: Decimal, bits: int, cut: int) -> list[Decimal]:
    """A number rounded to a multiple of 2**-cut, and what that misses."""
    first = Decimal(round(number * 2**cut)) / 2**cut
    return [first, _round_to(number - first, bits)]


def parts_of(number: Decimal) -> list[Decimal]:
    """A double, what it misses, and what both miss."""
    parts: list[Decimal] = []
    for _ in range(3):
        parts.append(Decimal(float(number - sum(parts))))
    return parts


def pi() -> Decimal:
    """By Machin's formula: pi / 4 = 4 atan(1/5) - atan(1/239)."""
    return 4 * (4 * _atan_inverse(5) - _atan_inverse(239))


def _atan_inverse(n: int) -> Decimal:
    power, total, k = 1 / Decimal(n), Decimal(0), 0
    while abs(power) > Decimal(10) ** (-getcontext().prec - 3):
        total += power / (2 * k + 1) * (-1) ** k
        power /= n * n
        k += 1
    return total


# -- the functions ------------------------------------------------------------------------------


def _exp2_slope(x: Decimal) -> Decimal:
    """(2**x - 1) / x: 2**x = 1 + x * slope is exact at 0 and rounds little."""
    return ((Decimal(2).ln() * x).exp() - 1) / x if x else Decimal(2).ln()


def _exp2_weight(x: Decimal) -> Decimal:
    return abs(x) / (Decimal(2).ln() * x).exp()


def _log2_rest(r: Decimal) -> Decimal:
    """log2(1 + r) / r - 21/16: what is left beside a product that is exact."""
    slope = (1 + r).ln() / r if abs(r) > Decimal("1e-18") else Decimal(1)
    return slope / Decimal(2).ln() - Decimal(21) / 16


def _log2_weight(r: Decimal) -> Decimal:
    return r * Decimal(2).ln() / (1 + r).ln() if r else Decimal(2).ln()


def _atanh_tail(z: Decimal) -> Decimal:
    """(2 atanh(s) / s - 2) / z where s * s = z."""
    if z < Decimal("1e-18"):
        return Decimal(2) / 3
    s = z.sqrt()
    return (((1 + s) / (1 - s)).ln() / s - 2) / z


def _erf_ratio(z: Decimal) -> Decimal:
    """erf(x) / x where x * x = z."""
    term, total, k = 2 / pi().sqrt(), Decimal(0), 0
    while abs(term) > Decimal(10) ** -DIGITS:
        total += term / (2 * k + 1)
        k += 1
        term *= -z / k
    return total


def _log_erfc(x: Decimal) -> Decimal:
    """log(erfc(x)) / x + 9/8: what is left beside a product that is exact."""
    slope = (1 - x * _erf_ratio(x * x)).ln() / x if x > Decimal("1e-15") else -2 / pi().sqrt()
    return slope + Decimal(9) / 8


def _log_erfc_weight(x: Decimal) -> Decimal:
    """What an error of the slope of the logarithm is of erf(x)."""
    value = _erf_ratio(x * x)
    return (1 - x * value) / value


def _log2_beyond(x: Decimal) -> Decimal:
    """log2(erfc(x / sqrt(2))) / x."""
    root = Decimal(2).sqrt()
    return (_log_erfc(x / root) - Decimal(9) / 8) / (root * Decimal(2).ln())


def _beyond_weight(x: Decimal) -> Decimal:
    """What an error of the slope of the logarithm is of the root of erfc: small results keep some of their digits."""
    return x * (Decimal(2).ln() * x * _log2_beyond(x) / 2).exp()


def _growth_tail(r: Decimal) -> Decimal:
    """(e**r - 1 - r) / r**2."""
    return (r.exp() - 1 - r) / (r * r) if abs(r) > Decimal("1e-18") else Decimal("0.5")


def _growth_weight(r: Decimal) -> Decimal:
    return abs(r * r / (r.exp() - 1)) if r else Decimal(0)


def _exp_weight(r: Decimal) -> Decimal:
    return r * r / r.exp()


def _atan_tail(z: Decimal) -> Decimal:
    """(atan(x) / x - 1) / z where x * x = z; the angle is halved until its series is short."""
    x = z.sqrt()
    if x < Decimal("1e-12"):
        return z / 5 - Decimal(1) / 3
    halves, tangent = 6, x
    for _ in range(halves):
        tangent = tangent / (1 + (1 + tangent * tangent).sqrt())
    term, total, k = tangent, Decimal(0), 0
    while abs(term) > Decimal(10) ** -DIGITS:
        total += term / (2 * k + 1)
        k += 1
        term *= -tangent * tangent
    return (2**halves * total / x - 1) / z


def _atan_weight(z: Decimal) -> Decimal:
    return z / (1 + z * _atan_tail(z))


def _sine_ratio(z: Decimal) -> Decimal:
    """sin(t) / t where t * t = z."""
    return _alternating(Decimal(1), z, 2)


def _sine_weight(z: Decimal) -> Decimal:
    return 1 / _sine_ratio(z)


def _tan_tail(z: Decimal) -> Decimal:
    """(tan(t) / t - 1) / z where t * t = z."""
    return (_sine_ratio(z) / _alternating(Decimal(1), z, 1) - 1) / z if z else Decimal(1) / 3


def _tan_weight(z: Decimal) -> Decimal:
    return z / (1 + z * _tan_tail(z))


def _sine_tail(z: Decimal) -> Decimal:
    """(sin(t) / t - 1) / z where t * t = z."""
    return _alternating(-Decimal(1) / 6, z, 4)


def _sine_weight_64(z: Decimal) -> Decimal:
    return z / (1 + z * _sine_tail(z))


def _cosine_tail(z: Decimal) -> Decimal:
    """(cos(t) - 1) / z where t * t = z."""
    return _alternating(-Decimal(1) / 2, z, 3)


def _cosine_weight(z: Decimal) -> Decimal:
    return z / (1 + z * _cosine_tail(z))


def _alternating(first: Decimal, z: Decimal, factor: int) -> Decimal:
    """first - first * z / (factor * (factor + 1)) + ..., the factors going up by two."""
    term, total = first, Decimal(0)
    while abs(term) > Decimal(10) ** -DIGITS:
        total += term
        term *= -z / (factor * (factor + 1))
        factor += 2
    return total


# -- least squares ------------------------------------------------------------------------------


_GRIDS: dict[str, list[Decimal]] = {}
_VALUES: dict[tuple[str, Decimal], tuple[Decimal, Decimal]] = {}


def _error(fit: Fit, coefficients: list[Decimal], x: Decimal) -> Decimal:
    target, weight = _values(fit, x)
    value = Decimal(0)
    for c in reversed(coefficients):
        value = value * x + c
    return (value - target) * weight


def _values(fit: Fit, x: Decimal) -> tuple[Decimal, Decimal]:
    key = (fit.name, x)
    if key not in _VALUES:
        _VALUES[key] = (fit.target(x), fit.weight(x))
    return _VALUES[key]


def _grid(fit: Fit) -> list[Decimal]:
    if fit.name not in _GRIDS:
        _GRIDS[fit.name] = _chebyshev_points(fit, GRID_POINTS)
    return _GRIDS[fit.name]


def _chebyshev_points(fit: Fit, count: int) -> list[Decimal]:
    middle, reach = (fit.low + fit.high) / 2, (fit.high - fit.low) / 2
    angles = [math.cos(math.pi * (k + 0.5) / count) for k in range(count)]
    return sorted(middle + reach * Decimal(a) for a in angles)


def _least_squares(fit: Fit, fixed: list[Decimal], importance: list[Decimal]) -> list[Decimal]:
    """The free coefficients with the smallest sum of importance * (weighted error)**2."""
    free = range(len(fixed), fit.terms)
    rows = [[Decimal(0)] * (len(free) + 1) for _ in free]
    for x, share in zip(_grid(fit), importance):
        target, weight = _values(fit, x)
        known = sum((c * x**k for k, c in enumerate(fixed)), Decimal(0))
        columns = [x**k for k in free] + [target - known]
        for row, power in zip(rows, columns):
            factor = share * weight * weight * power
            for k, value in enumerate(columns):
                row[k] += factor * value
    return _solve(rows)


def _solve(rows: list[list[Decimal]]) -> list[Decimal]:
    """The solution of the linear equations whose last column is the right-hand side."""
    size = len(rows)
    for column in range(size):
        pivot = max(range(column, size), key=lambda k: abs(rows[k][column]))
        rows[column], rows[pivot] = rows[pivot], rows[column]
        for k in range(size):
            if k != column:
                factor = rows[k][column] / rows[column][column]
                rows[k] = [a - factor * b for a, b in zip(rows[k], rows[column])]
    return [rows[k][size] / rows[k][k] for k in range(size)]


def _round_to(value: Decimal, bits: int) -> Decimal:
    number = float(value)
    return Decimal(struct.unpack("<f", struct.pack("<f", number))[0] if bits == 32 else number)


if __name__ == "__main__":
    main()
