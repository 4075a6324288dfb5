"""What a loop carries from one iteration to the next: its counter and accumulators, as phi nodes.

Owns: which accumulators, the text of a phi node, what is known of an open loop. Does not own: its branches (emit.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from proofgrad.core.ir.op_names import ACCUMULATOR, END, RANGE, UPDATE
from proofgrad.core.ir.uop import UOp


@dataclass(slots=True)
class OpenLoop:
    """A loop whose end is not written yet. `tested_first`: it may run zero times."""

    range: UOp
    label: str
    entered_from: str
    start: str
    bound: str
    counter_line: int
    tested_first: bool
    counter: str
    step: int = 1
    phis: dict[UOp, tuple[int, str, str]] = field(default_factory=dict)  # line, name, first value
    before: dict[UOp, str] | None = None  # the registers outside of a loop that a mask turns off


def phi(name: str, llvm_type: str, first: str, before: str, last: str, latch: str) -> str:
    """What a register is when it comes from one block, and when from the other."""
    return f"{name} = phi {llvm_type} [ {first}, %{before} ], [ {last}, %{latch} ]"


def carried_accumulators(linear: UOp) -> dict[UOp, list[UOp]]:
    """For each loop the accumulators that it carries: made before it opens, updated inside of it."""
    carried: dict[UOp, list[UOp]] = {}
    depth: dict[UOp, int] = {}
    open_ranges: list[UOp] = []
    for node in linear.src:
        op = node.op
        if op is RANGE:
            open_ranges.append(node)
        elif op is END:
            open_ranges.remove(node.src[0])
        elif op is ACCUMULATOR:
            depth[node] = len(open_ranges)
        elif op is UPDATE:
            accumulator = node.src[0]
            for loop in open_ranges[depth[accumulator] :]:
                known = carried.setdefault(loop, [])
                if accumulator not in known:
                    known.append(accumulator)
    return carried
