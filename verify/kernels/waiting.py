"""Whether items of a group wait for each other wherever one reads what another puts into memory of the group.

Owns: finding two accesses of one memory that no wait keeps apart, and waits that not all items come to, in a Linear.
Does not own: that each element is filled by one iteration (kernels/readback.py, kernels/proof.py), where waits are put
(core/compile/lowering/waits.py), which this file does not believe.

A Linear is walked as an item runs it, and each loop's body twice: what the end of one iteration leaves, the next one meets. Since
the last wait other items may be anywhere up to the next one. So from a store of a memory to a load of it there is a wait on the
way, and from a load to the next store, too. A wait is one if all items come to it: loops around it have as many iterations
for each of them. Where warps multiply matrices, an item takes in what others hold: they come to it together in the same way.
"""

from __future__ import annotations

from collections.abc import Collection

from proofgrad.core.compile.lowering.program_facts import group_size
from proofgrad.core.ir.op_names import CONST, END, FILLED, LOAD, MMA, RANGE, STORE
from proofgrad.core.ir.uop import AxisRole, UOp


def what_races(linear: UOp, waits: Collection[UOp]) -> str | None:
    """Which accesses of memory of a group no wait keeps apart, or which wait not all come to; None: there are none."""
    return _Walk(linear, waits).run()


class _Walk:
    """What was put into memory of the group, and read there, since the last wait."""

    def __init__(self, linear: UOp, waits: Collection[UOp]) -> None:
        self.nodes, self.waits = linear.src, waits
        self.items = group_size(linear)
        self.ends = {n.src[0]: at for at, n in enumerate(self.nodes) if n.op is END}
        kept = [n for n in self.nodes if n.op is FILLED]
        shared = [n for n in kept if any([x.arg[1] is AxisRole.LANE for x in n.src[1:]])]
        self.memory = {n: n.src[0].src[0].src[0] for n in shared}
        self.of_group = frozenset(self.memory.values())
        self.put: set[UOp] = set()
        self.read: set[UOp] = set()
        self.around: list[UOp] = []

    def run(self) -> str | None:
        """The first thing that is wrong."""
        return self._between(0, len(self.nodes))

    def _between(self, position: int, stop: int) -> str | None:
        while position < stop:
            node = self.nodes[position]
            if node.op is RANGE:
                end = self.ends.get(node, stop)
                if (wrong := self._loop(node, position + 1, end)) is not None:
                    return wrong
                position = end
            elif (wrong := self._step(node)) is not None:
                return wrong
            position += 1
        return None

    def _loop(self, loop: UOp, first: int, end: int) -> str | None:
        self.around.append(loop)
        for _ in range(1 if loop.arg[1] is AxisRole.BLOCK else 2):
            wrong = self._between(first, end)
            if wrong is None and end < len(self.nodes) and self.nodes[end] in self.waits:
                wrong = self._wait()
            if wrong is not None:
                return wrong
        self.around.pop()
        return None

    def _step(self, node: UOp) -> str | None:
        if node.op is STORE and (memory := node.src[0].src[0]) in self.of_group:
            self.put.add(memory)
            if memory in self.read:
                return f"memory {memory.arg[0]} of a group is filled again while others may read it"
        elif node.op is LOAD and (found := self.memory.get(node.src[0].src[0])) is not None:
            self.read.add(found)
            if found in self.put:
                return f"memory {found.arg[0]} of a group is read before all wait for what fills it"
        elif node in self.waits:
            return self._wait()
        elif node.op is MMA:
            return self._uneven("multiply matrices together")
        return None

    def _wait(self) -> str | None:
        if (wrong := self._uneven("wait")) is not None:
            return wrong
        self.put.clear()
        self.read.clear()
        return None

    def _uneven(self, what: str) -> str | None:
        """Why not all items come to where they wait for each other, or exchange what they hold."""
        uneven = [loop for loop in self.around if not self._all_come(loop)]
        if not uneven:
            return None
        return (
            f"items of a group {what} inside of loop r{uneven[0].arg[0]}, which not all run alike"
        )

    def _all_come(self, loop: UOp) -> bool:
        """Whether each item runs a loop as often as others do."""
        if loop.src[0].op is not CONST:
            return False
        match loop.arg[1]:
            case AxisRole.LANE:
                return bool(loop.src[0].arg == self.items)
            case AxisRole.BLOCK | AxisRole.LOOP | AxisRole.REDUCE:
                return True
        return False
