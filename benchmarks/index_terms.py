"""Random index terms as the compiler makes them: chains of movement operations, lowered to loops.

Owns: the generator, brute force over points, what counts as work in a term. Does not own:
simplification, comparison, printing (index_corpus.py).

A term is INDEX(PARAM, position[, mask]): the position in memory of one element of the chain's source, and
where it is needed at all. Positions matter only where the mask holds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from proofgrad.core.compile.lowering.lower import lower_movement
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp

SOURCE_SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 28, 32)
MOST_ELEMENTS = 1 << 16
FEWEST_STEPS, MOST_STEPS = 3, 9
MOST_POINTS = 2_000
DIVISIONS = frozenset({Ops.FLOORDIV, Ops.MOD})
LEAVES = frozenset({Ops.CONST, Ops.RANGE, Ops.PARAM, Ops.INDEX})

Movement = Callable[[random.Random, UOp], UOp]


@dataclass(frozen=True, slots=True)
class Work:
    """What is left to compute in a term: distinct nodes, each once."""

    divisions: int
    nodes: int


def corpus(count: int, seed: int) -> list[UOp]:
    """`count` different terms with a division or remainder in each."""
    rng = random.Random(seed)
    terms: dict[UOp, None] = {}
    while len(terms) < count:
        for term in terms_of(chain(rng)):
            if work(term).divisions:
                terms[term] = None
    return list(terms)[:count]


def terms_of(value: UOp) -> Iterator[UOp]:
    """The INDEX nodes of all loads that computing `value` takes."""
    kernel = lower_movement(UOp.sink(value))
    for node in kernel.toposort():
        if node.op is Ops.LOAD:
            yield node.src[0]


# -- chains ----------------------------------------------------------------------------------------


def chain(rng: random.Random) -> UOp:
    """A random chain of movement operations over one buffer."""
    shape = tuple(rng.choices(SOURCE_SIZES, k=rng.randint(1, 4)))
    node = UOp(Ops.PARAM, dtypes.float32, (), (1, prod(shape)))
    node = UOp(Ops.RESHAPE, dtypes.float32, (node,), shape)
    for _ in range(rng.randint(FEWEST_STEPS, MOST_STEPS)):
        move = rng.choices(list(MOVEMENTS), weights=list(MOVEMENTS.values()))[0]
        moved = move(rng, node)
        if 1 < prod(moved.shape) <= MOST_ELEMENTS:
            node = moved
    return node


def _reshape(rng: random.Random, x: UOp) -> UOp:
    """Axes merged and split anew, along random factors."""
    return _moved(x, Ops.RESHAPE, _factors(rng, prod(x.shape), rng.randint(1, 5)))


def _factors(rng: random.Random, count: int, most: int) -> tuple[int, ...]:
    sizes: list[int] = []
    while count > 1 and len(sizes) + 1 < most:
        size = rng.choice([n for n in range(2, count + 1) if count % n == 0])
        sizes.append(size)
        count //= size
    sizes.append(count)
    rng.shuffle(sizes)
    return tuple(sizes)


def _split_axis(rng: random.Random, x: UOp) -> UOp:
    """One axis becomes two."""
    axis = rng.randrange(len(x.shape))
    parts = _factors(rng, x.shape[axis], 2)
    return _moved(x, Ops.RESHAPE, (*x.shape[:axis], *parts, *x.shape[axis + 1 :]))


def _merge_axes(rng: random.Random, x: UOp) -> UOp:
    """Two neighbouring axes become one."""
    if len(x.shape) < 2:
        return x
    axis = rng.randrange(len(x.shape) - 1)
    merged = x.shape[axis] * x.shape[axis + 1]
    return _moved(x, Ops.RESHAPE, (*x.shape[:axis], merged, *x.shape[axis + 2 :]))


def _permute(rng: random.Random, x: UOp) -> UOp:
    return _moved(x, Ops.PERMUTE, tuple(rng.sample(range(len(x.shape)), len(x.shape))))


def _pad(rng: random.Random, x: UOp) -> UOp:
    axis = rng.randrange(len(x.shape))
    pads = [(0, 0)] * len(x.shape)
    pads[axis] = (rng.randint(0, 3), rng.randint(0, 3))
    return _moved(x, Ops.PAD, tuple(pads))


def _shrink(rng: random.Random, x: UOp) -> UOp:
    cuts = []
    for size in x.shape:
        begin = rng.randint(0, size // 2) if rng.random() < 0.5 else 0
        end = rng.randint(max(begin + 1, size // 2), size) if rng.random() < 0.5 else size
        cuts.append((begin, max(end, begin + 1)))
    return _moved(x, Ops.SHRINK, tuple(cuts))


def _flip(rng: random.Random, x: UOp) -> UOp:
    return _moved(x, Ops.FLIP, tuple([rng.random() < 0.5 for _ in x.shape]))


def _repeat(rng: random.Random, x: UOp) -> UOp:
    """An axis repeated: a new axis, expanded, and merged with the one after it."""
    axis, times = rng.randrange(len(x.shape)), rng.randint(2, 3)
    head, size, tail = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    spread = _moved(x, Ops.RESHAPE, (*head, 1, size, *tail))
    spread = _moved(spread, Ops.EXPAND, (*head, times, size, *tail))
    return _moved(spread, Ops.RESHAPE, (*head, times * size, *tail))


def _windows(rng: random.Random, x: UOp) -> UOp:
    """The windows of a convolution over one axis, within it: every position and every tap."""
    axis = rng.randrange(len(x.shape))
    size, taps, dilation = x.shape[axis], rng.randint(2, 3), rng.randint(1, 2)
    positions = size - (taps - 1) * dilation
    if positions < 1:
        return x
    head, tail = x.shape[:axis], x.shape[axis + 1 :]
    spread = _moved(x, Ops.RESHAPE, (*head, size, 1, *tail))
    spread = _moved(spread, Ops.EXPAND, (*head, size, taps, *tail))
    return _moved(spread, Ops.SKEW, (axis, axis + 1, dilation, positions))


def _windows_by_repeat(rng: random.Random, x: UOp) -> UOp:
    """The same windows in the classic way: repeat, cut, and read with rows one longer."""
    size, taps = x.shape[-1], rng.randint(2, 3)
    positions = size - taps + 1
    if positions < 1:
        return x
    head = x.shape[:-1]
    repeats = -(-taps * (size + 1) // size)
    spread = _moved(x, Ops.RESHAPE, (*head, 1, size))
    spread = _moved(spread, Ops.EXPAND, (*head, repeats, size))
    flat = _moved(spread, Ops.RESHAPE, (*head, repeats * size))
    whole = tuple([(0, n) for n in head])
    cut = _moved(flat, Ops.SHRINK, (*whole, (0, taps * (size + 1))))
    rows = _moved(cut, Ops.RESHAPE, (*head, taps, size + 1))
    return _moved(rows, Ops.SHRINK, (*whole, (0, taps), (0, positions)))


def _moved(x: UOp, op: Ops, arg: Any) -> UOp:
    return UOp(op, x.dtype, (x,), arg)


MOVEMENTS: dict[Movement, int] = {
    _reshape: 5, _split_axis: 2, _merge_axes: 3, _permute: 4, _pad: 1, _shrink: 3, _flip: 2,
    _repeat: 2, _windows: 1, _windows_by_repeat: 1,
}  # fmt: skip


# -- what a term computes --------------------------------------------------------------------------


def work(term: UOp) -> Work:
    """Divisions and operations of a term, equal ones once."""
    nodes = [node for node in term.toposort() if node.op not in LEAVES]
    return Work(sum(node.op in DIVISIONS for node in nodes), len(nodes))


def points(term: UOp) -> dict[UOp, Any]:
    """Values of the loops of a term: every combination, or so many drawn from a fixed seed."""
    loops = [node for node in term.toposort() if node.op is Ops.RANGE]
    sizes = [int(loop.src[0].arg) for loop in loops]
    total = prod(sizes)
    if total <= MOST_POINTS:
        positions = np.arange(total)
    else:
        positions = np.random.default_rng(0).integers(0, total, MOST_POINTS)
    return dict(zip(loops, np.unravel_index(positions, sizes))) if loops else {}


def values(term: UOp, at: dict[UOp, Any]) -> tuple[Any, Any]:
    """Positions and masks of a term at each point."""
    known: dict[UOp, Any] = {}
    for node in term.toposort():
        if node.op is Ops.CONST:
            known[node] = np.asarray(node.arg)
        elif node.op is Ops.RANGE:
            known[node] = at[node]
        elif node.op in MEANINGS:
            known[node] = MEANINGS[node.op](*[known[source] for source in node.src])
        elif node.op not in LEAVES:
            raise ValueError(f"{node.op.name} in an index term")
    mask = known[term.src[2]] if len(term.src) > 2 else np.asarray(True)
    return known[term.src[1]], mask


def _divided(function: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """Floor division and remainder; by 0 they give 0."""
    return lambda x, y: np.where(y == 0, 0, function(x, np.where(y == 0, 1, y)))


MEANINGS: dict[Ops, Callable[..., Any]] = {
    Ops.ADD: np.add, Ops.MUL: np.multiply, Ops.NEG: np.negative, Ops.MAX: np.maximum,
    Ops.MIN: np.minimum, Ops.CMPLT: np.less, Ops.CMPEQ: np.equal, Ops.NOT: np.logical_not,
    Ops.AND: np.logical_and, Ops.OR: np.logical_or, Ops.XOR: np.logical_xor, Ops.WHERE: np.where,
    Ops.FLOORDIV: _divided(np.floor_divide), Ops.MOD: _divided(np.mod),
}  # fmt: skip


def are_equal(first: UOp, second: UOp) -> bool:
    """Whether two terms have the same mask at every point, and the same position wherever it holds."""
    at = points(first)
    (position, mask), (other_position, other_mask) = values(first, at), values(second, at)
    same_position = np.logical_or(np.logical_not(mask), position == other_position)
    return bool(np.all(mask == other_mask) and np.all(same_position))


# -- printing --------------------------------------------------------------------------------------

SYMBOLS = {
    Ops.ADD: "+", Ops.MUL: "*", Ops.FLOORDIV: "//", Ops.MOD: "%", Ops.CMPLT: "<", Ops.CMPEQ: "==",
    Ops.AND: "&", Ops.OR: "|",
}  # fmt: skip


def show(node: UOp) -> str:
    """One line: r0 is the loop with the number 0, and r0[12] says that it runs 12 times."""
    match node.op:
        case Ops.INDEX:
            return " if ".join([show(source) for source in node.src[1:]])
        case Ops.CONST:
            return str(node.arg)
        case Ops.RANGE:
            return f"r{node.arg[0]}[{node.src[0].arg}]"
        case Ops.NEG | Ops.NOT:
            return ("-" if node.op is Ops.NEG else "!") + show(node.src[0])
        case op if op in SYMBOLS:
            return f"({show(node.src[0])} {SYMBOLS[op]} {show(node.src[1])})"
        case op:
            return f"{op.name.lower()}({', '.join([show(source) for source in node.src])})"
