"""Small programs of tensors, every one up to a size, and steps on them with every argument.

    python tests/small_graphs.py [--stride 1]

Owns: the programs, the arguments, what a program computes, the comparison. Does not own: what an operation means (oracle.py).

What is asked: what a step makes is a legal graph, and its roots have the elements that they had before.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, permutations, product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":  # else the folder of tests is found already
    sys.path.insert(0, str(Path(__file__).resolve().parent))

from oracle import Array, evaluate_tensor, numpy_dtype  # noqa: E402
from programs_of_kernels import WrongStep  # noqa: E402

from proofgrad import Tensor  # noqa: E402, F401  (makes the compiler)
from proofgrad.core.compile.passes.forms import Form, check_form  # noqa: E402
from proofgrad.core.compile.passes.memory import memory_below  # noqa: E402
from proofgrad.core.compile.steps import store  # noqa: E402
from proofgrad.core.compile.steps.loop_nest import StepRefused  # noqa: E402
from proofgrad.core.compile.steps.reduce_in_parts import Blocks, Ends, Parts  # noqa: E402
from proofgrad.core.compile.steps.tensor_program import GRAPH_STEPS, traced  # noqa: E402
from proofgrad.core.ir.dtypes import DType, dtypes  # noqa: E402
from proofgrad.core.ir.ops import ELEMENTWISE, Ops  # noqa: E402
from proofgrad.core.ir.uop import UOp, toposort  # noqa: E402

DEVICE, ANOTHER = "TEST", "ANOTHER"
PAIRS = (
    *(Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN, Ops.XOR),
    *(Ops.SHL, Ops.FLOORDIV, Ops.CMPLT, Ops.CMPEQ),
)
OPERATIONS = (Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN)
Memory = dict[UOp, Array]
Arguments = tuple[Any, ...]


# -- programs -------------------------------------------------------------------------------------


def memory(number: int, size: int, dtype: DType = dtypes.int32) -> UOp:
    """A buffer."""
    unique = UOp(Ops.UNIQUE, dtypes.void, (), number)
    return UOp(Ops.BUFFER, dtype, (unique, UOp(Ops.DEVICE, dtypes.void, (), DEVICE)), size)


def tensor(number: int, *shape: int) -> UOp:
    """A buffer in a shape."""
    return UOp(Ops.RESHAPE, dtypes.int32, (memory(number, prod(shape)),), shape)


def reduced(value: UOp, op: Ops, axes: tuple[int, ...]) -> UOp:
    return UOp(Ops.REDUCE_AXIS, value.dtype, (value,), (op, axes))


def program(*roots: UOp) -> UOp:
    return UOp.sink(*roots).replace(arg=DEVICE)


def subsets(items: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Every one, the empty one first."""
    return chain.from_iterable([combinations(items, k) for k in range(len(items) + 1)])


def reductions() -> Iterator[UOp]:
    """Every reduction of up to three axes of up to 3 elements, two of up to 4, or one of up to 9, by turns of each operation."""
    shapes = [*product(range(10)), *product(range(5), repeat=2), *product(range(4), repeat=3)]
    found = [(shape, axes) for shape in shapes for axes in subsets(range(len(shape))) if axes]
    for k, (shape, axes) in enumerate(found):
        yield program(reduced(tensor(0, *shape), OPERATIONS[k % 4], axes))


def nested_reductions() -> Iterator[UOp]:
    """A reduction of what another one gives, both used; and one that two roots use."""
    for m, n, op in product((1, 2, 4), (2, 3), OPERATIONS):
        rows = reduced(tensor(0, m, n), op, (1,))
        spread = UOp(Ops.EXPAND, rows.dtype, (rows,), (m, n))
        value = spread.alu(Ops.ADD, tensor(1, m, n))
        yield program(reduced(value, op, (0, 1)), rows)
        yield program(value, reduced(value, op, (0,)))


def chains() -> Iterator[UOp]:
    """Every program of one to three operations, of sizes 1 and 0 one or two, where each but the first reads the one before it."""
    for shape, most in (((2, 3), 3), ((1, 2), 2), ((0, 2), 2)):
        waiting = [tensor(0, *shape)]
        for _ in range(most):
            waiting = [made for value in waiting for made in _operations(value)]
            for value in waiting:
                yield program(value)
                below = [n for n in value.src if n.op is not Ops.RESHAPE]
                yield program(value, *below[:1])


