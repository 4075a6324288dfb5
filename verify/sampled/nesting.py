"""The nesting of a Linear, walked as a machine would run it: what is open where, and what has run.

Owns: the rules of loops and registers, whose breach is `NotReadable`. Does not own: what the nodes
compute (kernels/readback.py, sampled/linear.py). Needs no solver.
"""

from __future__ import annotations

from dataclasses import dataclass

from proofgrad.core.ir.op_names import (
    ACCUMULATOR,
    END,
    FILLED,
    RANGE,
    RESULT,
    SCRATCH,
    STORE,
    UPDATE,
)
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp


class NotReadable(Exception):
    """A program that means nothing: says where it breaks the rules of loops and registers."""


class NotCovered(NotReadable):
    """A program that may mean something, which the reader does not know."""


@dataclass(eq=False, slots=True)
class _Run:
    """The iterations of a loop from its RANGE to its END; of no loop: the program."""

    loop: UOp | None
    around: _Run | None
    is_open: bool = True


class Nesting:
    """Walks a Linear once, as a machine would: which loops are open where, and what has run in them."""

    def __init__(self, linear: UOp) -> None:
        self.linear = linear
        self.depends: dict[UOp, frozenset[UOp]] = {}  # the loops that must be open for a node
        self.registers: dict[UOp, frozenset[UOp]] = {}  # that a node reads in its own iteration
        self.open: list[UOp] = []
        self.run = _Run(None, None)
        self.ran_in: dict[UOp, _Run] = {}

    def of_stores(self) -> dict[UOp, tuple[UOp, ...]]:
        """The open loops at each STORE. Raises: NotReadable."""
        found: dict[UOp, tuple[UOp, ...]] = {}
        stored, filled = set[UOp](), set[UOp]()
        for node in self.linear.src:
            op = node.op
            if op is RANGE:
                self.open.append(node)
                self.run = _Run(node, self.run)
            elif op is END:
                self._close(node.src[0])
                continue
            self._enter(node, op)
            if op is STORE:
                if node in stored:
                    raise NotReadable("a STORE stands in the program twice")
                stored.add(node)
                if node.src[0].src[0].op is not SCRATCH:
                    found[node] = tuple(self.open)
            elif op is FILLED:
                self._check_filled(node, filled)
        if self.open:
            raise NotReadable(f"loop {_name(self.open[-1])} is never closed")
        return found

    def _close(self, loop: UOp) -> None:
        if not self.open or self.open[-1] is not loop:
            raise NotReadable(f"loop {_name(loop)} is closed where it is not the innermost")
        self.open.pop()
        self.run.is_open = False
        assert self.run.around is not None
        self.run = self.run.around

    def _enter(self, node: UOp, op: Ops) -> None:
        """What a node depends on, as it runs here. Raises: NotReadable if that is not there."""
        depends, registers, ran_in = self.depends, self.registers, self.ran_in
        loops = read = _NONE
        has_ended: UOp | None = None
        for source in node.src if op is not ACCUMULATOR else node.src[:1]:
            run = ran_in.get(source)
            if run is None and source.op is RANGE:
                raise _not_open(op, source)
            if run is None:
                raise NotReadable(f"{op.name} runs before its source {source.op.name}")
            if not run.is_open:
                has_ended = source
            more = depends[source]
            if more is not loops and not more <= loops:
                loops = loops | more if loops else more
            more = registers[source]
            if more is not read and not more <= read:
                read = read | more if read else more
        if op in _OWN:
            loops, read, has_ended = self._own(node, op, loops, read, has_ended)
        if op is UPDATE:
            self._check_updated(node)
        depends[node], registers[node], ran_in[node] = loops, read, self.run
        if has_ended is None and not loops:
            return
        for loop in loops:
            if loop not in self.open:
                raise _not_open(op, loop)
        if has_ended is not None:
            raise NotReadable(f"{op.name} reads {has_ended.op.name} of a loop that has ended")

    def _own(
        self, node: UOp, op: Ops, loops: frozenset[UOp], read: frozenset[UOp], ended: UOp | None
    ) -> tuple[frozenset[UOp], frozenset[UOp], UOp | None]:
        """What a node with loops of its own needs, by what its sources need."""
        if op is RANGE:
            return frozenset((node,)), read, ended
        if op is ACCUMULATOR:
            return loops, read | {node}, ended
        if op is FILLED:
            return loops.difference(node.src[1:]), read, None
        self._check_register(node)
        return loops.difference(node.src[0].src[0].src[1:]), _NONE, None

    def _check_updated(self, update: UOp) -> None:
        """A register is updated once in each run of its loops, and there alone."""
        register = update.src[0]
        between = _between(self.ran_in[register], self.run)
        if between is None or {run.loop for run in between} != set(register.src[1:]):
            names = ", ".join(sorted(_name(loop) for loop in register.src[1:]))
            raise NotReadable(f"a register is not updated in its loops ({names}) and no others")

    def _check_register(self, result: UOp) -> None:
        """Set once before its loops, updated once in each of their runs, read after them."""
        update = result.src[0]
        register = update.src[0]
        outside, inside = self.ran_in[register], self.ran_in[update]
        between = _between(outside, inside)
        if between is None or {run.loop for run in between} != set(register.src[1:]):
            names = ", ".join(sorted(_name(loop) for loop in register.src[1:]))
            raise NotReadable(f"a register is not updated in its loops ({names}) and no others")
        if not outside.is_open:
            raise NotReadable("a register is read in another run of the loops than it was set in")
        if any([run.is_open for run in between]):
            raise NotReadable("a register is read before its loops have ended")

    def _check_filled(self, kept: UOp, filled: set[UOp]) -> None:
        """Scratch memory is filled by one STORE, in the loops of FILLED and no others, which have ended."""
        store = kept.src[0]
        memory = store.src[0].src[0]
        between = _between(self.run, self.ran_in[store])
        if between is None or {run.loop for run in between} != set(kept.src[1:]):
            raise NotReadable("scratch memory is not filled in its loops and no others")
        if memory in filled:
            raise NotReadable("scratch memory is filled twice")
        filled.add(memory)


_NONE: frozenset[UOp] = frozenset()
_OWN = frozenset({RANGE, ACCUMULATOR, FILLED, RESULT})


def _not_open(op: Ops, loop: UOp) -> NotReadable:
    return NotReadable(
        f"{op.name} needs loop {_name(loop)} (of {loop.src[0].arg}), which is not open there"
    )


def _between(outside: _Run, inside: _Run) -> list[_Run] | None:
    """The runs within `outside` around what ran `inside`; None where that ran elsewhere."""
    found: list[_Run] = []
    run: _Run | None = inside
    while run is not outside:
        if run is None:
            return None
        found.append(run)
        run = run.around
    return found


def _name(loop: UOp) -> str:
    return f"r{loop.arg[0]}"
