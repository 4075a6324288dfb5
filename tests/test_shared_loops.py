"""Reductions that share loops, inside of one another and side by side, from Kernel to Linear.

Rules and procedures may leave several reductions with the same loops: each position gets loops of its own.
"""

from __future__ import annotations

import random

import pytest
from kernel_interpreter import free_loops, run_kernel
from programs_of_kernels import Programs
from small_kernels import X, Y, inner_loops, load, loops, reduce, small_kernels, store
from tactics import (
    choose_axes,
    choose_index_width,
    merge_loops,
    reductions_to_accumulators,
    unroll_upcasts,
    vectorize,
)

from proofgrad import Tensor  # noqa: F401  (makes the compiler)
from proofgrad.backends.reference import ReferenceBackend
from proofgrad.core.compile.lowering.linearize import linearize
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.passes.forms import Form, check_form
from proofgrad.core.compile.steps.loop_nest import lowered
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp
from proofgrad.core.tensor.runtime.realize import compiler

PLAIN, VECTORS = Target("plain"), Target("vectors", vector_bytes=16)
SIZES = (2, 3, 4)
WIDTH = 96


class Drawn:
    """A kernel that stores a random term over a few loops that reductions share."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.outputs = [UOp.range(self.random.choice(SIZES), k) for k in range(2)]
        self.reduced = [
            UOp.range(self.random.choice(SIZES), 2 + k, AxisRole.REDUCE) for k in range(3)
        ]
        self.made: dict[frozenset[UOp], list[UOp]] = {}  # terms by the loops that are open
        self.memory = UOp(Ops.PARAM, dtypes.int32, (), (1, WIDTH))

    def kernel(self) -> UOp:
        rows, columns = self.outputs
        inner = columns.src[0].arg
        target = UOp(Ops.PARAM, dtypes.int32, (), (0, rows.src[0].arg * inner))
        position = UOp(Ops.INDEX, dtypes.int32, (target, rows * inner + columns))
        value = self.term(frozenset(self.outputs), 3) + self.term(frozenset(self.outputs), 3)
        return UOp.sink(UOp(Ops.STORE, dtypes.void, (position, value)))

    def term(self, loops: frozenset[UOp], depth: int) -> UOp:
        """A term in which these loops may stand; often one that stands elsewhere in them too."""
        known = [t for inner, terms in self.made.items() if inner <= loops for t in terms]
        if known and self.random.random() < 0.3:
            return self.random.choice(known)
        made = self.fresh(loops, depth)
        self.made.setdefault(loops, []).append(made)
        return made

    def fresh(self, loops: frozenset[UOp], depth: int) -> UOp:
        free = [loop for loop in self.reduced if loop not in loops]
        kind = self.random.random() if depth else 1.0
        if kind < 0.5 and free:
            own = self.random.sample(free, self.random.choice((1, 1, min(2, len(free)))))
            own.sort(key=lambda loop: loop.arg[0])
            value = self.term(loops | set(own), depth - 1)
            bound = [loop for n in value.toposort() if n.op is Ops.REDUCE for loop in n.src[1:]]
            if not set(own).isdisjoint(bound):  # no lowering runs a loop inside of itself
                return value if free_loops(value) <= loops else self.fresh(loops, 0)
            op = self.random.choice((Ops.ADD, Ops.ADD, Ops.MAX))
            return UOp(Ops.REDUCE, dtypes.int32, (value, *own), op)
        if kind < 0.9:
            one, other = self.term(loops, depth - 1), self.term(loops, depth - 1)
            return UOp(self.random.choice((Ops.ADD, Ops.MUL)), dtypes.int32, (one, other))
        index = UOp.index(self.random.randrange(3))
        for loop in sorted(loops, key=lambda loop: loop.arg[0]):
            index = index + loop * self.random.choice((0, 1, 1, 2))
        return UOp(Ops.LOAD, dtypes.int32, (UOp(Ops.INDEX, dtypes.int32, (self.memory, index)),))


def run_linear(linear: UOp, size: int, data: list[int]) -> list[int]:
    machine = ReferenceBackend()
    inputs = b"".join([value.to_bytes(4, "little", signed=True) for value in data])
    memory = [machine.alloc(4 * size), bytearray(inputs)]
    machine.load(machine.compile(machine.emit(linear, "test")))(memory)
    return [
        int.from_bytes(memory[0][4 * k : 4 * k + 4], "little", signed=True) for k in range(size)
    ]


@pytest.mark.parametrize("target", [PLAIN, VECTORS], ids=["plain", "vectors"])
@pytest.mark.parametrize("first", range(0, 60, 20))
def test_shared_loops_keep_the_values(first: int, target: Target) -> None:
    facts = compiler().library.facts()
    for seed in range(first, first + 20):
        kernel = Drawn(seed).kernel()
        check_form(Form.KERNEL, kernel)
        data = [random.Random(seed).randint(-9, 9) for _ in range(WIDTH)]
        expected = run_kernel(kernel, {1: data})[0]
        chosen = unroll_upcasts(choose_axes(merge_loops(kernel), target, facts))
        program = reductions_to_accumulators(choose_index_width(chosen, target, facts))
        linear = linearize(vectorize(program, facts=facts))
        check_form(Form.LINEAR, linear)
        assert run_linear(linear, len(expected), data) == expected, f"seed {seed}"


def test_a_reduction_inside_of_one_over_the_same_loop_keeps_it() -> None:
    """The one around it gets a loop of its own; with that in both they would share a loop again, without end."""
    (a,), (r,) = loops(2), inner_loops(3)
    side, inside = reduce(Ops.ADD, load(X, a + r), r), reduce(Ops.MAX, load(Y, r), r)
    around = reduce(Ops.ADD, load(X, r) + inside, r)
    kernel = UOp.sink(store(a, side * around))
    ((small,),) = [list(small_kernels([("shared", kernel)]))]
    tried = Programs()
    tried.try_all(small, lowered(small.graph, compiler().library.facts(), VECTORS))
    assert tried.made["lanes"] and tried.made["accumulate"]


def test_stores_in_different_loops_have_no_linear_order() -> None:
    """Around each other, one of no iterations would hide the other store."""
    memory = UOp(Ops.PARAM, dtypes.int32, (), (0, 3))
    stores = [
        UOp(Ops.STORE, dtypes.void, (UOp(Ops.INDEX, dtypes.int32, (memory, loop)), memory.const_like(1)))
        for loop in (UOp.range(0, 0), UOp.range(3, 1))
    ]  # fmt: skip
    with pytest.raises(AssertionError, match="stores that run in different loops"):
        linearize(UOp.sink(*stores))
    assert linearize(UOp.sink(stores[0], stores[0].with_src(stores[0].src)))