def _operations(value: UOp) -> Iterator[UOp]:
    """One of each kind on a value."""
    shape, dtype = value.shape, value.dtype
    yield value.alu(Ops.ADD, tensor(1, *shape))
    yield value.alu(Ops.NEG)
    yield value.alu(Ops.MUL, value)
    yield UOp(Ops.CONTIGUOUS, dtype, (value,))
    yield UOp(Ops.DETACH, dtype, (value,))
    yield UOp(Ops.RESHAPE, dtype, (value,), (prod(shape),))
    yield UOp(Ops.COPY, dtype, (value,), ANOTHER)
    yield UOp(Ops.PERMUTE, dtype, (value,), (*range(1, len(shape)), 0))
    yield UOp(Ops.FLIP, dtype, (value,), (True,) * len(shape))
    yield UOp(Ops.PAD, dtype, (value,), ((1, 0),) * len(shape))
    yield reduced(value, Ops.ADD, (len(shape) - 1,))


# -- what they compute ----------------------------------------------------------------------------


def some_memory(graph: UOp) -> Memory:
    """Elements for each buffer, drawn: of large odd numbers, whose sums and products tell which were taken."""
    draw = np.random.default_rng(0)
    found: Memory = {}
    for node in toposort((graph,)):
        if node.op is Ops.BUFFER and node.src[0].arg >= 0:
            values = draw.integers(-(1 << 30), 1 << 30, node.arg) * 2 + 1
            found[node] = values.astype(numpy_dtype(node.dtype))
    return found


def computed(graph: UOp, given: Memory) -> list[Array]:
    """The elements of the roots of a TensorGraph."""
    return [evaluate_tensor(root, given) for root in graph.src]


def run_kernels(graph: UOp, given: Memory) -> list[Array]:
    """The elements of the memory of each root of a KernelGraph, its kernels run in order."""
    filled = dict(given)

    def held(buffer: UOp) -> Array:
        assert buffer in filled or not buffer.arg, "memory that nothing fills"
        return filled.get(buffer, np.zeros(0, numpy_dtype(buffer.dtype)))

    for call in graph.src:
        body, written, *read = call.src
        parameters = [n for n in toposort((body,)) if n.op is Ops.PARAM]
        assert {n.arg[0] for n in parameters} <= set(range(1, 1 + len(read))), "no such parameter"
        assert not [n for n in toposort((body,)) if n.op is Ops.BUFFER], "memory in a body"
        changes = {n: call.src[1 + n.arg[0]] for n in parameters}
        assert all([(n.dtype, n.arg[1]) == (b.dtype, *b.shape) for n, b in changes.items()])
        (value,) = body.substitute(changes).src
        copies = [n for n in toposort((value,)) if n.op is Ops.COPY]
        assert copies in ([], [value]), "a copy in a kernel"
        assert not copies or _is_view_of_memory(value.src[0]), "a copy of what is computed"
        device = call.arg.device
        assert written.src[1].arg == device, "memory on another device than its kernel"
        here = {memory_below(b).src[1].arg for b in read}
        is_right = value.arg == device if copies else here <= {device}
        assert is_right, "a kernel, or a copy, of another device"
        assert written not in filled and written.src[0].arg < 0, "memory that is there already"
        filled[written] = evaluate_tensor(value, held).ravel()
        assert filled[written].size == written.arg, "memory of another size"
    return list(map(held, graph.arg))


def _is_view_of_memory(node: UOp) -> bool:
    while node.op is Ops.RESHAPE:
        node = node.src[0]
    return node.op is Ops.BUFFER


def check(graph: UOp, made: UOp) -> None:
    """Asserts that both have the same roots; the one that was made may be of kernels."""
    given = some_memory(graph)
    wanted = run_kernels(graph, given) if isinstance(graph.arg, tuple) else computed(graph, given)
    if isinstance(made.arg, tuple):
        check_form(Form.KERNEL_GRAPH, made)
        shapes = [root.shape for root in wanted]
        found = [x.reshape(s) for x, s in zip(run_kernels(made, given), shapes, strict=True)]
    else:
        check_form(Form.TENSOR_GRAPH, made)
        found = computed(made, given)
    for before, after in zip(wanted, found, strict=True):
        assert before.shape == after.shape, f"{after.shape}, not {before.shape}"
        assert (before == after).all(), f"{after.tolist()}, not {before.tolist()}"


# -- arguments ------------------------------------------------------------------------------------


def parts_of(shape: tuple[int, ...], axes: tuple[int, ...]) -> Iterator[Parts]:
    """Every way to take a reduction in parts once, and some that are none."""
    for axis in range(len(shape)):
        others = [a for a in axes if a != axis]
        for size in range(shape[axis] + 2):
            for within in subsets(others):
                yield Blocks(axis, size, within)
                yield Blocks(axis, size, within, blocks_first=True)
            yield Ends(axis, size)


