"""How many instructions warps issue for the multiply-adds of a kernel: read from the loops of its PTX.

Owns: the loops of a text, what is counted in them. Does not own: how many multiply-adds a kernel makes (ptx_kernels.py).

What stands in the innermost loops that multiply and add is issued as often as these do, so the instructions there for each of
them are enough; what is around is left out. Instructions of PTX are nearly those of the machine, but for moves, which are none.
"""

from __future__ import annotations

import re

# Multiply-adds of one instruction of a warp: rows, columns and steps of mma.sync; one of each item.
_OF_UNITS = re.compile(r"mma\.sync\.aligned\.m(\d+)n(\d+)k(\d+)")
_OF_ITEMS, _WARP = re.compile(r"fma\.rn(?:\.ftz)?\.f(?:32|64)\b"), 32
_LABEL, _BRANCH = re.compile(r"^(\$\w+):"), re.compile(r"\bbra(?:\.uni)?\s+(\$\w+);")
_NONE = re.compile(r"mov\b|\$|//|\.|[{}()]|$")  # a line that is no instruction of the machine


def issued(text: str, multiply_adds: int, only: str = "") -> int:
    """Instructions of all warps that make so many multiply-adds, or those whose names begin so; 0 for a text that has none.

    `only`: a pattern, of all names if it is empty.
    """
    lines = [line.strip() for line in text.splitlines()]
    made = [_multiply_adds(line) for line in lines]
    if not any(made):
        return 0
    units = _OF_UNITS if _OF_UNITS.search(text) else _OF_ITEMS
    counted = {k for k, line in enumerate(lines) if units.search(line)}
    inside = set[int]()
    loops = _loops(lines)
    for k in counted:
        around = [loop for loop in loops if k in loop]
        inside.update(min(around, key=len, default=range(len(lines))))
    instructions = sum(
        [not _NONE.match(lines[k]) and bool(re.match(only, lines[k])) for k in inside]
    )
    return round(instructions * multiply_adds / sum([made[k] for k in counted]))


def _multiply_adds(line: str) -> int:
    if found := _OF_UNITS.search(line):
        rows, columns, steps = map(int, found.groups())
        return rows * columns * steps
    return _WARP if _OF_ITEMS.search(line) else 0


def _loops(lines: list[str]) -> list[range]:
    """From a label to the last branch back to it."""
    labels, ends = dict[str, int](), dict[str, int]()
    for k, line in enumerate(lines):
        if found := _LABEL.match(line):
            labels[found[1]] = k
        if (found := _BRANCH.search(line)) and found[1] in labels:
            ends[found[1]] = k
    return [range(labels[name], end + 1) for name, end in ends.items()]
