"""Small kernels as Programs: the last steps, and what the reference machine makes of what they give.

Owns: the ways from a Kernel to a Program (width, registers, lanes), running a Program on small memory. Does not own: kernels
(small_kernels.py), the steps of Kernels (steps_exhaustively.py).
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from typing import Any

from kernel_interpreter import Memory, free_loops, key_of, run_kernel
from small_kernels import OUT, SmallKernel

from proofgrad.backends.reference import ReferenceBackend
from proofgrad.core.compile.lowering.linearize import linearize
from proofgrad.core.compile.passes.forms import Form, FormError, check_form
from proofgrad.core.compile.steps.accumulate import accumulate
from proofgrad.core.compile.steps.carry import carry
from proofgrad.core.compile.steps.carry_maximum import carry_maximum
from proofgrad.core.compile.steps.lanes import lanes
from proofgrad.core.compile.steps.loop_nest import LoopNest, StepRefused
from proofgrad.core.compile.steps.narrow import narrow
from proofgrad.core.compile.steps.narrow_lanes import narrow_lanes
from proofgrad.core.compile.steps.run_as import run_as
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.evaluate import to_bits
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp

WIDTHS = (
    dtypes.int8,
    dtypes.uint8,
    dtypes.int32,
    dtypes.int64,
    dtypes.index,
    dtypes.float32,
    dtypes.bool,
)
# The steps that are tried here.
LAST = ("narrow", "accumulate", "carry", "carry_maximum", "narrow_lanes", "lanes")
_CODES = {
    dtypes.int64: "q",
    dtypes.int32: "i",
    dtypes.int16: "h",
    dtypes.int8: "b",
    dtypes.uint8: "B",
    dtypes.uint16: "H",
    dtypes.bfloat16: "H",  # its bits
    dtypes.float32: "f",
    dtypes.bool: "?",
}


class WrongStep(AssertionError):
    """A step made a kernel that is not the same as before: what was done, and what is wrong."""


def run_program(program: UOp, buffers: Memory) -> list[Any]:
    """What a Program stores, in its linear order, on the reference machine. It combines with what is there."""
    check_form(Form.PROGRAM, program)
    linear = linearize(program)
    check_form(Form.LINEAR, linear)
    machine, params = ReferenceBackend(), [n for n in linear.src if n.op is Ops.PARAM]
    memory: dict[int, bytearray] = {}
    for parameter in params:
        slot, length = parameter.arg[:2]
        values = buffers[key_of(parameter)]
        if parameter.dtype is dtypes.bfloat16:
            values = [to_bits(number, parameter.dtype) for number in values]
        memory[slot] = bytearray(struct.pack(_code(parameter.dtype, length), *values))
    dense = {
        n: n.replace(arg=(k, n.arg[1])) for k, n in enumerate(params)
    }  # a variable has a name, too
    launch = machine.load(machine.compile(machine.emit(linear.substitute(dense), "small")))
    launch([memory[parameter.arg[0]] for parameter in params])
    out = next(n for n in params if n.arg[0] == OUT)
    return list(struct.unpack(_code(out.dtype, out.arg[1]), memory[OUT]))


def _code(dtype: DType, length: int) -> str:
    return f"<{length}{_CODES[dtype]}"


def with_lanes(nest: LoopNest, loops: Sequence[UOp], compared: DType | None = None) -> LoopNest:
    """The nest as a Program, with these loops as lanes, which compare integers of that type. Raises: StepRefused."""
    nest = run_as(nest, {loop: AxisRole.VECTOR for loop in loops})
    nest = accumulate(narrow(nest, dtypes.int64))
    nest = nest if compared is None else narrow_lanes(nest, compared)
    for loop in [n for n in nest.graph.toposort() if n.op is Ops.RANGE]:
        if loop.arg[1] is AxisRole.VECTOR:
            nest = lanes(nest, loop)
    return nest


def with_carried(nest: LoopNest, number: int, lanes_of: Sequence[UOp]) -> LoopNest:
    """The nest as a Program, the reduction of this number in a register of an output loop. Raises: StepRefused."""
    if lanes_of:
        nest = run_as(nest, {x: AxisRole.VECTOR for x in lanes_of})
    wide = narrow(nest, dtypes.int64)
    sums = [n for n in wide.graph.toposort() if n.op is Ops.REDUCE]
    made = accumulate(carry(wide, (sums[number],)))
    for loop in [n for n in made.graph.toposort() if n.op is Ops.RANGE]:
        made = lanes(made, loop) if loop.arg[1] is AxisRole.VECTOR else made
    return made


def with_maximum(nest: LoopNest) -> LoopNest:
    """The nest as a Program, sums beside the maximum of their own loop in one loop with it. Raises: StepRefused."""
    return accumulate(carry_maximum(narrow(nest, dtypes.int64)))


def in_a_wrong_order(nest: LoopNest, loop: UOp) -> list[tuple[str, Callable[[], LoopNest]]]:
    """The last steps on what they are not for."""
    vector = loop.replace(arg=(loop.arg[0], AxisRole.VECTOR))

    def wide() -> LoopNest:
        return narrow(nest, dtypes.int64)

    def with_role() -> LoopNest:
        return run_as(nest, {loop: AxisRole.VECTOR})

    return [
        ("accumulate", lambda: accumulate(nest)),
        ("accumulate", lambda: accumulate(accumulate(wide()))),
        ("lanes", lambda: lanes(nest, loop)),
        ("lanes", lambda: lanes(accumulate(wide()), loop)),
        ("lanes", lambda: lanes(with_role(), vector)),
        ("lanes", lambda: lanes(narrow(with_role(), dtypes.int64), vector)),
        ("narrow", lambda: narrow(accumulate(wide()), dtypes.int32)),
    ]


def ways_to_programs(
    kernel: UOp, nest: LoopNest
) -> Iterator[tuple[str, Callable[[], LoopNest], object]]:
    """Each width, each choice of lanes, each wrong order: the step that is tried last, how it is taken, of what."""
    if not can_be_in_order(kernel):
        return
    for width in WIDTHS:
        yield "narrow", partial(narrow, nest, width), width
    loops = [n for n in kernel.toposort() if n.op is Ops.RANGE]
    for chosen in ((), *[(x,) for x in loops], *combinations(loops, 2)):
        yield "lanes" if chosen else "accumulate", partial(with_lanes, nest, chosen), chosen
    for loop in loops:
        yield "narrow_lanes", partial(with_lanes, nest, (loop,), dtypes.int8), loop
    yield "carry_maximum", partial(with_maximum, nest), kernel
    sums = [n for n in kernel.toposort() if n.op is Ops.REDUCE]
    for k, total in enumerate(sums):
        yield "carry", partial(with_carried, nest, k, ()), total
        for loop in loops:
            yield "carry", partial(with_carried, nest, k, (loop,)), (total, loop)
    for loop in loops:
        for step, way in in_a_wrong_order(nest, loop):
            yield step, way, loop


def can_be_in_order(kernel: UOp) -> bool:
    """Whether stores run in the same loops, and none of these, or of those that fill what is kept, is of a reduction.

    Others have no linear order.
    """
    if len({frozenset(free_loops(store).union(store.src[2:])) for store in kernel.src}) > 1:
        return False
    nodes = kernel.toposort()
    kept, own = [
        {loop for n in nodes if n.op is op for loop in n.src[1:]}
        for op in (Ops.LOCAL_BUFFER, Ops.REDUCE)
    ]
    return own.isdisjoint(kept) and free_loops(kernel).isdisjoint(own | kept)


@dataclass(slots=True)
class Programs:
    """How many programs were made of kernels, and how many were refused, by the step that was tried last."""

    made: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)

    def try_all(self, kernel: SmallKernel, nest: LoopNest) -> None:
        """Every way. Raises: WrongStep."""
        for step, way, asked in ways_to_programs(kernel.graph, nest):
            self._try(step, kernel, way, asked)

    def _try(
        self, step: str, kernel: SmallKernel, way: Callable[[], LoopNest], asked: object
    ) -> None:
        try:
            check_stored(way().graph, kernel)
        except StepRefused:
            self.refused[step] += 1
        except Exception as error:  # (what a wrong step makes can end in any)
            raise WrongStep(f"{kernel.graph}\n{step} {asked}: {error}") from error
        else:
            self.made[step] += 1


def check_stored(graph: UOp, kernel: SmallKernel) -> None:
    """Raises: AssertionError unless the graph stores what the kernel does; any other error where it has no value."""
    stored = stored_by(graph, kernel.buffers)
    assert list(map(str, stored)) == list(map(str, kernel.stored)), f"stores {stored}"


def stored_by(graph: UOp, buffers: Memory) -> list[Any]:
    """What a Program or Kernel stores."""
    try:
        check_form(Form.PROGRAM, graph)
    except FormError:
        check_form(Form.KERNEL, graph)
        return run_kernel(graph, buffers)[OUT]
    return run_program(graph, buffers)