def ways_of(graph: UOp) -> Iterator[Arguments]:
    """For each reduction every way, and some ways of ways; for all reductions a way of each at once."""
    whole = [node for node in toposort((graph,)) if node.op is Ops.REDUCE_AXIS]
    for node in whole:
        shape, axes = node.src[0].shape, node.arg[1]
        for parts in parts_of(shape, axes):
            yield ({node: parts},)
        axis, n = axes[0], shape[axes[0]]
        for k, m in product(range(1, n), range(1, n)):
            yield ({node: Ends(axis, k, Blocks(axis, m, ()), Ends(axis, m))},)
            yield ({node: Blocks(axis, k, axes[1:], across=Blocks(axis, m, ()))},)
    if len(whole) > 1:
        ways = [parts_of(node.src[0].shape, node.arg[1]) for node in whole]
        for each in zip(*ways):
            yield (dict(zip(whole, each)),)


def sets_of_values(graph: UOp) -> Iterator[Arguments]:
    """Every set of values of a program, but memory."""
    leaves = (Ops.BUFFER, Ops.UNIQUE, Ops.DEVICE, Ops.SINK)
    values = [node for node in toposort((graph,)) if node.op not in leaves]
    for some in subsets(values):
        yield (frozenset(some),)
    for none in [node for node in toposort((graph,)) if node.op in leaves]:
        yield (frozenset([none, *values]),)


def slices() -> Iterator[UOp]:
    """The kernels of every slice of up to three axes of up to 3 elements; of a slice beside another, beside all, of a reshape."""
    shapes = [(5,), *product(range(1, 4), repeat=2), *product(range(1, 3), repeat=3), (2, 3, 2)]
    for shape in shapes:
        ranges = [[(b, e) for b in range(n) for e in range(b + 1, n + 1)] for n in shape]
        for arg in product(*ranges):
            for value in _uses_of_slice(UOp(Ops.SHRINK, dtypes.int32, (tensor(0, *shape),), arg)):
                graph = program(value)
                yield store.store(traced(graph), set(graph.src)).graph


def writes() -> Iterator[UOp]:
    """Every slice of every way to write to, or add to, every place of 4 elements, or of 2 and 3; behind another write."""
    for shape in ((4,), (2, 3)):
        ranges = [[(b, e) for b in range(n) for e in range(b + 1, n + 1)] for n in shape]
        places = list(product(*ranges))
        for k, (place, taken) in enumerate(product(places, repeat=2)):
            before = list(_written(tensor(0, *shape), 1, places[k % len(places)]))
            for value in _written(before[k % len(before)], 2, place):
                more = value.alu(Ops.NEG).alu(Ops.MUL, value) if k % 3 else value
                yield program(UOp(Ops.SHRINK, value.dtype, (more,), taken))


def _written(whole: UOp, number: int, place: tuple[tuple[int, int], ...]) -> Iterator[UOp]:
    """What is there with a tensor of that number in a place: instead, added, under a mask, as a slice of what is as large, alone."""
    sizes = [end - begin for begin, end in place]
    around = tuple([(begin, n - end) for (begin, end), n in zip(place, whole.shape)])
    padded = lambda x: UOp(Ops.PAD, x.dtype, (x,), around)
    there = tensor(number, *sizes)
    true = UOp(Ops.RESHAPE, dtypes.bool, (UOp.const(dtypes.bool, True),), (1,) * len(sizes))
    everywhere = padded(UOp(Ops.EXPAND, dtypes.bool, (true,), tuple(sizes)))
    value = padded(there)
    yield everywhere.alu(Ops.WHERE, value, whole)
    yield value.alu(Ops.ADD, whole)
    yield whole.alu(Ops.ADD, value)
    yield padded(there.alu(Ops.CMPLT, tensor(number + 2, *sizes))).alu(Ops.WHERE, value, whole)
    yield everywhere.alu(Ops.WHERE, whole.alu(Ops.NEG), whole)
    yield value
    line = UOp(
        Ops.RESHAPE,
        dtypes.int32,
        (UOp(Ops.IOTA, dtypes.int32, (), whole.shape[-1]),),
        (*[1] * (len(sizes) - 1), whole.shape[-1]),
    )
    one = UOp(
        Ops.RESHAPE, dtypes.int32, (UOp.const(dtypes.int32, place[-1][0]),), (1,) * len(sizes)
    )
    border = line.alu(Ops.CMPLT, UOp(Ops.EXPAND, dtypes.int32, (one,), line.shape))
    yield UOp(Ops.EXPAND, dtypes.bool, (border,), whole.shape).alu(Ops.WHERE, whole, value)


