"""The nesting of a Linear, walked as a machine would run it: what is open where, and what has run.

Owns: the rules of loops and registers, whose breach is `NotReadable`. Does not own: what the nodes
compute (kernel_readback.py, sampled_linear.py). Needs no solver.
"""

from __future__ import annotations

from proofgrad.core.compile.linear_terms import together
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort


class NotReadable(Exception):
    """A program that means nothing: says where it breaks the rules of loops and registers."""


class NotCovered(NotReadable):
    """A program that may mean something, which the reader does not know."""


class Nesting:
    """Walks a Linear as a machine would: which loops are open where, and what has run in them."""

    def __init__(self, linear: UOp) -> None:
        self.linear = linear
        self.depends = _depends(linear.src)
        self.open: list[UOp] = []
        self.instance: list[int] = []  # tells the runs of loops apart: the place of each RANGE
        self.ran_in: dict[UOp, tuple[int, ...]] = {}

    def of_stores(self) -> dict[UOp, tuple[UOp, ...]]:
        """The open loops at each STORE. Raises: NotReadable."""
        found: dict[UOp, tuple[UOp, ...]] = {}
        stored, filled = set[UOp](), set[UOp]()
        for place, node in enumerate(self.linear.src):
            if node.op is Ops.RANGE:
                self.open.append(node)
                self.instance.append(place)
            elif node.op is Ops.END:
                self._close(node.src[0])
                continue
            self._check(node)
            self.ran_in[node] = tuple(self.instance)
            if node.op is Ops.STORE:
                if node in stored:
                    raise NotReadable("a STORE stands in the program twice")
                stored.add(node)
                if node.src[0].src[0].op is not Ops.SCRATCH:
                    found[node] = tuple(self.open)
            elif node.op is Ops.KEPT:
                self._check_filled(node, filled)
        if self.open:
            raise NotReadable(f"loop {_name(self.open[-1])} is never closed")
        return found

    def _close(self, loop: UOp) -> None:
        if not self.open or self.open[-1] is not loop:
            raise NotReadable(f"loop {_name(loop)} is closed where it is not the innermost")
        self.open.pop()
        self.instance.pop()

    def _check(self, node: UOp) -> None:
        for loop in self.depends[node]:
            if loop not in self.open:
                raise NotReadable(
                    f"{node.op.name} needs loop {_name(loop)} (of {loop.src[0].arg}), which is"
                    " not open there"
                )
        for source in node.src[:1] if node.op is Ops.ACCUMULATOR else node.src:
            where = self.ran_in.get(source)
            if where is None:
                raise NotReadable(f"{node.op.name} runs before its source {source.op.name}")
            if node.op not in (Ops.RESULT, Ops.KEPT) and where != tuple(
                self.instance[: len(where)]
            ):
                raise NotReadable(f"{node.op.name} reads {source.op.name} of a loop that has ended")
        if node.op is Ops.RESULT:
            self._check_register(node)

    def _check_register(self, result: UOp) -> None:
        """Set once before its loops, updated once in each of their runs, read after them."""
        update = result.src[0]
        register = update.src[0]
        outside, inside = self.ran_in[register], self.ran_in[update]
        own = {self.linear.src[place] for place in inside[len(outside) :]}
        if inside[: len(outside)] != outside or own != set(register.src[1:]):
            names = ", ".join(sorted(_name(loop) for loop in register.src[1:]))
            raise NotReadable(f"a register is not updated in its loops ({names}) and no others")
        if outside != tuple(self.instance[: len(outside)]):
            raise NotReadable("a register is read in another run of the loops than it was set in")
        if any(place in self.instance for place in inside[len(outside) :]):
            raise NotReadable("a register is read before its loops have ended")

    def _check_filled(self, kept: UOp, filled: set[UOp]) -> None:
        """Scratch memory is filled by one STORE, in the loops of KEPT and no others, which have ended."""
        store = kept.src[0]
        memory, outside, inside = store.src[0].src[0], self.instance, self.ran_in[store]
        own = {self.linear.src[place] for place in inside[len(outside) :]}
        if list(inside[: len(outside)]) != outside or own != set(kept.src[1:]):
            raise NotReadable("scratch memory is not filled in its loops and no others")
        if memory in filled:
            raise NotReadable("scratch memory is filled twice")
        filled.add(memory)


def _depends(nodes: tuple[UOp, ...]) -> dict[UOp, frozenset[UOp]]:
    """The loops that must be open where each node of a Linear runs."""
    found: dict[UOp, frozenset[UOp]] = {}
    for node in toposort(nodes):
        if node.op is Ops.RANGE:
            found[node] = frozenset((node,))
            continue
        below = together([found[s] for s in node.src])
        if node.op is Ops.ACCUMULATOR:
            below = found[node.src[0]]
        elif node.op is Ops.RESULT:
            below = below - set(node.src[0].src[0].src[1:])
        elif node.op is Ops.KEPT:
            below = found[node.src[0]] - set(node.src[1:])
        found[node] = below
    return found


def _name(loop: UOp) -> str:
    return f"r{loop.arg[0]}"
