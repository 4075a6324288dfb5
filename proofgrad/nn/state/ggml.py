"""The types of ggml: numbers as they are, and blocks of quantised ones as Tensors of floats.

Owns: what the bytes of each type mean. Does not own: the file they are in (gguf.py). The layouts are those of
`ggml-common.h`; what a block means is computed on the Tensor's device, when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from proofgrad import DtypeError, Tensor, dtypes
from proofgrad.core.ir.dtypes import DType

NATIVE: dict[int, DType] = {
    0: dtypes.float32,
    1: dtypes.float16,
    24: dtypes.int8,
    25: dtypes.int16,
    26: dtypes.int32,
    27: dtypes.int64,
    28: dtypes.float64,
    30: dtypes.bfloat16,
}
# What the 4 bits of IQ4_NL and IQ4_XS stand for, and twice what those of MXFP4 do.
_IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_FP4 = (0, 1, 2, 3, 4, 6, 8, 12, -0.0, -1, -2, -3, -4, -6, -8, -12)


class Quantised(NamedTuple):
    """A type of blocks: how many elements and bytes one has, and the elements of (blocks, nbytes) of them."""

    name: str
    elements: int
    nbytes: int
    decode: Callable[[Tensor], Tensor]


def ggml_data_to_tensor(t: Tensor, n: int, ggml_type: int) -> Tensor:
    """The first `n` elements of a ggml type of which `t` holds the bytes; quantised ones as float32, float16 for Q1_0.

    Raises: DtypeError for a type that is not read here, ValueError for too few bytes or a part of a block.

    Example:
        weight = ggml_data_to_tensor(Tensor(block_bytes), 32, 2)  # one block of Q4_0
    """
    nbytes = nbytes_of(n, ggml_type)
    if t.ndim != 1 or t.dtype is not dtypes.uint8 or t.numel() < nbytes:
        raise ValueError(
            f"{n} elements of the ggml type {ggml_type} are {nbytes} bytes: a Tensor of uint8 and 1 axis"
            f" that has them, not {t.dtype} of shape {t.shape}"
        )
    dtype = NATIVE.get(ggml_type)
    if n == 0:
        return Tensor.zeros(0, dtype=dtype or dtypes.float32, device=t.device)
    if dtype is not None:
        return t[:nbytes].bitcast(dtype)
    kind = QUANTISED[ggml_type]
    return kind.decode(t[:nbytes].reshape(-1, kind.nbytes)).reshape(-1)


def nbytes_of(n: int, ggml_type: int) -> int:
    """How many bytes `n` elements are. Raises: DtypeError for a type not read here, ValueError for a part of a block."""
    if dtype := NATIVE.get(ggml_type):
        return n * dtype.itemsize
    kind = QUANTISED.get(ggml_type)
    if kind is None:
        known = ", ".join([f"{number} ({kind.name})" for number, kind in QUANTISED.items()])
        raise DtypeError(
            f"the ggml type {ggml_type} is not read here; those of blocks are {known}, and"
            f" {', '.join([f'{number} ({dtype.name})' for number, dtype in NATIVE.items()])}"
        )
    if n % kind.elements:
        raise ValueError(f"{n} elements of {kind.name}, whose blocks have {kind.elements}")
    return n // kind.elements * kind.nbytes


# -- parts of blocks, which are (blocks, bytes) -----------------------------------------------------


def _half(blocks: Tensor, start: int) -> Tensor:
    """The float16 at this byte, as (blocks, 1, 1) of float32: it is multiplied with groups of elements."""
    return blocks[:, start : start + 2].bitcast(dtypes.float16).cast(dtypes.float32).unsqueeze(-1)


def _fields(data: Tensor, width: int) -> Tensor:
    """Numbers of `width` bits of (..., bytes), the low ones of all bytes first: (..., 8 // width, bytes)."""
    shifts = Tensor(list(range(0, 8, width)), dtype=dtypes.uint8, device=data.device)
    return (data.unsqueeze(-2) >> shifts.unsqueeze(-1)) & ((1 << width) - 1)


def _bits(data: Tensor) -> Tensor:
    """The bits of (..., bytes), those of a byte together, low first: (..., 8 * bytes)."""
    return _fields(data, 1).transpose(-1, -2).flatten(-2)


def _nibbles(data: Tensor, groups: int) -> Tensor:
    """4 bits each of (blocks, bytes) in so many groups, in which the low ones come first: (blocks, groups, elements)."""
    return _fields(data.reshape(data.shape[0], groups, -1), 4).flatten(-2)


def _looked_up(codes: Tensor, table: tuple[float, ...]) -> Tensor:
    return Tensor(list(table), dtype=dtypes.float32, device=codes.device)[codes]


def _signed(codes: Tensor, offset: int) -> Tensor:
    """Codes of few bits less `offset`, as floats."""
    return codes.cast(dtypes.float32) - offset


# -- types of 32 elements a block -------------------------------------------------------------------


def _q4_0(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * _signed(_nibbles(blocks[:, 2:], 1), 8)


def _q4_1(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * _nibbles(blocks[:, 4:], 1) + _half(blocks, 2)


def _five_bits(blocks: Tensor, start: int) -> Tensor:
    """Four bytes of fifth bits, then 16 of four bits each."""
    fifth = _bits(blocks[:, start : start + 4]).unsqueeze(1)
    return _nibbles(blocks[:, start + 4 :], 1) | (fifth << 4)


def _q5_0(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * _signed(_five_bits(blocks, 2), 16)


def _q5_1(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * _five_bits(blocks, 4) + _half(blocks, 2)


def _q8_0(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * blocks[:, 2:].bitcast(dtypes.int8).unsqueeze(1)


def _iq4_nl(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * _looked_up(_nibbles(blocks[:, 2:], 1), _IQ4)


def _mxfp4(blocks: Tensor) -> Tensor:
    """Half of a power of two, 2 ** (byte - 128), by the bits of a float32, which is subnormal for 0 and 1; twice a code."""
    exponent = blocks[:, :1].cast(dtypes.uint32)
    bits = (exponent < 2).where((exponent + 1) << 21, (exponent - 1) << 23)
    return bits.bitcast(dtypes.float32).unsqueeze(-1) * _looked_up(_nibbles(blocks[:, 1:], 1), _FP4)


def _q1_0(blocks: Tensor) -> Tensor:
    """128 signs."""
    return blocks[:, :2].bitcast(dtypes.float16) * (
        _bits(blocks[:, 2:]).cast(dtypes.float16) * 2 - 1
    )


# -- types of 256 elements a block, in groups with scales of their own ------------------------------


def _scales_and_mins(packed: Tensor) -> tuple[Tensor, Tensor]:
    """Eight scales and eight minima of 6 bits each in 12 bytes, as (blocks, 8, 1)."""
    first, second, last = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = (first & 63).cat((last & 15) | ((first >> 6) << 4), dim=1)
    minima = (second & 63).cat((last >> 4) | ((second >> 6) << 4), dim=1)
    return scales.unsqueeze(-1), minima.unsqueeze(-1)


def _q2_k(blocks: Tensor) -> Tensor:
    codes = _fields(blocks[:, 16:80].reshape(-1, 2, 32), 2).reshape(-1, 16, 16)
    scale, minimum = blocks[:, :16] & 15, blocks[:, :16] >> 4
    return _half(blocks, 80) * scale.unsqueeze(-1) * codes - _half(blocks, 82) * minimum.unsqueeze(
        -1
    )


def _q3_k(blocks: Tensor) -> Tensor:
    low = _fields(blocks[:, 32:96].reshape(-1, 2, 32), 2).reshape(-1, 16, 16)
    third = _fields(blocks[:, :32], 1).reshape(-1, 16, 16)
    scale = _fields(blocks[:, 96:104], 4).flatten(1) | (
        _fields(blocks[:, 104:108], 2).flatten(1) << 4
    )
    return _half(blocks, 108) * _signed(scale, 32).unsqueeze(-1) * _signed(low | (third << 2), 4)


def _q4_k(blocks: Tensor) -> Tensor:
    scale, minimum = _scales_and_mins(blocks[:, 4:16])
    codes = _nibbles(blocks[:, 16:], 4).reshape(-1, 8, 32)
    return _half(blocks, 0) * scale * codes - _half(blocks, 2) * minimum


def _q5_k(blocks: Tensor) -> Tensor:
    scale, minimum = _scales_and_mins(blocks[:, 4:16])
    codes = _nibbles(blocks[:, 48:], 4).reshape(-1, 8, 32) | (_fields(blocks[:, 16:48], 1) << 4)
    return _half(blocks, 0) * scale * codes - _half(blocks, 2) * minimum


def _q6_k(blocks: Tensor) -> Tensor:
    low = _nibbles(blocks[:, :128], 2).reshape(-1, 16, 16)
    high = _fields(blocks[:, 128:192].reshape(-1, 2, 32), 2).reshape(-1, 16, 16)
    scale = blocks[:, 192:208].bitcast(dtypes.int8).unsqueeze(-1)
    return _half(blocks, 208) * scale * _signed(low | (high << 4), 32)


def _iq4_xs(blocks: Tensor) -> Tensor:
    low = _fields(blocks[:, 4:8], 4).transpose(-1, -2).flatten(-2)
    high = _fields(blocks[:, 2:4], 2).transpose(-1, -2).flatten(-2)
    scale = _signed(low | (high << 4), 32).unsqueeze(-1)
    return _half(blocks, 0) * scale * _looked_up(_nibbles(blocks[:, 8:], 8), _IQ4)


QUANTISED: dict[int, Quantised] = {
    2: Quantised("Q4_0", 32, 18, _q4_0),
    3: Quantised("Q4_1", 32, 20, _q4_1),
    6: Quantised("Q5_0", 32, 22, _q5_0),
    7: Quantised("Q5_1", 32, 24, _q5_1),
    8: Quantised("Q8_0", 32, 34, _q8_0),
    10: Quantised("Q2_K", 256, 84, _q2_k),
    11: Quantised("Q3_K", 256, 110, _q3_k),
    12: Quantised("Q4_K", 256, 144, _q4_k),
    13: Quantised("Q5_K", 256, 176, _q5_k),
    14: Quantised("Q6_K", 256, 210, _q6_k),
    20: Quantised("IQ4_NL", 32, 18, _iq4_nl),
    23: Quantised("IQ4_XS", 256, 136, _iq4_xs),
    39: Quantised("MXFP4", 32, 17, _mxfp4),
    41: Quantised("Q1_0", 128, 18, _q1_0),
}