def sets_of_slices(graph: UOp) -> Iterator[Arguments]:
    """The slices of a program, they and all operations on elements, a slice of another program, and what is no slice."""
    nodes = toposort((graph,))
    slices = [node for node in nodes if node.op is Ops.SHRINK]
    yield (frozenset(slices),)
    yield (frozenset([*slices, *[node for node in nodes if node.op in ELEMENTWISE]]),)
    yield (frozenset([UOp(Ops.SHRINK, dtypes.int32, (tensor(9, 3),), ((0, 1),))]),)
    yield (frozenset([node for node in nodes if node.op is Ops.BUFFER]),)


def operations() -> Iterator[UOp]:
    """The kernels of every operation of two operands, of memory and of what another one gives, by turns in each order."""
    numbers = [tensor(k, 3) for k in range(3)]
    for op in PAIRS:
        for a, b, c in permutations(numbers):
            one = a.alu(Ops.NEG).alu(Ops.ADD, b)
            roots = [x.cast(dtypes.int32) for x in (one.alu(op, c), c.alu(op, one))]
            graph = program(*roots)
            yield store.store(traced(graph), set(graph.src)).graph


def _uses_of_slice(taken: UOp) -> Iterator[UOp]:
    yield taken.alu(Ops.NEG)
    for beside in _next(taken):
        yield taken.alu(Ops.NEG).alu(Ops.MUL, beside)
    whole, shape = taken.src[0], taken.shape
    if len(shape) == 2 and taken.arg[0] == (0, 1):
        last = tuple([(n - (e - b), n) for (b, e), n in zip(taken.arg, whole.shape)])
        yield taken.alu(Ops.MAX, UOp(Ops.SHRINK, taken.dtype, (whole,), last))
        yield taken.alu(Ops.MUL, taken)
        if shape == (1, 1):
            total = UOp(Ops.RESHAPE, taken.dtype, (reduced(whole, Ops.ADD, (0, 1)),), (1, 1))
            yield taken.alu(Ops.ADD, total)


def _next(taken: UOp) -> Iterator[UOp]:
    """The slice that begins one element later on each axis of which elements are left out, in the memory that it is of."""
    sizes = list(zip(taken.arg, taken.src[0].shape))
    steps = [int(ends != (0, size)) for ends, size in sizes]
    if any(steps) and all([end + step <= size for ((_, end), size), step in zip(sizes, steps)]):
        beside = tuple([(b + step, e + step) for ((b, e), _), step in zip(sizes, steps)])
        yield UOp(Ops.SHRINK, taken.dtype, taken.src, beside)


def sets_of_kernels(graph: UOp) -> Iterator[Arguments]:
    """Every set of kernels of a program, and a kernel of none."""
    for some in subsets(graph.src):
        yield (frozenset(some),)
    yield (frozenset([UOp.sink(), *graph.src]),)


GRAPH_ARGUMENTS: dict[str, Callable[[UOp], Iterable[Arguments]]] = {
    "reduce_in_parts": ways_of,
    "store": sets_of_values,
    "read_through": sets_of_slices,
    "read_parts": sets_of_kernels,
    "exchange": sets_of_kernels,
}
PROGRAMS: dict[str, Callable[[], Iterable[UOp]]] = {
    "reduce_in_parts": lambda: chain(nested_reductions(), reductions()),
    "store": lambda: chain(nested_reductions(), chains()),
    "read_through": writes,
    "read_parts": slices,
    "exchange": lambda: chain(slices(), operations()),
}


@dataclass(slots=True)
class Count:
    """What became of the applications of a step."""

    programs: int = 0
    made: int = 0
    refused: int = 0


def run_on_graphs(name: str, start: int = 0, stride: int = 1) -> Count:
    """A step with every argument on every so many of its programs. Raises: WrongStep."""
    count = Count()
    for graph in list(PROGRAMS[name]())[start::stride]:
        count.programs += 1
        known = {graph}
        for arguments in GRAPH_ARGUMENTS[name](graph):
            try:
                made = GRAPH_STEPS[name](traced(graph), *arguments).graph
                if made not in known:
                    check(graph, made)
            except StepRefused:
                count.refused += 1
                continue
            except Exception as error:
                told = f"{type(error).__name__}: {error}"
                raise WrongStep(f"{graph}\n{name}{arguments}\n{told}") from error
            count.made += 1
            known.add(made)
    return count


def main(arguments: Sequence[str]) -> int:
    """All programs, or every so many of them; the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stride", type=int, default=1)
    asked = parser.parse_args(arguments)
    print("| step | programs | applications | refused |\n|---|---|---|---|")
    for name in GRAPH_ARGUMENTS:
        count = run_on_graphs(name, 0, asked.stride)
        print(f"| {name} | {count.programs} | {count.made + count.refused} | {count.refused} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
