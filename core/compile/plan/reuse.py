"""KernelGraph: results that may be written over inputs that nobody needs any more.

Owns: which result takes the memory of which input, and the order of calls that this asks for. Does
not own: whether an input is needed after the run, which only its holder knows (realize.py).

A call may write over a buffer that it reads only if it reads each element just to compute the one
in the same position. Then it gets one parameter for both. All other readers have to run before it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

from proofgrad.core.compile.passes.memory import changed_in_part, memory_below
from proofgrad.core.ir.op_names import PARAM
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.uop import UOp, toposort


def write_in_place(graph: UOp, unneeded: frozenset[int], index_terms: Callable[[UOp], UOp]) -> UOp:
    """Results of a KernelGraph over inputs whose numbers are `unneeded`, where that is possible.

    `index_terms` gives a body as loops, with simplified terms.
    """
    plan = _Reuse(graph, index_terms)
    for buffer in dict.fromkeys(graph.arg):
        writer = plan.writer_of.get(buffer)
        if writer is not None:
            plan.give_memory(writer, unneeded)
    return plan.result()


class _Reuse:
    """One run: calls by number, and who has to run before whom."""

    def __init__(self, graph: UOp, index_terms: Callable[[UOp], UOp]) -> None:
        self.graph, self._index_terms = graph, index_terms
        self.calls = list(graph.src)
        self.writer_of = {call.src[1]: k for k, call in enumerate(self.calls)}
        self.before: list[set[int]] = [
            {self.writer_of[b] for b in map(memory_below, call.src[2:]) if b in self.writer_of}
            for call in self.calls
        ]
        self.users: list[set[int]] = [set() for _ in self.calls]
        for k, earlier in enumerate(self.before):
            for one in earlier:
                self.users[one].add(k)
        self.readers: dict[UOp, list[int]] = {}
        for k, call in enumerate(self.calls):
            for buffer in dict.fromkeys(map(memory_below, call.src[2:])):
                self.readers.setdefault(buffer, []).append(k)
        self.given: dict[UOp, UOp] = {}  # the buffer of a result, the input that it is written over
        self.kept = set(graph.arg)  # nothing is written over these: results, and what was given

    def give_memory(self, writer: int, unneeded: frozenset[int]) -> None:
        """Let the result of a call take the place of an input, if one fits."""
        call = self.calls[writer]
        target = call.src[1]
        for number, buffer in enumerate(call.src[2:], 1):
            reads = [memory_below(source) for source in call.src[2:]]
            if buffer not in reads or reads.count(buffer) > 1:  # a part, or parts beside all of it
                continue
            if not self._fits(target, buffer, unneeded) or not self._reads_in_place(call, number):
                continue
            others = {k for k in self.readers[buffer] if k != writer}
            if others.isdisjoint(self._after(writer)):
                self.before[writer] |= others
                for earlier in others:
                    self.users[earlier].add(writer)
                self.calls[writer] = _with_one_parameter(call, number)
                self.given[target] = buffer
                self.kept.add(buffer)
                return

    def _fits(self, target: UOp, buffer: UOp, unneeded: frozenset[int]) -> bool:
        return (
            buffer.src[0].arg in unneeded
            and buffer not in self.kept
            and (buffer.dtype, buffer.arg, buffer.src[1])
            == (target.dtype, target.arg, target.src[1])
        )

    def _reads_in_place(self, call: UOp, number: int) -> bool:
        """Whether a call reads parameter `number` only at the position that it writes."""
        if _is_elementwise(call, number):
            return True
        changed = changed_in_part(call.src[0].src[0])
        if changed is None or changed.arg[0] != number:
            return False
        return _reads_what_it_writes(self._index_terms(call.src[0]), number)

    def _after(self, first: int) -> set[int]:
        """All calls that have to run after `first`."""
        found: set[int] = set()
        stack = [first]
        while stack:
            for user in self.users[stack.pop()]:
                if user not in found:
                    found.add(user)
                    stack.append(user)
        return found

    def result(self) -> UOp:
        if not self.given:
            return self.graph
        sources = {b for call in self.calls for b in call.src[1:]}
        memory = {
            memory_below(b): self.given.get(memory_below(b), memory_below(b)) for b in sources
        }
        buffers = memory | {b: b.with_src((memory[b.src[0]],)) for b in sources if b not in memory}
        calls = [
            call.replace(src=(call.src[0], *[buffers[b] for b in call.src[1:]]))
            for call in [self.calls[k] for k in _in_order(self.before)]
        ]
        results = tuple([buffers.get(b, b) for b in self.graph.arg])
        return self.graph.replace(src=tuple(calls), arg=results)


def _in_order(before: list[set[int]]) -> Iterable[int]:
    """The calls, each after those before it, else as they were."""
    waiting = [len(earlier) for earlier in before]
    users: list[list[int]] = [[] for _ in before]
    for k, earlier in enumerate(before):
        for other in earlier:
            users[other].append(k)
    ready = [k for k, count in enumerate(waiting) if not count]
    while ready:
        k = heapq.heappop(ready)
        yield k
        for user in users[k]:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, user)


def _reads_what_it_writes(kernel: UOp, number: int) -> bool:
    """Whether the loops of a body read parameter `number` at the position that they write, in no reduction.

    So it is where a slice is changed to what is computed from it, x[2:5] += 1.
    """
    (store,) = kernel.src
    reduced = toposort([node for node in toposort((store,)) if node.op is Ops.REDUCE])
    for node in toposort((store,)):
        is_of_it = node.op is Ops.LOAD and node.src[0].src[0].op is Ops.PARAM
        if is_of_it and node.src[0].src[0].arg[0] == number:
            if node.src[0].src[1] is not store.src[0].src[1] or node in reduced:
                return False
    return True


def _is_elementwise(call: UOp, number: int) -> bool:
    """Whether nothing but elementwise operations stands between parameter `number` and what is written: all have one shape."""
    (value,) = call.src[0].src
    if value.op is Ops.COPY:
        return False
    reading: set[UOp] = set()
    for node in value.toposort():
        if node.op is PARAM and node.arg[0] == number:
            reading.add(node)
        elif not reading.isdisjoint(node.src):
            whole = node.op is Ops.RESHAPE and node.src[0].op is Ops.PARAM
            if not whole and node.op not in ELEMENTWISE:
                return False
            reading.add(node)
    return True


def _with_one_parameter(call: UOp, number: int) -> UOp:
    """The call with parameter `number`, which it reads, being the one that it writes."""
    body = call.src[0]
    changes: dict[UOp, UOp] = {}
    for node in body.toposort():
        if node.op is PARAM and node.arg[0] >= number:
            slot = 0 if node.arg[0] == number else node.arg[0] - 1
            changes[node] = node.replace(arg=(slot, node.arg[1]))
    buffers = call.src[1 : 1 + number] + call.src[2 + number :]
    return call.replace(src=(body.substitute(changes), *buffers))
