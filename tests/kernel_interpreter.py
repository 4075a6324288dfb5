"""What a Kernel or Program graph stores, by brute force over its loops: the check of procedures and steps.

Slow and plain on purpose; shares nothing with the compiler but the values of single operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import product
from math import prod
from typing import Any

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.evaluate import evaluate, from_bits, identity
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.uop import AxisRole, UOp

Memory = dict[int | str, list[Any]]  # of slots, and of variables, which have names
Loops = dict[UOp, int]  # the counter of each loop that runs
Meaning = Callable[[Loops, Memory], Any]

# Loops that workers share out: each takes a part of every such loop, wherever the loop stands.
SHARED_OUT = (AxisRole.THREAD, AxisRole.GLOBAL, AxisRole.BLOCK)


def run_kernel(
    kernel: UOp,
    buffers: Memory,
    workers: int = 1,
    filled: set[int] | None = None,
    changed: frozenset[int] = frozenset(),
) -> Memory:
    """The buffers after the kernel, or each of several in order, has run.

    The buffer that a kernel writes is made here and starts as all None; one that it combines with, or reads, is there, and so is one
    that a kernel before it writes (`filled`, to which its own is added): of that each writes other elements.
    `changed`: buffers that are there before the first kernel, and changed in place.
    Asserts that every access is inside of its buffer, also of loads whose store is masked, that nothing is read that was not written, that an element is written once,
    or by STOREs that combine or write in order, in one iteration of the loops that are not the STORE's own.
    """
    filled = set() if filled is None else filled
    if kernel.src[0].op is Ops.SINK:
        for part in kernel.src:
            buffers = run_kernel(part, buffers, workers, filled, changed)
        return buffers
    run = _Run(kernel, buffers, workers, filled, changed)
    filled.add(run.written)
    return run.memory


class _Run:
    """One run of a kernel."""

    def __init__(
        self, kernel: UOp, buffers: Memory, workers: int, filled: set[int], changed: frozenset[int]
    ) -> None:
        self.written, size = kernel.src[0].src[0].src[0].arg
        self.combines = len(kernel.src[0].src) > 2  # or writes value after value
        reads = self.written in changed or reads_memory(kernel, self.written)
        is_there = self.combines or reads or self.written in filled
        self.is_shared = self.written in filled and not self.combines and not reads
        started = list(buffers[self.written]) if is_there else [None] * size
        self.memory: Memory = {**buffers, self.written: started}
        self.writers: dict[int, tuple[int, ...]] = {}
        self.free = _free_loops(kernel)
        for number in range(workers):
            meanings = Meanings((number, workers))
            for store in kernel.src:
                self._store(store, meanings)

    def _store(self, store: UOp, meanings: Meanings) -> None:
        (memory, index, *mask), (_, value, *own) = store.src[0].src, store.src
        assert memory.arg[0] == self.written, "a kernel writes one buffer"
        loops = sorted(self.free[store].union(own), key=lambda r: r.arg[0])
        holds = meanings.of(mask[0] if mask else None)
        position, stored = meanings.of(index), meanings.of(value)
        for counters in meanings.iterations(loops, self.memory):
            env = dict(zip(loops, counters))
            what = stored(env, self.memory)  # loads do not wait for the mask of their store
            if mask and not holds(env, self.memory):
                continue
            outer = tuple([n for loop, n in env.items() if loop not in own])
            at = position(env, self.memory)
            buffer = self.memory[self.written]
            assert 0 <= at < len(buffer), f"index {at} is outside of {len(buffer)} elements"
            if self.combines:
                assert self.writers.setdefault(at, outer) == outer, f"two write element {at}"
                if store.arg is not None:
                    what = evaluate(store.arg, value.dtype, (buffer[at], what))
            else:
                is_new = at not in self.writers and not (self.is_shared and buffer[at] is not None)
                assert is_new, f"element {at} is written twice"
                self.writers[at] = outer
            buffer[at] = what


def reads_memory(kernel: UOp, number: int) -> bool:
    """Whether a kernel loads from this buffer."""
    positions = [n.src[0] for n in kernel.toposort() if n.op is Ops.LOAD]
    return any([p.src[0].op is Ops.PARAM and p.src[0].arg[0] == number for p in positions])


def free_loops(node: UOp) -> set[UOp]:
    """The loops that a node does not run itself."""
    return set(_free_loops(node)[node])


def _free_loops(node: UOp) -> dict[UOp, frozenset[UOp]]:
    """Those of a node and of all below it."""
    known: dict[UOp, frozenset[UOp]] = {}
    for below in node.toposort():
        own = below.op in (Ops.REDUCE, Ops.LOCAL_BUFFER)
        found = frozenset([below]) if below.op is Ops.RANGE else frozenset()
        for source in below.src[:1] if own else below.src:
            found |= known[source]
        if below.op is Ops.MMA:
            found -= {below.src[-1]}
        known[below] = found - set(below.src[1:]) if own else found
    return known


def key_of(parameter: UOp) -> int | str:
    """By what memory is found: the slot of a parameter, or the name of the variable whose value it holds."""
    key: int | str = parameter.arg[2] if len(parameter.arg) == 3 else parameter.arg[0]
    return key


def element(node: UOp, env: Loops, memory: Memory) -> Any:
    """The value of a term in one iteration."""
    return Meanings().of(node)(env, memory)


class Meanings:
    """The value of each node as a function of loops and memory; `share`: which worker runs, of how many."""

    def __init__(self, share: tuple[int, int] = (0, 1)) -> None:
        self.share = share
        self._known: dict[UOp | None, Meaning] = {None: lambda env, memory: True}

    def of(self, node: UOp | None) -> Meaning:
        if node not in self._known:
            assert node is not None
            self._known[node] = self._meaning(node)
        return self._known[node]

    def iterations(
        self, loops: Iterable[UOp], memory: Memory, around: Loops | None = None
    ) -> Iterator[tuple[int, ...]]:
        """The counters of loops around each other; a variable that is a size is in memory, and loops around may be in one."""
        return product(*[self._counters(loop, memory, around or {}) for loop in loops])

    def _counters(self, loop: UOp, memory: Memory, around: Loops) -> range:
        size, (number, workers) = self.of(loop.src[0])(around, memory), self.share
        if loop.arg[1] not in SHARED_OUT:
            return range(size)
        return range(size * number // workers, size * (number + 1) // workers)

    def _meaning(self, node: UOp) -> Meaning:
        match node.op:
            case Ops.CONST:
                value = node.arg
                return lambda env, memory: value
            case Ops.RANGE:
                return lambda env, memory: env[node]
            case Ops.VARIABLE:
                name = node.arg[0]
                return lambda env, memory: memory[name][0]
            case Ops.LOAD:
                return self._load(node)
            case Ops.REDUCE:
                return self._reduce(node)
            case Ops.MMA:
                return self._product(node)
            case _ if node.op in ELEMENTWISE:
                return self._elementwise(node)
        raise ValueError(f"{node.op!r} has no value in a kernel")

    def _elementwise(self, node: UOp) -> Meaning:
        op, dtype, arg = node.op, node.dtype, node.arg
        args, types = [self.of(s) for s in node.src], [s.dtype for s in node.src]
        if dtype is dtypes.index and op in (Ops.ADD, Ops.MUL):  # most of a kernel are these
            first, second = args
            if op is Ops.ADD:
                return lambda env, memory: first(env, memory) + second(env, memory)
            return lambda env, memory: first(env, memory) * second(env, memory)
        return lambda env, memory: evaluate(op, dtype, [a(env, memory) for a in args], types, arg)

    def _load(self, node: UOp) -> Meaning:
        (where, index, *mask), dtype = node.src[0].src, node.dtype
        holds, position = self.of(mask[0] if mask else None), self.of(index)
        kept = self._kept(where) if where.op is Ops.LOCAL_BUFFER else None

        def meaning(env: Loops, memory: Memory) -> Any:
            if not holds(env, memory):
                return from_bits(0, dtype)
            at = position(env, memory)
            if kept is not None:
                return kept(at, env, memory)
            buffer = memory[key_of(where)]
            assert 0 <= at < len(buffer), f"index {at} is outside of {len(buffer)} elements"
            assert buffer[at] is not None, f"element {at} is read before it is written"
            return buffer[at]

        return meaning

    def _kept(self, node: UOp) -> Callable[[int, Loops, Memory], Any]:
        """What LOCAL_BUFFER holds at an index. All of its positions are filled, also those that nobody reads.

        Of parts of which the one furthest ahead is filled, the others are what the iteration before has left.
        """
        value, loops, around = self.of(node.src[0]), node.src[1:], tuple(free_loops(node))
        sizes = [loop.src[0].arg for loop in loops]
        rows: dict[tuple[int, ...], list[Any]] = {}
        is_ahead = any([loop.arg[1] is AxisRole.AHEAD for loop in loops])
        summed = [x for x in around if x.arg[1] is AxisRole.REDUCE] if is_ahead else []

        def filled(env: Loops, memory: Memory) -> list[Any]:
            row, inner = [None] * prod(sizes), dict(env)
            left = None
            if summed and env[summed[0]] > 0:
                left = row_of({**env, summed[0]: env[summed[0]] - 1}, memory)
            for counters in self.iterations(loops, memory, env):
                inner.update(zip(loops, counters))
                position = 0
                for counter, size in zip(counters, sizes):
                    position = position * size + counter
                is_left = left is not None and counters[0] != (env[summed[0]] - 1) % sizes[0]
                row[position] = left[position] if is_left else value(inner, memory)
            return row

        def row_of(env: Loops, memory: Memory) -> list[Any]:
            key = tuple([env[loop] for loop in around])
            if key not in rows:
                rows[key] = filled(env, memory)
            return rows[key]

        def meaning(index: int, env: Loops, memory: Memory) -> Any:
            assert 0 <= index < prod(sizes), f"{index} is outside of a row"
            row = row_of(env, memory)
            assert row[index] is not None, f"{index} of a row is not filled"
            return row[index]

        return meaning

    def _product(self, node: UOp) -> Meaning:
        """One result of an MMA of scalars, from what items 4 * g + q hold, which have rows and columns g."""
        if len(node.arg) == 3:
            return self._product_in_item(node)
        halves, steps = node.arg
        item, before, column, *rows = node.src[: 3 + halves]
        register, held = node.src[3 + halves :]
        first, second, start = [self.of(x) for x in rows], self.of(column), self.of(before)
        kind, dtype = column.dtype, node.dtype

        def meaning(env: Loops, memory: Memory) -> Any:
            warp, lane = divmod(env[item], 32)
            g, q = divmod(lane, 4)
            half, j = divmod(env[register], 2)
            total = start(env, memory)
            for k in range(4 * steps):
                part, element = divmod(k, steps)
                there = {**env, item: 32 * warp + 4 * g + part, held: element}
                beside = {**env, item: 32 * warp + 4 * (2 * q + j) + part, held: element}
                factors = first[half](there, memory), second(beside, memory)
                wide = [evaluate(Ops.CAST, dtype, (x,), (kind,)) for x in factors]
                total = evaluate(Ops.MULACC, dtype, (*wide, total))
            return total

        return meaning

    def _product_in_item(self, node: UOp) -> Meaning:
        """The same of one item: rows by rows, and groups of rows of the second, column by column."""
        (side, groups, group), dtype = node.arg, node.dtype
        _, before, column, row, register, held = node.src
        start, factors = self.of(before), [(self.of(x), x.dtype) for x in (row, column)]

        def meaning(env: Loops, memory: Memory) -> Any:
            r, c = divmod(env[register], side)
            total, depth = start(env, memory), groups * group
            for k in range(depth):
                places = r * depth + k, (k // group * side + c) * group + k % group
                values = [
                    evaluate(Ops.CAST, dtype, (value({**env, held: at}, memory),), (kind,))
                    for (value, kind), at in zip(factors, places)
                ]
                total = evaluate(Ops.MULACC, dtype, (*values, total))
            return total

        return meaning

    def _reduce(self, node: UOp) -> Meaning:
        op, dtype, loops = node.arg, node.dtype, node.src[1:]
        value, start = self.of(node.src[0]), identity(op, dtype)

        def meaning(env: Loops, memory: Memory) -> Any:
            total, inner = start, dict(env)
            for counters in self.iterations(loops, memory, env):
                inner.update(zip(loops, counters))
                total = evaluate(op, dtype, (total, value(inner, memory)))
            return total

        return meaning
