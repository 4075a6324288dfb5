"""What factors and systems of equations are made of: products, transposes, the identity, a size whose squares are in range.

Owns: these as graphs without a check. Does not own: what is asked of a matrix (matrices.py).
"""

from __future__ import annotations

from typing import TypeVar

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.tensor.data.arguments import Whole
from proofgrad.core.tensor.data.nodes import constant_node
from proofgrad.core.tensor.methods.indexing import Indexing

_T = TypeVar("_T", bound=Indexing)
# The bits of an exponent: with all others 0 a number is a power of two.
_EXPONENT = {dtypes.float32: 0xFF << 23, dtypes.float64: 0x7FF << 52}


def product(x: _T, y: _T) -> _T:
    """The matrix product."""
    return (x.unsqueeze(-2) * turned(y).unsqueeze(-3)).sum(-1)


def turned(x: _T) -> _T:
    """The transpose of each matrix."""
    return x.transpose(-2, -1)


def identity(x: _T, size: Whole) -> _T:
    """One matrix of the type and on the device of `x`."""
    line = x._iota(size)
    one: _T = line.unsqueeze(-1).eq(line).cast(x.dtype)
    return one


def power_of_two(x: _T) -> _T:
    """As large as the largest element of each matrix, but for less than a factor of 2; 1 of zeros. Shapes: (.., m, n) to (.., 1, 1).

    What a matrix is divided by so that squares neither overflow nor vanish. No digit is lost, and no gradient goes this way.
    """
    if 0 in x.shape:
        return x._with(constant_node(1, x.dtype, (*x.shape[:-2], 1, 1)))
    bits = getattr(dtypes, f"int{x.dtype.bits}")
    largest = x.detach().abs().max((-2, -1), keepdim=True)
    power = (largest.bitcast(bits) & _EXPONENT[x.dtype]).bitcast(x.dtype)
    found: _T = power.eq(0).where(1, power).contiguous()
    return found
