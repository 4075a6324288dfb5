"""What the items of a warp hold, and exchange without memory.

Owns: the words of a value. Does not own: the instructions (a dialect), which memory is held so (lowering/held_by_warps.py).
"""

from __future__ import annotations

from collections.abc import Callable

from proofgrad.backends.llvm.text import register_type
from proofgrad.backends.llvm.writer import Writer
from proofgrad.core.compile.lowering.held_by_warps import WORD
from proofgrad.core.ir.dtypes import DType

Exchange = Callable[[str], str]  # a word of each item, as each gets that of another


def write_exchanged(writer: Writer, dtype: DType, value: str, exchange: Exchange) -> str:
    """A value that another item holds, word by word."""
    kind, let = register_type(dtype), writer.let
    bits = 1 if dtype.is_bool else dtype.bits
    is_integer = kind == f"i{bits}"
    if bits <= WORD:
        word = value if is_integer else let(f"bitcast {kind} {value} to i{bits}")
        word = word if bits == WORD else let(f"zext i{bits} {word} to i{WORD}")
        word = exchange(word)
        word = word if bits == WORD else let(f"trunc i{WORD} {word} to i{bits}")
        return word if is_integer else let(f"bitcast i{bits} {word} to {kind}")
    vector = f"<{bits // WORD} x i{WORD}>"
    words, made = let(f"bitcast {kind} {value} to {vector}"), "poison"
    for k in range(bits // WORD):
        word = exchange(let(f"extractelement {vector} {words}, i64 {k}"))
        made = let(f"insertelement {vector} {made}, i{WORD} {word}, i64 {k}")
    return let(f"bitcast {vector} {made} to {kind}")
