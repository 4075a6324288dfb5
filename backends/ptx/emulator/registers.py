"""Which registers a thread still needs after it has met others.

Owns: that set, by liveness over the body. Does not own: where they are kept (function.py).

A thread leaves its function at a meeting and enters again after it. Registers that are read later lie in its frame; all
others are registers of the host.
"""

from __future__ import annotations

import re

from proofgrad.backends.ptx.emulator.parse import Instruction, Kernel, Label

MEETINGS = ("bar", "barrier", "shfl", "vote", "redux", "mma", "ldmatrix")
_NAMES = re.compile(r"[%\w$][\w$.]*")
# Instructions without a result: all of their operands are read.
_READERS = {"st", "bra", "ret", "exit", "red", "bar", "barrier", "membar", "fence", "trap", "cp", "prefetch"}  # fmt: skip


def meets(instruction: Instruction) -> bool:
    """Whether threads wait for each other there."""
    return instruction.parts[0] in MEETINGS


def outliving(kernel: Kernel) -> set[str]:
    """Registers that are read after some meeting before they are written again."""
    body = kernel.body
    if not any(isinstance(node, Instruction) and meets(node) for node in body):
        return set()
    labels = {node.name: k for k, node in enumerate(body) if isinstance(node, Label)}
    reads, writes, nexts = [], [], []
    for k, node in enumerate(body):
        read, written = _uses(node, kernel)
        reads.append(read)
        writes.append(written)
        nexts.append(_after(node, k, labels))
    live: list[set[str]] = [set() for _ in range(len(body) + 1)]
    changed = True
    while changed:
        changed = False
        for k in range(len(body) - 1, -1, -1):
            after = set().union(*[live[n] for n in nexts[k]]) if nexts[k] else set()
            before = reads[k] | (after - writes[k])
            if before != live[k]:
                live[k], changed = before, True
    found: set[str] = set()
    for k, node in enumerate(body):
        if isinstance(node, Instruction) and meets(node):
            # in two halves: what it reads and writes, too, may be wanted on both sides
            found |= live[k] | reads[k] | writes[k]
            found = found.union(*[live[n] for n in nexts[k]])
    return found


def _uses(node: Instruction | Label, kernel: Kernel) -> tuple[set[str], set[str]]:
    if isinstance(node, Label):
        return set(), set()
    names = [
        {word for word in _NAMES.findall(operand) if word in kernel.registers}
        for operand in node.operands
    ]
    guard = {node.guard} if node.guard else set()
    if node.parts[0] in _READERS or not names:
        return set().union(*names, guard), set()
    # under a guard the old value stays where it does not run
    read = set().union(*names[1:], guard, names[0] if node.guard else set())
    return read, names[0]


def _after(node: Instruction | Label, k: int, labels: dict[str, int]) -> list[int]:
    if isinstance(node, Instruction) and node.parts[0] in ("ret", "exit", "bra"):
        there = [labels[node.operands[0]]] if node.parts[0] == "bra" else []
        return [*there, k + 1] if node.guard else there
    return [k + 1]
