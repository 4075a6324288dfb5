"""Memory as views of bytes, and as addresses for ctypes.

Owns: conversions. Does not own: the memory; an address is good while its owner lives.
"""

from __future__ import annotations

import ctypes


def flat_mv(mv: memoryview) -> memoryview:
    """The same memory as a line of bytes. Raises: TypeError if it does not lie in a row."""
    return mv if len(mv) == 0 else mv.cast("B", (mv.nbytes,))


def to_mv(ptr: int, sz: int) -> memoryview:
    """`sz` bytes of this process from the address `ptr` on."""
    return memoryview((ctypes.c_uint8 * sz).from_address(ptr)).cast("B")


def from_mv(
    mv: memoryview,
    to_type: type[ctypes._SimpleCData] = ctypes.c_char,  # type: ignore[type-arg]
) -> ctypes.Array:  # type: ignore[type-arg]
    """The same memory as an array of ctypes. Raises: TypeError for memory that may not be written."""
    whole = to_type * (mv.nbytes // ctypes.sizeof(to_type))
    return whole.from_buffer(flat_mv(mv))


def mv_address(mv: memoryview) -> int:
    """Where the memory begins. Raises: TypeError for memory that may not be written."""
    return ctypes.addressof(ctypes.c_char.from_buffer(mv))
