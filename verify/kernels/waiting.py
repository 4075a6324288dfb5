"""Whether items of a group wait for each other wherever one reads what another puts into memory of the group.

Owns: finding two accesses of one memory that no wait keeps apart, and waits that not all items come to, in a Linear.
Does not own: that each element is filled by one iteration (kernels/readback.py, kernels/proof.py), where waits are put
(core/compile/lowering/waits.py), which this file does not believe.

A Linear is walked as an item runs it, and each loop's body twice: what the end of one iteration leaves, the next one meets. Since
the last wait other items may be anywhere up to the next one. So from a store of a memory to a load of it there is a wait on the
way, and from a load to the next store, too. A wait is one if all items come to it: loops around it have as many iterations
for each of them. Where warps multiply matrices, or exchange what they hold, an item takes in what others have: they come to it together
in the same way.

Memory that is filled ahead has P parts (verify/kernels/ahead.py): iteration s of the loop around fills part (s + P - 1) % P, in the first
iteration all others before, and reads part s % P. Its body is walked for P + 1 iterations, of each part by itself. What is put there may be on
its way: a wait says how many of the last fills of parts it does not wait for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from proofgrad.core.compile.lowering.program_facts import group_size
from proofgrad.core.compile.nests.loops import is_bounded_by_groups
from proofgrad.core.ir.fragments import square_of
from proofgrad.core.ir.op_names import CONST, END, FILLED, LOAD, MMA, RANGE, STORE
from proofgrad.core.ir.uop import AxisRole, UOp
from proofgrad.verify.kernels.ahead import is_ahead, loops_around_parts
from proofgrad.verify.kernels.terms import loop_size
from proofgrad.verify.kernels.warps import lanes_of, what_leaves_its_item, what_leaves_its_warp


def what_races(
    linear: UOp,
    waits: Mapping[UOp, int],
    by_warps: Collection[UOp] = (),
    by_items: Collection[UOp] = (),
) -> str | None:
    """Which accesses of memory of a group no wait keeps apart, or which wait not all come to; None: there are none.

    `waits`: where items wait, and for how many of the last fills of parts each does not. `by_warps`: memory that the items of
    a warp exchange among themselves instead, together. `by_items`: memory of which each item reads only what itself has put there.
    """
    return _Walk(linear, waits, by_warps, by_items).run()


Access = tuple[UOp, int | None]  # of a memory, all of it or a part


class _Walk:
    """What was put into memory of the group, and read there, since the last wait."""

    def __init__(
        self,
        linear: UOp,
        waits: Mapping[UOp, int],
        by_warps: Collection[UOp],
        by_items: Collection[UOp],
    ) -> None:
        self.nodes, self.waits = linear.src, waits
        self.items = group_size(linear)
        self.ends = {n.src[0]: at for at, n in enumerate(self.nodes) if n.op is END}
        kept = [n for n in self.nodes if n.op is FILLED]
        shared = [n for n in kept if any([x.arg[1] is AxisRole.LANE for x in n.src[1:]])]
        self.of_warps, self.of_items = [
            {n for n in shared if n.src[0].src[0].src[0] in memories}.union(memories)
            for memories in (by_warps, by_items)
        ]
        shared = [n for n in shared if n not in self.of_warps and n not in self.of_items]
        self.memory = {n: n.src[0].src[0].src[0] for n in shared}
        self.lanes: dict[UOp, int] = {}  # of the widest access of what items have to themselves
        for node in self.nodes:
            if node.op in (STORE, LOAD) and node.src[0].src[0] in self.of_items:
                self.lanes[_memory(node)] = max(lanes_of(node), self.lanes.get(_memory(node), 1))
        self.of_group = frozenset(self.memory.values())
        self.of_item = frozenset([n.src[0].src[0].src[0] for n in kept if n not in self.memory])
        self.parts = {self.memory[n]: n.src[1] for n in shared if is_ahead(n.src[1])}
        around = loops_around_parts(linear)
        self.around_parts = {
            loop: max([loop_size(p) for p in around if around[p] is loop])
            for loop in around.values()
        }
        self.put: dict[Access, int] = {}  # and with which fill of parts, 0: it is there at once
        self.fills = 0  # of parts, so far
        self.read: set[Access] = set()
        self.around: list[UOp] = []
        self.part: dict[UOp, int] = {}  # that a loop over parts is at
        self.iteration: int | None = None  # of the loop that fills memory ahead

    def run(self) -> str | None:
        """The first thing that is wrong."""
        return self._between(0, len(self.nodes))

    def _between(self, position: int, stop: int) -> str | None:
        while position < stop:
            node = self.nodes[position]
            if node.op is RANGE:
                end = self.ends.get(node, stop)
                walk = self._ahead if is_ahead(node) else self._loop
                if (wrong := walk(node, position + 1, end)) is not None:
                    return wrong
                position = end
            elif (wrong := self._step(node)) is not None:
                return wrong
            position += 1
        return None

    def _loop(self, loop: UOp, first: int, end: int) -> str | None:
        self.around.append(loop)
        before = self.iteration
        parts = self.around_parts.get(loop)
        times = 1 if self._is_one_each(loop) else 2 if parts is None else parts + 1
        for iteration in range(times):
            if parts is not None:
                self.iteration = iteration
            wrong = self._between(first, end)
            if wrong is None and end < len(self.nodes) and self.nodes[end] in self.waits:
                wrong = self._wait(self.waits[self.nodes[end]])
            if wrong is not None:
                return wrong
        self.iteration = before
        self.around.pop()
        return None

    def _is_one_each(self, loop: UOp) -> bool:
        """Whether an item has one iteration of a loop."""
        is_shared = loop.arg[1] is AxisRole.LANE and self._all_come(loop)
        return is_shared or loop.arg[1] is AxisRole.BLOCK

    def _ahead(self, loop: UOp, first: int, end: int) -> str | None:
        """The parts of this iteration and the next ones, if it is the first one, and that of the furthest."""
        if self.iteration is None or self.around[-1] not in self.around_parts:
            return f"loop r{loop.arg[0]} fills memory ahead, and no loop around it runs one by one"
        self.around.append(loop)
        parts = loop_size(loop)
        for later in range(0 if self.iteration == 0 else parts - 1, parts):
            is_waited_for = later == parts - 1 and loop in self.waits
            wrong = self._wait(self.waits[loop]) if is_waited_for else None
            self.part[loop] = (self.iteration + later) % parts
            self.fills += 1
            wrong = self._between(first, end) if wrong is None else wrong
            if wrong is not None:
                return wrong
        self.around.pop()
        return None

    def _step(self, node: UOp) -> str | None:
        if node.op in (STORE, LOAD) and node.src[0].src[0] in self.of_warps:
            uneven = self._uneven("exchange what they hold")
            return uneven or what_leaves_its_warp(node, self.items)
        if node.op in (STORE, LOAD) and node.src[0].src[0] in self.of_items:
            return what_leaves_its_item(node, self.items, self.lanes[_memory(node)])
        if node.op is STORE and (memory := node.src[0].src[0]) in self.of_group:
            part = self.part.get(self.parts[memory]) if memory in self.parts else None
            fill = 0 if part is None else self.fills
            if self.put.get((memory, part), fill) != fill:
                return f"memory {memory.arg[0]} of a group is filled again while what fills it is on its way"
            self.put[memory, part] = fill
            if _met(self.read, memory, part):
                return f"memory {memory.arg[0]} of a group is filled again while others may read it"
        elif node.op is STORE and self.iteration is not None:
            if node.src[0].src[0] not in self.of_item:
                return "memory is stored to in a loop that fills other memory ahead"
        elif node.op is LOAD and (found := self.memory.get(node.src[0].src[0])) is not None:
            is_known = found in self.parts and self.iteration is not None
            part = None
            if is_known and self.iteration is not None:
                part = self.iteration % loop_size(self.parts[found])
            self.read.add((found, part))
            if _met(self.put, found, part):
                return f"memory {found.arg[0]} of a group is read before all wait for what fills it"
        elif node in self.waits and node.op is not RANGE:
            return self._wait(self.waits[node])
        elif node.op is MMA and square_of(node) is None:
            return self._uneven("multiply matrices together")
        return None

    def _wait(self, on_their_way: int) -> str | None:
        if (wrong := self._uneven("wait")) is not None:
            return wrong
        arrived = max(0, self.fills - on_their_way)
        self.put = {access: fill for access, fill in self.put.items() if fill > arrived}
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
        if loop.src[0].op is not CONST and not is_bounded_by_groups(loop):
            return False
        match loop.arg[1]:
            case AxisRole.LANE:
                return bool(loop.src[0].arg == self.items)
            case AxisRole.BLOCK | AxisRole.LOOP | AxisRole.REDUCE | AxisRole.AHEAD:
                return True
        return False


def _met(accesses: Collection[Access], memory: UOp, part: int | None) -> bool:
    """Whether some of these are of the same memory, and may be of the same part."""
    return any([one is memory and (p is None or part is None or p == part) for one, p in accesses])


def _memory(access: UOp) -> UOp:
    """The SCRATCH that is accessed."""
    memory = access.src[0].src[0]
    return memory.src[0].src[0].src[0] if memory.op is FILLED else memory
