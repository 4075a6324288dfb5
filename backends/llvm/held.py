"""What a group keeps, in registers of its items: memory of an item whose loops LLVM writes out.

Owns: which memory, its text, the text of loops that are to be written out. Does not own: the passes that make registers of it
(the backends), which elements are whose (lowering/held_by_items.py).

An array on the stack whose positions are all constants is registers (scalar replacement of aggregates: S. Muchnick, Advanced
Compiler Design and Implementation, 12.2). They are constants once the loops that count them are written out.
"""

from __future__ import annotations

from proofgrad.backends.llvm.text import memory_type
from proofgrad.core.compile.lowering.held_by_items import Held, held_by_items
from proofgrad.core.compile.machine.target import PARTS_OF_SCORES
from proofgrad.core.ir.op_names import MMA
from proofgrad.core.ir.uop import UOp

UNROLLED = "llvm.loop.unroll.full"


def held_in_registers(linear: UOp, most_bytes: int) -> dict[UOp, Held]:
    """The memory of a group that its items hold: each up to so many bytes, and twice as many in all, as what is computed
    takes the place of what it is computed from. Of warps that multiply, items hold more."""
    found: dict[UOp, Held] = {}
    if any([n.op is MMA for n in linear.src]):
        most_bytes *= PARTS_OF_SCORES
    left = 2 * most_bytes
    for memory, held in held_by_items(linear).items() if most_bytes else ():
        nbytes = held.elements * memory.dtype.itemsize
        if nbytes <= min(left, most_bytes):
            found[memory] = held
            left -= nbytes
    return found


def room_in_item(memory: UOp, held: Held) -> tuple[str, str]:
    """The name of an item's part of a memory, and the line that makes room for it."""
    name = f"%held{memory.arg[0]}"
    return name, f"  {name} = alloca [{held.elements} x {memory_type(memory.dtype)}], align 16"


def unroll_whole(number: int) -> str:
    """What the last branch of a loop that is to be written out has behind it; `number`: of such loops, from 1 on."""
    return f", !llvm.loop !{2 + number}"


def unrolled_loops(count: int) -> list[str]:
    """What a module says of so many loops."""
    names = [2 + k + 1 for k in range(count)]
    lines = [f"!{name} = distinct !{{!{name}, !2}}" for name in names]
    return ["", f'!2 = !{{!"{UNROLLED}"}}', *lines] if count else []
